/* SPDX-License-Identifier: Apache-2.0 */

/* Both directions of the bus at once: one restores while those in its way still move out. */

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

/* From within an eviction: this is on the card now. */
static void progress(uint32_t client, struct sched_memory memory)
{
	assert_int_equal(
		rig_step(&rig, (struct sched_event){.type = SCHED_EVENT_MEMORY,
						    .client = client,
						    .epoch = rig.clients[client].epoch,
						    .budget = memory.resident + memory.pinned,
						    .memory = memory}),
		0);
}

static int part(uint32_t client, struct sched_memory memory)
{
	return rig_part(&rig, client, memory);
}

static uint64_t budget_of(uint32_t client)
{
	const struct sched_action *a = rig_did(&rig, client, SCHED_ACTION_BUDGET);

	return a ? a->budget / GIB : 0;
}

static uint64_t charged(void)
{
	struct sched_gpu_status status;

	sched_gpu_status(&rig.sched, 0, &status);
	return (status.usable - status.external - status.available) / GIB;
}

/* 0 has 80 and runs; 1 has 80 out, and its turn comes: 20 are free, 60 are asked of 0. */
static void begin_switch(void)
{
	rig_run(&rig, 0, 80);
	rig_join(&rig, 1);
	rig_clear(&rig);
	rig_request(&rig, 1, rig_mem(0, 80, 0));
	rig_at(&rig, 20 * S);
	assert_int_equal(rig_did(&rig, 0, SCHED_ACTION_DROP)->bytes, 60 * GIB);
	assert_int_equal(rig_did(&rig, 0, SCHED_ACTION_DROP)->to, 1);
	assert_int_equal(rig_state(&rig, 1), SCHED_CLIENT_INCOMING);
	assert_int_equal(budget_of(1), 20);
}

static void what_is_free_is_restored_before_anything_has_gone(void **state)
{
	(void)state;
	begin_switch();
	assert_int_equal(part(1, rig_mem(20, 60, 0)), 0);
	assert_int_equal(rig_state(&rig, 1), SCHED_CLIENT_INCOMING);
	assert_null(rig_did(&rig, 1, SCHED_ACTION_GRANT));
	assert_int_equal(charged(), 100);
}

static void what_has_gone_is_given_on_before_the_rest_has(void **state)
{
	(void)state;
	begin_switch();
	progress(0, rig_mem(70, 10, 0));
	/* One answer at a time. */
	assert_int_equal(budget_of(1), 20);
	assert_int_equal(part(1, rig_mem(20, 60, 0)), 0);
	assert_int_equal(budget_of(1), 30);
	assert_int_equal(part(1, rig_mem(30, 50, 0)), 0);
	progress(0, rig_mem(40, 40, 0));
	assert_int_equal(budget_of(1), 60);
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_STOPPING);
	assert_int_equal(rig_release(&rig, 0, rig_mem(20, 60, 0), true), 0);
	assert_int_equal(part(1, rig_mem(60, 20, 0)), 0);
	assert_int_equal(budget_of(1), 80);
	assert_null(rig_did(&rig, 1, SCHED_ACTION_GRANT));
	assert_int_equal(rig_memory(&rig, 1, rig_mem(80, 0, 0)), 0);
	assert_int_equal(rig_did(&rig, 1, SCHED_ACTION_GRANT)->budget, 80 * GIB);
	assert_int_equal(charged(), 100);
}

