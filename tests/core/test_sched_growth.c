/* SPDX-License-Identifier: Apache-2.0 */

/* Running clients that need more memory than they were given. */

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

static int grow(uint32_t client, uint64_t wanted, uint64_t wanted_pinned)
{
	struct sched_memory memory = rig.clients[client].memory;

	memory.wanted = 0;
	memory.wanted_pinned = 0;
	return rig_memory(&rig, client, rig_want(memory, wanted, wanted_pinned));
}

static void what_fits_is_given_at_once(void **state)
{
	(void)state;
	rig_run(&rig, 0, 40);
	assert_int_equal(grow(0, 30, 0), 0);
	assert_int_equal(rig_did(&rig, 0, SCHED_ACTION_BUDGET)->budget, 70 * GIB);
	assert_int_equal(rig_did(&rig, 0, SCHED_ACTION_BUDGET)->epoch & 1, 0);
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_RUNNING);
	assert_false(rig_status(&rig, 0).growing);
}

static void wanted_comes_on_top_of_a_budget_not_used_up(void **state)
{
	(void)state;
	rig_run(&rig, 0, 40);
	assert_int_equal(rig_memory(&rig, 0, rig_mem(10, 0, 0)), 0);
	assert_int_equal(grow(0, 5, 0), 0);
	assert_int_equal(rig_did(&rig, 0, SCHED_ACTION_BUDGET)->budget, 45 * GIB);
}

static void a_report_that_crossed_the_budget_asks_for_nothing_more(void **state)
{
	struct sched_event old = {.type = SCHED_EVENT_MEMORY};

	(void)state;
	rig_run(&rig, 0, 40);
	old.epoch = rig.clients[0].epoch;
	old.budget = 40 * GIB;
	old.memory = rig_want(rig_mem(40, 0, 0), 30, 0);
	assert_int_equal(rig_step(&rig, old), 0);
	assert_int_equal(rig_status(&rig, 0).budget, 70 * GIB);
	assert_int_equal(rig_step(&rig, old), 0);
	assert_int_equal(rig_status(&rig, 0).budget, 70 * GIB);
}

static void a_client_that_runs_and_lacks_memory_counts_once(void **state)
{
	struct sched_gpu_status gpu;

	(void)state;
	rig_run(&rig, 0, 50);
	rig_run(&rig, 1, 45);
	assert_int_equal(grow(0, 10, 0), 0);
	assert_true(rig_status(&rig, 0).growing);
	sched_gpu_status(&rig.sched, 0, &gpu);
	assert_int_equal(gpu.n_queued, 1);
	assert_int_equal(gpu.n_waiting, 0);
	assert_int_equal(gpu.n_running, 2);
}

static void idle_memory_makes_room_for_growth(void **state)
{
	(void)state;
	rig_run(&rig, 0, 60);
	rig_run(&rig, 1, 40);
	assert_int_equal(rig_release(&rig, 0, rig_mem(60, 0, 0), false), 0);
	rig_clear(&rig);
	assert_int_equal(grow(1, 10, 0), 0);
	assert_int_equal(rig_did(&rig, 0, SCHED_ACTION_DROP)->bytes, 10 * GIB);
	assert_true(rig_status(&rig, 1).growing);
	assert_int_equal(rig_why(&rig, 1), SCHED_WAIT_SWAP);
	assert_int_equal(rig_release(&rig, 0, rig_mem(50, 10, 0), false), 0);
	assert_int_equal(rig_did(&rig, 1, SCHED_ACTION_BUDGET)->budget, 50 * GIB);
	assert_false(rig_status(&rig, 1).growing);
}

static void growth_waits_for_the_others_turn_to_end(void **state)
{
	(void)state;
	rig_run(&rig, 0, 50);
	rig_run(&rig, 1, 50);
	rig_at(&rig, 5 * S);
	rig_clear(&rig);
	assert_int_equal(grow(0, 10, 0), 0);
	assert_int_equal(rig_did(&rig, 0, SCHED_ACTION_WAIT)->bytes, 10 * GIB);
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_RUNNING);
	assert_true(rig_status(&rig, 0).growing);
	rig_at(&rig, 20 * S - 1);
	assert_null(rig_did(&rig, 1, SCHED_ACTION_DROP));
	rig_at(&rig, 20 * S);
	assert_int_equal(rig_did(&rig, 1, SCHED_ACTION_DROP)->bytes, 10 * GIB);
	assert_null(rig_did(&rig, 0, SCHED_ACTION_DROP));
	assert_int_equal(rig_release(&rig, 1, rig_mem(40, 10, 0), true), 0);
	assert_int_equal(rig_did(&rig, 0, SCHED_ACTION_BUDGET)->budget, 60 * GIB);
	/* Its turn begins anew, else it would be stopped at once for the one it stopped. */
	rig_clear(&rig);
	rig_at(&rig, 40 * S - 1);
	assert_null(rig_did(&rig, 0, SCHED_ACTION_DROP));
	rig_at(&rig, 40 * S);
	assert_non_null(rig_did(&rig, 0, SCHED_ACTION_DROP));
}

