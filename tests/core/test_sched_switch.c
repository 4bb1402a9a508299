/* SPDX-License-Identifier: Apache-2.0 */

/* Switching: who is stopped, when, for how many bytes, and what if it does not answer. */

#include "rig.h"

static struct rig rig;

/* Turns of 20 s, so that due times are plain. */
static int set_up(void **state)
{
	(void)state;
	rig_init(&rig);
	rig.config.switch_mode = SCHED_SWITCH_FIXED;
	rig.config.switch_fixed_ns = 20 * S;
	assert_int_equal(rig_config(&rig), 0);
	return 0;
}

static uint32_t index_of(uint32_t client, enum sched_action_type type)
{
	for (uint32_t i = 0; i < rig.n; i++) {
		if (rig.did[i].client == client && rig.did[i].type == type)
			return i;
	}
	return UINT32_MAX;
}

static uint32_t count_of(uint32_t client, enum sched_action_type type)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < rig.n; i++)
		n += rig.did[i].client == client && rig.did[i].type == type;
	return n;
}

static void who_runs_hears_at_once_that_somebody_waits(void **state)
{
	(void)state;
	rig_run(&rig, 0, 80);
	rig_clear(&rig);
	rig_start(&rig, 1, 50);
	assert_int_equal(rig_did(&rig, 0, SCHED_ACTION_PREPARE)->bytes, 30 * GIB);
	assert_int_equal(rig_did(&rig, 0, SCHED_ACTION_PREPARE)->due_ms, 20000);
}

static void victims_are_prepared_before_they_are_dropped(void **state)
{
	(void)state;
	rig_run(&rig, 0, 80);
	rig_start(&rig, 1, 50);
	rig_clear(&rig);
	rig_at(&rig, 15 * S - 1);
	assert_int_equal(count_of(0, SCHED_ACTION_PREPARE), 0);
	rig_at(&rig, 15 * S);
	assert_int_equal(rig_did(&rig, 0, SCHED_ACTION_PREPARE)->bytes, 30 * GIB);
	assert_int_equal(rig_did(&rig, 0, SCHED_ACTION_PREPARE)->due_ms, 5000);
	rig_at(&rig, 20 * S);
	assert_true(index_of(0, SCHED_ACTION_PREPARE) < index_of(0, SCHED_ACTION_DROP));
}

static void one_whose_turn_is_long_over_is_prepared_and_dropped_at_once(void **state)
{
	(void)state;
	rig_run(&rig, 0, 80);
	rig_at(&rig, 100 * S);
	rig_clear(&rig);
	rig_start(&rig, 1, 50);
	assert_true(index_of(0, SCHED_ACTION_PREPARE) < index_of(0, SCHED_ACTION_DROP));
	assert_int_not_equal(index_of(0, SCHED_ACTION_DROP), UINT32_MAX);
}

static void preparing_is_taken_back_when_nobody_waits(void **state)
{
	(void)state;
	rig_run(&rig, 0, 80);
	rig_start(&rig, 1, 50);
	rig_clear(&rig);
	rig_leave(&rig, 1);
	rig_at(&rig, 10 * S);
	assert_int_equal(rig_did(&rig, 0, SCHED_ACTION_PREPARE)->bytes, 0);
	assert_int_equal(rig_did(&rig, 0, SCHED_ACTION_PREPARE)->due_ms, 0);
	rig_at(&rig, 1000 * S);
	assert_int_equal(count_of(0, SCHED_ACTION_DROP), 0);
	assert_int_equal(count_of(0, SCHED_ACTION_BEAT), 0);
}

static void a_new_grant_takes_back_what_was_told_before(void **state)
{
	(void)state;
	rig_run(&rig, 0, 80);
	rig_start(&rig, 1, 50);
	rig_at(&rig, 20 * S);
	assert_int_equal(rig_release(&rig, 0, rig_mem(50, 30, 0), true), 0);
	rig_leave(&rig, 1);
	rig_clear(&rig);
	assert_int_equal(rig_memory(&rig, 0, rig_mem(80, 0, 0)), 0);
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_RUNNING);
	rig_at(&rig, 30 * S);
	assert_int_equal(rig_did(&rig, 0, SCHED_ACTION_PREPARE)->due_ms, 0);
}

