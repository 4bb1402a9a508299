/* SPDX-License-Identifier: Apache-2.0 */

/* Gangs: clients that run on all of their GPUs together, or on none. Two cards of 100 GiB. */

#include "rig.h"

static struct rig rig;

static int set_up(void **state)
{
	(void)state;
	rig_init(&rig);
	assert_int_equal(rig_step(&rig, (struct sched_event){.type = SCHED_EVENT_GPU,
							     .gpu = 1,
							     .bytes = 100 * GIB}),
			 0);
	rig_turns(&rig, 40);
	return 0;
}

static void join_on(uint32_t client, uint32_t gpu)
{
	assert_int_equal(rig_step(&rig, (struct sched_event){.type = SCHED_EVENT_JOIN,
							     .client = client,
							     .gpu = gpu}),
			 0);
}

static int into_gang(uint32_t client, uint32_t gang, uint32_t size)
{
	return rig_step(&rig, (struct sched_event){.type = SCHED_EVENT_GANG,
						   .client = client,
						   .gang = gang,
						   .gang_size = size});
}

static void ask(uint32_t client, uint64_t gib)
{
	rig_request(&rig, client, rig_want(rig_mem(0, 0, 0), gib, 0));
}

/* A member of gang, which has run and has gib on its card. */
static void run_member(uint32_t client, uint32_t gpu, uint32_t gang, uint64_t gib)
{
	join_on(client, gpu);
	if (gang != SCHED_NONE)
		assert_int_equal(into_gang(client, gang, 0), 0);
	ask(client, gib);
	if (rig_state(&rig, client) == SCHED_CLIENT_RUNNING)
		assert_int_equal(rig_memory(&rig, client, rig_mem(gib, 0, 0)), 0);
}

/* The gang of the clients 0 and 1, with 60 GiB on each card. */
static void run_gang(void)
{
	run_member(0, 0, 7, 60);
	run_member(1, 1, 7, 60);
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_RUNNING);
	assert_int_equal(rig_state(&rig, 1), SCHED_CLIENT_RUNNING);
}

/* client has stopped, and gives back what it was asked for. */
static void stop_done(uint32_t client)
{
	const struct sched_client *c = &rig.clients[client];
	uint64_t out = c->drop_bytes < c->memory.resident ? c->drop_bytes : c->memory.resident;
	struct sched_memory memory = c->memory;

	memory.resident -= out;
	memory.swapped += out;
	assert_int_equal(rig_release(&rig, client, memory, true), 0);
}

/* All that is under way comes to its end: stops, evictions, restores and allocations. */
static void settle(void)
{
	for (uint32_t i = 0; i < RIG_CLIENTS; i++) {
		const struct sched_client *c = &rig.clients[i];
		uint64_t all = (c->memory.resident + c->memory.swapped) / GIB;

		if (i == rig.mute)
			continue;
		if (c->task == SCHED_TASK_DROP) {
			stop_done(i);
			i = UINT32_MAX;
		} else if (c->task == SCHED_TASK_RESTORE && c->budget >= all * GIB) {
			assert_int_equal(rig_memory(&rig, i, rig_mem(all, 0, 0)), 0);
			i = UINT32_MAX;
		} else if (c->state == SCHED_CLIENT_RUNNING && c->memory.resident < c->budget) {
			assert_int_equal(rig_memory(&rig, i, rig_mem(c->budget / GIB, 0, 0)), 0);
		}
	}
}

static bool runs(uint32_t client)
{
	return rig_state(&rig, client) == SCHED_CLIENT_RUNNING;
}

static void nobody_runs_before_all_have_come(void **state)
{
	(void)state;
	join_on(0, 0);
	assert_int_equal(into_gang(0, 7, 2), 0);
	ask(0, 10);
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_WAITING);
	assert_int_equal(rig_why(&rig, 0), SCHED_WAIT_GANG);
	assert_int_equal(rig_status(&rig, 0).gang_gpu, SCHED_NONE);
	join_on(1, 1);
	assert_int_equal(into_gang(1, 7, 2), 0);
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_RUNNING);
	ask(1, 10);
	assert_int_equal(rig_state(&rig, 1), SCHED_CLIENT_RUNNING);
	/* It has had them: one that leaves holds nobody up. */
	rig_leave(&rig, 1);
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_RUNNING);
	assert_int_equal(into_gang(0, 7, 2), 0);
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_RUNNING);
}

static void all_members_stop_in_one_step(void **state)
{
	(void)state;
	run_gang();
	run_member(2, 1, SCHED_NONE, 60);
	assert_int_equal(rig_state(&rig, 2), SCHED_CLIENT_WAITING);
	rig_clear(&rig);
	rig_at(&rig, 41 * S);
	assert_int_equal(rig_did(&rig, 1, SCHED_ACTION_DROP)->bytes, 20 * GIB);
	/* Nobody needs its memory. */
	assert_int_equal(rig_did(&rig, 0, SCHED_ACTION_DROP)->bytes, 0);
	stop_done(1);
	assert_int_equal(rig_state(&rig, 2), SCHED_CLIENT_RUNNING);
	stop_done(0);
	/* The other card is free; but not without its mate. */
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_WAITING);
	assert_int_equal(rig_why(&rig, 0), SCHED_WAIT_GANG);
	assert_int_equal(rig_status(&rig, 0).gang_gpu, 1);
	assert_int_equal(rig_status(&rig, 1).gang_gpu, SCHED_NONE);
	rig_memory(&rig, 2, rig_mem(60, 0, 0));
	rig_at(&rig, 90 * S);
	settle();
	assert_true(runs(0) && runs(1));
	assert_int_equal(rig_state(&rig, 2), SCHED_CLIENT_WAITING);
}

static void members_run_when_all_have_their_memory(void **state)
{
	(void)state;
	all_members_stop_in_one_step(state);
	/* Both members come: the first has nothing to bring in. */
	rig_at(&rig, 140 * S);
	settle();
	assert_true(runs(2));
	rig_at(&rig, rig.now + 45 * S);
	stop_done(2);
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_INCOMING);
	assert_int_equal(rig_state(&rig, 1), SCHED_CLIENT_INCOMING);
	assert_int_equal(rig.clients[1].task, SCHED_TASK_RESTORE);
	rig_memory(&rig, 1, rig_mem(60, 0, 0));
	assert_true(runs(0) && runs(1));
}

static void two_gangs_take_turns_and_are_never_torn(void **state)
{
	uint32_t n_a = 0, n_b = 0;

	(void)state;
	run_gang();
	run_member(2, 0, 9, 60);
	run_member(3, 1, 9, 60);
	for (int i = 0; i < 12; i++) {
		rig_at(&rig, rig.now + 41 * S);
		settle();
		assert_int_equal(runs(0), runs(1));
		assert_int_equal(runs(2), runs(3));
		assert_true(runs(0) != runs(2));
		n_a += runs(0);
		n_b += runs(2);
	}
	assert_int_equal(n_a, 6);
	assert_int_equal(n_b, 6);
}

