/* SPDX-License-Identifier: Apache-2.0 */

/* When a burst is over. */

#include "core/meter/burst_end.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define US     1000ull
#define MOST   (500 * US)
#define LEAST  (MOST / QUIET_PART)
#define PAUSED (120 * US)

static struct burst_end quiet;

/* n bursts, each with one pause. */
static void bursts(uint32_t n, uint64_t pause_ns)
{
	for (uint32_t i = 0; i < n; i++) {
		burst_end_note_pause(&quiet, pause_ns, MOST);
		burst_end_note_end(&quiet);
	}
}

static int forget(void **state)
{
	(void)state;
	quiet = (struct burst_end){0};
	return 0;
}

static void nothing_is_known_of_the_first(void **state)
{
	(void)state;
	assert_int_equal(burst_end_ns(&quiet, 0, MOST), MOST);
	bursts(QUIET_BURSTS - 1, 0);
	assert_int_equal(burst_end_ns(&quiet, 0, MOST), MOST);
	bursts(1, 0);
	assert_int_equal(burst_end_ns(&quiet, 0, MOST), LEAST);
}

static void it_is_twice_what_pauses_take(void **state)
{
	(void)state;
	bursts(QUIET_BURSTS, PAUSED);
	assert_int_equal(burst_end_ns(&quiet, 0, MOST), 2 * PAUSED);
	bursts(QUIET_BURSTS, 300 * US);
	assert_int_equal(burst_end_ns(&quiet, 0, MOST), MOST);
	/* The longest of a burst counts. */
	forget(state);
	for (uint32_t i = 0; i < QUIET_BURSTS; i++) {
		burst_end_note_pause(&quiet, PAUSED, MOST);
		burst_end_note_pause(&quiet, PAUSED / 2, MOST);
		burst_end_note_end(&quiet);
	}
	assert_int_equal(burst_end_ns(&quiet, 0, MOST), 2 * PAUSED);
}

static void one_long_pause_may_be_chance_and_two_are_not(void **state)
{
	(void)state;
	bursts(3 * QUIET_BURSTS + 7, 0);
	bursts(1, 400 * US);
	assert_int_equal(burst_end_ns(&quiet, 0, MOST), LEAST);
	burst_end_note_pause(&quiet, 240 * US, MOST); /* known before that burst has ended */
	assert_int_equal(burst_end_ns(&quiet, 0, MOST), 480 * US);
	burst_end_note_end(&quiet);
	assert_int_equal(burst_end_ns(&quiet, 0, MOST), 480 * US);
	bursts(QUIET_BURSTS - 2, 0);
	assert_int_equal(burst_end_ns(&quiet, 0, MOST), 480 * US);
	bursts(2, 0);
	assert_int_equal(burst_end_ns(&quiet, 0, MOST), LEAST);
}

static void what_comes_later_is_no_pause(void **state)
{
	(void)state;
	bursts(QUIET_BURSTS, MOST + 1);
	assert_int_equal(burst_end_ns(&quiet, 0, MOST), LEAST);
	bursts(2, MOST);
	assert_int_equal(burst_end_ns(&quiet, 0, MOST), MOST);
}

static void after_a_long_burst_it_is_longer(void **state)
{
	static const struct {
		uint64_t burst_ns, quiet_ns;
	} rows[] = {
		{1, LEAST},
		{LEAST * QUIET_LONG, LEAST},
		{1200 * US, 150 * US},
		{3200 * US, 400 * US},
		{4000 * US, MOST},
		{UINT64_MAX, MOST},
	};

	(void)state;
	bursts(QUIET_BURSTS, 0);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		assert_int_equal(burst_end_ns(&quiet, rows[i].burst_ns, MOST), rows[i].quiet_ns);
	bursts(QUIET_BURSTS, PAUSED);
	assert_int_equal(burst_end_ns(&quiet, 1200 * US, MOST), 2 * PAUSED);
	assert_int_equal(burst_end_ns(&quiet, 3200 * US, MOST), 400 * US);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(nothing_is_known_of_the_first, forget),
		cmocka_unit_test_setup(it_is_twice_what_pauses_take, forget),
		cmocka_unit_test_setup(one_long_pause_may_be_chance_and_two_are_not, forget),
		cmocka_unit_test_setup(what_comes_later_is_no_pause, forget),
		cmocka_unit_test_setup(after_a_long_burst_it_is_longer, forget),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