static void a_grant_tells_how_long_its_waiter_took_to_wake(void **state)
{
	(void)state;
	rig_run(&rig, 0, 80);
	assert_int_equal(rig_did(&rig, 0, SCHED_ACTION_GRANT)->woke_ns, 0);
	rig_start(&rig, 1, 50);
	rig_at(&rig, 23 * S); /* chosen at 20 s */
	assert_int_equal(rig_release(&rig, 0, rig_mem(50, 30, 0), true), 0);
	assert_int_equal(rig_did(&rig, 1, SCHED_ACTION_GRANT)->woke_ns, 3 * S);
}

static void only_what_lacks_is_moved(void **state)
{
	(void)state;
	rig_run(&rig, 0, 60);
	rig_at(&rig, S);
	rig_run(&rig, 1, 30);
	rig_start(&rig, 2, 45);
	rig_clear(&rig);
	rig_at(&rig, 20 * S);
	/* 35 are missing; the oldest turn gives them, and nobody else is stopped. */
	assert_int_equal(rig_did(&rig, 0, SCHED_ACTION_DROP)->bytes, 35 * GIB);
	assert_null(rig_did(&rig, 1, SCHED_ACTION_DROP));
}

static void several_victims_share_what_lacks(void **state)
{
	(void)state;
	rig_run(&rig, 0, 30);
	rig_at(&rig, S);
	rig_run(&rig, 1, 60);
	rig_start(&rig, 2, 75);
	rig_at(&rig, 21 * S);
	assert_int_equal(rig_did(&rig, 0, SCHED_ACTION_DROP)->bytes, 30 * GIB);
	assert_int_equal(rig_did(&rig, 1, SCHED_ACTION_DROP)->bytes, 35 * GIB);
	assert_int_equal(rig_release(&rig, 0, rig_mem(0, 30, 0), true), 0);
	assert_int_equal(rig_state(&rig, 2), SCHED_CLIENT_INCOMING);
	assert_int_equal(rig_release(&rig, 1, rig_mem(25, 35, 0), true), 0);
	assert_int_equal(rig_state(&rig, 2), SCHED_CLIENT_RUNNING);
}

static void due_is_the_end_of_the_last_victims_turn(void **state)
{
	(void)state;
	rig_run(&rig, 0, 30);
	rig_at(&rig, 7 * S);
	rig_run(&rig, 1, 60);
	rig_start(&rig, 2, 75);
	rig_at(&rig, 27 * S - 1);
	assert_null(rig_did(&rig, 0, SCHED_ACTION_DROP));
	rig_at(&rig, 27 * S);
	assert_non_null(rig_did(&rig, 0, SCHED_ACTION_DROP));
	assert_non_null(rig_did(&rig, 1, SCHED_ACTION_DROP));
}

static void a_small_one_passes_and_postpones_nobody(void **state)
{
	(void)state;
	rig_run(&rig, 0, 80);
	rig_start(&rig, 1, 70);
	rig_at(&rig, 10 * S);
	rig_start(&rig, 2, 20);
	assert_int_equal(rig_state(&rig, 2), SCHED_CLIENT_RUNNING);
	assert_int_equal(rig_memory(&rig, 2, rig_mem(20, 0, 0)), 0);
	rig_at(&rig, 20 * S - 1);
	assert_int_equal(rig_state(&rig, 1), SCHED_CLIENT_WAITING);
	rig_at(&rig, 20 * S);
	assert_int_equal(rig_state(&rig, 1), SCHED_CLIENT_INCOMING);
	assert_non_null(rig_did(&rig, 0, SCHED_ACTION_DROP));
}

static void nobody_passes_into_what_is_reserved(void **state)
{
	(void)state;
	rig_run(&rig, 0, 80);
	rig_start(&rig, 1, 70);
	rig_at(&rig, 20 * S);
	/* 20 are free on the card, but 1 needs them. */
	rig_start(&rig, 2, 31);
	assert_int_equal(rig_state(&rig, 2), SCHED_CLIENT_WAITING);
	rig_start(&rig, 3, 30);
	assert_int_equal(rig_state(&rig, 3), SCHED_CLIENT_INCOMING);
	assert_int_equal(rig_release(&rig, 0, rig_mem(30, 50, 0), true), 0);
	assert_int_equal(rig_state(&rig, 1), SCHED_CLIENT_RUNNING);
	assert_int_equal(rig_release(&rig, 0, rig_mem(0, 80, 0), true), 0);
	assert_int_equal(rig_state(&rig, 3), SCHED_CLIENT_RUNNING);
}

