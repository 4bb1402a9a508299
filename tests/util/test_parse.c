/* SPDX-License-Identifier: Apache-2.0 */
#include "util/parse.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define N(array)  (sizeof(array) / sizeof((array)[0]))
#define UNTOUCHED 0xdeadbeefull

static void numbers_are_whole_strings_within_bounds(void **state)
{
	static const struct {
		const char *s;
		int r;
		uint64_t value;
	} table[] = {
		{"5", 0, 5},
		{"10", 0, 10},
		{"007", 0, 7},
		{"4", -ERANGE, 0},
		{"11", -ERANGE, 0},
		{"18446744073709551616", -ERANGE, 0},
		{"99999999999999999999x", -EINVAL, 0},
		{"", -EINVAL, 0},
		{" 5", -EINVAL, 0},
		{"5 ", -EINVAL, 0},
		{"+5", -EINVAL, 0},
		{"-5", -EINVAL, 0},
		{"0x5", -EINVAL, 0},
		{"5.0", -EINVAL, 0},
	};
	uint64_t max;

	(void)state;
	for (size_t i = 0; i < N(table); i++) {
		uint64_t value = UNTOUCHED;

		print_message("'%s'\n", table[i].s);
		assert_int_equal(parse_u64(table[i].s, 5, 10, &value), table[i].r);
		assert_int_equal(value, table[i].r ? UNTOUCHED : table[i].value);
	}
	assert_int_equal(parse_u64("18446744073709551615", 0, UINT64_MAX, &max), 0);
	assert_true(max == UINT64_MAX);
}

static void sizes_know_binary_and_decimal_units(void **state)
{
	static const struct {
		const char *s;
		int r;
		uint64_t value;
	} table[] = {
		{"512", 0, 512},
		{"512B", 0, 512},
		{"64KiB", 0, 65536},
		{"64kib", 0, 65536},
		{"1.5 GiB", 0, 1610612736},
		{"20G", 0, 20ull << 30},
		{"20GB", 0, 20000000000},
		{"0.5K", 0, 512},
		{"2T", 0, 2ull << 40},
		{"1TB", 0, 1000000000000},
		{"0", 0, 0},
		{"1.5", -EINVAL, 0},
		{"1.", -EINVAL, 0},
		{".5G", -EINVAL, 0},
		{"1.0000000001G", -EINVAL, 0},
		{"G", -EINVAL, 0},
		{"1  G", -EINVAL, 0},
		{"1 G ", -EINVAL, 0},
		{"-1G", -EINVAL, 0},
		{"1X", -EINVAL, 0},
		{"1e3", -EINVAL, 0},
		{"99999999T", -ERANGE, 0},
	};

	(void)state;
	for (size_t i = 0; i < N(table); i++) {
		uint64_t value = UNTOUCHED;

		print_message("'%s'\n", table[i].s);
		assert_int_equal(parse_size(table[i].s, &value), table[i].r);
		assert_int_equal(value, table[i].r ? UNTOUCHED : table[i].value);
	}
}

static void percent_is_of_the_total(void **state)
{
	uint64_t value = UNTOUCHED;

	(void)state;
	assert_int_equal(parse_size_or_percent("101%", 1000, &value), -ERANGE);
	assert_int_equal(parse_size_or_percent("100.1%", 1000, &value), -ERANGE);
	assert_int_equal(parse_size_or_percent("%", 1000, &value), -EINVAL);
	assert_int_equal(parse_size_or_percent("50%%", 1000, &value), -EINVAL);
	assert_int_equal(value, UNTOUCHED);
	assert_int_equal(parse_size_or_percent("50%", 1000, &value), 0);
	assert_int_equal(value, 500);
	assert_int_equal(parse_size_or_percent("12.5 %", 1ull << 40, &value), 0);
	assert_int_equal(value, 1ull << 37);
	assert_int_equal(parse_size_or_percent("100%", UINT64_MAX, &value), 0);
	assert_true(value == UINT64_MAX);
	assert_int_equal(parse_size_or_percent("1K", 1000, &value), 0);
	assert_int_equal(value, 1024);
}

