/* SPDX-License-Identifier: Apache-2.0 */

/* The choice between holding others for a burst and leaving it to the slices. */

#include "core/timeshare/preempt_choice.h"
#include "util/prng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define TEST(f) cmocka_unit_test(f)
#define US      1000ull
#define S       (1000000 * US)

static void learn(struct timeshare_arm *arm, uint32_t n, uint64_t hold_us, uint64_t slices_us)
{
	for (uint32_t i = 0; i < n; i++) {
		enum timeshare_arm_kind kind = preempt_choice_next(arm);

		preempt_choice_note(arm, TIMESHARE_WARNING_NONE, kind,
				    (kind == TIMESHARE_ARM_HOLD ? hold_us : slices_us) * US, 1);
	}
}

static void the_arm_with_the_shorter_tail_is_used_and_the_other_tried_now_and_then(void **state)
{
	struct timeshare_arm arm = {.best = TIMESHARE_ARM_HOLD};
	uint32_t n_slices = 0;

	(void)state;
	learn(&arm, 64, 2000, 3000);
	assert_int_equal(arm.n[TIMESHARE_ARM_HOLD], 16);
	assert_int_equal(arm.n[TIMESHARE_ARM_SLICES], 16);
	for (uint32_t i = 0; i < 2560; i++) {
		enum timeshare_arm_kind kind = preempt_choice_next(&arm);

		n_slices += kind == TIMESHARE_ARM_SLICES;
		preempt_choice_note(&arm, TIMESHARE_WARNING_NONE, kind,
				    (kind == TIMESHARE_ARM_HOLD ? 2000 : 3000) * US, 1);
	}
	assert_int_equal(n_slices, 10);
	/* Holding gets worse; that is seen, and slices are found to be better. */
	learn(&arm, 200, 9000, 3000);
	assert_int_equal(arm.best, TIMESHARE_ARM_SLICES);
	assert_int_equal(preempt_choice_tail(&arm, TIMESHARE_ARM_SLICES), 3000);
}

static void slices_are_preferred_when_they_are_as_good(void **state)
{
	struct timeshare_arm arm = {.best = TIMESHARE_ARM_HOLD};

	(void)state;
	learn(&arm, 64, 2000, 2100);
	assert_int_equal(arm.best, TIMESHARE_ARM_SLICES);
	arm = (struct timeshare_arm){.best = TIMESHARE_ARM_HOLD};
	learn(&arm, 64, 2000, 2200);
	assert_int_equal(arm.best, TIMESHARE_ARM_HOLD);
}

static void one_burst_out_of_line_is_no_tail(void **state)
{
	struct timeshare_arm arm = {.best = TIMESHARE_ARM_HOLD};

	(void)state;
	learn(&arm, 64, 2000, 3000);
	preempt_choice_note(&arm, TIMESHARE_WARNING_NONE, TIMESHARE_ARM_HOLD, S, 1);
	assert_int_equal(preempt_choice_tail(&arm, TIMESHARE_ARM_HOLD), 2000);
	assert_int_equal(arm.best, TIMESHARE_ARM_HOLD);
}

/* Holds that began too late, since hints were not understood yet, tell nothing of holds. */
static void the_first_bursts_of_all_do_not_count_in_the_end(void **state)
{
	struct timeshare_arm arm = {.best = TIMESHARE_ARM_HOLD};

	(void)state;
	learn(&arm, 32, 1800, 1500);
	assert_int_equal(arm.best, TIMESHARE_ARM_SLICES);
	assert_int_equal(arm.n[TIMESHARE_ARM_HOLD] + arm.n[TIMESHARE_ARM_SLICES], 0);
	learn(&arm, 32, 950, 1500);
	assert_int_equal(arm.best, TIMESHARE_ARM_HOLD);
	assert_int_equal(arm.n_noted, 64);
}

static void both_are_tried_again_when_the_better_one_is_not_what_it_was(void **state)
{
	struct timeshare_arm arm = {0};

	(void)state;
	learn(&arm, 64, 5000, 7000);
	assert_int_equal(arm.best, TIMESHARE_ARM_HOLD);
	learn(&arm, 32, 1300, 1100);
	assert_int_equal(arm.n_noted, 32);
	learn(&arm, 32, 1300, 1100);
	assert_int_equal(arm.best, TIMESHARE_ARM_SLICES);
	/* As it is. */
	learn(&arm, 2000, 1300, 1150);
	assert_int_equal(arm.best, TIMESHARE_ARM_SLICES);
	assert_int_equal(arm.n_noted, 2064);
	/* Others have come. */
	learn(&arm, 128, 1300, 1400);
	assert_int_equal(arm.best, TIMESHARE_ARM_HOLD);
}

