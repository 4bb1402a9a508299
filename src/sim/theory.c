/* SPDX-License-Identifier: Apache-2.0 */

#include "sim/theory.h"

#include <math.h>

#define POINTS      1000  /* of a numerical integral */
#define BE_SLICE_NS 1e5   /* a best-effort slice beside a critical client: the core's default */
#define EARLY_NS    100e3 /* the margin by which a hold for a hint begins early */

struct moments {
	double first, second;
};

static double mean_service_ns(const struct engine_config *config)
{
	double sum_ns = 0;

	for (size_t i = 0; i < config->n_requests; i++)
		sum_ns += (double)config->requests[i].service_ns;
	return sum_ns / (double)config->n_requests;
}

/* Probability that another client has work when a request finds the critical client idle. */
static double chance_of_work(const struct engine_config *config)
{
	double load =
		(double)config->n_requests / (double)config->length_ns * mean_service_ns(config);
	double kernels = config->be_rate * config->n_be / 1e9 * (double)config->be_kernel_ns;

	if (config->n_be == 0)
		return 0;
	return config->be_rate > 0 && kernels < 1 - load ? kernels / (1 - load) : 1;
}

/* A round: a slice of each other client that has work, with the switches there and back. */
static double round_ns(const struct engine_config *config)
{
	double n = config->n_be, slice_ns = (double)config->slice_ns;

	return (n * (slice_ns + (double)config->switch_ns) + (double)config->switch_ns) *
	       chance_of_work(config);
}

/* A request's own slices; with the driver's slices, a round of the others after each. */
static double length_ns(const struct engine_config *config, double service_ns)
{
	if (config->mode == ENGINE_MODE_DEFAULT)
		return service_ns + service_ns / (double)config->slice_ns * round_ns(config);
	return service_ns + (double)(config->n_pieces - 1) * (double)config->gap_ns;
}

static struct moments service_moments(const struct engine_config *config)
{
	struct moments sum = {0, 0};
	double n = (double)config->n_requests;

	for (size_t i = 0; i < config->n_requests; i++) {
		double ns = length_ns(config, (double)config->requests[i].service_ns);

		sum.first += ns / n;
		sum.second += ns * ns / n;
	}
	return sum;
}

/* From a request's arrival to its begin, if the part u of the vacation is left. */
static double setup_ns(const struct engine_config *config, double u, bool is_hinted)
{
	bool is_freezing = config->mode >= ENGINE_MODE_FREEZE;
	double switch_ns = (double)config->switch_ns, n = config->n_be;
	double freeze_ns = (double)(2 * config->wire_ns + config->freeze_ns);
	double slice_ns = is_freezing || config->mode == ENGINE_MODE_SLICES
				  ? BE_SLICE_NS
				  : (double)config->slice_ns;

	if (is_freezing)
		n = 1; /* only the client that has the GPU matters: all others are held */
	if (is_hinted) {
		double ahead_ns = (double)config->hint_ns - EARLY_NS;

		freeze_ns = ahead_ns < freeze_ns ? freeze_ns - ahead_ns : 0;
	}
	slice_ns = u * (n > 1 ? n * (slice_ns + switch_ns) : slice_ns);
	/* A freeze that comes after the end of the slice does not shorten the switch. */
	return is_freezing && freeze_ns < slice_ns ? freeze_ns : slice_ns + switch_ns;
}

/*
 * Corrects length_ns() for a request that finds the client idle. It waits for a round after each
 * slice but the last, which may be short: ceil(slices) - 1 rounds, and not as many as slices.
 */
static double rounds_correction_ns(const struct engine_config *config)
{
	double slices = mean_service_ns(config) / (double)config->slice_ns;

	return config->mode == ENGINE_MODE_DEFAULT ? (ceil(slices) - 1 - slices) * round_ns(config)
						   : 0;
}

/* Probability that the client has been idle for at most ns. */
static double chance_of_short_idle(double rate, uint64_t ns)
{
	return 1 - exp(-rate * (double)ns);
}

static void add_moments(struct moments *sum, double chance, double ns)
{
	sum->first += chance * ns / POINTS;
	sum->second += chance * ns * ns / POINTS;
}

static struct moments setup_moments(const struct engine_config *config, double rate)
{
	double work = chance_of_work(config), first = rounds_correction_ns(config), warm = 0,
	       unhinted = 1;
	double be_rate = config->be_rate * config->n_be / 1e9, only_switch;
	struct moments sum = {0, 0};

	/* Soon after a burst the others are still held. */
	if (config->mode >= ENGINE_MODE_FREEZE)
		warm = chance_of_short_idle(rate, config->burst_idle_ns + 2 * config->wire_ns +
							  config->thaw_ns);
	if (config->mode == ENGINE_MODE_HINT)
		unhinted = warm;
	/* Another client has computed since the last request, and has no work any more. */
	only_switch = be_rate > 0 ? (1 - work) * be_rate / (be_rate + rate) : 0;
	for (int i = 0; i < POINTS; i++) {
		double u = (i + 0.5) / POINTS;

		add_moments(&sum, work * (unhinted - warm), setup_ns(config, u, false));
		add_moments(&sum, work * (1 - unhinted), setup_ns(config, u, true));
		add_moments(&sum, only_switch, (double)config->switch_ns);
		add_moments(&sum, 1, first);
	}
	return sum;
}

double theory_wait_ns(const struct engine_config *config)
{
	double rate = (double)config->n_requests / (double)config->length_ns, load;
	bool has_gaps = config->n_pieces > 1 && config->gap_ns;
	struct moments s, d;

	if (config->n_requests == 0 || (has_gaps && config->mode < ENGINE_MODE_FREEZE))
		return (double)NAN;
	s = service_moments(config);
	d = setup_moments(config, rate);
	load = rate * s.first;
	if (load >= 1)
		return (double)NAN;
	/* s.first has the waits between its own slices, which count, too. */
	return rate * s.second / (2 * (1 - load)) +
	       (2 * d.first + rate * d.second) / (2 * (1 + rate * d.first)) + s.first -
	       mean_service_ns(config) - (double)(config->n_pieces - 1) * (double)config->gap_ns;
}
