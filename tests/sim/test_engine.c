/* SPDX-License-Identifier: Apache-2.0 */

/* The simulated GPU against hand-made cases, and its queues against queueing theory. */

#include "sim/engine.h"
#include "sim/gpu.h"
#include "sim/theory.h"
#include "sim/traffic.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define US 1000u
#define MS 1000000u
#define S  1000000000ull

static const struct engine_config usual = {
	.n_pieces = 1,
	.n_be = 1,
	.be_kernel_ns = 10 * MS,
	.seed = 1,
	.length_ns = 1000 * S,
	.slice_ns = 2048 * US,
	.switch_ns = 200 * US,
	.freeze_ns = 580 * US,
	.thaw_ns = 290 * US,
	.wire_ns = 40 * US,
	.hint_ns = MS,
	.burst_idle_ns = MS,
};

/* ---- theory ----------------------------------------------------------------- */

struct load {
	double rate;
	uint64_t service_ns;
	bool is_exponential;
	uint32_t n_be;
	double be_rate;
	bool is_default_too; /* with the driver's slices it is no overload, and near the theory */
	uint64_t
		preempt_ns; /* a switch and a freeze take so long, a message nothing; 0: as usual */
};

static void agrees(const struct load *load, enum engine_mode mode)
{
	struct engine_config config = usual;
	struct engine_result result;
	struct traffic traffic;
	double predicted_ns;

	config.mode = mode;
	config.n_be = load->n_be;
	config.be_rate = load->be_rate;
	if (load->preempt_ns) {
		config.switch_ns = load->preempt_ns;
		config.freeze_ns = load->preempt_ns;
		config.wire_ns = 0;
	}
	config.warmup_ns = 2 * S;
	config.length_ns = (uint64_t)(40000 / load->rate * 1e9); /* leaves noise of 3 % */
	assert_int_equal(traffic_poisson(&traffic, 1, load->rate, load->service_ns,
					 load->is_exponential, config.length_ns),
			 0);
	config.requests = traffic.requests;
	config.n_requests = traffic.n;
	assert_int_equal(engine_run(&config, &result), 0);
	predicted_ns = theory_wait_ns(&config);
	if (!(fabs(result.wait_mean_ns / predicted_ns - 1) < 0.06)) {
		print_error("rate %.0f, mode %d: wait %.0f ns, predicted %.0f ns\n", load->rate,
			    (int)mode, result.wait_mean_ns, predicted_ns);
		fail();
	}
	traffic_free(&traffic);
}

static void simulation_and_theory_agree(void **state)
{
	static const struct load loads[] = {
		{10, 5 * MS, false, 1, 0, true, 0},
		{20, 5 * MS, false, 1, 0, true, 0},
		{50, 5 * MS, false, 1, 0, true, 0},
		{100, 5 * MS, false, 1, 0, false, 0},
		{100, 5 * MS, false, 0, 0, true, 0},
		{50, 5 * MS, false, 4, 0, false, 0},
		{20, 5 * MS, true, 1, 0, true, 0},
		{100, 5 * MS, true, 1, 0, false, 0},
		{10, 5 * MS, false, 1, 50, true, 0},
		{10, 5 * MS, false, 1, 80, true, 0},
		{300, MS, false, 1, 0, false, 0},
		{10, 5 * MS, false, 1, 0, true, 100 * US},
		{10, 5 * MS, false, 1, 60, true, 100 * US},
		{10, 5 * MS, false, 1, 0, true, 40 * US},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(loads) / sizeof(loads[0]); i++) {
		if (loads[i].is_default_too)
			agrees(&loads[i], ENGINE_MODE_DEFAULT);
		agrees(&loads[i], ENGINE_MODE_SLICES);
		agrees(&loads[i], ENGINE_MODE_FREEZE);
		agrees(&loads[i], ENGINE_MODE_HINT);
	}
}

static void theory_knows_what_it_does_not_know(void **state)
{
	static const struct engine_request requests[] = {{S, 900 * MS}, {2 * S, 900 * MS}};
	struct engine_config config = usual;

	(void)state;
	config.length_ns = 3 * S;
	assert_true(isnan(theory_wait_ns(&config)));
	config.requests = requests;
	config.n_requests = 2;
	assert_true(isnan(theory_wait_ns(&config))); /* overload, with the driver's slices */
	config.mode = ENGINE_MODE_FREEZE;
	assert_false(isnan(theory_wait_ns(&config)));
	config.n_pieces = 2;
	config.gap_ns = MS;
	assert_false(isnan(theory_wait_ns(&config)));
	config.mode = ENGINE_MODE_SLICES;
	assert_true(isnan(theory_wait_ns(&config)));
}

