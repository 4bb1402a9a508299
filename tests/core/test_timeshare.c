/* SPDX-License-Identifier: Apache-2.0 */

/* Who is held, and for how long; who gets the time that the critical leave. */

#include "time_rig.h"

static struct time_rig rig;

enum { LC, BE1, BE2, BE3 };

static int set_up(void **state)
{
	(void)state;
	time_rig_init(&rig);
	return 0;
}

/* A critical client, and n others that all have work. */
static void busy_node(uint32_t n)
{
	time_rig_join(&rig, LC, TIMESHARE_CLASS_CRITICAL, 100);
	for (uint32_t i = 1; i <= n; i++) {
		time_rig_join(&rig, i, TIMESHARE_CLASS_NORMAL, 100);
		time_rig_busy(&rig, i);
	}
	time_rig_arm(&rig, LC, TIMESHARE_ARM_HOLD);
}

static uint32_t n_computing(uint32_t n)
{
	uint32_t computing = 0;

	for (uint32_t i = 1; i <= n; i++)
		computing += !time_rig_is_held(&rig, i);
	return computing;
}

static void who_is_alone_is_told_nothing(void **state)
{
	(void)state;
	time_rig_join(&rig, BE1, TIMESHARE_CLASS_NORMAL, 100);
	time_rig_busy(&rig, BE1);
	time_rig_in(&rig, 10 * S);
	time_rig_idle(&rig, BE1);
	time_rig_in(&rig, 10 * S);
	time_rig_join(&rig, LC, TIMESHARE_CLASS_CRITICAL, 100);
	time_rig_leave(&rig, BE1);
	rig.n_told = 0;
	time_rig_burst(&rig, LC, 5 * MS);
	time_rig_in(&rig, 10 * S);
	assert_int_equal(rig.n_told, 0);
}

static void all_that_run_hear_that_they_share_and_when_they_do_not_any_more(void **state)
{
	(void)state;
	time_rig_join(&rig, BE1, TIMESHARE_CLASS_NORMAL, 100);
	assert_int_equal(rig.n_told, 0);
	time_rig_join(&rig, BE2, TIMESHARE_CLASS_NORMAL, 100);
	assert_int_equal(time_rig_slice(&rig, BE1), 10000);
	assert_int_equal(time_rig_slice(&rig, BE2), 10000);
	time_rig_run(&rig, BE2, false);
	assert_int_equal(time_rig_slice(&rig, BE1), 0);
	assert_int_equal(rig.n_told, 3);
}

static void a_burst_holds_who_computes_until_it_ends(void **state)
{
	(void)state;
	busy_node(1);
	time_rig_does(&rig, LC, TIMESHARE_ACTIVITY_BEGIN, 0);
	assert_true(time_rig_is_held(&rig, BE1));
	time_rig_in(&rig, 5 * MS);
	assert_true(time_rig_is_held(&rig, BE1));
	time_rig_does(&rig, LC, TIMESHARE_ACTIVITY_END, 5 * MS);
	assert_false(time_rig_is_held(&rig, BE1));
}

static void a_burst_of_a_client_that_is_not_critical_holds_nobody(void **state)
{
	(void)state;
	time_rig_join(&rig, BE1, TIMESHARE_CLASS_HIGH, 100);
	time_rig_join(&rig, BE2, TIMESHARE_CLASS_LOW, 100);
	time_rig_busy(&rig, BE2);
	time_rig_does(&rig, BE1, TIMESHARE_ACTIVITY_BEGIN, 0);
	time_rig_in(&rig, 3 * S);
	assert_false(time_rig_is_held(&rig, BE2));
}

/* Its work may come later, or never. */
static void a_request_without_work_of_who_is_in_no_hurry_takes_no_turn(void **state)
{
	(void)state;
	busy_node(1);
	time_rig_join(&rig, BE2, TIMESHARE_CLASS_NORMAL, 100);
	time_rig_does(&rig, BE2, TIMESHARE_ACTIVITY_BEGIN, 1);
	for (uint32_t i = 0; i < 100; i++) {
		time_rig_burst(&rig, LC, MS);
		assert_false(time_rig_is_held(&rig, BE1));
		time_rig_in(&rig, 9 * MS);
		assert_false(time_rig_is_held(&rig, BE1));
	}
	time_rig_busy(&rig, BE2);
	for (uint32_t i = 0; i < 30 && !time_rig_is_held(&rig, BE1); i++) {
		time_rig_burst(&rig, LC, MS);
		time_rig_in(&rig, 9 * MS);
	}
	assert_true(time_rig_is_held(&rig, BE1));
}

/* So that the slices of others do not go up and down again with each of its requests. */
static void who_lingers_is_active_through_the_beginning_of_a_request(void **state)
{
	uint64_t slice_us;

	(void)state;
	time_rig_join(&rig, BE1, TIMESHARE_CLASS_HIGH, 100);
	time_rig_join(&rig, BE2, TIMESHARE_CLASS_LOW, 100);
	time_rig_busy(&rig, BE2);
	time_rig_busy(&rig, BE1);
	slice_us = time_rig_slice(&rig, BE2);
	time_rig_idle(&rig, BE1);
	time_rig_in(&rig, 5 * MS);
	assert_int_equal(time_rig_slice(&rig, BE2), slice_us);
	time_rig_does(&rig, BE1, TIMESHARE_ACTIVITY_BEGIN, 1);
	assert_int_equal(time_rig_slice(&rig, BE2), slice_us);
	time_rig_in(&rig, 5 * MS);
	time_rig_busy(&rig, BE1);
	assert_int_equal(time_rig_slice(&rig, BE2), slice_us);
	time_rig_idle(&rig, BE1);
	time_rig_does(&rig, BE1, TIMESHARE_ACTIVITY_END, 5 * MS);
	time_rig_in(&rig, 3 * S);
	assert_int_not_equal(time_rig_slice(&rig, BE2), slice_us);
}

/* Whose turn it is not, and who is idle, stays off. */
static void a_request_of_who_is_held_lets_it_not_go(void **state)
{
	uint32_t held;

	(void)state;
	busy_node(2);
	time_rig_burst(&rig, LC, 2 * MS);
	time_rig_in(&rig, 5 * MS);
	held = time_rig_is_held(&rig, BE1) ? BE1 : BE2;
	assert_true(time_rig_is_held(&rig, held));
	time_rig_idle(&rig, held);
	time_rig_in(&rig, 5 * MS);
	assert_true(time_rig_is_held(&rig, held));
	time_rig_does(&rig, held, TIMESHARE_ACTIVITY_BEGIN, 1);
	assert_true(time_rig_is_held(&rig, held));
}