static void others_go_on_where_only_one_gpu_is_its_turn(void **state)
{
	(void)state;
	run_member(4, 1, SCHED_NONE, 80);
	join_on(0, 0);
	assert_int_equal(into_gang(0, 7, 0), 0);
	join_on(1, 1);
	assert_int_equal(into_gang(1, 7, 0), 0);
	ask(1, 60);
	ask(0, 60);
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_WAITING);
	assert_int_equal(rig_status(&rig, 0).gang_gpu, 1);
	run_member(5, 0, SCHED_NONE, 80);
	assert_true(runs(5));
	rig_at(&rig, rig.now + 41 * S);
	settle();
	assert_true(runs(0) && runs(1));
	assert_false(runs(4) || runs(5));
}

static void a_member_that_comes_late_joins_where_it_fits(void **state)
{
	(void)state;
	run_member(0, 0, 7, 60);
	run_member(2, 1, SCHED_NONE, 30);
	rig_clear(&rig);
	run_member(1, 1, 7, 60);
	assert_true(runs(0) && runs(1) && runs(2));
	assert_null(rig_did(&rig, 0, SCHED_ACTION_DROP));
}

static void a_member_that_comes_late_calls_the_others_off(void **state)
{
	(void)state;
	run_member(0, 0, 7, 60);
	run_member(2, 1, SCHED_NONE, 80);
	run_member(1, 1, 7, 60);
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_STOPPING);
	assert_int_equal(rig_did(&rig, 0, SCHED_ACTION_DROP)->bytes, 0);
	stop_done(0);
	rig_at(&rig, 41 * S);
	settle();
	assert_true(runs(0) && runs(1));
}

/* Nothing happens on the other GPU when the last member stops, and its memory is there. */
static void a_member_comes_back_when_the_last_one_rests_as_it_stops(void **state)
{
	(void)state;
	run_gang();
	run_member(2, 0, SCHED_NONE, 60);
	rig_at(&rig, 41 * S);
	stop_done(1);
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_STOPPING);
	assert_int_equal(rig_state(&rig, 1), SCHED_CLIENT_WAITING);
	assert_int_equal(rig_release(&rig, 0, rig_mem(40, 20, 0), false), 0);
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_IDLE);
	assert_true(runs(1) && runs(2));
}

/* Its client on GPU 1 cannot come beside what another one has pinned there, and dies. */
static void a_member_comes_when_the_one_that_cannot_come_dies(void **state)
{
	(void)state;
	run_member(2, 1, SCHED_NONE, 60);
	assert_int_equal(rig_memory(&rig, 2, rig_mem(0, 0, 60)), 0);
	for (uint32_t i = 0; i < 2; i++) {
		join_on(i, i);
		assert_int_equal(into_gang(i, 7, 0), 0);
	}
	join_on(3, 0);
	assert_int_equal(into_gang(3, 7, 0), 0);
	rig_request(&rig, 1, rig_mem(0, 60, 0));
	ask(0, 60);
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_WAITING);
	assert_int_equal(rig_state(&rig, 1), SCHED_CLIENT_WAITING);
	rig_leave(&rig, 1);
	assert_true(runs(0));
}

static void a_paused_member_stops_all(void **state)
{
	struct sched_event pause = {.type = SCHED_EVENT_PAUSE, .client = 1, .is_paused = true};

	(void)state;
	run_gang();
	assert_int_equal(rig_step(&rig, pause), 0);
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_STOPPING);
	assert_int_equal(rig_state(&rig, 1), SCHED_CLIENT_STOPPING);
	settle();
	rig_at(&rig, 1000 * S);
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_WAITING);
	pause.is_paused = false;
	assert_int_equal(rig_step(&rig, pause), 0);
	assert_true(runs(0) && runs(1));
}

static void a_hung_member_holds_nobody_up(void **state)
{
	(void)state;
	run_gang();
	run_member(2, 1, SCHED_NONE, 60);
	rig_at(&rig, 41 * S);
	stop_done(0);
	/* The other one never answers. */
	rig_at(&rig, 120 * S);
	assert_true(rig_status(&rig, 1).hung);
	assert_true(runs(0));
}

static void stop_process(uint32_t client, bool is_stopped)
{
	assert_int_equal(rig_step(&rig, (struct sched_event){.type = SCHED_EVENT_PROCESS,
							     .client = client,
							     .is_stopped = is_stopped}),
			 0);
}

/* Kernels of the other one would wait for its own, and could not end where they must drain. */
static void a_member_that_waits_and_is_stopped_is_waited_for(void **state)
{
	(void)state;
	run_gang();
	run_member(2, 1, SCHED_NONE, 60);
	rig_at(&rig, 41 * S);
	settle();
	assert_true(runs(2));
	stop_process(0, true);
	rig_clear(&rig);
	rig_at(&rig, 1000 * S);
	assert_int_equal(rig_state(&rig, 1), SCHED_CLIENT_WAITING);
	assert_true(runs(2));
	assert_null(rig_did(&rig, 2, SCHED_ACTION_DROP));
	stop_process(0, false);
	rig_at(&rig, 1001 * S);
	settle();
	assert_true(runs(0) && runs(1));
}

static void a_member_that_stops_as_it_comes_takes_the_others_along(void **state)
{
	(void)state;
	run_gang();
	run_member(2, 1, SCHED_NONE, 60);
	rig_at(&rig, 41 * S);
	settle();
	rig_at(&rig, 90 * S);
	/* The bytes of 0 are on its card: it is ready. */
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_INCOMING);
	rig_clear(&rig);
	stop_process(1, true);
	assert_null(rig_did(&rig, 0, SCHED_ACTION_GRANT));
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_WAITING);
}

/* Members that take turns on one card wait for nobody else's. */
static void members_apart_pass_one_that_is_stopped(void **state)
{
	(void)state;
	run_member(0, 0, 7, 60);
	run_member(1, 0, 7, 60);
	assert_int_equal(rig_state(&rig, 1), SCHED_CLIENT_WAITING);
	stop_process(1, true);
	assert_int_equal(rig_release(&rig, 0, rig_mem(60, 0, 0), false), 0);
	rig_request(&rig, 0, rig_mem(60, 0, 0));
	assert_true(runs(0));
}

static void a_death_while_they_come_lets_the_other_run(void **state)
{
	(void)state;
	run_gang();
	run_member(2, 1, SCHED_NONE, 60);
	rig_at(&rig, 41 * S);
	settle();
	assert_true(runs(2));
	rig_at(&rig, 90 * S);
	assert_int_equal(rig_state(&rig, 2), SCHED_CLIENT_STOPPING);
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_INCOMING);
	rig_leave(&rig, 1);
	assert_true(runs(0));
}

