/* SPDX-License-Identifier: Apache-2.0 */

#include "hook/base/hook_options.h"

#include "nvshare/protocol.h"

#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

struct variable {
	const char *name;
	char *value;
};

static const struct variable *environment;

static char *get(const char *name)
{
	for (const struct variable *v = environment; v && v->name; v++) {
		if (strcmp(v->name, name) == 0)
			return v->value;
	}
	return NULL;
}

/* Parses with what it writes to stderr caught in ret_said. */
static struct hook_options parse(const struct variable *variables, char *ret_said, size_t size)
{
	struct hook_options options;
	int saved = dup(STDERR_FILENO), fds[2];
	ssize_t n;

	assert_int_equal(pipe(fds), 0);
	assert_true(dup2(fds[1], STDERR_FILENO) >= 0);
	close(fds[1]);
	environment = variables;
	hook_options_parse(get, &options);
	assert_true(dup2(saved, STDERR_FILENO) >= 0);
	close(saved);
	n = read(fds[0], ret_said, size - 1);
	close(fds[0]);
	ret_said[n > 0 ? n : 0] = '\0';
	return options;
}

static void defaults_hold_when_nothing_is_set(void **unused)
{
	char said[512];
	struct hook_options o = parse(NULL, said, sizeof(said));

	(void)unused;
	assert_int_equal(o.backend, HOOK_OPTIONS_BACKEND_AUTO);
	assert_false(o.require_scheduler);
	assert_false(o.ipc);
	assert_true(o.transfer);
	assert_true(o.clean);
	assert_int_equal(o.rdma, HOOK_OPTIONS_RDMA_STAY);
	assert_false(o.single_oversub);
	assert_int_equal(o.orphan_ns, 30000000000ull);
	assert_int_equal(o.drain_ns, 10000000);
	assert_int_equal(o.drain_max_ns, 2000000000ull);
	assert_int_equal(o.copy_max_ns, 10000000000ull);
	assert_int_equal(o.idle_ns, 1000000000ull);
	assert_string_equal(o.memory_limit, "");
	assert_string_equal(o.host_memory_limit, "");
	assert_string_equal(o.sock_dir, NVSHARE_SOCK_DIR_DEFAULT);
	assert_false(o.is_injected);
	assert_false(o.is_mps_part);
	assert_string_equal(o.mps_dir, "");
	assert_string_equal(o.name, "");
	assert_string_equal(o.pod, "");
	assert_string_equal(o.gang, "");
	assert_int_equal(o.gang_size, 0);
	assert_true(o.gang_auto);
	assert_false(o.is_gang_found);
	assert_string_equal(said, "");
}

/* Field by field: a compiler may leave anything in the gaps of a structure. */
static void assert_same(const struct hook_options *a, const struct hook_options *b)
{
	char text_a[SETTING_TEXT_LEN], text_b[SETTING_TEXT_LEN];

	for (size_t i = 0; i < hook_options_table_len; i++) {
		setting_print(&hook_options_table[i], a, text_a);
		setting_print(&hook_options_table[i], b, text_b);
		assert_string_equal(text_a, text_b);
	}
	assert_string_equal(a->memory_limit, b->memory_limit);
	assert_string_equal(a->host_memory_limit, b->host_memory_limit);
	assert_string_equal(a->sock_dir, b->sock_dir);
	assert_memory_equal(&a->claim, &b->claim, sizeof(a->claim));
}

