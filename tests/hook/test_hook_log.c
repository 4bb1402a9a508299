/* SPDX-License-Identifier: Apache-2.0 */

#include "hook/base/hook_log.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static int saved_stderr;
static int pipe_fds[2];

static int catch_stderr(void **state)
{
	(void)state;
	saved_stderr = dup(STDERR_FILENO);
	assert_int_equal(pipe(pipe_fds), 0);
	assert_int_equal(fcntl(pipe_fds[0], F_SETFL, O_NONBLOCK), 0);
	return dup2(pipe_fds[1], STDERR_FILENO) < 0;
}

static int give_stderr_back(void **state)
{
	(void)state;
	(void)dup2(saved_stderr, STDERR_FILENO);
	close(saved_stderr);
	close(pipe_fds[0]);
	close(pipe_fds[1]);
	return 0;
}

static size_t printed(char *ret_text, size_t size)
{
	ssize_t n = read(pipe_fds[0], ret_text, size - 1);

	n = n < 0 ? 0 : n;
	ret_text[n] = '\0';
	return (size_t)n;
}

static void says_nothing_unless_asked(void **state)
{
	char text[256];

	(void)state;
	assert_false(hook_log_enabled());
	hook_debug("not to be seen %d", 1);
	assert_int_equal(printed(text, sizeof(text)), 0);
}

static void warns_once_a_place_with_the_process_and_keeps_errno(void **state)
{
	char text[256], wanted[256];

	(void)state;
	errno = 4711;
	for (int i = 0; i < 3; i++)
		hook_warn_once("no room for %s", "this");
	assert_int_equal(errno, 4711);
	(void)snprintf(wanted, sizeof(wanted), "nvshare[%d]: no room for this\n", (int)getpid());
	(void)printed(text, sizeof(text));
	assert_string_equal(text, wanted);
}

static void a_long_line_is_cut_and_still_a_line(void **state)
{
	char text[4096], endless[2000];
	size_t n;

	(void)state;
	memset(endless, 'x', sizeof(endless) - 1);
	endless[sizeof(endless) - 1] = '\0';
	hook_log_warn("%s", endless);
	n = printed(text, sizeof(text));
	assert_in_range(n, 256, 512);
	assert_int_equal(text[n - 1], '\n');
}

static void a_process_warns_a_limited_number_of_times(void **state)
{
	char text[8192];
	unsigned int n_lines = 0;

	(void)state;
	for (int i = 0; i < 100; i++)
		hook_log_warn("again");
	(void)printed(text, sizeof(text));
	for (const char *c = text; *c; c++)
		n_lines += *c == '\n';
	/* Two of the others' tests came before. */
	assert_int_equal(n_lines, HOOK_LOG_WARNINGS_MAX - 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(says_nothing_unless_asked, catch_stderr,
						give_stderr_back),
		cmocka_unit_test_setup_teardown(warns_once_a_place_with_the_process_and_keeps_errno,
						catch_stderr, give_stderr_back),
		cmocka_unit_test_setup_teardown(a_long_line_is_cut_and_still_a_line, catch_stderr,
						give_stderr_back),
		cmocka_unit_test_setup_teardown(a_process_warns_a_limited_number_of_times,
						catch_stderr, give_stderr_back),
	};

	unsetenv("NVSHARE_DEBUG");
	return cmocka_run_group_tests_name("hook/hook_log", tests, NULL, NULL);
}