/* ---- one request ------------------------------------------------------------- */

/* Latency of the second of two requests, which are far apart; ns. */
static uint64_t second_ns(const struct engine_config *base, uint64_t service_ns)
{
	const struct engine_request requests[] = {{S, service_ns}, {S + 500 * MS, service_ns}};
	struct engine_config config = *base;
	struct engine_result result;

	config.requests = requests;
	config.n_requests = 2;
	config.length_ns = 3 * S;
	config.warmup_ns = S + 1;
	assert_int_equal(engine_run(&config, &result), 0);
	assert_int_equal(result.n_lc, 1);
	return result.lc_mean_ns;
}

static void a_request_alone_takes_its_service_and_its_gaps(void **state)
{
	struct engine_config config = usual;

	(void)state;
	config.n_be = 0;
	for (int mode = 0; mode < ENGINE_MODE_COUNT_; mode++) {
		config.mode = (enum engine_mode)mode;
		config.n_pieces = 1;
		assert_int_equal(second_ns(&config, 5 * MS), 5 * MS);
		config.n_pieces = 7;
		config.gap_ns = 100 * US;
		assert_int_equal(second_ns(&config, 5 * MS + 3), 5 * MS + 3 + 600 * US);
	}
}

static void each_mode_leaves_less_in_the_way(void **state)
{
	struct engine_config config = usual;
	uint64_t ns, last_ns = UINT64_MAX;

	(void)state;
	config.n_pieces = 20;
	config.gap_ns = 50 * US;
	for (int mode = 0; mode < ENGINE_MODE_COUNT_; mode++) {
		config.mode = (enum engine_mode)mode;
		ns = second_ns(&config, 5 * MS);
		assert_true(ns < last_ns);
		last_ns = ns;
	}
	assert_int_equal(last_ns, 5 * MS + 19 * 50 * US); /* with a hint: as if alone */
}

static void the_same_configuration_gives_the_same_result(void **state)
{
	struct engine_config config = usual;
	struct engine_result first, second;
	struct traffic traffic;

	(void)state;
	config.mode = ENGINE_MODE_FREEZE;
	config.be_rate = 60;
	config.n_be = 3;
	config.length_ns = 20 * S;
	assert_int_equal(traffic_poisson(&traffic, 5, 50, MS, true, config.length_ns), 0);
	config.requests = traffic.requests;
	config.n_requests = traffic.n;
	assert_int_equal(engine_run(&config, &first), 0);
	assert_int_equal(engine_run(&config, &second), 0);
	assert_memory_equal(&first, &second, sizeof(first));
	assert_true(first.n_lc > 0 && first.n_be > 0 && first.n_holds > 0);
	traffic_free(&traffic);
}

/* ---- the hardware -------------------------------------------------------------- */

static void pass_to(struct gpu *gpu, uint64_t *now_ns, uint64_t to_ns)
{
	while (*now_ns < to_ns) {
		uint64_t at_ns = gpu_next(gpu) < to_ns ? gpu_next(gpu) : to_ns;

		gpu_pass(gpu, *now_ns, at_ns);
		*now_ns = at_ns;
		for (uint32_t i = 0; i < gpu->n_clients; i++)
			(void)gpu_has_ended(gpu, i);
		gpu_choose(gpu, at_ns);
	}
}

static void slices_are_shares_but_for_the_switches(void **state)
{
	struct gpu gpu;
	uint64_t now_ns = 0;

	(void)state;
	gpu_init(&gpu, 2, 2 * MS, 200 * US);
	gpu.clients[1].slice_ns = 6 * MS;
	gpu_give(&gpu, 0, 0, 100 * S);
	gpu_give(&gpu, 0, 1, 100 * S);
	gpu_choose(&gpu, 0);
	pass_to(&gpu, &now_ns, 84 * 10 * MS);
	assert_int_equal(gpu.clients[0].got_ns, 200 * MS);
	assert_int_equal(gpu.clients[1].got_ns, 600 * MS);
}