static void a_member_put_back_takes_the_others_along(void **state)
{
	(void)state;
	run_gang();
	run_member(2, 1, SCHED_NONE, 60);
	rig_at(&rig, 41 * S);
	settle();
	rig_at(&rig, 90 * S);
	assert_int_equal(rig_state(&rig, 1), SCHED_CLIENT_INCOMING);
	/* Its victim cannot be stopped after all. */
	assert_int_equal(rig_fail(&rig, 2, 1), 0);
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_WAITING);
	assert_int_equal(rig_state(&rig, 1), SCHED_CLIENT_WAITING);
}

static void members_that_do_not_fit_together_are_apart(void **state)
{
	struct sched_gang_status status;

	(void)state;
	run_member(0, 0, 7, 60);
	run_member(1, 0, 7, 60);
	assert_true(runs(0));
	sched_gang_status(&rig.sched, 7, &status);
	assert_true(status.is_apart);
	assert_true(sched_gang_is_apart(&rig.sched, 7));
	assert_int_equal(status.n_members, 2);
	rig_at(&rig, 41 * S);
	settle();
	assert_true(!runs(0) && runs(1));
}

static void members_on_one_gpu_run_together(void **state)
{
	(void)state;
	run_member(2, 0, SCHED_NONE, 80);
	join_on(0, 0);
	assert_int_equal(into_gang(0, 7, 0), 0);
	join_on(1, 0);
	assert_int_equal(into_gang(1, 7, 0), 0);
	ask(0, 40);
	ask(1, 40);
	rig_at(&rig, 41 * S);
	settle();
	assert_true(runs(0) && runs(1) && !runs(2));
}

/*
 * A reserve of 8 GiB, and another client's 10 pinned ones: up to half of what pager contexts leave
 * of the reserve is for those. A gang is together as far as it can come, and no further: else it
 * would wait for ever.
 */
static void a_gang_that_cannot_come_beside_pager_contexts_is_apart(void **state)
{
	static const struct {
		uint64_t pager_gib, gib[2];
		bool is_apart;
	} rows[] = {
		{0, {40, 46}, false}, {0, {40, 47}, true}, {4, {40, 44}, false},
		{4, {40, 45}, true},  {4, {45, 40}, true}, {4, {40, 46}, true},
		{8, {40, 42}, false}, {8, {40, 43}, true}, {8, {40, 46}, true},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct sched_memory memory = rig_mem(0, 0, 10);

		(void)set_up(state);
		rig.config.reserve_percent = 8;
		assert_int_equal(rig_config(&rig), 0);
		rig_join(&rig, 2);
		rig_request(&rig, 2, rig_want(rig_mem(0, 0, 0), 0, 10));
		memory.pager_context = rows[i].pager_gib * GIB;
		assert_int_equal(rig_memory(&rig, 2, memory), 0);
		for (uint32_t j = 0; j < 2; j++) {
			join_on(j, 0);
			assert_int_equal(into_gang(j, 7, 2), 0);
		}
		rig_request(&rig, 0, rig_mem(0, rows[i].gib[0], 0));
		rig_request(&rig, 1, rig_mem(0, rows[i].gib[1], 0));
		settle();
		assert_true(runs(0));
		assert_int_equal(sched_gang_is_apart(&rig.sched, 7), rows[i].is_apart);
		assert_int_equal(runs(1), !rows[i].is_apart);
		rig_leave(&rig, 0);
		settle();
		assert_true(runs(1));
	}
}

/* Those who come stand in another order than members do, and the last of them needs the stops. */
static void a_critical_member_brings_nobody_too_early(void **state)
{
	(void)state;
	run_member(2, 0, SCHED_NONE, 60);
	run_member(3, 0, SCHED_NONE, 30);
	join_on(0, 0);
	assert_int_equal(into_gang(0, 7, 0), 0);
	rig_join_as(&rig, 1, SCHED_PRIORITY_CRITICAL, 0, 0);
	assert_int_equal(into_gang(1, 7, 0), 0);
	ask(0, 30);
	ask(1, 30);
	assert_true(!runs(0) && !runs(1));
	rig_leave(&rig, 3);
	assert_true(runs(2) && !runs(0) && !runs(1));
	/* Not again and again in the same moment. */
	assert_true(sched_deadline(&rig.sched) > rig.sched.now_ns + 1);
	rig_at(&rig, 41 * S);
	settle();
	assert_true(runs(0) && runs(1) && !runs(2));
}

/*
 * The large one needs nobody to stop, and would wait longer for that. The small one comes last and
 * needs it, but has its memory there.
 */
static void a_member_that_lacks_nothing_leaves_its_victim_to_the_other(void **state)
{
	(void)state;
	rig_turns(&rig, 1);
	assert_int_equal(rig_step(&rig, (struct sched_event){.type = SCHED_EVENT_GPU,
							     .bytes = 100 * GIB,
							     .link_bandwidth = 4 * GIB}),
			 0);
	for (uint32_t i = 0; i < 2; i++) {
		join_on(i, 0);
		assert_int_equal(into_gang(i, 7, 0), 0);
	}
	run_member(2, 0, SCHED_NONE, 40);
	rig_request(&rig, 0, rig_mem(0, 60, 0));
	rig_request(&rig, 1, rig_mem(8, 0, 0));
	for (uint32_t n = 0; n < 100 && rig.clients[2].state == SCHED_CLIENT_RUNNING; n++) {
		rig_at(&rig, rig.now + S);
		/* Not again and again in the same moment. */
		assert_true(sched_deadline(&rig.sched) > rig.sched.now_ns + 1);
	}
	settle();
	assert_true(runs(0) && runs(1) && !runs(2));
}

static void critical_members_stay(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < 2; i++) {
		assert_int_equal(
			rig_step(&rig,
				 (struct sched_event){.type = SCHED_EVENT_JOIN,
						      .client = i,
						      .gpu = i,
						      .claim = {SCHED_PRIORITY_CRITICAL, 0, 0}}),
			0);
		assert_int_equal(into_gang(i, 7, 2), 0);
	}
	run_member(2, 0, SCHED_NONE, 60);
	run_member(3, 1, SCHED_NONE, 60);
	ask(0, 50);
	ask(1, 50);
	/* One stop, and nobody's turn. */
	settle();
	assert_true(runs(0) && runs(1));
	rig_at(&rig, 1000 * S);
	assert_true(runs(0) && runs(1));
}

static void a_gang_waits_for_a_gpu_that_is_out(void **state)
{
	struct sched_event gpu = {
		.type = SCHED_EVENT_GPU, .gpu = 1, .bytes = 100 * GIB, .is_out = true};

	(void)state;
	join_on(0, 0);
	assert_int_equal(into_gang(0, 7, 0), 0);
	join_on(1, 1);
	assert_int_equal(into_gang(1, 7, 0), 0);
	assert_int_equal(rig_step(&rig, gpu), 0);
	ask(1, 10);
	ask(0, 10);
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_WAITING);
	assert_int_equal(rig_why(&rig, 0), SCHED_WAIT_GANG);
	assert_int_equal(rig_status(&rig, 0).gang_gpu, 1);
	gpu.is_out = false;
	assert_int_equal(rig_step(&rig, gpu), 0);
	assert_true(runs(0) && runs(1));
}

