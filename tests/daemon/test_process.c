/* SPDX-License-Identifier: Apache-2.0 */

/* Whether a pidfd is surely that of the process which connected: on this kernel, and on older ones.
 */

#include "daemon/peers/process.h"
#include "daemon/server.h"

#include "util/fd.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define PEERPIDFD 77

static bool is_old; /* the kernel: before 6.5 */
static struct server *server;
static struct peer peer;
static struct user user;
static int far;

/* In place of the C library's. */
int getsockopt(int fd, int level, int name, void *restrict value, socklen_t *restrict len)
{
	if (is_old && level == SOL_SOCKET && name == PEERPIDFD) {
		errno = ENOPROTOOPT;
		return -1;
	}
	return (int)syscall(SYS_getsockopt, fd, level, name, value, len);
}

static int set_up(void **state)
{
	int fds[2];

	(void)state;
	server = calloc(1, sizeof(*server));
	if (!server || socketpair(AF_UNIX, SOCK_SEQPACKET, 0, fds) < 0)
		return -1;
	(void)poller_open(&server->poller);
	server->users.limits.n_pidfds = 1;
	far = fds[1];
	peer_init(&peer, fds[0], &(struct sock_peer){getpid(), getuid(), getgid()});
	user = (struct user){.uid = getuid()};
	peer.user = &user;
	is_old = false;
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	peer_deinit(&peer);
	(void)fd_close(far);
	(void)fd_close(server->poller.fd);
	free(server);
	return 0;
}

static void the_socket_knows_its_process(void **state)
{
	socklen_t len = sizeof(int);
	int fd = -1;

	(void)state;
	if (getsockopt(peer.fd, SOL_SOCKET, PEERPIDFD, &fd, &len) < 0)
		skip();
	(void)fd_close(fd);
	process_connected(server, &peer);
	assert_int_equal(peer.pidfd, -1); /* it costs a descriptor, and can be had any time */
	assert_true(process_watch(server, &peer));
	assert_true(peer.pidfd >= 0 && peer.is_pidfd_sure);
	assert_int_equal(server->users.n_pidfds, 1);
}

static void on_an_older_kernel_it_is_held_as_it_connects(void **state)
{
	(void)state;
	is_old = true;
	process_connected(server, &peer);
	assert_true(peer.pidfd >= 0 && peer.is_pidfd_sure);
	assert_true(process_watch(server, &peer));
	assert_int_equal(server->users.n_pidfds, 1);
}

/* By then its number may be another's: good enough to see an end, and not to hand memory over. */
static void one_that_is_found_later_is_not_sure(void **state)
{
	(void)state;
	is_old = true;
	server->users.limits.n_pidfds = 0;
	process_connected(server, &peer);
	assert_true(process_watch(server, &peer));
	assert_int_equal(peer.pidfd, -1);
	server->users.limits.n_pidfds = 1;
	assert_true(process_watch(server, &peer));
	assert_true(peer.pidfd >= 0);
	assert_false(peer.is_pidfd_sure);
}

static void one_that_has_ended_is_told(void **state)
{
	pid_t child = fork();

	(void)state;
	if (child == 0)
		_exit(0);
	assert_int_equal(waitpid(child, NULL, 0), child);
	is_old = true;
	peer.cred.pid = child;
	process_connected(server, &peer);
	assert_false(peer.is_pidfd_sure);
	assert_false(process_watch(server, &peer));
	peer.cred.pid = 0; /* of another pid namespace */
	assert_true(process_watch(server, &peer));
	assert_false(peer.is_pidfd_sure);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		T(the_socket_knows_its_process),
		T(on_an_older_kernel_it_is_held_as_it_connects),
		T(one_that_is_found_later_is_not_sure),
		T(one_that_has_ended_is_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
