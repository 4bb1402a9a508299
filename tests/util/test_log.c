/* SPDX-License-Identifier: Apache-2.0 */
#include "util/log.h"

#include "util/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

/* The time is the test's. */
static uint64_t now_ns;

uint64_t clock_now_ns(void)
{
	return now_ns;
}

void clock_nap(uint64_t ns)
{
	now_ns += ns;
}

/* What can be read from fd now, as a string. */
static char *slurp(int fd, char *buf, size_t size)
{
	size_t len = 0;
	ssize_t n;

	(void)fcntl(fd, F_SETFL, O_NONBLOCK);
	while (len + 1 < size && (n = read(fd, buf + len, size - 1 - len)) > 0)
		len += (size_t)n;
	buf[len] = '\0';
	return buf;
}

/* Makes fd what a service manager calls the journal, so that lines have no time. */
static void make_journal(int fd)
{
	char stream[48];
	struct stat st;

	assert_int_equal(fstat(fd, &st), 0);
	(void)snprintf(stream, sizeof(stream), "%llu:%llu", (unsigned long long)st.st_dev,
		       (unsigned long long)st.st_ino);
	assert_int_equal(setenv("JOURNAL_STREAM", stream, 1), 0);
}

static void a_line_has_its_time_unless_the_journal_adds_one(void **state)
{
	char buf[256], stream[48];
	struct tm utc = {0};
	const char *rest;
	time_t before;
	int fds[2];

	(void)state;
	assert_int_equal(pipe(fds), 0);
	make_journal(fds[1]);
	log_open("prog", LOG_LEVEL_INFO, fds[1]);
	log_info("grant");
	assert_string_equal(slurp(fds[0], buf, sizeof(buf)), "prog: info: grant\n");
	/* The journal was elsewhere: this descriptor leads to another place. */
	(void)snprintf(stream, sizeof(stream), "%s0", getenv("JOURNAL_STREAM"));
	assert_int_equal(setenv("JOURNAL_STREAM", stream, 1), 0);
	log_open("prog", LOG_LEVEL_INFO, fds[1]);
	before = time(NULL);
	log_info("grant");
	rest = strptime(slurp(fds[0], buf, sizeof(buf)), "%Y-%m-%dT%H:%M:%S.", &utc);
	assert_non_null(rest);
	assert_in_range(timegm(&utc), before, time(NULL));
	assert_int_equal(strspn(rest, "0123456789"), 3);
	assert_string_equal(rest + 3, "Z prog: info: grant\n");
	assert_int_equal(unsetenv("JOURNAL_STREAM"), 0);
	close(fds[0]);
	close(fds[1]);
}

static void a_line_has_name_level_and_text(void **state)
{
	char buf[4096];
	int fds[2];

	(void)state;
	assert_int_equal(pipe(fds), 0);
	make_journal(fds[1]);
	log_open("prog", LOG_LEVEL_INFO, fds[1]);
	errno = EXDEV;
	log_info("grant client=%d", 7);
	log_debug("not this");
	assert_int_equal(log_errno(LOG_LEVEL_ERROR, -ENOENT, "cannot open '%s'", "x"), -ENOENT);
	assert_int_equal(log_errno(LOG_LEVEL_DEBUG, -EPERM, "nor this"), -EPERM);
	assert_int_equal(errno, EXDEV);
	assert_string_equal(slurp(fds[0], buf, sizeof(buf)),
			    "prog: info: grant client=7\n"
			    "prog: error: cannot open 'x': No such file or directory\n");
	close(fds[0]);
	close(fds[1]);
}

static int n_evaluated;

static int evaluate(void)
{
	return ++n_evaluated;
}

static void arguments_of_a_level_that_is_off_are_not_evaluated(void **state)
{
	(void)state;
	log_open("prog", LOG_LEVEL_INFO, STDERR_FILENO);
	log_debug("%d", evaluate());
	assert_int_equal(n_evaluated, 0);
	log_set_level(LOG_LEVEL_ERROR);
	log_warn("%d", evaluate());
	assert_int_equal(n_evaluated, 0);
}

static void a_long_line_is_cut_and_still_ends(void **state)
{
	char text[3000];
	char buf[4096];
	int fds[2];

	(void)state;
	memset(text, 'x', sizeof(text));
	text[sizeof(text) - 1] = '\0';
	assert_int_equal(pipe(fds), 0);
	log_open("prog", LOG_LEVEL_INFO, fds[1]);
	log_info("%s", text);
	(void)log_errno(LOG_LEVEL_INFO, -ENOENT, "%s", text);
	slurp(fds[0], buf, sizeof(buf));
	assert_int_equal(strlen(buf), 2 * LOG_LINE_MAX);
	assert_int_equal(buf[LOG_LINE_MAX - 1], '\n');
	assert_int_equal(buf[2 * LOG_LINE_MAX - 1], '\n');
	close(fds[0]);
	close(fds[1]);
}

/* Lines that the text says were dropped. */
static int told(const char *text)
{
	static const char word[] = "log-lines-dropped n=";
	int sum = 0;

	while ((text = strstr(text, word))) {
		text += sizeof(word) - 1;
		sum += atoi(text);
	}
	return sum;
}

