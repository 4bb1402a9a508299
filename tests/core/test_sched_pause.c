/* SPDX-License-Identifier: Apache-2.0 */

/* Clients that somebody has paused: they are stopped, and not granted until they are resumed. */

#include "rig.h"

static struct rig rig;

static int set_up(void **state)
{
	(void)state;
	rig_init(&rig);
	return 0;
}

static int pause_client(uint32_t client, bool is_paused)
{
	return rig_step(&rig, (struct sched_event){.type = SCHED_EVENT_PAUSE,
						   .client = client,
						   .is_paused = is_paused});
}

static void a_client_that_runs_is_stopped_and_keeps_its_memory(void **state)
{
	(void)state;
	rig_run(&rig, 0, 30);
	rig_clear(&rig);
	assert_int_equal(pause_client(0, true), 0);
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_STOPPING);
	assert_int_equal(rig_did(&rig, 0, SCHED_ACTION_DROP)->bytes, 0);
	rig_release(&rig, 0, rig_mem(30, 0, 0), true);
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_IDLE);
	assert_int_equal(rig_status(&rig, 0).budget, 30 * GIB);
	assert_true(rig_status(&rig, 0).paused);
	rig_at(&rig, rig.now + 1000 * S);
	assert_null(rig_did(&rig, 0, SCHED_ACTION_GRANT));
	assert_int_equal(pause_client(0, false), 0);
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_RUNNING);
	assert_non_null(rig_did(&rig, 0, SCHED_ACTION_GRANT));
}

static void its_memory_makes_room_for_others(void **state)
{
	(void)state;
	rig_run(&rig, 0, 80);
	rig_start(&rig, 1, 60);
	assert_int_equal(rig_state(&rig, 1), SCHED_CLIENT_WAITING);
	(void)pause_client(0, true);
	rig_clear(&rig);
	rig_release(&rig, 0, rig_mem(80, 0, 0), true);
	assert_int_equal(rig_did(&rig, 0, SCHED_ACTION_DROP)->bytes, 40 * GIB);
	assert_int_equal(rig_did(&rig, 0, SCHED_ACTION_DROP)->grant, 0);
	rig_release(&rig, 0, rig_mem(40, 40, 0), true);
	assert_int_equal(rig_state(&rig, 1), SCHED_CLIENT_RUNNING);
	/* Resumed, it waits as every other client does. */
	(void)pause_client(0, false);
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_WAITING);
	assert_int_equal(rig_status(&rig, 0).position, 1);
}

static void a_client_that_waits_leaves_the_queue(void **state)
{
	(void)state;
	rig_run(&rig, 0, 80);
	rig_start(&rig, 1, 60);
	rig_start(&rig, 2, 60);
	(void)pause_client(1, true);
	assert_int_equal(rig_state(&rig, 1), SCHED_CLIENT_IDLE);
	assert_int_equal(rig_why(&rig, 1), SCHED_WAIT_NOT);
	assert_int_equal(rig_status(&rig, 2).position, 1);
	(void)pause_client(1, false);
	assert_int_equal(rig_state(&rig, 1), SCHED_CLIENT_WAITING);
	assert_int_equal(rig_status(&rig, 1).position, 2);
}

static void a_client_that_comes_gives_its_place_up(void **state)
{
	(void)state;
	rig_turns(&rig, 20);
	rig_run(&rig, 0, 80);
	rig_start(&rig, 1, 60);
	rig_at(&rig, rig.now + 21 * S);
	assert_int_equal(rig_state(&rig, 1), SCHED_CLIENT_INCOMING);
	(void)pause_client(1, true);
	assert_int_equal(rig_state(&rig, 1), SCHED_CLIENT_IDLE);
	rig_release(&rig, 0, rig_mem(40, 40, 0), true);
	rig_clear(&rig);
	assert_int_equal(pause_client(1, false), 0);
	assert_in_range(rig_state(&rig, 1), SCHED_CLIENT_WAITING, SCHED_CLIENT_RUNNING);
}

static void a_request_is_kept_until_the_client_is_resumed(void **state)
{
	(void)state;
	rig_join(&rig, 0);
	(void)pause_client(0, true);
	rig_request(&rig, 0, rig_want(rig_mem(0, 0, 0), 10, 0));
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_IDLE);
	assert_int_equal(rig_step(&rig, (struct sched_event){.type = SCHED_EVENT_REQUEST}),
			 SCHED_E_STATE);
	assert_int_equal(pause_client(0, true), 0); /* a second time changes nothing */
	(void)pause_client(0, false);
	assert_non_null(rig_did(&rig, 0, SCHED_ACTION_GRANT));
	/* Nobody who wants nothing is granted. */
	rig_join(&rig, 1);
	(void)pause_client(1, true);
	(void)pause_client(1, false);
	assert_int_equal(rig_state(&rig, 1), SCHED_CLIENT_IDLE);
}

static void a_stop_that_failed_is_tried_again(void **state)
{
	(void)state;
	rig_run(&rig, 0, 30);
	(void)pause_client(0, true);
	rig_fail(&rig, 0, 1);
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_RUNNING);
	rig_at(&rig, rig.now + rig.config.retry_ns);
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_STOPPING);
	/* Resumed meanwhile, it queues again when it has stopped. */
	(void)pause_client(0, false);
	rig_release(&rig, 0, rig_mem(30, 0, 0), true);
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_RUNNING);
}

static void a_critical_client_can_be_paused(void **state)
{
	(void)state;
	rig_join_as(&rig, 0, SCHED_PRIORITY_CRITICAL, 0, 0);
	rig_request(&rig, 0, rig_want(rig_mem(0, 0, 0), 10, 0));
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_RUNNING);
	(void)pause_client(0, true);
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_STOPPING);
}

static void a_client_that_takes_no_turns_is_not_paused(void **state)
{
	(void)state;
	assert_int_equal(rig_step(&rig, (struct sched_event){.type = SCHED_EVENT_JOIN,
							     .fixed = true,
							     .running = true}),
			 0);
	assert_int_equal(pause_client(0, true), SCHED_E_STATE);
	assert_false(rig_status(&rig, 0).paused);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(a_client_that_runs_is_stopped_and_keeps_its_memory, set_up),
		cmocka_unit_test_setup(its_memory_makes_room_for_others, set_up),
		cmocka_unit_test_setup(a_client_that_waits_leaves_the_queue, set_up),
		cmocka_unit_test_setup(a_client_that_comes_gives_its_place_up, set_up),
		cmocka_unit_test_setup(a_request_is_kept_until_the_client_is_resumed, set_up),
		cmocka_unit_test_setup(a_stop_that_failed_is_tried_again, set_up),
		cmocka_unit_test_setup(a_critical_client_can_be_paused, set_up),
		cmocka_unit_test_setup(a_client_that_takes_no_turns_is_not_paused, set_up),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
