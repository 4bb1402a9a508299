/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/peers/process_state.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#define PID 12

static char root[] = "/tmp/nvshare-state-XXXXXX";

/* Makes the folders of the path, too. */
static void write_file(const char *path, const char *text)
{
	char name[512];
	FILE *file;

	(void)snprintf(name, sizeof(name), "%s%s", root, path);
	for (char *slash = strchr(name + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		(void)mkdir(name, 0755);
		*slash = '/';
	}
	file = fopen(name, "w");
	assert_non_null(file);
	assert_true(fputs(text, file) >= 0);
	assert_int_equal(fclose(file), 0);
}

static void write_threads(const char *states)
{
	char path[64], text[64];

	for (int i = 0; states[i]; i++) {
		(void)snprintf(path, sizeof(path), "/proc/12/task/%d/stat", PID + i);
		(void)snprintf(text, sizeof(text), "%d (a ) T (b) %c 1 2 3\n", PID + i, states[i]);
		write_file(path, text);
		if (i == 0)
			write_file("/proc/12/stat", text);
	}
}

static enum process_state state(void)
{
	char proc[256], cgroup[256];

	(void)snprintf(proc, sizeof(proc), "%s/proc", root);
	(void)snprintf(cgroup, sizeof(cgroup), "%s/cgroup", root);
	return process_state(proc, cgroup, PID);
}

static int set_up(void **unused)
{
	(void)unused;
	memcpy(root + strlen(root) - 6, "XXXXXX", 6);
	return mkdtemp(root) ? 0 : -1;
}

static int tear_down(void **unused)
{
	char command[128];

	(void)unused;
	(void)snprintf(command, sizeof(command), "rm -rf %s", root);
	return system(command);
}

static void a_process_stands_when_its_threads_do(void **unused)
{
	static const struct {
		const char *threads;
		enum process_state state;
	} rows[] = {
		{"TTT", PROCESS_STOPPED}, {"tttT", PROCESS_STOPPED}, {"tSt", PROCESS_GOES_ON},
		{"TRT", PROCESS_GOES_ON}, {"TDT", PROCESS_STOPPED},  {"R", PROCESS_GOES_ON},
		{"ZSS", PROCESS_GOES_ON}, {"S", PROCESS_GOES_ON},
	};

	(void)unused;
	write_file("/proc/12/cgroup", "0::/\n");
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		write_threads("SSSS");
		write_threads("ZZZZ"); /* of rows with more threads */
		write_threads(rows[i].threads);
		print_message("%s\n", rows[i].threads);
		assert_int_equal(state(), rows[i].state);
	}
}

static void a_frozen_group_is_seen(void **unused)
{
	static const struct {
		const char *groups, *file, *text;
		char thread;
		enum process_state state;
	} rows[] = {
		{"0::/a/b\n", "/cgroup/a/b/cgroup.events", "populated 1\nfrozen 0\n", 'S',
		 PROCESS_GOES_ON},
		{"0::/a/b\n", "/cgroup/a/b/cgroup.events", "populated 1\nfrozen 1\n", 'S',
		 PROCESS_FROZEN},
		{"9:cpu:/x\n0::/c\n", "/cgroup/unified/c/cgroup.events", "populated 1\nfrozen 1\n",
		 'S', PROCESS_FROZEN},
		{"6:freezer:/d\n5:devices:/d\n0::/\n", "/cgroup/freezer/d/freezer.state",
		 "FROZEN\n", 'D', PROCESS_FROZEN},
		{"6:freezer:/d\n0::/\n", "/cgroup/freezer/d/freezer.state", "THAWED\n", 'D',
		 PROCESS_GOES_ON},
		{"6:freezer:/\n0::/\n", "/none", "", 'S', PROCESS_GOES_ON},
		/* Of a container, whose groups are not shown here. */
		{"0::/e\n", "/none", "", 'S', PROCESS_UNSEEN},
		{"0::/../../e\n", "/none", "", 'S', PROCESS_UNSEEN},
		{"0::/../../e\n", "/none", "", 'R', PROCESS_GOES_ON},
		{"nonsense\n", "/none", "", 'S', PROCESS_GOES_ON},
	};

	(void)unused;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const char threads[] = {rows[i].thread, '\0'};

		write_threads(threads);
		write_file("/proc/12/cgroup", rows[i].groups);
		write_file(rows[i].file, rows[i].text);
		print_message("%zu\n", i);
		assert_int_equal(state(), rows[i].state);
	}
}

static void who_is_not_there_is_not_seen(void **unused)
{
	(void)unused;
	assert_int_equal(state(), PROCESS_UNSEEN);
	write_threads("S");
	assert_int_equal(state(), PROCESS_UNSEEN); /* no control groups */
	write_file("/proc/12/stat", "12 (nonsense");
	assert_int_equal(state(), PROCESS_UNSEEN);
	assert_int_equal(process_state("/proc", "/sys/fs/cgroup", 0), PROCESS_UNSEEN);
}

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		T(a_process_stands_when_its_threads_do),
		T(a_frozen_group_is_seen),
		T(who_is_not_there_is_not_seen),
	};
#undef T

	return cmocka_run_group_tests(tests, NULL, NULL);
}
