/* SPDX-License-Identifier: Apache-2.0 */
#include "ipc/pass.h"

#include "util/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "../hook/open_files.h"

#define MANY 253 /* the most that a packet can hold */

static int ends[2];

static int set_up(void **state)
{
	(void)state;
	return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends);
}

static int tear_down(void **state)
{
	(void)state;
	ends[0] = fd_close(ends[0]);
	ends[1] = fd_close(ends[1]);
	return 0;
}

/* A packet with n copies of fd, in place of the library's own, which sends one. */
static int send_many(int fd, size_t n)
{
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(MANY * sizeof(int))];
	} control = {.bytes = {0}};
	char byte = 'x';
	struct iovec part = {&byte, 1};
	struct msghdr message = {
		.msg_iov = &part,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = CMSG_SPACE(n * sizeof(int)),
	};

	control.header.cmsg_level = SOL_SOCKET;
	control.header.cmsg_type = SCM_RIGHTS;
	control.header.cmsg_len = CMSG_LEN(n * sizeof(int));
	for (size_t i = 0; i < n; i++)
		memcpy(CMSG_DATA(&control.header) + i * sizeof(int), &fd, sizeof(fd));
	return sendmsg(ends[0], &message, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -errno : 0;
}

static void a_descriptor_arrives_with_its_packet(void **state)
{
	int pipes[2];
	struct pass pass;
	char byte = 0;

	(void)state;
	assert_int_equal(pipe(pipes), 0);
	assert_int_equal(pass_send(ends[0], "a", 1, pipes[1]), 0);
	assert_int_equal(pass_recv(ends[1], &byte, 1, &pass), 1);
	assert_int_equal(byte, 'a');
	assert_true(pass.fd >= 0 && fcntl(pass.fd, F_GETFD) & FD_CLOEXEC);
	assert_int_equal(pass.uid, PASS_NO_UID);
	assert_int_equal(write(pass.fd, "b", 1), 1);
	assert_int_equal(read(pipes[0], &byte, 1), 1);
	assert_int_equal(byte, 'b');
	pass_close(pass.fd);
	close(pipes[0]);
	close(pipes[1]);
}

static void nothing_and_the_end_are_told_apart(void **state)
{
	struct pass pass;
	char byte;

	(void)state;
	assert_int_equal(pass_recv(ends[1], &byte, 1, &pass), -EAGAIN);
	assert_int_equal(pass.fd, -1);
	assert_int_equal(send(ends[0], "a", 1, 0), 1);
	ends[0] = fd_close(ends[0]);
	assert_int_equal(pass_recv(ends[1], &byte, 1, &pass), 1);
	assert_int_equal(pass.fd, -1);
	assert_int_equal(pass_recv(ends[1], &byte, 1, &pass), 0);
	assert_int_equal(pass_send(ends[1], "a", 1, 0), -EPIPE);
}

static void more_than_one_are_all_closed(void **state)
{
	struct pass pass;
	size_t n = n_files();
	char byte;

	(void)state;
	for (size_t n_fds = 2; n_fds <= MANY; n_fds += MANY - 2) {
		assert_int_equal(send_many(0, n_fds), 0);
		assert_int_equal(pass_recv(ends[1], &byte, 1, &pass), 1);
		assert_int_equal(pass.fd, -1);
		assert_int_equal(n_files(), n);
	}
}

static void the_sender_is_named_where_that_is_asked_for(void **state)
{
	struct pass pass;
	int on = 1;
	char byte;

	(void)state;
	assert_int_equal(setsockopt(ends[1], SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)), 0);
	assert_int_equal(pass_send(ends[0], "a", 1, 0), 0);
	assert_int_equal(pass_recv(ends[1], &byte, 1, &pass), 1);
	assert_int_equal(pass.uid, getuid());
	pass_close(pass.fd);
}

static void a_socket_that_refuses_gets_none(void **state)
{
	struct pass pass;
	char byte;

	(void)state;
	if (pass_allow(ends[1], false) == -ENOPROTOOPT)
		skip(); /* before Linux 6.16 */
	assert_int_equal(pass_send(ends[0], "a", 1, 0), -EPERM);
	assert_int_equal(send(ends[0], "b", 1, 0), 1);
	assert_int_equal(pass_recv(ends[1], &byte, 1, &pass), 1);
	assert_int_equal(byte, 'b');
	/* It can still send some, as the scheduler does. */
	assert_int_equal(pass_send(ends[1], "c", 1, 0), 0);
	assert_int_equal(pass_recv(ends[0], &byte, 1, &pass), 1);
	assert_true(pass.fd >= 0);
	pass_close(pass.fd);
	assert_int_equal(pass_allow(ends[1], true), 0);
	assert_int_equal(pass_send(ends[0], "a", 1, 0), 0);
	assert_int_equal(pass_recv(ends[1], &byte, 1, &pass), 1);
	assert_true(pass.fd >= 0);
	pass_close(pass.fd);
}

/* Two ends of a TCP connection over the loopback device. */
static void connect_tcp(int ret_fds[2])
{
	struct sockaddr_in addr = {.sin_family = AF_INET,
				   .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(addr);
	int listener = socket(AF_INET, SOCK_STREAM, 0);

	assert_int_equal(bind(listener, (struct sockaddr *)&addr, len), 0);
	assert_int_equal(listen(listener, 1), 0);
	assert_int_equal(getsockname(listener, (struct sockaddr *)&addr, &len), 0);
	ret_fds[0] = socket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(connect(ret_fds[0], (struct sockaddr *)&addr, len), 0);
	ret_fds[1] = accept(listener, NULL, NULL);
	assert_true(ret_fds[1] >= 0);
	close(listener);
}

static void a_socket_does_not_linger_when_closed(void **state)
{
	const struct linger hour = {.l_onoff = 1, .l_linger = 3600};
	struct linger found;
	socklen_t len = sizeof(found);
	int tcp[2], again;

	(void)state;
	connect_tcp(tcp);
	again = dup(tcp[0]);
	assert_int_equal(setsockopt(tcp[0], SOL_SOCKET, SO_LINGER, &hour, sizeof(hour)), 0);
	errno = 7;
	pass_close(tcp[0]);
	pass_close(-1);
	assert_int_equal(errno, 7);
	assert_int_equal(getsockopt(again, SOL_SOCKET, SO_LINGER, &found, &len), 0);
	assert_int_equal(found.l_onoff, 0);
	close(again);
	close(tcp[1]);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		T(a_descriptor_arrives_with_its_packet),
		T(nothing_and_the_end_are_told_apart),
		T(more_than_one_are_all_closed),
		T(the_sender_is_named_where_that_is_asked_for),
		T(a_socket_that_refuses_gets_none),
		T(a_socket_does_not_linger_when_closed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