/* Of the first ones hardly any is seen where nobody is beside. */
static void bursts_of_which_nothing_is_noted_teach_nothing(void **state)
{
	struct timeshare_arm arm = {0};
	uint32_t n_noted = 0;

	(void)state;
	for (uint32_t i = 0; n_noted < 64; i++) {
		enum timeshare_arm_kind kind = preempt_choice_next(&arm);

		if (i < 200 || i % 2)
			continue;
		preempt_choice_note(&arm, TIMESHARE_WARNING_NONE, kind,
				    (kind == TIMESHARE_ARM_HOLD ? 1300 : 1100) * US, 1);
		n_noted++;
	}
	assert_int_equal(arm.n[TIMESHARE_ARM_HOLD], 16);
	assert_int_equal(arm.n[TIMESHARE_ARM_SLICES], 16);
	assert_int_equal(preempt_choice_next(&arm), TIMESHARE_ARM_SLICES);
}

/* Most are alike, some are long: the tails of few differ, and nothing has changed. */
static void chance_is_no_change(void **state)
{
	struct timeshare_arm arm = {0};
	uint32_t n_slices = 0, number = 1;

	(void)state;
	for (uint32_t i = 0; i < 20000; i++) {
		enum timeshare_arm_kind kind = preempt_choice_next(&arm);
		uint64_t us;

		number = number * 1664525 + 1013904223;
		us = 900 + (number >> 16) % 300 + (number >> 28 ? 0 : (number >> 12) % 4000);
		n_slices += kind == TIMESHARE_ARM_SLICES;
		preempt_choice_note(&arm, TIMESHARE_WARNING_NONE, kind,
				    us * (kind == TIMESHARE_ARM_SLICES ? 19 : 10) / 10 * US, 1);
	}
	assert_int_equal(arm.best, TIMESHARE_ARM_HOLD);
	assert_int_equal(arm.gap, 0);
	assert_true(n_slices < 300);
}

/* One burst of either kind in a hundred, or in twelve, is delayed by what has nothing to do with
 * it. */
static void what_delays_both_now_and_then_is_no_reason(void **state)
{
	static const uint32_t one_in[] = {100, 50, 12};
	uint64_t chance = 1;

	(void)state;
	for (size_t i = 0; i < sizeof(one_in) / sizeof(one_in[0]); i++) {
		struct timeshare_arm arm = {0};
		uint32_t n_hold = 0;

		for (uint32_t n = 0; n < 20000; n++) {
			enum timeshare_arm_kind kind = preempt_choice_next(&arm);
			uint64_t us = (kind == TIMESHARE_ARM_HOLD ? 2040 : 2360) +
				      prng_below(&chance, 100);

			if (prng_below(&chance, one_in[i]) == 0)
				us += prng_below(&chance, 1500);
			n_hold += kind == TIMESHARE_ARM_HOLD;
			preempt_choice_note(&arm, TIMESHARE_WARNING_HINT, kind, us * US, 1);
		}
		assert_in_range(n_hold, 18500, 20000);
	}
}

/* That the usual burst is shorter is no comfort when some are much longer. */
static void a_better_median_does_not_make_up_for_a_much_longer_tail(void **state)
{
	static const struct {
		uint64_t hold_us, hold_tail_us, slices_us, slices_tail_us;
		enum timeshare_arm_kind best;
	} rows[] = {
		{2000, 2900, 2400, 2400,
		 TIMESHARE_ARM_HOLD}, /* a tail longer by less than a quarter */
		{2000, 3100, 2400, 2400, TIMESHARE_ARM_SLICES},
		{2000, 2500, 2190, 2300,
		 TIMESHARE_ARM_SLICES}, /* medians that are hardly different */
		{2400, 2400, 2000, 2900, TIMESHARE_ARM_SLICES}, /* the other way round */
		{2400, 2400, 2000, 3100, TIMESHARE_ARM_HOLD},
		{2190, 2300, 2000, 2500, TIMESHARE_ARM_HOLD},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct timeshare_arm arm = {0};

		for (uint32_t n = 0; n < 32; n++) {
			bool is_tail = n % 8 == 0;

			preempt_choice_note(&arm, TIMESHARE_WARNING_NONE, TIMESHARE_ARM_HOLD,
					    (is_tail ? rows[i].hold_tail_us : rows[i].hold_us) * US,
					    1);
			preempt_choice_note(
				&arm, TIMESHARE_WARNING_NONE, TIMESHARE_ARM_SLICES,
				(is_tail ? rows[i].slices_tail_us : rows[i].slices_us) * US, 1);
		}
		assert_int_equal(arm.best, rows[i].best);
	}
}

static void who_is_never_the_same_is_not_tried_all_the_time(void **state)
{
	struct timeshare_arm arm = {.best = TIMESHARE_ARM_HOLD};
	uint32_t n_slices = 0;

	(void)state;
	for (uint32_t i = 0; i < 100000; i++) {
		enum timeshare_arm_kind kind = preempt_choice_next(&arm);

		n_slices += kind == TIMESHARE_ARM_SLICES;
		preempt_choice_note(&arm, TIMESHARE_WARNING_NONE, kind,
				    (1000 + i / 50 % 2 * 1000) *
					    (kind == TIMESHARE_ARM_SLICES ? 3 : 1) * US,
				    1);
	}
	assert_true(n_slices < 1600);
}

