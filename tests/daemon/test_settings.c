/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/settings/settings.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SEC 1000000000ull

/* The environment of a test: name, value, name, value, NULL. */
static const char *const *environment;

/* The strings that getenv() would return: they stay where they are, for settings borrow them. */
static char values[32][64];

static char *get_env(const char *name)
{
	if (!strcmp(name, "NVSHARE_CONFIG"))
		return memcpy(values[31], "none", 5);
	for (size_t i = 0; environment && environment[2 * i]; i++) {
		if (strcmp(environment[2 * i], name) != 0)
			continue;
		(void)snprintf(values[i], sizeof(values[i]), "%s", environment[2 * i + 1]);
		return values[i];
	}
	return NULL;
}

static int parse(const char *const *env, const char *const *args, struct settings *ret_options,
		 char *ret_text)
{
	char *copies[8] = {NULL};
	struct settings_report report;
	int r;

	for (size_t i = 0; args && args[i]; i++)
		copies[i] = strdup(args[i]);
	environment = env;
	ret_text[0] = '\0';
	r = settings_parse(copies, get_env, ret_options, &report);
	if (report.n_lines)
		(void)snprintf(ret_text, SETTINGS_TEXT_LEN, "%s", report.lines[0].text);
	for (size_t i = 0; i < 8; i++)
		free(copies[i]);
	return r;
}

static void defaults_are_those_of_the_core(void **state)
{
	struct sched_config expected;
	struct settings settings;
	char text[SETTINGS_TEXT_LEN];

	(void)state;
	sched_config_default(&expected);
	assert_int_equal(parse(NULL, NULL, &settings, text), 0);
	/* Field by field where the structure has gaps, whose bytes say nothing. */
	assert_int_equal(settings.config.mode, expected.mode);
	assert_int_equal(settings.config.switch_mode, expected.switch_mode);
	assert_int_equal(settings.config.anti_thrash, expected.anti_thrash);
	assert_int_equal(settings.config.fair_users, expected.fair_users);
	assert_true(settings.config.fair_users);
	assert_int_equal(settings.config.switch_multiplier, expected.switch_multiplier);
	assert_int_equal(settings.config.reserve_percent, expected.reserve_percent);
	assert_int_equal(settings.config.moving_percent, expected.moving_percent);
	assert_memory_equal(&settings.config.tq_ns, &expected.tq_ns,
			    sizeof(expected) - offsetof(struct sched_config, tq_ns));
	assert_string_equal(settings.sock_dir, "");
	assert_int_equal(settings.log_level, LOG_LEVEL_INFO);
	assert_int_equal(settings.grace_ns, 3 * SEC / 2);
}

static void the_command_line_wins_over_the_environment(void **state)
{
	const char *env[] = {"NVSHARE_QUANTUM_SEC", "5", "NVSHARE_SCHEDULING_MODE", "serial", NULL};
	const char *args[] = {"--quantum-sec=0.5", "--switch-time-min", "0.2", NULL};
	struct settings settings;
	char text[SETTINGS_TEXT_LEN];

	(void)state;
	assert_int_equal(parse(env, args, &settings, text), 0);
	assert_int_equal(settings.config.tq_ns, SEC / 2);
	assert_int_equal(settings.config.switch_min_ns, SEC / 5);
	assert_int_equal(settings.config.mode, SCHED_MODE_SERIAL);
}

