/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Who comes in is ahead of who goes, by a part of the reserve: from the stop on, and before it if
 * the end of a turn is known.
 */

#include "rig.h"

/* 5 GiB of 100 are the reserve; of what is left of it. */
#define LEAD(reserve) ((reserve) / 2)

#define TURN      (20 * S)
#define BANDWIDTH (10 * GIB) /* a second */

static struct rig rig;

static int set_up(void **state)
{
	(void)state;
	rig_init(&rig);
	rig.config.switch_mode = SCHED_SWITCH_FIXED;
	rig.config.switch_fixed_ns = TURN;
	rig.config.reserve_percent = 5;
	assert_int_equal(rig_config(&rig), 0);
	return 0;
}

/* 0 has gib and runs. */
static void run_first(uint64_t gib)
{
	rig_run(&rig, 0, gib);
	rig_join(&rig, 1);
	rig_clear(&rig);
}

/* How fast memory moves here. */
static void measure(void)
{
	assert_int_equal(rig_step(&rig, (struct sched_event){.type = SCHED_EVENT_MEMORY,
							     .epoch = rig.clients[0].epoch,
							     .budget = rig.clients[0].budget,
							     .memory = rig.clients[0].memory,
							     .moved = BANDWIDTH,
							     .move_ns = S}),
			 0);
}

/* Of 80 that 1 has, more by bytes than resident GiB. */
static struct sched_memory ahead_by(uint64_t resident, uint64_t bytes)
{
	return (struct sched_memory){.resident = resident * GIB + bytes,
				     .swapped = (80 - resident) * GIB - bytes};
}

static const struct sched_action *told(uint32_t client)
{
	return rig_did(&rig, client, SCHED_ACTION_BUDGET);
}

static uint64_t charged(void)
{
	return rig.sched.gpus[0].sums.charged;
}

/* Of 5 GiB that are to stay free some may be used as long as more is on its way out. */
static void who_comes_is_ahead_of_who_goes_by_a_part_of_the_reserve(void **state)
{
	const uint64_t lead = LEAD(5 * GIB);

	(void)state;
	run_first(80);
	rig_request(&rig, 1, rig_mem(0, 80, 0));
	rig_at(&rig, TURN);
	assert_int_equal(rig_did(&rig, 0, SCHED_ACTION_DROP)->bytes, 65 * GIB);
	assert_int_equal(told(1)->budget, 15 * GIB + lead);
	assert_int_equal(rig_memory(&rig, 0, rig_mem(80, 0, 0)), 0);
	assert_int_equal(rig_step(&rig, (struct sched_event){.type = SCHED_EVENT_MEMORY,
							     .epoch = rig.clients[0].epoch,
							     .budget = 70 * GIB,
							     .memory = rig_mem(70, 10, 0)}),
			 0);
	assert_int_equal(rig_part(&rig, 1, ahead_by(15, lead)), 0);
	assert_int_equal(told(1)->budget, 25 * GIB + lead);
	assert_int_equal(rig_release(&rig, 0, rig_mem(15, 65, 0), true), 0);
	assert_int_equal(rig_part(&rig, 1, ahead_by(25, lead)), 0);
	assert_int_equal(told(1)->budget, 80 * GIB);
	assert_int_equal(charged(), 95 * GIB);
}

/* Of the reserve contexts of ours have 4 GiB, so that one is left. */
static void the_lead_is_of_what_the_reserve_has_left(void **state)
{
	struct sched_memory memory = rig_mem(0, 80, 0);

	(void)state;
	run_first(80);
	memory.pager_context = 4 * GIB;
	rig_request(&rig, 1, memory);
	rig_at(&rig, TURN);
	assert_int_equal(told(1)->budget, 15 * GIB + LEAD(GIB));
}

static void what_is_little_comes_before_it_has_gone(void **state)
{
	const uint64_t little = GIB / 4;
	struct sched_memory left = {.resident = 80 * GIB - little, .swapped = little};

	(void)state;
	run_first(80);
	rig_request(&rig, 1, (struct sched_memory){.swapped = 15 * GIB + little});
	rig_at(&rig, TURN);
	assert_int_equal(rig_did(&rig, 0, SCHED_ACTION_DROP)->bytes, little);
	assert_int_equal(told(1)->budget, 15 * GIB + little);
	rig_join(&rig, 2);
	rig_clear(&rig);
	rig_request(&rig, 2, rig_mem(0, 80, 0));
	assert_null(told(2));
	assert_int_equal(rig_release(&rig, 0, left, true), 0);
	assert_null(told(2));
	assert_int_equal(charged(), 95 * GIB);
}

