/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Clients whose process is stopped: by a signal, a debugger, or a frozen control group. Nobody
 * waits for them.
 */

#include "rig.h"

static struct rig rig;

static int set_up(void **state)
{
	(void)state;
	rig_init(&rig);
	rig_turns(&rig, 20);
	return 0;
}

static void send_process(uint32_t client, bool is_stopped)
{
	assert_int_equal(rig_step(&rig, (struct sched_event){.type = SCHED_EVENT_PROCESS,
							     .client = client,
							     .is_stopped = is_stopped}),
			 0);
}

static void stop_process(uint32_t client)
{
	send_process(client, true);
	assert_true(rig_status(&rig, client).hung);
}

static void go_on(uint32_t client)
{
	send_process(client, false);
	assert_false(rig_status(&rig, client).hung);
}

static void doubt(uint32_t client, uint64_t gib)
{
	assert_int_equal(rig_step(&rig, (struct sched_event){.type = SCHED_EVENT_DOUBT,
							     .client = client,
							     .doubted = gib * GIB}),
			 0);
}

static bool is_told_to_stop(uint32_t client)
{
	return rig_did(&rig, client, SCHED_ACTION_DROP) != NULL;
}

/* 0 has 80 of the 100; 1 and then 2 wait for as much. */
static void two_wait(void)
{
	rig_run(&rig, 0, 80);
	rig_start(&rig, 1, 80);
	rig.now += S;
	rig_start(&rig, 2, 80);
	assert_int_equal(rig_status(&rig, 1).position, 1);
	rig_clear(&rig);
}

static void a_waiter_is_passed_over(void **state)
{
	(void)state;
	two_wait();
	stop_process(1);
	assert_int_equal(rig_status(&rig, 1).position, 0);
	assert_int_equal(rig_status(&rig, 2).position, 1);
	rig_at(&rig, 21 * S);
	assert_int_equal(rig_did(&rig, 0, SCHED_ACTION_DROP)->to, 2);
	assert_int_equal(rig_release(&rig, 0, rig_mem(20, 60, 0), true), 0);
	assert_int_equal(rig_state(&rig, 2), SCHED_CLIENT_RUNNING);
	assert_int_equal(rig_state(&rig, 1), SCHED_CLIENT_WAITING);
}

static void nobody_is_stopped_for_the_only_waiter(void **state)
{
	(void)state;
	rig_run(&rig, 0, 80);
	rig_start(&rig, 1, 80);
	rig_clear(&rig);
	stop_process(1);
	rig_at(&rig, 1000 * S);
	assert_false(is_told_to_stop(0));
	assert_false(rig_reported(&rig, 1, SCHED_REPORT_HUNG));
}

static void a_waiter_keeps_its_place(void **state)
{
	(void)state;
	two_wait();
	stop_process(1);
	rig_at(&rig, 10 * S);
	go_on(1);
	assert_true(rig_reported(&rig, 1, SCHED_REPORT_BACK));
	assert_int_equal(rig_status(&rig, 1).position, 1);
	assert_int_equal(rig_status(&rig, 2).position, 2);
	rig_at(&rig, 21 * S);
	assert_int_equal(rig_did(&rig, 0, SCHED_ACTION_DROP)->to, 1);
}

/* A blocked allocation of a client that runs waits in the queue, too. */
static void who_waits_to_grow_keeps_its_place(void **state)
{
	(void)state;
	rig_run(&rig, 0, 60);
	rig_run(&rig, 1, 20);
	assert_int_equal(rig_memory(&rig, 1, rig_want(rig_mem(20, 0, 0), 60, 0)), 0);
	rig.now += S;
	rig_start(&rig, 2, 80);
	assert_int_equal(rig_status(&rig, 1).position, 1);
	rig_clear(&rig);
	stop_process(1);
	assert_true(rig_status(&rig, 1).growing);
	assert_int_equal(rig_status(&rig, 1).position, 0);
	assert_int_equal(rig_status(&rig, 2).position, 1);
	go_on(1);
	assert_int_equal(rig_status(&rig, 1).position, 1);
	stop_process(1);
	rig_at(&rig, 100 * S);
	assert_null(rig_did(&rig, 1, SCHED_ACTION_BUDGET));
}

/* 0 is out for 1, which comes with 80 and has said nothing yet; 2 and 3 wait, too. */
static void comes_in(void)
{
	rig_run(&rig, 0, 80);
	rig_join(&rig, 1);
	rig_request(&rig, 1, rig_mem(0, 80, 0));
	rig.now += S;
	rig_start(&rig, 2, 30);
	rig_start(&rig, 3, 80);
	rig_at(&rig, 20 * S);
	assert_int_equal(rig_state(&rig, 1), SCHED_CLIENT_INCOMING);
	assert_int_equal(rig_release(&rig, 0, rig_mem(0, 80, 0), true), 0);
	rig_clear(&rig);
}