static void what_is_out_comes_back_before_the_grant(void **state)
{
	(void)state;
	rig_run(&rig, 0, 50);
	rig_join(&rig, 1);
	rig_request(&rig, 1, rig_mem(10, 30, 2));
	assert_int_equal(rig_did(&rig, 1, SCHED_ACTION_BUDGET)->budget, 42 * GIB);
	assert_int_equal(rig_did(&rig, 1, SCHED_ACTION_BUDGET)->epoch & 1, 1);
	assert_null(rig_did(&rig, 1, SCHED_ACTION_GRANT));
	assert_int_equal(rig_memory(&rig, 1, rig_mem(30, 10, 2)), 0);
	assert_null(rig_did(&rig, 1, SCHED_ACTION_GRANT));
	assert_int_equal(rig_memory(&rig, 1, rig_mem(40, 0, 2)), 0);
	assert_int_equal(rig_did(&rig, 1, SCHED_ACTION_GRANT)->budget, 42 * GIB);
}

static void one_at_a_time_restores(void **state)
{
	(void)state;
	rig_join(&rig, 0);
	rig_join(&rig, 1);
	rig_join(&rig, 2);
	rig_request(&rig, 0, rig_mem(0, 30, 0));
	rig_request(&rig, 1, rig_mem(0, 30, 0));
	rig_request(&rig, 2, rig_want(rig_mem(0, 0, 0), 30, 0));
	assert_non_null(rig_did(&rig, 0, SCHED_ACTION_BUDGET));
	assert_null(rig_did(&rig, 1, SCHED_ACTION_BUDGET));
	assert_int_equal(rig_why(&rig, 1), SCHED_WAIT_SWAP);
	/* Nothing to bring in: no reason to wait. */
	assert_int_equal(rig_state(&rig, 2), SCHED_CLIENT_RUNNING);
	assert_int_equal(rig_memory(&rig, 0, rig_mem(30, 0, 0)), 0);
	assert_non_null(rig_did(&rig, 1, SCHED_ACTION_BUDGET));
}

static void a_restore_that_takes_too_long_is_dropped_from_the_plan(void **state)
{
	(void)state;
	rig_join(&rig, 0);
	rig_join(&rig, 1);
	rig_request(&rig, 0, rig_mem(0, 30, 0));
	rig_request(&rig, 1, rig_mem(0, 30, 0));
	rig_at(&rig, 45 * S - 1);
	assert_null(rig_did(&rig, 1, SCHED_ACTION_BUDGET));
	rig_at(&rig, 45 * S);
	assert_true(rig_reported(&rig, 0, SCHED_REPORT_LATE));
	assert_true(rig_reported(&rig, 0, SCHED_REPORT_HUNG));
	assert_non_null(rig_did(&rig, 1, SCHED_ACTION_BUDGET));
	assert_true(rig_status(&rig, 0).hung);
	assert_int_equal(rig_memory(&rig, 0, rig_mem(30, 0, 0)), 0);
	assert_true(rig_reported(&rig, 0, SCHED_REPORT_BACK));
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_RUNNING);
}

static void fail_to_restore(uint32_t outcome)
{
	struct sched_event failed = {
		.type = SCHED_EVENT_RELEASED, .outcome = outcome, .wants = true};

	rig_join(&rig, 0);
	rig_join(&rig, 1);
	rig_request(&rig, 0, rig_mem(0, 80, 0));
	rig_request(&rig, 1, rig_mem(0, 70, 0));
	failed.epoch = rig.clients[0].epoch;
	failed.memory = rig_mem(10, 70, 0);
	failed.budget = 10 * GIB;
	assert_int_equal(rig_step(&rig, failed), 0);
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_WAITING);
	assert_int_equal(rig_status(&rig, 0).last_outcome, outcome);
	assert_int_equal(rig_state(&rig, 1), SCHED_CLIENT_INCOMING);
	rig_leave(&rig, 1);
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_WAITING);
	rig_at(&rig, 10 * S);
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_INCOMING);
}