static void two_that_grow_do_not_deadlock(void **state)
{
	(void)state;
	rig_run(&rig, 0, 50);
	rig_run(&rig, 1, 50);
	assert_int_equal(grow(0, 10, 0), 0);
	rig_clear(&rig);
	assert_int_equal(grow(1, 10, 0), 0);
	/* Both are blocked: nothing is gained by waiting for the end of a turn. */
	assert_int_equal(rig_did(&rig, 1, SCHED_ACTION_DROP)->bytes, 10 * GIB);
	assert_int_equal(rig_release(&rig, 1, rig_want(rig_mem(40, 10, 0), 10, 0), true), 0);
	assert_int_equal(rig_did(&rig, 0, SCHED_ACTION_BUDGET)->budget, 60 * GIB);
	assert_int_equal(rig_state(&rig, 1), SCHED_CLIENT_WAITING);
	/* Its turn comes, with what it wanted. */
	assert_int_equal(rig_release(&rig, 0, rig_mem(60, 0, 0), false), 0);
	assert_int_equal(rig_did(&rig, 0, SCHED_ACTION_DROP)->bytes, 20 * GIB);
	assert_int_equal(rig_release(&rig, 0, rig_mem(40, 20, 0), false), 0);
	assert_int_equal(rig_did(&rig, 1, SCHED_ACTION_BUDGET)->budget, 60 * GIB);
}

static void growers_do_not_deadlock_without_anti_thrash_either(void **state)
{
	(void)state;
	rig.config.anti_thrash = false;
	assert_int_equal(rig_config(&rig), 0);
	rig_run(&rig, 0, 50);
	rig_run(&rig, 1, 50);
	assert_int_equal(grow(0, 10, 0), 0);
	assert_int_equal(grow(1, 10, 0), 0);
	assert_non_null(rig_did(&rig, 1, SCHED_ACTION_DROP));
}

static void who_is_blocked_keeps_its_place_for_a_turn(void **state)
{
	(void)state;
	rig_run(&rig, 0, 50);
	rig_run(&rig, 1, 50);
	rig_start(&rig, 2, 40);
	assert_int_equal(grow(1, 10, 0), 0);
	rig_at(&rig, 20 * S - 1);
	assert_null(rig_did(&rig, 1, SCHED_ACTION_DROP));
	rig_at(&rig, 20 * S);
	assert_int_equal(rig_did(&rig, 1, SCHED_ACTION_DROP)->bytes, 40 * GIB);
	assert_null(rig_did(&rig, 0, SCHED_ACTION_DROP));
}

/* It was let in last, and has had nothing of its turn yet. */
static void of_those_that_block_each_other_the_youngest_goes_on(void **state)
{
	(void)state;
	rig_run(&rig, 0, 50);
	rig_at(&rig, 5 * S);
	rig_run(&rig, 1, 50);
	assert_int_equal(grow(0, 10, 0), 0);
	rig_clear(&rig);
	assert_int_equal(grow(1, 10, 0), 0);
	assert_int_equal(rig_did(&rig, 0, SCHED_ACTION_DROP)->bytes, 10 * GIB);
	assert_null(rig_did(&rig, 1, SCHED_ACTION_DROP));
	assert_int_equal(rig_release(&rig, 0, rig_want(rig_mem(40, 10, 0), 10, 0), true), 0);
	assert_int_equal(rig_did(&rig, 1, SCHED_ACTION_BUDGET)->budget, 60 * GIB);
}

