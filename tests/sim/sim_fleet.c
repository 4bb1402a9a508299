/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A fleet of GPUs for notebooks, training and inference, shared in four ways on the same trace:
 * tests/sim/README.md. Prints one line of figures for each way and kind, and the use of the GPUs
 * over time.
 */

#include "fleet_run.h"

#include <assert.h>
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
}

static double use_of(const struct options *options, const struct fleet_stats *stats)
{
	double busy_s = 0;

	for (int bin = 0; bin < FLEET_BINS; bin++)
		busy_s += stats->busy_s[bin];
	return busy_s / (options->mix.length_s * options->mix.n_gpus);
}

static void print_series(const struct options *options, const char *way,
			 const struct fleet_stats *stats)
{
	printf("series way=%s", way);
	for (int bin = 0; bin < FLEET_BINS; bin++)
		printf(" %.4f",
		       stats->busy_s[bin] / ((double)stats->bin_ns / 1e9) / options->mix.n_gpus);
	printf("\n");
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
	for (enum fleet_kind kind = 0; kind < FLEET_KINDS; kind++) {
		print_kind(way, kind, stats);
		if (options->setup.is_checked)
			continue;
		print_curve(way, kind, "wait", &stats->wait[kind]);
		print_curve(way, kind, "delay", &stats->delay[kind]);
		print_curve(way, kind, "stretch", &stats->stretch[kind]);
	}
	if (!options->setup.is_checked)
		print_series(options, way, stats);
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

/* No job and no GPU time is lost in a run. */
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

enum number { NODES, HOURS, RUN_SEED, LOAD, NOTEBOOKS, TRAINING, REPLICAS, TURN, NUMBERS };

static struct {
	const char *name;
	double value, least, most;
} numbers[NUMBERS] = {
	[NODES] = {"--nodes", 1000, 1, 10000},
	[HOURS] = {"--hours", 24, 0.1, 240},
	[RUN_SEED] = {"--seed", 1, 0, 1e9},
	[LOAD] = {"--load", 2, 0.1, FLEET_REPLICAS_MAX},
	[NOTEBOOKS] = {"--notebooks", 0.4, 0, 1},
	[TRAINING] = {"--training", 0.35, 0, 1},
	[REPLICAS] = {"--replicas", 4, 1, FLEET_REPLICAS_MAX},
	[TURN] = {"--turn", 10, 1, 300}, /* NVSHARE_SWITCH_TIME_MIN, s */
};

static bool parse_number(const char *name, const char *text)
{
	for (int i = 0; i < NUMBERS; i++) {
		char *end;

		if (strcmp(name, numbers[i].name) != 0)
			continue;
		numbers[i].value = strtod(text, &end);
		if (end != text && *end == 0 && numbers[i].value >= numbers[i].least &&
		    numbers[i].value <= numbers[i].most)
			return true;
		(void)fprintf(stderr, "sim_fleet: %s takes a number from %g to %g, not %s\n", name,
			      numbers[i].least, numbers[i].most, text);
		return false;
	}
	(void)fprintf(stderr, "sim_fleet: there is no option %s\n", name);
	return false;
}

static bool parse_way(struct options *options, const char *text)
{
	options->way = text;
	for (int way = 0; way < FLEET_WAYS; way++) {
		if (strcmp(text, way_names[way]) == 0)
			return true;
	}
	(void)fprintf(stderr, "sim_fleet: --way takes whole, slices, fitting or nvshare, not %s\n",
		      text);
	return false;
}

static bool parse(struct options *options, int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--check") == 0) {
			options->setup.is_checked = true;
			continue;
		}
		if (i + 1 == argc) {
			(void)fprintf(stderr, "sim_fleet: %s: a value is missing\n", argv[i]);
			return false;
		}
		if (strcmp(argv[i], "--way") == 0 ? !parse_way(options, argv[i + 1])
						  : !parse_number(argv[i], argv[i + 1]))
			return false;
		i++;
	}
	if (numbers[NOTEBOOKS].value + numbers[TRAINING].value <= 1)
		return true;
	(void)fprintf(stderr, "sim_fleet: --notebooks and --training are more than 1 in sum\n");
	return false;
}

static void set_up(struct options *options)
{
	double *part = options->mix.part;

	part[FLEET_NOTEBOOK] = numbers[NOTEBOOKS].value;
	part[FLEET_TRAINING] = numbers[TRAINING].value;
	part[FLEET_INFERENCE] = 1 - part[FLEET_NOTEBOOK] - part[FLEET_TRAINING];
	options->setup.n_nodes = (uint32_t)numbers[NODES].value;
	options->setup.replicas = (uint32_t)numbers[REPLICAS].value;
	options->mix.n_gpus = options->setup.n_nodes * FLEET_NODE_GPUS;
	options->mix.seed = (uint64_t)numbers[RUN_SEED].value;
	options->mix.load = numbers[LOAD].value;
	options->mix.length_s = numbers[HOURS].value * 3600;
	options->setup.length_ns = (uint64_t)(options->mix.length_s * 1e9);
	sched_config_default(&options->setup.config);
	options->setup.config.switch_min_ns = (uint64_t)(numbers[TURN].value * 1e9);
}

int main(int argc, char **argv)
{
	struct options options = {0};
	struct fleet_trace trace;
	double use[FLEET_WAYS];

	if (!parse(&options, argc, argv))
		return 2;
	set_up(&options);
	fleet_trace_draw(&trace, &options.mix);
	printf("run jobs=%zu", trace.n_jobs);
	for (int i = 0; i < NUMBERS; i++)
		printf(" %s=%g", numbers[i].name + 2, numbers[i].value);
	printf("\n");
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
