/* SPDX-License-Identifier: Apache-2.0 */

/* Estimates of memory: the formula, what is learned, and the record. */

#include "core/place/estimate.h"
#include "core/place/estimate_record.h"
#include "util/prng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define MIB (1ull << 20)
#define N   8

static struct estimate estimate;
static struct estimate_entry entries[N];

static void estimate_reset(void)
{
	struct estimate_config config;

	estimate_config_default(&config);
	assert_null(estimate_config_check(&config));
	config.n_models = 1;
	config.models[0].base_bytes = 10000 * MIB;
	assert_int_equal(place_name_set("large", 5, &config.models[0].name), 0);
	estimate_init(&estimate, entries, N, &config);
}

static struct estimate_work work_of(const char *model, const char *type, int64_t units)
{
	struct estimate_work work = {.owner = 1, .has_units = units >= 0};

	work.units = units >= 0 ? (uint64_t)units : 0;
	assert_int_equal(place_name_set(model, strlen(model), &work.model), 0);
	assert_int_equal(place_name_set(type, strlen(type), &work.type), 0);
	return work;
}

static uint64_t mib_of(const struct estimate_work *work)
{
	estimate_assert_valid(&estimate);
	return estimate_bytes(&estimate, work, NULL) / MIB;
}

static void unknown_work_gets_the_formula(void **state)
{
	static const struct {
		const char *model, *type;
		int64_t units;
		uint64_t mib;
	} table[] = {
		{"", "", -1, 4000},
		{"m", "", -1, 5000}, /* 500 units */
		{"", "other", -1, 5000},
		{"", "", 10, 4020},
		{"", "", 0, 4000},
		{"m", "", 1000, 6000},
		{"m", "optimization", -1, 6000},
		{"m", "stability", -1, 7500},
		{"m", "heat-capacity", -1, 10000},
		{"m", "bulk-modulus", -1, 6500},
		{"large", "", 0, 10000},
		{"large", "stability", 1000, 18000},
		{"m", "", ESTIMATE_UNITS_MAX, 2000004000},
	};
	enum estimate_source source;

	(void)state;
	estimate_reset();
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		struct estimate_work work = work_of(table[i].model, table[i].type, table[i].units);
		uint64_t most = ESTIMATE_BYTES_MAX / MIB;

		assert_int_equal(mib_of(&work), table[i].mib < most ? table[i].mib : most);
		(void)estimate_bytes(&estimate, &work, &source);
		assert_int_equal(source, ESTIMATE_FORMULA);
	}
}

static void the_same_units_get_their_peak(void **state)
{
	struct estimate_work work = work_of("m", "", 100);
	enum estimate_source source;

	(void)state;
	estimate_reset();
	estimate_learn(&estimate, &work, 8000 * MIB);
	assert_int_equal(mib_of(&work), 8000);
	(void)estimate_bytes(&estimate, &work, &source);
	assert_int_equal(source, ESTIMATE_LEARNED);
	estimate_learn(&estimate, &work, 4000 * MIB); /* less counts by a quarter */
	assert_int_equal(mib_of(&work), 7000);
	estimate_learn(&estimate, &work, 9000 * MIB); /* more counts at once */
	assert_int_equal(mib_of(&work), 9000);
	estimate_learn(&estimate, &work, 0); /* no news */
	assert_int_equal(mib_of(&work), 9000);
}

static void other_units_get_the_nearest_peak_scaled(void **state)
{
	struct estimate_work small = work_of("m", "", 0), large = work_of("m", "", 8000);
	struct estimate_work other = work_of("m", "", 2000);
	enum estimate_source source;

	(void)state;
	estimate_reset();
	estimate_learn(&estimate, &small, 1000 * MIB);  /* formula: 4000 */
	estimate_learn(&estimate, &large, 40000 * MIB); /* formula: 20000 */
	assert_in_range(mib_of(&other), 1999, 2000);    /* 8000 * 1000 / 4000 */
	other.units = 6000;
	assert_in_range(mib_of(&other), 31999, 32000); /* 16000 * 40000 / 20000 */
	(void)estimate_bytes(&estimate, &other, &source);
	assert_int_equal(source, ESTIMATE_SCALED);
	other.units = ESTIMATE_UNITS_MAX;
	assert_int_equal(estimate_bytes(&estimate, &other, NULL), ESTIMATE_BYTES_MAX);
	assert_int_equal(mib_of(&small), 1000);
}