static int set_out(uint32_t gpu, bool is_out)
{
	return rig_step(&rig, (struct sched_event){.type = SCHED_EVENT_GPU,
						   .gpu = gpu,
						   .bytes = 100 * GIB,
						   .is_out = is_out});
}

static int set_paused(uint32_t client, bool is_paused)
{
	return rig_step(&rig, (struct sched_event){.type = SCHED_EVENT_PAUSE,
						   .client = client,
						   .is_paused = is_paused});
}

static void a_member_that_bars_all_is_named_before_one_that_waits(void **state)
{
	enum { PAUSED = 1, OUT = 2, WANTS = 4 };
	/*
	 * Members on the GPUs 0, 1 and 2 join in this order. The first two want to run, and the
	 * GPUs that they are said to wait for follow.
	 */
	static const struct {
		uint32_t order[3], third, gpus[2];
	} cases[] = {
		{{0, 1, 2}, OUT | WANTS, {2, 2}},
		{{0, 2, 1}, OUT | WANTS, {2, 2}},
		{{1, 0, 2}, OUT | WANTS, {2, 2}},
		{{1, 2, 0}, OUT | WANTS, {2, 2}},
		{{2, 0, 1}, OUT | WANTS, {2, 2}},
		{{2, 1, 0}, OUT | WANTS, {2, 2}},
		{{0, 1, 2}, PAUSED | WANTS, {2, 2}},
		{{1, 0, 2}, PAUSED | WANTS, {2, 2}},
		{{2, 1, 0}, PAUSED | WANTS, {2, 2}},
		{{0, 1, 2}, WANTS, {1, 0}},
		{{2, 1, 0}, WANTS, {2, 2}},
		{{0, 1, 2}, OUT, {1, 0}},
		{{2, 1, 0}, OUT, {1, 0}},
		{{2, 1, 0}, PAUSED, {1, 0}},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		(void)set_up(state);
		assert_int_equal(set_out(2, false), 0);
		for (uint32_t gpu = 0; gpu < 3; gpu++)
			run_member(10 + gpu, gpu, SCHED_NONE, 80);
		for (uint32_t j = 0; j < 3; j++) {
			join_on(cases[i].order[j], cases[i].order[j]);
			assert_int_equal(into_gang(cases[i].order[j], 7, 3), 0);
		}
		assert_int_equal(set_paused(2, cases[i].third & PAUSED), 0);
		assert_int_equal(set_out(2, cases[i].third & OUT), 0);
		for (uint32_t client = cases[i].third & WANTS ? 3 : 2; client-- > 0;)
			ask(client, 60);
		for (uint32_t client = 0; client < 2; client++) {
			assert_int_equal(rig_why(&rig, client), SCHED_WAIT_GANG);
			assert_int_equal(rig_status(&rig, client).gang_gpu, cases[i].gpus[client]);
		}
	}
}

static void a_paused_member_of_the_same_gpu_is_named(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < 3; i++) {
		join_on(i, i == 2);
		assert_int_equal(into_gang(i, 7, 3), 0);
	}
	assert_int_equal(set_paused(1, true), 0);
	ask(1, 10);
	ask(0, 10);
	ask(2, 10);
	assert_int_equal(rig_status(&rig, 0).gang_gpu, 0);
	assert_int_equal(rig_status(&rig, 2).gang_gpu, 0);
	assert_int_equal(set_paused(1, false), 0);
	assert_true(runs(0) && runs(1) && runs(2));
}

static void a_crowd_on_one_gpu_is_apart(void **state)
{
	struct sched_gang_status status;

	(void)state;
	for (uint32_t i = 0; i < 20; i++) {
		join_on(i, 0);
		assert_int_equal(into_gang(i, 7, 0), 0);
	}
	run_member(50, 0, SCHED_NONE, 80);
	for (uint32_t i = 0; i < 20; i++)
		ask(i, 2);
	sched_gang_status(&rig.sched, 7, &status);
	assert_true(status.is_apart);
	assert_true(sched_gang_is_apart(&rig.sched, 7));
	for (int turn = 0; turn < 3; turn++) {
		rig_at(&rig, rig.now + 41 * S);
		settle();
	}
	for (uint32_t i = 0; i < 20; i++)
		assert_int_not_equal(rig_status(&rig, i).last_scheduled_ns, SCHED_NO_DEADLINE);
}

static void a_gang_whose_turn_has_come_waits_for_no_event(void **state)
{
	(void)state;
	run_member(2, 0, SCHED_NONE, 80);
	join_on(0, 0);
	assert_int_equal(into_gang(0, 7, 0), 0);
	join_on(1, 1);
	assert_int_equal(into_gang(1, 7, 0), 0);
	rig_at(&rig, 1000 * S);
	/* Its other member wants nothing. */
	ask(0, 60);
	assert_int_equal(rig_state(&rig, 2), SCHED_CLIENT_STOPPING);
}

static void members_that_are_ready_go_on_when_they_are_apart(void **state)
{
	(void)state;
	run_member(2, 1, SCHED_NONE, 80);
	for (uint32_t i = 0; i < 2; i++) {
		join_on(i, 0);
		assert_int_equal(into_gang(i, 7, 0), 0);
	}
	join_on(3, 1);
	assert_int_equal(into_gang(3, 7, 0), 0);
	ask(3, 60);
	ask(0, 10);
	ask(1, 10);
	rig_at(&rig, 41 * S);
	/* The third one's victim is still on its way out. */
	assert_true(rig.clients[0].is_ready && rig.clients[1].is_ready);
	rig.config.mode = SCHED_MODE_SERIAL;
	assert_int_equal(rig_config(&rig), 0);
	assert_true(runs(0) != runs(1));
}

/* client says how it would be stopped now. */
static void says_it_drains(uint32_t client, bool drains)
{
	const struct sched_client *c = &rig.clients[client];

	assert_int_equal(
		rig_step(&rig, (struct sched_event){.type = SCHED_EVENT_MEMORY,
						    .client = client,
						    .epoch = c->epoch,
						    .budget = c->budget,
						    .memory = c->memory,
						    .stops = drains ? SCHED_STOPS_DRAINING
								    : SCHED_STOPS_FREEZING}),
		0);
}

/* The gang of 0 and 1, of which 0 drains; and 2 waits for the place of 1. */
static void run_gang_that_drains(void)
{
	run_gang();
	says_it_drains(0, true);
	run_member(2, 1, SCHED_NONE, 60);
	assert_int_equal(rig_state(&rig, 2), SCHED_CLIENT_WAITING);
	rig_clear(&rig);
}