static void all_are_held_in_one_step(void **state)
{
	(void)state;
	busy_node(5);
	rig.n_told = 0;
	time_rig_does(&rig, LC, TIMESHARE_ACTIVITY_BEGIN, 0);
	assert_int_equal(n_computing(5), 0);
	assert_int_equal(rig.n_told, 5);
}

static void at_most_one_computes_between_bursts_and_each_has_its_turn(void **state)
{
	uint32_t had[4] = {0};

	(void)state;
	busy_node(3);
	time_rig_burst(&rig, LC, 2 * MS);
	for (uint32_t i = 0; i < 1200; i++) {
		time_rig_in(&rig, 4 * MS);
		assert_int_equal(n_computing(3), 1);
		for (uint32_t j = 1; j <= 3; j++)
			had[j] += !time_rig_is_held(&rig, j);
		time_rig_burst(&rig, LC, MS);
	}
	for (uint32_t j = 1; j <= 3; j++)
		assert_in_range(had[j], 340, 460);
}

static void turns_are_as_long_as_weight_and_class_say(void **state)
{
	uint64_t had[4] = {0};

	(void)state;
	time_rig_join(&rig, LC, TIMESHARE_CLASS_CRITICAL, 100);
	time_rig_join(&rig, BE1, TIMESHARE_CLASS_NORMAL, 100);
	time_rig_join(&rig, BE2, TIMESHARE_CLASS_NORMAL, 300);
	time_rig_join(&rig, BE3, TIMESHARE_CLASS_HIGH, 100);
	for (uint32_t i = 1; i <= 3; i++)
		time_rig_busy(&rig, i);
	for (uint32_t i = 0; i < 6000; i++) {
		time_rig_in(&rig, MS);
		if (i % 500 == 0)
			time_rig_burst(&rig, LC, US);
		for (uint32_t j = 1; j <= 3; j++)
			had[j] += !time_rig_is_held(&rig, j);
	}
	assert_in_range(had[BE1], 950, 1050);
	assert_in_range(had[BE2], 2850, 3150);
	assert_in_range(had[BE3], 1900, 2100);
}

static void a_turn_without_work_passes_at_once(void **state)
{
	uint32_t holder, other;

	(void)state;
	busy_node(2);
	time_rig_burst(&rig, LC, 2 * MS);
	holder = time_rig_is_held(&rig, BE1) ? BE2 : BE1;
	other = holder == BE1 ? BE2 : BE1;
	time_rig_idle(&rig, holder);
	assert_false(time_rig_is_held(&rig, other));
	assert_true(time_rig_is_held(&rig, holder));
	time_rig_busy(&rig, holder); /* held, it has work again, and waits for its turn */
	assert_true(time_rig_is_held(&rig, holder));
	time_rig_in(&rig, 201 * MS);
	assert_false(time_rig_is_held(&rig, holder));
}

/* The change would delay it: it waits for the burst's end, but not for ever. */
static void no_turn_ends_within_a_short_burst(void **state)
{
	uint32_t holder, other;

	(void)state;
	busy_node(2);
	time_rig_burst(&rig, LC, MS);
	rig.took_ns = 14 * MS; /* slices only from here on */
	for (uint32_t i = 0; i < 2; i++) {
		time_rig_in(&rig, 2 * MS);
		time_rig_burst(&rig, LC, MS);
	}
	assert_int_equal(rig.reports[TIMESHARE_REPORT_SLOW], 1);
	holder = time_rig_is_held(&rig, BE1) ? BE2 : BE1;
	while (!time_rig_is_held(&rig, holder)) /* to the beginning of a turn */
		time_rig_in(&rig, MS);
	other = holder;
	holder = holder == BE1 ? BE2 : BE1;
	time_rig_in(&rig, 198 * MS);
	assert_false(time_rig_is_held(&rig, holder));
	time_rig_does(&rig, LC, TIMESHARE_ACTIVITY_BEGIN, 0);
	time_rig_in(&rig, 4 * MS);
	assert_false(time_rig_is_held(&rig, holder));
	time_rig_does(&rig, LC, TIMESHARE_ACTIVITY_END, 4 * MS);
	assert_true(time_rig_is_held(&rig, holder));
	assert_false(time_rig_is_held(&rig, other));
	time_rig_in(&rig, 199 * MS);
	assert_false(time_rig_is_held(&rig, other));
	time_rig_does(&rig, LC, TIMESHARE_ACTIVITY_BEGIN, 0);
	time_rig_in(&rig, 4 * MS);
	assert_false(time_rig_is_held(&rig, other));
	time_rig_in(&rig, 3 * MS);
	assert_true(time_rig_is_held(&rig, other));
}

static void the_next_one_is_let_go_when_the_last_one_is_off(void **state)
{
	uint32_t holder, other;

	(void)state;
	busy_node(2);
	time_rig_burst(&rig, LC, 2 * MS);
	holder = time_rig_is_held(&rig, BE1) ? BE2 : BE1;
	other = holder == BE1 ? BE2 : BE1;
	rig.at[holder].is_mute = true;
	time_rig_in(&rig, 201 * MS);
	assert_true(time_rig_is_held(&rig, other));
	rig.at[holder].is_mute = false;
	assert_int_equal(
		time_rig_step(&rig, (struct timeshare_event){.type = TIMESHARE_EVENT_DONE,
							     .client = holder,
							     .seq = rig.at[holder].last.seq,
							     .took_ns = MS,
							     .is_held = true}),
		0);
	assert_false(time_rig_is_held(&rig, other));
}

static void after_a_while_without_a_burst_all_compute_again(void **state)
{
	(void)state;
	busy_node(3);
	time_rig_burst(&rig, LC, 2 * MS);
	time_rig_in(&rig, S - MS);
	assert_int_equal(n_computing(3), 1);
	time_rig_in(&rig, 2 * MS);
	assert_int_equal(n_computing(3), 3);
	assert_int_equal(time_rig_slice(&rig, BE1), 10000);
}

static void the_last_to_leave_lets_all_go(void **state)
{
	(void)state;
	busy_node(3);
	time_rig_does(&rig, LC, TIMESHARE_ACTIVITY_BEGIN, 0);
	time_rig_leave(&rig, LC);
	assert_int_equal(n_computing(3), 3);
}

static void a_long_hold_is_renewed_before_it_ends(void **state)
{
	(void)state;
	rig.config.lc_max_percent = 100; /* no cap */
	assert_int_equal(time_rig_config(&rig), 0);
	busy_node(1);
	time_rig_does(&rig, LC, TIMESHARE_ACTIVITY_BEGIN, 0);
	for (uint32_t i = 0; i < 50; i++) {
		time_rig_in(&rig, 100 * MS);
		assert_true(time_rig_is_held(&rig, BE1));
		assert_true(rig.at[BE1].last.hold_us <= 1000000);
		time_rig_does(&rig, LC, TIMESHARE_ACTIVITY_USE, 0);
	}
	assert_in_range(rig.at[BE1].n_told, 9, 13);
}