static void every_variable_is_read(void **unused)
{
	const struct variable v[] = {
		{"NVSHARE_MEMORY_BACKEND", (char[]){"Managed"}},
		{"NVSHARE_REQUIRE_SCHEDULER", (char[]){"1"}},
		{"NVSHARE_IPC", (char[]){"yes"}},
		{"NVSHARE_TRANSFER", (char[]){"0"}},
		{"NVSHARE_CLEAN", (char[]){"0"}},
		{"NVSHARE_RDMA", (char[]){"ignore"}},
		{"NVSHARE_ENABLE_SINGLE_OVERSUB", (char[]){"on"}},
		{"NVSHARE_ORPHAN_TIMEOUT_SEC", (char[]){"0"}},
		{"NVSHARE_DRAIN_MS", (char[]){"0"}},
		{"NVSHARE_DRAIN_MAX_MS", (char[]){"50"}},
		{"NVSHARE_COPY_MAX_MS", (char[]){"60"}},
		{"NVSHARE_IDLE_MS", (char[]){"7"}},
		{"NVSHARE_GPU_MEMORY_LIMIT", (char[]){"50%"}},
		{"NVSHARE_HOST_MEMORY_LIMIT", (char[]){"0"}},
		{"NVSHARE_SOCK_DIR", (char[]){"/run/x"}},
		{"NVTX_INJECTION64_PATH", (char[]){"/x.so"}},
		{"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", (char[]){"50"}},
		{"CUDA_MPS_PIPE_DIRECTORY", (char[]){"/mps"}},
		{"NVSHARE_NAME", (char[]){"trainer"}},
		{"NVSHARE_POD", (char[]){"lab/one"}},
		{"POD_NAME", (char[]){"other"}},
		{NULL, NULL},
	};
	char said[512];
	struct hook_options o = parse(v, said, sizeof(said));

	(void)unused;
	assert_int_equal(o.backend, HOOK_OPTIONS_BACKEND_MANAGED);
	assert_true(o.require_scheduler);
	assert_true(o.ipc);
	assert_false(o.transfer);
	assert_false(o.clean);
	assert_int_equal(o.rdma, HOOK_OPTIONS_RDMA_IGNORE);
	assert_true(o.single_oversub);
	assert_int_equal(o.orphan_ns, 0);
	assert_int_equal(o.drain_ns, 0);
	assert_int_equal(o.drain_max_ns, 50000000);
	assert_int_equal(o.copy_max_ns, 60000000);
	assert_int_equal(o.idle_ns, 7000000);
	assert_string_equal(o.memory_limit, "50%");
	assert_string_equal(o.host_memory_limit, "0");
	assert_string_equal(o.sock_dir, "/run/x");
	assert_true(o.is_injected);
	assert_true(o.is_mps_part);
	assert_string_equal(o.mps_dir, "/mps");
	assert_string_equal(o.name, "trainer");
	assert_string_equal(o.pod, "lab/one");
	assert_string_equal(said, "");
}

static void a_pod_is_known_by_the_names_that_kubernetes_gives(void **unused)
{
	const struct variable both[] = {
		{"POD_NAMESPACE", (char[]){"lab"}}, {"POD_NAME", (char[]){"two"}}, {NULL, NULL}};
	const struct variable name[] = {{"POD_NAME", (char[]){"two"}}, {NULL, NULL}};
	char said[512];

	(void)unused;
	assert_string_equal(parse(both, said, sizeof(said)).pod, "lab/two");
	assert_string_equal(parse(name, said, sizeof(said)).pod, "default/two");
}

static void a_bad_value_is_said_in_one_line_and_the_default_used(void **unused)
{
	static char bad_backend[] = "vmmm", bad_number[] = "12x", bad_bool[] = "2", zero[] = "0",
		    huge[] = "86401", empty[] = "", bad_limit[] = "150%";
	const struct {
		struct variable v;
		const char *allowed;
	} cases[] = {
		{{"NVSHARE_MEMORY_BACKEND", bad_backend}, "one of auto, vmm, managed, none"},
		{{"NVSHARE_MEMORY_BACKEND", empty}, NULL},
		{{"NVSHARE_REQUIRE_SCHEDULER", bad_bool}, "0 or 1"},
		{{"NVSHARE_TRANSFER", bad_bool}, "0 or 1"},
		{{"NVSHARE_RDMA", bad_bool}, "one of stay, ignore"},
		{{"NVSHARE_ORPHAN_TIMEOUT_SEC", huge}, "whole seconds from 0 to 86400"},
		{{"NVSHARE_DRAIN_MS", bad_number}, "milliseconds from 0 to 600000"},
		{{"NVSHARE_DRAIN_MAX_MS", bad_number}, "1 to 600000"},
		{{"NVSHARE_DRAIN_MAX_MS", zero}, "1 to 600000"},
		{{"NVSHARE_IDLE_MS", zero}, "1 to 3600000"},
		{{"NVSHARE_GPU_MEMORY_LIMIT", bad_limit}, "20GiB"},
		{{"NVSHARE_GPU_MEMORY_LIMIT", zero}, "20GiB"},
		{{"NVSHARE_HOST_MEMORY_LIMIT", bad_limit}, "20GiB"},
		{{"NVSHARE_SOCK_DIR", empty}, NULL},
	};
	char said[512];
	struct hook_options o, d = parse(NULL, said, sizeof(said));

	(void)unused;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct variable v[] = {cases[i].v, {NULL, NULL}};

		o = parse(v, said, sizeof(said));
		assert_same(&o, &d);
		if (!cases[i].allowed) {
			assert_string_equal(said, "");
			continue;
		}
		assert_non_null(strstr(said, cases[i].v.name));
		assert_non_null(strstr(said, cases[i].v.value));
		assert_non_null(strstr(said, cases[i].allowed));
		assert_ptr_equal(strchr(said, '\n'), said + strlen(said) - 1);
	}
}