/* Twice as long before the turn ends as the bus needs for it. */
static void what_fits_into_the_reserve_comes_before_the_turn_ends(void **state)
{
	const uint64_t bytes = 15 * GIB + LEAD(5 * GIB),
		       early = 2 * bytes / (BANDWIDTH / 1000) * MS;

	(void)state;
	run_first(80);
	measure();
	rig_request(&rig, 1, rig_mem(0, 80, 0));
	rig_at(&rig, TURN - early - 10 * MS);
	assert_null(told(1));
	rig_at(&rig, TURN - early + 10 * MS);
	assert_int_equal(told(1)->budget, bytes);
	assert_int_equal(rig_state(&rig, 1), SCHED_CLIENT_WAITING);
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_RUNNING);
	assert_null(rig_did(&rig, 0, SCHED_ACTION_DROP));
	rig_clear(&rig);
	assert_int_equal(rig_part(&rig, 1, ahead_by(15, LEAD(5 * GIB))), 0);
	assert_int_equal(rig_memory(&rig, 1, ahead_by(15, LEAD(5 * GIB))), 0);
	assert_int_equal(rig_status(&rig, 1).memory.resident, bytes);
	rig_at(&rig, TURN - MS);
	/* Once. */
	assert_null(told(1));
	rig_at(&rig, TURN);
	assert_int_equal(rig_state(&rig, 1), SCHED_CLIENT_INCOMING);
	assert_int_equal(rig_did(&rig, 0, SCHED_ACTION_DROP)->bytes, 65 * GIB);
	/* It has what there is for now. */
	assert_null(told(1));
	assert_int_equal(rig_release(&rig, 0, rig_mem(15, 65, 0), true), 0);
	assert_int_equal(told(1)->budget, 80 * GIB);
	assert_int_equal(rig_memory(&rig, 1, rig_mem(80, 0, 0)), 0);
	/* And the other one, when that turn ends. */
	rig_clear(&rig);
	rig_at(&rig, 2 * TURN - MS);
	assert_int_equal(told(0)->budget, bytes);
}

/* All of it: when 0 is told to stop, 1 has its memory, and may run. */
static void what_is_little_is_there_when_the_turn_ends(void **state)
{
	const struct sched_memory all = {.resident = 15 * GIB + GIB / 4};

	(void)state;
	run_first(80);
	measure();
	rig_request(&rig, 1, (struct sched_memory){.swapped = all.resident});
	rig_at(&rig, TURN - MS);
	assert_int_equal(told(1)->budget, all.resident);
	assert_int_equal(rig_memory(&rig, 1, all), 0);
	rig_clear(&rig);
	rig_at(&rig, TURN);
	assert_int_equal(rig_did(&rig, 0, SCHED_ACTION_DROP)->bytes, GIB / 4);
	assert_int_equal(rig_state(&rig, 1), SCHED_CLIENT_RUNNING);
}

static void where_one_runs_at_a_time_it_waits_for_the_stop(void **state)
{
	const struct sched_memory all = {.resident = 15 * GIB + GIB / 4};

	(void)state;
	rig.config.mode = SCHED_MODE_SERIAL;
	assert_int_equal(rig_config(&rig), 0);
	run_first(80);
	measure();
	rig_request(&rig, 1, (struct sched_memory){.swapped = all.resident});
	rig_at(&rig, TURN - MS);
	assert_int_equal(told(1)->budget, all.resident);
	assert_int_equal(rig_memory(&rig, 1, all), 0);
	rig_at(&rig, TURN);
	assert_int_equal(rig_state(&rig, 1), SCHED_CLIENT_INCOMING);
	assert_int_equal(rig_release(&rig, 0,
				     (struct sched_memory){.resident = 80 * GIB - GIB / 4,
							   .swapped = GIB / 4},
				     true),
			 0);
	assert_int_equal(rig_state(&rig, 1), SCHED_CLIENT_RUNNING);
}

/* The end of the turn is not prepared at all. */
static void nothing_comes_ahead_where_nothing_is_prepared(void **state)
{
	(void)state;
	rig.config.prepare_ns = 0;
	assert_int_equal(rig_config(&rig), 0);
	run_first(80);
	measure();
	rig_request(&rig, 1, rig_mem(0, 80, 0));
	rig_at(&rig, TURN - 1);
	assert_null(told(1));
	rig_at(&rig, TURN);
	assert_int_equal(told(1)->budget, 15 * GIB + LEAD(5 * GIB));
}

/* It could not be brought in: the room is others' again, and the turn ends as it would have. */
static void what_fails_ahead_costs_nothing(void **state)
{
	(void)state;
	run_first(80);
	measure();
	rig_request(&rig, 1, rig_mem(0, 80, 0));
	rig_at(&rig, TURN - 10 * MS);
	assert_int_equal(charged(), 95 * GIB + LEAD(5 * GIB));
	assert_int_equal(rig_step(&rig, (struct sched_event){.type = SCHED_EVENT_RELEASED,
							     .client = 1,
							     .epoch = rig.clients[1].epoch,
							     .budget = GIB,
							     .memory = rig_mem(1, 79, 0),
							     .outcome = 5,
							     .wants = true}),
			 0);
	assert_int_equal(charged(), 81 * GIB);
	assert_int_equal(rig_state(&rig, 1), SCHED_CLIENT_WAITING);
	rig_at(&rig, TURN);
	assert_int_equal(rig_did(&rig, 0, SCHED_ACTION_DROP)->bytes, 65 * GIB);
	assert_int_equal(told(1)->budget, 15 * GIB + LEAD(5 * GIB));
}

