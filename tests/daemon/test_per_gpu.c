/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/settings/config.h"
#include "daemon/settings/per_gpu.h"

#include "util/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define UUID  "GPU-8d0a1b2c-3d4e-5f60-7182-93a4b5c6d7e8"
#define OTHER "MIG-11111111-3d4e-5f60-7182-93a4b5c6d7e8"

static const uint8_t uuid[16] = {0x8d, 0x0a, 0x1b, 0x2c, 0x3d, 0x4e, 0x5f, 0x60,
				 0x71, 0x82, 0x93, 0xa4, 0xb5, 0xc6, 0xd7, 0xe8};
static const uint8_t unknown[16] = {1};

static struct settings settings;
static struct settings_report report;

/* A file with these bytes, over what settings have. */
static void take_next(const char *name, const char *bytes)
{
	char text[CONFIG_FILE_TEXT_LEN];
	struct config_file file;

	assert_int_equal(config_file_parse(name, bytes, strlen(bytes), &file, text), 0);
	config_take(&settings, name, &file, &report);
	config_file_deinit(&file);
}

static void take(const char *bytes)
{
	settings_default(&settings);
	report = (struct settings_report){.n_lines = 0};
	take_next("f", bytes);
}

static void a_gpu_has_its_own_values_and_else_the_node_s(void **state)
{
	struct per_gpu_limits limits;

	(void)state;
	take("quantum_sec: 9\nper_gpu:\n"
	     "  0: {mode: serial, reserve: 7, contexts_max: 3}\n"
	     "  " UUID ":\n"
	     "    sharing_degree: 2\n"
	     "    max_runtime_sec: 20.5\n"
	     "    switch_time_mode: fixed\n"
	     "    switch_time_fixed: 2\n"
	     "    context_memory_max: 5GiB\n");
	assert_int_equal(report.n_lines, 0);
	per_gpu_of(&settings, 0, unknown, &limits);
	assert_int_equal(limits.config.mode, SCHED_MODE_SERIAL);
	assert_int_equal(limits.config.reserve_percent, 7);
	assert_int_equal(limits.n_contexts_max, 3);
	assert_int_equal(limits.config.sharing_degree, 0);
	assert_int_equal(limits.config.tq_ns, 9 * CLOCK_NS_PER_SEC);
	per_gpu_of(&settings, 1, uuid, &limits);
	assert_int_equal(limits.config.mode, SCHED_MODE_AUTO);
	assert_int_equal(limits.config.reserve_percent, 5);
	assert_int_equal(limits.config.sharing_degree, 2);
	assert_int_equal(limits.config.max_runtime_ns, 20500 * CLOCK_NS_PER_MS);
	assert_int_equal(limits.config.switch_mode, SCHED_SWITCH_FIXED);
	assert_int_equal(limits.config.switch_fixed_ns, 2 * CLOCK_NS_PER_SEC);
	assert_int_equal(limits.context_bytes_max, 5ull << 30);
	/* Another one: nothing of both. */
	per_gpu_of(&settings, 2, unknown, &limits);
	assert_int_equal(limits.config.mode, SCHED_MODE_AUTO);
	assert_int_equal(limits.config.sharing_degree, 0);
	/* Both: each value that is set, and that by UUID where both are. */
	take_next("g", "per_gpu: {" UUID ": {memory_reserve_percent: 8}}\n");
	per_gpu_of(&settings, 0, uuid, &limits);
	assert_int_equal(limits.config.mode, SCHED_MODE_SERIAL);
	assert_int_equal(limits.config.reserve_percent, 8);
	assert_int_equal(limits.config.sharing_degree, 2);
}

static void a_later_file_wins_value_by_value(void **state)
{
	struct per_gpu_limits limits;
	char text[SETTING_TEXT_LEN];

	(void)state;
	take("per_gpu: {1: {tq: 5, mode: serial}}\n");
	take_next("g", "\nper_gpu: {\"01\": {quantum_sec: 6}}\n");
	assert_int_equal(report.n_lines, 0);
	assert_int_equal(settings.per_gpu.n, 2);
	per_gpu_of(&settings, 1, unknown, &limits);
	assert_int_equal(limits.config.tq_ns, 6 * CLOCK_NS_PER_SEC);
	assert_int_equal(limits.config.mode, SCHED_MODE_SERIAL);
	per_gpu_print_name(&settings.per_gpu.at[0], text, sizeof(text));
	assert_string_equal(text, "per_gpu.1.quantum_sec");
	per_gpu_print(&settings.per_gpu.at[0], text, sizeof(text));
	assert_string_equal(text, "6");
	assert_string_equal(settings.per_gpu.at[0].origin, "g:2");
	assert_string_equal(settings.per_gpu.at[1].origin, "f:1");
}

#define KEYS                                                                         \
	"scheduling_mode, sharing_degree, memory_reserve_percent, switch_time_mode," \
	" switch_time_fixed, quantum_sec, max_runtime_sec, context_memory_max, contexts_max"

