/* SPDX-License-Identifier: Apache-2.0 */

/* Which bursts are asked whether they are on the GPU, and what holds for the others. */

#include "core/client/asked.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define MS 1000000ull

static struct asked asked;
static uint64_t busy_ns, ran_ns;

static int forget(void **state)
{
	(void)state;
	asked = (struct asked){0};
	busy_ns = 0;
	ran_ns = 0;
	return 0;
}

/* A burst of 1 ms, of which permille run; what is not asked runs as much as was learned. */
static bool burst(uint32_t permille)
{
	bool is_asked;

	asked_begin(&asked, false, busy_ns, ran_ns);
	is_asked = asked.is_now;
	busy_ns += MS;
	ran_ns += is_asked ? MS * permille / 1000 : asked_part(&asked, MS);
	asked_end(&asked, busy_ns, ran_ns);
	return is_asked;
}

static void the_first_bursts_are_asked_and_then_few(void **state)
{
	uint32_t n = 0;

	(void)state;
	for (uint32_t i = 0; i < ASKED_FIRST; i++)
		assert_true(burst(500));
	for (uint32_t i = ASKED_FIRST; i < 10 * ASKED_EVERY; i++)
		n += burst(500);
	assert_int_equal(n, 9);
	/* Others have come, or gone. */
	(void)burst(500);
	asked_forget(&asked);
	assert_true(burst(500));
	/* In no hurry: each. */
	for (uint32_t i = 0; i < 3 * ASKED_EVERY; i++) {
		asked_begin(&asked, true, busy_ns, ran_ns);
		assert_true(asked.is_now);
	}
}

static void their_part_holds_for_the_others(void **state)
{
	uint64_t sum_ns;

	(void)state;
	assert_int_equal(asked_part(&asked, MS), MS); /* nothing is known yet */
	for (uint32_t i = 0; i < 2 * ASKED_EVERY; i++)
		(void)burst(400);
	assert_in_range(asked_part(&asked, MS), MS * 39 / 100, MS * 40 / 100);
	/* What was counted by that part is not learned from. */
	assert_true(burst(400));
	sum_ns = asked.busy_ns;
	assert_false(burst(400));
	assert_int_equal(asked.busy_ns, sum_ns);
	/* It changes, and so does the part. */
	for (uint32_t i = 0; i < 300 * ASKED_EVERY; i++)
		(void)burst(900);
	assert_in_range(asked_part(&asked, MS), MS * 89 / 100, MS * 90 / 100);
	asked_forget(&asked);
	assert_int_equal(asked_part(&asked, MS), MS);
	(void)burst(200);
	assert_in_range(asked_part(&asked, MS), MS * 19 / 100, MS * 20 / 100);
}

/* Minutes in each burst, and a year of them. */
static void nothing_overflows(void **state)
{
	const uint64_t minutes_ns = 600 * 1000 * MS;

	(void)state;
	for (uint64_t i = 0; i < 50000; i++) {
		asked_begin(&asked, true, i * minutes_ns, i * minutes_ns / 2);
		asked_end(&asked, (i + 1) * minutes_ns, (i + 1) * minutes_ns / 2);
	}
	assert_in_range(asked_part(&asked, MS), MS * 49 / 100, MS * 51 / 100);
	asked.n = UINT32_MAX;
	asked_begin(&asked, false, 0, 0);
	assert_int_equal(asked.n, UINT32_MAX);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(the_first_bursts_are_asked_and_then_few, forget),
		cmocka_unit_test_setup(their_part_holds_for_the_others, forget),
		cmocka_unit_test_setup(nothing_overflows, forget),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