static void every_variable_is_taken(void **state)
{
	const char *env[] = {"NVSHARE_SOCK_DIR",
			     "/x",
			     "NVSHARE_SWITCH_TIME_MODE",
			     "fixed",
			     "NVSHARE_SWITCH_TIME_FIXED",
			     "3",
			     "NVSHARE_SWITCH_TIME_MULTIPLIER",
			     "7",
			     "NVSHARE_SWITCH_TIME_MIN",
			     "2",
			     "NVSHARE_SWITCH_TIME_MAX",
			     "4",
			     "NVSHARE_MEMORY_RESERVE_PERCENT",
			     "0",
			     "NVSHARE_MAX_RUNTIME_SEC",
			     "11",
			     "NVSHARE_WAIT_BOUND_SEC",
			     "12",
			     "NVSHARE_LOG",
			     "debug",
			     "NVSHARE_RECONNECT_GRACE_MS",
			     "20",
			     "NVSHARE_POLICY",
			     "deadline",
			     "NVSHARE_PRIORITY_MAX",
			     "low,uid:1000=high",
			     "NVSHARE_SLICE_RULE",
			     "feedback",
			     "NVSHARE_ENERGY",
			     "1",
			     "NVSHARE_HINTS",
			     "0",
			     "NVSHARE_HINT_MIN_PREPARE_US",
			     "250",
			     "NVSHARE_ENERGY_BUDGET_W",
			     "25",
			     "NVSHARE_CONTEXT_MEMORY_MAX",
			     "1000MiB",
			     "NVSHARE_CONTEXTS_MAX",
			     "20",
			     "NVSHARE_GPUS",
			     "GPU-8d0a1b2c-3d4e-5f60-7182-93a4b5c6d7e8=80GiB",
			     "NVSHARE_REPORT_SLACK_PERCENT",
			     "100",
			     "NVSHARE_REPORT_GRACE_SEC",
			     "1.5",
			     NULL};
	struct settings settings;
	char text[SETTINGS_TEXT_LEN];

	(void)state;
	assert_int_equal(parse(env, NULL, &settings, text), 0);
	assert_string_equal(settings.sock_dir, "/x");
	assert_int_equal(settings.config.switch_mode, SCHED_SWITCH_FIXED);
	assert_int_equal(settings.config.switch_fixed_ns, 3 * SEC);
	assert_int_equal(settings.config.switch_multiplier, 7);
	assert_int_equal(settings.config.switch_min_ns, 2 * SEC);
	assert_int_equal(settings.config.switch_max_ns, 4 * SEC);
	assert_int_equal(settings.config.reserve_percent, 0);
	assert_int_equal(settings.config.policy, SCHED_POLICY_DEADLINE);
	assert_int_equal(settings.share.slice_rule, TIMESHARE_RULE_FEEDBACK);
	assert_true(settings.share.is_saving);
	assert_false(settings.share.is_hinting);
	assert_int_equal(settings.share.prepare_ns, 250000);
	assert_int_equal(settings.share.energy_budget_w, 25);
	assert_int_equal(settings.context_bytes_max, 1000ull << 20);
	assert_int_equal(settings.n_contexts_max, 20);
	assert_int_equal(settings.sizes.n, 1);
	assert_int_equal(settings.sizes.at[0].total, 80ull << 30);
	assert_int_equal(settings.report_slack_percent, 100);
	assert_int_equal(settings.report_grace_ns, 3 * SEC / 2);
	assert_int_equal(settings.rights.priority, NVSHARE_PRIORITY_LOW);
	assert_int_equal(rights_priority(&settings.rights, 1000, NULL, 0), NVSHARE_PRIORITY_HIGH);
	assert_int_equal(settings.config.max_runtime_ns, 11 * SEC);
	assert_int_equal(settings.config.wait_bound_ns, 12 * SEC);
	assert_int_equal(settings.log_level, LOG_LEVEL_DEBUG);
	assert_int_equal(settings.grace_ns, SEC / 50);
}