/* Somebody computes since: what all blocked ones had to bear is over for those left. */
static void when_not_all_wait_for_memory_turns_count_again(void **state)
{
	(void)state;
	rig_run(&rig, 0, 45);
	rig_run(&rig, 1, 30);
	rig_run(&rig, 2, 25);
	assert_int_equal(grow(0, 10, 0), 0);
	assert_int_equal(grow(1, 10, 0), 0);
	assert_null(rig_did(&rig, 1, SCHED_ACTION_DROP));
	assert_int_equal(grow(2, 40, 0), 0);
	assert_int_equal(rig_did(&rig, 1, SCHED_ACTION_DROP)->bytes, 10 * GIB);
	rig_join(&rig, 3);
	rig_request(&rig, 3, rig_mem(0, 0, 0));
	assert_non_null(rig_did(&rig, 3, SCHED_ACTION_GRANT));
	rig_at(&rig, 1 * S);
	assert_int_equal(rig_fail(&rig, 1, 2), 0);
	rig_at(&rig, 20 * S - 1);
	assert_null(rig_did(&rig, 2, SCHED_ACTION_DROP));
	rig_at(&rig, 20 * S);
	assert_non_null(rig_did(&rig, 2, SCHED_ACTION_DROP));
}

/* However many steps they grow in, and however early: nobody is stopped twice in a turn. */
static void two_that_grow_by_turns_move_once_a_turn(void **state)
{
	(void)state;
	rig_run(&rig, 0, 50);
	rig_run(&rig, 1, 50);
	assert_int_equal(grow(0, 10, 0), 0);
	assert_int_equal(grow(1, 10, 0), 0);
	assert_int_equal(rig_release(&rig, 1, rig_want(rig_mem(40, 10, 0), 10, 0), true), 0);
	rig_clear(&rig);
	for (uint64_t gib = 60; gib < 80; gib += 10) {
		assert_int_equal(rig_memory(&rig, 0, rig_mem(gib, 0, 0)), 0);
		assert_int_equal(grow(0, 10, 0), 0);
		assert_int_equal(rig_did(&rig, 1, SCHED_ACTION_DROP)->grant, 0);
		assert_int_equal(
			rig_release(&rig, 1, rig_want(rig_mem(90 - gib, gib - 40, 0), 10, 0), true),
			0);
		assert_int_equal(rig_did(&rig, 0, SCHED_ACTION_BUDGET)->budget, (gib + 10) * GIB);
	}
	rig_at(&rig, 20 * S - 1);
	assert_null(rig_did(&rig, 0, SCHED_ACTION_DROP));
	rig_at(&rig, 20 * S);
	assert_int_equal(rig_did(&rig, 0, SCHED_ACTION_DROP)->bytes, 40 * GIB);
}

static void what_is_wanted_since_a_restore_began_comes_with_the_grant(void **state)
{
	(void)state;
	rig_run(&rig, 0, 60);
	assert_int_equal(rig_release(&rig, 0, rig_mem(0, 60, 0), false), 0);
	rig_run(&rig, 1, 30);
	rig_request(&rig, 0, rig_mem(0, 60, 0));
	assert_int_equal(rig_did(&rig, 0, SCHED_ACTION_BUDGET)->budget, 60 * GIB);
	rig_clear(&rig);
	assert_int_equal(grow(0, 10, 0), 0);
	assert_int_equal(rig_memory(&rig, 0, rig_want(rig_mem(60, 0, 0), 10, 0)), 0);
	assert_int_equal(rig_did(&rig, 0, SCHED_ACTION_GRANT)->budget, 70 * GIB);
}

/* To run without would be to block at once, beside one that runs. */
static void what_is_wanted_since_a_restore_began_is_waited_for(void **state)
{
	(void)state;
	rig_run(&rig, 0, 60);
	assert_int_equal(rig_release(&rig, 0, rig_mem(0, 60, 0), false), 0);
	rig_run(&rig, 1, 30);
	rig_request(&rig, 0, rig_mem(0, 60, 0));
	rig_clear(&rig);
	assert_int_equal(rig_memory(&rig, 0, rig_want(rig_mem(60, 0, 0), 20, 0)), 0);
	rig_at(&rig, 20 * S - 1);
	assert_null(rig_did(&rig, 0, SCHED_ACTION_GRANT));
	assert_null(rig_did(&rig, 1, SCHED_ACTION_DROP));
	rig_at(&rig, 20 * S);
	assert_int_equal(rig_did(&rig, 1, SCHED_ACTION_DROP)->bytes, 10 * GIB);
	assert_int_equal(rig_release(&rig, 1, rig_mem(20, 10, 0), true), 0);
	assert_int_equal(rig_did(&rig, 0, SCHED_ACTION_GRANT)->budget, 80 * GIB);
}

