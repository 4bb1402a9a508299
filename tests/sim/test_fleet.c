/* SPDX-License-Identifier: Apache-2.0 */

#include "fleet_node.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#define JOBS 4

/* One node, with jobs on its first GPU. */
struct rig {
	struct fleet_job jobs[JOBS];
	struct fleet_trace trace;
	struct fleet_stats stats;
	struct fleet_node node;
	uint64_t now_ns; /* of the next step */
	uint64_t end_ns[JOBS];
	enum fleet_end end[JOBS];
};

/* memory: part of the card. */
static void rig_add(struct rig *rig, enum fleet_kind kind, double length_s, double demand,
		    double memory)
{
	size_t number = rig->trace.n_jobs++;

	rig->jobs[number] = (struct fleet_job){
		.kind = kind,
		.owner = (uint32_t)number,
		.seed = number,
		.bytes = (uint64_t)(memory * (double)FLEET_CARD),
		.length_s = length_s,
		.demand = demand,
		.is_often = true,
	};
}

static void rig_begin(struct rig *rig, enum fleet_way way)
{
	struct sched_config config;

	sched_config_default(&config);
	rig->trace.jobs = rig->jobs;
	rig->stats = (struct fleet_stats){.bin_ns = 3600 * FLEET_S_NS};
	fleet_node_init(&rig->node, way, JOBS, &config, &rig->trace, &rig->stats);
	for (uint32_t job = 0; job < rig->trace.n_jobs; job++)
		fleet_node_start(&rig->node, 0, job, 0);
}

/* Until the time has come, or nothing is left to do. */
static void rig_run_to(struct rig *rig, uint64_t until_ns)
{
	while (rig->now_ns <= until_ns) {
		uint64_t now_ns = rig->now_ns;

		fleet_node_run(&rig->node, now_ns);
		fleet_node_check(&rig->node);
		for (uint32_t i = 0; i < rig->node.n_ended; i++) {
			rig->end_ns[rig->node.ended[i].job] = now_ns;
			rig->end[rig->node.ended[i].job] = rig->node.ended[i].end;
		}
		rig->node.n_ended = 0;
		rig->now_ns = fleet_node_next(&rig->node);
	}
}

static void rig_run(struct rig *rig, double until_s)
{
	rig_run_to(rig, (uint64_t)(until_s * 1e9));
}

static void rig_end(struct rig *rig)
{
	fleet_node_free(&rig->node);
	fleet_stats_free(&rig->stats);
}

static void assert_near(double value, double expected, double tolerance)
{
	if (fabs(value - expected) > tolerance)
		fail_msg("%g is not %g", value, expected);
}

/* ---- computing ---------------------------------------------------------------------------- */

static void an_only_program_computes_as_alone(void **state)
{
	(void)state;
	for (enum fleet_way way = 0; way < FLEET_WAYS; way++) {
		struct rig rig = {0};

		rig_add(&rig, FLEET_TRAINING, 100, 0.7, 0.5);
		rig_begin(&rig, way);
		rig_run(&rig, 1000);
		assert_int_equal(rig.end[0], FLEET_DONE);
		assert_near((double)rig.end_ns[0] / 1e9, 100, 1e-3);
		assert_near(rig.stats.kind_s[FLEET_TRAINING], 70, 1e-3);
		rig_end(&rig);
	}
}

static void programs_divide_a_gpu_and_leave_what_they_do_not_need(void **state)
{
	struct rig rig = {0};

	(void)state;
	rig_add(&rig, FLEET_TRAINING, 100, 0.2, 0.1);
	rig_add(&rig, FLEET_TRAINING, 100, 0.6, 0.1);
	rig_add(&rig, FLEET_TRAINING, 100, 0.9, 0.1);
	rig_begin(&rig, FLEET_SLICES);
	rig_run(&rig, 0);
	assert_near(rig.node.programs[0].share, 0.2, 1e-9);
	assert_near(rig.node.programs[1].share, (0.906 - 0.2) / 2, 1e-9);
	assert_near(rig.node.programs[2].share, (0.906 - 0.2) / 2, 1e-9);
	rig_end(&rig);
}

