/* SPDX-License-Identifier: Apache-2.0 */

/* A GPU with an error: nobody is let in, nobody is stopped, and all goes on when it is back. */

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

static void set_out(bool is_out)
{
	assert_int_equal(rig_step(&rig, (struct sched_event){.type = SCHED_EVENT_GPU,
							     .bytes = 100 * GIB,
							     .is_out = is_out}),
			 0);
}

static void nobody_is_let_in_until_it_is_back(void **state)
{
	(void)state;
	set_out(true);
	rig_join(&rig, 0);
	rig_request(&rig, 0, rig_mem(0, 0, 1));
	rig_at(&rig, 1000 * S);
	assert_null(rig_did(&rig, 0, SCHED_ACTION_GRANT));
	assert_non_null(rig_did(&rig, 0, SCHED_ACTION_WAIT));
	set_out(false);
	assert_non_null(rig_did(&rig, 0, SCHED_ACTION_GRANT));
}

static void nobody_is_stopped_for_others(void **state)
{
	(void)state;
	rig_run(&rig, 0, 80);
	rig_join(&rig, 1);
	rig_request(&rig, 1, rig_want(rig_mem(0, 0, 0), 80, 0));
	set_out(true);
	rig_at(&rig, 1000 * S);
	assert_null(rig_did(&rig, 0, SCHED_ACTION_DROP));
	set_out(false);
	rig_at(&rig, 1100 * S);
	assert_non_null(rig_did(&rig, 0, SCHED_ACTION_DROP));
}

static void a_client_that_comes_waits_for_its_grant(void **state)
{
	(void)state;
	rig_run(&rig, 0, 80);
	rig_join(&rig, 1);
	rig_request(&rig, 1, rig_mem(0, 80, 0));
	rig_at(&rig, 100 * S);
	assert_non_null(rig_did(&rig, 0, SCHED_ACTION_DROP));
	set_out(true);
	rig_clear(&rig);
	assert_int_equal(
		rig_step(&rig, (struct sched_event){.type = SCHED_EVENT_LEAVE, .client = 0}), 0);
	rig_at(&rig, 200 * S);
	assert_null(rig_did(&rig, 1, SCHED_ACTION_GRANT));
	assert_null(rig_did(&rig, 1, SCHED_ACTION_BUDGET));
	set_out(false);
	assert_non_null(rig_did(&rig, 1, SCHED_ACTION_BUDGET));
}

static void the_other_gpus_go_on(void **state)
{
	(void)state;
	set_out(true);
	assert_int_equal(rig_step(&rig, (struct sched_event){.type = SCHED_EVENT_GPU,
							     .gpu = 1,
							     .bytes = 100 * GIB}),
			 0);
	assert_int_equal(
		rig_step(&rig,
			 (struct sched_event){.type = SCHED_EVENT_JOIN, .client = 3, .gpu = 1}),
		0);
	rig_request(&rig, 3, rig_mem(0, 0, 1));
	assert_non_null(rig_did(&rig, 3, SCHED_ACTION_GRANT));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(nobody_is_let_in_until_it_is_back, set_up),
		cmocka_unit_test_setup(nobody_is_stopped_for_others, set_up),
		cmocka_unit_test_setup(a_client_that_comes_waits_for_its_grant, set_up),
		cmocka_unit_test_setup(the_other_gpus_go_on, set_up),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