static void a_restore_that_fails_lets_others_go_first(void **state)
{
	(void)state;
	fail_to_restore(5);
}

static void a_restore_on_a_full_card_lets_others_go_first(void **state)
{
	(void)state;
	fail_to_restore(8);
}

static void a_victim_that_does_not_answer_is_skipped(void **state)
{
	(void)state;
	rig_run(&rig, 0, 30);
	rig_at(&rig, S);
	rig_run(&rig, 1, 60);
	rig_start(&rig, 2, 40);
	rig_at(&rig, 20 * S);
	assert_non_null(rig_did(&rig, 0, SCHED_ACTION_DROP));
	assert_null(rig_did(&rig, 1, SCHED_ACTION_DROP));
	rig_at(&rig, 64 * S); /* 15 s, and 30 for 30 GiB */
	assert_false(rig_status(&rig, 0).hung);
	rig_at(&rig, 66 * S);
	assert_true(rig_reported(&rig, 0, SCHED_REPORT_LATE));
	assert_true(rig_reported(&rig, 0, SCHED_REPORT_HUNG));
	/* Its bytes count until it is gone, so another is stopped. */
	assert_int_equal(rig_did(&rig, 1, SCHED_ACTION_DROP)->bytes, 30 * GIB);
	assert_int_equal(rig_release(&rig, 1, rig_mem(30, 30, 0), true), 0);
	assert_int_equal(rig_state(&rig, 2), SCHED_CLIENT_RUNNING);
	/* It answers after all. */
	assert_int_equal(rig_release(&rig, 0, rig_mem(0, 30, 0), true), 0);
	assert_true(rig_reported(&rig, 0, SCHED_REPORT_BACK));
	assert_false(rig_status(&rig, 0).hung);
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_WAITING);
}

static uint32_t times_reported(uint32_t client, enum sched_report report)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < rig.n; i++)
		n += rig.did[i].type == SCHED_ACTION_REPORT && rig.did[i].client == client &&
		     rig.did[i].report == report;
	return n;
}

/* client says that it lives, once a second, until time. */
static void beat_until(uint32_t client, uint64_t time)
{
	while (rig.now < time) {
		rig_at(&rig, rig.now + S);
		(void)rig_step(&rig,
			       (struct sched_event){.type = SCHED_EVENT_ALIVE, .client = client});
	}
}

static void assert_is_late_once(uint32_t client, bool is_back)
{
	assert_int_equal(times_reported(client, SCHED_REPORT_LATE), 1);
	assert_int_equal(times_reported(client, SCHED_REPORT_HUNG), 1);
	assert_int_equal(times_reported(client, SCHED_REPORT_BACK), is_back);
	assert_int_equal(rig_status(&rig, client).hung, !is_back);
}

static void a_victim_that_is_late_is_hung_until_it_answers(void **state)
{
	(void)state;
	rig_run(&rig, 0, 30);
	rig_start(&rig, 2, 100);
	beat_until(0, 1000 * S);
	assert_is_late_once(0, false);
	assert_int_equal(rig_release(&rig, 0, rig_mem(0, 30, 0), true), 0);
	assert_is_late_once(0, true);
	assert_int_equal(rig_state(&rig, 2), SCHED_CLIENT_RUNNING);
}

static void a_late_victim_whose_stop_fails_runs_on(void **state)
{
	(void)state;
	rig_run(&rig, 0, 30);
	rig_start(&rig, 2, 100);
	beat_until(0, 1000 * S);
	assert_int_equal(rig_fail(&rig, 0, 1), 0);
	assert_is_late_once(0, true);
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_RUNNING);
}

static void an_idle_client_that_owes_memory_waits_once_it_has_answered(void **state)
{
	(void)state;
	rig_run(&rig, 0, 60);
	assert_int_equal(rig_release(&rig, 0, rig_mem(60, 0, 0), false), 0);
	rig_start(&rig, 1, 80);
	assert_int_equal(rig_did(&rig, 0, SCHED_ACTION_DROP)->grant, 0);
	beat_until(0, 1000 * S);
	assert_is_late_once(0, false);
	rig_request(&rig, 0, rig_mem(60, 0, 0));
	beat_until(0, 2000 * S);
	assert_is_late_once(0, false);
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_WAITING);
	assert_int_equal(rig_release(&rig, 0, rig_mem(0, 60, 0), true), 0);
	assert_is_late_once(0, true);
	assert_int_equal(rig_state(&rig, 1), SCHED_CLIENT_RUNNING);
	rig_leave(&rig, 1);
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_INCOMING);
}