/* Its time had come before the last one passed it: that one has an eighth of a turn. */
static void who_has_just_come_is_not_stopped_at_once(void **state)
{
	(void)state;
	rig_run(&rig, 0, 60);
	rig_start(&rig, 1, 70);
	rig_at(&rig, 19 * S);
	rig_run(&rig, 2, 40);
	assert_int_equal(rig_release(&rig, 0, rig_mem(60, 0, 0), false), 0);
	rig_clear(&rig);
	rig_at(&rig, 20 * S);
	rig_start(&rig, 3, 1);
	assert_null(rig_did(&rig, 3, SCHED_ACTION_GRANT));
	rig_at(&rig, 21 * S + 500 * MS - 1);
	assert_null(rig_did(&rig, 2, SCHED_ACTION_DROP));
	rig_at(&rig, 21 * S + 500 * MS);
	assert_int_equal(rig_did(&rig, 2, SCHED_ACTION_DROP)->bytes, 10 * GIB);
}

static void growth_can_be_given_up(void **state)
{
	(void)state;
	rig_run(&rig, 0, 50);
	rig_run(&rig, 1, 50);
	assert_int_equal(grow(0, 10, 0), 0);
	assert_int_equal(grow(0, 0, 0), 0);
	assert_false(rig_status(&rig, 0).growing);
	rig_at(&rig, 100 * S);
	assert_null(rig_did(&rig, 1, SCHED_ACTION_DROP));
}

static void growth_beyond_the_card_is_refused(void **state)
{
	(void)state;
	rig_run(&rig, 0, 50);
	rig_clear(&rig);
	assert_int_equal(grow(0, 51, 0), 0);
	assert_int_equal(rig_did(&rig, 0, SCHED_ACTION_REFUSE)->bytes, 51 * GIB);
	assert_int_equal(rig_did(&rig, 0, SCHED_ACTION_REFUSE)->budget, 100 * GIB);
	assert_false(rig_status(&rig, 0).growing);
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_RUNNING);
}

/* The reserve is 10, of which 5 are for pinned bytes: the first one owns all that it was told of.
 */
static void run_a_full_card(void)
{
	rig.config.reserve_percent = 10;
	assert_int_equal(rig_config(&rig), 0);
	rig_start(&rig, 0, 90);
	assert_int_equal(rig_memory(&rig, 0, rig_mem(88, 0, 2)), 0);
	rig_join(&rig, 1);
	rig_clear(&rig);
}

static void a_newcomers_context_lives_in_the_reserve(void **state)
{
	(void)state;
	run_a_full_card();
	rig_request(&rig, 1, rig_want(rig_mem(0, 0, 0), 0, 2));
	assert_int_equal(rig_did(&rig, 1, SCHED_ACTION_GRANT)->budget, 2 * GIB);
	assert_int_equal(rig_memory(&rig, 1, rig_mem(0, 0, 2)), 0);
	assert_null(rig_did(&rig, 0, SCHED_ACTION_DROP));
	/* The first one may still have all that it was told of. */
	assert_int_equal(grow(0, 0, 0), 0);
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_RUNNING);
}

static void both_are_whole_in_turns_beside_the_contexts_in_the_reserve(void **state)
{
	(void)state;
	run_a_full_card();
	rig_request(&rig, 1, rig_want(rig_mem(0, 0, 0), 0, 2));
	assert_int_equal(rig_memory(&rig, 1, rig_mem(0, 0, 2)), 0);
	assert_int_equal(grow(1, 50, 0), 0);
	assert_int_equal(rig_why(&rig, 1), SCHED_WAIT_MEMORY);
	rig_at(&rig, 20 * S);
	/* 92 are on the card, 50 are to come, and the pinned four may lie in the reserve. */
	assert_int_equal(rig_did(&rig, 0, SCHED_ACTION_DROP)->bytes, 48 * GIB);
	assert_int_equal(rig_release(&rig, 0, rig_mem(40, 48, 2), true), 0);
	assert_int_equal(rig_did(&rig, 1, SCHED_ACTION_BUDGET)->budget, 52 * GIB);
	assert_int_equal(rig_memory(&rig, 1, rig_mem(50, 0, 2)), 0);
	rig_clear(&rig);
	rig_at(&rig, 60 * S);
	assert_int_equal(rig_did(&rig, 1, SCHED_ACTION_DROP)->bytes, 48 * GIB);
	assert_int_equal(rig_release(&rig, 1, rig_mem(2, 48, 2), true), 0);
	assert_int_equal(rig_part(&rig, 0, rig_mem(41, 47, 2)), 0);
	assert_int_equal(rig_did(&rig, 0, SCHED_ACTION_BUDGET)->budget, 90 * GIB);
}