static void what_one_owner_teaches_counts_for_that_owner_alone(void **state)
{
	struct estimate_work mine = work_of("m", "", 0), yours = mine, typed = mine;

	(void)state;
	estimate_reset();
	yours.owner = 2;
	typed.type = work_of("", "stability", 0).type;
	estimate_learn(&estimate, &mine, 1000 * MIB);
	assert_int_equal(mib_of(&mine), 1000);
	assert_int_equal(mib_of(&yours), 4000);
	assert_int_equal(mib_of(&typed), 6000);
}

static void an_out_of_memory_end_raises_the_estimate(void **state)
{
	struct estimate_work work = work_of("m", "", 0);

	(void)state;
	estimate_reset();
	/* 1.2 times the largest of the estimate, what it was placed with, and its peak */
	assert_int_equal(estimate_learn_oom(&estimate, &work, 0, 0, ESTIMATE_BYTES_MAX),
			 4800 * MIB);
	assert_int_equal(mib_of(&work), 4800);
	assert_int_equal(estimate_learn_oom(&estimate, &work, 5000 * MIB, 0, ESTIMATE_BYTES_MAX),
			 6000 * MIB);
	assert_int_equal(estimate_learn_oom(&estimate, &work, 0, 10000 * MIB, ESTIMATE_BYTES_MAX),
			 12000 * MIB);
	assert_int_equal(estimate_learn_oom(&estimate, &work, 0, 0, 13000 * MIB), 13000 * MIB);
	assert_int_equal(mib_of(&work), 13000); /* within the largest card */
}

static void work_without_a_name_teaches_nothing(void **state)
{
	struct estimate_work work = work_of("", "", -1);

	(void)state;
	estimate_reset();
	estimate_learn(&estimate, &work, 40000 * MIB);
	assert_int_equal(mib_of(&work), 4000);
	assert_int_equal(estimate_learn_oom(&estimate, &work, 5000 * MIB, 0, ESTIMATE_BYTES_MAX),
			 6000 * MIB);
	assert_int_equal(mib_of(&work), 4000);
	assert_int_equal(estimate.used.n, 0);
}

static void the_least_recently_used_work_is_forgotten(void **state)
{
	struct estimate_work work = work_of("m", "", 0);

	(void)state;
	estimate_reset();
	for (uint32_t owner = 0; owner < N; owner++) {
		work.owner = owner;
		estimate_learn(&estimate, &work, 100 * MIB);
	}
	work.owner = 0;
	estimate_learn(&estimate, &work, 100 * MIB);
	work.owner = N;
	estimate_learn(&estimate, &work, 100 * MIB);
	assert_int_equal(mib_of(&work), 100);
	work.owner = 0;
	assert_int_equal(mib_of(&work), 100);
	work.owner = 1;
	assert_int_equal(mib_of(&work), 4000);
}

static void the_oldest_units_of_a_work_are_forgotten(void **state)
{
	struct estimate_work work = work_of("m", "", 0);
	enum estimate_source source;

	(void)state;
	estimate_reset();
	for (work.units = 0; work.units <= ESTIMATE_POINTS; work.units++)
		estimate_learn(&estimate, &work, 100 * MIB);
	for (work.units = 0; work.units <= ESTIMATE_POINTS; work.units++) {
		(void)estimate_bytes(&estimate, &work, &source);
		assert_int_equal(source, work.units == 0 ? ESTIMATE_SCALED : ESTIMATE_LEARNED);
	}
}

static void a_config_out_of_range_is_named(void **state)
{
	struct estimate_config config;

	(void)state;
	estimate_config_default(&config);
	config.oom_percent = 99;
	assert_string_equal(estimate_config_check(&config), "oom_percent");
	estimate_config_default(&config);
	config.types[3].percent = 0;
	assert_string_equal(estimate_config_check(&config), "types");
	estimate_config_default(&config);
	config.n_models = 1;
	assert_string_equal(estimate_config_check(&config), "models");
	config.n_models = ESTIMATE_MODELS_MAX + 1;
	assert_string_equal(estimate_config_check(&config), "n_models");
}

