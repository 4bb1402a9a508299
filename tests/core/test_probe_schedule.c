/* SPDX-License-Identifier: Apache-2.0 */

/* Which bursts are asked whether they are on the GPU, and what holds for the others. */

#include "core/meter/probe_schedule.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define US 1000ull
#define MS 1000000ull

static struct probe_schedule asked;
static uint64_t n_calls, ran_ns;

static int forget(void **state)
{
	(void)state;
	asked = (struct probe_schedule){0};
	n_calls = 0;
	ran_ns = 0;
	return 0;
}

/*
 * A burst of n calls, the first of which shows that it begins. Each runs us, as is found if it
 * is asked; it has busy_ns of work. ret_ns: what was counted.
 */
static bool burst(uint32_t n, uint64_t us, uint64_t busy_ns, uint64_t *ret_ns)
{
	uint64_t before_ns = ran_ns;
	bool is_asked;

	n_calls++;
	probe_schedule_begin(&asked, false, n_calls, ran_ns);
	is_asked = asked.is_now;
	for (uint32_t i = 0; i < n; i++) {
		n_calls += i > 0;
		ran_ns += is_asked ? us * US : probe_schedule_part(&asked, busy_ns / n, n_calls);
	}
	probe_schedule_end(&asked, n_calls, ran_ns);
	if (ret_ns)
		*ret_ns = ran_ns - before_ns;
	return is_asked;
}

static void the_first_bursts_are_asked_and_then_few(void **state)
{
	uint32_t n = 0;

	(void)state;
	for (uint32_t i = 0; i < ASKED_FIRST; i++)
		assert_true(burst(2, 500, MS, NULL));
	for (uint32_t i = ASKED_FIRST; i < 10 * ASKED_EVERY; i++)
		n += burst(2, 500, MS, NULL);
	assert_int_equal(n, 9);
	/* Others have come, or gone. */
	(void)burst(2, 500, MS, NULL);
	probe_schedule_forget(&asked);
	assert_true(burst(2, 500, MS, NULL));
	/* In no hurry: each. */
	for (uint32_t i = 0; i < 3 * ASKED_EVERY; i++) {
		probe_schedule_begin(&asked, true, n_calls, ran_ns);
		assert_true(asked.is_now);
	}
}

static void learn(uint32_t n, uint64_t us)
{
	probe_schedule_forget(&asked);
	while (burst(n, us, n * us * US, NULL))
		continue;
}

static void what_their_calls_run_holds_for_those_of_others(void **state)
{
	static const struct {
		uint32_t learned_calls;
		uint64_t learned_us;
		uint32_t n;
		uint64_t busy_us, ran_us;
	} rows[] = {
		{1, 200, 1, 200, 200},      {20, 100, 20, 2000, 2000},
		{20, 100, 20, 5000, 2000}, /* it waits more than those that were asked */
		{20, 100, 40, 4000, 4000}, /* a request of twice as many */
		{300, 10, 600, 6000, 6000},
	};

	(void)state;
	assert_int_equal(probe_schedule_part(&asked, MS, 1), MS); /* nothing is known yet */
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		uint64_t ns, all_ns = 0;

		learn(rows[i].learned_calls, rows[i].learned_us);
		for (uint32_t j = 0; j < 20; j++) {
			assert_false(burst(rows[i].n, 0, rows[i].busy_us * US, &ns));
			all_ns += ns;
		}
		assert_in_range(all_ns, 20 * rows[i].ran_us * US * 98 / 100,
				20 * rows[i].ran_us * US * 102 / 100);
	}
}

static void nothing_runs_without_work(void **state)
{
	uint64_t ns, all_ns = 0;

	(void)state;
	learn(10, 100);
	for (uint32_t i = 0; i < 40; i++) {
		assert_false(burst(10, 0, MS / 2, &ns));
		all_ns += ns;
	}
	assert_in_range(all_ns, 20 * MS, 20 * MS + ASKED_SLACK_NS);
}

static void it_changes_and_so_does_what_is_learned(void **state)
{
	uint64_t ns;

	(void)state;
	learn(10, 100);
	for (uint32_t i = 0; i < 300 * ASKED_EVERY; i++)
		(void)burst(10, 300, 4 * MS, NULL);
	while (burst(10, 300, 4 * MS, &ns))
		continue;
	assert_in_range(ns, 2950 * US, 3050 * US);
	/* What was counted by it is not learned from. */
	ns = asked.ran_ns;
	assert_false(burst(10, 300, 4 * MS, NULL));
	assert_int_equal(asked.ran_ns, ns);
}

static void what_is_far_off_is_learned_anew(void **state)
{
	uint64_t ns;

	(void)state;
	learn(1, 1000);
	for (uint32_t i = 0; i < ASKED_WRONG * ASKED_EVERY; i++)
		(void)burst(1, 8000, 10 * MS, NULL);
	while (burst(1, 8000, 10 * MS, &ns))
		continue;
	assert_in_range(ns, 7900 * US, 8100 * US);
	assert_in_range(asked.n, ASKED_FIRST, ASKED_FIRST + ASKED_EVERY);
	/* Looks by chance find all or nothing of a short burst: that is not far off. */
	learn(1, 200);
	for (uint32_t i = 0; i < 20 * ASKED_EVERY; i++)
		(void)burst(1, i / ASKED_EVERY % 2 ? 500 : 0, MS, NULL);
	assert_int_equal(asked.n, ASKED_FIRST + 1 + 20 * ASKED_EVERY);
	/* Nor is one alone. */
	learn(1, 1000);
	for (uint32_t i = 0; i < 20 * ASKED_EVERY; i++)
		(void)burst(1, i / ASKED_EVERY % 10 == 5 ? 8000 : 1000, 10 * MS, NULL);
	assert_int_equal(asked.n, ASKED_FIRST + 1 + 20 * ASKED_EVERY);
}

/* Minutes in each burst, all calls that there are, and none. */
static void nothing_overflows(void **state)
{
	const uint64_t minutes_ns = 600 * 1000 * MS;
	uint64_t ns;

	(void)state;
	for (uint64_t i = 0; i < 50000; i++) {
		probe_schedule_begin(&asked, true, i << 40, i * minutes_ns);
		probe_schedule_end(&asked, (i + 1) << 40, (i + 1) * minutes_ns);
	}
	probe_schedule_begin(&asked, false, 50000ull << 40, 0);
	ns = probe_schedule_part(&asked, minutes_ns, UINT64_MAX);
	assert_in_range(ns, minutes_ns * 9 / 10, minutes_ns + ASKED_SLACK_NS);
	asked.n = UINT32_MAX;
	probe_schedule_begin(&asked, false, 0, 0);
	assert_int_equal(asked.n, UINT32_MAX);
	/* Bursts of copies alone, which are no calls. */
	probe_schedule_forget(&asked);
	probe_schedule_begin(&asked, true, 0, 0);
	probe_schedule_end(&asked, 0, MS);
	probe_schedule_begin(&asked, false, 0, MS);
	assert_int_equal(probe_schedule_part(&asked, MS, 0), MS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(the_first_bursts_are_asked_and_then_few, forget),
		cmocka_unit_test_setup(what_their_calls_run_holds_for_those_of_others, forget),
		cmocka_unit_test_setup(nothing_runs_without_work, forget),
		cmocka_unit_test_setup(it_changes_and_so_does_what_is_learned, forget),
		cmocka_unit_test_setup(what_is_far_off_is_learned_anew, forget),
		cmocka_unit_test_setup(nothing_overflows, forget),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