static void a_member_that_drains_stops_first(void **state)
{
	(void)state;
	run_gang();
	says_it_drains(1, true);
	run_member(2, 1, SCHED_NONE, 60);
	rig_clear(&rig);
	rig_at(&rig, 41 * S);
	assert_int_equal(rig_did(&rig, 1, SCHED_ACTION_DROP)->bytes, 20 * GIB);
	assert_null(rig_did(&rig, 0, SCHED_ACTION_DROP));
	assert_true(runs(0));
	stop_done(1);
	assert_int_equal(rig_did(&rig, 0, SCHED_ACTION_DROP)->bytes, 0);
	assert_true(runs(2));
	stop_done(0);
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_WAITING);
}

static void a_victim_waits_for_the_member_that_drains(void **state)
{
	(void)state;
	run_gang_that_drains();
	rig_at(&rig, 41 * S);
	/* The client that is to have the place of 1 keeps its own until 0 has stopped. */
	assert_int_equal(rig_did(&rig, 0, SCHED_ACTION_DROP)->bytes, 0);
	assert_null(rig_did(&rig, 1, SCHED_ACTION_DROP));
	assert_int_equal(rig_state(&rig, 2), SCHED_CLIENT_INCOMING);
	rig_at(&rig, 50 * S);
	assert_true(runs(1));
	stop_done(0);
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_WAITING);
	assert_int_equal(rig_did(&rig, 1, SCHED_ACTION_DROP)->bytes, 20 * GIB);
	stop_done(1);
	assert_true(runs(2));
	rig_memory(&rig, 2, rig_mem(60, 0, 0));
	rig_at(&rig, 101 * S);
	settle();
	assert_true(runs(0) && runs(1));
}

static void members_run_on_when_one_could_not_drain(void **state)
{
	(void)state;
	run_gang_that_drains();
	rig_at(&rig, 41 * S);
	assert_int_equal(rig_fail(&rig, 0, 2), 0);
	assert_true(runs(0) && runs(1));
	assert_null(rig_did(&rig, 1, SCHED_ACTION_DROP));
	/* Nobody is chosen for a place that nobody can leave yet. */
	assert_int_equal(rig_state(&rig, 2), SCHED_CLIENT_WAITING);
	rig_clear(&rig);
	rig_at(&rig, rig.now + 9 * S);
	assert_null(rig_did(&rig, 0, SCHED_ACTION_DROP));
	rig_at(&rig, rig.now + 2 * S);
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_STOPPING);
	assert_true(runs(1));
	stop_done(0);
	assert_int_equal(rig_state(&rig, 1), SCHED_CLIENT_STOPPING);
	stop_done(1);
	assert_true(runs(2));
}

static void a_drain_that_always_fails_holds_nobody_up(void **state)
{
	(void)state;
	run_gang_that_drains();
	rig_at(&rig, 41 * S);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_STOPPING);
		assert_true(runs(1));
		assert_int_equal(rig_fail(&rig, 0, 2), 0);
		rig_at(&rig, rig.now + 11 * S);
	}
	assert_true(rig_status(&rig, 0).not_preemptible);
	assert_true(runs(0));
	assert_int_equal(rig_state(&rig, 1), SCHED_CLIENT_STOPPING);
	stop_done(1);
	assert_true(runs(2));
}

/* Its kernels wait for the others, and those wait for the GPU that it keeps from a third one. */
static void a_member_that_could_not_be_stopped_is_asked_again(void **state)
{
	(void)state;
	run_gang_that_drains();
	rig_at(&rig, 41 * S);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(rig_fail(&rig, 0, 2), 0);
		rig_at(&rig, rig.now + 11 * S);
	}
	stop_done(1);
	assert_true(rig_status(&rig, 0).not_preemptible && runs(0) && runs(2));
	rig_at(&rig, rig.now + rig.config.wait_bound_ns);
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_STOPPING);
	rig_clear(&rig);
	assert_int_equal(rig_fail(&rig, 0, 2), 0);
	assert_true(rig_status(&rig, 0).not_preemptible && runs(0));
	rig_at(&rig, rig.now + rig.config.wait_bound_ns);
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_STOPPING);
	stop_done(0);
	assert_false(rig_status(&rig, 0).not_preemptible);
}

static void a_member_that_dies_as_it_drains_lets_the_victim_go(void **state)
{
	(void)state;
	run_gang_that_drains();
	rig_at(&rig, 41 * S);
	assert_true(runs(1));
	rig_leave(&rig, 0);
	assert_int_equal(rig_did(&rig, 1, SCHED_ACTION_DROP)->bytes, 20 * GIB);
	stop_done(1);
	assert_true(runs(2));
}

static void a_member_that_hangs_as_it_drains_lets_the_victim_go(void **state)
{
	(void)state;
	run_gang_that_drains();
	rig.mute = 0;
	rig_at(&rig, 41 * S);
	assert_true(runs(1));
	rig_at(&rig, 60 * S);
	assert_true(rig_status(&rig, 0).hung);
	assert_int_equal(rig_state(&rig, 1), SCHED_CLIENT_STOPPING);
	stop_done(1);
	assert_true(runs(2));
}

static void a_member_that_drains_and_rests_lets_the_victim_go(void **state)
{
	(void)state;
	run_gang_that_drains();
	rig_at(&rig, 41 * S);
	assert_int_equal(rig_release(&rig, 0, rig_mem(60, 0, 0), false), 0);
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_IDLE);
	assert_int_equal(rig_did(&rig, 1, SCHED_ACTION_DROP)->bytes, 20 * GIB);
	stop_done(1);
	assert_true(runs(2));
}

static void all_members_that_drain_stop_together(void **state)
{
	(void)state;
	run_gang();
	run_member(3, 0, 7, 10);
	says_it_drains(0, true);
	says_it_drains(3, true);
	run_member(2, 1, SCHED_NONE, 60);
	rig_at(&rig, 41 * S);
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_STOPPING);
	assert_int_equal(rig_state(&rig, 3), SCHED_CLIENT_STOPPING);
	stop_done(0);
	assert_true(runs(1));
	/* The first one comes back, so that all run when the second one is tried again. */
	assert_int_equal(rig_fail(&rig, 3, 2), 0);
	settle();
	assert_true(runs(0) && runs(1) && runs(3));
	rig_at(&rig, rig.now + 11 * S);
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_STOPPING);
	assert_int_equal(rig_state(&rig, 3), SCHED_CLIENT_STOPPING);
	assert_true(runs(1));
	stop_done(3);
	assert_true(runs(1));
	stop_done(0);
	assert_int_equal(rig_state(&rig, 1), SCHED_CLIENT_STOPPING);
	stop_done(1);
	assert_true(runs(2));
}