/* More than the reserve has for it: a turn makes room, as for any other bytes. */
static void pinned_bytes_come_by_a_turn_as_others_do(void **state)
{
	(void)state;
	run_a_full_card();
	rig_request(&rig, 1, rig_want(rig_mem(0, 0, 0), 0, 20));
	assert_int_equal(rig_why(&rig, 1), SCHED_WAIT_MEMORY);
	rig_at(&rig, 20 * S);
	assert_int_equal(rig_did(&rig, 0, SCHED_ACTION_DROP)->bytes, 15 * GIB);
	assert_int_equal(rig_release(&rig, 0, rig_mem(73, 15, 2), true), 0);
	assert_int_equal(rig_did(&rig, 1, SCHED_ACTION_GRANT)->budget, 20 * GIB);
	assert_int_equal(rig_memory(&rig, 1, rig_mem(0, 0, 20)), 0);
	/* 15 of those are in the way of the first one, as long as they are there. */
	assert_int_equal(rig_why(&rig, 0), SCHED_WAIT_STUCK);
	rig_at(&rig, 500 * S);
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_WAITING);
	rig_leave(&rig, 1);
	assert_int_equal(rig_did(&rig, 0, SCHED_ACTION_BUDGET)->budget, 90 * GIB);
}

static void nobody_gets_more_than_it_was_told_of(void **state)
{
	(void)state;
	run_a_full_card();
	assert_int_equal(grow(0, 1, 0), 0);
	assert_int_equal(rig_did(&rig, 0, SCHED_ACTION_REFUSE)->budget, 90 * GIB);
	rig_clear(&rig);
	assert_int_equal(grow(0, 0, 1), 0);
	assert_int_equal(rig_did(&rig, 0, SCHED_ACTION_REFUSE)->budget, 90 * GIB);
}

static void pinned_growth_locks_out_who_no_longer_fits(void **state)
{
	(void)state;
	rig_run(&rig, 0, 70);
	assert_int_equal(rig_release(&rig, 0, rig_mem(0, 70, 0), false), 0);
	rig_run(&rig, 1, 10);
	rig_clear(&rig);
	assert_int_equal(grow(1, 0, 31), 0);
	assert_int_equal(rig_did(&rig, 1, SCHED_ACTION_BUDGET)->budget, 41 * GIB);
	assert_int_equal(rig_memory(&rig, 1, rig_mem(10, 0, 31)), 0);
	rig_request(&rig, 0, rig_mem(0, 70, 0));
	assert_int_equal(rig_why(&rig, 0), SCHED_WAIT_STUCK);
	rig_leave(&rig, 1);
	assert_int_equal(rig_did(&rig, 0, SCHED_ACTION_BUDGET)->budget, 70 * GIB);
}
/* The first one takes no turns, so that no room can be made. */
static void a_wait_for_pinned_memory_has_an_end(void **state)
{
	(void)state;
	assert_int_equal(
		rig_step(&rig, (struct sched_event){.type = SCHED_EVENT_JOIN, .fixed = true}), 0);
	rig_request(&rig, 0, rig_want(rig_mem(0, 0, 0), 70, 0));
	assert_int_equal(rig_memory(&rig, 0, rig_mem(70, 0, 0)), 0);
	rig_run(&rig, 1, 10);
	rig_clear(&rig);
	assert_int_equal(grow(1, 0, 31), 0);
	assert_int_equal(rig_why(&rig, 1), SCHED_WAIT_STUCK);
	rig_at(&rig, 240 * S - 1);
	assert_null(rig_did(&rig, 1, SCHED_ACTION_REFUSE));
	rig_at(&rig, 240 * S);
	assert_int_equal(rig_did(&rig, 1, SCHED_ACTION_REFUSE)->bytes, 31 * GIB);
	assert_int_equal(rig_state(&rig, 1), SCHED_CLIENT_RUNNING);
	assert_false(rig_status(&rig, 1).growing);
}
/* It had asked only to run; what it lacks since then comes with the answer to an eviction. */
static void a_wish_that_an_answer_tells_of_is_served(void **state)
{
	(void)state;
	rig.config.mode = SCHED_MODE_SERIAL;
	assert_int_equal(rig_config(&rig), 0);
	rig_run(&rig, 0, 40);
	rig_start(&rig, 1, 60);
	rig_at(&rig, 20 * S);
	assert_int_equal(rig_release(&rig, 0, rig_mem(40, 0, 0), true), 0);
	assert_int_equal(rig_memory(&rig, 1, rig_want(rig_mem(60, 0, 0), 10, 0)), 0);
	assert_int_equal(rig_did(&rig, 0, SCHED_ACTION_DROP)->bytes, 10 * GIB);
	assert_int_equal(rig_did(&rig, 0, SCHED_ACTION_DROP)->grant, 0);
	assert_int_equal(rig_release(&rig, 0, rig_want(rig_mem(30, 10, 0), 0, 50), true), 0);
	assert_int_equal(rig_why(&rig, 0), SCHED_WAIT_TURN);
	rig_at(&rig, 60 * S);
	assert_int_equal(rig_release(&rig, 1, rig_mem(10, 60, 0), true), 0);
	assert_int_equal(rig_did(&rig, 0, SCHED_ACTION_BUDGET)->budget, 90 * GIB);
}