/* 0 has 10 pinned, so 90 of the 95 that 1 needs are there: the rest it may try to find. */
static void more_than_the_card_comes_in_parts_as_far_as_there_is_room(void **state)
{
	(void)state;
	rig_gpu(&rig, 100, 10);
	rig_run(&rig, 0, 70);
	rig_join(&rig, 1);
	rig_clear(&rig);
	rig_request(&rig, 1, rig_mem(0, 95, 0));
	rig_at(&rig, 20 * S);
	assert_int_equal(rig_did(&rig, 0, SCHED_ACTION_DROP)->bytes, 70 * GIB);
	assert_int_equal(budget_of(1), 20);
	assert_int_equal(part(1, rig_mem(20, 75, 0)), 0);
	progress(0, rig_mem(40, 30, 0));
	assert_int_equal(budget_of(1), 50);
	assert_int_equal(charged(), 90);
	assert_int_equal(rig_release(&rig, 0, rig_mem(0, 70, 0), true), 0);
	assert_int_equal(part(1, rig_mem(50, 45, 0)), 0);
	assert_int_equal(budget_of(1), 95);
	assert_null(rig_did(&rig, 1, SCHED_ACTION_GRANT));
	assert_int_equal(rig_memory(&rig, 1, rig_mem(95, 0, 0)), 0);
	assert_int_equal(rig_did(&rig, 1, SCHED_ACTION_GRANT)->budget, 95 * GIB);
}

#define LITTLE (GIB / 16 - 1)

static void little_is_not_worth_a_message(void **state)
{
	(void)state;
	begin_switch();
	assert_int_equal(part(1, rig_mem(20, 60, 0)), 0);
	rig_clear(&rig);
	progress(0, (struct sched_memory){.resident = 80 * GIB - LITTLE, .swapped = LITTLE});
	assert_int_equal(budget_of(1), 0);
	progress(0, rig_mem(75, 5, 0));
	assert_int_equal(budget_of(1), 25);
}

static void a_report_of_an_older_budget_frees_nothing(void **state)
{
	struct sched_event old = {.type = SCHED_EVENT_MEMORY, .memory = rig_mem(10, 70, 0)};

	(void)state;
	begin_switch();
	old.epoch = rig.clients[0].epoch - 2;
	old.budget = 10 * GIB;
	assert_int_equal(rig_step(&rig, old), 0);
	assert_int_equal(charged(), 100);
}

static void a_report_frees_no_more_than_is_gone(void **state)
{
	struct sched_event lie = {.type = SCHED_EVENT_MEMORY, .memory = rig_mem(70, 10, 0)};

	(void)state;
	begin_switch();
	lie.epoch = rig.clients[0].epoch;
	assert_int_equal(rig_step(&rig, lie), 0);
	assert_int_equal(charged(), 90);
}

static void all_told_before_the_answer_is_no_failure(void **state)
{
	(void)state;
	begin_switch();
	progress(0, rig_mem(20, 60, 0));
	assert_int_equal(rig_release(&rig, 0, rig_mem(20, 60, 0), true), 0);
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_WAITING);
	assert_int_equal(part(1, rig_mem(20, 60, 0)), 0);
	assert_int_equal(rig_memory(&rig, 1, rig_mem(80, 0, 0)), 0);
	/* So 0 can be asked again, now, for more. */
	rig_start(&rig, 2, 20);
	rig_at(&rig, 40 * S);
	assert_true(rig_did(&rig, 0, SCHED_ACTION_DROP)->bytes > 0);
	assert_int_equal(rig_did(&rig, 0, SCHED_ACTION_DROP)->grant, 0);
}

static void two_victims_make_room_for_a_larger_one(void **state)
{
	(void)state;
	rig_run(&rig, 0, 40);
	rig_at(&rig, S);
	rig_run(&rig, 1, 50);
	rig_join(&rig, 2);
	rig_request(&rig, 2, rig_mem(0, 90, 0));
	rig_at(&rig, 21 * S);
	assert_int_equal(rig_did(&rig, 0, SCHED_ACTION_DROP)->bytes, 40 * GIB);
	assert_int_equal(rig_did(&rig, 1, SCHED_ACTION_DROP)->bytes, 40 * GIB);
	assert_int_equal(rig_did(&rig, 0, SCHED_ACTION_DROP)->to, 2);
	assert_int_equal(rig_did(&rig, 1, SCHED_ACTION_DROP)->to, 2);
	assert_int_equal(budget_of(2), 10);
	assert_int_equal(part(2, rig_mem(10, 80, 0)), 0);
	progress(0, rig_mem(30, 10, 0));
	assert_int_equal(budget_of(2), 20);
	progress(1, rig_mem(20, 30, 0));
	assert_int_equal(part(2, rig_mem(20, 70, 0)), 0);
	assert_int_equal(budget_of(2), 50);
	assert_int_equal(rig_release(&rig, 0, rig_mem(0, 40, 0), true), 0);
	assert_int_equal(rig_release(&rig, 1, rig_mem(10, 40, 0), true), 0);
	assert_int_equal(part(2, rig_mem(50, 40, 0)), 0);
	assert_int_equal(budget_of(2), 90);
	assert_int_equal(rig_memory(&rig, 2, rig_mem(90, 0, 0)), 0);
	assert_int_equal(rig_state(&rig, 2), SCHED_CLIENT_RUNNING);
}