static void who_stops_while_its_memory_comes_in_loses_its_turn(void **state)
{
	(void)state;
	comes_in();
	assert_int_equal(rig_memory(&rig, 1, rig_mem(10, 70, 0)), 0);
	stop_process(1);
	assert_int_equal(rig_state(&rig, 1), SCHED_CLIENT_WAITING);
	assert_int_equal(rig_status(&rig, 1).position, 0);
	/* What has come in is taken, and no more: who fits beside it runs. */
	doubt(1, 70);
	assert_int_equal(rig_state(&rig, 2), SCHED_CLIENT_RUNNING);
	assert_int_equal(rig_status(&rig, 3).position, 1);
	go_on(1);
	assert_int_equal(rig_status(&rig, 3).position, 1);
	assert_int_equal(rig_status(&rig, 1).position, 2);
	assert_false(rig_reported(&rig, 1, SCHED_REPORT_LATE));
}

static void a_restore_that_goes_on_after_all_is_no_harm(void **state)
{
	(void)state;
	comes_in();
	stop_process(1);
	doubt(1, 80);
	assert_int_equal(rig_state(&rig, 2), SCHED_CLIENT_RUNNING);
	go_on(1);
	/* The card has no room for the rest of it. */
	assert_int_equal(rig_step(&rig, (struct sched_event){.type = SCHED_EVENT_RELEASED,
							     .client = 1,
							     .epoch = rig.clients[1].epoch,
							     .budget = 10 * GIB,
							     .memory = rig_mem(10, 70, 0),
							     .outcome = 8,
							     .wants = true}),
			 0);
	assert_int_equal(rig_status(&rig, 1).budget, 10 * GIB);
	assert_int_equal(rig_state(&rig, 1), SCHED_CLIENT_WAITING);
}

/* Its grant is of no use to it, so it is not waited for where one runs at a time. */
static void a_holder_leaves_its_place_to_others(void **state)
{
	(void)state;
	rig.config.mode = SCHED_MODE_SERIAL;
	assert_int_equal(rig_config(&rig), 0);
	rig_run(&rig, 0, 20);
	rig.now += S;
	rig_start(&rig, 1, 20);
	assert_int_equal(rig_state(&rig, 1), SCHED_CLIENT_WAITING);
	rig_clear(&rig);
	stop_process(0);
	assert_int_equal(rig_state(&rig, 1), SCHED_CLIENT_RUNNING);
	assert_false(is_told_to_stop(0));
	/* Its turn is the older one: it gains nothing by having been away. */
	go_on(0);
	assert_true(is_told_to_stop(0));
	assert_false(is_told_to_stop(1));
}

static void a_victim_is_not_waited_for(void **state)
{
	(void)state;
	rig_run(&rig, 0, 80);
	rig_start(&rig, 1, 20);
	rig.now += S;
	rig_start(&rig, 2, 80);
	rig_at(&rig, 21 * S);
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_STOPPING);
	stop_process(0);
	assert_int_equal(rig_state(&rig, 2), SCHED_CLIENT_WAITING);
	assert_int_equal(rig_why(&rig, 2), SCHED_WAIT_STUCK);
	/* It goes on in time, and answers. */
	rig_at(&rig, 100 * S);
	go_on(0);
	assert_int_equal(rig_release(&rig, 0, rig_mem(0, 80, 0), true), 0);
	assert_false(rig_reported(&rig, 0, SCHED_REPORT_LATE));
	assert_int_equal(rig_state(&rig, 2), SCHED_CLIENT_RUNNING);
}

static uint32_t times_reported(enum sched_report report)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < rig.n; i++)
		n += rig.did[i].type == SCHED_ACTION_REPORT && rig.did[i].report == report;
	return n;
}

/* 0 owes 1 memory, with its grant or from its place among the idle. Returns until when. */
static uint64_t owes(bool is_idle)
{
	rig_init(&rig);
	rig_turns(&rig, 20);
	rig_run(&rig, 0, 80);
	if (is_idle)
		assert_int_equal(rig_release(&rig, 0, rig_mem(80, 0, 0), false), 0);
	rig_start(&rig, 1, 80);
	rig_at(&rig, 21 * S);
	assert_true(is_told_to_stop(0));
	rig_clear(&rig);
	assert_true(rig.clients[0].answer_ns > rig.now + 15 * S);
	return rig.clients[0].answer_ns;
}

static void answer(bool is_idle)
{
	assert_int_equal(rig_release(&rig, 0, rig_mem(0, 80, 0), !is_idle), 0);
	assert_false(rig_status(&rig, 0).hung);
	assert_int_equal(rig_state(&rig, 1), SCHED_CLIENT_RUNNING);
	assert_int_equal(times_reported(SCHED_REPORT_BACK), 1);
}

static void a_late_client_is_back_only_when_it_answers(void **state)
{
	(void)state;
	for (int is_idle = 0; is_idle < 2; is_idle++) {
		uint64_t until_ns = owes(is_idle);

		rig_at(&rig, until_ns);
		assert_int_equal(times_reported(SCHED_REPORT_LATE), 1);
		for (uint32_t i = 0; i < 3; i++) {
			stop_process(0);
			rig_at(&rig, rig.now + S);
			send_process(0, false);
			assert_true(rig_status(&rig, 0).hung);
			rig_at(&rig, rig.now + 1000 * S);
		}
		assert_int_equal(times_reported(SCHED_REPORT_LATE), 1);
		assert_int_equal(times_reported(SCHED_REPORT_HUNG), 1);
		assert_int_equal(times_reported(SCHED_REPORT_BACK), 0);
		answer(is_idle);
	}
}

