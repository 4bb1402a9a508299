/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/peers/reaper.h"

#include "ipc/pass.h"
#include "linger.h"
#include "patience.h"
#include "util/fd.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define N_MAX 64

static struct reaper reaper; /* its threads live as long as the process */

static int set_up_once(void **state)
{
	(void)state;
	return reaper_init(&reaper, N_MAX);
}

/* A connection as the daemon has it; *ret_far is the peer's end. */
static int connection(int *ret_far)
{
	static const int on = 1;
	int fds[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
	assert_int_equal(setsockopt(fds[0], SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)), 0);
	*ret_far = fds[1];
	return fds[0];
}

/* The owner of the next one that is closed. */
static uint32_t expect_done(void)
{
	uint32_t owner = 0;

	assert_true(patience_poll(reaper.event_fd, 0));
	assert_true(reaper_done(&reaper, &owner));
	return owner;
}

static void expect_closed(int far)
{
	struct pollfd pfd = {.fd = far, .events = POLLIN};

	assert_true(patience_poll(far, 0));
	assert_int_equal(poll(&pfd, 1, 0), 1);
	assert_true(pfd.revents & POLLHUP);
	(void)fd_close(far);
}

static void a_connection_is_closed_and_its_owner_is_named(void **state)
{
	uint32_t owner;
	int far;
	int fd = connection(&far);

	(void)state;
	assert_false(reaper_done(&reaper, &owner));
	reaper_take(&reaper, fd, 7);
	assert_int_equal(expect_done(), 7);
	assert_false(reaper_done(&reaper, &owner));
	expect_closed(far);
}

static void every_descriptor_in_its_queue_is_closed(void **state)
{
	int ends[2];
	int far;
	int fd = connection(&far);

	(void)state;
	assert_int_equal(pipe(ends), 0);
	for (int i = 0; i < 5; i++)
		assert_int_equal(pass_send(far, "x", 1, ends[1]), 0);
	(void)fd_close(ends[1]);
	reaper_take(&reaper, fd, 8);
	assert_int_equal(expect_done(), 8);
	assert_int_equal(read(ends[0], &(char){0}, 1), 0); /* nobody else has the other end */
	(void)fd_close(ends[0]);
	expect_closed(far);
}

static void a_socket_that_lingers_holds_nobody_up(void **state)
{
	struct linger_pair pairs[2 * REAPER_THREADS_MAX];

	(void)state;
	for (uint32_t i = 0; i < 2 * REAPER_THREADS_MAX; i++) {
		int far;
		int fd = connection(&far);

		pairs[i] = linger_begin();
		if (pairs[i].fd < 0)
			skip();
		assert_int_equal(pass_send(far, "x", 1, pairs[i].fd), 0);
		(void)fd_close(pairs[i].fd);
		(void)fd_close(far);
		reaper_take(&reaper, fd, i);
	}
	for (uint32_t i = 0; i < 2 * REAPER_THREADS_MAX; i++)
		(void)expect_done();
	for (uint32_t i = 0; i < 2 * REAPER_THREADS_MAX; i++)
		linger_end(&pairs[i]);
}

static void one_that_hangs_takes_a_thread_and_no_more(void **state)
{
	struct linger_pair pairs[2 * REAPER_THREADS_MAX];
	uint64_t owners = 0;

	(void)state;
	for (uint32_t i = 0; i < 2 * REAPER_THREADS_MAX; i++) {
		int nested, far;
		int fd = connection(&far);

		pairs[i] = linger_begin();
		nested = pairs[i].fd < 0 ? -1 : linger_nested(&pairs[i]);
		if (nested < 0)
			skip();
		assert_int_equal(pass_send(far, "x", 1, nested), 0);
		(void)fd_close(nested);
		(void)fd_close(far);
		reaper_take(&reaper, fd, i);
		/* All but one thread may hang: others are served. */
		if (i < REAPER_THREADS_MAX - 1) {
			reaper_take(&reaper, connection(&far), 100);
			assert_int_equal(expect_done(), 100);
			expect_closed(far);
		}
	}
	for (uint32_t i = 0; i < 2 * REAPER_THREADS_MAX; i++)
		linger_end(&pairs[i]);
	/* Those beyond the threads waited for one, and none was forgotten. */
	for (uint32_t i = 0; i < 2 * REAPER_THREADS_MAX; i++)
		owners |= 1ull << expect_done();
	assert_int_equal(owners, (1ull << (2 * REAPER_THREADS_MAX)) - 1);
	assert_int_equal(reaper.n_threads, REAPER_THREADS_MAX);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_connection_is_closed_and_its_owner_is_named),
		cmocka_unit_test(every_descriptor_in_its_queue_is_closed),
		cmocka_unit_test(a_socket_that_lingers_holds_nobody_up),
		cmocka_unit_test(one_that_hangs_takes_a_thread_and_no_more),
	};

	return cmocka_run_group_tests(tests, set_up_once, NULL);
}