/* ---- the record ---------------------------------------------------------------- */

static void a_name_is_checked(void **state)
{
	struct place_name name = {"before"};
	char text[PLACE_NAME_LEN + 1];

	(void)state;
	memset(text, 'a', sizeof(text));
	assert_int_equal(place_name_set(text, PLACE_NAME_LEN, &name), PLACE_NAME_E_LONG);
	assert_int_equal(place_name_set("a b", 3, &name), PLACE_NAME_E_BYTE);
	assert_int_equal(place_name_set("a\x7f", 2, &name), PLACE_NAME_E_BYTE);
	assert_int_equal(place_name_set("\xc3\xa4", 2, &name), PLACE_NAME_E_BYTE);
	assert_int_equal(place_name_set("a\0", 2, &name), PLACE_NAME_E_BYTE);
	assert_string_equal(name.text, "before");
	assert_int_equal(place_name_set(text, PLACE_NAME_LEN - 1, &name), 0);
	assert_true(place_name_is_set(&name));
	assert_int_equal(place_name_set("", 0, &name), 0);
	assert_false(place_name_is_set(&name));
}

static void a_record_is_text(void **state)
{
	static const char text[] = "nvshare-estimates 1\n"
				   "1 meta/llama-3 - 10 1048576\n"
				   "1 meta/llama-3 - 0 2097152\n"
				   "4294967295 --x -- 1000000000 17592186044416\n"
				   "end 3\n";
	char written[ESTIMATE_RECORD_MAX(N)];
	uint32_t line;
	size_t len;

	(void)state;
	estimate_reset();
	assert_int_equal(estimate_record_read(&estimate, text, sizeof(text) - 1, &line), 0);
	estimate_assert_valid(&estimate);
	len = estimate_record_write(&estimate, UINT32_MAX, written, sizeof(written));
	assert_int_equal(len, sizeof(text) - 1);
	assert_memory_equal(written, text, len);
	assert_string_equal(entries[estimate.used.last].model.text, "-x");
	assert_string_equal(entries[estimate.used.last].type.text, "-");
}

static void a_record_comes_back_as_it_was(void **state)
{
	static struct estimate before;
	static struct estimate_entry before_entries[N];
	char text[ESTIMATE_RECORD_MAX(N)], again[ESTIMATE_RECORD_MAX(N)];
	uint64_t seed = 1;
	uint32_t line;
	size_t len;

	(void)state;
	for (int run = 0; run < 200; run++) {
		estimate_reset();
		for (uint64_t i = prng_below(&seed, 60); i > 0; i--) {
			static const char *const names[] = {"", "a", "-", "--b", "~"};
			struct estimate_work work = work_of(names[prng_below(&seed, 5)],
							    names[prng_below(&seed, 5)], -1);

			work.owner = (uint32_t)prng_below(&seed, 2);
			work.units = prng_below(&seed, 8);
			work.has_units = true;
			estimate_learn(&estimate, &work, prng_next(&seed));
		}
		len = estimate_record_write(&estimate, UINT32_MAX, text, sizeof(text));
		before = estimate;
		memcpy(before_entries, entries, sizeof(entries));
		estimate_reset();
		assert_int_equal(estimate_record_read(&estimate, text, len, &line), 0);
		estimate_assert_valid(&estimate);
		assert_int_equal(estimate.used.n, before.used.n);
		assert_int_equal(estimate_record_write(&estimate, UINT32_MAX, again, sizeof(again)),
				 len);
		assert_memory_equal(again, text, len);
		/* It may be cut anywhere, and is refused then. */
		estimate_reset();
		len = prng_below(&seed, len);
		assert_int_not_equal(estimate_record_read(&estimate, text, len, &line), 0);
		assert_int_equal(estimate.used.n, 0);
	}
}