static void a_burst_in_which_nothing_is_heard_is_over_one_day(void **state)
{
	(void)state;
	rig.config.lc_max_percent = 100;
	assert_int_equal(time_rig_config(&rig), 0);
	busy_node(1);
	time_rig_does(&rig, LC, TIMESHARE_ACTIVITY_BEGIN, 0);
	time_rig_in(&rig, 9900 * MS);
	assert_true(time_rig_is_held(&rig, BE1));
	time_rig_in(&rig, 200 * MS);
	assert_false(time_rig_is_held(&rig, BE1));
}

/* One that is never ended, and no other begins before it does. */
static void in_a_request_that_is_overdue_work_begins_a_burst(void **state)
{
	(void)state;
	busy_node(1);
	time_rig_does(&rig, LC, TIMESHARE_ACTIVITY_BEGIN, 1);
	time_rig_in(&rig, 11 * S);
	assert_false(time_rig_is_held(&rig, BE1));
	for (uint32_t i = 0; i < 3; i++) {
		time_rig_does(&rig, BE1, TIMESHARE_ACTIVITY_USE, 0);
		time_rig_busy(&rig, LC);
		assert_true(time_rig_is_held(&rig, BE1));
		time_rig_in(&rig, 20 * MS);
		time_rig_idle(&rig, LC);
		assert_false(time_rig_is_held(&rig, BE1));
		time_rig_in(&rig, 11 * S);
	}
	/* Until it ends after all: then its work alone holds nobody. */
	time_rig_does(&rig, LC, TIMESHARE_ACTIVITY_END, 60 * S);
	time_rig_busy(&rig, LC);
	time_rig_in(&rig, 20 * MS);
	assert_false(time_rig_is_held(&rig, BE1));
}

static void the_cap_gives_others_their_part_of_an_endless_burst(void **state)
{
	(void)state;
	busy_node(2);
	time_rig_does(&rig, LC, TIMESHARE_ACTIVITY_BEGIN, 0);
	assert_int_equal(time_rig_slice(&rig, LC), 5000000);
	time_rig_in(&rig, 890 * MS);
	assert_int_equal(n_computing(2), 0);
	time_rig_in(&rig, 20 * MS);
	assert_int_equal(rig.reports[TIMESHARE_REPORT_CAPPED], 1);
	assert_int_equal(n_computing(2), 1);
	assert_int_equal(time_rig_slice(&rig, LC), 9000);
	/* It was off for a moment, so that the long slice is over. */
	assert_in_range(rig.at[LC].until_ns, 1, rig.now);
	assert_int_equal(time_rig_slice(&rig, BE1), 1000);
	time_rig_in(&rig, 5 * S);
	assert_int_equal(n_computing(2), 1);
	time_rig_does(&rig, LC, TIMESHARE_ACTIVITY_END, 5910 * MS);
	time_rig_in(&rig, 40 * MS);
	assert_int_equal(time_rig_slice(&rig, LC), 9000);
	time_rig_in(&rig, 20 * MS);
	time_rig_does(&rig, LC, TIMESHARE_ACTIVITY_BEGIN, 0);
	assert_int_equal(time_rig_slice(&rig, LC), 5000000);
	assert_int_equal(n_computing(2), 0);
}

static void bursts_that_leave_enough_are_never_capped(void **state)
{
	(void)state;
	busy_node(1);
	for (uint32_t i = 0; i < 1000; i++) {
		time_rig_burst(&rig, LC, 85 * MS);
		time_rig_in(&rig, 15 * MS);
	}
	assert_int_equal(rig.reports[TIMESHARE_REPORT_CAPPED], 0);
}

/* What a client says that is at work for busy_ns of ns, in a report each 50 ms. */
static void work_for(uint32_t client, uint64_t ns, uint32_t percent)
{
	const struct timeshare_usage *usage = &rig.clients[client].usage;

	for (uint64_t end_ns = rig.now + ns; rig.now < end_ns;) {
		time_rig_in(&rig, 50 * MS);
		assert_int_equal(
			time_rig_step(&rig,
				      (struct timeshare_event){.type = TIMESHARE_EVENT_ACTIVITY,
							       .client = client,
							       .activity = TIMESHARE_ACTIVITY_USE,
							       .busy_ns = usage->busy_ns +
									  50 * MS / 100 * percent}),
			0);
	}
}

static void the_cap_counts_work_without_a_burst(void **state)
{
	(void)state;
	busy_node(2);
	time_rig_burst(&rig, LC, MS);
	time_rig_in(&rig, MS);
	time_rig_busy(&rig, LC);
	assert_int_equal(time_rig_slice(&rig, LC), 5000000);
	work_for(LC, 850 * MS, 100);
	assert_int_equal(rig.reports[TIMESHARE_REPORT_CAPPED], 0);
	work_for(LC, 100 * MS, 100);
	assert_int_equal(rig.reports[TIMESHARE_REPORT_CAPPED], 1);
	assert_int_equal(n_computing(2), 1);
	assert_int_equal(time_rig_slice(&rig, LC), 9000);
	assert_int_equal(time_rig_slice(&rig, BE1), 1000);
	/* It was off for a moment, so that the long slice is over. */
	assert_true(rig.at[LC].until_ns > 0);
	work_for(LC, 10 * S, 100);
	assert_int_equal(rig.reports[TIMESHARE_REPORT_NOT_CAPPED], 0);
	assert_true(timeshare_gpu_ns(&rig.share, BE1) + timeshare_gpu_ns(&rig.share, BE2) > S);
	assert_true(timeshare_gpu_ns(&rig.share, BE1) > 400 * MS);
	assert_true(timeshare_gpu_ns(&rig.share, BE2) > 400 * MS);
	time_rig_idle(&rig, LC);
	time_rig_in(&rig, 60 * MS);
	assert_int_equal(rig.reports[TIMESHARE_REPORT_NOT_CAPPED], 1);
	assert_int_equal(time_rig_slice(&rig, LC), 5000000);
}

static void who_does_not_say_how_busy_it_is_is_busy_all_the_time(void **state)
{
	(void)state;
	busy_node(1);
	time_rig_busy(&rig, LC);
	time_rig_in(&rig, 890 * MS);
	assert_int_equal(rig.reports[TIMESHARE_REPORT_CAPPED], 0);
	time_rig_in(&rig, 20 * MS);
	assert_int_equal(rig.reports[TIMESHARE_REPORT_CAPPED], 1);
	time_rig_in(&rig, 10 * S);
	assert_int_equal(rig.reports[TIMESHARE_REPORT_NOT_CAPPED], 0);
	assert_int_equal(time_rig_slice(&rig, LC), 9000);
}