static void restore_late(void)
{
	rig_join(&rig, 0);
	rig_join(&rig, 1);
	rig_request(&rig, 0, rig_mem(0, 30, 0));
	rig_request(&rig, 1, rig_mem(0, 30, 0));
	beat_until(0, 1000 * S);
	assert_is_late_once(0, false);
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_WAITING);
}

static void a_late_restore_is_hung_until_it_has_ended(void **state)
{
	(void)state;
	restore_late();
	assert_int_equal(rig_memory(&rig, 0, rig_mem(10, 20, 0)), 0);
	assert_is_late_once(0, false);
	assert_int_equal(rig_memory(&rig, 0, rig_mem(30, 0, 0)), 0);
	assert_is_late_once(0, true);
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_RUNNING);
}

static void a_late_restore_that_fails_waits_again(void **state)
{
	struct sched_event failed = {.type = SCHED_EVENT_RELEASED, .outcome = 5, .wants = true};

	(void)state;
	restore_late();
	failed.epoch = rig.clients[0].epoch;
	failed.memory = rig_mem(10, 20, 0);
	failed.budget = 10 * GIB;
	assert_int_equal(rig_step(&rig, failed), 0);
	assert_is_late_once(0, true);
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_INCOMING);
}

static void a_holder_that_gives_no_sign_of_life_is_hung(void **state)
{
	(void)state;
	rig_run(&rig, 0, 80);
	rig_at(&rig, 5 * S);
	rig.config.switch_fixed_ns = 200 * S;
	assert_int_equal(rig_config(&rig), 0);
	rig_start(&rig, 1, 50);
	rig.mute = 0;
	rig_at(&rig, 34 * S);
	assert_int_equal(count_of(0, SCHED_ACTION_BEAT), 3); /* the first as one joined */
	assert_false(rig_status(&rig, 0).hung);
	rig_at(&rig, 46 * S);
	assert_true(rig_status(&rig, 0).hung);
	assert_int_equal(rig_why(&rig, 1), SCHED_WAIT_STUCK);
	assert_int_equal(rig_step(&rig, (struct sched_event){.type = SCHED_EVENT_ALIVE}), 0);
	assert_false(rig_status(&rig, 0).hung);
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_RUNNING);
	rig.mute = SCHED_NONE;
	rig_at(&rig, 300 * S);
	assert_non_null(rig_did(&rig, 0, SCHED_ACTION_DROP));
}

static void silence_goes_on_while_nobody_waits(void **state)
{
	(void)state;
	rig.config.switch_fixed_ns = 200 * S;
	assert_int_equal(rig_config(&rig), 0);
	rig_run(&rig, 0, 80);
	rig.mute = 0;
	rig_start(&rig, 1, 50);
	rig_at(&rig, 12 * S);
	assert_int_equal(count_of(0, SCHED_ACTION_BEAT), 2);
	rig_leave(&rig, 1);
	rig_at(&rig, 100 * S);
	assert_int_equal(count_of(0, SCHED_ACTION_BEAT), 2);
	assert_false(rig_status(&rig, 0).hung);
	rig_start(&rig, 1, 50);
	rig_at(&rig, 110 * S);
	assert_true(rig_status(&rig, 0).hung);
}

static void a_hung_holder_does_not_count_for_serial(void **state)
{
	(void)state;
	rig.config.mode = SCHED_MODE_SERIAL;
	assert_int_equal(rig_config(&rig), 0);
	rig_run(&rig, 0, 20);
	rig_start(&rig, 1, 20);
	rig_at(&rig, 36 * S);
	assert_true(rig_status(&rig, 0).hung);
	assert_int_equal(rig_state(&rig, 1), SCHED_CLIENT_RUNNING);
}