static void an_error_names_variable_value_and_what_is_allowed(void **state)
{
	static const char *const table[][3] = {
		{"NVSHARE_QUANTUM_SEC", "1m",
		 "NVSHARE_QUANTUM_SEC is '1m'; allowed is seconds from 0.01 to 86400"},
		{"NVSHARE_SCHEDULING_MODE", "x",
		 "NVSHARE_SCHEDULING_MODE is 'x'; allowed is one of auto, serial, concurrent"},
		{"NVSHARE_ENERGY_BUDGET_W", "10001",
		 "NVSHARE_ENERGY_BUDGET_W is '10001'; allowed is a whole number from 0 to 10000"},
		{"NVSHARE_GPUS", "0=80GiB",
		 "NVSHARE_GPUS is '0=80GiB'; allowed is GPU-UUID=SIZE or MIG-UUID=SIZE, up to 16"
		 " with commas, each once; or none"},
		{"NVSHARE_REPORT_SLACK_PERCENT", "101",
		 "NVSHARE_REPORT_SLACK_PERCENT is '101'; allowed is a whole number from 0 to 100"},
		{"NVSHARE_REPORT_GRACE_SEC", "0.5",
		 "NVSHARE_REPORT_GRACE_SEC is '0.5'; allowed is seconds from 1 to 3600"},
		{"NVSHARE_SLICE_RULE", "slow",
		 "NVSHARE_SLICE_RULE is 'slow'; allowed is one of fixed, slack, exponential,"
		 " feedback"},
		{"NVSHARE_MEMORY_RESERVE_PERCENT", "-1",
		 "NVSHARE_MEMORY_RESERVE_PERCENT is '-1'; allowed is a whole number from 0 to 50"},
		{"NVSHARE_PRIORITY_MAX", "uid:1=critical,uid:1=low",
		 "NVSHARE_PRIORITY_MAX is 'uid:1=critical,uid:1=low'; allowed is low, normal, high or"
		 " critical for all, and uid:N=, gid:N= or namespace:NAME= before one, with commas,"
		 " each once"},
		{"NVSHARE_SLICE_LEVELS", "high=100,high=200",
		 "NVSHARE_SLICE_LEVELS is 'high=100,high=200'; allowed is CLASS=VALUE,..., each class"
		 " once, microseconds from 100 to 10000000"},
		{"NVSHARE_RECONNECT_GRACE_MS", "60001",
		 "NVSHARE_RECONNECT_GRACE_MS is '60001'; allowed is milliseconds from 0 to 60000"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		const char *env[] = {table[i][0], table[i][1], NULL};
		struct settings settings;
		char text[SETTINGS_TEXT_LEN];

		assert_int_equal(parse(env, NULL, &settings, text), SETTINGS_E_BAD);
		assert_string_equal(text, table[i][2]);
	}
}

static void a_value_set_but_empty_is_not_set(void **state)
{
	const char *env[] = {"NVSHARE_QUANTUM_SEC", "", "NVSHARE_SOCK_DIR", "", NULL};
	struct settings settings;
	char text[SETTINGS_TEXT_LEN];

	(void)state;
	assert_int_equal(parse(env, NULL, &settings, text), 0);
	assert_int_equal(settings.config.tq_ns, 30 * SEC);
	assert_string_equal(settings.sock_dir, "");
}

static void old_names_of_settings_work(void **state)
{
	const char *old[] = {"NVSHARE_TQ", "5", "NVSHARE_SLICE_BE_US", "300", NULL};
	const char *same[] = {"NVSHARE_TQ", "5", "NVSHARE_QUANTUM_SEC", "5", NULL};
	const char *empty[] = {"NVSHARE_TQ", "", "NVSHARE_QUANTUM_SEC", "6", NULL};
	const char *differ[] = {"NVSHARE_TQ", "5", "NVSHARE_QUANTUM_SEC", "6", NULL};
	const char *bad[] = {"NVSHARE_TQ", "x", NULL};
	const char *flags[] = {"--tq=7", "--slice-be-us", "400", NULL};
	struct settings settings;
	char text[SETTINGS_TEXT_LEN];

	(void)state;
	assert_int_equal(parse(old, NULL, &settings, text), 0);
	assert_int_equal(settings.config.tq_ns, 5 * SEC);
	assert_int_equal(settings.share.be_slice_us, 300);
	assert_int_equal(parse(same, NULL, &settings, text), 0);
	assert_int_equal(parse(empty, NULL, &settings, text), 0);
	assert_int_equal(settings.config.tq_ns, 6 * SEC);
	assert_int_equal(parse(old, flags, &settings, text), 0);
	assert_int_equal(settings.config.tq_ns, 7 * SEC);
	assert_int_equal(settings.share.be_slice_us, 400);
	assert_int_equal(parse(differ, NULL, &settings, text), SETTINGS_E_BAD);
	assert_string_equal(text, "NVSHARE_QUANTUM_SEC and NVSHARE_TQ are one setting with two"
				  " values; unset NVSHARE_TQ");
	assert_int_equal(parse(bad, NULL, &settings, text), SETTINGS_E_BAD);
	assert_string_equal(text, "NVSHARE_TQ is 'x'; allowed is seconds from 0.01 to 86400");
}

static void wrong_command_lines_are_refused(void **state)
{
	static const char *const table[][2] = {
		{"--tqq=5", "unknown option '--tqq=5'; see --help"},
		{"--t=5", "unknown option '--t=5'; see --help"},
		{"tq", "unknown option 'tq'; see --help"},
		{"--quantum-sec", "--quantum-sec needs a value"},
		{"--quantum-sec=x", "--quantum-sec is 'x'; allowed is seconds from 0.01 to 86400"},
		{"--sock-dir=", "--sock-dir is ''; allowed is a directory"},
	};
	const char *both[] = {"--switch-time-min=20", "--switch-time-max=10", NULL};
	struct settings settings;
	char text[SETTINGS_TEXT_LEN];

	(void)state;
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		const char *args[] = {table[i][0], NULL};

		assert_int_equal(parse(NULL, args, &settings, text), SETTINGS_E_BAD);
		assert_string_equal(text, table[i][1]);
	}
	assert_int_equal(parse(NULL, both, &settings, text), SETTINGS_E_BAD);
	assert_non_null(strstr(text, "NVSHARE_SWITCH_TIME_MAX"));
}