static void a_paused_member_waits_for_the_one_that_drains(void **state)
{
	struct sched_event pause = {.type = SCHED_EVENT_PAUSE, .client = 1, .is_paused = true};

	(void)state;
	run_gang();
	says_it_drains(0, true);
	assert_int_equal(rig_step(&rig, pause), 0);
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_STOPPING);
	assert_true(runs(1));
	stop_done(0);
	assert_int_equal(rig_state(&rig, 1), SCHED_CLIENT_STOPPING);
	stop_done(1);
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_WAITING);
	pause.is_paused = false;
	assert_int_equal(rig_step(&rig, pause), 0);
	assert_true(runs(0) && runs(1));
}

/* client, which runs, lacks 10 GiB for an allocation. */
static void grow(uint32_t client)
{
	assert_int_equal(rig_memory(&rig, client, rig_want(rig.clients[client].memory, 10, 0)), 0);
}

/* The last one leaves on the other GPU, where the gang is next and may come beside all. */
static void a_gang_passes_a_critical_client_that_grows(void **state)
{
	(void)state;
	rig.config.anti_thrash = false;
	assert_int_equal(rig_config(&rig), 0);
	rig_join_as(&rig, 2, SCHED_PRIORITY_CRITICAL, 0, 0);
	ask(2, 40);
	assert_int_equal(rig_memory(&rig, 2, rig_mem(40, 0, 0)), 0);
	run_member(3, 0, SCHED_NONE, 50);
	run_member(4, 1, SCHED_NONE, 60);
	for (uint32_t i = 0; i < 2; i++) {
		join_on(i, i);
		assert_int_equal(into_gang(i, 7, 0), 0);
	}
	ask(1, 60);
	ask(0, 1);
	assert_true(runs(2) && runs(3) && runs(4));
	assert_int_equal(rig_memory(&rig, 2, rig_want(rig.clients[2].memory, 20, 0)), 0);
	assert_int_equal(rig.clients[2].line, SCHED_LINE_QUEUE);
	assert_false(runs(0) || runs(1));
	rig_leave(&rig, 4);
	assert_true(runs(0) && runs(1) && runs(3));
	assert_int_equal(rig.clients[2].line, SCHED_LINE_QUEUE);
}

/* All of a GPU wait for memory; the victim has none, and stops after a member that drains. */
static void a_stall_waits_for_the_member_that_drains(void **state)
{
	(void)state;
	run_member(2, 0, SCHED_NONE, 50);
	run_member(0, 0, 7, 0);
	run_member(1, 1, 7, 60);
	says_it_drains(1, true);
	rig.config.mode = SCHED_MODE_SERIAL;
	assert_int_equal(rig_config(&rig), 0);
	assert_int_equal(rig_fail(&rig, 2, 2), 0);
	assert_int_equal(rig_state(&rig, 1), SCHED_CLIENT_STOPPING);
	assert_true(runs(0) && runs(2));
	grow(0);
	grow(2);
	/* Not again and again in the same moment. */
	assert_true(sched_deadline(&rig.sched) > rig.sched.now_ns + 1);
	stop_done(1);
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_STOPPING);
	stop_done(0);
	assert_int_equal(rig.clients[2].budget, 60 * GIB);
}

static void a_gpu_that_is_out_is_not_waited_for(void **state)
{
	struct sched_event gpu = {.type = SCHED_EVENT_GPU, .bytes = 100 * GIB, .is_out = true};

	(void)state;
	run_gang_that_drains();
	rig_at(&rig, 30 * S);
	assert_int_equal(rig_step(&rig, gpu), 0);
	rig_at(&rig, 41 * S);
	assert_true(runs(0));
	assert_int_equal(rig_state(&rig, 1), SCHED_CLIENT_STOPPING);
}

static void a_critical_client_waits_for_one_drain(void **state)
{
	(void)state;
	run_gang();
	says_it_drains(0, true);
	assert_int_equal(
		rig_step(&rig, (struct sched_event){.type = SCHED_EVENT_JOIN,
						    .client = 2,
						    .gpu = 1,
						    .claim = {SCHED_PRIORITY_CRITICAL, 0, 0}}),
		0);
	ask(2, 60);
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_STOPPING);
	assert_true(runs(1));
	stop_done(0);
	stop_done(1);
	assert_true(runs(2));
}

static void a_member_that_can_be_frozen_again_stops_with_the_others(void **state)
{
	(void)state;
	run_gang_that_drains();
	says_it_drains(0, false);
	rig_at(&rig, 41 * S);
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_STOPPING);
	assert_int_equal(rig_state(&rig, 1), SCHED_CLIENT_STOPPING);
}

/* Each holds what the other one waits for, and its kernels wait for the member that waits. */
static void two_gangs_that_grow_do_not_deadlock_without_turns(void **state)
{
	(void)state;
	rig.config.anti_thrash = false;
	assert_int_equal(rig_config(&rig), 0);
	for (uint32_t i = 0; i < 4; i++)
		run_member(i, i % 2, i < 2 ? 7 : 9, 50);
	assert_true(runs(0) && runs(1) && runs(2) && runs(3));
	grow(0);
	assert_true(runs(0) && runs(1) && runs(2) && runs(3));
	assert_int_equal(rig.clients[1].place, SCHED_PLACE_BLOCKED);
	grow(3);
	rig_at(&rig, rig.now + 41 * S);
	for (int n = 0; n < 4; n++)
		settle();
	/* One of them has what it lacked, and the other one is off. */
	assert_int_equal(runs(0), runs(1));
	assert_int_equal(runs(2), runs(3));
	assert_true(runs(0) != runs(2));
	assert_int_equal(rig.clients[runs(0) ? 0 : 3].memory.resident, 60 * GIB);
	assert_int_equal(rig.clients[runs(0) ? 0 : 3].memory.wanted, 0);
	rig_leave(&rig, runs(0) ? 0 : 2);
	rig_leave(&rig, runs(1) ? 1 : 3);
	for (int n = 0; n < 4; n++)
		settle();
	assert_int_equal(rig_state(&rig, 0) == SCHED_CLIENT_FREE ? runs(2) && runs(3)
								 : runs(0) && runs(1),
			 true);
}

/* Turns are on: whoever waits for memory has its turn, and others go on. */
static void a_gang_that_grows_is_not_blocked_where_there_are_turns(void **state)
{
	(void)state;
	run_gang();
	run_member(2, 0, SCHED_NONE, 40);
	grow(0);
	assert_int_equal(rig.clients[0].place, SCHED_PLACE_BLOCKED);
	assert_int_equal(rig.clients[1].place, SCHED_PLACE_RUNNING_LOW);
	rig.config.anti_thrash = false;
	assert_int_equal(rig_config(&rig), 0);
	assert_int_equal(rig.clients[1].place, SCHED_PLACE_BLOCKED);
	rig.config.anti_thrash = true;
	assert_int_equal(rig_config(&rig), 0);
	assert_int_equal(rig.clients[1].place, SCHED_PLACE_RUNNING_LOW);
}

