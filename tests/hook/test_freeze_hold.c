/* SPDX-License-Identifier: Apache-2.0 */

/* Keeping off only what computes, for a while; and making a freeze of that. */

#include "lib/fake_rm.h"

/* 4 channels that compute and 3 that copy. */
static void make_both(void)
{
	fake_rm_make_channels(GROUP, 4);
	fake_rm_make_copy_group(0x300);
	fake_rm_make_channels(0x300, 3);
}

static void a_hold_takes_off_only_what_computes(void **unused)
{
	(void)unused;
	make_both();
	assert_int_equal(freeze_begin_compute(UINT64_MAX), 0);
	assert_int_equal(fake_rm_n_off(), 4);
	assert_int_equal(freeze_end(), 0);
	assert_int_equal(fake_rm_n_off(), 0);
	clock_nap(6 * CLOCK_NS_PER_MS);
	assert_int_equal(freeze_begin(UINT64_MAX), 0);
	assert_int_equal(fake_rm_n_off(), 7);
	assert_int_equal(freeze_begin_compute(UINT64_MAX), FREEZE_E_BUSY);
	assert_int_equal(freeze_end(), 0);
	assert_int_equal(fake_rm_n_off(), 0);
}

static void holds_have_no_pause_between_them(void **unused)
{
	(void)unused;
	make_both();
	for (int i = 0; i < 10; i++) {
		assert_int_equal(freeze_begin_compute(UINT64_MAX), 0);
		assert_int_equal(freeze_end(), 0);
		assert_int_equal(freeze_begin(UINT64_MAX), FREEZE_E_BUSY);
		assert_int_equal(freeze_end(), 0);
	}
}

static void a_hold_that_is_widened_is_a_freeze(void **unused)
{
	(void)unused;
	make_both();
	assert_false(freeze_widen(CLOCK_NS_PER_SEC));
	assert_int_equal(freeze_begin_compute(UINT64_MAX), 0);
	assert_true(freeze_widen(60 * CLOCK_NS_PER_SEC));
	assert_int_equal(fake_rm_n_off(), 7);
	assert_true(freeze_commit());
	assert_int_equal(freeze_end(), 0);
	assert_int_equal(fake_rm_n_off(), 0);
}

static void widening_that_is_refused_thaws(void **unused)
{
	(void)unused;
	make_both();
	assert_int_equal(freeze_begin_compute(CLOCK_NS_PER_SEC), 0);
	fake_rm.refuse_from = fake_rm.n_controls + 1;
	assert_false(freeze_widen(CLOCK_NS_PER_SEC));
	assert_int_equal(fake_rm_n_off(), 0);
	assert_false(freeze_is_on());
}

static bool was_on;

/* As if its time were over in the worst moment: while the rest is taken off. */
static void expire_now(void)
{
	freeze_expire(freeze_epoch());
	was_on = freeze_is_on();
}

/* Else somebody would make a context, or destroy one, with channels off. */
static void nothing_thaws_in_the_middle_of_widening(void **unused)
{
	(void)unused;
	make_both();
	assert_int_equal(freeze_begin_compute(60 * CLOCK_NS_PER_SEC), 0);
	fake_rm.meanwhile = expire_now;
	assert_true(freeze_widen(60 * CLOCK_NS_PER_SEC));
	assert_true(was_on);
	assert_int_equal(fake_rm_n_off(), 7);
	expire_now();
	assert_false(was_on);
	assert_int_equal(fake_rm_n_off(), 0);
}

static void widening_that_comes_too_late_leaves_nothing_off(void **unused)
{
	(void)unused;
	make_both();
	assert_int_equal(freeze_begin_compute(60 * CLOCK_NS_PER_SEC), 0);
	expire_now();
	assert_false(freeze_widen(60 * CLOCK_NS_PER_SEC));
	assert_int_equal(fake_rm_n_off(), 0);
	assert_false(freeze_is_on());
}

static void widening_has_an_end_too(void **unused)
{
	(void)unused;
	make_both();
	assert_int_equal(freeze_begin_compute(60 * CLOCK_NS_PER_SEC), 0);
	assert_true(freeze_widen(CLOCK_NS_PER_MS));
	fake_rm_await_thaw();
	assert_int_equal(fake_rm_n_off(), 0);
}

static void what_is_born_in_a_hold_comes_back_with_it(void **unused)
{
	(void)unused;
	make_both();
	assert_int_equal(freeze_begin_compute(UINT64_MAX), 0);
	fake_rm_make_copy_group(0x400);
	fake_rm_make_channels(0x400, 2);
	assert_int_equal(fake_rm_n_off(), 6);
	assert_int_equal(freeze_end(), 0);
	assert_int_equal(fake_rm_n_off(), 0);
}

static void calls_do_not_wait_while_only_computing_is_held(void **unused)
{
	(void)unused;
	make_both();
	assert_int_equal(freeze_begin_compute(UINT64_MAX), 0);
	assert_true(freeze_enter());
	assert_true(freeze_widen(60 * CLOCK_NS_PER_SEC));
	assert_int_equal(fake_rm_n_off(), 7);
	freeze_leave();
	assert_true(freeze_commit());
	freeze_stop();
	assert_false(freeze_enter());
	assert_int_equal(freeze_end(), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_hold_takes_off_only_what_computes),
		TEST(holds_have_no_pause_between_them),
		TEST(a_hold_that_is_widened_is_a_freeze),
		TEST(widening_that_is_refused_thaws),
		TEST(nothing_thaws_in_the_middle_of_widening),
		TEST(widening_that_comes_too_late_leaves_nothing_off),
		TEST(widening_has_an_end_too),
		TEST(what_is_born_in_a_hold_comes_back_with_it),
		TEST(calls_do_not_wait_while_only_computing_is_held),
	};

	return fake_rm_run_all_apart(tests, sizeof(tests) / sizeof(tests[0]));
}