static void help_is_given_in_a_wrong_environment(void **state)
{
	const char *env[] = {"NVSHARE_QUANTUM_SEC", "x", NULL};
	const char *help[] = {"--tq=5", "-h", NULL};
	const char *version[] = {"--version", NULL};
	struct settings settings;
	char text[SETTINGS_TEXT_LEN];

	(void)state;
	assert_int_equal(parse(env, help, &settings, text), SETTINGS_E_HELP);
	assert_int_equal(parse(env, version, &settings, text), SETTINGS_E_VERSION);
}

/* The core takes all that the table lets pass: each setting at both of its ends. */
static void the_core_takes_what_the_table_allows(void **state)
{
	static const char *const names[][3] = {
		{"NVSHARE_QUANTUM_SEC", "0.01", "86400"},
		{"NVSHARE_SWITCH_TIME_FIXED", "0.01", "86400"},
		{"NVSHARE_SWITCH_TIME_MULTIPLIER", "1", "1000"},
		{"NVSHARE_SWITCH_TIME_MIN", "0.01", "300"},
		{"NVSHARE_SWITCH_TIME_MAX", "10", "86400"},
		{"NVSHARE_MEMORY_RESERVE_PERCENT", "0", "50"},
		{"NVSHARE_MAX_RUNTIME_SEC", "10", "86400"},
		{"NVSHARE_WAIT_BOUND_SEC", "1", "86400"},
		{"NVSHARE_PREPARE_SEC", "0", "86400"},
		{"NVSHARE_ANSWER_SEC", "0.01", "86400"},
		{"NVSHARE_RETRY_SEC", "0.01", "86400"},
		{"NVSHARE_HEARTBEAT_SEC", "0.01", "30"},
		{"NVSHARE_HEARTBEAT_LIMIT_SEC", "10", "86400"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		for (size_t end = 1; end <= 2; end++) {
			const char *env[] = {names[i][0], names[i][end], NULL};
			struct settings settings;
			char text[SETTINGS_TEXT_LEN];

			print_message("%s=%s\n", env[0], env[1]);
			assert_int_equal(parse(env, NULL, &settings, text), 0);
			assert_int_equal(sched_config_check(&settings.config), 0);
		}
	}
}

static void slices_are_set_class_by_class_or_not_at_all(void **state)
{
	struct settings settings = {.log_level = LOG_LEVEL_INFO};
	char text[SETTINGS_TEXT_LEN];
	const char *const some[] = {"NVSHARE_SLICE_LEVELS", "high=2000,low=100", NULL};
	const char *const bad[][3] = {
		{"NVSHARE_SLICE_LEVELS", "high=2000,low=99", NULL},
		{"NVSHARE_SLICE_LEVELS", "high=2000,lower=200", NULL},
		{"NVSHARE_SLICE_LEVELS", "high", NULL},
		{"NVSHARE_SLICE_LEVELS", "critical=10000001", NULL},
		{"NVSHARE_SLICE_LEVELS", ",high=2000", NULL},
		{"NVSHARE_SLICE_LEVELS", "high=100,high=200", NULL},
		{"NVSHARE_SLICE_LEVELS", "high=100,low=200,High=100", NULL},
	};

	(void)state;
	assert_int_equal(parse(some, NULL, &settings, text), 0);
	assert_int_equal(settings.share.slice_us[TIMESHARE_CLASS_LOW], 100);
	assert_int_equal(settings.share.slice_us[TIMESHARE_CLASS_NORMAL], 500);
	assert_int_equal(settings.share.slice_us[TIMESHARE_CLASS_HIGH], 2000);
	assert_int_equal(settings.share.slice_us[TIMESHARE_CLASS_CRITICAL], 5000000);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		assert_int_equal(parse(bad[i], NULL, &settings, text), SETTINGS_E_BAD);
		assert_non_null(strstr(text, "microseconds from 100 to 10000000"));
	}
}

