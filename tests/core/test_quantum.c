/* SPDX-License-Identifier: Apache-2.0 */

/* How long a turn lasts. */

#include "core/policy/quantum.h"
#include "rig.h"

static struct rig rig;

struct row {
	enum sched_mode mode;
	enum sched_switch_mode switch_mode;
	uint64_t bandwidth; /* GiB a second; 0: not measured */
	uint64_t link;      /* GiB a second; 0: unknown */
	uint64_t running;   /* GiB */
	uint64_t moved;     /* GiB */
	uint32_t n_waiting;
	uint64_t seconds;
};

#define AUTO       SCHED_MODE_AUTO, SCHED_SWITCH_AUTO
#define FIXED      SCHED_MODE_AUTO, SCHED_SWITCH_FIXED
#define CONCURRENT SCHED_MODE_CONCURRENT, SCHED_SWITCH_AUTO

static const struct row rows[] = {
	/* measured: bytes / bandwidth * 5, within 10 and 300 s */
	{AUTO, 10, 0, 80, 40, 1, 20},
	{AUTO, 10, 0, 80, 4, 1, 10},
	{AUTO, 1, 0, 80, 100, 0, 300},
	{AUTO, 4, 0, 80, 40, 1, 50},
	/* not measured: the same at what the link should reach, whatever runs */
	{AUTO, 0, 10, 80, 40, 1, 20},
	{AUTO, 0, 50, 90, 50, 1, 10},
	{AUTO, 0, 1, 0, 100, 0, 300},
	/* what is measured counts, slower or faster */
	{AUTO, 4, 50, 80, 40, 1, 50},
	{AUTO, 10, 1, 80, 40, 1, 20},
	/* neither: the shortest turn */
	{AUTO, 0, 0, 6, 100, 1, 10},
	{AUTO, 0, 0, 0, 100, 1, 10},
	{AUTO, 0, 0, 90, 100, 0, 10},
	/* fixed */
	{FIXED, 10, 0, 80, 40, 1, 30},
	{FIXED, 0, 0, 1, 0, 1, 30},
	/* concurrent: tq */
	{CONCURRENT, 0, 0, 80, 80, 1, 45},
	/* everybody within the bound of 240 s; a second at least */
	{FIXED, 0, 0, 1, 0, 10, 24},
	{AUTO, 1, 0, 80, 100, 2, 120},
	{AUTO, 10, 0, 80, 40, 48, 5},
	{CONCURRENT, 0, 0, 80, 80, 240, 1},
	{CONCURRENT, 0, 0, 80, 80, 5000, 1},
};

static void the_table(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		const struct row *row = &rows[i];

		rig_init(&rig);
		rig.sched.gpus[0].config.mode = row->mode;
		rig.sched.gpus[0].config.switch_mode = row->switch_mode;
		rig.sched.gpus[0].config.tq_ns = 45 * S;
		rig.sched.gpus[0].bandwidth = row->bandwidth * GIB;
		rig.sched.gpus[0].link_bandwidth = row->link * GIB;
		rig.sched.gpus[0].sums.holder_bytes = row->running * GIB;
		rig.sched.gpus[0].queue.n = row->n_waiting;
		assert_int_equal(quantum_turn(&rig.sched, 0, row->moved * GIB), row->seconds * S);
	}
}

static void the_longest_run_bounds_every_turn(void **state)
{
	(void)state;
	rig_init(&rig);
	rig.sched.gpus[0].config.max_runtime_ns = 12 * S;
	rig.sched.gpus[0].config.tq_ns = 100 * S;
	rig.sched.gpus[0].config.mode = SCHED_MODE_CONCURRENT;
	assert_int_equal(quantum_turn(&rig.sched, 0, GIB), 12 * S);
}

static void answers_have_a_second_for_each_gib(void **state)
{
	(void)state;
	rig_init(&rig);
	assert_int_equal(quantum_answer(&rig.sched, 0, 0), 15 * S);
	assert_int_equal(quantum_answer(&rig.sched, 0, 40 * GIB), 55 * S);
	rig.sched.gpus[0].bandwidth = GIB / 4;
	assert_int_equal(quantum_answer(&rig.sched, 0, 10 * GIB), 95 * S);
	/* Up to the bound of any wait, unless the time for an answer is longer by itself. */
	rig.sched.gpus[0].bandwidth = 1;
	assert_int_equal(quantum_answer(&rig.sched, 0, 10 * GIB), 240 * S);
	assert_int_equal(quantum_answer(&rig.sched, 0, UINT64_MAX), 240 * S);
	rig.sched.config.answer_ns = 300 * S;
	assert_int_equal(quantum_answer(&rig.sched, 0, 10 * GIB), 300 * S);
	rig.sched.config.answer_ns = 15 * S;
	/* A link that should be slow has longer, one that should be fast no less than without. */
	rig.sched.gpus[0].bandwidth = 0;
	rig.sched.gpus[0].link_bandwidth = GIB / 4;
	assert_int_equal(quantum_answer(&rig.sched, 0, 10 * GIB), 95 * S);
	rig.sched.gpus[0].link_bandwidth = 50 * GIB;
	assert_int_equal(quantum_answer(&rig.sched, 0, 40 * GIB), 55 * S);
}

