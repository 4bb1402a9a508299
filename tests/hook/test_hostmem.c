/* SPDX-License-Identifier: Apache-2.0 */

/* How much host memory is left, read from a /proc and /sys made for the test. */

#include "hook/host/hostmem.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#define GIB (1ull << 30)

static char root[64];

static void put(const char *path, const char *text)
{
	char full[512];
	FILE *file;

	snprintf(full, sizeof(full), "%s%s", root, path);
	for (char *p = full + strlen(root) + 1; (p = strchr(p, '/')); p++) {
		*p = '\0';
		assert_true(mkdir(full, 0700) == 0 || errno == EEXIST);
		*p = '/';
	}
	file = fopen(full, "w");
	assert_non_null(file);
	assert_true(fputs(text, file) >= 0);
	assert_int_equal(fclose(file), 0);
}

static int setup(void **state)
{
	(void)state;
	strcpy(root, "/tmp/nvshare-hostmem-XXXXXX");
	assert_non_null(mkdtemp(root));
	hostmem_set_limit("");
	put("/proc/meminfo", "MemTotal:       33554432 kB\nMemFree:  1 kB\n"
			     "MemAvailable:   20971520 kB\n"); /* 32 and 20 GiB */
	put("/proc/self/cgroup", "0::/\n");
	return 0;
}

static int teardown(void **state)
{
	char command[128];

	(void)state;
	snprintf(command, sizeof(command), "rm -rf %s", root);
	return system(command);
}

/* A twentieth of all that there is. */
static uint64_t less_margin(uint64_t bytes, uint64_t whole)
{
	return bytes - whole / 20;
}

static void the_machine_bounds_less_a_margin(void **state)
{
	(void)state;
	assert_int_equal(hostmem_available_below(root, 0, false), less_margin(20 * GIB, 32 * GIB));
}

static void every_group_above_bounds(void **state)
{
	(void)state;
	put("/proc/self/cgroup", "0::/a/b\n");
	put("/sys/fs/cgroup/a/b/memory.max", "max\n");
	put("/sys/fs/cgroup/a/b/memory.current", "5\n");
	assert_int_equal(hostmem_available_below(root, 0, false), less_margin(20 * GIB, 32 * GIB));
	put("/sys/fs/cgroup/a/memory.max", "8589934592\n");
	put("/sys/fs/cgroup/a/memory.current", "5368709120\n");
	assert_int_equal(hostmem_available_below(root, 0, false), less_margin(3 * GIB, 8 * GIB));
	put("/sys/fs/cgroup/a/memory.stat", "anon 1\ninactive_file 1073741824\n");
	assert_int_equal(hostmem_available_below(root, 0, false), less_margin(4 * GIB, 8 * GIB));
	put("/sys/fs/cgroup/a/b/memory.max", "1073741829\n");
	assert_int_equal(hostmem_available_below(root, 0, false), less_margin(GIB, GIB + 5));
	put("/sys/fs/cgroup/a/b/memory.current", "2073741829\n");
	assert_int_equal(hostmem_available_below(root, 0, false), 0);
}

/* Kubernetes sets it below the limit; either may be without the other. */
static void a_group_is_not_brought_above_its_high_mark(void **state)
{
	(void)state;
	put("/proc/self/cgroup", "0::/pod\n");
	put("/sys/fs/cgroup/pod/memory.max", "8589934592\n");
	put("/sys/fs/cgroup/pod/memory.high", "4294967296\n");
	put("/sys/fs/cgroup/pod/memory.current", "1073741824\n");
	assert_int_equal(hostmem_available_below(root, 0, false), less_margin(3 * GIB, 4 * GIB));
	put("/sys/fs/cgroup/pod/memory.max", "max\n");
	assert_int_equal(hostmem_available_below(root, 0, false), less_margin(3 * GIB, 4 * GIB));
	put("/sys/fs/cgroup/pod/memory.high", "max\n");
	assert_int_equal(hostmem_available_below(root, 0, false), less_margin(20 * GIB, 32 * GIB));
	put("/sys/fs/cgroup/pod/memory.max", "2147483648\n");
	put("/sys/fs/cgroup/pod/memory.high", "4294967296\n");
	assert_int_equal(hostmem_available_below(root, 0, false), less_margin(GIB, 2 * GIB));
}