static void shares_of_time_are_settings_too(void **state)
{
	struct settings settings = {.log_level = LOG_LEVEL_INFO};
	char text[SETTINGS_TEXT_LEN];
	const char *const env[] = {"NVSHARE_HOLD",
				   "0",
				   "NVSHARE_LC_MAX_PERCENT",
				   "75",
				   "NVSHARE_HOLD_SLOW_US",
				   "1500",
				   "NVSHARE_BE_TURN_MS",
				   "20",
				   "NVSHARE_SLICE_BEST_EFFORT_US",
				   "300",
				   NULL};
	const char *const margin[] = {"NVSHARE_HINT_MARGIN_US", "20000", NULL};

	(void)state;
	assert_int_equal(parse(NULL, NULL, &settings, text), 0);
	assert_int_equal(timeshare_config_check(&settings.share), 0);
	assert_true(settings.share.is_holding);
	assert_int_equal(parse(env, NULL, &settings, text), 0);
	assert_int_equal(timeshare_config_check(&settings.share), 0);
	assert_false(settings.share.is_holding);
	assert_int_equal(settings.share.lc_max_percent, 75);
	assert_int_equal(settings.share.slow_ns, 1500000);
	assert_int_equal(settings.share.turn_ns, 20000000);
	assert_int_equal(settings.share.be_slice_us, 300);
	assert_int_equal(parse(margin, NULL, &settings, text), SETTINGS_E_BAD);
	assert_non_null(strstr(text, "NVSHARE_HINT_MAX_MS"));
}

/* A text for number, which is in the unit of the field. */
static void write_number(const struct setting *setting, uint64_t number, char buf[64])
{
	if (setting->kind == SETTING_DECIMAL)
		(void)snprintf(buf, 64, "%llu.%09llu", (unsigned long long)(number / SEC),
			       (unsigned long long)(number % SEC));
	else
		(void)snprintf(buf, 64, "%llu", (unsigned long long)number);
}

static void assert_tool_sets(const struct setting *setting, const char *value)
{
	char text[SETTINGS_TEXT_LEN], printed[SETTING_TEXT_LEN], again[SETTING_TEXT_LEN];
	struct settings settings, copy;

	settings_default(&settings);
	assert_int_equal(settings_set(&settings, setting->key, value, SETTINGS_TOOL, text), 0);
	/* The printed text stands for the same value. */
	setting_print(setting, &settings, printed);
	settings_default(&copy);
	assert_int_equal(settings_set(&copy, setting->key, printed, SETTINGS_TOOL, text), 0);
	setting_print(setting, &copy, again);
	assert_string_equal(printed, again);
}

static void assert_tool_refused(const struct setting *setting, const char *value)
{
	char text[SETTINGS_TEXT_LEN], allowed[SETTING_TEXT_LEN], expected[SETTINGS_TEXT_LEN];
	struct settings settings, before;

	memset(&settings, 0x5a, sizeof(settings));
	memcpy(&before, &settings, sizeof(settings));
	setting_allowed(setting, allowed);
	(void)snprintf(expected, sizeof(expected), "%s is '%s'; allowed is %s", setting->key, value,
		       allowed);
	assert_int_equal(settings_set(&settings, setting->key, value, SETTINGS_TOOL, text),
			 SETTINGS_E_BAD);
	assert_string_equal(text, expected);
	assert_memory_equal(&settings, &before, sizeof(settings));
}