/* Who announces its bursts wants them early: less is enough to hold others for them. */
static void an_announced_burst_is_worth_more(void **state)
{
	static const struct {
		uint64_t slices_us;
		enum timeshare_arm_kind plain, hinted;
	} rows[] = {
		{2040, TIMESHARE_ARM_SLICES, TIMESHARE_ARM_SLICES},
		{2060, TIMESHARE_ARM_SLICES, TIMESHARE_ARM_HOLD},
		{2120, TIMESHARE_ARM_HOLD, TIMESHARE_ARM_HOLD},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct timeshare_arm plain = {0}, hinted = {0};

		for (int j = 0; j < 16; j++) {
			preempt_choice_note(&plain, TIMESHARE_WARNING_NONE, TIMESHARE_ARM_HOLD,
					    2000 * US, 1);
			preempt_choice_note(&hinted, TIMESHARE_WARNING_HINT, TIMESHARE_ARM_HOLD,
					    2000 * US, 1);
			preempt_choice_note(&plain, TIMESHARE_WARNING_PAUSE, TIMESHARE_ARM_SLICES,
					    rows[i].slices_us * US, 1);
			preempt_choice_note(&hinted, TIMESHARE_WARNING_HINT, TIMESHARE_ARM_SLICES,
					    rows[i].slices_us * US, 1);
		}
		assert_int_equal(plain.best, rows[i].plain);
		assert_int_equal(hinted.best, rows[i].hinted);
	}
}

/* Which kind had more requests that met each other is chance. */
static void requests_that_meet_in_a_burst_make_it_no_slower(void **state)
{
	struct timeshare_arm arm = {0};

	(void)state;
	for (uint64_t i = 0; i < 64; i++) {
		bool is_double = i % 4 == 0;

		preempt_choice_note(&arm, TIMESHARE_WARNING_NONE, TIMESHARE_ARM_SLICES,
				    (is_double ? 4400 : 2200) * US, is_double ? 40 : 20);
		preempt_choice_note(&arm, TIMESHARE_WARNING_NONE, TIMESHARE_ARM_HOLD, 2700 * US,
				    20);
	}
	assert_int_equal(arm.best, TIMESHARE_ARM_SLICES);
	/* In the end it is a burst that is spoken of; on average they are a little longer. */
	assert_in_range(preempt_choice_tail(&arm, TIMESHARE_ARM_HOLD), 2700, 3200);
	/* What was counted while nobody listened is no burst's. */
	preempt_choice_note(&arm, TIMESHARE_WARNING_NONE, TIMESHARE_ARM_HOLD, 2700 * US, 100000);
	assert_in_range(preempt_choice_tail(&arm, TIMESHARE_ARM_HOLD), 2700, 5000);
}

static void the_tail_is_the_mean_of_the_longest_but_one(void **state)
{
	struct timeshare_arm arm = {.n_noted = 64};

	(void)state;
	assert_int_equal(preempt_choice_tail(&arm, TIMESHARE_ARM_HOLD), 0);
	preempt_choice_note(&arm, TIMESHARE_WARNING_NONE, TIMESHARE_ARM_HOLD, 700 * US, 0);
	assert_int_equal(preempt_choice_tail(&arm, TIMESHARE_ARM_HOLD), 700);
	preempt_choice_note(&arm, TIMESHARE_WARNING_NONE, TIMESHARE_ARM_HOLD, 900 * US, 0);
	assert_int_equal(preempt_choice_tail(&arm, TIMESHARE_ARM_HOLD), 700);
	for (uint64_t i = 0; i < 32; i++)
		preempt_choice_note(&arm, TIMESHARE_WARNING_NONE, TIMESHARE_ARM_HOLD,
				    (i * 7 % 32) * 100 * US, 0);
	assert_int_equal(preempt_choice_tail(&arm, TIMESHARE_ARM_HOLD),
			 2900); /* of 3100, 3000, 2900, 2800 */
	preempt_choice_note(&arm, TIMESHARE_WARNING_NONE, TIMESHARE_ARM_HOLD, 2 * UINT64_MAX / 3,
			    1);
	preempt_choice_note(&arm, TIMESHARE_WARNING_NONE, TIMESHARE_ARM_HOLD, UINT64_MAX,
			    UINT32_MAX);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(the_arm_with_the_shorter_tail_is_used_and_the_other_tried_now_and_then),
		TEST(slices_are_preferred_when_they_are_as_good),
		TEST(one_burst_out_of_line_is_no_tail),
		TEST(the_first_bursts_of_all_do_not_count_in_the_end),
		TEST(both_are_tried_again_when_the_better_one_is_not_what_it_was),
		TEST(bursts_of_which_nothing_is_noted_teach_nothing),
		TEST(chance_is_no_change),
		TEST(what_delays_both_now_and_then_is_no_reason),
		TEST(a_better_median_does_not_make_up_for_a_much_longer_tail),
		TEST(who_is_never_the_same_is_not_tried_all_the_time),
		TEST(an_announced_burst_is_worth_more),
		TEST(requests_that_meet_in_a_burst_make_it_no_slower),
		TEST(the_tail_is_the_mean_of_the_longest_but_one),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