/* stopped_ns of each 5 s. */
static void to_stop_now_and_then_gives_no_time_to_answer(void **state)
{
	static const uint64_t stopped_ns[] = {10 * MS, S, 4 * S};

	(void)state;
	for (size_t i = 0; i < 6; i++) {
		bool is_idle = i % 2;
		uint64_t until_ns = owes(is_idle);

		while (rig.now + 5 * S < until_ns) {
			stop_process(0);
			rig_at(&rig, rig.now + stopped_ns[i / 2]);
			go_on(0);
			rig_at(&rig, rig.now + 5 * S - stopped_ns[i / 2]);
		}
		rig_at(&rig, until_ns - 1);
		assert_int_equal(times_reported(SCHED_REPORT_LATE), 0);
		rig_at(&rig, until_ns);
		assert_int_equal(times_reported(SCHED_REPORT_LATE), 1);
		assert_int_equal(times_reported(SCHED_REPORT_HUNG), 1);
		assert_true(rig_status(&rig, 0).hung);
		rig_clear(&rig);
		answer(is_idle);
	}
}

/* It is late while it is stopped, and only its answer brings it back. */
static void who_is_stopped_for_too_long_is_late(void **state)
{
	(void)state;
	for (int is_idle = 0; is_idle < 2; is_idle++) {
		uint64_t until_ns = owes(is_idle);

		stop_process(0);
		rig_at(&rig, until_ns - 1);
		assert_int_equal(times_reported(SCHED_REPORT_LATE), 0);
		rig_at(&rig, until_ns + 1000 * S);
		assert_int_equal(times_reported(SCHED_REPORT_LATE), 1);
		assert_int_equal(times_reported(SCHED_REPORT_HUNG), 1);
		send_process(0, false);
		assert_true(rig_status(&rig, 0).hung);
		answer(is_idle);
	}
}

/* The next idle one gives its memory up in its place. */
static void an_idle_client_is_passed_over(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < 2; i++) {
		rig_run(&rig, i, 40);
		rig_release(&rig, i, rig_mem(40, 0, 0), false);
		rig.now += S;
	}
	rig_clear(&rig);
	rig_start(&rig, 2, 50);
	assert_true(is_told_to_stop(0));
	assert_false(is_told_to_stop(1));
	stop_process(0);
	assert_true(is_told_to_stop(1));
	assert_int_equal(rig_release(&rig, 1, rig_mem(10, 30, 0), false), 0);
	assert_int_equal(rig_state(&rig, 2), SCHED_CLIENT_RUNNING);
}

/* Under credit, a client that comes back with some left goes first of all: not this one. */
static void to_stop_and_go_on_again_and_again_gains_nothing(void **state)
{
	(void)state;
	for (int policy = 0; policy < SCHED_POLICY_COUNT_; policy++) {
		rig_init(&rig);
		rig.config.policy = (enum sched_policy)policy;
		rig_turns(&rig, 5);
		rig_run(&rig, 0, 80);
		rig_start(&rig, 1, 80);
		rig_at(&rig, 6 * S); /* 0 has had a turn, and has credit left */
		rig_release(&rig, 0, rig_mem(20, 60, 0), true);
		rig_memory(&rig, 1, rig_mem(80, 0, 0));
		assert_int_equal(rig_state(&rig, 1), SCHED_CLIENT_RUNNING);
		rig_start(&rig, 2, 80);
		for (uint32_t i = 0; i < 20; i++) {
			uint32_t before = rig_status(&rig, 0).position;

			stop_process(0);
			rig_at(&rig, rig.now + 10 * MS);
			go_on(0);
			assert_true(rig_status(&rig, 0).position >= before);
			assert_int_equal(rig_state(&rig, 1), SCHED_CLIENT_RUNNING);
		}
	}
}

int main(void)
{
#define T(test) cmocka_unit_test_setup(test, set_up)
	const struct CMUnitTest tests[] = {
		T(a_waiter_is_passed_over),
		T(nobody_is_stopped_for_the_only_waiter),
		T(a_waiter_keeps_its_place),
		T(who_waits_to_grow_keeps_its_place),
		T(who_stops_while_its_memory_comes_in_loses_its_turn),
		T(a_restore_that_goes_on_after_all_is_no_harm),
		T(a_holder_leaves_its_place_to_others),
		T(a_victim_is_not_waited_for),
		T(a_late_client_is_back_only_when_it_answers),
		T(to_stop_now_and_then_gives_no_time_to_answer),
		T(who_is_stopped_for_too_long_is_late),
		T(an_idle_client_is_passed_over),
		T(to_stop_and_go_on_again_and_again_gains_nothing),
	};
#undef T

	return cmocka_run_group_tests(tests, NULL, NULL);
}