static void a_stop_that_fails_is_tried_again(void **state)
{
	(void)state;
	rig_run(&rig, 0, 80);
	rig_start(&rig, 1, 50);
	rig_at(&rig, 20 * S);
	rig_clear(&rig);
	assert_int_equal(rig_fail(&rig, 0, 1), 0);
	assert_true(rig_reported(&rig, 0, SCHED_REPORT_STOP_FAILED));
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_RUNNING);
	assert_int_equal(rig_status(&rig, 0).budget, 80 * GIB);
	assert_int_equal(rig_state(&rig, 1), SCHED_CLIENT_WAITING);
	assert_int_equal(rig_why(&rig, 1), SCHED_WAIT_STUCK);
	assert_int_equal(rig_status(&rig, 1).position, 1);
	rig_at(&rig, 30 * S - 1);
	assert_null(rig_did(&rig, 0, SCHED_ACTION_DROP));
	rig_at(&rig, 30 * S);
	assert_non_null(rig_did(&rig, 0, SCHED_ACTION_DROP));
}

static void three_failures_make_a_client_not_preemptible(void **state)
{
	(void)state;
	rig_run(&rig, 0, 80);
	rig_start(&rig, 1, 50);
	for (int i = 0; i < 3; i++) {
		rig_at(&rig, 20 * S + i * 10 * S);
		assert_false(rig_status(&rig, 0).not_preemptible);
		assert_int_equal(rig_fail(&rig, 0, 1), 0);
	}
	assert_true(rig_reported(&rig, 0, SCHED_REPORT_NOT_PREEMPTIBLE));
	assert_true(rig_status(&rig, 0).not_preemptible);
	rig_clear(&rig);
	/* Somebody whom it does not hinder is served meanwhile, by a switch too. */
	rig_start(&rig, 2, 20);
	rig_start(&rig, 3, 15);
	rig_at(&rig, 70 * S);
	assert_int_equal(rig_state(&rig, 3), SCHED_CLIENT_INCOMING);
	assert_null(rig_did(&rig, 0, SCHED_ACTION_DROP));
	/* A release of its own shows that it can stop. */
	assert_int_equal(rig_release(&rig, 0, rig_mem(80, 0, 0), false), 0);
	assert_false(rig_status(&rig, 0).not_preemptible);
}

/* Others may give back at any time what it lacks: that says nothing of whether it can be stopped.
 */
static void who_lacks_host_memory_is_tried_again_soon(void **state)
{
	const uint64_t pauses[] = {1250 * MS, 2500 * MS, 5 * S, 10 * S, 10 * S};
	uint64_t now = 20 * S;

	(void)state;
	rig_run(&rig, 0, 80);
	rig_start(&rig, 1, 50);
	for (size_t i = 0; i < sizeof(pauses) / sizeof(pauses[0]); i++) {
		rig_at(&rig, now);
		assert_int_equal(rig_fail_as(&rig, 0, 3, true), 0);
		rig_clear(&rig);
		now += pauses[i];
		rig_at(&rig, now - 1);
		assert_null(rig_did(&rig, 0, SCHED_ACTION_DROP));
	}
	assert_false(rig_status(&rig, 0).not_preemptible);
	rig_at(&rig, now);
	assert_non_null(rig_did(&rig, 0, SCHED_ACTION_DROP));
}

static void another_victim_is_found_when_one_does_not_stop(void **state)
{
	(void)state;
	rig_run(&rig, 0, 50);
	rig_at(&rig, S);
	rig_run(&rig, 1, 50);
	rig_start(&rig, 2, 40);
	rig_at(&rig, 20 * S);
	assert_null(rig_did(&rig, 1, SCHED_ACTION_DROP));
	assert_int_equal(rig_fail(&rig, 0, 3), 0);
	assert_int_equal(rig_did(&rig, 1, SCHED_ACTION_DROP)->bytes, 40 * GIB);
	assert_int_equal(rig_state(&rig, 2), SCHED_CLIENT_INCOMING);
}

static void an_eviction_that_frees_nothing_is_not_asked_for_again_at_once(void **state)
{
	(void)state;
	rig_run(&rig, 0, 80);
	assert_int_equal(rig_release(&rig, 0, rig_mem(80, 0, 0), false), 0);
	rig_start(&rig, 1, 50);
	rig_clear(&rig);
	assert_int_equal(rig_release(&rig, 0, rig_mem(80, 0, 0), false), 0);
	assert_null(rig_did(&rig, 0, SCHED_ACTION_DROP));
	assert_int_equal(rig_state(&rig, 1), SCHED_CLIENT_WAITING);
	rig_at(&rig, 10 * S);
	assert_int_equal(rig_did(&rig, 0, SCHED_ACTION_DROP)->bytes, 30 * GIB);
}

