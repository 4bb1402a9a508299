/* SPDX-License-Identifier: Apache-2.0 */

/* Of the time with work, what has run. */

#include "core/meter/runtime_estimate.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define MS 1000000ull

static struct runtime_estimate ran;

static int forget(void **state)
{
	(void)state;
	ran = (struct runtime_estimate){0};
	return 0;
}

/*
 * What one look after the other finds, a letter each, each that counts standing for 1 ms:
 * H on the GPU; h asked, and not on it; w the same, the old question being still open;
 * A answered between two looks; E the work ends, unanswered; T with the answer; W some time
 * after it.
 */
static uint64_t follow(const char *looks, bool counts)
{
	for (; *looks; looks++) {
		switch (*looks) {
		case 'H':
			runtime_asked(&ran);
			runtime_found(&ran);
			runtime_count(&ran, MS, true);
			break;
		case 'h':
			runtime_asked(&ran);
			runtime_count(&ran, MS, false);
			break;
		case 'w':
			runtime_count(&ran, MS, false);
			break;
		case 'A':
			runtime_answered(&ran);
			break;
		case 'E':
			runtime_ended(&ran, false, false, counts);
			break;
		case 'T':
			runtime_ended(&ran, true, false, counts);
			break;
		case 'W':
			runtime_ended(&ran, true, true, counts);
			break;
		}
	}
	return ran.ns;
}

static void counts_what_ran(void **state)
{
	static const struct {
		const char *looks;
		uint64_t beside; /* ms of four, its own part being a quarter */
		uint64_t alone;
		const char *why;
	} rows[] = {
		{"HHHH", 16, 16, "on the GPU each time"},
		{"hE", 4, 4, "a short graph: the GPU had all of it"},
		{"hwwE", 12, 12, "a longer one"},
		{"hT", 4, 4, "both at once"},
		{"hW", 0, 4, "it had waited until shortly before its end"},
		{"hwwA", 0, 12, "it waits still, or is on the GPU by now: not since it was asked"},
		{"hwwAH", 4, 16, "and was found there then"},
		{"hAhA", 1, 8, "answered twice in a row: a slice of its own in between"},
		{"hAhAhA", 2, 12, "three times"},
		{"hAEhA", 0, 8, "the work had ended in between"},
		{"hAHhA", 4, 12, "found there in between: that was the slice"},
		{"HhwHhwH", 12, 28, "in turns"},
		{"hh", 0, 4, "the second is not known yet"},
		{"hAhE", 4, 8, "the end of a short one, whatever was before"},
		{"hAhEwA", 4, 12, "what begins while the question is open was never answered"},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		uint64_t beside, alone;

		forget(state);
		assert_true(runtime_set_use(&ran, 250000));
		beside = follow(rows[i].looks, true);
		forget(state);
		assert_false(runtime_set_use(&ran, 0));
		alone = follow(rows[i].looks, true);
		if (beside != rows[i].beside * MS / 4 || alone != rows[i].alone * MS / 4)
			fail_msg("%s, %s: %llu and %llu us", rows[i].looks, rows[i].why,
				 (unsigned long long)beside / 1000,
				 (unsigned long long)alone / 1000);
	}
}

static void what_ended_is_decided(void **state)
{
	(void)state;
	(void)runtime_set_use(&ran, 500000);
	(void)follow("hW", true);
	assert_int_equal(ran.maybe_ns, 0);
	assert_int_equal(follow("E", true), 0);
	/* An end at which nothing was asked says nothing. */
	assert_int_equal(follow("HET", true), MS);
	assert_int_equal(ran.n_together, 0);
}

static void who_always_ends_with_the_answer_is_blind(void **state)
{
	(void)state;
	(void)runtime_set_use(&ran, 500000);
	for (uint32_t i = 1; i < RAN_TOGETHER_MAX; i++)
		(void)follow("hT", true);
	assert_false(ran.is_blind);
	/* One look that finds it on the GPU, or one that finds it waiting, and they begin anew. */
	(void)follow("H", true);
	for (uint32_t i = 1; i < RAN_TOGETHER_MAX; i++)
		(void)follow("hT", true);
	(void)follow("hW", true);
	for (uint32_t i = 1; i < RAN_TOGETHER_MAX; i++)
		(void)follow("hT", true);
	(void)follow("hA", true);
	for (uint32_t i = 1; i < RAN_TOGETHER_MAX; i++)
		(void)follow("hT", true);
	assert_false(ran.is_blind);
	(void)follow("hT", true);
	assert_true(ran.is_blind);
}

/* Looked at finely most ends come with the answer; and who is alone waits for nobody. */
static void but_not_in_a_hurry_nor_alone(void **state)
{
	(void)state;
	(void)runtime_set_use(&ran, 500000);
	for (uint32_t i = 0; i < 2 * RAN_TOGETHER_MAX; i++)
		(void)follow("hT", false);
	assert_false(ran.is_blind);
	(void)runtime_set_use(&ran, 0);
	for (uint32_t i = 0; i < 2 * RAN_TOGETHER_MAX; i++)
		(void)follow("hT", true);
	assert_false(ran.is_blind);
}

static void others_come_and_go(void **state)
{
	(void)state;
	assert_false(runtime_set_use(&ran, 0));
	assert_true(runtime_set_use(&ran, 2000000));
	assert_int_equal(ran.use_ppm, RAN_PPM);
	assert_false(runtime_set_use(&ran, 100));
	assert_true(runtime_set_use(&ran, 0));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(counts_what_ran, forget),
		cmocka_unit_test_setup(what_ended_is_decided, forget),
		cmocka_unit_test_setup(who_always_ends_with_the_answer_is_blind, forget),
		cmocka_unit_test_setup(but_not_in_a_hurry_nor_alone, forget),
		cmocka_unit_test_setup(others_come_and_go, forget),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
