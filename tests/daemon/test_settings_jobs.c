/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/settings/settings_jobs.h"

#include "daemon/jobs/job_gpus.h"
#include "daemon/settings/settings.h"
#include "util/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static struct settings settings;

static int set(const char *name, const char *value)
{
	char text[SETTINGS_TEXT_LEN];

	return settings_set(&settings, name, value, SETTINGS_TOOL, text);
}

/* What the row prints is taken again, and is the same. */
static void expect_prints(const char *name, const char *expected)
{
	const struct setting *row = settings_find(name, SETTINGS_TOOL);
	char buf[SETTINGS_VALUE_LEN], again[SETTINGS_VALUE_LEN];

	settings_print(row, &settings, buf);
	assert_string_equal(buf, expected);
	assert_int_equal(set(name, buf), 0);
	settings_print(row, &settings, again);
	assert_string_equal(again, expected);
}

static int set_up(void **state)
{
	(void)state;
	settings_default(&settings);
	return 0;
}

static void weights_stand_in_place_of_the_preset(void **state)
{
	struct jobs_config config;

	(void)state;
	settings_jobs_config(&settings.jobs, &config);
	assert_int_equal(config.place.weight_free, 40);
	assert_int_equal(set("job-weights", "free=7,idle=0"), 0);
	expect_prints("job-weights", "free=7,idle=0");
	assert_int_equal(set("job-preset", "simple"), 0);
	settings_jobs_config(&settings.jobs, &config);
	assert_int_equal(config.place.weight_free, 7);
	assert_int_equal(config.place.weight_idle, 0);
	assert_int_equal(config.place.weight_temperature, 10);
	assert_int_equal(set("job-weights", "preset"), 0);
	settings_jobs_config(&settings.jobs, &config);
	assert_int_equal(config.place.weight_free, 0);
	assert_null(jobs_config_check(&config));
}

static void lists_are_whole_or_refused(void **state)
{
	static const struct {
		const char *name, *value;
	} bad[] = {
		{"job-weights", "free"},
		{"job-weights", "free=1001"},
		{"job-weights", "free_gb=101"},
		{"job-weights", "free=1,free=2"},
		{"job-weights", "speed=1"},
		{"job-weights", "free=1,"},
		{"job-weights", ",free=1"},
		{"job-gpus", "x"},
		{"job-gpus", "0,"},
		{"job-gpus", "GPU-xyz"},
		{"job-gpus", "-1"},
		{"job-gpus", "0 1"},
		{"estimate-types", "a=0"},
		{"estimate-types", "a=10001"},
		{"estimate-types", "a=1,a=2"},
		{"estimate-types", "a b=1"},
		{"estimate-models", "m=0"},
		{"estimate-models", "m=17T"},
		{"estimate-models", "m=1G,m=2G"},
		{"estimate-models", "=1G"},
		{"job-preset", "best"},
		{"job-limit-sec", "0"},
		{"job-limit-sec", "0.5"},
		{"job-limit-sec", "31536001"},
		{"job-limit-max-sec", "never"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct settings before = settings;

		assert_int_equal(set(bad[i].name, bad[i].value), SETTINGS_E_BAD);
		assert_memory_equal(&settings, &before, sizeof(before));
	}
}

static void lists_print_as_they_are_taken(void **state)
{
	(void)state;
	expect_prints("job-gpus", "all");
	expect_prints("job-gpus-reserved", "none");
	expect_prints("job-weights", "preset");
	expect_prints("estimate-models", "none");
	expect_prints("estimate-types",
		      "optimization=120,stability=150,heat-capacity=200,bulk-modulus=130");
	assert_int_equal(set("job-gpus", "0,GPU-12ab,MIG-0"), 0);
	expect_prints("job-gpus", "0,GPU-12ab,MIG-0");
	assert_int_equal(set("job-gpus", "all"), 0);
	expect_prints("job-gpus", "all");
	assert_int_equal(set("estimate-models", "net=1G,a/b:c=512MiB"), 0);
	expect_prints("estimate-models", "net=1073741824,a/b:c=536870912");
	assert_int_equal(set("estimate-types", "none"), 0);
	expect_prints("estimate-types", "none");
}

static void limits_go_together(void **state)
{
	char text[SETTINGS_TEXT_LEN];

	(void)state;
	assert_int_equal(settings_check(&settings, text), 0);
	assert_int_equal(set("job-limit-max-sec", "60"), 0);
	assert_int_equal(settings_check(&settings, text), 0);
	assert_int_equal(set("job-limit-sec", "61"), 0);
	assert_int_equal(settings_check(&settings, text), SETTINGS_E_BAD);
	assert_non_null(strstr(text, "NVSHARE_JOB_LIMIT_SEC"));
}

static void a_limit_is_for_all_jobs_only_where_it_is_set(void **state)
{
	static const struct {
		const char *limit, *max;
		uint64_t limit_sec, max_sec; /* limit_sec 0: none */
	} cases[] = {
		{"none", "none", 0, 86400},      {"none", "7200", 7200, 7200},
		{"none", "86400", 86400, 86400}, {"3600", "none", 3600, 86400},
		{"3600", "7200", 3600, 7200},    {"172800", "none", 172800, 172800},
	};
	struct jobs_config config;

	(void)state;
	expect_prints("job-limit-sec", "none");
	expect_prints("job-limit-max-sec", "none");
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_equal(set("job-limit-sec", cases[i].limit), 0);
		assert_int_equal(set("job-limit-max-sec", cases[i].max), 0);
		expect_prints("job-limit-sec", cases[i].limit);
		settings_jobs_config(&settings.jobs, &config);
		assert_true(config.limit_ns == (cases[i].limit_sec
							? cases[i].limit_sec * CLOCK_NS_PER_SEC
							: JOBS_NO_LIMIT));
		assert_true(config.limit_max_ns == cases[i].max_sec * CLOCK_NS_PER_SEC);
		assert_null(jobs_config_check(&config));
	}
}

static void lists_of_gpus_have_one_form(void **state)
{
	static const char *const good[] = {
		"", "0", "0,15", "GPU-8", "MIG-1-2,3", "GPU-6e767368-6172-6500-7369-6d6770750000"};
	static const char *const bad[] = {
		",",      "0,",
		",0",     "0,,1",
		"GPU",    "gpu-1",
		"GPU-8 ", "1e3",
		"99999",  "GPU-6e767368-6172-6500-7369-6d677075000000000000000"};

	(void)state;
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
		assert_true(job_gpus_is_list(good[i]));
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_false(job_gpus_is_list(bad[i]));
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup(f, set_up)
	const struct CMUnitTest tests[] = {
		TEST(weights_stand_in_place_of_the_preset),
		TEST(lists_are_whole_or_refused),
		TEST(lists_print_as_they_are_taken),
		TEST(limits_go_together),
		TEST(a_limit_is_for_all_jobs_only_where_it_is_set),
		TEST(lists_of_gpus_have_one_form),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
