/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/settings/config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct settings settings;
static struct settings_report report;

/* The settings and the report of a file with these bytes. */
static void take(const char *bytes)
{
	char text[CONFIG_FILE_TEXT_LEN];
	struct config_file file;

	settings_default(&settings);
	report = (struct settings_report){.n_lines = 0};
	assert_int_equal(config_file_parse("f", bytes, strlen(bytes), &file, text), 0);
	config_take(&settings, "f", &file, &report);
	config_file_deinit(&file);
}

static const char *value_of(const char *name)
{
	static char value[SETTINGS_VALUE_LEN];
	const struct setting *setting = settings_find(name, SETTINGS_FILE);

	assert_non_null(setting);
	settings_print(setting, &settings, value);
	return value;
}

static const char *origin_of(const char *name)
{
	return settings_origin(settings_find(name, SETTINGS_FILE), &settings);
}

static const struct {
	const char *bytes, *name, *value, *origin;
} good[] = {
	{"tq: 5\n", "quantum_sec", "5", "f:1"},
	{"\nquantum_sec: 0.5\n", "tq", "0.5", "f:2"},
	{"anti_thrash: off\n", "anti_thrash", "0", "f:1"},
	{"slice_levels: {high: 900, low: 300}\n", "slice_levels",
	 "critical=5000000,high=900,normal=500,low=300", "f:1"},
	{"slice_levels: high=900\n", "slice_levels", "critical=5000000,high=900,normal=500,low=200",
	 "f:1"},
	{"priority_max:\n  - low\n  - uid:7=high\n", "priority_max", "low,uid:7=high", "f:1"},
	{"priority_max:\n  uid:7: high\n", "priority_max", "normal,uid:7=high", "f:1"},
	{"gpus:\n  GPU-8d0a1b2c-3d4e-5f60-7182-93a4b5c6d7e8: 80GiB\n", "gpus",
	 "GPU-8d0a1b2c-3d4e-5f60-7182-93a4b5c6d7e8=85899345920", "f:1"},
	{"gpus: none\n", "gpus", "none", "f:1"},
	{"hold: true\n", "quantum_sec", "30", "built-in"},
	{"preemption: {enabled: false}\n", "hold", "0", "f:1"},
	{"preemption:\n  resources:\n    max_context_memory_mb: 2\n", "context_memory_max",
	 "2097152", "f:3"},
	{"preemption: {monitoring: {enabled: true, prometheus_port: 9090}}\n", "http_address",
	 "127.0.0.1:9090", "f:1"},
	{"preemption: {monitoring: {enabled: false, prometheus_port: 9090}}\n", "http_address", "0",
	 "f:1"},
	{"preemption: {monitoring: {prometheus_port: 0}}\n", "http_address", "0", "f:1"},
	/* The class wins over the kind of task, wherever it stands. */
	{"preemption:\n  priorities: [{name: critical, timeslice_us: 700}]\n"
	 "  timeslice: {lc_task_us: 900}\n",
	 "slice_levels", "critical=700,high=1000,normal=500,low=200", "f:2"},
};

static void keys_set_what_they_say(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
		take(good[i].bytes);
		assert_int_equal(report.n_lines, 0);
		assert_string_equal(value_of(good[i].name), good[i].value);
		assert_string_equal(origin_of(good[i].name), good[i].origin);
	}
}

static const struct {
	const char *bytes, *text;
} bad[] = {
	{"x:\n  y: 1\n", "f:1: there is no setting 'x'; nvshare.yaml(5) lists them"},
	{"config: /x\n", "f:1: there is no setting 'config'; nvshare.yaml(5) lists them"},
	{"tq:\n", "f:1: tq has no value"},
	{"tq: 0\n", "f:1: tq is '0'; allowed is seconds from 0.01 to 86400"},
	{"tq: [5]\n", "f:1: tq is a single value"},
	{"tq: 5\nquantum_sec: 5\n", "f:2: line 1 has the same setting as quantum_sec"},
	{"priority_max: [[low]]\n", "f:1: priority_max is a single value, or one level of them"},
	{"scheduler: 5\n", "f:1: scheduler is '5'; allowed is a section"},
	{"scheduler:\n", "f:1: scheduler is empty; allowed is a section"},
	{"scheduler: [5]\n", "f:1: scheduler is a list or a section; allowed is a section"},
	{"scheduler: {gpu_ids: 5}\n", "f:1: scheduler.gpu_ids is '5'; allowed is a list"},
	{"scheduler: {gpu_ids: [x]}\n",
	 "f:1: scheduler.gpu_ids[0] is 'x'; allowed is a whole number"},
	{"preemption: {timeslice: {x: {y: 1}}}\n",
	 "f:1: there is no preemption.timeslice.x; allowed are lc_task_us, be_task_us,"
	 " min_timeslice_us, max_timeslice_us"},
	{"preemption: {enabled: maybe}\n",
	 "f:1: preemption.enabled is 'maybe'; allowed is true or false"},
	{"preemption: {scheduling: {policy: fifo}}\n",
	 "f:1: preemption.scheduling.policy is 'fifo'; allowed is one of priority, fair, credit,"
	 " deadline"},
	{"preemption: {monitoring: {prometheus_port: 65536}}\n",
	 "f:1: preemption.monitoring.prometheus_port is '127.0.0.1:65536'; allowed is ADDRESS:PORT,"
	 " [IPV6]:PORT or unix:/PATH, at most two with a comma; or 0: off"},
	{"preemption: {priorities: [{timeslice_us: 100}]}\n",
	 "f:1: preemption.priorities[0].timeslice_us has no name beside it"},
	{"preemption: {priorities: [{name: top}]}\n",
	 "f:1: preemption.priorities[0].name is 'top'; allowed is one of critical, high, normal,"
	 " low"},
};

static void bad_keys_and_values_are_named_by_line(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		take(bad[i].bytes);
		assert_int_equal(report.n_errors, 1);
		assert_string_equal(report.lines[0].text, bad[i].text);
	}
}

static void every_error_is_said(void **state)
{
	(void)state;
	take("tq: 0\nx: 1\nscheduler: {y: 1, z: 2}\nhold: 7\n");
	assert_int_equal(report.n_errors, 5);
	assert_int_equal(report.n_lines, 5);
}

static void a_key_that_does_not_apply_is_said_once(void **state)
{
	(void)state;
	take("preemption: {priorities: [{level: 0}, {level: 1}]}\n");
	assert_int_equal(report.n_errors, 0);
	assert_int_equal(report.n_lines, 1);
	assert_string_equal(
		report.lines[0].text,
		"f:1: preemption.priorities[0].level is left out: the classes have their"
		" order by name: critical, high, normal, low");
}

static void a_list_is_one_value(void **state)
{
	(void)state;
	take("scheduler: {gpu_ids: [0, 1, 5], reserved_gpu_ids: []}\n");
	assert_int_equal(report.n_errors, 0);
	assert_int_equal(report.n_lines, 0);
	assert_string_equal(settings.jobs.gpus, "0,1,5");
	assert_string_equal(settings.jobs.reserved, "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(keys_set_what_they_say),
		cmocka_unit_test(bad_keys_and_values_are_named_by_line),
		cmocka_unit_test(every_error_is_said),
		cmocka_unit_test(a_key_that_does_not_apply_is_said_once),
		cmocka_unit_test(a_list_is_one_value),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