static void who_is_frozen_is_off_at_once_and_costs_no_switch(void **state)
{
	struct gpu gpu;
	uint64_t now_ns = 0;

	(void)state;
	gpu_init(&gpu, 2, 2 * MS, 200 * US);
	gpu_give(&gpu, 0, 0, 100 * S);
	gpu_choose(&gpu, 0);
	pass_to(&gpu, &now_ns, MS); /* the first 0.2 ms: the other one was the last */
	gpu_give(&gpu, now_ns, 1, MS);
	gpu_set_frozen(&gpu, now_ns, 0, true);
	gpu_choose(&gpu, now_ns);
	pass_to(&gpu, &now_ns, 3 * MS);
	assert_int_equal(gpu.clients[1].got_ns, MS);
	assert_true(gpu.clients[0].got_ns <= MS);
	gpu_set_frozen(&gpu, now_ns, 0, false);
	gpu_choose(&gpu, now_ns);
	assert_int_equal(gpu.owner, 0);
}

/* ---- traffic --------------------------------------------------------------------- */

static int read_text(const char *text, struct traffic *traffic)
{
	char copy[200];
	FILE *file;
	int r;

	(void)snprintf(copy, sizeof(copy), "%s", text);
	file = fmemopen(copy, strlen(copy), "r");
	assert_non_null(file);
	r = traffic_read(traffic, file);
	(void)fclose(file);
	return r;
}

static void a_trace_is_read_or_its_bad_line_named(void **state)
{
	static const struct {
		const char *text;
		int r;
		size_t n;
	} cases[] = {
		{"arrival_us,service_us\n0,5\n# later\n\n10,20\r\n10,1\n", 0, 3},
		{"1,2", 0, 1},
		{"# none\n", 0, 0},
		{"0,5\n5\n", 2, 0},
		{"0,5\n10,5\n9,5\n", 3, 0},
		{"0,0\n", 1, 0},
		{"-1,5\n", 1, 0},
		{"0,5,6\n", 1, 0},
		{"0, 5\n", 1, 0},
		{"99999999999999999999,5\n", 1, 0},
	};
	struct traffic traffic;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_equal(read_text(cases[i].text, &traffic), cases[i].r);
		assert_int_equal(traffic.n, cases[i].n);
		if (i == 0) {
			assert_int_equal(traffic.requests[1].at_ns, 10 * US);
			assert_int_equal(traffic.requests[1].service_ns, 20 * US);
		}
		traffic_free(&traffic);
	}
}

static void poisson_arrivals_have_their_rate_and_spread(void **state)
{
	struct traffic traffic;
	double mean = 0, square = 0, last = 0;

	(void)state;
	assert_int_equal(traffic_poisson(&traffic, 3, 1000, MS, false, 200 * S), 0);
	for (size_t i = 0; i < traffic.n; i++) {
		double gap = (double)traffic.requests[i].at_ns - last;

		last = (double)traffic.requests[i].at_ns;
		mean += gap / (double)traffic.n;
		square += gap * gap / (double)traffic.n;
	}
	assert_true(fabs(mean / 1e6 - 1) < 0.01);
	assert_true(fabs(square / (mean * mean) - 2) < 0.03);
	traffic_free(&traffic);
	assert_int_equal(traffic_poisson(&traffic, 3, 0, MS, false, 200 * S), 0);
	assert_int_equal(traffic.n, 0);
}

static void quantiles_are_of_the_sorted_values(void **state)
{
	uint64_t values[] = {5, 1, 4, 2, 3, 9, 8, 7, 6, 10};

	(void)state;
	assert_int_equal(traffic_quantile(values, 10, 50), 5);
	assert_int_equal(traffic_quantile(values, 10, 99), 10);
	assert_int_equal(traffic_quantile(values, 10, 0), 1);
	assert_int_equal(traffic_quantile(values, 1, 99), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(simulation_and_theory_agree),
		cmocka_unit_test(theory_knows_what_it_does_not_know),
		cmocka_unit_test(a_request_alone_takes_its_service_and_its_gaps),
		cmocka_unit_test(each_mode_leaves_less_in_the_way),
		cmocka_unit_test(the_same_configuration_gives_the_same_result),
		cmocka_unit_test(slices_are_shares_but_for_the_switches),
		cmocka_unit_test(who_is_frozen_is_off_at_once_and_costs_no_switch),
		cmocka_unit_test(a_trace_is_read_or_its_bad_line_named),
		cmocka_unit_test(poisson_arrivals_have_their_rate_and_spread),
		cmocka_unit_test(quantiles_are_of_the_sorted_values),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