/* Two come: the room goes to the first that lacks any, whoever made it. */
static void room_is_for_the_first_that_comes(void **state)
{
	(void)state;
	rig_run(&rig, 0, 50);
	rig_run(&rig, 3, 40);
	rig_join(&rig, 1);
	rig_join(&rig, 2);
	assert_int_equal(rig_release(&rig, 0, rig_mem(50, 0, 0), false), 0);
	assert_int_equal(rig_release(&rig, 3, rig_mem(40, 0, 0), false), 0);
	rig_clear(&rig);
	rig_request(&rig, 1, rig_mem(0, 30, 0));
	assert_int_equal(rig_did(&rig, 0, SCHED_ACTION_DROP)->grant, 0);
	assert_int_equal(rig_did(&rig, 0, SCHED_ACTION_DROP)->to, 1);
	rig_request(&rig, 2, rig_mem(0, 30, 0));
	assert_int_equal(rig_state(&rig, 2), SCHED_CLIENT_INCOMING);
	assert_int_equal(rig_did(&rig, 3, SCHED_ACTION_DROP)->to, 1);
	/* It has all now, or can have it. */
	assert_int_equal(part(1, rig_mem(10, 20, 0)), 0);
	assert_int_equal(rig_release(&rig, 0, rig_mem(30, 20, 0), false), 0);
	rig_clear(&rig);
	assert_int_equal(rig_release(&rig, 3, rig_mem(30, 10, 0), false), 0);
	assert_int_equal(rig_did(&rig, 0, SCHED_ACTION_DROP)->to, 2);
}

static void a_smaller_one_takes_no_more_than_it_needs(void **state)
{
	(void)state;
	rig_run(&rig, 0, 95);
	rig_join(&rig, 1);
	rig_request(&rig, 1, rig_mem(0, 30, 0));
	rig_at(&rig, 20 * S);
	assert_int_equal(rig_did(&rig, 0, SCHED_ACTION_DROP)->bytes, 25 * GIB);
	assert_int_equal(budget_of(1), 5);
	progress(0, rig_mem(50, 45, 0)); /* more than was asked */
	assert_int_equal(part(1, rig_mem(5, 25, 0)), 0);
	assert_int_equal(budget_of(1), 30);
	assert_int_equal(rig_memory(&rig, 1, rig_mem(30, 0, 0)), 0);
	assert_int_equal(rig_state(&rig, 1), SCHED_CLIENT_RUNNING);
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_STOPPING);
}

static void one_that_dies_while_it_comes_leaves_its_room(void **state)
{
	(void)state;
	begin_switch();
	progress(0, rig_mem(50, 30, 0));
	assert_int_equal(part(1, rig_mem(20, 60, 0)), 0);
	assert_int_equal(budget_of(1), 50);
	rig_leave(&rig, 1);
	assert_int_equal(charged(), 50);
	assert_int_equal(rig_release(&rig, 0, rig_mem(20, 60, 0), true), 0);
	/* Nobody else wants: it comes back at once. */
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_INCOMING);
	assert_int_equal(budget_of(0), 80);
}

static void one_that_dies_while_it_moves_out_leaves_its_room(void **state)
{
	(void)state;
	begin_switch();
	progress(0, rig_mem(50, 30, 0));
	rig_leave(&rig, 0);
	assert_int_equal(part(1, rig_mem(20, 60, 0)), 0);
	assert_int_equal(budget_of(1), 80);
}