/* The gang of 0 and 1, which wants nothing yet. */
static void join_gang(void)
{
	for (uint32_t i = 0; i < 2; i++) {
		join_on(i, i);
		assert_int_equal(into_gang(i, 7, 0), 0);
	}
}

/*
 * The gang of 0 and 1 has come in vain: 2 lacked host memory when it had to stop on the second GPU.
 * By then 3 had stopped on the first one, and waits there.
 */
static void begin_in_vain(bool is_idle)
{
	run_member(3, 0, SCHED_NONE, 80);
	run_member(2, 1, SCHED_NONE, 80);
	if (is_idle)
		assert_int_equal(rig_release(&rig, 2, rig_mem(80, 0, 0), false), 0);
	join_gang();
	ask(0, 60);
	ask(1, 60);
	rig_at(&rig, 41 * S);
	assert_true(sched_has_drop(&rig.clients[3]) && sched_has_drop(&rig.clients[2]));
	stop_done(3);
	assert_int_equal(rig_fail_as(&rig, 2, 3, true), 0);
	settle();
}

static void a_victim_that_cannot_go_keeps_no_other_gpu_empty(void **state)
{
	(void)state;
	begin_in_vain(false);
	assert_true(rig.clients[2].is_retrying);
	assert_true(runs(3));
}

/* The second try; then the third, after which the gang comes. */
static void a_victim_in_doubt_is_asked_alone(void **state)
{
	(void)state;
	begin_in_vain(false);
	rig_at(&rig, 52 * S);
	assert_true(sched_has_drop(&rig.clients[2]));
	assert_true(runs(3) && !sched_has_drop(&rig.clients[3]));
	assert_int_equal(rig_fail_as(&rig, 2, 3, true), 0);
	settle();
	assert_true(runs(3) && runs(2));
	rig_at(&rig, 63 * S);
	assert_true(sched_has_drop(&rig.clients[2]));
	assert_true(runs(3) && !sched_has_drop(&rig.clients[3]));
	stop_done(2);
	assert_true(sched_has_drop(&rig.clients[3]));
	settle();
	assert_true(runs(0) && runs(1));
}

/* 2 waits for nothing, and its bytes have to go. */
static void an_idle_victim_in_doubt_is_asked_alone(void **state)
{
	(void)state;
	begin_in_vain(true);
	assert_true(runs(3));
	rig_at(&rig, 52 * S);
	assert_true(sched_has_drop(&rig.clients[2]));
	assert_true(runs(3) && !sched_has_drop(&rig.clients[3]));
	stop_done(2);
	assert_true(sched_has_drop(&rig.clients[3]));
	settle();
	assert_true(runs(0) && runs(1));
}

/* Nobody has an answer of one that has gone. */
static void a_victim_in_doubt_that_dies_lets_the_gang_come(void **state)
{
	(void)state;
	begin_in_vain(false);
	rig_at(&rig, 52 * S);
	assert_true(sched_has_drop(&rig.clients[2]));
	rig_leave(&rig, 2);
	assert_true(sched_has_drop(&rig.clients[3]));
	settle();
	assert_true(runs(0) && runs(1));
}

/* For so many seconds all goes as it should, but for victim, which lacks host memory. */
static void hours_without_host_memory(uint32_t victim, uint32_t *n_stops, uint32_t *up)
{
	for (uint32_t t = 0; t < 3600; t++) {
		rig_clear(&rig);
		rig_at(&rig, rig.now + S);
		for (uint32_t i = 0; i < RIG_CLIENTS; i++) {
			if (!sched_has_drop(&rig.clients[i]))
				continue;
			n_stops[i]++;
			if (i == victim)
				assert_int_equal(rig_fail_as(&rig, i, 3, true), 0);
			else
				stop_done(i);
			i = UINT32_MAX;
		}
		settle();
		for (uint32_t i = 0; i < RIG_CLIENTS; i++)
			up[i] += runs(i);
	}
}

/* One of them would fit beside the victim, and both do not. */
static void a_gang_of_two_on_the_victim_s_gpu_keeps_no_other_gpu_empty(void **state)
{
	uint32_t n_stops[RIG_CLIENTS] = {0}, up[RIG_CLIENTS] = {0};

	(void)state;
	run_member(3, 0, SCHED_NONE, 80);
	run_member(2, 1, SCHED_NONE, 60);
	for (uint32_t i = 0; i < 2; i++) {
		join_on(4 + i, 1);
		assert_int_equal(into_gang(4 + i, 7, 0), 0);
	}
	join_on(0, 0);
	assert_int_equal(into_gang(0, 7, 0), 0);
	ask(0, 60);
	ask(4, 30);
	ask(5, 30);
	hours_without_host_memory(2, n_stops, up);
	assert_int_equal(n_stops[3], 1);
	assert_true(up[3] > 3590);
}

/* It would be stopped first, and come back beside the victim. */
static void whoever_runs_beside_a_victim_in_doubt_goes_on(void **state)
{
	uint32_t n_stops[RIG_CLIENTS] = {0}, up[RIG_CLIENTS] = {0};

	(void)state;
	run_member(3, 0, SCHED_NONE, 80);
	run_member(2, 1, SCHED_NONE, 60);
	assert_int_equal(
		rig_step(&rig, (struct sched_event){.type = SCHED_EVENT_JOIN,
						    .client = 4,
						    .gpu = 1,
						    .claim = {.priority = SCHED_PRIORITY_LOW,
							      .weight = 100}}),
		0);
	ask(4, 30);
	assert_int_equal(rig_memory(&rig, 4, rig_mem(30, 0, 0)), 0);
	join_gang();
	ask(0, 60);
	ask(1, 90);
	hours_without_host_memory(2, n_stops, up);
	assert_int_equal(n_stops[3], 1);
	assert_int_equal(n_stops[4], 1);
	assert_true(up[3] > 3590 && up[4] > 3590);
}

static void a_critical_gang_stops_nobody_in_vain(void **state)
{
	uint32_t n_stops[RIG_CLIENTS] = {0}, up[RIG_CLIENTS] = {0};

	(void)state;
	run_member(3, 0, SCHED_NONE, 80);
	run_member(2, 1, SCHED_NONE, 80);
	for (uint32_t i = 0; i < 2; i++) {
		assert_int_equal(
			rig_step(&rig,
				 (struct sched_event){.type = SCHED_EVENT_JOIN,
						      .client = i,
						      .gpu = i,
						      .claim = {.priority = SCHED_PRIORITY_CRITICAL,
								.weight = 100}}),
			0);
		assert_int_equal(into_gang(i, 7, 0), 0);
	}
	ask(0, 60);
	ask(1, 60);
	hours_without_host_memory(2, n_stops, up);
	assert_in_range(n_stops[3], 1, 2);
	assert_true(up[3] > 3590);
}

