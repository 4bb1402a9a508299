/* SPDX-License-Identifier: Apache-2.0 */
#include "slurm/submit_options.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define N(array) (sizeof(array) / sizeof((array)[0]))

#define LONG_NAME "0123456789012345678901234567890123456789012345678901234567890123"

static void values_are_checked(void **state)
{
	static const struct {
		enum submit_option option;
		const char *value;
		int r;
	} table[] = {
		{SUBMIT_OPTION_PRIORITY, "high", 0},
		{SUBMIT_OPTION_PRIORITY, "highest", -EINVAL},
		{SUBMIT_OPTION_PRIORITY, "", -EINVAL},
		{SUBMIT_OPTION_MEMORY, "1.5GiB", 0},
		{SUBMIT_OPTION_MEMORY, "0", -ERANGE},
		{SUBMIT_OPTION_MEMORY, "20X", -EINVAL},
		{SUBMIT_OPTION_MEMORY, "-1", -EINVAL},
		{SUBMIT_OPTION_MEMORY, "99999999999999999999", -ERANGE},
		{SUBMIT_OPTION_WEIGHT, "1", 0},
		{SUBMIT_OPTION_WEIGHT, "0", -ERANGE},
		{SUBMIT_OPTION_WEIGHT, "10001", -ERANGE},
		{SUBMIT_OPTION_WEIGHT, "1e3", -EINVAL},
		{SUBMIT_OPTION_CLASS, "critical", 0},
		{SUBMIT_OPTION_CLASS, "crit", -EINVAL},
		{SUBMIT_OPTION_MODEL, "llama-70b/chat", 0},
		{SUBMIT_OPTION_MODEL, "", -ERANGE},
		{SUBMIT_OPTION_MODEL, LONG_NAME, -ERANGE},
		{SUBMIT_OPTION_MODEL, "two words", -EINVAL},
		{SUBMIT_OPTION_MODEL, "\033[2J", -EINVAL},
		{SUBMIT_OPTION_GANG, "train/8", 0},
		{SUBMIT_OPTION_GANG, LONG_NAME, 0},
		{SUBMIT_OPTION_GANG, "off", 0},
		{SUBMIT_OPTION_GANG, "", -ERANGE},
		{SUBMIT_OPTION_GANG, LONG_NAME LONG_NAME, -ERANGE},
		{SUBMIT_OPTION_GANG, "two words", -EINVAL},
	};

	(void)state;
	for (size_t i = 0; i < N(table); i++) {
		struct submit_options options, before;

		submit_options_init(&options);
		before = options;
		if (submit_options_set(&options, table[i].option, table[i].value) != table[i].r)
			fail_msg("'%s' of option %u", table[i].value, table[i].option);
		assert_int_equal(options.is_on, table[i].r == 0);
		if (table[i].r)
			assert_memory_equal(&options, &before, sizeof(options));
	}
}

static void the_last_value_counts(void **state)
{
	struct submit_options options;

	(void)state;
	submit_options_init(&options);
	assert_int_equal(options.priority, NVSHARE_PRIORITY_COUNT);
	assert_int_equal(options.claimed_class, NVSHARE_PRIORITY_COUNT);
	assert_int_equal(submit_options_set(&options, SUBMIT_OPTION_PRIORITY, "low"), 0);
	assert_int_equal(submit_options_set(&options, SUBMIT_OPTION_PRIORITY, "HIGH"), 0);
	assert_int_equal(submit_options_set(&options, SUBMIT_OPTION_MEMORY, "20GiB"), 0);
	assert_int_equal(submit_options_set(&options, SUBMIT_OPTION_CLASS, "low"), 0);
	assert_int_equal(submit_options_set(&options, SUBMIT_OPTION_WEIGHT, "7"), 0);
	assert_int_equal(submit_options_set(&options, SUBMIT_OPTION_MODEL, "m"), 0);
	assert_int_equal(options.priority, NVSHARE_PRIORITY_HIGH);
	assert_int_equal(options.memory, 20ull << 30);
	assert_int_equal(options.claimed_class, NVSHARE_PRIORITY_LOW);
	assert_int_equal(options.weight, 7);
	assert_string_equal(options.model, "m");
}

static void nvshare_alone_needs_no_value(void **state)
{
	struct submit_options options;

	(void)state;
	submit_options_init(&options);
	assert_int_equal(submit_options_set(&options, SUBMIT_OPTION_NVSHARE, NULL), 0);
	assert_true(options.is_on);
}

static void a_refusal_names_option_variable_and_value(void **state)
{
	char text[256];

	(void)state;
	assert_string_equal(
		submit_options_refusal(SUBMIT_OPTION_WEIGHT, "x", text, sizeof(text)),
		"--nvshare-weight (or SLURM_NVSHARE_WEIGHT) needs a whole number from 1 to "
		"10000, and 'x' is none");
}

static void slurm_reads_an_option_from_its_own_variable(void **state)
{
	char name[128];

	(void)state;
	assert_string_equal(submit_options_variable(SUBMIT_OPTION_MEMORY, name, sizeof(name)),
			    "SLURM_SPANK__SLURM_SPANK_OPTION_nvshare_nvshare_memory");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(values_are_checked),
		cmocka_unit_test(the_last_value_counts),
		cmocka_unit_test(nvshare_alone_needs_no_value),
		cmocka_unit_test(a_refusal_names_option_variable_and_value),
		cmocka_unit_test(slurm_reads_an_option_from_its_own_variable),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