static void what_two_work_at_once_counts_once(void **state)
{
	(void)state;
	busy_node(1);
	time_rig_join(&rig, 20, TIMESHARE_CLASS_CRITICAL, 100);
	time_rig_busy(&rig, LC);
	time_rig_busy(&rig, 20);
	time_rig_in(&rig, 890 * MS);
	assert_int_equal(rig.reports[TIMESHARE_REPORT_CAPPED], 0);
	time_rig_in(&rig, 20 * MS);
	assert_int_equal(rig.reports[TIMESHARE_REPORT_CAPPED], 1);
}

static void work_without_a_burst_that_leaves_enough_is_never_capped(void **state)
{
	(void)state;
	busy_node(1);
	time_rig_busy(&rig, LC);
	work_for(LC, 100 * S, 85);
	assert_int_equal(rig.reports[TIMESHARE_REPORT_CAPPED], 0);
}

/* IDLE follows BUSY ten milliseconds later, when the next burst has begun. */
static void who_is_told_busy_between_bursts_has_not_had_that_time(void **state)
{
	const struct timeshare_usage *usage = &rig.clients[LC].usage;

	(void)state;
	busy_node(1);
	time_rig_busy(&rig, LC);
	for (uint32_t i = 0; i < 2000; i++) {
		time_rig_does(&rig, LC, TIMESHARE_ACTIVITY_BEGIN, 0);
		time_rig_in(&rig, 5 * MS);
		assert_int_equal(
			time_rig_step(&rig,
				      (struct timeshare_event){.type = TIMESHARE_EVENT_ACTIVITY,
							       .client = LC,
							       .activity = TIMESHARE_ACTIVITY_END,
							       .busy_ns = usage->busy_ns + 5 * MS,
							       .value = 5 * MS}),
			0);
		time_rig_in(&rig, 5 * MS);
	}
	assert_int_equal(rig.reports[TIMESHARE_REPORT_CAPPED], 0);
}

/* How often it was tried to hold the other one in n bursts, one each 10 ms. */
static uint32_t n_tries(uint32_t n)
{
	uint32_t before = rig.reports[TIMESHARE_REPORT_NOT_HELD];

	for (uint32_t i = 0; i < n; i++) {
		time_rig_arm(&rig, LC, TIMESHARE_ARM_HOLD);
		time_rig_burst(&rig, LC, MS);
		rig.at[BE1].until_ns = 0; /* what it was told it could not do */
		time_rig_does(&rig, BE1, TIMESHARE_ACTIVITY_USE, 0);
		time_rig_in(&rig, 9 * MS);
	}
	return rig.reports[TIMESHARE_REPORT_NOT_HELD] - before;
}

static void who_can_not_be_held_is_left_alone_for_a_while(void **state)
{
	(void)state;
	busy_node(1);
	rig.outcome = 6;
	/* 312 ms, 625 ms, 1.25 s and so on, up to 10 s. */
	assert_int_equal(n_tries(30), 1);
	assert_int_equal(n_tries(10), 1);
	assert_int_equal(n_tries(50), 0);
	assert_int_equal(n_tries(2000), 5);
	assert_int_equal(n_tries(2000), 2);
	rig.outcome = 0;
	time_rig_in(&rig, 10 * S);
	time_rig_does(&rig, BE1, TIMESHARE_ACTIVITY_USE, 0);
	time_rig_does(&rig, LC, TIMESHARE_ACTIVITY_BEGIN, 0);
	assert_true(time_rig_is_held(&rig, BE1));
	time_rig_does(&rig, LC, TIMESHARE_ACTIVITY_END, MS);
	/* From the beginning, after it could be held. */
	time_rig_in(&rig, S);
	rig.outcome = 6;
	assert_int_equal(n_tries(30), 1);
	assert_int_equal(n_tries(10), 1);
}

static void who_does_not_answer_is_not_flooded(void **state)
{
	struct timeshare_gpu_status status;

	(void)state;
	busy_node(1);
	rig.at[BE1].is_mute = true;
	rig.n_told = rig.at[BE1].n_told = 0;
	for (uint32_t i = 0; i < 10000; i++) {
		time_rig_burst(&rig, LC, MS);
		time_rig_in(&rig, 2 * MS);
	}
	assert_true(rig.at[BE1].n_told <= 8);
	timeshare_gpu_status(&rig.share, 0, &status);
	assert_true(status.n_timeouts >= 1);
}

/* Nobody waits for ever for one that answers no more and owes all it may. */
static void who_owes_too_many_answers_keeps_nobody_off(void **state)
{
	uint64_t computed_ns = rig.now;

	(void)state;
	busy_node(2);
	rig.at[BE1].is_mute = true;
	for (uint32_t i = 0; i < 30000; i++) {
		time_rig_burst(&rig, LC, MS);
		time_rig_in(&rig, 2 * MS);
		time_rig_does(&rig, BE1, TIMESHARE_ACTIVITY_USE, 0);
		time_rig_does(&rig, BE2, TIMESHARE_ACTIVITY_USE, 0);
		if (!time_rig_is_held(&rig, BE2))
			computed_ns = rig.now;
		assert_true(rig.now - computed_ns < 2 * S);
	}
	/* It may be held again when it has answered. */
	rig.at[BE1].is_mute = false;
	assert_int_equal(time_rig_step(&rig, (struct timeshare_event){.type = TIMESHARE_EVENT_DONE,
								      .client = BE1,
								      .seq = rig.at[BE1].last.seq}),
			 0);
	for (uint32_t i = 0; i < 4000 && !time_rig_is_held(&rig, BE1); i++) {
		time_rig_does(&rig, LC, TIMESHARE_ACTIVITY_END, MS);
		time_rig_in(&rig, 3 * MS);
		time_rig_does(&rig, LC, TIMESHARE_ACTIVITY_BEGIN, 0);
	}
	assert_true(time_rig_is_held(&rig, BE1));
}

static void an_answer_to_an_older_order_says_nothing_of_a_hold(void **state)
{
	struct timeshare_gpu_status status;
	uint64_t seq;

	(void)state;
	busy_node(1);
	rig.at[BE1].is_mute = true;
	time_rig_does(&rig, LC, TIMESHARE_ACTIVITY_BEGIN, 0);
	seq = rig.at[BE1].last.seq;
	time_rig_does(&rig, LC, TIMESHARE_ACTIVITY_END, MS);
	time_rig_does(&rig, LC, TIMESHARE_ACTIVITY_BEGIN, 0);
	assert_true(time_rig_is_held(&rig, BE1));
	assert_int_equal(time_rig_step(&rig, (struct timeshare_event){.type = TIMESHARE_EVENT_DONE,
								      .client = BE1,
								      .seq = seq,
								      .outcome = 6}),
			 0);
	timeshare_gpu_status(&rig.share, 0, &status);
	assert_int_equal(status.n_failures, 0);
}