static void tools_set_within_the_table_s_range_and_are_refused_in_its_words(void **state)
{
	size_t n = 0;

	(void)state;
	for (size_t i = 0; i < settings_table_len; i++) {
		const struct setting *setting = &settings_table[i];
		char value[64];

		if (!setting->key)
			continue;
		print_message("%s\n", setting->key);
		n++;
		assert_tool_refused(setting, "x");
		assert_tool_refused(setting, "");
		for (uint64_t w = 0; setting->kind == SETTING_ENUM && w < setting->max; w++)
			assert_tool_sets(setting, setting->names[w]);
		if (setting->kind == SETTING_BOOL)
			assert_tool_sets(setting, "0");
		if (setting->kind != SETTING_NUMBER && setting->kind != SETTING_DECIMAL)
			continue;
		write_number(setting, setting->min, value);
		assert_tool_sets(setting, value);
		write_number(setting, setting->max, value);
		assert_tool_sets(setting, value);
		write_number(setting, setting->max + 1, value);
		assert_tool_refused(setting, value);
		write_number(setting, setting->min - 1, value);
		if (setting->min)
			assert_tool_refused(setting, value);
	}
	assert_int_equal(n, 8);
}

static void each_source_has_its_own_names(void **state)
{
	static const struct {
		const char *name;
		enum settings_source source;
		bool is_others_too; /* files and tools share names */
	} same[] = {
		{"NVSHARE_QUANTUM_SEC", SETTINGS_ENVIRONMENT, false},
		{"NVSHARE_TQ", SETTINGS_ENVIRONMENT, false},
		{"--quantum-sec", SETTINGS_COMMAND_LINE, false},
		{"--tq", SETTINGS_COMMAND_LINE, false},
		{"tq", SETTINGS_TOOL, true},
		{"quantum_sec", SETTINGS_FILE, true},
		{"quantum-sec", SETTINGS_TOOL, false},
	};
	struct settings settings;
	char text[SETTINGS_TEXT_LEN];

	(void)state;
	for (size_t i = 0; i < sizeof(same) / sizeof(same[0]); i++) {
		settings_default(&settings);
		assert_int_equal(settings_set(&settings, same[i].name, "7", same[i].source, text),
				 0);
		assert_int_equal(settings.config.tq_ns, 7 * SEC);
		for (enum settings_source other = 0; other <= SETTINGS_TOOL; other++) {
			if (other != same[i].source && !same[i].is_others_too)
				assert_null(settings_find(same[i].name, other));
		}
	}
	/* A file does not name another one. */
	assert_null(settings_find("config", SETTINGS_FILE));
	assert_int_equal(settings_set(&settings, "sock-dir", "/x", SETTINGS_TOOL, text),
			 SETTINGS_E_BAD);
	assert_string_equal(text, "sock-dir changes with a restart only");
}

static void no_two_rows_share_a_name_or_a_field(void **state)
{
	(void)state;
	for (size_t i = 0; i < settings_table_len; i++) {
		const struct setting *a = &settings_table[i];

		assert_true(a->variable || a->key);
		assert_non_null(a->help);
		for (size_t j = 0; j < i; j++) {
			const struct setting *b = &settings_table[j];

			assert_int_not_equal(a->offset, b->offset);
			assert_false(a->key && b->key && !strcmp(a->key, b->key));
			assert_false(a->variable && b->variable &&
				     !strcmp(a->variable, b->variable));
		}
	}
}

/* The default that the help gives for variable; false: none, or no such variable. */
static bool find_default(const char *help, const char *variable, char *ret_value, size_t size)
{
	const char *at = strstr(help, variable), *end, *begin;

	if (!at || at[strlen(variable)] != '\n')
		return false;
	at += strlen(variable) + 1;
	end = strstr(at, "); ");
	if (!end || memchr(at, '\n', (size_t)(end - at)))
		return false;
	for (begin = end; begin[-1] != '('; begin--)
		;
	(void)snprintf(ret_value, size, "%.*s", (int)(end - begin), begin);
	return true;
}

/* The next variable of the help, from *at on; false: there is no more. */
static bool next_variable(const char **at, char *ret_name, size_t size)
{
	const char *name = strstr(*at, ", NVSHARE_");
	size_t len;

	if (!name)
		return false;
	name += strlen(", ");
	len = strcspn(name, "\n");
	(void)snprintf(ret_name, size, "%.*s", (int)len, name);
	*at = name + len;
	return true;
}