/* All of them fit beside it. */
static void an_idle_victim_in_doubt_that_need_not_go_is_not_asked(void **state)
{
	(void)state;
	run_member(3, 0, SCHED_NONE, 80);
	run_member(2, 1, SCHED_NONE, 20);
	assert_int_equal(rig_release(&rig, 2, rig_mem(20, 0, 0), false), 0);
	rig.clients[2].n_short = 1;
	for (uint32_t i = 0; i < 2; i++) {
		join_on(4 + i, 1);
		assert_int_equal(into_gang(4 + i, 7, 0), 0);
	}
	join_on(0, 0);
	assert_int_equal(into_gang(0, 7, 0), 0);
	ask(0, 60);
	ask(4, 30);
	ask(5, 30);
	rig_at(&rig, 41 * S);
	assert_true(sched_has_drop(&rig.clients[3]) && !sched_has_drop(&rig.clients[2]));
	settle();
	assert_true(runs(0) && runs(4) && runs(5));
}

/* 4 would stop before it, in vain. It lacked host memory for somebody else before. */
static void a_victim_in_doubt_that_is_not_the_first_is_asked_alone(void **state)
{
	(void)state;
	run_member(3, 0, SCHED_NONE, 80);
	run_member(4, 1, SCHED_NONE, 30);
	rig_at(&rig, S);
	run_member(2, 1, SCHED_NONE, 60);
	rig.clients[2].n_short = 1;
	join_gang();
	ask(0, 60);
	ask(1, 90);
	rig_at(&rig, 43 * S);
	assert_true(sched_has_drop(&rig.clients[2]));
	assert_false(sched_has_drop(&rig.clients[3]) || sched_has_drop(&rig.clients[4]));
	settle();
	assert_true(runs(0) && runs(1));
}

/* Another one can make the room, when its turn is over. */
static void a_victim_in_doubt_that_hangs_is_not_waited_for(void **state)
{
	(void)state;
	run_member(3, 0, SCHED_NONE, 80);
	run_member(2, 1, SCHED_NONE, 40);
	rig_at(&rig, S);
	join_gang();
	rig_at(&rig, 38 * S);
	run_member(4, 1, SCHED_NONE, 30);
	ask(0, 60);
	ask(1, 60);
	rig_at(&rig, 41 * S);
	stop_done(3);
	assert_int_equal(rig_fail_as(&rig, 2, 3, true), 0);
	settle();
	rig.mute = 2;
	for (uint32_t t = 0; t < 400; t++) {
		rig_at(&rig, rig.now + S);
		settle();
	}
	assert_true(rig.clients[2].is_hung);
	assert_true(runs(0) && runs(1));
}

static void a_crowd_is_no_gang(void **state)
{
	(void)state;
	assert_int_equal(into_gang(0, 7, 0), SCHED_E_NO_CLIENT);
	join_on(0, 0);
	assert_int_equal(into_gang(0, RIG_CLIENTS, 0), SCHED_E_CONFIG);
	assert_int_equal(into_gang(0, SCHED_NONE, 0), 0);
	assert_int_equal(rig_status(&rig, 0).gang, SCHED_NONE);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup(name, set_up)
	const struct CMUnitTest tests[] = {
		TEST(nobody_runs_before_all_have_come),
		TEST(all_members_stop_in_one_step),
		TEST(members_run_when_all_have_their_memory),
		TEST(two_gangs_take_turns_and_are_never_torn),
		TEST(others_go_on_where_only_one_gpu_is_its_turn),
		TEST(a_member_that_comes_late_joins_where_it_fits),
		TEST(a_member_that_comes_late_calls_the_others_off),
		TEST(a_member_comes_back_when_the_last_one_rests_as_it_stops),
		TEST(a_member_comes_when_the_one_that_cannot_come_dies),
		TEST(a_paused_member_stops_all),
		TEST(a_hung_member_holds_nobody_up),
		TEST(a_member_that_waits_and_is_stopped_is_waited_for),
		TEST(a_member_that_stops_as_it_comes_takes_the_others_along),
		TEST(members_apart_pass_one_that_is_stopped),
		TEST(a_death_while_they_come_lets_the_other_run),
		TEST(a_member_put_back_takes_the_others_along),
		TEST(members_that_do_not_fit_together_are_apart),
		TEST(members_on_one_gpu_run_together),
		TEST(a_gang_that_cannot_come_beside_pager_contexts_is_apart),
		TEST(a_critical_member_brings_nobody_too_early),
		TEST(a_member_that_lacks_nothing_leaves_its_victim_to_the_other),
		TEST(critical_members_stay),
		TEST(a_gang_waits_for_a_gpu_that_is_out),
		TEST(a_member_that_bars_all_is_named_before_one_that_waits),
		TEST(a_paused_member_of_the_same_gpu_is_named),
		TEST(a_crowd_on_one_gpu_is_apart),
		TEST(a_gang_whose_turn_has_come_waits_for_no_event),
		TEST(members_that_are_ready_go_on_when_they_are_apart),
		TEST(a_member_that_drains_stops_first),
		TEST(a_victim_waits_for_the_member_that_drains),
		TEST(members_run_on_when_one_could_not_drain),
		TEST(a_drain_that_always_fails_holds_nobody_up),
		TEST(a_member_that_could_not_be_stopped_is_asked_again),
		TEST(a_member_that_dies_as_it_drains_lets_the_victim_go),
		TEST(a_member_that_hangs_as_it_drains_lets_the_victim_go),
		TEST(a_member_that_drains_and_rests_lets_the_victim_go),
		TEST(all_members_that_drain_stop_together),
		TEST(a_paused_member_waits_for_the_one_that_drains),
		TEST(a_stall_waits_for_the_member_that_drains),
		TEST(a_gang_passes_a_critical_client_that_grows),
		TEST(a_gpu_that_is_out_is_not_waited_for),
		TEST(a_critical_client_waits_for_one_drain),
		TEST(a_member_that_can_be_frozen_again_stops_with_the_others),
		TEST(two_gangs_that_grow_do_not_deadlock_without_turns),
		TEST(a_gang_that_grows_is_not_blocked_where_there_are_turns),
		TEST(a_victim_that_cannot_go_keeps_no_other_gpu_empty),
		TEST(a_victim_in_doubt_is_asked_alone),
		TEST(an_idle_victim_in_doubt_is_asked_alone),
		TEST(a_victim_in_doubt_that_dies_lets_the_gang_come),
		TEST(a_gang_of_two_on_the_victim_s_gpu_keeps_no_other_gpu_empty),
		TEST(whoever_runs_beside_a_victim_in_doubt_goes_on),
		TEST(a_victim_in_doubt_that_is_not_the_first_is_asked_alone),
		TEST(a_critical_gang_stops_nobody_in_vain),
		TEST(an_idle_victim_in_doubt_that_need_not_go_is_not_asked),
		TEST(a_victim_in_doubt_that_hangs_is_not_waited_for),
		TEST(a_crowd_is_no_gang),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
