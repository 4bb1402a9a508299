/* SPDX-License-Identifier: Apache-2.0 */

/* Two doors in one process: of device 0, which gives, and of device 1, which takes. */

#include "hook/pager/transfer.h"

#include "hook/table/cuda_real.h"
#include "util/clock.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "open_files.h"

#define SIZE ((size_t)2 << 20)
#define ALL  UINT64_MAX

/* As a stranger would write it. */
struct forged {
	uint8_t key[16];
	uint64_t magic;
	uint64_t size;
};
#define FORGED_MAGIC 0x6e767368616e6431ull

static struct nvshare_door giver, taker;
static int memory = -1; /* the one piece that is exported: handle 1 */
static CUresult export_error, import_error;
static int can_export;

static CUresult attribute(int *value, CUdevice_attribute which, CUdevice dev)
{
	(void)dev;
	assert_int_equal(which, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
	*value = can_export;
	return CUDA_SUCCESS;
}

static CUresult export(void *shareable, CUmemGenericAllocationHandle handle,
		       CUmemAllocationHandleType type, unsigned long long flags)
{
	assert_int_equal(handle, 1);
	assert_int_equal(type, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
	assert_int_equal(flags, 0);
	if (export_error == CUDA_SUCCESS)
		*(int *)shareable = fcntl(memory, F_DUPFD, 0);
	return export_error;
}

/* The handle says which memory came. */
static CUresult import(CUmemGenericAllocationHandle *handle, void *shareable,
		       CUmemAllocationHandleType type)
{
	uint32_t first = 0;

	assert_int_equal(type, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
	if (import_error != CUDA_SUCCESS)
		return import_error;
	assert_int_equal(pread((int)(intptr_t)shareable, &first, sizeof(first), 0), sizeof(first));
	*handle = first;
	return CUDA_SUCCESS;
}

static CUresult release(CUmemGenericAllocationHandle handle)
{
	(void)handle;
	return CUDA_SUCCESS;
}

static bool is_open(const struct nvshare_door *door)
{
	static const struct nvshare_door none;

	return memcmp(door, &none, sizeof(none)) != 0;
}

static int set_up(void **state)
{
	uint32_t first = 4711;

	(void)state;
	cuda_real.cuDeviceGetAttribute = attribute;
	cuda_real.cuMemExportToShareableHandle = export;
	cuda_real.cuMemImportFromShareableHandle = import;
	cuda_real.cuMemRelease = release;
	can_export = 1;
	export_error = import_error = CUDA_SUCCESS;
	memory = memfd_create("memory", MFD_CLOEXEC);
	assert_int_equal(write(memory, &first, sizeof(first)), sizeof(first));
	transfer_open(0, &giver);
	transfer_open(1, &taker);
	assert_true(is_open(&giver) && is_open(&taker));
	assert_memory_not_equal(&giver.name, &taker.name, sizeof(giver.name));
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	transfer_close(0);
	transfer_close(1);
	close(memory);
	return 0;
}

static bool give(size_t size)
{
	int fd = transfer_export(0, 1);

	if (fd < 0)
		return false;
	assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	return transfer_send(0, fd, size);
}

static bool get(size_t size)
{
	CUmemGenericAllocationHandle handle = 0;
	unsigned int kept = 0;

	if (!transfer_import(1, size, &handle, &kept))
		return false;
	assert_int_equal(handle, 4711);
	assert_int_not_equal(kept, 0);
	assert_int_equal(close(transfer_take_kept(kept)), 0);
	assert_int_equal(transfer_take_kept(kept), -1);
	return true;
}

static void memory_goes_from_door_to_door(void **state)
{
	size_t n = n_files();

	(void)state;
	transfer_aim(0, &taker, ALL);
	assert_true(give(SIZE));
	assert_true(give(2 * SIZE));
	assert_true(give(3 * SIZE));
	assert_true(get(2 * SIZE));
	assert_false(get(2 * SIZE));
	assert_true(get(SIZE));
	assert_true(get(3 * SIZE));
	assert_false(get(SIZE));
	assert_int_equal(n_files(), n);
}

static void only_the_bytes_of_the_order_go(void **state)
{
	(void)state;
	assert_false(give(SIZE)); /* no order at all */
	transfer_aim(0, &taker, SIZE + 1);
	assert_int_equal(transfer_export(1, 1), -1); /* of another device */
	assert_true(give(SIZE));
	assert_true(give(SIZE));
	assert_false(give(SIZE));
	transfer_aim(0, &taker, ALL);
	assert_true(give(SIZE));
	transfer_aim(0, &taker, 0);
	assert_false(give(SIZE));
}

static void what_nobody_takes_is_closed(void **state)
{
	size_t n = n_files(), n_given = 0;

	(void)state;
	/* Nobody is behind the door any more: that is found out once. */
	transfer_close(1);
	transfer_aim(0, &taker, ALL);
	assert_false(give(SIZE));
	assert_int_equal(transfer_export(0, 1), -1);
	transfer_open(1, &taker);
	assert_int_equal(n_files(), n);
	/* One that does not look takes no more than its socket holds. */
	transfer_aim(0, &taker, ALL);
	for (int i = 0; i < 2000; i++)
		n_given += give(SIZE);
	assert_int_equal(n_files(), n);
	assert_true(n_given > 0 && n_given < 2000);
	assert_true(transfer_drop(1));
	assert_false(transfer_drop(1));
	assert_int_equal(n_files(), n);
}

static void no_more_is_held_than_a_few(void **state)
{
	size_t n = n_files();

	(void)state;
	transfer_aim(0, &taker, ALL);
	for (int i = 0; i < 1000; i++) {
		(void)give(SIZE);
		transfer_receive(1);
	}
	assert_true(n_files() <= n + 64);
	assert_int_equal(transfer_fd(1, clock_now_ns()), -1);
	assert_true(transfer_drop(1));
	assert_int_equal(n_files(), n);
	assert_true(transfer_fd(1, clock_now_ns()) >= 0);
}

static void what_lies_there_for_a_second_is_closed(void **state)
{
	size_t n = n_files();
	uint64_t due;

	(void)state;
	assert_int_equal(transfer_tick(1, clock_now_ns(), true), UINT64_MAX);
	transfer_aim(0, &taker, ALL);
	assert_true(give(SIZE));
	transfer_receive(1);
	due = transfer_tick(1, clock_now_ns(), true);
	assert_true(due <= clock_now_ns() + CLOCK_NS_PER_SEC);
	assert_int_equal(transfer_tick(1, due - 1, true), due);
	assert_int_equal(n_files(), n + 1);
	assert_int_equal(transfer_tick(1, due, true), UINT64_MAX);
	assert_int_equal(n_files(), n);
}

static void what_nobody_needs_is_closed_at_once(void **state)
{
	size_t n = n_files();

	(void)state;
	transfer_aim(0, &taker, ALL);
	assert_true(give(SIZE));
	transfer_receive(1);
	assert_int_equal(n_files(), n + 1);
	assert_int_equal(transfer_tick(1, clock_now_ns(), false), UINT64_MAX);
	assert_int_equal(n_files(), n);
}

static void the_driver_s_refusal_is_no_harm(void **state)
{
	size_t n = n_files();

	(void)state;
	transfer_aim(0, &taker, ALL);
	assert_true(give(SIZE));
	import_error = CUDA_ERROR_INVALID_VALUE;
	assert_false(get(SIZE));
	export_error = CUDA_ERROR_NOT_SUPPORTED;
	assert_false(give(SIZE));
	export_error = CUDA_SUCCESS;
	assert_false(give(SIZE)); /* not tried again within this order */
	transfer_probe(1);
	assert_int_equal(n_files(), n);
}

static void a_device_that_can_not_has_no_door(void **state)
{
	(void)state;
	can_export = 0;
	transfer_open(1, &taker);
	assert_false(is_open(&taker));
	assert_int_equal(transfer_fd(1, 0), -1);
	assert_false(get(SIZE));
}

/* ---- strangers --------------------------------------------------------------- */

/* n_fds descriptors and len bytes, to the taker's door. */
static void forge(const struct forged *forged, size_t len, size_t n_fds)
{
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(16 * sizeof(int))];
	} control = {.bytes = {0}};
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	char bytes[2 * sizeof(*forged)] = {0};
	struct iovec part = {bytes, len};
	struct msghdr message = {.msg_name = &addr, .msg_iov = &part, .msg_iovlen = 1};
	int fd = socket(AF_UNIX, SOCK_DGRAM, 0), fds[16];
	int at = snprintf(addr.sun_path + 1, sizeof(addr.sun_path) - 1, "nvshare-");

	memcpy(bytes, forged, sizeof(*forged));
	for (size_t i = 0; i < sizeof(taker.name); i++)
		at += snprintf(addr.sun_path + 1 + at, 3, "%02x", taker.name[i]);
	message.msg_namelen = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)at);
	if (n_fds) {
		for (size_t i = 0; i < n_fds; i++)
			fds[i] = memory;
		message.msg_control = &control;
		message.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
		control.header.cmsg_level = SOL_SOCKET;
		control.header.cmsg_type = SCM_RIGHTS;
		control.header.cmsg_len = CMSG_LEN(n_fds * sizeof(int));
		memcpy(CMSG_DATA(&control.header), fds, n_fds * sizeof(int));
	}
	assert_int_equal(sendmsg(fd, &message, MSG_DONTWAIT), len);
	close(fd);
}

