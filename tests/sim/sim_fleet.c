/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A fleet of GPUs for notebooks, training and inference, shared in four ways on the same trace:
 * tests/sim/README.md. Prints one line of figures for each way and kind, and the use of the GPUs
 * over time.
 */

#include "fleet_run.h"

#include <assert.h>
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ROUNDING 1e-6
#define CURVE    200 /* steps of the quantiles that are printed */

static const char *const way_names[FLEET_WAYS] = {"whole", "slices", "fitting", "nvshare"};
static const char *const kind_names[FLEET_KINDS] = {"notebook", "training", "inference"};

struct options {
	struct fleet_mix mix;
	struct fleet_setup setup;
	const char *way; /* NULL: all */
};

static double seconds_of_processor(void)
{
	return (double)clock() / CLOCKS_PER_SEC;
}

static void print_quantiles(const char *name, struct fleet_samples *samples)
{
	printf(" %s_p50=%.4g %s_p95=%.4g %s_p99=%.4g", name, fleet_samples_quantile(samples, 0.5),
	       name, fleet_samples_quantile(samples, 0.95), name,
	       fleet_samples_quantile(samples, 0.99));
}

static void print_curve(const char *way, enum fleet_kind kind, const char *name,
			struct fleet_samples *samples)
{
	printf("curve way=%s kind=%s what=%s", way, kind_names[kind], name);
	for (int i = 0; i <= CURVE; i++)
		printf(" %.5g", fleet_samples_quantile(samples, (double)i / CURVE));
	printf("\n");
}

static void print_kind(const char *way, enum fleet_kind kind, struct fleet_stats *stats)
{
	printf("kind way=%s kind=%s done=%" PRIu64 " out_of_memory=%" PRIu64 " given_up=%" PRIu64
	       " running=%" PRIu64 " queued=%" PRIu64 " gpu_h=%.1f served=%.4f",
	       way, kind_names[kind], stats->n_done[kind], stats->n_out_of_memory[kind],
	       stats->n_given_up[kind], stats->n_running[kind], stats->n_queued[kind],
	       stats->kind_s[kind] / 3600,
	       stats->asked_s[kind] > 0 ? stats->kind_s[kind] / stats->asked_s[kind] : 1);
	print_quantiles("wait", &stats->wait[kind]);
	print_quantiles("begin", &stats->begin[kind]);
	print_quantiles("delay", &stats->delay[kind]);
	print_quantiles("stretch", &stats->stretch[kind]);
	printf("\n");
	print_curve(way, kind, "wait", &stats->wait[kind]);
	print_curve(way, kind, "delay", &stats->delay[kind]);
	print_curve(way, kind, "stretch", &stats->stretch[kind]);
}

static double use_of(const struct options *options, const struct fleet_stats *stats)
{
	double busy_s = 0;

	for (int bin = 0; bin < FLEET_BINS; bin++)
		busy_s += stats->busy_s[bin];
	return busy_s / (options->mix.length_s * options->mix.n_gpus);
}

static void print_way(const struct options *options, const char *way, struct fleet_stats *stats,
		      double took_s)
{
	double gpu_days = options->mix.length_s * options->mix.n_gpus / 86400;

	printf("way way=%s use=%.4f slowdown_all=%.4g", way, use_of(options, stats),
	       stats->train_alone_s > 0 ? stats->train_run_s / stats->train_alone_s : 1);
	print_quantiles("slowdown", &stats->slowdown);
	printf(" out_gib=%.0f in_gib=%.0f moved_gib_a_gpu_day=%.1f evictions=%" PRIu64
	       " host_gib_most=%.0f events=%" PRIu64 " core_steps=%" PRIu64 " took_s=%.1f\n",
	       (double)stats->bytes_out / FLEET_GIB, (double)stats->bytes_in / FLEET_GIB,
	       (double)(stats->bytes_out + stats->bytes_in) / FLEET_GIB / gpu_days,
	       stats->n_evictions, (double)stats->host_most / FLEET_GIB, stats->n_events,
	       stats->n_steps, took_s);
	for (enum fleet_kind kind = 0; kind < FLEET_KINDS; kind++)
		print_kind(way, kind, stats);
	printf("series way=%s", way);
	for (int bin = 0; bin < FLEET_BINS; bin++)
		printf(" %.4f",
		       stats->busy_s[bin] / ((double)stats->bin_ns / 1e9) / options->mix.n_gpus);
	printf("\n");
	(void)fflush(stdout);
}

/* ---- checks -------------------------------------------------------------------------------- */

static uint64_t count_jobs(const struct fleet_trace *trace, enum fleet_kind kind)
{
	uint64_t n = 0;

	for (size_t i = 0; i < trace->n_jobs; i++)
		n += trace->jobs[i].kind == kind;
	return n;
}

/* What holds after each run: no job and no time is lost. */
static void check_way(const struct options *options, const struct fleet_trace *trace,
		      enum fleet_way way, struct fleet_stats *stats)
{
	double busy_s = 0, kinds_s = 0;

	for (int bin = 0; bin < FLEET_BINS; bin++) {
		assert(stats->busy_s[bin] <=
		       options->mix.n_gpus * (double)stats->bin_ns / 1e9 * (1 + ROUNDING));
		busy_s += stats->busy_s[bin];
	}
	for (enum fleet_kind kind = 0; kind < FLEET_KINDS; kind++) {
		kinds_s += stats->kind_s[kind];
		assert(stats->n_done[kind] + stats->n_given_up[kind] + stats->n_running[kind] +
			       stats->n_queued[kind] ==
		       count_jobs(trace, kind));
		if (way != FLEET_SLICES)
			assert(stats->n_out_of_memory[kind] == 0);
		if (way == FLEET_WHOLE)
			assert(fleet_samples_quantile(&stats->delay[kind], 1) < ROUNDING);
	}
	assert(fabs(busy_s - kinds_s) <= ROUNDING * kinds_s);
	assert(stats->bytes_in <= stats->bytes_out);
	assert((stats->bytes_out > 0) == (way == FLEET_NVSHARE));
}

