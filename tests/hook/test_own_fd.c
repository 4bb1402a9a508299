/* SPDX-License-Identifier: Apache-2.0 */

/* Descriptors of the library's, in a program that closes some; and the bell, which needs two. */

#include "hook/base/own_fd.h"

#include "hook/gate/bell.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static int make(void)
{
	int ends[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
	close(ends[1]);
	return ends[0];
}

static bool is_open(int fd)
{
	return fcntl(fd, F_GETFD) >= 0;
}

/* The program closes fd, and has a file of its own there. */
static void stray_reuse(int fd)
{
	int file = open("/dev/null", O_RDWR | O_CLOEXEC);

	assert_int_equal(dup2(file, fd), fd);
	close(file);
}

static void is_moved_up_and_closed(void **state)
{
	int before = make(), fd = own_fd_take(before);

	(void)state;
	assert_true(fd > 100);
	assert_false(is_open(before));
	assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
	assert_int_equal(own_fd_of(fd), fd);
	assert_int_equal(own_fd_close(fd), -1);
	assert_false(is_open(fd));
	assert_int_equal(own_fd_of(fd), -1);
}

static void a_closed_number_is_nobodys(void **state)
{
	int fd = own_fd_take(make());

	(void)state;
	close(fd);
	errno = ENOENT;
	assert_int_equal(own_fd_of(fd), -1);
	assert_int_equal(own_fd_close(fd), -1);
	assert_int_equal(errno, ENOENT);
}

static void a_file_of_the_programs_stays_open(void **state)
{
	int fd = own_fd_take(make());

	(void)state;
	stray_reuse(fd);
	assert_int_equal(own_fd_of(fd), -1);
	(void)own_fd_close(fd);
	assert_true(is_open(fd));
	(void)own_fd_close(fd);
	assert_true(is_open(fd));
	close(fd);
}

static void what_was_never_taken_is_not_ours(void **state)
{
	int fd = make();

	(void)state;
	assert_int_equal(own_fd_of(fd), -1);
	assert_int_equal(own_fd_forget(fd), -1);
	assert_int_equal(own_fd_of(-1), -1);
	assert_int_equal(own_fd_of(1 << 20), -1);
	assert_int_equal(own_fd_take(-1), -1);
	close(fd);
}

static void a_lost_number_is_given_to_no_other(void **state)
{
	int lost = own_fd_take(make()), next;

	(void)state;
	close(lost);
	next = own_fd_take(make());
	assert_true(next >= 0 && next != lost);
	assert_int_equal(own_fd_of(lost), -1);
	assert_int_equal(own_fd_forget(lost), -1);
	assert_int_equal(own_fd_close(next), -1);
	next = own_fd_take(make());
	assert_int_equal(next, lost);
	(void)own_fd_close(next);
}

/* ---- the bell ---------------------------------------------------------------------- */

static bool is_ringing(void)
{
	struct pollfd fd = {.fd = bell_fd(), .events = POLLIN};

	return poll(&fd, 1, 0) == 1;
}

static int other_end(void)
{
	for (int fd = bell_fd() - 1; fd <= bell_fd() + 1; fd++) {
		if (fd != bell_fd() && own_fd_of(fd) >= 0)
			return fd;
	}
	fail();
	return -1;
}

static void rings_until_it_is_answered(void **state)
{
	(void)state;
	assert_int_equal(bell_open(), 0);
	assert_false(is_ringing());
	for (int i = 0; i < 100000; i++)
		bell_ring(); /* more than it can hold */
	assert_true(is_ringing());
	bell_answer();
	assert_false(is_ringing());
	assert_true(bell_renew());
	bell_close();
	assert_int_equal(bell_fd(), -1);
	bell_ring();
}

static void the_loss_of_the_other_end_wakes(void **state)
{
	(void)state;
	assert_int_equal(bell_open(), 0);
	close(other_end());
	assert_true(is_ringing());
	assert_true(bell_renew());
	assert_false(is_ringing());
	bell_ring();
	assert_true(is_ringing());
	bell_close();
}

static void a_ring_reaches_no_file_of_the_programs(void **state)
{
	struct stat before, after;
	char name[] = "/tmp/nvshare-own-fd-XXXXXX";
	int file = mkstemp(name), rung;

	(void)state;
	assert_int_equal(bell_open(), 0);
	rung = other_end();
	assert_int_equal(dup2(file, rung), rung);
	assert_int_equal(fstat(file, &before), 0);
	bell_ring();
	assert_int_equal(fstat(file, &after), 0);
	assert_int_equal(before.st_size, after.st_size);
	assert_true(bell_renew());
	assert_true(is_open(rung));
	bell_ring();
	assert_true(is_ringing());
	bell_close();
	close(rung);
	close(file);
	unlink(name);
}

static void is_made_anew_when_both_ends_are_lost(void **state)
{
	int heard;

	(void)state;
	assert_int_equal(bell_open(), 0);
	heard = bell_fd();
	close(other_end());
	close(heard);
	bell_ring();
	assert_true(bell_renew());
	bell_ring();
	assert_true(is_ringing());
	bell_close();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(is_moved_up_and_closed),
		cmocka_unit_test(a_closed_number_is_nobodys),
		cmocka_unit_test(a_file_of_the_programs_stays_open),
		cmocka_unit_test(what_was_never_taken_is_not_ours),
		cmocka_unit_test(a_lost_number_is_given_to_no_other),
		cmocka_unit_test(rings_until_it_is_answered),
		cmocka_unit_test(the_loss_of_the_other_end_wakes),
		cmocka_unit_test(a_ring_reaches_no_file_of_the_programs),
		cmocka_unit_test(is_made_anew_when_both_ends_are_lost),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