/* 0 grows meanwhile: what is in the way of that goes first. */
static void what_came_ahead_gives_way_to_who_runs(void **state)
{
	(void)state;
	run_first(80);
	measure();
	rig_request(&rig, 1, rig_mem(0, 80, 0));
	rig_at(&rig, TURN - 10 * MS);
	assert_int_equal(rig_part(&rig, 1, ahead_by(15, LEAD(5 * GIB))), 0);
	rig_clear(&rig);
	assert_int_equal(rig_memory(&rig, 0, rig_want(rig_mem(80, 0, 0), 10, 0)), 0);
	assert_int_equal(rig_did(&rig, 1, SCHED_ACTION_DROP)->bytes, 10 * GIB + LEAD(5 * GIB));
	assert_int_equal(rig_release(&rig, 1, rig_mem(5, 75, 0), true), 0);
	assert_int_equal(told(0)->budget, 90 * GIB);
	assert_int_equal(charged(), 95 * GIB);
}

/* What it wants besides is for its turn. */
static void only_what_is_out_comes_ahead(void **state)
{
	(void)state;
	run_first(80);
	measure();
	rig_request(&rig, 1, rig_want(rig_mem(0, 5, 0), 70, 0));
	rig_at(&rig, TURN - MS);
	assert_int_equal(told(1)->budget, 5 * GIB);
}

/* 2 fits beside 0 when 3, which is idle, has given way: that room is promised. */
static void nothing_comes_ahead_while_others_come(void **state)
{
	(void)state;
	rig_run(&rig, 3, 25);
	assert_int_equal(rig_release(&rig, 3, rig_mem(25, 0, 0), false), 0);
	run_first(70);
	measure();
	rig_request(&rig, 1, rig_mem(0, 30, 0));
	rig_start(&rig, 2, 10);
	rig_at(&rig, TURN - MS);
	assert_int_equal(rig_state(&rig, 2), SCHED_CLIENT_INCOMING);
	assert_null(told(1));
}

/* Nor what is still asked to go. */
static void nothing_comes_ahead_before_it_has_gone(void **state)
{
	(void)state;
	run_first(70);
	measure();
	rig_request(&rig, 1, rig_mem(20, 10, 0));
	rig_start(&rig, 2, 10);
	assert_int_equal(rig_did(&rig, 1, SCHED_ACTION_DROP)->bytes, 5 * GIB);
	rig_leave(&rig, 2);
	rig_at(&rig, TURN - MS);
	assert_null(told(1));
	assert_int_equal(rig_release(&rig, 1, rig_mem(15, 15, 0), true), 0);
	assert_int_equal(told(1)->budget, 25 * GIB + LEAD(5 * GIB));
}

/* The reserve is used once, whoever comes to be the next. */
static void who_overtakes_finds_the_reserve_used(void **state)
{
	(void)state;
	run_first(80);
	measure();
	rig_request(&rig, 1, rig_mem(0, 80, 0));
	rig_at(&rig, TURN - 10 * MS);
	assert_int_equal(rig_part(&rig, 1, ahead_by(15, LEAD(5 * GIB))), 0);
	rig_join_as(&rig, 2, SCHED_PRIORITY_HIGH, 0, 0);
	rig_request(&rig, 2, rig_mem(0, 80, 0));
	rig_at(&rig, TURN - MS);
	assert_null(told(2));
	assert_int_equal(charged(), 95 * GIB + LEAD(5 * GIB));
	rig_at(&rig, TURN);
	assert_int_equal(rig_state(&rig, 2), SCHED_CLIENT_INCOMING);
	assert_non_null(rig_did(&rig, 1, SCHED_ACTION_DROP));
}

int main(void)
{
#define T(name) cmocka_unit_test_setup(name, set_up)
	const struct CMUnitTest tests[] = {
		T(who_comes_is_ahead_of_who_goes_by_a_part_of_the_reserve),
		T(the_lead_is_of_what_the_reserve_has_left),
		T(what_is_little_comes_before_it_has_gone),
		T(what_fits_into_the_reserve_comes_before_the_turn_ends),
		T(what_is_little_is_there_when_the_turn_ends),
		T(where_one_runs_at_a_time_it_waits_for_the_stop),
		T(nothing_comes_ahead_where_nothing_is_prepared),
		T(what_fails_ahead_costs_nothing),
		T(what_came_ahead_gives_way_to_who_runs),
		T(only_what_is_out_comes_ahead),
		T(nothing_comes_ahead_while_others_come),
		T(nothing_comes_ahead_before_it_has_gone),
		T(who_overtakes_finds_the_reserve_used),
	};
#undef T

	return cmocka_run_group_tests_name("core/sched_lead", tests, NULL, NULL);
}