static void groups_of_version_1_bound_too(void **state)
{
	(void)state;
	put("/proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/docker/1234\n0::/x\n");
	/* As a container sees it: its own group is the mount point. */
	put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "4294967296\n");
	put("/sys/fs/cgroup/memory/memory.usage_in_bytes", "3221225472\n");
	put("/sys/fs/cgroup/memory/memory.stat", "total_inactive_file 1073741824\n");
	assert_int_equal(hostmem_available_below(root, 0, false), less_margin(2 * GIB, 4 * GIB));
	put("/sys/fs/cgroup/memory/docker/1234/memory.limit_in_bytes", "2147483648\n");
	put("/sys/fs/cgroup/memory/docker/1234/memory.usage_in_bytes", "1073741824\n");
	assert_int_equal(hostmem_available_below(root, 0, false), less_margin(GIB, 2 * GIB));
}

static void a_limit_stands_in_for_the_machine(void **state)
{
	(void)state;
	hostmem_set_limit("24GiB");
	assert_int_equal(hostmem_available_below(root, 0, false), 24 * GIB);
	assert_int_equal(hostmem_available_below(root, 20 * GIB, false), 4 * GIB);
	assert_int_equal(hostmem_available_below(root, 25 * GIB, false), 0);
	hostmem_set_others(3 * GIB);
	assert_int_equal(hostmem_available_below(root, 20 * GIB, false), GIB);
	assert_int_equal(hostmem_available_below(root, 22 * GIB, false), 0);
	hostmem_set_others(0);
	hostmem_set_limit("50%");
	assert_int_equal(hostmem_available_below(root, GIB, false), 15 * GIB);
	hostmem_set_limit("much"); /* says so once, and is ignored */
	assert_int_equal(hostmem_available_below(root, 0, false), less_margin(20 * GIB, 32 * GIB));
}

/* What others give back is the machine's, and so does not help a group that is full. */
static void what_is_coming_is_the_machines(void **state)
{
	(void)state;
	hostmem_set_coming(6 * GIB);
	hostmem_set_limit("24GiB");
	assert_int_equal(hostmem_available_below(root, 20 * GIB, true), 10 * GIB);
	assert_int_equal(hostmem_available_below(root, 20 * GIB, false), 4 * GIB);
	hostmem_set_limit("");
	assert_int_equal(hostmem_available_below(root, 0, true),
			 less_margin(20 * GIB, 32 * GIB) + 6 * GIB);
	put("/proc/self/cgroup", "0::/pod\n");
	put("/sys/fs/cgroup/pod/memory.max", "4294967296\n");
	put("/sys/fs/cgroup/pod/memory.current", "1073741824\n");
	assert_int_equal(hostmem_available_below(root, 0, true), less_margin(3 * GIB, 4 * GIB));
	hostmem_set_coming(UINT64_MAX); /* no sum is too large */
	assert_int_equal(hostmem_available_below(root, 0, true), less_margin(3 * GIB, 4 * GIB));
	hostmem_set_coming(0);
}

static void what_can_not_be_read_does_not_bound(void **state)
{
	(void)state;
	assert_int_equal(hostmem_available_below("/nonexistent", 0, false), UINT64_MAX);
	put("/proc/self/cgroup", "0::/../..\n\nnonsense\n7:\n");
	assert_int_equal(hostmem_available_below(root, 0, false), less_margin(20 * GIB, 32 * GIB));
	assert_true(hostmem_available(0) > 0);
}

int main(void)
{
#define HOSTMEM_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		HOSTMEM_TEST(the_machine_bounds_less_a_margin),
		HOSTMEM_TEST(every_group_above_bounds),
		HOSTMEM_TEST(a_group_is_not_brought_above_its_high_mark),
		HOSTMEM_TEST(groups_of_version_1_bound_too),
		HOSTMEM_TEST(a_limit_stands_in_for_the_machine),
		HOSTMEM_TEST(what_is_coming_is_the_machines),
		HOSTMEM_TEST(what_can_not_be_read_does_not_bound),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
