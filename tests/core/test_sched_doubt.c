/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What somebody else has found of a client's memory: bytes that are not there although it says so,
 * and what its contexts cost beyond its reports.
 */

#include "rig.h"

static struct rig rig;

static int set_up(void **state)
{
	(void)state;
	rig_init(&rig);
	rig.config.switch_mode = SCHED_SWITCH_FIXED;
	rig.config.switch_fixed_ns = 20 * S;
	assert_int_equal(rig_config(&rig), 0);
	return 0;
}

static void doubt(uint32_t client, uint64_t gib)
{
	assert_int_equal(rig_step(&rig, (struct sched_event){.type = SCHED_EVENT_DOUBT,
							     .client = client,
							     .doubted = gib * GIB}),
			 0);
}

static uint64_t available(void)
{
	struct sched_gpu_status status;

	sched_gpu_status(&rig.sched, 0, &status);
	return status.available / GIB;
}

/* Joins as one that has run without us, with so much. */
static void join_running(uint32_t client, struct sched_memory memory, uint64_t doubted)
{
	assert_int_equal(rig_step(&rig, (struct sched_event){.type = SCHED_EVENT_JOIN,
							     .client = client,
							     .running = true,
							     .memory = memory,
							     .doubted = doubted * GIB}),
			 0);
}

static void pinned_bytes_that_are_not_there_are_in_nobody_s_way(void **state)
{
	(void)state;
	join_running(0, rig_mem(0, 0, 100), 100);
	assert_int_equal(available(), 100);
	assert_int_equal(rig_status(&rig, 0).budget, 0);
	rig_join(&rig, 1);
	rig_request(&rig, 1, rig_want(rig_mem(0, 0, 0), 60, 1));
	assert_non_null(rig_did(&rig, 1, SCHED_ACTION_GRANT));
}

static void who_waits_is_let_in_when_others_are_doubted(void **state)
{
	(void)state;
	join_running(0, rig_mem(100, 0, 0), 0);
	rig_start(&rig, 1, 60);
	assert_int_equal(rig_state(&rig, 1), SCHED_CLIENT_WAITING);
	doubt(0, 50);
	assert_int_equal(rig_state(&rig, 1), SCHED_CLIENT_WAITING);
	doubt(0, 60);
	assert_non_null(rig_did(&rig, 1, SCHED_ACTION_GRANT));
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_RUNNING);
}

/* It never answers, and so would have kept 80 GiB for ever. */
static void what_a_hung_client_has_not_is_others(void **state)
{
	(void)state;
	rig_run(&rig, 0, 80);
	rig.mute = 0;
	rig_start(&rig, 1, 50);
	rig_at(&rig, 150 * S);
	assert_true(rig_status(&rig, 0).hung);
	assert_int_equal(rig_state(&rig, 1), SCHED_CLIENT_WAITING);
	doubt(0, 80);
	assert_non_null(rig_did(&rig, 1, SCHED_ACTION_GRANT));
	/* What it says when it is back counts, as always. */
	assert_int_equal(rig_memory(&rig, 0, rig_mem(0, 0, 0)), 0);
	assert_int_equal(available(), 0);
	assert_true(rig_reported(&rig, 0, SCHED_REPORT_OVERCOMMITTED));
}

static void what_is_reported_no_more_was_not_there(void **state)
{
	(void)state;
	rig_run(&rig, 0, 80);
	doubt(0, 60);
	assert_int_equal(available(), 80);
	assert_int_equal(rig_step(&rig, (struct sched_event){.type = SCHED_EVENT_MEMORY,
							     .epoch = rig.clients[0].epoch,
							     .budget = 30 * GIB,
							     .memory = rig_mem(30, 0, 0)}),
			 0);
	assert_int_equal(available(), 80);
	assert_int_equal(rig.clients[0].doubted, 10 * GIB);
	/* Nor is what comes on top. */
	assert_int_equal(rig_memory(&rig, 0, rig_mem(35, 0, 0)), 0);
	assert_int_equal(available(), 75);
	doubt(0, 0);
	assert_int_equal(available(), 65);
}