static void a_bad_record_changes_nothing_and_its_line_is_named(void **state)
{
#define H "nvshare-estimates 1\n"
#define P "1 a b 2 3\n"
	static const struct {
		const char *text;
		int outcome;
		uint32_t line;
	} table[] = {
		{"", ESTIMATE_RECORD_E_VERSION, 1},
		{"nvshare-estimates 2\nend 0\n", ESTIMATE_RECORD_E_VERSION, 1},
		{"nvshare-estimates 1", ESTIMATE_RECORD_E_VERSION, 1},
		{H, ESTIMATE_RECORD_E_CUT, 2},
		{H P, ESTIMATE_RECORD_E_CUT, 3},
		{H P "end 0\n", ESTIMATE_RECORD_E_CUT, 3},
		{H P "end 2\n", ESTIMATE_RECORD_E_CUT, 3},
		{H P "end 1", ESTIMATE_RECORD_E_CUT, 3},
		{H P "end 1\n\n", ESTIMATE_RECORD_E_CUT, 3},
		{H P "end 01\n", ESTIMATE_RECORD_E_CUT, 3},
		{H P "1 a b 2\nend 2\n", ESTIMATE_RECORD_E_LINE, 3},
		{H P "1 a b 2 3 4\nend 2\n", ESTIMATE_RECORD_E_LINE, 3},
		{H P "\nend 2\n", ESTIMATE_RECORD_E_LINE, 3},
		{H "4294967296 a b 2 3\nend 1\n", ESTIMATE_RECORD_E_LINE, 2},
		{H "-1 a b 2 3\nend 1\n", ESTIMATE_RECORD_E_LINE, 2},
		{H "1 -a b 2 3\nend 1\n", ESTIMATE_RECORD_E_LINE, 2},
		{H "1  b 2 3\nend 1\n", ESTIMATE_RECORD_E_LINE, 2},
		{H "1 a\tb b 2 3\nend 1\n", ESTIMATE_RECORD_E_LINE, 2},
		{H "1 a b 1000000001 3\nend 1\n", ESTIMATE_RECORD_E_LINE, 2},
		{H "1 a b 2 0\nend 1\n", ESTIMATE_RECORD_E_LINE, 2},
		{H "1 a b 2 17592186044417\nend 1\n", ESTIMATE_RECORD_E_LINE, 2},
		{H "1 a b 2 18446744073709551617\nend 1\n", ESTIMATE_RECORD_E_LINE, 2},
		{H "1 a b +2 3\nend 1\n", ESTIMATE_RECORD_E_LINE, 2},
	};
	char record[512];
	uint32_t line;

	(void)state;
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		size_t len = strlen(table[i].text);

		estimate_reset();
		memcpy(record, table[i].text, len);
		assert_int_equal(estimate_record_read(&estimate, record, len, &line),
				 table[i].outcome);
		assert_int_equal(line, table[i].line);
		assert_int_equal(estimate.used.n, 0);
	}
}

static void a_long_record_leaves_the_most_recent_work(void **state)
{
	static struct estimate_entry many[2 * N];
	struct estimate all;
	struct estimate_work work = work_of("m", "", 0);
	char text[ESTIMATE_RECORD_MAX(2 * N)];
	uint32_t line;

	(void)state;
	estimate_reset();
	estimate_init(&all, many, 2 * N, &estimate.config);
	for (work.owner = 0; work.owner < 2 * N; work.owner++)
		estimate_learn(&all, &work, 100 * MIB);
	assert_int_equal(
		estimate_record_read(&estimate, text,
				     estimate_record_write(&all, UINT32_MAX, text, sizeof(text)),
				     &line),
		0);
	for (work.owner = 0; work.owner < 2 * N; work.owner++)
		assert_int_equal(mib_of(&work), work.owner < N ? 4000 : 100);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(unknown_work_gets_the_formula),
		cmocka_unit_test(the_same_units_get_their_peak),
		cmocka_unit_test(other_units_get_the_nearest_peak_scaled),
		cmocka_unit_test(what_one_owner_teaches_counts_for_that_owner_alone),
		cmocka_unit_test(an_out_of_memory_end_raises_the_estimate),
		cmocka_unit_test(work_without_a_name_teaches_nothing),
		cmocka_unit_test(the_least_recently_used_work_is_forgotten),
		cmocka_unit_test(the_oldest_units_of_a_work_are_forgotten),
		cmocka_unit_test(a_config_out_of_range_is_named),
		cmocka_unit_test(a_name_is_checked),
		cmocka_unit_test(a_record_is_text),
		cmocka_unit_test(a_record_comes_back_as_it_was),
		cmocka_unit_test(a_bad_record_changes_nothing_and_its_line_is_named),
		cmocka_unit_test(a_long_record_leaves_the_most_recent_work),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
