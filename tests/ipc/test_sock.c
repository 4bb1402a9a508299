/* SPDX-License-Identifier: Apache-2.0 */
#include "ipc/sock.h"

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
#include <sys/stat.h>
#include <sys/wait.h>

#include <cmocka.h>

struct fixture {
	char dir[64];
	char path[96];
	int listen_fd;
	int lock_fd;
	bool is_stale;
};

static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	if (!f)
		return -1;
	(void)snprintf(f->dir, sizeof(f->dir), "/tmp/nvshare-sock-XXXXXX");
	if (!mkdtemp(f->dir))
		return -1;
	(void)snprintf(f->path, sizeof(f->path), "%s/scheduler.sock", f->dir);
	f->listen_fd = f->lock_fd = -1;
	*state = f;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;
	char command[128];
	int r;

	(void)fd_close(f->listen_fd);
	(void)fd_close(f->lock_fd);
	(void)snprintf(command, sizeof(command), "rm -r '%s'", f->dir);
	r = system(command);
	free(f);
	return r;
}

static void start(struct fixture *f)
{
	f->listen_fd = sock_listen(f->dir, &f->lock_fd, &f->is_stale);
	assert_true(f->listen_fd >= 0);
}

static int accept_one(const struct fixture *f)
{
	int fd = accept(f->listen_fd, NULL, NULL);

	assert_true(fd >= 0);
	return fd;
}

static void everybody_may_connect_to_a_new_socket(void **state)
{
	struct fixture *f = *state;
	struct stat st;
	mode_t mask = umask(0077);

	start(f);
	umask(mask);
	assert_false(f->is_stale);
	assert_int_equal(stat(f->path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0666);
	assert_true(fcntl(f->listen_fd, F_GETFD) & FD_CLOEXEC);
	assert_true(fcntl(f->lock_fd, F_GETFD) & FD_CLOEXEC);
	assert_true(fcntl(f->listen_fd, F_GETFL) & O_NONBLOCK);
}

static void a_second_instance_is_told_and_harms_nothing(void **state)
{
	struct fixture *f = *state;
	bool is_stale = false;
	int lock_fd = -7;
	int fd;

	start(f);
	assert_int_equal(sock_listen(f->dir, &lock_fd, &is_stale), -EADDRINUSE);
	assert_int_equal(lock_fd, -7);
	fd = sock_connect(f->dir);
	assert_true(fd >= 0);
	(void)fd_close(fd);
}

static void a_dead_instance_leaves_a_stale_socket_that_is_replaced(void **state)
{
	struct fixture *f = *state;

	start(f);
	f->listen_fd = fd_close(f->listen_fd); /* as kill -9 does */
	f->lock_fd = fd_close(f->lock_fd);
	assert_int_equal(sock_connect(f->dir), -ECONNREFUSED);
	start(f);
	assert_true(f->is_stale);
	(void)fd_close(sock_connect(f->dir));
}

static void a_file_in_the_socket_s_place_is_kept(void **state)
{
	struct fixture *f = *state;
	int fd = open(f->path, O_CREAT | O_WRONLY, 0600);

	assert_true(fd >= 0);
	(void)fd_close(fd);
	assert_int_equal(sock_listen(f->dir, &f->lock_fd, &f->is_stale), -EEXIST);
	assert_int_equal(access(f->path, F_OK), 0);
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

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		TEST(everybody_may_connect_to_a_new_socket),
		TEST(a_second_instance_is_told_and_harms_nothing),
		TEST(a_dead_instance_leaves_a_stale_socket_that_is_replaced),
		TEST(a_file_in_the_socket_s_place_is_kept),
		TEST(a_path_that_is_too_long_is_an_error),
		TEST(the_environment_names_the_directory),
		TEST(packets_come_whole_and_the_peer_is_known),
		TEST(a_reader_that_sleeps_gives_eagain),
		TEST(a_client_is_passed_no_descriptor_unless_it_says_so),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