static void a_stop_that_fails_leaves_the_part_where_it_is(void **state)
{
	(void)state;
	begin_switch();
	assert_int_equal(part(1, rig_mem(20, 60, 0)), 0);
	rig_clear(&rig);
	assert_int_equal(rig_fail(&rig, 0, 1), 0);
	/* 0 has given nothing up, and goes on; 1 is first in the queue again. */
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_RUNNING);
	assert_int_equal(rig_state(&rig, 1), SCHED_CLIENT_WAITING);
	assert_int_equal(charged(), 100);
	/* 0 needs room after all: what 1 has brought in goes first. */
	assert_int_equal(rig_memory(&rig, 0, rig_want(rig_mem(80, 0, 0), 10, 0)), 0);
	assert_int_equal(rig_did(&rig, 1, SCHED_ACTION_DROP)->bytes, 10 * GIB);
	assert_int_equal(rig_did(&rig, 1, SCHED_ACTION_DROP)->grant, 0);
	assert_int_equal(rig_release(&rig, 1, rig_mem(10, 70, 0), true), 0);
	assert_int_equal(budget_of(0), 90);
}

static void nobody_stops_in_part(void **state)
{
	struct sched_event part = {
		.type = SCHED_EVENT_RELEASED,
		.outcome = 7,
		.is_part = true,
		.wants = true,
		.memory = rig_mem(80, 0, 0),
		.budget = 80 * GIB,
	};

	(void)state;
	begin_switch();
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_STOPPING);
	part.grant = rig.clients[0].grant;
	part.epoch = rig.clients[0].drop_epoch;
	assert_int_equal(rig_step(&rig, part), SCHED_E_STALE);
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_STOPPING);
	assert_int_equal(rig_fail(&rig, 0, 1), 0); /* an answer is owed still */
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_RUNNING);
}

static void one_put_back_while_it_restores_is_not_waited_for(void **state)
{
	(void)state;
	begin_switch();
	assert_int_equal(rig_fail(&rig, 0, 1), 0);
	assert_int_equal(rig_state(&rig, 1), SCHED_CLIENT_WAITING);
	assert_int_equal(part(1, rig_mem(15, 65, 0)), 0);
	assert_int_equal(rig_status(&rig, 1).memory.resident, 15 * GIB);
	assert_false(rig_status(&rig, 1).hung);
	/* The next try takes up where that one ended. */
	rig_clear(&rig);
	rig_at(&rig, 30 * S);
	assert_int_equal(rig_did(&rig, 0, SCHED_ACTION_DROP)->bytes, 60 * GIB);
	assert_int_equal(budget_of(1), 20);
	assert_int_equal(rig_release(&rig, 0, rig_mem(20, 60, 0), true), 0);
	assert_int_equal(part(1, rig_mem(20, 60, 0)), 0);
	assert_int_equal(budget_of(1), 80);
}

static void a_stop_that_fails_half_way_has_stopped(void **state)
{
	(void)state;
	begin_switch();
	progress(0, rig_mem(60, 20, 0));
	assert_int_equal(part(1, rig_mem(20, 60, 0)), 0);
	assert_int_equal(budget_of(1), 40);
	/* It can move no more; what it has told of is 1's by now. */
	rig_clear(&rig);
	assert_int_equal(rig_release(&rig, 0, rig_mem(60, 20, 0), true), 0);
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_WAITING);
	assert_int_equal(rig_did(&rig, 0, SCHED_ACTION_DROP)->bytes, 40 * GIB);
	assert_int_equal(rig_fail(&rig, 0, 3), 0);
	/* Its bytes stay for now, so it is the one that can be whole: 1 makes room for it. */
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_INCOMING);
	assert_int_equal(rig_did(&rig, 1, SCHED_ACTION_DROP)->bytes, 20 * GIB);
	assert_int_equal(rig_release(&rig, 1, rig_mem(20, 60, 0), true), 0);
	assert_int_equal(budget_of(0), 80);
	assert_int_equal(rig_memory(&rig, 0, rig_mem(80, 0, 0)), 0);
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_RUNNING);
}