static void pinned_bytes_promised_to_another_count_already(void **state)
{
	(void)state;
	rig_run(&rig, 0, 60);
	rig_run(&rig, 1, 40);
	assert_int_equal(rig_release(&rig, 0, rig_mem(60, 0, 0), false), 0);
	assert_int_equal(grow(1, 0, 40), 0); /* room for it is being made */
	assert_true(rig_status(&rig, 1).growing);
	rig_join(&rig, 2);
	rig_clear(&rig);
	rig_request(&rig, 2, rig_want(rig_mem(0, 0, 0), 61, 0));
	assert_int_equal(rig_did(&rig, 2, SCHED_ACTION_REFUSE)->budget, 60 * GIB);
}

/* Chosen for pageable bytes, it comes to want pinned ones while room is made for those. */
static void a_wish_that_becomes_pinned_and_fits_is_given(void **state)
{
	(void)state;
	rig_run(&rig, 0, 70);
	rig_run(&rig, 1, 30);
	assert_int_equal(rig_release(&rig, 0, rig_mem(70, 0, 0), false), 0);
	assert_int_equal(grow(1, 10, 0), 0);
	rig_clear(&rig);
	assert_int_equal(grow(1, 0, 30), 0);
	assert_int_equal(rig_why(&rig, 1), SCHED_WAIT_SWAP);
	assert_int_equal(rig_release(&rig, 0, rig_mem(60, 10, 0), false), 0);
	assert_int_equal(rig_did(&rig, 0, SCHED_ACTION_DROP)->bytes, 20 * GIB);
	assert_int_equal(rig_release(&rig, 0, rig_mem(40, 30, 0), false), 0);
	assert_int_equal(rig_did(&rig, 1, SCHED_ACTION_BUDGET)->budget, 60 * GIB);
}

static void a_first_wish_that_becomes_pinned_and_fits_is_granted(void **state)
{
	(void)state;
	rig_run(&rig, 0, 70);
	assert_int_equal(rig_release(&rig, 0, rig_mem(70, 0, 0), false), 0);
	rig_start(&rig, 1, 40);
	assert_int_equal(grow(1, 10, 30), 0);
	assert_int_equal(rig_state(&rig, 1), SCHED_CLIENT_INCOMING);
	assert_int_equal(rig_release(&rig, 0, rig_mem(60, 10, 0), false), 0);
	assert_int_equal(rig_did(&rig, 1, SCHED_ACTION_GRANT)->budget, 40 * GIB);
}

static void a_wish_for_pinned_bytes_while_it_restores_is_served_with_the_rest(void **state)
{
	struct sched_memory memory = rig_mem(0, 50, 0);

	(void)state;
	rig_run(&rig, 0, 70);
	assert_int_equal(rig_release(&rig, 0, rig_mem(0, 70, 0), false), 0);
	rig_join(&rig, 1);
	rig_request(&rig, 1, memory);
	assert_int_equal(rig_did(&rig, 1, SCHED_ACTION_BUDGET)->budget, 50 * GIB);
	assert_int_equal(rig_memory(&rig, 1, rig_want(memory, 0, 31)), 0);
	assert_int_equal(rig_state(&rig, 1), SCHED_CLIENT_INCOMING);
	assert_int_equal(rig_memory(&rig, 1, rig_want(rig_mem(50, 0, 0), 0, 31)), 0);
	assert_int_equal(rig_did(&rig, 1, SCHED_ACTION_GRANT)->budget, 81 * GIB);
}
static void growth_does_not_make_a_turn_younger(void **state)
{
	(void)state;
	rig_run(&rig, 0, 40);
	rig_at(&rig, 10 * S);
	rig_run(&rig, 1, 40);
	assert_int_equal(grow(0, 10, 0), 0);
	assert_int_equal(rig_memory(&rig, 0, rig_mem(50, 0, 0)), 0);
	rig_start(&rig, 2, 30);
	rig_at(&rig, 20 * S);
	/* It allocates all the time, and is still the one that has run longest. */
	assert_non_null(rig_did(&rig, 0, SCHED_ACTION_DROP));
	assert_null(rig_did(&rig, 1, SCHED_ACTION_DROP));
}

