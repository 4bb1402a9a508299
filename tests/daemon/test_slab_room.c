/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/pool/slab_kind.h"
#include "daemon/pool/slab_room.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define MIB (1ull << 20)

static char root[32];

static int set_up(void **state)
{
	(void)state;
	(void)strcpy(root, "/tmp/slab-room.XXXXXX");
	return mkdtemp(root) ? 0 : -1;
}

static int tear_down(void **state)
{
	char command[64];

	(void)state;
	(void)snprintf(command, sizeof(command), "rm -rf '%s'", root);
	return system(command);
}

static void put(const char *path, const char *text)
{
	char command[256];
	FILE *file;

	(void)snprintf(command, sizeof(command), "mkdir -p \"$(dirname '%s%s')\"", root, path);
	assert_int_equal(system(command), 0);
	(void)snprintf(command, sizeof(command), "%s%s", root, path);
	file = fopen(command, "w");
	assert_non_null(file);
	(void)fputs(text, file);
	(void)fclose(file);
}

static uint64_t limit_of(const char *value)
{
	struct slab_room_limit limit = {""};

	assert_int_equal(slab_room_parse(value, &limit), 0);
	return slab_room_limit(root, &limit);
}

static void a_limit_is_a_size_or_a_part_of_the_machine(void **state)
{
	struct slab_room_limit limit = {"7"};

	(void)state;
	put("/proc/meminfo", "MemTotal:       10240 kB\nMemFree: 1 kB\nMemAvailable:    5120 kB\n");
	assert_int_equal(limit_of("none"), UINT64_MAX);
	assert_int_equal(limit_of("3MiB"), 3 * MIB);
	assert_int_equal(limit_of("50%"), 5 * MIB);
	assert_int_equal(slab_room_parse("much", &limit), -EINVAL);
	assert_string_equal(limit.text, "7");
	assert_int_equal(slab_room_available(root), 5 * MIB - 10 * MIB / 20);
}

static void a_machine_that_tells_nothing_has_no_room(void **state)
{
	(void)state;
	assert_int_equal(slab_room_available(root), 0);
}

static void the_group_of_version_2_is_found(void **state)
{
	char text[2000], group[SLAB_ROOM_GROUP_LEN];

	(void)state;
	put("/proc/5/cgroup", "3:memory:/other\n0::/a/b\n");
	assert_true(slab_room_group(root, 5, group));
	assert_string_equal(group, "/a/b");
	put("/proc/5/cgroup", "3:memory:/other\n");
	assert_false(slab_room_group(root, 5, group));
	assert_false(slab_room_group(root, 6, group));
	(void)snprintf(text, sizeof(text), "0::/upper/%01000d\n", 1);
	put("/proc/5/cgroup", text);
	assert_true(slab_room_group(root, 5, group));
	assert_string_equal(group, "/upper");
}

static void a_group_is_in_itself_and_in_those_above(void **state)
{
	(void)state;
	assert_true(slab_room_is_in("/a/b", "/"));
	assert_true(slab_room_is_in("/a/b", "/a"));
	assert_true(slab_room_is_in("/a/b", "/a/b"));
	assert_false(slab_room_is_in("/a/bc", "/a/b"));
	assert_false(slab_room_is_in("/a", "/a/b"));
	assert_false(slab_room_is_in("", "/a"));
}

/* In /a 30 MiB are lent, 10 of them in /a/b. */
static uint64_t lent(const void *owner, const char *group)
{
	(void)owner;
	return strcmp(group, "/a") == 0 ? 30 * MIB : 10 * MIB;
}

static void the_tightest_group_decides(void **state)
{
	(void)state;
	assert_int_equal(slab_room_own(root, "/a/b", lent, NULL), UINT64_MAX);
	put("/sys/fs/cgroup/a/b/memory.max", "max\n");
	put("/sys/fs/cgroup/a/memory.max", "104857600\n");
	put("/sys/fs/cgroup/a/memory.current", "20971520\n");
	assert_int_equal(slab_room_own(root, "/a/b", lent, NULL), (95 - 20 - 30) * MIB);
	put("/sys/fs/cgroup/a/memory.high", "62914560\n");
	assert_int_equal(slab_room_own(root, "/a/b", lent, NULL), (57 - 20 - 30) * MIB);
	put("/sys/fs/cgroup/a/b/memory.max", "5242880\n");
	assert_int_equal(slab_room_own(root, "/a/b", lent, NULL), 0);
	assert_int_equal(slab_room_own(root, "/", lent, NULL), UINT64_MAX);
	assert_int_equal(slab_room_own(root, "/../a", lent, NULL), UINT64_MAX);
}

static void only_memory_and_devices_may_be_slabs(void **state)
{
	int pair[2], memory = memfd_create("slab", MFD_CLOEXEC), zero = open("/dev/zero", O_RDONLY);
	int event = eventfd(0, 0), folder = open("/", O_RDONLY);
	int file = open("/proc/self/status", O_RDONLY), disk = open("/bin/sh", O_RDONLY);

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	assert_true(slab_kind_is_memory(memory));
	assert_true(slab_kind_is_memory(zero));
	assert_true(slab_kind_is_memory(event));
	assert_false(slab_kind_is_memory(pair[0]));
	assert_false(slab_kind_is_memory(folder));
	assert_false(slab_kind_is_memory(file));
	assert_false(slab_kind_is_memory(disk));
	assert_false(slab_kind_is_memory(-1));
	close(pair[0]);
	close(pair[1]);
	close(memory);
	close(zero);
	close(event);
	close(folder);
	close(file);
	close(disk);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_limit_is_a_size_or_a_part_of_the_machine, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(a_machine_that_tells_nothing_has_no_room, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(the_group_of_version_2_is_found, set_up, tear_down),
		cmocka_unit_test(a_group_is_in_itself_and_in_those_above),
		cmocka_unit_test_setup_teardown(the_tightest_group_decides, set_up, tear_down),
		cmocka_unit_test(only_memory_and_devices_may_be_slabs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