static void a_victim_that_falls_silent_half_way_keeps_the_rest(void **state)
{
	(void)state;
	begin_switch();
	progress(0, rig_mem(60, 20, 0));
	assert_int_equal(part(1, rig_mem(20, 60, 0)), 0);
	assert_int_equal(part(1, rig_mem(40, 40, 0)), 0);
	rig_at(&rig, 200 * S);
	assert_true(rig_status(&rig, 0).hung);
	assert_int_equal(rig_state(&rig, 1), SCHED_CLIENT_WAITING);
	assert_int_equal(rig_why(&rig, 1), SCHED_WAIT_STUCK);
	assert_int_equal(charged(), 100);
	rig_leave(&rig, 0);
	assert_int_equal(rig_state(&rig, 1), SCHED_CLIENT_INCOMING);
	assert_int_equal(budget_of(1), 80);
}

static void one_that_comes_and_falls_silent_is_late(void **state)
{
	(void)state;
	begin_switch();
	assert_int_equal(rig_release(&rig, 0, rig_mem(20, 60, 0), true), 0);
	rig_at(&rig, 114 * S);
	assert_false(rig_status(&rig, 1).hung);
	rig_at(&rig, 200 * S);
	assert_true(rig_reported(&rig, 1, SCHED_REPORT_LATE));
	assert_true(rig_status(&rig, 1).hung);
	/* What it was given counts as taken until it is gone; that leaves 80. */
	assert_int_equal(budget_of(0), 80);
}

/* It waits for the others, and their answers have a limit: it owes none itself. */
static void between_two_parts_nothing_is_late(void **state)
{
	(void)state;
	begin_switch();
	assert_int_equal(part(1, rig_mem(20, 60, 0)), 0);
	rig_at(&rig, 90 * S);
	assert_false(rig_status(&rig, 1).hung);
	assert_int_equal(rig_state(&rig, 1), SCHED_CLIENT_INCOMING);
}

static void alone_on_the_card_means_stopped_first(void **state)
{
	(void)state;
	rig.config.mode = SCHED_MODE_SERIAL;
	assert_int_equal(rig_config(&rig), 0);
	begin_switch();
	assert_int_equal(part(1, rig_mem(20, 60, 0)), 0);
	progress(0, rig_mem(20, 60, 0));
	assert_int_equal(budget_of(1), 80);
	assert_int_equal(rig_memory(&rig, 1, rig_mem(80, 0, 0)), 0);
	/* It is whole, but 0 has not said that it has stopped. */
	assert_int_equal(rig_state(&rig, 1), SCHED_CLIENT_INCOMING);
	assert_int_equal(rig_release(&rig, 0, rig_mem(20, 60, 0), true), 0);
	assert_int_equal(rig_state(&rig, 1), SCHED_CLIENT_RUNNING);
}

static void only_the_first_that_comes_gets_parts(void **state)
{
	(void)state;
	begin_switch();
	rig_join(&rig, 2);
	rig_request(&rig, 2, rig_mem(0, 15, 0));
	assert_int_equal(rig_state(&rig, 2), SCHED_CLIENT_INCOMING);
	assert_int_equal(part(1, rig_mem(20, 60, 0)), 0);
	progress(0, rig_mem(70, 10, 0));
	assert_int_equal(budget_of(1), 30);
	assert_null(rig_did(&rig, 2, SCHED_ACTION_BUDGET));
}

/* What waits is on top of what comes in: no grant before there is room for that too. */
static void what_is_wanted_is_given_with_the_last_part(void **state)
{
	(void)state;
	rig_run(&rig, 0, 80);
	rig_join(&rig, 1);
	rig_request(&rig, 1, rig_want(rig_mem(0, 20, 0), 30, 0));
	rig_at(&rig, 20 * S);
	assert_int_equal(budget_of(1), 20);
	assert_int_equal(rig_memory(&rig, 1, rig_want(rig_mem(20, 0, 0), 30, 0)), 0);
	assert_int_equal(rig_state(&rig, 1), SCHED_CLIENT_INCOMING);
	assert_int_equal(rig_release(&rig, 0, rig_mem(50, 30, 0), true), 0);
	assert_int_equal(rig_did(&rig, 1, SCHED_ACTION_GRANT)->budget, 50 * GIB);
}