static void a_stop_that_fails_goes_on_waiting_for_memory(void **state)
{
	(void)state;
	rig_run(&rig, 0, 50);
	rig_run(&rig, 1, 50);
	assert_int_equal(grow(1, 10, 0), 0);
	rig_start(&rig, 2, 40);
	rig_at(&rig, 20 * S);
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_STOPPING);
	assert_int_equal(rig_fail(&rig, 0, 1), 0);
	assert_true(rig_status(&rig, 1).growing || rig_state(&rig, 1) == SCHED_CLIENT_STOPPING);
}

/* Nothing can be moved out: each stop fails for want of host memory. Who was refused; 2: nobody. */
static uint32_t stops_fail_until(uint64_t end_ns)
{
	uint32_t refused = 2;

	while (rig.now < end_ns) {
		rig_clear(&rig);
		rig_at(&rig, rig.now + S / 2);
		/* One that can not be stopped has another one asked. */
		for (uint32_t i = 0; i < 4; i++) {
			if (rig_state(&rig, i % 2) == SCHED_CLIENT_STOPPING)
				assert_int_equal(rig_fail_as(&rig, i % 2, 3, true), 0);
		}
		for (uint32_t i = 0; i < 2; i++) {
			if (!rig_did(&rig, i, SCHED_ACTION_REFUSE))
				continue;
			assert_int_equal(refused, 2);
			refused = i;
		}
	}
	return refused;
}

static void where_all_wait_and_nothing_can_move_one_is_refused(void **state)
{
	uint64_t bound_ns = rig.config.wait_bound_ns;
	uint32_t refused;

	(void)state;
	rig_run(&rig, 0, 50);
	rig_run(&rig, 1, 50);
	assert_int_equal(grow(0, 10, 0), 0);
	assert_int_equal(grow(1, 10, 0), 0);
	assert_int_equal(rig_fail_as(&rig, 1, 3, true), 0);
	assert_int_equal(stops_fail_until(bound_ns - S), 2);
	refused = stops_fail_until(bound_ns + rig.config.retry_ns + S);
	assert_true(refused < 2);
	/* It does without, and may get done: the other one waits for that. */
	assert_int_equal(stops_fail_until(3 * bound_ns), 2);
	rig_leave(&rig, refused);
	assert_int_equal(rig_did(&rig, 1 - refused, SCHED_ACTION_BUDGET)->budget, 60 * GIB);
}

/* The third has nothing to do, and reports once a second that it has moved memory. */
static void who_says_that_it_moves_memory_keeps_nobody_waiting(void **state)
{
	uint64_t bound_ns = rig.config.wait_bound_ns;
	struct sched_event report = {
		.type = SCHED_EVENT_MEMORY, .client = 2, .moved = GIB, .move_ns = S};
	uint32_t refused = 2;

	(void)state;
	rig_run(&rig, 0, 50);
	rig_run(&rig, 1, 50);
	rig_join(&rig, 2);
	assert_int_equal(grow(0, 10, 0), 0);
	assert_int_equal(grow(1, 10, 0), 0);
	assert_int_equal(rig_fail_as(&rig, 1, 3, true), 0);
	while (rig.now < bound_ns + rig.config.retry_ns + S && refused == 2) {
		refused = stops_fail_until(rig.now + S);
		report.epoch = rig.clients[2].epoch;
		assert_int_equal(rig_step(&rig, report), 0);
	}
	assert_true(refused < 2);
}

static void where_one_goes_on_nobody_is_refused(void **state)
{
	(void)state;
	rig_run(&rig, 0, 50);
	rig_run(&rig, 1, 50);
	assert_int_equal(grow(0, 10, 0), 0);
	assert_int_equal(stops_fail_until(3 * rig.config.wait_bound_ns), 2);
}

/* Nothing is sent for a bound that begins anew, so it is not the actions that end a step. */
static void bounds_that_end_together_are_seen_to_in_several_steps(void **state)
{
	uint64_t bound_ns = rig.now + rig.config.wait_bound_ns;
	uint32_t n, n_before = 0, n_steps = 0;

	(void)state;
	rig_run(&rig, 0, 50);
	rig_run(&rig, 1, 50);
	for (uint32_t i = 2; i < 130; i++)
		rig_start(&rig, i, 60);
	assert_int_equal(stops_fail_until(bound_ns - S), 2);
	rig_at(&rig, bound_ns - 1);
	rig.now = bound_ns;
	do {
		n = 0;
		for (uint32_t i = 2; i < 130; i++)
			n += rig.clients[i].bound_ns == bound_ns;
		assert_true(n_steps == 0 ? n == 128 : n_before - n <= 32);
		n_before = n;
		assert_int_equal(rig_step(&rig, (struct sched_event){.type = SCHED_EVENT_TIME}), 0);
	} while (n > 0 && ++n_steps < 64);
	assert_in_range(n_steps, 4, 63);
}