static void servers_come_first_under_nvshare_and_notebooks_before_trainings(void **state)
{
	struct rig rig = {0};

	(void)state;
	rig_add(&rig, FLEET_INFERENCE, INFINITY, 0.3, 0.1);
	rig_add(&rig, FLEET_TRAINING, 1e6, 1, 0.1);
	rig_add(&rig, FLEET_NOTEBOOK, 1e6, 1, 0.1);
	rig_begin(&rig, FLEET_NVSHARE);
	while (!rig.node.programs[2].is_working)
		rig_run_to(&rig, rig.now_ns);
	assert_near(rig.node.programs[0].share, 0.3, 1e-9);
	assert_near(rig.node.programs[1].share, (0.979 - 0.3) / 11, 1e-9);
	assert_near(rig.node.programs[2].share, (0.979 - 0.3) / 11 * 10, 1e-9);
	rig_end(&rig);
}

/* ---- memory --------------------------------------------------------------------------------- */

static void what_does_not_fit_ends_without_memory_under_time_slicing(void **state)
{
	struct rig rig = {0};

	(void)state;
	rig_add(&rig, FLEET_TRAINING, 100, 1, 0.6);
	rig_add(&rig, FLEET_TRAINING, 100, 1, 0.6);
	rig_begin(&rig, FLEET_SLICES);
	rig_run(&rig, 1000);
	assert_int_equal(rig.end[0], FLEET_DONE);
	assert_int_equal(rig.end[1], FLEET_OUT_OF_MEMORY);
	assert_int_equal(rig.end_ns[1], 0);
	rig_end(&rig);
}

/* Each turn takes 10 s, and each switch the time of its copies. */
static void what_does_not_fit_takes_turns_under_nvshare(void **state)
{
	struct rig rig = {0};
	double bytes = 0.6 * (double)FLEET_CARD, last_s, n_switches;

	(void)state;
	rig_add(&rig, FLEET_TRAINING, 100, 1, 0.6);
	rig_add(&rig, FLEET_TRAINING, 100, 1, 0.6);
	rig_begin(&rig, FLEET_NVSHARE);
	rig_run(&rig, 1000);
	assert_int_equal(rig.end[0], FLEET_DONE);
	assert_int_equal(rig.end[1], FLEET_DONE);
	last_s = (double)(rig.end_ns[0] > rig.end_ns[1] ? rig.end_ns[0] : rig.end_ns[1]) / 1e9;
	n_switches = (double)rig.stats.n_evictions;
	assert_in_range(rig.stats.n_evictions, 10, 20);
	assert_true((double)rig.stats.bytes_out <= bytes * n_switches);
	assert_true(last_s > 200 + n_switches * bytes / 4 / (46.0 * FLEET_GIB));
	assert_true(last_s < 200 + n_switches * bytes * 1.5 / (46.0 * FLEET_GIB));
	rig_end(&rig);
}

static void placement_by_memory_refuses_what_does_not_fit(void **state)
{
	struct rig rig = {0};

	(void)state;
	rig_add(&rig, FLEET_TRAINING, 100, 1, 0.6);
	rig_begin(&rig, FLEET_FITTING);
	assert_int_equal(fleet_node_choose(&rig.node, &rig.jobs[0], 0), 1);
	for (uint32_t gpu = 1; gpu < FLEET_NODE_GPUS; gpu++)
		fleet_node_start(&rig.node, gpu, 0, 0);
	assert_int_equal(fleet_node_choose(&rig.node, &rig.jobs[0], 0), -1);
	rig_end(&rig);
}

/* ---- the trace ------------------------------------------------------------------------------ */

static double part_below(struct fleet_samples *samples, double value)
{
	size_t n = 0;

	for (size_t i = 0; i < samples->n; i++)
		n += (double)samples->at[i] <= value;
	return (double)n / (double)samples->n;
}