static void whoever_leaves_the_others_go_on(void **state)
{
	(void)state;
	rig_run(&rig, 0, 80);
	rig_start(&rig, 1, 50);
	rig_start(&rig, 2, 60);
	rig_at(&rig, 20 * S);
	assert_int_equal(rig_state(&rig, 1), SCHED_CLIENT_INCOMING);
	rig_leave(&rig, 1); /* the incoming one */
	assert_int_equal(rig_state(&rig, 2), SCHED_CLIENT_INCOMING);
	rig_leave(&rig, 0); /* the victim */
	assert_int_equal(rig_state(&rig, 2), SCHED_CLIENT_RUNNING);
	rig_leave(&rig, 2);
	assert_true(sched_deadline(&rig.sched) == SCHED_NO_DEADLINE);
}

static void more_waiters_bring_due_forward_and_nothing_puts_it_off(void **state)
{
	struct sched_gpu_status gpu;

	(void)state;
	rig.config.wait_bound_ns = 24 * S;
	assert_int_equal(rig_config(&rig), 0);
	rig_run(&rig, 0, 80);
	rig_start(&rig, 1, 50);
	sched_gpu_status(&rig.sched, 0, &gpu);
	assert_int_equal(gpu.next_switch_ns, 20 * S);
	rig_start(&rig, 2, 50);
	sched_gpu_status(&rig.sched, 0, &gpu);
	assert_int_equal(gpu.next_switch_ns, 12 * S);
	rig_leave(&rig, 2);
	sched_gpu_status(&rig.sched, 0, &gpu);
	assert_int_equal(gpu.next_switch_ns, 12 * S);
}

static void a_queue_is_served_in_order(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < 5; i++)
		rig_start(&rig, i, 80);
	for (uint32_t i = 0; i < 20; i++) {
		uint32_t holder = i % 5, next = (i + 1) % 5;

		assert_int_equal(rig_state(&rig, holder), SCHED_CLIENT_RUNNING);
		(void)rig_memory(&rig, holder, rig_mem(80, 0, 0));
		rig_at(&rig, rig.now + 20 * S);
		assert_int_equal(rig_state(&rig, holder), SCHED_CLIENT_STOPPING);
		assert_int_equal(rig_state(&rig, next), SCHED_CLIENT_INCOMING);
		assert_int_equal(rig_release(&rig, holder, rig_mem(20, 60, 0), true), 0);
		/* The rest of it goes when the next but one comes. */
		for (uint32_t k = 0; k < 5; k++) {
			if (sched_has_drop(&rig.clients[k]))
				assert_int_equal(rig_release(&rig, k, rig_mem(0, 80, 0), true), 0);
		}
		if (rig_state(&rig, next) == SCHED_CLIENT_INCOMING)
			assert_int_equal(rig_memory(&rig, next, rig_mem(80, 0, 0)), 0);
	}
}

static void the_queues_last_gives_its_bytes_first(void **state)
{
	(void)state;
	rig_run(&rig, 0, 30);
	rig_run(&rig, 1, 30);
	rig_run(&rig, 2, 40);
	rig.config.mode = SCHED_MODE_SERIAL;
	assert_int_equal(rig_config(&rig), 0);
	assert_int_equal(rig_release(&rig, 0, rig_mem(30, 0, 0), true), 0);
	assert_int_equal(rig_release(&rig, 1, rig_mem(30, 0, 0), true), 0);
	rig_clear(&rig);
	/* 0 and 1 wait, in this order; 2 runs on and grows. */
	assert_int_equal(rig_memory(&rig, 2, rig_want(rig_mem(40, 0, 0), 10, 0)), 0);
	assert_null(rig_did(&rig, 0, SCHED_ACTION_DROP));
	assert_int_equal(rig_did(&rig, 1, SCHED_ACTION_DROP)->bytes, 10 * GIB);
}

