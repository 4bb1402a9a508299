/* SPDX-License-Identifier: Apache-2.0 */

/* Two programs in one process: device 0 gives, and device 1 takes. */

#include "hook/pager/transfer.h"

#include "hook/base/own_fd.h"
#include "hook/table/cuda_real.h"
#include "util/clock.h"

#include <fcntl.h>
#include <netinet/in.h>
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
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "open_files.h"

#define SIZE ((size_t)2 << 20)
#define ALL  UINT64_MAX

/* Of a packet, as another program would write it. */
struct forged {
	uint64_t magic;
	uint64_t size;
};
#define FORGED_MAGIC 0x6e767368616e6431ull

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

/* As the scheduler does it; returns the end that gives, which nobody has yet. */
static int make_source(CUdevice dev)
{
	const int on = 1, size = 8192;
	int ends[2];

	assert_int_equal(
		socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
	assert_int_equal(shutdown(ends[0], SHUT_RD), 0);
	assert_int_equal(setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size)), 0);
	assert_int_equal(setsockopt(ends[1], SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)), 0);
	transfer_add_source(dev, ends[1]);
	return ends[0];
}

/* Device 0 to device 1. */
static void introduce(void)
{
	transfer_set_sink(0, make_source(1));
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
	introduce();
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	transfer_aim(0, 0);
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

static void memory_goes_from_sink_to_source(void **state)
{
	size_t n = n_files();

	(void)state;
	transfer_aim(0, ALL);
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
	transfer_aim(0, SIZE + 1);
	assert_int_equal(transfer_export(1, 1), -1); /* of another device */
	assert_true(give(SIZE));
	assert_true(give(SIZE));
	assert_false(give(SIZE));
	transfer_aim(0, ALL);
	assert_true(give(SIZE));
	transfer_aim(0, 0);
	assert_false(give(SIZE));
}

static void what_nobody_takes_is_closed(void **state)
{
	size_t n = n_files(), n_given = 0;

	(void)state;
	/* The other one has gone: that is found out once. */
	transfer_close(1);
	transfer_aim(0, ALL);
	assert_false(give(SIZE));
	assert_int_equal(transfer_export(0, 1), -1);
	introduce();
	assert_int_equal(n_files(), n);
	/* One that does not look takes no more than its socket holds. */
	transfer_aim(0, ALL);
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
	int fds[TRANSFER_SOURCES_MAX];
	size_t n = n_files();

	(void)state;
	transfer_aim(0, ALL);
	for (int i = 0; i < 1000; i++) {
		(void)give(SIZE);
		transfer_receive(1);
	}
	assert_true(n_files() <= n + 64);
	assert_int_equal(transfer_fds(1, fds), 0);
	assert_true(transfer_drop(1));
	assert_int_equal(n_files(), n);
	assert_int_equal(transfer_fds(1, fds), 1);
}

static void what_lies_there_for_a_second_is_closed(void **state)
{
	size_t n = n_files();
	uint64_t due;

	(void)state;
	assert_int_equal(transfer_tick(1, clock_now_ns(), true), UINT64_MAX);
	transfer_aim(0, ALL);
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
	transfer_aim(0, ALL);
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
	transfer_aim(0, ALL);
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

static void what_the_driver_can_not_is_not_offered(void **state)
{
	(void)state;
	assert_true(transfer_supported(1));
	can_export = 0;
	assert_false(transfer_supported(1));
}

/* Several are evicted for one that comes. */
static void several_give_to_one(void **state)
{
	int fds[TRANSFER_SOURCES_MAX];
	size_t n = n_files();

	(void)state;
	for (size_t i = 0; i < TRANSFER_SOURCES_MAX - 1; i++) {
		transfer_aim(0, ALL);
		assert_true(give(SIZE + i));
		introduce();
	}
	assert_int_equal(transfer_fds(1, fds), TRANSFER_SOURCES_MAX);
	for (size_t i = TRANSFER_SOURCES_MAX - 1; i-- > 0;)
		assert_true(get(SIZE + i));
	/* Those that will give no more are gone; the last one is still there. */
	transfer_receive(1);
	assert_int_equal(transfer_fds(1, fds), 1);
	assert_int_equal(n_files(), n);
}

static void the_oldest_source_makes_place(void **state)
{
	int fds[TRANSFER_SOURCES_MAX], ends[TRANSFER_SOURCES_MAX];
	size_t n;

	(void)state;
	transfer_aim(0, ALL);
	assert_true(give(SIZE)); /* of the oldest, and never looked at */
	for (size_t i = 0; i < TRANSFER_SOURCES_MAX - 1; i++)
		ends[i] = make_source(1);
	n = n_files();
	ends[TRANSFER_SOURCES_MAX - 1] = make_source(1);
	assert_int_equal(n_files(), n + 1); /* that of the test */
	assert_int_equal(transfer_fds(1, fds), TRANSFER_SOURCES_MAX);
	assert_false(get(SIZE));
	assert_false(give(SIZE));
	for (size_t i = 0; i < TRANSFER_SOURCES_MAX; i++)
		close(ends[i]);
	transfer_receive(1);
	assert_int_equal(transfer_fds(1, fds), 0);
}

/* ---- another program at the other end ------------------------------------------- */

/* n_fds copies of fd and len bytes. */
static void send_forged(int end, const struct forged *forged, size_t len, int fd, size_t n_fds)
{
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(16 * sizeof(int))];
	} control = {.bytes = {0}};
	char bytes[2 * sizeof(*forged)] = {0};
	struct iovec part = {bytes, len};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
	int fds[16];

	memcpy(bytes, forged, sizeof(*forged));
	if (n_fds) {
		for (size_t i = 0; i < n_fds; i++)
			fds[i] = fd;
		message.msg_control = &control;
		message.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
		control.header.cmsg_level = SOL_SOCKET;
		control.header.cmsg_type = SCM_RIGHTS;
		control.header.cmsg_len = CMSG_LEN(n_fds * sizeof(int));
		memcpy(CMSG_DATA(&control.header), fds, n_fds * sizeof(int));
	}
	assert_int_equal(sendmsg(end, &message, MSG_DONTWAIT), len);
}