static void who_says_late_that_it_is_held_is_let_go(void **state)
{
	(void)state;
	rig.config.lc_max_percent = 100;
	assert_int_equal(time_rig_config(&rig), 0);
	busy_node(1);
	rig.at[BE1].is_mute = true;
	time_rig_does(&rig, LC, TIMESHARE_ACTIVITY_BEGIN, 0);
	time_rig_in(&rig, 1100 * MS);
	assert_int_equal(rig.reports[TIMESHARE_REPORT_MUTE], 1);
	assert_true(rig.at[BE1].last.hold_us > 0);
	assert_int_equal(time_rig_step(&rig, (struct timeshare_event){.type = TIMESHARE_EVENT_DONE,
								      .client = BE1,
								      .seq = rig.at[BE1].last.seq,
								      .is_held = true}),
			 0);
	assert_int_equal(rig.at[BE1].last.hold_us, 0);
}

static void slow_holds_are_given_up_for_a_while(void **state)
{
	struct timeshare_client_status status;

	(void)state;
	busy_node(1);
	for (uint32_t i = 0; i < 40; i++) {
		time_rig_burst(&rig, LC, MS);
		time_rig_in(&rig, 2 * MS);
	}
	assert_int_equal(rig.reports[TIMESHARE_REPORT_SLOW], 0);
	rig.took_ns = 14 * MS;
	time_rig_burst(&rig, LC, MS);
	assert_int_equal(rig.reports[TIMESHARE_REPORT_SLOW], 0); /* one tells nothing */
	time_rig_in(&rig, 2 * MS);
	time_rig_does(&rig, LC, TIMESHARE_ACTIVITY_BEGIN, 0);
	assert_int_equal(rig.reports[TIMESHARE_REPORT_SLOW], 1);
	assert_false(time_rig_is_held(&rig, BE1));
	timeshare_client_status(&rig.share, LC, &status);
	assert_true(status.is_slices_only);
	time_rig_does(&rig, LC, TIMESHARE_ACTIVITY_END, MS);
	time_rig_burst(&rig, LC, MS);
	assert_int_equal(time_rig_slice(&rig, BE1), 100);
	time_rig_in(&rig, 11 * S);
	assert_int_equal(rig.reports[TIMESHARE_REPORT_FAST], 1);
	rig.took_ns = MS;
	time_rig_does(&rig, LC, TIMESHARE_ACTIVITY_BEGIN, 0);
	assert_true(time_rig_is_held(&rig, BE1));
}

/* Until bursts, one each gap_ns, hold others again after a second slow one. */
static uint64_t slow_for(uint64_t gap_ns)
{
	uint32_t n_fast = rig.reports[TIMESHARE_REPORT_FAST],
		 n_slow = rig.reports[TIMESHARE_REPORT_SLOW];
	uint64_t since;

	rig.took_ns = 14 * MS;
	while (rig.reports[TIMESHARE_REPORT_SLOW] == n_slow) {
		time_rig_burst(&rig, LC, MS);
		time_rig_in(&rig, gap_ns);
	}
	since = rig.now - gap_ns;
	while (rig.reports[TIMESHARE_REPORT_FAST] == n_fast)
		time_rig_in(&rig, 10 * MS);
	return rig.now - since;
}

static void what_is_slow_again_soon_is_left_alone_for_longer(void **state)
{
	static const uint64_t pauses_ms[] = {1250, 2500, 5000, 10000, 10000};

	(void)state;
	busy_node(1);
	for (size_t i = 0; i < sizeof(pauses_ms) / sizeof(pauses_ms[0]); i++)
		assert_in_range(slow_for(2 * MS) / MS, pauses_ms[i] - 10, pauses_ms[i] + 20);
	rig.took_ns = MS;
	for (uint32_t i = 0; i < 110; i++) {
		time_rig_burst(&rig, LC, MS);
		time_rig_in(&rig, 99 * MS);
	}
	assert_in_range(slow_for(2 * MS) / MS, 1240, 1270);
}

/* From the end of one pause to the next is longer than retry_ns, but no hold was fast. */
static void what_is_always_slow_is_left_alone_for_longer_though_rare(void **state)
{
	(void)state;
	rig.share.config.retry_ns = S;
	busy_node(1);
	for (uint64_t pause_ns = S / 8; pause_ns <= S; pause_ns *= 2) {
		(void)slow_for(800 * MS);
		assert_int_equal(rig.share.gpus[0].pause_ns, pause_ns);
	}
}

/* The others' turns need no hurry: with four slices in a row each burst would wait for all. */
static void where_holds_are_slow_the_others_still_take_turns(void **state)
{
	(void)state;
	busy_node(3);
	time_rig_burst(&rig, LC, MS);
	rig.took_ns = 14 * MS;
	for (uint32_t i = 0; i < 4; i++) {
		time_rig_in(&rig, 2 * MS);
		time_rig_burst(&rig, LC, MS);
	}
	assert_int_equal(rig.reports[TIMESHARE_REPORT_SLOW], 1);
	time_rig_does(&rig, LC, TIMESHARE_ACTIVITY_BEGIN, 0);
	assert_int_equal(n_computing(3), 1);
	time_rig_does(&rig, LC, TIMESHARE_ACTIVITY_END, MS);
	assert_int_equal(n_computing(3), 1);
	/* How slow turns were meanwhile says nothing of the next burst's hold. */
	for (uint32_t i = 0; i < 11; i++) {
		time_rig_burst(&rig, LC, MS);
		time_rig_in(&rig, 99 * MS);
	}
	rig.took_ns = MS;
	for (uint32_t i = 0; i < 30; i++) {
		time_rig_burst(&rig, LC, MS);
		time_rig_in(&rig, 99 * MS);
	}
	assert_int_equal(rig.reports[TIMESHARE_REPORT_FAST], 1);
	assert_int_equal(rig.reports[TIMESHARE_REPORT_SLOW], 1);
}