/* The same trace gives the same run, to the last bit. */
static void check_again(const struct fleet_setup *setup, const struct fleet_trace *trace,
			const struct fleet_stats *stats)
{
	struct fleet_stats again;

	fleet_run(setup, trace, &again);
	assert(memcmp(again.busy_s, stats->busy_s, sizeof(again.busy_s)) == 0);
	assert(memcmp(again.kind_s, stats->kind_s, sizeof(again.kind_s)) == 0);
	assert(memcmp(again.n_done, stats->n_done, sizeof(again.n_done)) == 0);
	assert(again.bytes_out == stats->bytes_out && again.n_steps == stats->n_steps);
	fleet_stats_free(&again);
}

static void check_ways(const double use[FLEET_WAYS])
{
	assert(use[FLEET_NVSHARE] > use[FLEET_WHOLE]);
	assert(use[FLEET_NVSHARE] > use[FLEET_SLICES]);
}

/* ---- the program ---------------------------------------------------------------------------- */

static int usage(void)
{
	(void)fprintf(stderr,
		      "usage: sim_fleet [--nodes N] [--hours H] [--seed N] [--load L]\n"
		      "                 [--notebooks PART] [--training PART] [--replicas N]\n"
		      "                 [--way whole|slices|fitting|nvshare] [--check]\n");
	return 2;
}

static bool parse(struct options *options, int argc, char **argv)
{
	static const struct option known[] = {
		{"nodes", required_argument, NULL, 'n'},
		{"hours", required_argument, NULL, 'h'},
		{"seed", required_argument, NULL, 's'},
		{"load", required_argument, NULL, 'l'},
		{"notebooks", required_argument, NULL, 'b'},
		{"training", required_argument, NULL, 't'},
		{"replicas", required_argument, NULL, 'r'},
		{"way", required_argument, NULL, 'w'},
		{"check", no_argument, NULL, 'c'},
		{0},
	};
	double *part = options->mix.part;
	int c;

	while ((c = getopt_long(argc, argv, "", known, NULL)) != -1) {
		switch (c) {
		case 'n':
			options->setup.n_nodes = (uint32_t)strtoul(optarg, NULL, 10);
			break;
		case 'h':
			options->mix.length_s = strtod(optarg, NULL) * 3600;
			break;
		case 's':
			options->mix.seed = strtoull(optarg, NULL, 10);
			break;
		case 'l':
			options->mix.load = strtod(optarg, NULL);
			break;
		case 'b':
			part[FLEET_NOTEBOOK] = strtod(optarg, NULL);
			break;
		case 't':
			part[FLEET_TRAINING] = strtod(optarg, NULL);
			break;
		case 'r':
			options->setup.replicas = (uint32_t)strtoul(optarg, NULL, 10);
			break;
		case 'w':
			options->way = optarg;
			break;
		case 'c':
			options->setup.is_checked = true;
			break;
		default:
			return false;
		}
	}
	part[FLEET_INFERENCE] = 1 - part[FLEET_NOTEBOOK] - part[FLEET_TRAINING];
	options->mix.n_gpus = options->setup.n_nodes * FLEET_NODE_GPUS;
	options->setup.length_ns = (uint64_t)(options->mix.length_s * 1e9);
	return optind == argc && options->setup.n_nodes > 0 && options->setup.replicas > 0 &&
	       options->setup.replicas <= FLEET_REPLICAS_MAX && options->mix.length_s > 0 &&
	       options->mix.load > 0 && part[FLEET_INFERENCE] >= 0;
}

int main(int argc, char **argv)
{
	struct options options = {
		.mix = {.seed = 1, .length_s = 86400, .load = 2, .part = {0.4, 0.35, 0.25}},
		.setup = {.n_nodes = 1000, .replicas = 4}};
	struct fleet_trace trace;
	double use[FLEET_WAYS];

	if (!parse(&options, argc, argv))
		return usage();
	fleet_trace_draw(&trace, &options.mix);
	printf("run nodes=%u gpus=%u hours=%g seed=%" PRIu64
	       " load=%g notebooks=%g training=%g inference=%g replicas=%u jobs=%zu\n",
	       options.setup.n_nodes, options.mix.n_gpus, options.mix.length_s / 3600,
	       options.mix.seed, options.mix.load, options.mix.part[FLEET_NOTEBOOK],
	       options.mix.part[FLEET_TRAINING], options.mix.part[FLEET_INFERENCE],
	       options.setup.replicas, trace.n_jobs);
	for (enum fleet_way way = 0; way < FLEET_WAYS; way++) {
		struct fleet_setup setup = options.setup;
		struct fleet_stats stats;
		double began_s = seconds_of_processor();

		if (options.way && strcmp(options.way, way_names[way]) != 0)
			continue;
		setup.way = way;
		setup.replicas = way == FLEET_WHOLE ? 1 : setup.replicas;
		fleet_run(&setup, &trace, &stats);
		print_way(&options, way_names[way], &stats, seconds_of_processor() - began_s);
		use[way] = use_of(&options, &stats);
		if (setup.is_checked) {
			check_way(&options, &trace, way, &stats);
			check_again(&setup, &trace, &stats);
		}
		fleet_stats_free(&stats);
	}
	if (options.setup.is_checked && !options.way)
		check_ways(use);
	fleet_trace_free(&trace);
	return 0;
}