/* To a source of its own. */
static void forge(const struct forged *forged, size_t len, size_t n_fds)
{
	int end = make_source(1);

	send_forged(end, forged, len, memory, n_fds);
	close(end);
}

static const struct forged good = {.magic = FORGED_MAGIC, .size = SIZE};

static void expect_refused(size_t n)
{
	transfer_receive(1);
	assert_int_equal(n_files(), n);
	assert_false(get(SIZE));
}

static void what_is_not_well_formed_is_closed(void **state)
{
	struct forged wrong;
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
	wrong.size = 0;
	forge(&wrong, sizeof(wrong), 1);
	expect_refused(n);
}

/* It sent one that is not well-formed, and so is not heard again. */
static void whoever_sends_anything_else_is_not_heard_again(void **state)
{
	int fds[TRANSFER_SOURCES_MAX], end = make_source(1);

	(void)state;
	send_forged(end, &good, 1, memory, 1);
	send_forged(end, &good, sizeof(good), memory, 1);
	assert_false(get(SIZE));
	assert_int_equal(transfer_fds(1, fds), 1); /* the other one */
	assert_true(send(end, &good, sizeof(good), MSG_NOSIGNAL) < 0);
	close(end);
}

/* One that has dropped its privileges since it was introduced. */
static void another_user_is_refused(void **state)
{
	size_t n = n_files();
	int status, end;
	pid_t child;

	(void)state;
	if (geteuid() != 0)
		skip();
	end = make_source(1);
	child = fork();
	if (child == 0) {
		if (setuid(65534) < 0)
			_exit(1);
		send_forged(end, &good, sizeof(good), memory, 1);
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	close(end);
	expect_refused(n);
}

/* A TCP socket with bytes that nobody takes: its last close() waits for an hour. */
static int make_lingering(int *ret_other)
{
	const struct linger hour = {.l_onoff = 1, .l_linger = 3600};
	struct sockaddr_in addr = {.sin_family = AF_INET,
				   .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(addr);
	int listener = socket(AF_INET, SOCK_STREAM, 0), fd = socket(AF_INET, SOCK_STREAM, 0);
	char bytes[65536] = {0};

	assert_int_equal(bind(listener, (struct sockaddr *)&addr, len), 0);
	assert_int_equal(listen(listener, 1), 0);
	assert_int_equal(getsockname(listener, (struct sockaddr *)&addr, &len), 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&addr, len), 0);
	*ret_other = accept(listener, NULL, NULL);
	assert_true(*ret_other >= 0);
	close(listener);
	while (send(fd, bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
		;
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &hour, sizeof(hour)), 0);
	return fd;
}

/* Received, or still unread when the source is closed. */
static void a_socket_that_lingers_holds_nobody_up(void **state)
{
	int other, end, fd;

	(void)state;
	(void)alarm(100); /* without what is tested, this would take an hour */
	for (int is_read = 0; is_read < 2; is_read++) {
		fd = make_lingering(&other);
		end = make_source(1);
		send_forged(end, &good, 1, fd, 1);
		close(fd); /* not the last one: that is in the packet */
		if (is_read)
			transfer_receive(1);
		transfer_close(1);
		close(end);
		close(other);
	}
	(void)alarm(0);
}

static void a_forked_child_keeps_nothing(void **state)
{
	size_t n = n_files();
	int status;
	pid_t child;

	(void)state;
	transfer_aim(0, ALL);
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
	transfer_aim(0, ALL);
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
	transfer_aim(0, ALL);
	for (int i = 0; i < 3; i++) {
		fd = transfer_export(0, 1);
		if (i == 0)
			transfer_discard(fd);
		else if (i == 1)
			transfer_close_kept(transfer_keep(fd));
		else
			assert_true(transfer_send(0, fd, SIZE));
		again = fcntl(memory, F_DUPFD_CLOEXEC, fd);
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
		kept[i] = transfer_keep(own_fd_take(fcntl(memory, F_DUPFD_CLOEXEC, 0)));
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
	assert_int_equal(transfer_keep(own_fd_take(fcntl(memory, F_DUPFD_CLOEXEC, 0))), kept[3]);
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
		T(memory_goes_from_sink_to_source),
		T(only_the_bytes_of_the_order_go),
		T(what_nobody_takes_is_closed),
		T(no_more_is_held_than_a_few),
		T(what_lies_there_for_a_second_is_closed),
		T(what_nobody_needs_is_closed_at_once),
		T(the_driver_s_refusal_is_no_harm),
		T(what_the_driver_can_not_is_not_offered),
		T(several_give_to_one),
		T(the_oldest_source_makes_place),
		T(what_is_not_well_formed_is_closed),
		T(whoever_sends_anything_else_is_not_heard_again),
		T(another_user_is_refused),
		T(a_socket_that_lingers_holds_nobody_up),
		T(a_forked_child_keeps_nothing),
		T(a_child_forked_in_the_middle_keeps_nothing),
		T(a_number_that_is_in_hand_no_more_is_left_alone),
		T(few_descriptors_are_kept),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