/* Fills fd by our own lines; a blocking write would hang the test: the alarm ends it. */
static void fill_and_drain(int write_fd, int read_fd)
{
	static const char last[] = "prog: info: again\n";
	uint64_t before = log_dropped();
	char *buf = malloc(1 << 20);
	int n_told;

	assert_non_null(buf);
	(void)alarm(60);
	for (int i = 0; i < 20000 && log_dropped() < before + 3; i++)
		log_info("%0200d", i);
	assert_int_equal(log_dropped(), before + 3);
	/* The description that others share still blocks. */
	assert_false(fcntl(write_fd, F_GETFL) & O_NONBLOCK);
	/* The short line with the count may have found room where the long ones did not. */
	n_told = told(slurp(read_fd, buf, 1 << 20));
	log_info("again");
	n_told += told(slurp(read_fd, buf, 1 << 20));
	assert_int_equal(n_told, 3);
	assert_string_equal(buf + strlen(buf) - strlen(last), last);
	(void)alarm(0);
	free(buf);
}

static void a_full_pipe_drops_and_counts(void **state)
{
	int fds[2];

	(void)state;
	assert_int_equal(pipe(fds), 0);
	make_journal(fds[1]);
	log_open("prog", LOG_LEVEL_INFO, fds[1]);
	fill_and_drain(fds[1], fds[0]);
	close(fds[0]);
	close(fds[1]);
}

static void a_full_socket_drops_and_counts(void **state)
{
	int fds[2];

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
	make_journal(fds[1]);
	log_open("prog", LOG_LEVEL_INFO, fds[1]);
	fill_and_drain(fds[1], fds[0]);
	close(fds[0]);
	close(fds[1]);
}

static void a_reader_that_is_gone_does_no_harm(void **state)
{
	uint64_t before = log_dropped();
	int fds[2];

	(void)state;
	assert_int_equal(pipe(fds), 0);
	(void)signal(SIGPIPE, SIG_IGN);
	log_open("prog", LOG_LEVEL_INFO, fds[1]);
	close(fds[0]);
	log_info("to nobody");
	assert_int_equal(log_dropped(), before + 1);
	close(fds[1]);
}

static void a_file_gets_every_line_behind_what_is_there(void **state)
{
	char path[] = "/tmp/nvshare-log-XXXXXX";
	int fd = mkstemp(path);
	char buf[256];

	(void)state;
	assert_true(fd >= 0);
	assert_int_equal(write(fd, "before\n", 7), 7);
	make_journal(fd);
	log_open("prog", LOG_LEVEL_INFO, fd);
	log_info("one");
	assert_int_equal(write(fd, "between\n", 8), 8);
	log_info("two");
	assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
	/* The dropped lines of the tests before are told here. */
	assert_non_null(strstr(slurp(fd, buf, sizeof(buf)), "before\n"));
	assert_non_null(strstr(buf, "prog: info: one\nbetween\nprog: info: two\n"));
	close(fd);
	unlink(path);
}

/* The last test: the limit stays. */
static void lines_beyond_the_limit_are_dropped_and_counted(void **state)
{
	char buf[4096];
	int fds[2];

	(void)state;
	assert_int_equal(pipe(fds), 0);
	make_journal(fds[1]);
	log_open("prog", LOG_LEVEL_INFO, fds[1]);
	log_info("tell what was dropped before");
	(void)slurp(fds[0], buf, sizeof(buf));
	log_limit(2, 3);
	for (int i = 0; i < 7; i++)
		log_info("%d", i);
	log_error("an error");
	assert_string_equal(slurp(fds[0], buf, sizeof(buf)),
			    "prog: info: 0\nprog: info: 1\nprog: info: 2\n"
			    "prog: warn: log-lines-dropped n=4\nprog: error: an error\n");
	clock_nap(CLOCK_NS_PER_SEC / 2);
	log_info("one more");
	log_info("none");
	assert_string_equal(slurp(fds[0], buf, sizeof(buf)), "prog: info: one more\n");
	clock_nap(3600 * CLOCK_NS_PER_SEC);
	for (int i = 0; i < 4; i++)
		log_info("%d", i);
	assert_string_equal(slurp(fds[0], buf, sizeof(buf)),
			    "prog: warn: log-lines-dropped n=1\n"
			    "prog: info: 0\nprog: info: 1\nprog: info: 2\n");
	log_set_level(LOG_LEVEL_DEBUG);
	for (int i = 0; i < 9; i++)
		log_debug("%d", i);
	assert_non_null(strstr(slurp(fds[0], buf, sizeof(buf)), "prog: debug: 8\n"));
	close(fds[0]);
	close(fds[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_line_has_its_time_unless_the_journal_adds_one),
		cmocka_unit_test(a_line_has_name_level_and_text),
		cmocka_unit_test(arguments_of_a_level_that_is_off_are_not_evaluated),
		cmocka_unit_test(a_long_line_is_cut_and_still_ends),
		cmocka_unit_test(a_full_pipe_drops_and_counts),
		cmocka_unit_test(a_full_socket_drops_and_counts),
		cmocka_unit_test(a_reader_that_is_gone_does_no_harm),
		cmocka_unit_test(a_file_gets_every_line_behind_what_is_there),
		cmocka_unit_test(lines_beyond_the_limit_are_dropped_and_counted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