/* They wait for each other in the driver, which is no sign of others in it. */
static void those_that_are_held_at_once_may_take_as_much_longer(void **state)
{
	(void)state;
	busy_node(4);
	for (uint32_t i = 0; i < 5; i++) {
		rig.took_ns = 11 * MS;
		time_rig_burst(&rig, LC, MS);
		rig.took_ns = MS; /* of each turn */
		time_rig_in(&rig, 2 * S);
	}
	assert_int_equal(rig.reports[TIMESHARE_REPORT_SLOW], 0);
	/* Nor is it their fault that another one was asked in between. */
	for (uint32_t i = 1; i <= 4; i++)
		rig.at[i].is_mute = true;
	time_rig_does(&rig, LC, TIMESHARE_ACTIVITY_BEGIN, 0);
	time_rig_in(&rig, 2 * MS);
	time_rig_join(&rig, 5, TIMESHARE_CLASS_NORMAL, 100);
	time_rig_busy(&rig, 5);
	time_rig_in(&rig, 9 * MS);
	for (uint32_t i = 1; i <= 4; i++)
		(void)time_rig_step(&rig, (struct timeshare_event){.type = TIMESHARE_EVENT_DONE,
								   .client = i,
								   .seq = rig.at[i].last.seq,
								   .took_ns = 11 * MS,
								   .is_held = true});
	assert_int_equal(rig.reports[TIMESHARE_REPORT_SLOW], 0);
}

static void holding_can_be_forbidden(void **state)
{
	(void)state;
	rig.config.is_holding = false;
	assert_int_equal(time_rig_config(&rig), 0);
	busy_node(2);
	time_rig_does(&rig, LC, TIMESHARE_ACTIVITY_BEGIN, 0);
	assert_int_equal(n_computing(2), 2);
	assert_int_equal(time_rig_slice(&rig, BE1), 100);
}

static void a_stopped_client_is_forgotten_and_found_as_it_was_told(void **state)
{
	(void)state;
	busy_node(1);
	time_rig_does(&rig, LC, TIMESHARE_ACTIVITY_BEGIN, 0);
	time_rig_run(&rig, BE1, false);
	time_rig_does(&rig, LC, TIMESHARE_ACTIVITY_END, MS);
	time_rig_run(&rig, BE1, true);
	assert_false(time_rig_is_held(&rig, BE1));
	time_rig_busy(&rig, BE1);
	time_rig_does(&rig, LC, TIMESHARE_ACTIVITY_BEGIN, 0);
	assert_true(time_rig_is_held(&rig, BE1));
}

static void a_claim_is_told_and_counts_from_then_on(void **state)
{
	(void)state;
	time_rig_join(&rig, LC, TIMESHARE_CLASS_NORMAL, 100);
	time_rig_join(&rig, BE1, TIMESHARE_CLASS_NORMAL, 100);
	time_rig_busy(&rig, BE1);
	time_rig_does(&rig, LC, TIMESHARE_ACTIVITY_BEGIN, 0);
	assert_false(time_rig_is_held(&rig, BE1));
	rig.at[LC].n_told = 0;
	time_rig_arm(&rig, LC, TIMESHARE_ARM_HOLD);
	assert_int_equal(
		time_rig_step(&rig, (struct timeshare_event){.type = TIMESHARE_EVENT_CLAIM,
							     .client = LC,
							     .claim = {TIMESHARE_CLASS_CRITICAL,
								       100, 0, 0}}),
		0);
	assert_int_equal(rig.at[LC].n_told, 1);
	assert_int_equal(time_rig_slice(&rig, LC), 5000000);
	time_rig_does(&rig, LC, TIMESHARE_ACTIVITY_END, MS);
	time_rig_does(&rig, LC, TIMESHARE_ACTIVITY_BEGIN, 0);
	assert_true(time_rig_is_held(&rig, BE1));
}

static void a_claim_is_told_to_who_waits_too(void **state)
{
	uint64_t slice_us;
	uint32_t n_told;

	(void)state;
	busy_node(2);
	time_rig_does(&rig, LC, TIMESHARE_ACTIVITY_BEGIN, 0);
	time_rig_run(&rig, BE1, false);
	slice_us = time_rig_slice(&rig, BE1);
	n_told = rig.at[BE1].n_told;
	assert_int_equal(
		time_rig_step(&rig, (struct timeshare_event){.type = TIMESHARE_EVENT_CLAIM,
							     .client = BE1,
							     .claim = {TIMESHARE_CLASS_NORMAL, 777,
								       0, 0}}),
		0);
	assert_int_equal(rig.at[BE1].n_told, n_told + 1);
	assert_int_equal(time_rig_slice(&rig, BE1), slice_us);
	assert_false(time_rig_is_held(&rig, BE1));
	time_rig_in(&rig, S);
	assert_int_equal(rig.at[BE1].n_told, n_told + 1);
	time_rig_run(&rig, BE1, true);
	time_rig_busy(&rig, BE1);
	assert_true(time_rig_is_held(&rig, BE1));
}

static void more_than_a_step_can_say_is_said_in_the_next(void **state)
{
	(void)state;
	busy_node(1000);
	for (uint32_t i = 1; i <= 1000; i++)
		rig.at[i].is_mute = true;
	time_rig_does(&rig, LC, TIMESHARE_ACTIVITY_BEGIN, 0);
	assert_int_equal(timeshare_deadline(&rig.share), rig.now);
	time_rig_in(&rig, 0);
	assert_int_equal(n_computing(1000), 0);
}

static void what_is_refused_changes_nothing(void **state)
{
	struct timeshare_event event = {.type = TIMESHARE_EVENT_RUN, .client = BE1};

	(void)state;
	assert_int_equal(time_rig_step(&rig, event), TIMESHARE_E_NO_CLIENT);
	event.type = TIMESHARE_EVENT_JOIN;
	event.claim = (struct timeshare_claim){TIMESHARE_CLASS_NORMAL, 100, 0, 0};
	event.gpu = TIMESHARE_GPUS_MAX;
	assert_int_equal(time_rig_step(&rig, event), TIMESHARE_E_NO_GPU);
	event.gpu = 0;
	event.claim.weight = 0;
	assert_int_equal(time_rig_step(&rig, event), TIMESHARE_E_VALUE);
	event.claim.weight = 10000;
	assert_int_equal(time_rig_step(&rig, event), 0);
	assert_int_equal(time_rig_step(&rig, event), TIMESHARE_E_EXISTS);
	event.type = TIMESHARE_EVENT_DONE;
	event.seq = 1;
	assert_int_equal(time_rig_step(&rig, event), TIMESHARE_E_STALE);
	rig.config.lc_max_percent = 9;
	assert_int_equal(time_rig_config(&rig), TIMESHARE_E_VALUE);
}

static void gpus_do_not_concern_each_other(void **state)
{
	(void)state;
	busy_node(2);
	assert_int_equal(
		time_rig_step(&rig, (struct timeshare_event){.type = TIMESHARE_EVENT_JOIN,
							     .client = 10,
							     .gpu = 1,
							     .claim = {TIMESHARE_CLASS_NORMAL, 100,
								       0, 0}}),
		0);
	time_rig_run(&rig, 10, true);
	time_rig_busy(&rig, 10);
	time_rig_does(&rig, LC, TIMESHARE_ACTIVITY_BEGIN, 0);
	assert_int_equal(rig.at[10].n_told, 0);
	assert_int_equal(n_computing(2), 0);
}