/* Parses one setting, with value in the unit of its field. */
static struct hook_options parse_one(const struct setting *setting, uint64_t value, char *ret_said,
				     size_t size)
{
	static const uint64_t units[] = {
		[SETTING_NUMBER] = 1,
		[SETTING_SECONDS] = 1000000000,
		[SETTING_MS] = 1000000,
		[SETTING_US] = 1000,
	};
	char text[32];
	struct variable v[] = {{setting->variable, text}, {NULL, NULL}};

	(void)snprintf(text, sizeof(text), "%llu",
		       (unsigned long long)(value / units[setting->kind]));
	return parse(v, ret_said, size);
}

/* A name of its own comes first; another launcher's is of no use to a program that is told so. */
static void the_gang_is_the_one_that_is_named_or_the_launcher_s(void **unused)
{
	struct variable v[] = {
		{"NVSHARE_GANG", (char[]){"training"}},
		{"NVSHARE_GANG_SIZE", (char[]){"8"}},
		{"PMIX_NAMESPACE", (char[]){"run"}},
		{"OMPI_COMM_WORLD_LOCAL_SIZE", (char[]){"4"}},
		{"NVSHARE_GANG_AUTO", (char[]){"1"}},
		{NULL, NULL},
	};
	char said[512];
	struct hook_options o = parse(v, said, sizeof(said));

	(void)unused;
	assert_string_equal(o.gang, "training");
	assert_int_equal(o.gang_size, 8);
	assert_false(o.is_gang_found);
	v[0].value = (char[]){""};
	o = parse(v, said, sizeof(said));
	assert_memory_equal(o.gang, "mpi-run-", 8);
	assert_int_equal(o.gang_size, 8);
	assert_true(o.is_gang_found);
	v[1].value = (char[]){""};
	o = parse(v, said, sizeof(said));
	assert_int_equal(o.gang_size, 0); /* nobody waits for one that may never come */
	v[4].value = (char[]){"0"};
	o = parse(v, said, sizeof(said));
	assert_string_equal(o.gang, "");
	assert_false(o.is_gang_found);
	assert_string_equal(said, "");
}

static void a_gang_s_name_is_not_cut(void **unused)
{
	char name[NVSHARE_GANG_LEN + 1], said[512];
	const struct variable v[] = {{"NVSHARE_GANG", name}, {NULL, NULL}};
	struct hook_options o;

	(void)unused;
	memset(name, 'a', sizeof(name));
	name[NVSHARE_GANG_LEN] = '\0';
	o = parse(v, said, sizeof(said));
	assert_string_equal(o.gang, "");
	assert_non_null(strstr(said, "NVSHARE_GANG is"));
	assert_non_null(strstr(said, "text of at most 127 bytes"));
	name[NVSHARE_GANG_LEN - 1] = '\0';
	o = parse(v, said, sizeof(said));
	assert_string_equal(o.gang, name);
	assert_string_equal(said, "");
}

static void every_range_holds_and_is_said_in_the_table_s_words(void **unused)
{
	char said[512], allowed[SETTING_TEXT_LEN];
	struct hook_options o, d = parse(NULL, said, sizeof(said));
	size_t n = 0;

	(void)unused;
	for (size_t i = 0; i < hook_options_table_len; i++) {
		const struct setting *s = &hook_options_table[i];

		if (s->kind != SETTING_NUMBER && s->kind != SETTING_SECONDS &&
		    s->kind != SETTING_MS && s->kind != SETTING_US)
			continue;
		print_message("%s\n", s->variable);
		n++;
		(void)parse_one(s, s->min, said, sizeof(said));
		assert_string_equal(said, "");
		(void)parse_one(s, s->max, said, sizeof(said));
		assert_string_equal(said, "");
		o = parse_one(s, s->max + s->max, said, sizeof(said));
		assert_same(&o, &d);
		setting_allowed(s, allowed);
		assert_non_null(strstr(said, s->variable));
		assert_non_null(strstr(said, allowed));
	}
	assert_int_equal(n, 11);
}

/* The compiler would have it that getenv() may change it. */
#define TEXT(name, value)                        \
	{                                        \
		name, (char *)(uintptr_t)(value) \
	}

static void ratios_are_parts_of_one(void **unused)
{
	static const struct variable good[] = {
		TEXT("NVSHARE_ORION_SM_THRESHOLD", "1"),
		TEXT("NVSHARE_ORION_DUR_THRESHOLD", "0.000001"),
		{NULL, NULL},
	};
	static const char *const bad[] = {"1.000001", "half"};
	char said[512];
	struct hook_options o = parse(good, said, sizeof(said));

	(void)unused;
	assert_string_equal(said, "");
	assert_int_equal(o.orion_sm_ppm, 1000000);
	assert_int_equal(o.orion_dur_ppm, 1);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct variable set[] = {TEXT("NVSHARE_ORION_SM_THRESHOLD", bad[i]), {NULL, NULL}};

		o = parse(set, said, sizeof(said));
		assert_int_equal(o.orion_sm_ppm, 500000);
		assert_non_null(strstr(said, "a ratio from 0.000001 to 1"));
	}
}