static const struct {
	const char *bytes, *text;
} bad[] = {
	{"per_gpu:\n", "f:1: per_gpu is a section; it has one for each GPU"},
	{"per_gpu: [0]\n", "f:1: per_gpu is a section; it has one for each GPU"},
	{"per_gpu: {0: serial}\n", "f:1: per_gpu.0 is a section of settings"},
	{"per_gpu:\n  16: {mode: serial}\n",
	 "f:2: per_gpu.16 is no GPU; allowed is GPU-UUID, MIG-UUID, or an index from 0 to 15"},
	{"per_gpu:\n  GPU-8d: {mode: serial}\n",
	 "f:2: per_gpu.GPU-8d is no GPU; allowed is GPU-UUID, MIG-UUID, or an index from 0 to 15"},
	{"per_gpu:\n  0: {mode: serial}\n  00: {mode: auto}\n",
	 "f:3: per_gpu.00 is the same GPU as in line 2"},
	{"per_gpu:\n  " UUID ": {mode: serial}\n  GPU-8D0A1B2C-3D4E-5F60-7182-93A4B5C6D7E8: {}\n",
	 "f:3: per_gpu.GPU-8D0A1B2C-3D4E-5F60-7182-93A4B5C6D7E8 is the same GPU as in line 2"},
	{"per_gpu: {0: {mod: serial}}\n", "f:1: per_gpu.0.mod is no setting; a GPU can have " KEYS},
	{"per_gpu: {0: {policy: fair}}\n",
	 "f:1: per_gpu.0.policy is of the whole node; a GPU can have " KEYS},
	{"per_gpu: {0: {mode: turns}}\n",
	 "f:1: per_gpu.0.mode is 'turns'; allowed is one of auto, serial, concurrent"},
	{"per_gpu: {0: {reserve: 51}}\n",
	 "f:1: per_gpu.0.reserve is '51'; allowed is a whole number from 0 to 50"},
	{"per_gpu: {0: {reserve: }}\n", "f:1: per_gpu.0.reserve has no value"},
	{"per_gpu: {0: {reserve: [5]}}\n", "f:1: per_gpu.0.reserve is a single value"},
	{"per_gpu:\n  0:\n    tq: 5\n    quantum_sec: 5\n",
	 "f:4: per_gpu.0.quantum_sec is the same setting as in line 3"},
};

static void bad_sections_are_named_by_line(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		take(bad[i].bytes);
		assert_int_equal(report.n_errors, 1);
		assert_int_equal(report.n_lines, 1);
		assert_string_equal(report.lines[0].text, bad[i].text);
	}
}

static void values_have_a_bound(void **state)
{
	char bytes[16384];
	size_t n = (size_t)snprintf(bytes, sizeof(bytes), "per_gpu:\n");

	(void)state;
	for (int i = 0; i <= (int)PER_GPU_VALUES_MAX; i++)
		n += (size_t)snprintf(bytes + n, sizeof(bytes) - n,
				      "  GPU-%08x-3d4e-5f60-7182-93a4b5c6d7e8: {reserve: 1}\n", i);
	take(bytes);
	assert_int_equal(report.n_errors, 1);
	assert_non_null(strstr(report.lines[0].text, "is one more than 128 values of GPUs"));
	assert_int_equal(settings.per_gpu.n, PER_GPU_VALUES_MAX);
}

static void a_degree_does_not_go_with_a_mode_of_one_at_a_time(void **state)
{
	char text[SETTINGS_TEXT_LEN];

	(void)state;
	take("per_gpu: {0: {mode: serial, sharing_degree: 2}}\n");
	assert_int_equal(report.n_lines, 0);
	assert_int_equal(settings_check(&settings, text), SETTINGS_E_BAD);
	assert_string_equal(text, "per_gpu: a GPU has a sharing_degree above 1, which counts in"
				  " mode auto alone, and another mode");
	take("per_gpu: {0: {mode: serial, sharing_degree: 1}}\n");
	assert_int_equal(settings_check(&settings, text), 0);
	/* The node's mode may change, and such a value waits. */
	take("scheduling_mode: serial\nper_gpu: {0: {sharing_degree: 2}}\n");
	assert_int_equal(settings_check(&settings, text), 0);
}

static void what_is_printed_reads_back(void **state)
{
	static struct per_gpu before;
	char *bytes = NULL;
	size_t len = 0;
	FILE *out = open_memstream(&bytes, &len);

	(void)state;
	assert_non_null(out);
	take("per_gpu: {3: {tq: 0.5}, " OTHER ": {mode: concurrent, contexts_max: 4}}\n");
	take_next("g", "per_gpu: {3: {context_memory_max: 2GiB}}\n");
	before = settings.per_gpu;
	per_gpu_print_config(out, &before);
	assert_int_equal(fclose(out), 0);
	take(bytes);
	assert_int_equal(report.n_lines, 0);
	assert_int_equal(settings.per_gpu.n, before.n);
	for (uint32_t i = 0; i < before.n; i++) {
		const struct per_gpu_value *value =
			per_gpu_find(&settings.per_gpu, &before.at[i].gpu, before.at[i].key);

		assert_non_null(value);
		assert_int_equal(value->value, before.at[i].value);
		assert_string_equal(value->gpu.text, before.at[i].gpu.text);
	}
	free(bytes);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_gpu_has_its_own_values_and_else_the_node_s),
		cmocka_unit_test(a_later_file_wins_value_by_value),
		cmocka_unit_test(bad_sections_are_named_by_line),
		cmocka_unit_test(values_have_a_bound),
		cmocka_unit_test(a_degree_does_not_go_with_a_mode_of_one_at_a_time),
		cmocka_unit_test(what_is_printed_reads_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