static void an_idle_node_is_not_woken(void **state)
{
	(void)state;
	busy_node(3);
	time_rig_burst(&rig, LC, 20 * MS);
	for (uint32_t i = 1; i <= 3; i++)
		time_rig_idle(&rig, i);
	time_rig_in(&rig, 5 * S);
	assert_int_equal(timeshare_deadline(&rig.share), TIMESHARE_NO_DEADLINE);
}

/* One that joins, or begins to work, in the middle of a long burst. */
static void who_is_preempted_later_is_timed_from_then_on(void **state)
{
	struct timeshare_gpu_status status;

	(void)state;
	busy_node(1);
	time_rig_does(&rig, LC, TIMESHARE_ACTIVITY_BEGIN, 0);
	time_rig_in(&rig, 3 * MS);
	time_rig_join(&rig, BE2, TIMESHARE_CLASS_NORMAL, 100);
	rig.at[BE2].is_mute = true;
	time_rig_busy(&rig, BE2);
	time_rig_in(&rig, 700 * US);
	assert_true(time_rig_is_held(&rig, BE2));
	(void)time_rig_step(&rig, (struct timeshare_event){.type = TIMESHARE_EVENT_DONE,
							   .client = BE2,
							   .seq = rig.at[BE2].last.seq,
							   .took_ns = 600 * US,
							   .is_held = true});
	timeshare_gpu_status(&rig.share, 0, &status);
	assert_int_equal(status.n_preempted, 2);
	assert_int_equal(status.preempt_ns_max, 700 * US);
	assert_int_equal(status.over_ns_max, 100 * US);
}

static void preemptions_are_timed_from_the_request_to_the_last_one_off(void **state)
{
	struct timeshare_gpu_status status;

	(void)state;
	busy_node(2);
	time_rig_burst(&rig, LC, MS);
	rig.at[BE1].is_mute = rig.at[BE2].is_mute = true;
	for (uint32_t i = 0; i < 100; i++) {
		uint32_t turn = time_rig_is_held(&rig, BE1) ? BE2 : BE1;

		time_rig_does(&rig, LC, TIMESHARE_ACTIVITY_BEGIN, 0);
		time_rig_in(&rig, i == 50 ? 2 * MS : 700 * US);
		(void)time_rig_step(&rig, (struct timeshare_event){.type = TIMESHARE_EVENT_DONE,
								   .client = turn,
								   .seq = rig.at[turn].last.seq,
								   .took_ns = 600 * US,
								   .is_held = true});
		time_rig_does(&rig, LC, TIMESHARE_ACTIVITY_END, MS);
		for (uint32_t j = 1; j <= 2; j++)
			(void)time_rig_step(&rig,
					    (struct timeshare_event){.type = TIMESHARE_EVENT_DONE,
								     .client = j,
								     .seq = rig.at[j].last.seq});
	}
	timeshare_gpu_status(&rig.share, 0, &status);
	assert_int_equal(status.n_preemptions, 102);
	assert_int_equal(status.n_preempted, 101); /* the first took two off at once */
	assert_int_equal(status.preempt_ns_total, 99 * 700 * US + 2 * MS);
	assert_int_equal(status.preempt_ns_p50, 700 * US);
	assert_int_equal(status.preempt_ns_max, 2 * MS);
	assert_int_equal(status.over_ns_p50, 100 * US);
	assert_int_equal(status.over_ns_max, 1400 * US);
	assert_int_equal(status.n_lc_tasks, 101);
}

static void service_levels_that_are_missed_are_counted(void **state)
{
	struct timeshare_client_status client;
	struct timeshare_gpu_status gpu;

	(void)state;
	busy_node(1);
	assert_int_equal(
		time_rig_step(&rig, (struct timeshare_event){.type = TIMESHARE_EVENT_CLAIM,
							     .client = LC,
							     .claim = {TIMESHARE_CLASS_CRITICAL,
								       100, 5000, 0}}),
		0);
	for (uint32_t i = 1; i <= 10; i++)
		time_rig_burst(&rig, LC, i * MS);
	time_rig_does(&rig, BE1, TIMESHARE_ACTIVITY_END, S);
	timeshare_gpu_status(&rig.share, 0, &gpu);
	timeshare_client_status(&rig.share, LC, &client);
	assert_int_equal(gpu.n_slo_violations, 5);
	assert_int_equal(client.n_slo_violations, 5);
	assert_int_equal(client.n_tasks, 10);
	assert_int_equal(gpu.n_lc_tasks, 10);
	assert_int_equal(gpu.n_be_tasks, 1);
}

static void utilisation_is_of_the_time_since_the_first_client(void **state)
{
	struct timeshare_gpu_status gpu;

	(void)state;
	time_rig_in(&rig, S);
	timeshare_gpu_status(&rig.share, 0, &gpu);
	assert_int_equal(gpu.known_ns, 0);
	time_rig_join(&rig, BE1, TIMESHARE_CLASS_NORMAL, 100);
	time_rig_in(&rig, S);
	time_rig_busy(&rig, BE1);
	time_rig_in(&rig, S);
	assert_int_equal(
		time_rig_step(&rig, (struct timeshare_event){.type = TIMESHARE_EVENT_ACTIVITY,
							     .client = BE1,
							     .activity = TIMESHARE_ACTIVITY_IDLE,
							     .busy_ns = S}),
		0);
	time_rig_in(&rig, 2 * S);
	(void)time_rig_step(&rig, (struct timeshare_event){.type = TIMESHARE_EVENT_TIME});
	timeshare_gpu_status(&rig.share, 0, &gpu);
	assert_int_equal(gpu.known_ns, 4 * S);
	assert_in_range(gpu.be_gpu_ns, S * 99 / 100, S);
	time_rig_leave(&rig, BE1);
	time_rig_in(&rig, S);
	(void)time_rig_step(&rig, (struct timeshare_event){.type = TIMESHARE_EVENT_TIME});
	timeshare_gpu_status(&rig.share, 0, &gpu);
	assert_int_equal(gpu.known_ns, 5 * S);
}

