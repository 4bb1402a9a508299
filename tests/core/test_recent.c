/* SPDX-License-Identifier: Apache-2.0 */
#include "core/timeshare/recent.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#define MS  1000000ull
#define SEC (1000 * MS)

/* A total of so much is noted, or what it has grown by is read. */
struct step {
	uint64_t at_ms;
	uint64_t total;
	uint64_t growth, window_ms; /* 0: a note */
};

static const struct step first_second[] = {
	{1200, 100, 0, 0},    {1200, 100, 0, 1000},
	{1500, 107, 0, 0},    {1500, 107, 7, 1000}, /* not 7 in 300 ms */
	{3200, 107, 7, 2000},
};

static const struct step what_is_old_goes[] = {
	{1000, 0, 0, 0},       {1500, 10, 0, 0},      {5500, 30, 0, 0},
	{10999, 30, 30, 9999}, {11000, 30, 20, 9000}, {14999, 30, 20, 9999},
	{15000, 30, 0, 9000},  {16500, 31, 0, 0},     {16500, 31, 1, 9500},
};

/* Each second has its place, once around and more. */
static const struct step each_second[] = {
	{1500, 1, 0, 0},      {2500, 2, 0, 0},       {3500, 3, 0, 0},   {4500, 4, 0, 0},
	{5500, 5, 0, 0},      {6500, 6, 0, 0},       {7500, 7, 0, 0},   {8500, 8, 0, 0},
	{9500, 9, 0, 0},      {10500, 10, 0, 0},     {11500, 11, 0, 0}, {11500, 11, 10, 9500},
	{12500, 12, 0, 0},    {12500, 12, 10, 9500}, {13500, 13, 0, 0}, {13500, 13, 10, 9500},
	{25000, 13, 0, 9000},
};

/* A gap as long as the ring, and longer ones. */
static const struct step gaps[] = {
	{1500, 1, 0, 0},       {12500, 5, 0, 0}, /* eleven seconds: the same place in the ring */
	{12500, 5, 4, 9500},   {21999, 5, 4, 9999},   {22999, 5, 0, 9999},   {1000000, 9, 0, 0},
	{1000000, 9, 4, 9000}, {1009999, 9, 4, 9999}, {1010000, 9, 0, 9000},
};

static const struct {
	const struct step *steps;
	size_t n;
} tables[] = {
	{first_second, sizeof(first_second) / sizeof(first_second[0])},
	{what_is_old_goes, sizeof(what_is_old_goes) / sizeof(what_is_old_goes[0])},
	{each_second, sizeof(each_second) / sizeof(each_second[0])},
	{gaps, sizeof(gaps) / sizeof(gaps[0])},
};

static void the_growth_is_that_of_the_window(void **state)
{
	(void)state;
	for (size_t t = 0; t < sizeof(tables) / sizeof(tables[0]); t++) {
		struct recent recent = {.begin_ns = 0};

		for (size_t i = 0; i < tables[t].n; i++) {
			const struct step *step = &tables[t].steps[i];
			uint64_t totals[RECENT_TOTAL_COUNT_] = {step->total, 0, 3 * step->total, 0};
			uint64_t growth[RECENT_TOTAL_COUNT_], window_ns;

			if (!step->window_ms) {
				recent_note(&recent, totals, step->at_ms * MS);
				continue;
			}
			window_ns = recent_growth(&recent, totals, step->at_ms * MS, growth);
			if (growth[0] != step->growth || window_ns != step->window_ms * MS)
				fail_msg("table %zu, step %zu: %llu in %llu ns", t, i,
					 (unsigned long long)growth[0],
					 (unsigned long long)window_ns);
			assert_int_equal(growth[1], 0);
			assert_int_equal(growth[2], 3 * step->growth);
		}
	}
}

/* Against all notes, of times that chance has chosen. */
static void it_forgets_nothing_of_the_window(void **state)
{
	enum { NOTES = 20000 };
	static uint64_t at_ns[NOTES], totals_at[NOTES];
	struct recent recent = {.begin_ns = 0};
	uint64_t now_ns = 5 * SEC, total = 0, from_ns, growth[RECENT_TOTAL_COUNT_], window_ns;
	size_t first = 0;

	(void)state;
	srandom(27);
	for (size_t i = 0; i < NOTES; i++) {
		uint64_t totals[RECENT_TOTAL_COUNT_] = {total, total, total, total};

		at_ns[i] = now_ns;
		totals_at[i] = total;
		recent_note(&recent, totals, now_ns);
		window_ns = recent_growth(&recent, totals, now_ns, growth);
		from_ns = now_ns - window_ns;
		while (first < i && at_ns[first + 1] < from_ns)
			first++;
		if (at_ns[0] < from_ns) {
			assert_true(window_ns >= 9 * SEC && window_ns <= 10 * SEC);
			assert_int_equal(growth[0], total - totals_at[first]);
		}
		total += (uint64_t)random() % 5;
		now_ns += (uint64_t)random() % (i % 100 == 0 ? 30 * SEC : SEC);
	}
}

static void nothing_noted_is_nothing(void **state)
{
	struct recent recent = {.begin_ns = 0};
	uint64_t totals[RECENT_TOTAL_COUNT_] = {0}, growth[RECENT_TOTAL_COUNT_];

	(void)state;
	assert_true(recent_growth(&recent, totals, 100 * SEC, growth) >= SEC);
	for (size_t i = 0; i < RECENT_TOTAL_COUNT_; i++)
		assert_int_equal(growth[i], 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_growth_is_that_of_the_window),
		cmocka_unit_test(it_forgets_nothing_of_the_window),
		cmocka_unit_test(nothing_noted_is_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