static void jobs_have_the_figures_of_their_sources(void **state)
{
	struct fleet_mix mix = {
		.seed = 7, .n_gpus = 4000, .length_s = 86400, .load = 2, .part = {0.4, 0.35, 0.25}};
	struct fleet_samples lengths = {0}, memory[FLEET_KINDS] = {0}, cells = {0}, gaps = {0};
	struct fleet_trace trace;
	uint64_t n_servers = 0, n_sparse = 0;

	(void)state;
	fleet_trace_draw(&trace, &mix);
	for (size_t i = 0; i < trace.n_jobs; i++) {
		const struct fleet_job *job = &trace.jobs[i];
		struct fleet_steps steps;
		struct fleet_step cell;

		assert_true(i == 0 || trace.jobs[i - 1].at_ns <= job->at_ns);
		fleet_samples_add(&memory[job->kind], (double)job->bytes / (double)FLEET_CARD);
		n_servers += job->kind == FLEET_INFERENCE;
		n_sparse += job->kind == FLEET_INFERENCE && !job->is_often;
		if (job->kind == FLEET_TRAINING && job->at_ns > 0)
			fleet_samples_add(&lengths, job->length_s);
		if (job->kind != FLEET_NOTEBOOK || job->length_s < 4 * 3600)
			continue;
		fleet_steps_begin(&steps, job);
		cell = fleet_steps_next(&steps, job);
		fleet_samples_add(&cells, cell.work_s);
		if (job->is_often)
			fleet_samples_add(&gaps, cell.pause_s + cell.work_s);
	}
	assert_near(fleet_samples_quantile(&lengths, 0.5), 206, 10);
	assert_near(part_below(&cells, 120), 0.5, 0.02);
	assert_near(part_below(&cells, 300), 0.75, 0.02);
	assert_near(fleet_samples_quantile(&gaps, 0.5), 300, 15);
	assert_near((double)n_sparse / (double)n_servers, 0.177, 0.02);
	assert_near(part_below(&memory[FLEET_TRAINING], 0.5), 0.55, 0.02);
	assert_near(fleet_samples_quantile(&memory[FLEET_NOTEBOOK], 0.5), 0.47, 0.01);
	assert_near(fleet_samples_quantile(&memory[FLEET_INFERENCE], 0.75), 0.51, 0.01);
	for (int kind = 0; kind < FLEET_KINDS; kind++)
		fleet_samples_free(&memory[kind]);
	fleet_samples_free(&lengths);
	fleet_samples_free(&cells);
	fleet_samples_free(&gaps);
	fleet_trace_free(&trace);
}

/* Steps of a job are drawn from its own seed. */
static void a_job_has_the_same_steps_each_time(void **state)
{
	struct fleet_job job = {.kind = FLEET_NOTEBOOK, .seed = 5, .length_s = 1e5, .demand = 1};
	struct fleet_steps a, b;
	double sum_s = 0;

	(void)state;
	fleet_steps_begin(&a, &job);
	fleet_steps_begin(&b, &job);
	for (int i = 0; i < 1000; i++) {
		struct fleet_step step = fleet_steps_next(&a, &job);
		struct fleet_step again = fleet_steps_next(&b, &job);

		assert_true(step.pause_s == again.pause_s && step.work_s == again.work_s);
		sum_s += step.pause_s + step.work_s;
	}
	assert_near(sum_s, job.length_s, 1e-3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_only_program_computes_as_alone),
		cmocka_unit_test(programs_divide_a_gpu_and_leave_what_they_do_not_need),
		cmocka_unit_test(servers_come_first_under_nvshare_and_notebooks_before_trainings),
		cmocka_unit_test(what_does_not_fit_ends_without_memory_under_time_slicing),
		cmocka_unit_test(what_does_not_fit_takes_turns_under_nvshare),
		cmocka_unit_test(placement_by_memory_refuses_what_does_not_fit),
		cmocka_unit_test(jobs_have_the_figures_of_their_sources),
		cmocka_unit_test(a_job_has_the_same_steps_each_time),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
