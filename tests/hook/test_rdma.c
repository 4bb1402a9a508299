/* SPDX-License-Identifier: Apache-2.0 */

#include "hook/memory/rdma.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

/* What lies in a folder called dev looks from here as the devices of a chroot do. */
static char root[64];

static void make(char *ret_path, size_t size, const char *device)
{
	int fd;

	(void)snprintf(ret_path, size, "%s/dev/%s", root, device);
	fd = open(ret_path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(close(fd), 0);
}

static int make_root(void **state)
{
	char path[96];

	(void)state;
	(void)snprintf(root, sizeof(root), "/tmp/nvshare-rdma-XXXXXX");
	if (!mkdtemp(root))
		return -1;
	(void)snprintf(path, sizeof(path), "%s/dev", root);
	if (mkdir(path, 0700))
		return -1;
	(void)snprintf(path, sizeof(path), "%s/dev/infiniband", root);
	return mkdir(path, 0700);
}

static int remove_root(void **state)
{
	static const char *const folders[] = {"/dev/infiniband", "/dev", ""};
	char path[96];

	(void)state;
	for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
		(void)snprintf(path, sizeof(path), "%s%s", root, folders[i]);
		if (rmdir(path))
			return -1;
	}
	return 0;
}

static int forget(void **state)
{
	(void)state;
	rdma_after_fork_child();
	return 0;
}

static void what_is_open_is_seen(const char *device, enum rdma expected)
{
	char path[96];
	int fd;

	make(path, sizeof(path), device);
	assert_int_equal(rdma_look(NULL), RDMA_NONE);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	errno = E2BIG;
	assert_int_equal(rdma_look(NULL), expected);
	assert_int_equal(errno, E2BIG);
	assert_int_equal(rdma_seen(), expected);
	assert_int_equal(close(fd), 0);
	/* A registration may have outlived the look that found it. */
	assert_int_equal(rdma_look(NULL), expected);
	assert_int_equal(unlink(path), 0);
	rdma_after_fork_child();
	assert_int_equal(rdma_look(NULL), RDMA_NONE);
}

static void each_way_to_memory_is_known(void **state)
{
	(void)state;
	what_is_open_is_seen("infiniband/uverbs0", RDMA_OPEN);
	what_is_open_is_seen("infiniband/uverbs17", RDMA_OPEN);
	what_is_open_is_seen("gdrdrv", RDMA_OPEN);
	what_is_open_is_seen("nvidia-fs3", RDMA_OPEN);
}

static void what_registers_nothing_is_nobodys_business(void **state)
{
	(void)state;
	what_is_open_is_seen("infiniband/rdma_cm", RDMA_NONE);
	what_is_open_is_seen("nvidia0", RDMA_NONE);
}

/* As in a container that has none, or a sandbox: it will not come back. */
static void without_proc_nobody_can_tell(void **state)
{
	(void)state;
	errno = E2BIG;
	assert_int_equal(rdma_look("/proc/self/no-such-folder"), RDMA_HIDDEN);
	assert_int_equal(errno, E2BIG);
	assert_int_equal(rdma_seen(), RDMA_HIDDEN);
	assert_int_equal(rdma_look(NULL), RDMA_HIDDEN);
	rdma_after_fork_child();
	assert_int_equal(rdma_look("/proc/self/comm"), RDMA_HIDDEN);
	rdma_after_fork_child();
	assert_int_equal(rdma_look(NULL), RDMA_NONE);
}

/* A program may have no descriptor left: then this time nothing can be said. */
static void without_a_look_it_is_not_known(void **state)
{
	struct rlimit limit, none;

	(void)state;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	none = (struct rlimit){.rlim_cur = 0, .rlim_max = limit.rlim_max};
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	errno = E2BIG;
	assert_int_equal(rdma_look(NULL), RDMA_UNKNOWN);
	assert_int_equal(errno, E2BIG);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	assert_int_equal(rdma_seen(), RDMA_NONE);
	assert_int_equal(rdma_look(NULL), RDMA_NONE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(each_way_to_memory_is_known, forget),
		cmocka_unit_test_teardown(what_registers_nothing_is_nobodys_business, forget),
		cmocka_unit_test_teardown(without_proc_nobody_can_tell, forget),
		cmocka_unit_test_teardown(without_a_look_it_is_not_known, forget),
	};

	return cmocka_run_group_tests(tests, make_root, remove_root);
}
