/* SPDX-License-Identifier: Apache-2.0 */
#include "ipc/sock.h"

#include "ipc/listener.h"
#include "ipc/pass.h"
#include "util/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

struct fixture {
	char dir[64];
	struct listener listener;
};

static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	if (!f)
		return -1;
	(void)snprintf(f->dir, sizeof(f->dir), "/tmp/nvshare-sock-XXXXXX");
	if (!mkdtemp(f->dir))
		return -1;
	f->listener = (struct listener){.fd = -1, .lock_fd = -1, .dir_fd = -1};
	*state = f;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;
	char command[128];
	int r;

	(void)fd_close(f->listener.fd);
	(void)fd_close(f->listener.lock_fd);
	(void)fd_close(f->listener.dir_fd);
	(void)snprintf(command, sizeof(command), "rm -r '%s'", f->dir);
	r = system(command);
	free(f);
	return r;
}

static void start(struct fixture *f)
{
	assert_int_equal(listener_open(f->dir, &f->listener), 0);
}

static int accept_one(const struct fixture *f)
{
	int fd = accept(f->listener.fd, NULL, NULL);

	assert_true(fd >= 0);
	return fd;
}

static void a_path_that_is_too_long_is_an_error(void **state)
{
	char dir[200];

	(void)state;
	memset(dir, 'x', sizeof(dir));
	dir[0] = '/';
	dir[sizeof(dir) - 1] = '\0';
	assert_int_equal(sock_connect(dir), -ENAMETOOLONG);
}

static void the_environment_names_the_directory(void **state)
{
	struct fixture *f = *state;
	int fd;

	start(f);
	assert_int_equal(setenv("NVSHARE_SOCK_DIR", f->dir, 1), 0);
	fd = sock_connect(NULL);
	assert_int_equal(unsetenv("NVSHARE_SOCK_DIR"), 0);
	assert_true(fd >= 0);
	assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	(void)fd_close(fd);
}

static void packets_come_whole_and_the_peer_is_known(void **state)
{
	struct fixture *f = *state;
	struct sock_peer peer;
	struct msg msg;
	struct msg got;
	size_t size;
	int client;
	int server;

	start(f);
	client = sock_connect(f->dir);
	server = accept_one(f);
	assert_int_equal(sock_recv(server, &got, sizeof(got)), -EAGAIN);
	size = msg_encode(NVSHARE_MSG_REQ_LOCK, 0, NULL, &msg);
	assert_int_equal(sock_send(client, &msg), 0);
	assert_int_equal(sock_send(client, &msg), 0);
	assert_int_equal(sock_recv(server, &got, sizeof(got)), size);
	assert_memory_equal(&msg, &got, size);
	assert_int_equal(sock_peer(server, &peer), 0);
	assert_int_equal(peer.pid, getpid());
	assert_int_equal(peer.uid, getuid());
	assert_int_equal(peer.gid, getgid());
	(void)fd_close(client);
	assert_int_equal(sock_recv(server, &got, sizeof(got)), size);
	assert_int_equal(sock_recv(server, &got, sizeof(got)), 0);
	/* SIGPIPE would end the test. */
	assert_int_equal(sock_send(server, &msg), -EPIPE);
	(void)fd_close(server);
}

static void a_reader_that_sleeps_gives_eagain(void **state)
{
	struct fixture *f = *state;
	struct msg msg;
	int client;
	int server;
	int r;

	start(f);
	client = sock_connect(f->dir);
	server = accept_one(f);
	(void)msg_encode(NVSHARE_MSG_HEARTBEAT, 0, NULL, &msg);
	do {
		r = sock_send(server, &msg);
	} while (!r);
	assert_int_equal(r, -EAGAIN);
	(void)fd_close(client);
	(void)fd_close(server);
}

static void a_client_is_passed_no_descriptor_unless_it_says_so(void **state)
{
	struct fixture *f = *state;
	struct pass pass;
	char byte;
	int client;
	int server;

	start(f);
	client = sock_connect(f->dir);
	server = accept_one(f);
	if (pass_send(server, "a", 1, 0) == 0)
		skip(); /* before Linux 6.16 nothing can be refused */
	assert_int_equal(pass_recv(client, &byte, 1, &pass), -EAGAIN);
	assert_int_equal(pass_allow(client, true), 0);
	assert_int_equal(pass_send(server, "a", 1, 0), 0);
	assert_int_equal(pass_recv(client, &byte, 1, &pass), 1);
	assert_true(pass.fd >= 0);
	pass_close(pass.fd);
	(void)fd_close(client);
	(void)fd_close(server);
}

static void a_kernel_that_can_refuses_descriptors_in_the_sender(void **state)
{
	struct fixture *f = *state;
	struct msg got;
	int client, server;

	start(f);
	if (f->listener.takes_rights)
		skip(); /* before Linux 6.16 */
	client = sock_connect(f->dir);
	/* Before and after accept(), in both directions. */
	assert_int_equal(pass_send(client, "x", 1, STDERR_FILENO), -EPERM);
	server = accept_one(f);
	assert_int_equal(pass_send(client, "x", 1, STDERR_FILENO), -EPERM);
	assert_int_equal(pass_send(server, "x", 1, STDERR_FILENO), -EPERM);
	assert_int_equal(sock_recv(server, &got, sizeof(got)), -EAGAIN);
	(void)fd_close(client);
	(void)fd_close(server);
}

/* With a pair, which refuses nothing, a new kernel does as an old one. */
static void what_comes_next_is_known_before_it_is_taken(void **state)
{
	static const int on = 1;
	struct msg got;
	int fds[2];

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, fds), 0);
	assert_int_equal(setsockopt(fds[0], SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)), 0);
	assert_int_equal(sock_next(fds[0]), SOCK_NEXT_NONE);
	assert_int_equal(send(fds[1], "", 0, 0), 0);
	assert_int_equal(send(fds[1], "abc", 3, 0), 3);
	assert_int_equal(pass_send(fds[1], "x", 1, STDERR_FILENO), 0);
	assert_int_equal(sock_next(fds[0]), SOCK_NEXT_PACKET);
	assert_int_equal(sock_recv(fds[0], &got, sizeof(got)), 0);
	assert_int_equal(sock_next(fds[0]), SOCK_NEXT_PACKET);
	assert_int_equal(sock_recv(fds[0], &got, sizeof(got)), 3);
	(void)fd_close(fds[1]);
	assert_int_equal(sock_next(fds[0]), SOCK_NEXT_RIGHTS);
	assert_int_equal(sock_next(fds[0]), SOCK_NEXT_RIGHTS);
	assert_int_equal(sock_recv(fds[0], &got, sizeof(got)), 1);
	assert_int_equal(sock_next(fds[0]), SOCK_NEXT_END);
	(void)fd_close(fds[0]);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		TEST(a_path_that_is_too_long_is_an_error),
		TEST(the_environment_names_the_directory),
		TEST(packets_come_whole_and_the_peer_is_known),
		TEST(a_reader_that_sleeps_gives_eagain),
		TEST(a_client_is_passed_no_descriptor_unless_it_says_so),
		TEST(a_kernel_that_can_refuses_descriptors_in_the_sender),
		TEST(what_comes_next_is_known_before_it_is_taken),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