static void bandwidth_is_measured_at_both_ends(void **state)
{
	struct sched_gpu_status gpu;
	struct sched_event memory = {.type = SCHED_EVENT_MEMORY, .moved = 10 * GIB, .move_ns = S};

	(void)state;
	rig_run(&rig, 0, 10);
	memory.memory = rig_mem(10, 0, 0);
	assert_int_equal(rig_step(&rig, memory), 0);
	sched_gpu_status(&rig.sched, 0, &gpu);
	assert_int_equal(gpu.bandwidth, 10 * GIB);
	assert_int_equal(gpu.moved_in, 10 * GIB);
	memory.moved = 20 * GIB;
	assert_int_equal(rig_step(&rig, memory), 0);
	sched_gpu_status(&rig.sched, 0, &gpu);
	assert_int_equal(gpu.bandwidth, 13 * GIB);
	assert_int_equal(gpu.moved_in, 30 * GIB);
}

/* The head's time has come, but a victim has had nothing of its turn yet. Then another one comes.
 */
static void whoever_fits_passes_when_the_head_is_held_up_no_more(void **state)
{
	(void)state;
	rig.config.switch_fixed_ns = 40 * S;
	assert_int_equal(rig_config(&rig), 0);
	rig_run(&rig, 0, 60);
	rig_at(&rig, 10 * S);
	rig_start(&rig, 1, 95);
	rig_at(&rig, 39 * S);
	rig_run(&rig, 2, 20);
	rig_at(&rig, 39 * S + 500 * MS);
	rig_join(&rig, 3);
	rig_request(&rig, 3, rig_mem(0, 10, 0));
	assert_int_equal(rig_state(&rig, 3), SCHED_CLIENT_INCOMING);
	rig_at(&rig, 41 * S);
	rig_start(&rig, 4, 5);
	assert_int_equal(rig_state(&rig, 4), SCHED_CLIENT_WAITING);
	rig_at(&rig, 45 * S);
	assert_int_equal(rig_state(&rig, 3), SCHED_CLIENT_INCOMING);
	assert_int_equal(rig_state(&rig, 1), SCHED_CLIENT_WAITING);
	assert_int_equal(rig_state(&rig, 4), SCHED_CLIENT_RUNNING);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup(name, set_up)
		T(who_runs_hears_at_once_that_somebody_waits),
		T(victims_are_prepared_before_they_are_dropped),
		T(one_whose_turn_is_long_over_is_prepared_and_dropped_at_once),
		T(preparing_is_taken_back_when_nobody_waits),
		T(a_new_grant_takes_back_what_was_told_before),
		T(a_grant_tells_how_long_its_waiter_took_to_wake),
		T(only_what_lacks_is_moved),
		T(several_victims_share_what_lacks),
		T(due_is_the_end_of_the_last_victims_turn),
		T(a_small_one_passes_and_postpones_nobody),
		T(nobody_passes_into_what_is_reserved),
		T(whoever_fits_passes_when_the_head_is_held_up_no_more),
		T(what_is_out_comes_back_before_the_grant),
		T(one_at_a_time_restores),
		T(a_restore_that_takes_too_long_is_dropped_from_the_plan),
		T(a_restore_that_fails_lets_others_go_first),
		T(a_restore_on_a_full_card_lets_others_go_first),
		T(a_victim_that_does_not_answer_is_skipped),
		T(a_victim_that_is_late_is_hung_until_it_answers),
		T(a_late_victim_whose_stop_fails_runs_on),
		T(an_idle_client_that_owes_memory_waits_once_it_has_answered),
		T(a_late_restore_is_hung_until_it_has_ended),
		T(a_late_restore_that_fails_waits_again),
		T(a_holder_that_gives_no_sign_of_life_is_hung),
		T(silence_goes_on_while_nobody_waits),
		T(a_hung_holder_does_not_count_for_serial),
		T(a_stop_that_fails_is_tried_again),
		T(three_failures_make_a_client_not_preemptible),
		T(who_lacks_host_memory_is_tried_again_soon),
		T(another_victim_is_found_when_one_does_not_stop),
		T(an_eviction_that_frees_nothing_is_not_asked_for_again_at_once),
		T(whoever_leaves_the_others_go_on),
		T(more_waiters_bring_due_forward_and_nothing_puts_it_off),
		T(a_queue_is_served_in_order),
		T(the_queues_last_gives_its_bytes_first),
		T(bandwidth_is_measured_at_both_ends),
#undef T
	};

	return cmocka_run_group_tests_name("core/sched_switch", tests, NULL, NULL);
}
