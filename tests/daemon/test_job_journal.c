/* SPDX-License-Identifier: Apache-2.0 */
/* The file of the journal, in a folder of its own. Its bytes are test_job_record.c's. */
#include "daemon/jobs/job_journal.h"

#include "util/fd.h"
#include "util/log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[64];
static int dir_fd;
static struct job_journal journal;

static const struct job_record record = {
	.kind = JOB_RECORD_SUBMIT,
	.place = {.id = 1, .pid = 100, .ticks = 1, .memory = 1 << 20},
};

/* read() fails behind so many bytes. */
static uint64_t n_bytes_readable = UINT64_MAX;

ssize_t read(int fd, void *buf, size_t size)
{
	ssize_t n;

	if (n_bytes_readable == 0) {
		errno = EIO;
		return -1;
	}
	n = syscall(SYS_read, fd, buf, size < n_bytes_readable ? size : n_bytes_readable);
	if (n > 0 && n_bytes_readable != UINT64_MAX)
		n_bytes_readable -= (uint64_t)n;
	return n;
}

static int set_up(void **state)
{
	(void)state;
	log_open("test_job_journal", LOG_LEVEL_ERROR, STDERR_FILENO);
	(void)signal(SIGXFSZ, SIG_IGN); /* write() tells of the limit instead */
	(void)snprintf(folder, sizeof(folder), "/tmp/test_job_journal.XXXXXX");
	if (!mkdtemp(folder))
		return -1;
	dir_fd = open(folder, O_DIRECTORY | O_RDONLY | O_CLOEXEC);
	return dir_fd < 0;
}

static int tear_down(void **state)
{
	(void)state;
	job_journal_close(&journal);
	(void)unlinkat(dir_fd, JOB_JOURNAL_NAME, 0);
	dir_fd = fd_close(dir_fd);
	return rmdir(folder);
}

static void limit_files(rlim_t bytes)
{
	struct rlimit limit;

	assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
	limit.rlim_cur = bytes;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static size_t jobs_in_the_file(void)
{
	struct job_journal reader;
	struct job_replay replay = {.n = 0};
	size_t n;

	job_journal_read(&reader, dir_fd, &replay);
	n = replay.n;
	job_replay_deinit(&replay);
	return n;
}

static void write_two_jobs(void)
{
	struct job_replay replay = {.n = 0};
	struct job_record second = record;

	second.place.id = 2;
	job_journal_read(&journal, dir_fd, &replay);
	job_replay_deinit(&replay);
	job_journal_begin(&journal, 2);
	job_journal_write(&journal, &record);
	job_journal_write(&journal, &second);
	job_journal_commit(&journal);
}

static off_t size_of(const char *name)
{
	struct stat st;

	return fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) ? -1 : st.st_size;
}

static void a_full_disk_leaves_the_last_file_and_is_tried_again(void **state)
{
	int n_writes = 0;
	off_t size;

	(void)state;
	write_two_jobs();
	size = size_of(JOB_JOURNAL_NAME);
	/* There is room for a part of a record. */
	limit_files((rlim_t)size + 8);
	job_journal_write(&journal, &record);
	assert_int_equal(size_of(JOB_JOURNAL_NAME), size);
	assert_int_equal(jobs_in_the_file(), 2);
	limit_files(1);
	for (; !job_journal_is_long(&journal, 1); n_writes++) {
		assert_true(n_writes < 100);
		job_journal_write(&journal, &record);
	}
	assert_true(n_writes > 1);
	job_journal_begin(&journal, 1); /* the disk is full still */
	job_journal_write(&journal, &record);
	job_journal_commit(&journal);
	assert_int_equal(jobs_in_the_file(), 2);
	assert_int_equal(size_of(JOB_JOURNAL_NAME ".new"), -1);
	assert_false(job_journal_is_long(&journal, 1));
	limit_files(RLIM_INFINITY);
	job_journal_begin(&journal, 1);
	job_journal_write(&journal, &record);
	job_journal_commit(&journal);
	assert_int_equal(jobs_in_the_file(), 1);
	assert_false(job_journal_is_long(&journal, 1));
}

static void a_read_error_sets_the_file_aside_unchanged(void **state)
{
	struct job_replay replay = {.n = 0};
	off_t size;

	(void)state;
	write_two_jobs();
	size = size_of(JOB_JOURNAL_NAME);
	/* The file, and behind it what tells the machine's run. */
	for (off_t at = 0; at <= size + 1; at++) {
		n_bytes_readable = (uint64_t)at;
		job_journal_read(&journal, dir_fd, &replay);
		assert_int_equal(replay.n, 0);
		job_replay_deinit(&replay);
		assert_int_equal(size_of(JOB_JOURNAL_NAME), -1);
		assert_int_equal(size_of(JOB_JOURNAL_NAME ".bad"), size);
		assert_int_equal(
			renameat(dir_fd, JOB_JOURNAL_NAME ".bad", dir_fd, JOB_JOURNAL_NAME), 0);
	}
	n_bytes_readable = UINT64_MAX;
	assert_int_equal(jobs_in_the_file(), 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_full_disk_leaves_the_last_file_and_is_tried_again,
						set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_read_error_sets_the_file_aside_unchanged, set_up,
						tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