/* It is doubted by mistake, and does not notice. */
static void who_is_doubted_grows_stops_and_comes_back(void **state)
{
	(void)state;
	rig_run(&rig, 0, 40);
	doubt(0, 40);
	assert_int_equal(rig_memory(&rig, 0, rig_want(rig_mem(40, 0, 0), 10, 0)), 0);
	assert_int_equal(rig_did(&rig, 0, SCHED_ACTION_BUDGET)->budget, 50 * GIB);
	assert_int_equal(rig_memory(&rig, 0, rig_mem(50, 0, 0)), 0);
	rig_start(&rig, 1, 95);
	rig_at(&rig, 240 * S);
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_STOPPING);
	assert_int_equal(rig_release(&rig, 0, rig_mem(0, 50, 0), true), 0);
	assert_int_equal(rig_state(&rig, 1), SCHED_CLIENT_RUNNING);
	assert_int_equal(rig.clients[0].doubted, 0);
	doubt(0, 5);
	assert_int_equal(rig_release(&rig, 1, rig_mem(0, 95, 0), false), 0);
	assert_int_equal(rig_did(&rig, 0, SCHED_ACTION_BUDGET)->budget, 50 * GIB);
	doubt(0, 5);
	assert_int_equal(rig_memory(&rig, 0, rig_mem(50, 0, 0)), 0);
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_RUNNING);
}

static void find_pinned(uint32_t client, uint64_t gib)
{
	assert_int_equal(rig_step(&rig, (struct sched_event){.type = SCHED_EVENT_PINNED,
							     .client = client,
							     .bytes = gib * GIB}),
			 0);
	assert_int_equal(rig_status(&rig, client).memory.pinned, gib * GIB);
}

static void what_contexts_cost_is_not_there_for_others(void **state)
{
	(void)state;
	rig_run(&rig, 0, 40);
	rig_release(&rig, 0, rig_mem(40, 0, 0), false);
	find_pinned(0, 2);
	assert_int_equal(available(), 58);
	/* With its contexts it waits for more than there will ever be. */
	rig_run(&rig, 1, 50);
	rig_start(&rig, 2, 97);
	assert_int_equal(rig_state(&rig, 2), SCHED_CLIENT_WAITING);
	assert_null(rig_did(&rig, 2, SCHED_ACTION_REFUSE));
	find_pinned(2, 2);
	assert_non_null(rig_did(&rig, 2, SCHED_ACTION_REFUSE));
}

static void what_contexts_cost_is_no_sign_of_life(void **state)
{
	(void)state;
	rig.config.switch_fixed_ns = 200 * S;
	assert_int_equal(rig_config(&rig), 0);
	rig_run(&rig, 0, 80);
	rig_start(&rig, 1, 50);
	rig.mute = 0;
	for (uint32_t i = 1; i <= 60; i++) {
		rig_at(&rig, i * S);
		find_pinned(0, 1 + i % 2);
	}
	assert_true(rig_reported(&rig, 0, SCHED_REPORT_HUNG));
	assert_false(rig_reported(&rig, 0, SCHED_REPORT_BACK));
	assert_true(rig_status(&rig, 0).hung);
}

static void what_contexts_cost_changes_nothing_that_is_wanted(void **state)
{
	(void)state;
	rig_run(&rig, 0, 40);
	assert_int_equal(rig_memory(&rig, 0, rig_want(rig_mem(40, 0, 0), 70, 0)), 0);
	assert_non_null(rig_did(&rig, 0, SCHED_ACTION_REFUSE)); /* it wants nothing any more */
	rig_clear(&rig);
	find_pinned(0, 1);
	assert_int_equal(rig_status(&rig, 0).memory.wanted, 0);
	assert_null(rig_did(&rig, 0, SCHED_ACTION_REFUSE));
	/* Here it does. */
	rig_run(&rig, 1, 50);
	assert_int_equal(rig_memory(&rig, 0, rig_want(rig_mem(40, 0, 1), 20, 0)), 0);
	find_pinned(0, 2);
	assert_int_equal(rig_status(&rig, 0).memory.wanted, 20 * GIB);
	assert_true(rig_status(&rig, 0).growing);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(pinned_bytes_that_are_not_there_are_in_nobody_s_way, set_up),
		cmocka_unit_test_setup(who_waits_is_let_in_when_others_are_doubted, set_up),
		cmocka_unit_test_setup(what_a_hung_client_has_not_is_others, set_up),
		cmocka_unit_test_setup(what_is_reported_no_more_was_not_there, set_up),
		cmocka_unit_test_setup(who_is_doubted_grows_stops_and_comes_back, set_up),
		cmocka_unit_test_setup(what_contexts_cost_is_not_there_for_others, set_up),
		cmocka_unit_test_setup(what_contexts_cost_is_no_sign_of_life, set_up),
		cmocka_unit_test_setup(what_contexts_cost_changes_nothing_that_is_wanted, set_up),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