static void the_whole_budget_can_not_be_too_small(void **state)
{
	(void)state;
	rig_join(&rig, 0);
	rig_request(&rig, 0, rig_mem(0, 30, 0));
	assert_int_equal(budget_of(0), 30);
	assert_int_equal(part(0, rig_mem(20, 10, 0)), 0);
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_WAITING);
	assert_int_equal(rig_status(&rig, 0).last_outcome, 7);
	rig_at(&rig, 10 * S);
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_INCOMING);
}

static void what_grew_on_the_way_is_added_to_the_budget(void **state)
{
	(void)state;
	rig_join(&rig, 0);
	rig_request(&rig, 0, rig_mem(0, 30, 0));
	assert_int_equal(part(0, rig_mem(20, 10, 5)), 0);
	assert_int_equal(budget_of(0), 35);
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_INCOMING);
}

static void preparing_is_told_again_when_a_quarter_has_changed(void **state)
{
	const struct sched_action *a;

	(void)state;
	rig_run(&rig, 0, 80);
	rig_start(&rig, 1, 60); /* 40 are missing */
	assert_int_equal(rig_did(&rig, 0, SCHED_ACTION_PREPARE)->bytes, 40 * GIB);
	rig_clear(&rig);
	rig_gpu(&rig, 100, 10);
	assert_null(rig_did(&rig, 0, SCHED_ACTION_PREPARE));
	rig_gpu(&rig, 100, 11);
	assert_int_equal(rig_did(&rig, 0, SCHED_ACTION_PREPARE)->bytes, 51 * GIB);
	rig_clear(&rig);
	rig_gpu(&rig, 100, 0);
	assert_null(rig_did(&rig, 0, SCHED_ACTION_PREPARE));
	assert_int_equal(rig_memory(&rig, 0, rig_mem(60, 0, 0)), 0);
	assert_null(rig_did(&rig, 0, SCHED_ACTION_PREPARE));
	assert_int_equal(rig_step(&rig, (struct sched_event){.type = SCHED_EVENT_MEMORY,
							     .epoch = rig.clients[0].epoch,
							     .budget = 60 * GIB,
							     .memory = rig_mem(60, 0, 0)}),
			 0);
	a = rig_did(&rig, 0, SCHED_ACTION_PREPARE);
	assert_non_null(a);
	assert_int_equal(a->bytes, 20 * GIB);
	assert_true(a->due_ms > 0);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup(name, set_up)
	const struct CMUnitTest tests[] = {
		T(what_is_free_is_restored_before_anything_has_gone),
		T(what_has_gone_is_given_on_before_the_rest_has),
		T(more_than_the_card_comes_in_parts_as_far_as_there_is_room),
		T(little_is_not_worth_a_message),
		T(a_report_of_an_older_budget_frees_nothing),
		T(a_report_frees_no_more_than_is_gone),
		T(all_told_before_the_answer_is_no_failure),
		T(two_victims_make_room_for_a_larger_one),
		T(room_is_for_the_first_that_comes),
		T(a_smaller_one_takes_no_more_than_it_needs),
		T(one_that_dies_while_it_comes_leaves_its_room),
		T(one_that_dies_while_it_moves_out_leaves_its_room),
		T(a_stop_that_fails_leaves_the_part_where_it_is),
		T(nobody_stops_in_part),
		T(one_put_back_while_it_restores_is_not_waited_for),
		T(a_stop_that_fails_half_way_has_stopped),
		T(a_victim_that_falls_silent_half_way_keeps_the_rest),
		T(one_that_comes_and_falls_silent_is_late),
		T(between_two_parts_nothing_is_late),
		T(alone_on_the_card_means_stopped_first),
		T(only_the_first_that_comes_gets_parts),
		T(what_is_wanted_is_given_with_the_last_part),
		T(the_whole_budget_can_not_be_too_small),
		T(what_grew_on_the_way_is_added_to_the_budget),
		T(preparing_is_told_again_when_a_quarter_has_changed),
	};
#undef T

	return cmocka_run_group_tests_name("core/sched_overlap", tests, NULL, NULL);
}