static void claims_are_read(void **unused)
{
	static const struct variable good[] = {
		TEXT("NVSHARE_PRIORITY", "HIGH"),        TEXT("NVSHARE_WEIGHT", "10000"),
		TEXT("NVSHARE_SLO_MS", "0.001"),         TEXT("NVSHARE_COMPUTE_LIMIT", "100"),
		TEXT("NVSHARE_BURST_IDLE_US", "100000"), {NULL, NULL},
	};
	static const struct variable bad[] = {
		TEXT("NVSHARE_PRIORITY", "highest"), TEXT("NVSHARE_WEIGHT", "0"),
		TEXT("NVSHARE_SLO_MS", "3600001"),   TEXT("NVSHARE_COMPUTE_LIMIT", "101"),
		TEXT("NVSHARE_BURST_IDLE_US", "99"), {NULL, NULL},
	};
	static const struct variable both[] = {TEXT("NVSHARE_PRIORITY", "low"),
					       TEXT("NVSHARE_LATENCY_CRITICAL", "1"),
					       {NULL, NULL}};
	struct hook_options o;
	char said[2048];

	(void)unused;
	o = parse(good, said, sizeof(said));
	assert_string_equal(said, "");
	assert_int_equal(o.claim.priority, NVSHARE_PRIORITY_HIGH);
	assert_int_equal(o.claim.weight, 10000);
	assert_int_equal(o.claim.slo_us, 1);
	assert_int_equal(o.claim.compute_limit, 100);
	assert_int_equal(o.burst_idle_ns, 100000000);
	o = parse(bad, said, sizeof(said));
	for (const struct variable *v = bad; v->name; v++)
		assert_non_null(strstr(said, v->name));
	assert_int_equal(o.claim.priority, NVSHARE_PRIORITY_NORMAL);
	assert_int_equal(o.claim.weight, NVSHARE_WEIGHT_DEFAULT);
	assert_int_equal(o.claim.slo_us, 0);
	assert_int_equal(o.claim.compute_limit, 0);
	assert_int_equal(o.burst_idle_ns, 500000);
	o = parse(both, said, sizeof(said));
	assert_int_equal(o.claim.priority, NVSHARE_PRIORITY_CRITICAL);
}

/* Of len bytes. */
static void name_folder(char *name, size_t len)
{
	memset(name, 'd', len);
	name[0] = '/';
	name[len] = '\0';
}

static void the_folder_of_the_socket_is_absolute_and_short(void **unused)
{
	char name[120], here[PATH_MAX], expected[PATH_MAX + 16], said[512];
	const struct variable dir[] = {{"NVSHARE_SOCK_DIR", name}, {NULL, NULL}};
	struct hook_options o;

	(void)unused;
	assert_int_equal(chdir("/tmp"), 0);
	assert_non_null(getcwd(here, sizeof(here)));
	(void)snprintf(name, sizeof(name), "some/where");
	(void)snprintf(expected, sizeof(expected), "%s/some/where", here);
	o = parse(dir, said, sizeof(said));
	assert_string_equal(o.sock_dir, expected);
	assert_string_equal(said, "");
	/* With a slash, the socket's name and an end it fills what the kernel has for it. */
	name_folder(name, 92);
	o = parse(dir, said, sizeof(said));
	assert_string_equal(o.sock_dir, name);
	assert_string_equal(said, "");
	name_folder(name, 93);
	o = parse(dir, said, sizeof(said));
	assert_string_equal(o.sock_dir, NVSHARE_SOCK_DIR_DEFAULT);
	assert_non_null(strstr(said, "NVSHARE_SOCK_DIR"));
	assert_non_null(strstr(said, "at most 92 bytes"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(defaults_hold_when_nothing_is_set),
		cmocka_unit_test(ratios_are_parts_of_one),
		cmocka_unit_test(claims_are_read),
		cmocka_unit_test(every_variable_is_read),
		cmocka_unit_test(a_pod_is_known_by_the_names_that_kubernetes_gives),
		cmocka_unit_test(a_bad_value_is_said_in_one_line_and_the_default_used),
		cmocka_unit_test(the_gang_is_the_one_that_is_named_or_the_launcher_s),
		cmocka_unit_test(a_gang_s_name_is_not_cut),
		cmocka_unit_test(every_range_holds_and_is_said_in_the_table_s_words),
		cmocka_unit_test(the_folder_of_the_socket_is_absolute_and_short),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
