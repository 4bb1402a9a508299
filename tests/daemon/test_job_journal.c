/* SPDX-License-Identifier: Apache-2.0 */
/* The file of the journal, in a folder of its own. Its bytes are test_job_record.c's. */
#include "daemon/jobs/job_journal.h"

#include "util/fd.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[] = "/tmp/test_job_journal.XXXXXX";
static int dir_fd;
static struct job_journal journal;

static const struct job_record record = {
	.kind = JOB_RECORD_SUBMIT,
	.place = {.id = 1, .pid = 100, .ticks = 1, .memory = 1 << 20},
};

static int set_up(void **state)
{
	(void)state;
	(void)signal(SIGXFSZ, SIG_IGN); /* write() tells of the limit instead */
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

static void a_full_disk_leaves_no_old_state_and_is_tried_again(void **state)
{
	struct job_replay replay = {.n = 0};
	int n_writes = 0;

	(void)state;
	job_journal_read(&journal, dir_fd, &replay);
	job_replay_deinit(&replay);
	job_journal_begin(&journal, 1);
	job_journal_write(&journal, &record);
	job_journal_commit(&journal);
	assert_int_equal(jobs_in_the_file(), 1);
	limit_files(1);
	job_journal_write(&journal, &record);
	assert_int_equal(faccessat(dir_fd, JOB_JOURNAL_NAME, F_OK, 0), -1);
	for (; !job_journal_is_long(&journal, 1); n_writes++) {
		assert_true(n_writes < 100);
		job_journal_write(&journal, &record);
	}
	assert_true(n_writes > 1);
	job_journal_begin(&journal, 1); /* the disk is full still */
	job_journal_write(&journal, &record);
	job_journal_commit(&journal);
	assert_int_equal(faccessat(dir_fd, JOB_JOURNAL_NAME, F_OK, 0), -1);
	assert_false(job_journal_is_long(&journal, 1));
	limit_files(RLIM_INFINITY);
	job_journal_begin(&journal, 1);
	job_journal_write(&journal, &record);
	job_journal_commit(&journal);
	assert_int_equal(jobs_in_the_file(), 1);
	assert_false(job_journal_is_long(&journal, 1));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_full_disk_leaves_no_old_state_and_is_tried_again,
						set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