static struct forged right(void)
{
	struct forged forged = {.magic = FORGED_MAGIC, .size = SIZE};

	memcpy(forged.key, taker.key, sizeof(forged.key));
	return forged;
}

static void expect_refused(size_t n)
{
	transfer_receive(1);
	assert_int_equal(n_files(), n);
	assert_false(get(SIZE));
}

static void what_is_not_well_formed_is_closed(void **state)
{
	struct forged good = right(), wrong;
	size_t n = n_files();

	(void)state;
	forge(&good, sizeof(good), 1);
	assert_true(get(SIZE)); /* the rest differs from this in one thing each */
	for (size_t n_fds = 0; n_fds <= 16; n_fds++) {
		if (n_fds == 1)
			continue;
		forge(&good, sizeof(good), n_fds);
		expect_refused(n);
	}
	forge(&good, sizeof(good) - 1, 1);
	expect_refused(n);
	forge(&good, sizeof(good) + 1, 1);
	expect_refused(n);
	forge(&good, 0, 1);
	expect_refused(n);
	wrong = good;
	wrong.magic++;
	forge(&wrong, sizeof(wrong), 1);
	expect_refused(n);
	wrong = good;
	wrong.key[15] ^= 1;
	forge(&wrong, sizeof(wrong), 1);
	expect_refused(n);
	wrong = good;
	wrong.size = 0;
	forge(&wrong, sizeof(wrong), 1);
	expect_refused(n);
	assert_int_equal(transfer_fd(1, clock_now_ns()), -1); /* not listened to for a while */
	assert_true(transfer_fd(1, clock_now_ns() + CLOCK_NS_PER_SEC) >= 0);
}