static void another_gpu_begins_without_counts(void **state)
{
	const struct timeshare_event other = {.type = TIMESHARE_EVENT_GPU};
	struct timeshare_gpu_status gpu;

	(void)state;
	time_rig_join(&rig, LC, TIMESHARE_CLASS_CRITICAL, 100);
	time_rig_burst(&rig, LC, MS);
	assert_int_equal(time_rig_step(&rig, other), TIMESHARE_E_EXISTS);
	time_rig_leave(&rig, LC);
	timeshare_gpu_status(&rig.share, 0, &gpu);
	assert_int_equal(gpu.n_lc_tasks, 1);
	assert_true(gpu.known_ns > 0);
	assert_int_equal(time_rig_step(&rig, other), 0);
	timeshare_gpu_status(&rig.share, 0, &gpu);
	assert_int_equal(gpu.n_lc_tasks, 0);
	assert_int_equal(gpu.known_ns, 0);
	assert_int_equal(time_rig_step(&rig, (struct timeshare_event){.type = TIMESHARE_EVENT_GPU,
								      .gpu = TIMESHARE_GPUS_MAX}),
			 TIMESHARE_E_NO_GPU);
	time_rig_join(&rig, LC, TIMESHARE_CLASS_CRITICAL, 100);
	time_rig_burst(&rig, LC, MS);
	timeshare_gpu_status(&rig.share, 0, &gpu);
	assert_int_equal(gpu.n_lc_tasks, 1);
}

static void requests_count_though_no_burst_ends(void **state)
{
	struct timeshare_event event = {
		.type = TIMESHARE_EVENT_ACTIVITY, .n_tasks = 3, .n_violations = 1};
	struct timeshare_client_status client;
	struct timeshare_gpu_status gpu;

	(void)state;
	busy_node(1);
	time_rig_does(&rig, LC, TIMESHARE_ACTIVITY_BEGIN, 0);
	for (int kind = 0; kind < TIMESHARE_ACTIVITY_COUNT_; kind++) {
		event.client = LC;
		event.activity = (enum timeshare_activity)kind;
		assert_int_equal(time_rig_step(&rig, event), 0);
	}
	event.client = BE1;
	event.activity = TIMESHARE_ACTIVITY_USE;
	assert_int_equal(time_rig_step(&rig, event), 0);
	timeshare_gpu_status(&rig.share, 0, &gpu);
	timeshare_client_status(&rig.share, LC, &client);
	assert_int_equal(client.n_tasks, 3 * TIMESHARE_ACTIVITY_COUNT_);
	assert_int_equal(client.n_slo_violations, TIMESHARE_ACTIVITY_COUNT_);
	assert_int_equal(gpu.n_lc_tasks, 3 * TIMESHARE_ACTIVITY_COUNT_);
	assert_int_equal(gpu.n_be_tasks, 3);
	assert_int_equal(gpu.n_slo_violations, TIMESHARE_ACTIVITY_COUNT_ + 1);
}

static void a_report_counts_no_more_tasks_than_the_time_has_room_for(void **state)
{
	struct timeshare_event event = {.type = TIMESHARE_EVENT_ACTIVITY,
					.client = BE1,
					.activity = TIMESHARE_ACTIVITY_USE,
					.n_tasks = UINT32_MAX,
					.n_violations = UINT32_MAX};
	struct timeshare_gpu_status gpu;

	(void)state;
	busy_node(1);
	assert_int_equal(time_rig_step(&rig, event), 0);
	timeshare_gpu_status(&rig.share, 0, &gpu);
	assert_true(gpu.n_be_tasks <= 1000 + rig.now / 1000);
	assert_int_equal(gpu.n_slo_violations, gpu.n_be_tasks);
}

#define TEST(name) cmocka_unit_test_setup(name, set_up)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(who_is_alone_is_told_nothing),
		TEST(all_that_run_hear_that_they_share_and_when_they_do_not_any_more),
		TEST(a_burst_holds_who_computes_until_it_ends),
		TEST(a_burst_of_a_client_that_is_not_critical_holds_nobody),
		TEST(a_request_without_work_of_who_is_in_no_hurry_takes_no_turn),
		TEST(who_lingers_is_active_through_the_beginning_of_a_request),
		TEST(a_request_of_who_is_held_lets_it_not_go),
		TEST(all_are_held_in_one_step),
		TEST(at_most_one_computes_between_bursts_and_each_has_its_turn),
		TEST(turns_are_as_long_as_weight_and_class_say),
		TEST(a_turn_without_work_passes_at_once),
		TEST(no_turn_ends_within_a_short_burst),
		TEST(the_next_one_is_let_go_when_the_last_one_is_off),
		TEST(after_a_while_without_a_burst_all_compute_again),
		TEST(the_last_to_leave_lets_all_go),
		TEST(a_long_hold_is_renewed_before_it_ends),
		TEST(a_burst_in_which_nothing_is_heard_is_over_one_day),
		TEST(in_a_request_that_is_overdue_work_begins_a_burst),
		TEST(the_cap_gives_others_their_part_of_an_endless_burst),
		TEST(bursts_that_leave_enough_are_never_capped),
		TEST(the_cap_counts_work_without_a_burst),
		TEST(who_does_not_say_how_busy_it_is_is_busy_all_the_time),
		TEST(what_two_work_at_once_counts_once),
		TEST(work_without_a_burst_that_leaves_enough_is_never_capped),
		TEST(who_is_told_busy_between_bursts_has_not_had_that_time),
		TEST(who_can_not_be_held_is_left_alone_for_a_while),
		TEST(who_does_not_answer_is_not_flooded),
		TEST(who_owes_too_many_answers_keeps_nobody_off),
		TEST(an_answer_to_an_older_order_says_nothing_of_a_hold),
		TEST(who_says_late_that_it_is_held_is_let_go),
		TEST(slow_holds_are_given_up_for_a_while),
		TEST(what_is_slow_again_soon_is_left_alone_for_longer),
		TEST(what_is_always_slow_is_left_alone_for_longer_though_rare),
		TEST(where_holds_are_slow_the_others_still_take_turns),
		TEST(those_that_are_held_at_once_may_take_as_much_longer),
		TEST(holding_can_be_forbidden),
		TEST(a_stopped_client_is_forgotten_and_found_as_it_was_told),
		TEST(a_claim_is_told_and_counts_from_then_on),
		TEST(a_claim_is_told_to_who_waits_too),
		TEST(more_than_a_step_can_say_is_said_in_the_next),
		TEST(what_is_refused_changes_nothing),
		TEST(gpus_do_not_concern_each_other),
		TEST(an_idle_node_is_not_woken),
		TEST(preemptions_are_timed_from_the_request_to_the_last_one_off),
		TEST(who_is_preempted_later_is_timed_from_then_on),
		TEST(service_levels_that_are_missed_are_counted),
		TEST(utilisation_is_of_the_time_since_the_first_client),
		TEST(another_gpu_begins_without_counts),
		TEST(requests_count_though_no_burst_ends),
		TEST(a_report_counts_no_more_tasks_than_the_time_has_room_for),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