/*
 * A report that crosses the DROP counts promised bytes twice. For that moment the one that
 * comes is larger than what the others leave, and would come to have all that there is;
 * then it is as large as it was.
 */
static void one_too_large_for_a_moment_gets_no_more_than_there_is(void **state)
{
	struct sched_event crossed = {
		.type = SCHED_EVENT_MEMORY, .budget = 70 * GIB, .memory = rig_mem(40, 0, 30)};

	(void)state;
	rig_run(&rig, 1, 60);
	assert_int_equal(rig_release(&rig, 1, rig_mem(0, 60, 0), false), 0);
	rig_run(&rig, 2, 30);
	assert_int_equal(rig_release(&rig, 2, rig_mem(30, 0, 0), false), 0);
	rig_run(&rig, 0, 40);
	assert_int_equal(grow(0, 0, 30), 0);
	crossed.epoch = rig.clients[0].epoch - 2;
	rig_request(&rig, 1, rig_mem(0, 60, 0));
	rig_at(&rig, 20 * S);
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_STOPPING);
	assert_int_equal(rig_step(&rig, crossed), 0);
	assert_int_equal(rig_release(&rig, 2, rig_mem(0, 30, 0), false), 0);
	rig_clear(&rig);
	crossed.epoch = rig.clients[0].epoch;
	crossed.budget = 60 * GIB;
	crossed.memory = rig_mem(30, 10, 30);
	assert_int_equal(rig_step(&rig, crossed), 0);
	assert_int_equal(rig_did(&rig, 1, SCHED_ACTION_BUDGET)->budget, 40 * GIB);
	assert_false(rig_reported(&rig, 0, SCHED_REPORT_OVERCOMMITTED));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup(name, set_up)
		T(what_fits_is_given_at_once),
		T(wanted_comes_on_top_of_a_budget_not_used_up),
		T(a_report_that_crossed_the_budget_asks_for_nothing_more),
		T(a_client_that_runs_and_lacks_memory_counts_once),
		T(idle_memory_makes_room_for_growth),
		T(growth_waits_for_the_others_turn_to_end),
		T(two_that_grow_do_not_deadlock),
		T(growers_do_not_deadlock_without_anti_thrash_either),
		T(who_is_blocked_keeps_its_place_for_a_turn),
		T(of_those_that_block_each_other_the_youngest_goes_on),
		T(when_not_all_wait_for_memory_turns_count_again),
		T(two_that_grow_by_turns_move_once_a_turn),
		T(what_is_wanted_since_a_restore_began_comes_with_the_grant),
		T(what_is_wanted_since_a_restore_began_is_waited_for),
		T(who_has_just_come_is_not_stopped_at_once),
		T(growth_can_be_given_up),
		T(growth_beyond_the_card_is_refused),
		T(a_newcomers_context_lives_in_the_reserve),
		T(both_are_whole_in_turns_beside_the_contexts_in_the_reserve),
		T(pinned_bytes_come_by_a_turn_as_others_do),
		T(nobody_gets_more_than_it_was_told_of),
		T(pinned_growth_locks_out_who_no_longer_fits),
		T(a_wait_for_pinned_memory_has_an_end),
		T(a_wish_that_an_answer_tells_of_is_served),
		T(pinned_bytes_promised_to_another_count_already),
		T(a_wish_that_becomes_pinned_and_fits_is_given),
		T(a_first_wish_that_becomes_pinned_and_fits_is_granted),
		T(a_wish_for_pinned_bytes_while_it_restores_is_served_with_the_rest),
		T(growth_does_not_make_a_turn_younger),
		T(a_stop_that_fails_goes_on_waiting_for_memory),
		T(where_all_wait_and_nothing_can_move_one_is_refused),
		T(who_says_that_it_moves_memory_keeps_nobody_waiting),
		T(where_one_goes_on_nobody_is_refused),
		T(bounds_that_end_together_are_seen_to_in_several_steps),
		T(one_too_large_for_a_moment_gets_no_more_than_there_is),
#undef T
	};

	return cmocka_run_group_tests_name("core/sched_growth", tests, NULL, NULL);
}