static void seconds_have_fractions(void **state)
{
	uint64_t ns = UNTOUCHED;

	(void)state;
	assert_int_equal(parse_seconds("0.2", 1, UINT64_MAX, &ns), 0);
	assert_int_equal(ns, 200000000);
	assert_int_equal(parse_seconds("30", 0, UINT64_MAX, &ns), 0);
	assert_int_equal(ns, 30000000000);
	assert_int_equal(parse_seconds("0.000000001", 0, UINT64_MAX, &ns), 0);
	assert_int_equal(ns, 1);
	assert_int_equal(parse_seconds("0", 1, UINT64_MAX, &ns), -ERANGE);
	assert_int_equal(parse_seconds("2", 1, 1999999999, &ns), -ERANGE);
	assert_int_equal(parse_seconds("99999999999999", 0, UINT64_MAX, &ns), -ERANGE);
	assert_int_equal(parse_seconds("1s", 0, UINT64_MAX, &ns), -EINVAL);
	assert_int_equal(parse_seconds("-1", 0, UINT64_MAX, &ns), -EINVAL);
	assert_int_equal(parse_seconds("", 0, UINT64_MAX, &ns), -EINVAL);
	assert_int_equal(parse_seconds("nan", 0, UINT64_MAX, &ns), -EINVAL);
	assert_int_equal(ns, 1);
}

static void truth_has_eight_words(void **state)
{
	static const char *const yes[] = {"1", "yes", "true", "on", "ON", "True"};
	static const char *const no[] = {"0", "no", "false", "off", "OFF"};
	static const char *const bad[] = {"", "2", "y", "yes ", "enable"};
	bool value;

	(void)state;
	for (size_t i = 0; i < N(yes); i++) {
		value = false;
		assert_int_equal(parse_bool(yes[i], &value), 0);
		assert_true(value);
	}
	for (size_t i = 0; i < N(no); i++) {
		value = true;
		assert_int_equal(parse_bool(no[i], &value), 0);
		assert_false(value);
	}
	for (size_t i = 0; i < N(bad); i++)
		assert_int_equal(parse_bool(bad[i], &value), -EINVAL);
}

static void enums_are_found_by_name(void **state)
{
	static const char *const names[] = {"auto", "serial"};
	unsigned int i = 9;

	(void)state;
	assert_int_equal(parse_enum("seria", names, 2, &i), -EINVAL);
	assert_int_equal(parse_enum("", names, 2, &i), -EINVAL);
	assert_int_equal(i, 9);
	assert_int_equal(parse_enum("Serial", names, 2, &i), 0);
	assert_int_equal(i, 1);
}

static void sizes_are_shown_with_one_digit(void **state)
{
	static const struct {
		uint64_t bytes;
		const char *text;
	} table[] = {
		{0, "0 B"},
		{1023, "1023 B"},
		{1024, "1.0 KiB"},
		{1536, "1.5 KiB"},
		{(1 << 20) - 1, "1.0 MiB"},
		{1ull << 30, "1.0 GiB"},
		{(3ull << 30) / 2, "1.5 GiB"},
		{139ull << 30, "139.0 GiB"},
		{1023ull << 30, "1023.0 GiB"},
		{UINT64_MAX, "16.0 EiB"},
	};
	char buf[32];

	(void)state;
	for (size_t i = 0; i < N(table); i++)
		assert_string_equal(format_size(table[i].bytes, buf, sizeof(buf)), table[i].text);
}

static void errno_is_kept(void **state)
{
	uint64_t value;

	(void)state;
	errno = EXDEV;
	(void)parse_u64("99999999999999999999", 0, 1, &value);
	(void)parse_size("1X", &value);
	assert_int_equal(errno, EXDEV);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(numbers_are_whole_strings_within_bounds),
		cmocka_unit_test(sizes_know_binary_and_decimal_units),
		cmocka_unit_test(percent_is_of_the_total),
		cmocka_unit_test(seconds_have_fractions),
		cmocka_unit_test(truth_has_eight_words),
		cmocka_unit_test(enums_are_found_by_name),
		cmocka_unit_test(sizes_are_shown_with_one_digit),
		cmocka_unit_test(errno_is_kept),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