/* However short the bound is that waits are to have. */
static void a_large_move_on_a_slow_link_is_not_late(void **state)
{
	(void)state;
	rig_init(&rig);
	rig.sched.config.wait_bound_ns = S;
	rig.sched.gpus[0].link_bandwidth = 16 * GIB;
	rig.sched.gpus[0].bandwidth = GIB; /* no sample says less */
	assert_int_equal(quantum_answer(&rig.sched, 0, GIB), 15 * S);
	assert_int_equal(quantum_answer(&rig.sched, 0, 40 * GIB), 80 * S);
	assert_int_equal(quantum_answer(&rig.sched, 0, UINT64_MAX), 200 * S); /* the card has 100 */
	rig.sched.gpus[0].link_bandwidth = 0;
	assert_int_equal(quantum_answer(&rig.sched, 0, 40 * GIB), 80 * S);
	/* Any link has an end. */
	rig.sched.gpus[0].total = 1ull << 44;
	rig.sched.gpus[0].link_bandwidth = rig.sched.gpus[0].bandwidth = 1;
	assert_true(quantum_answer(&rig.sched, 0, UINT64_MAX) < 1000 * 86400 * S);
}

static const uint64_t odd[] = {0, 1, 2, 3, 1000, GIB, S, UINT64_MAX / 3, UINT64_MAX};

#define N_ODD (sizeof(odd) / sizeof(*odd))

/* What the bandwidth comes to when all samples are like this one. */
static uint64_t measured(uint64_t link, uint64_t moved, uint64_t move_ns)
{
	rig_init(&rig);
	rig.sched.gpus[0].link_bandwidth = link;
	for (int i = 0; i < 200; i++)
		quantum_measure(&rig.sched, 0, moved, move_ns);
	return rig.sched.gpus[0].bandwidth;
}

static void a_sample_is_cut_to_what_the_link_can_do(void **state)
{
	(void)state;
	assert_int_equal(measured(48 * GIB, 20 * GIB, S), 20 * GIB);
	assert_int_equal(measured(48 * GIB, 1, UINT64_MAX), 3 * GIB);
	assert_int_equal(measured(48 * GIB, UINT64_MAX, 1), 96 * GIB);
	assert_int_equal(measured(0, 20 * GIB, S), 20 * GIB);
	assert_int_equal(measured(0, 1, UINT64_MAX), GIB);
	assert_int_equal(measured(0, UINT64_MAX, 1), 128 * GIB);
	assert_int_equal(measured(1, 1, UINT64_MAX), GIB / 128);
	assert_true(measured(UINT64_MAX, UINT64_MAX, 1) <= 1ull << 43);
}

/* Client 0 says anything about what it has moved, in both messages that tell of it. */
static void lie(size_t moved, size_t move_ns)
{
	struct sched_event event = {.type = SCHED_EVENT_MEMORY,
				    .epoch = rig.clients[0].epoch,
				    .budget = rig.clients[0].budget,
				    .memory = rig_mem(10, 0, 0),
				    .moved = odd[moved],
				    .move_ns = odd[move_ns]};

	assert_int_equal(rig_step(&rig, event), 0);
	event.type = SCHED_EVENT_RELEASED;
	event.grant = rig.clients[0].grant;
	event.outcome = 0;
	event.wants = true;
	assert_int_equal(rig_step(&rig, event), 0);
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_RUNNING); /* nobody waits */
}

static void no_report_spoils_anothers_stop_or_the_counters(void **state)
{
	struct sched_gpu_status before, now;

	(void)state;
	for (size_t first = 0; first < N_ODD * N_ODD; first++) {
		rig_init(&rig);
		assert_int_equal(rig_step(&rig, (struct sched_event){.type = SCHED_EVENT_GPU,
								     .bytes = 100 * GIB,
								     .link_bandwidth = 48 * GIB}),
				 0);
		rig_run(&rig, 0, 10);
		rig.sched.gpus[0].moved_out = rig.sched.gpus[0].moved_in = UINT64_MAX - 1000 * GIB;
		for (size_t i = first; i < first + 20; i++) {
			sched_gpu_status(&rig.sched, 0, &before);
			lie(i / N_ODD % N_ODD, i % N_ODD);
			sched_gpu_status(&rig.sched, 0, &now);
			assert_true(now.moved_out >= before.moved_out);
			assert_true(now.moved_in >= before.moved_in);
			assert_true(now.moved_out - before.moved_out <= 100 * GIB);
			assert_true(now.moved_in - before.moved_in <= 100 * GIB);
		}
		rig_leave(&rig, 0);
		/* Others' first stop: of 30 GiB that go at 3 GiB a second at least. */
		rig_run(&rig, 1, 60);
		rig_start(&rig, 2, 70);
		sched_gpu_status(&rig.sched, 0, &now);
		assert_true(now.next_switch_ns - rig.now <= 5 * 10 * S);
		rig_at(&rig, rig.now + 5 * 10 * S);
		assert_int_equal(rig_state(&rig, 1), SCHED_CLIENT_STOPPING);
		assert_true(rig.clients[1].answer_ns - rig.now <= (15 + 30) * S);
	}
}

