/* SPDX-License-Identifier: Apache-2.0 */
/* nvshare-sim predicts latency and throughput of programs that share a GPU, without a GPU. */

#include "sim/engine.h"
#include "sim/sim_options.h"
#include "sim/theory.h"
#include "sim/traffic.h"
#include "util/log.h"
#include "util/output.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { EXIT_USAGE = 2 };

static int load_trace(struct sim_options *options, struct traffic *traffic)
{
	FILE *file = fopen(options->trace, "re");
	int r;

	if (!file)
		return log_errno(LOG_LEVEL_ERROR, -errno, "cannot open '%s'", options->trace);
	r = traffic_read(traffic, file);
	(void)fclose(file);
	if (r > 0) {
		log_error("%s:%d: the line is not arrival_us,service_us, or not in order",
			  options->trace, r);
		return -EINVAL;
	}
	if (r)
		return log_errno(LOG_LEVEL_ERROR, r, "cannot read '%s'", options->trace);
	/* The run lasts until the last arrival, and one second more for the requests to end. */
	options->config.warmup_ns = 0;
	options->config.length_ns = 1000000000u;
	if (traffic->n)
		options->config.length_ns += traffic->requests[traffic->n - 1].at_ns;
	return 0;
}

static void print_head(bool is_csv)
{
	if (is_csv)
		(void)printf("mode,lc_requests,lc_p50_us,lc_p99_us,lc_mean_us,lc_wait_us,"
			     "lc_wait_p99_us,lc_wait_predicted_us,lc_gpu,be_gpu,be_of_rest,"
			     "be_kernels_per_s,holds\n");
	else
		(void)printf("%-8s %9s %9s %9s %9s %9s %9s | %6s %6s %8s %9s\n", "mode", "requests",
			     "p50 us", "p99 us", "mean us", "wait us", "M/G/1 us", "LC %", "BE %",
			     "of rest%", "BE kern/s");
}

static void print_result(const struct sim_options *options, const struct engine_result *result)
{
	const char *mode = sim_options_modes[options->config.mode];
	double length_ns = (double)result->length_ns, predicted;
	double lc = (double)result->lc_gpu_ns / length_ns;
	double be = (double)result->be_gpu_ns / length_ns;
	double kernels = (double)result->n_be * 1e9 / length_ns;

	predicted = theory_wait_ns(&options->config) / 1000;
	if (options->is_csv) {
		(void)printf("%s,%" PRIu64 ",%.1f,%.1f,%.1f,%.1f,%.1f,", mode, result->n_lc,
			     (double)result->lc_p50_ns / 1000, (double)result->lc_p99_ns / 1000,
			     (double)result->lc_mean_ns / 1000, result->wait_mean_ns / 1000,
			     (double)result->wait_p99_ns / 1000);
		if (!isnan(predicted))
			(void)printf("%.1f", predicted);
		(void)printf(",%.4f,%.4f,%.4f,%.2f,%" PRIu64 "\n", lc, be,
			     lc < 1 ? be / (1 - lc) : 0, kernels, result->n_holds);
		return;
	}
	(void)printf("%-8s %9" PRIu64 " %9.0f %9.0f %9.0f %9.1f ", mode, result->n_lc,
		     (double)result->lc_p50_ns / 1000, (double)result->lc_p99_ns / 1000,
		     (double)result->lc_mean_ns / 1000, result->wait_mean_ns / 1000);
	if (isnan(predicted))
		(void)printf("%9s", "-");
	else
		(void)printf("%9.1f", predicted);
	(void)printf(" | %6.1f %6.1f %8.1f %9.1f\n", lc * 100, be * 100,
		     lc < 1 ? be / (1 - lc) * 100 : 0, kernels);
}

static int run_mode(struct sim_options *options)
{
	struct engine_result result;
	int r;

	r = engine_run(&options->config, &result);
	if (r)
		return log_errno(LOG_LEVEL_ERROR, r, "cannot simulate");
	print_result(options, &result);
	return 0;
}

int main(int argc, char **argv)
{
	struct sim_options options;
	struct traffic traffic = {0};
	char text[SIM_OPTIONS_TEXT_LEN];
	int r;

	log_open("nvshare-sim", LOG_LEVEL_INFO, STDERR_FILENO);
	switch (sim_options_parse(argv + (argc > 0), &options, text)) {
	case SIM_OPTIONS_E_HELP:
		sim_options_print_help(stdout);
		return output_arrived("nvshare-sim") ? EXIT_SUCCESS : EXIT_FAILURE;
	case SIM_OPTIONS_E_BAD:
		log_error("%s", text);
		return EXIT_USAGE;
	default:
		break;
	}
	if (options.trace)
		r = load_trace(&options, &traffic);
	else
		r = traffic_poisson(&traffic, options.config.seed, options.lc_rate,
				    options.service_ns, options.is_exponential,
				    options.config.length_ns);
	options.config.requests = traffic.requests;
	options.config.n_requests = traffic.n;
	if (!r)
		print_head(options.is_csv);
	for (int mode = 0; mode < ENGINE_MODE_COUNT_ && !r; mode++) {
		if (options.is_every_mode)
			options.config.mode = (enum engine_mode)mode;
		else if ((int)options.config.mode != mode)
			continue;
		r = run_mode(&options);
	}
	traffic_free(&traffic);
	if (!output_arrived("nvshare-sim"))
		r = -EIO;
	return r ? EXIT_FAILURE : EXIT_SUCCESS;
}
