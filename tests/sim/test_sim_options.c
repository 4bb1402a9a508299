/* SPDX-License-Identifier: Apache-2.0 */

#include "sim/sim_options.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static int parse(const char *first, const char *second, struct sim_options *ret, char *text)
{
	char a[64], b[64];
	char *args[] = {a, second ? b : NULL, NULL};

	(void)snprintf(a, sizeof(a), "%s", first);
	(void)snprintf(b, sizeof(b), "%s", second ? second : "");
	text[0] = '\0';
	return sim_options_parse(args, ret, text);
}

static void what_is_wrong_is_named(void **state)
{
	static const struct {
		const char *first, *second, *named;
	} cases[] = {
		{"--mod", NULL, "--mod"},   {"--mode", "fast", "fast"},
		{"--mode", NULL, "--mode"}, {"--be", "16", "16"},
		{"--be", "-1", "-1"},       {"--lc-rate", "ten", "ten"},
		{"--lc-service", "0", "0"}, {"--seconds", "1", "1"},
		{"--pieces", "0", "0"},     {"--lc-dist", "normal", "normal"},
		{"--slice", "99", "99"},    {"file", NULL, "file"},
	};
	struct sim_options options = {.lc_rate = 77};
	char text[SIM_OPTIONS_TEXT_LEN];

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_equal(parse(cases[i].first, cases[i].second, &options, text),
				 SIM_OPTIONS_E_BAD);
		assert_non_null(strstr(text, cases[i].named));
		assert_true(options.lc_rate > 76);
	}
}

static void what_is_right_is_taken(void **state)
{
	struct sim_options options;
	char text[SIM_OPTIONS_TEXT_LEN];

	(void)state;
	assert_int_equal(parse("--mode", "hint", &options, text), 0);
	assert_true(options.config.mode == ENGINE_MODE_HINT && !options.is_every_mode);
	assert_int_equal(parse("--mode", "all", &options, text), 0);
	assert_true(options.is_every_mode);
	assert_int_equal(parse("--lc-rate", "2.5", &options, text), 0);
	assert_true(options.lc_rate > 2.49 && options.lc_rate < 2.51);
	assert_int_equal(parse("--freeze", "700", &options, text), 0);
	assert_int_equal(options.config.freeze_ns, 700000);
	assert_int_equal(parse("--be", "15", &options, text), 0);
	assert_int_equal(options.config.n_be, 15);
	assert_int_equal(parse("--csv", NULL, &options, text), 0);
	assert_true(options.is_csv);
	assert_int_equal(parse("--help", NULL, &options, text), SIM_OPTIONS_E_HELP);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_wrong_is_named),
		cmocka_unit_test(what_is_right_is_taken),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