static void no_report_overflows_the_bandwidth(void **state)
{
	(void)state;
	rig_init(&rig);
	for (size_t i = 0; i < N_ODD; i++) {
		for (size_t k = 0; k < N_ODD; k++) {
			uint64_t turn;

			quantum_measure(&rig.sched, 0, odd[i], odd[k]);
			assert_true((i == 0 || k == 0) || rig.sched.gpus[0].bandwidth > 0);
			turn = quantum_turn(&rig.sched, 0, UINT64_MAX);
			assert_true(turn >= 10 * S && turn <= 300 * S);
		}
	}
	quantum_measure(&rig.sched, 0, 0, 1);
	quantum_measure(&rig.sched, 0, 1, 0);
	assert_true(rig.sched.gpus[0].bandwidth > 0);
}

static void a_measured_bandwidth_outlives_clients_and_announcements(void **state)
{
	struct sched_event gpu = {.type = SCHED_EVENT_GPU, .bytes = 100 * GIB};
	struct sched_event memory = {.type = SCHED_EVENT_MEMORY, .moved = 10 * GIB, .move_ns = S};
	struct sched_gpu_status status;

	(void)state;
	rig_init(&rig);
	gpu.link_bandwidth = 50 * GIB;
	assert_int_equal(rig_step(&rig, gpu), 0);
	assert_int_equal(quantum_bandwidth(&rig.sched, 0), 50 * GIB);
	sched_gpu_status(&rig.sched, 0, &status);
	assert_int_equal(status.bandwidth, 0);
	assert_int_equal(status.link_bandwidth, 50 * GIB);

	rig_run(&rig, 0, 10);
	memory.memory = rig_mem(10, 0, 0);
	assert_int_equal(rig_step(&rig, memory), 0);
	assert_int_equal(quantum_bandwidth(&rig.sched, 0), 10 * GIB);
	assert_int_equal(rig_step(&rig, (struct sched_event){.type = SCHED_EVENT_LEAVE}), 0);
	assert_int_equal(rig_step(&rig, gpu), 0);
	assert_int_equal(quantum_bandwidth(&rig.sched, 0), 10 * GIB);
	sched_gpu_status(&rig.sched, 0, &status);
	assert_int_equal(status.bandwidth, 10 * GIB);
	assert_int_equal(status.moved_in, 10 * GIB);

	/* Another card that takes the index over has another bus. */
	gpu.is_other = true;
	assert_int_equal(rig_step(&rig, gpu), 0);
	assert_int_equal(quantum_bandwidth(&rig.sched, 0), 50 * GIB);
	sched_gpu_status(&rig.sched, 0, &status);
	assert_int_equal(status.moved_in, 0);
}

/* Beside 50 GiB that never rest, on a scheduler that has seen no switch. */
static void a_newcomers_first_turn_is_planned_within_the_shortest(void **state)
{
	struct sched_event gpu = {.type = SCHED_EVENT_GPU, .bytes = 100 * GIB};

	(void)state;
	for (uint64_t link = 0; link <= 50 * GIB; link += 50 * GIB) {
		struct sched_gpu_status status;

		rig_init(&rig);
		gpu.link_bandwidth = link;
		assert_int_equal(rig_step(&rig, gpu), 0);
		rig_run(&rig, 0, 50);
		rig_join(&rig, 1);
		rig_request(&rig, 1, rig_want(rig_mem(0, 0, 0), 60, 0));
		sched_gpu_status(&rig.sched, 0, &status);
		assert_int_equal(status.next_switch_ns, rig.now + rig.config.switch_min_ns);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_table),
		cmocka_unit_test(the_longest_run_bounds_every_turn),
		cmocka_unit_test(answers_have_a_second_for_each_gib),
		cmocka_unit_test(a_large_move_on_a_slow_link_is_not_late),
		cmocka_unit_test(a_measured_bandwidth_outlives_clients_and_announcements),
		cmocka_unit_test(a_newcomers_first_turn_is_planned_within_the_shortest),
		cmocka_unit_test(a_sample_is_cut_to_what_the_link_can_do),
		cmocka_unit_test(no_report_spoils_anothers_stop_or_the_counters),
		cmocka_unit_test(no_report_overflows_the_bandwidth),
	};

	return cmocka_run_group_tests_name("core/quantum", tests, NULL, NULL);
}