static void another_user_is_refused(void **state)
{
	struct forged good = right();
	size_t n = n_files();
	int status;
	pid_t child;

	(void)state;
	if (geteuid() != 0)
		skip();
	child = fork();
	if (child == 0) {
		if (setuid(65534) < 0)
			_exit(1);
		forge(&good, sizeof(good), 1);
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	expect_refused(n);
}

static void a_forked_child_keeps_nothing(void **state)
{
	size_t n = n_files();
	int status;
	pid_t child;

	(void)state;
	transfer_aim(0, &taker, ALL);
	assert_true(give(SIZE) && give(2 * SIZE));
	transfer_receive(1);
	assert_int_equal(n_files(), n + 2);
	child = fork();
	if (child == 0) {
		transfer_after_fork_child();
		_exit(n_files() == n - 2 && !transfer_drop(1) && transfer_export(0, 1) < 0 ? 0 : 1);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_true(get(SIZE) && get(2 * SIZE));
}

/* How many a child has after a fork in the middle of something. */
static size_t n_files_in_child(void)
{
	int status;
	pid_t child = fork();

	if (child == 0) {
		transfer_after_fork_child();
		_exit((int)n_files());
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	return (size_t)WEXITSTATUS(status);
}

static size_t n_in_child;

static CUresult fork_and_import(CUmemGenericAllocationHandle *handle, void *shareable,
				CUmemAllocationHandleType type)
{
	n_in_child = n_files_in_child();
	return import(handle, shareable, type);
}

/* Data loaders are forked at any time, and live for long: so would the memory. */
static void a_child_forked_in_the_middle_keeps_nothing(void **state)
{
	size_t n = n_files_in_child();
	unsigned int kept = 0;
	CUmemGenericAllocationHandle handle;
	int fd;

	(void)state;
	transfer_aim(0, &taker, ALL);
	fd = transfer_export(0, 1);
	assert_true(fd >= 0);
	assert_int_equal(n_files_in_child(), n);
	assert_true(transfer_send(0, fd, SIZE));
	cuda_real.cuMemImportFromShareableHandle = fork_and_import;
	assert_true(transfer_import(1, SIZE, &handle, &kept));
	assert_int_equal(n_in_child, n);
	fd = transfer_take_kept(kept);
	assert_int_equal(n_files_in_child(), n);
	transfer_discard(fd);
	transfer_probe(1);
	assert_int_equal(n_in_child, n);
}

static void a_number_that_is_in_hand_no_more_is_left_alone(void **state)
{
	size_t n = n_files_in_child();
	int fd, again;

	(void)state;
	transfer_aim(0, &taker, ALL);
	for (int i = 0; i < 3; i++) {
		fd = transfer_export(0, 1);
		if (i == 0)
			transfer_discard(fd);
		else if (i == 1)
			transfer_close_kept(transfer_keep(fd));
		else
			assert_true(transfer_send(0, fd, SIZE));
		again = fcntl(memory, F_DUPFD_CLOEXEC, 0);
		assert_int_equal(again, fd);
		assert_int_equal(n_files_in_child(), n + 1);
		close(again);
	}
}

/* One for each piece of memory that was taken over: they are the program's, too. */
static void few_descriptors_are_kept(void **state)
{
	struct rlimit before, limit;
	unsigned int kept[9];
	size_t n = n_files();
	int status;
	pid_t child;

	(void)state;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	limit = before;
	limit.rlim_cur = 64;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	for (size_t i = 0; i < 9; i++)
		kept[i] = transfer_keep(fcntl(memory, F_DUPFD_CLOEXEC, 0));
	assert_int_equal(kept[8], 0);
	assert_int_equal(n_files(), n + 8);
	child = fork();
	if (child == 0) {
		transfer_after_fork_child();
		_exit(n_files() == n - 2 && transfer_take_kept(kept[0]) < 0 ? 0 : 1);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	transfer_close_kept(kept[3]);
	assert_int_equal(transfer_keep(fcntl(memory, F_DUPFD_CLOEXEC, 0)), kept[3]);
	for (size_t i = 0; i < 8; i++)
		transfer_discard(transfer_take_kept(kept[i]));
	assert_int_equal(transfer_take_kept(0), -1);
	transfer_close_kept(0);
	assert_int_equal(n_files(), n);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		T(memory_goes_from_door_to_door),
		T(only_the_bytes_of_the_order_go),
		T(what_nobody_takes_is_closed),
		T(no_more_is_held_than_a_few),
		T(what_lies_there_for_a_second_is_closed),
		T(what_nobody_needs_is_closed_at_once),
		T(the_driver_s_refusal_is_no_harm),
		T(a_device_that_can_not_has_no_door),
		T(what_is_not_well_formed_is_closed),
		T(another_user_is_refused),
		T(a_forked_child_keeps_nothing),
		T(a_child_forked_in_the_middle_keeps_nothing),
		T(a_number_that_is_in_hand_no_more_is_left_alone),
		T(few_descriptors_are_kept),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