/* Where the structures have gaps, these are all numbers that lie between. */
static void assert_same(const struct settings *a, const struct settings *b)
{
	assert_int_equal(a->config.mode, b->config.mode);
	assert_int_equal(a->config.switch_mode, b->config.switch_mode);
	assert_int_equal(a->config.policy, b->config.policy);
	assert_int_equal(a->config.switch_multiplier, b->config.switch_multiplier);
	assert_int_equal(a->config.reserve_percent, b->config.reserve_percent);
	assert_memory_equal(&a->config.tq_ns, &b->config.tq_ns,
			    sizeof(a->config) - offsetof(struct sched_config, tq_ns));
	assert_int_equal(a->share.slice_rule, b->share.slice_rule);
	assert_int_equal(a->share.is_holding, b->share.is_holding);
	assert_int_equal(a->share.lc_max_percent, b->share.lc_max_percent);
	assert_memory_equal(&a->share.lc_window_ns, &b->share.lc_window_ns,
			    offsetof(struct timeshare_config, is_saving) -
				    offsetof(struct timeshare_config, lc_window_ns));
	assert_int_equal(a->share.is_saving, b->share.is_saving);
	assert_int_equal(a->share.energy_budget_w, b->share.energy_budget_w);
	assert_int_equal(a->grace_ns, b->grace_ns);
	assert_int_equal(a->log_level, b->log_level);
}

/* So given as a value each changes nothing. */
static void the_help_states_the_defaults(void **state)
{
	char *help = NULL, text[SETTINGS_TEXT_LEN], name[64], value[128];
	struct settings defaults, settings;
	size_t size, n_stated = 0;
	const char *at;
	FILE *out;

	(void)state;
	out = open_memstream(&help, &size);
	assert_non_null(out);
	settings_print_help(out);
	assert_int_equal(fclose(out), 0);
	assert_int_equal(parse(NULL, NULL, &defaults, text), 0);
	for (at = help; next_variable(&at, name, sizeof(name));) {
		char arg[256], *c;

		assert_true(find_default(help, name, value, sizeof(value)));
		if (!strcmp(name, "NVSHARE_SOCK_DIR") || !strcmp(name, "NVSHARE_PRIORITY_MAX") ||
		    !strcmp(name, "NVSHARE_GPUS") || !strcmp(name, "NVSHARE_CONFIG"))
			continue;
		(void)snprintf(arg, sizeof(arg), "--%s=%s", name + strlen("NVSHARE_"), value);
		for (c = arg; *c != '='; c++)
			*c = (char)(*c == '_' ? '-' : *c | ' ');
		assert_int_equal(parse(NULL, (const char *const[]){arg, NULL}, &settings, text), 0);
		assert_same(&settings, &defaults);
		n_stated++;
	}
	assert_true(n_stated > 30);
	assert_true(find_default(help, "NVSHARE_SLICE_BEST_EFFORT_US", value, sizeof(value)));
	assert_string_equal(value, "100");
	assert_true(find_default(help, "NVSHARE_SLICE_LEVELS", value, sizeof(value)));
	assert_string_equal(value, "critical=5000000,high=1000,normal=500,low=200");
	assert_non_null(strstr(help, "by rounds of 10 s for a weight of 100, however short the"
				     " switch time"));
	free(help);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(slices_are_set_class_by_class_or_not_at_all),
		cmocka_unit_test(shares_of_time_are_settings_too),
		cmocka_unit_test(defaults_are_those_of_the_core),
		cmocka_unit_test(the_command_line_wins_over_the_environment),
		cmocka_unit_test(every_variable_is_taken),
		cmocka_unit_test(an_error_names_variable_value_and_what_is_allowed),
		cmocka_unit_test(a_value_set_but_empty_is_not_set),
		cmocka_unit_test(old_names_of_settings_work),
		cmocka_unit_test(wrong_command_lines_are_refused),
		cmocka_unit_test(help_is_given_in_a_wrong_environment),
		cmocka_unit_test(the_help_states_the_defaults),
		cmocka_unit_test(the_core_takes_what_the_table_allows),
		cmocka_unit_test(tools_set_within_the_table_s_range_and_are_refused_in_its_words),
		cmocka_unit_test(each_source_has_its_own_names),
		cmocka_unit_test(no_two_rows_share_a_name_or_a_field),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
