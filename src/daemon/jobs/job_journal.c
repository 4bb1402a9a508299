/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/jobs/job_journal.h"

#include "util/fd.h"
#include "util/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAME     JOB_JOURNAL_NAME
#define NAME_NEW JOB_JOURNAL_NAME ".new"
#define NAME_BAD JOB_JOURNAL_NAME ".bad"

#define LEN_MAX (256u << 20)

/* A file is written anew when it has so many records, and so many times those of its jobs. */
#define RECORDS_MIN  4096
#define RECORDS_EACH 4

/* After a failure it is written anew when so many records have been lost. */
#define LOST_MAX 8

/*
 * The last whole file stays. A job that it knows to wait, and that has started since, would wait
 * again after a restart. Without the file all would lose their places.
 */
static void journal_fail(struct job_journal *journal, int r, const char *what)
{
	journal->fd = fd_close(journal->fd);
	journal->new_fd = fd_close(journal->new_fd);
	journal->n_lost = 0;
	(void)unlinkat(journal->dir_fd, NAME_NEW, 0);
	if (!journal->is_failed)
		(void)log_errno(LOG_LEVEL_WARN, r,
				"cannot %s '" NAME
				"' in the socket's folder, so a restart would know jobs as they"
				" are now, and lose the places of later ones",
				what);
	journal->is_failed = true;
}

/* Which run of the machine, and which numbers of processes. 0 or -errno. */
static int journal_here(struct job_record_open *ret)
{
	struct stat st;
	ssize_t n;
	FD_CLEANUP int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);

	*ret = (struct job_record_open){.version = JOB_RECORD_VERSION};
	if (fd < 0 || stat("/proc/self/ns/pid", &st) < 0)
		return -errno;
	ret->pid_namespace = st.st_ino;
	n = fd_read_whole(fd, ret->boot, sizeof(ret->boot));
	return n < 0 ? (int)n : 0;
}

static bool journal_is_own(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid();
}

/*
 * The whole file; *ret_bytes: malloc(), NULL: there is no file. 0, or -errno: it cannot be read, or
 * it is not ours. Nothing is known of it then: an end that an error makes is none.
 */
static int journal_load(int dir_fd, uint8_t **ret_bytes, size_t *ret_len)
{
	FD_CLEANUP int fd =
		openat(dir_fd, NAME, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
	struct stat st;
	ssize_t n;

	*ret_bytes = NULL;
	if (fd < 0)
		return errno == ENOENT ? 0 : -errno;
	if (!journal_is_own(fd))
		return -EPERM;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (st.st_size > (off_t)LEN_MAX)
		return -EFBIG;
	*ret_bytes = malloc((size_t)st.st_size + 2);
	if (!*ret_bytes)
		return -ENOMEM;
	n = fd_read_whole(fd, (char *)*ret_bytes, (size_t)st.st_size + 2);
	*ret_len = n < 0 ? 0 : (size_t)n;
	return n < 0 ? (int)n : 0;
}

/* The next file would replace it. It stays as it is, for people. */
static void journal_set_aside(const struct job_journal *journal)
{
	(void)renameat(journal->dir_fd, NAME, journal->dir_fd, NAME_BAD);
}

/* 0; JOB_RECORD_E_BAD: bytes behind ret_good good ones are no records; or -errno. */
static int journal_replay(int dir_fd, struct job_replay *replay, size_t *ret_good, size_t *ret_len)
{
	struct job_record_open here;
	uint8_t *bytes;
	int r = journal_load(dir_fd, &bytes, ret_len);

	if (!r && bytes)
		r = journal_here(&here);
	if (!r && bytes) {
		r = job_replay(replay, bytes, *ret_len, ret_good);
		/* Of another run of the machine: no process of it is there any more. */
		if (strcmp(here.boot, replay->open.boot) != 0 ||
		    here.pid_namespace != replay->open.pid_namespace)
			replay->n = 0;
	}
	free(bytes);
	return r;
}

void job_journal_read(struct job_journal *journal, int dir_fd, struct job_replay *replay)
{
	size_t len = 0, good = 0;
	int r;

	*journal = (struct job_journal){.dir_fd = dir_fd, .fd = -1, .new_fd = -1};
	r = journal_replay(dir_fd, replay, &good, &len);
	if (!r)
		return;
	if (r == JOB_RECORD_E_BAD)
		log_warn("'" NAME "' in the socket's folder holds %zu bytes that are no records,"
			 " behind %zu good ones: it is set aside as '" NAME_BAD "'",
			 len - good, good);
	else
		(void)log_errno(LOG_LEVEL_WARN, r,
				"cannot read '" NAME "' in the socket's folder, so the places of"
				" jobs are lost: it is set aside as '" NAME_BAD "'");
	journal_set_aside(journal);
}

static void journal_append(struct job_journal *journal, int fd, const struct job_record *record)
{
	uint8_t bytes[JOB_RECORD_SIZE_MAX];
	size_t size = job_record_write(record, bytes);
	ssize_t n = write(fd, bytes, size);

	if (n == (ssize_t)size) {
		journal->n_records++;
		return;
	}
	if (n > 0) /* no part of a record stays */
		(void)!ftruncate(fd, lseek(fd, 0, SEEK_CUR) - n);
	journal_fail(journal, n < 0 ? -errno : -ENOSPC, "write");
}

void job_journal_begin(struct job_journal *journal, uint64_t last_id)
{
	struct job_record record = {.kind = JOB_RECORD_OPEN};
	int r = journal_here(&record.open);

	if (r) {
		journal_fail(journal, r, "make");
		return;
	}
	(void)unlinkat(journal->dir_fd, NAME_NEW, 0);
	journal->new_fd =
		openat(journal->dir_fd, NAME_NEW,
		       O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (journal->new_fd < 0) {
		journal_fail(journal, -errno, "make");
		return;
	}
	journal->fd = fd_close(journal->fd);
	journal->n_records = 0;
	record.open.last_id = last_id;
	journal_append(journal, journal->new_fd, &record);
}

void job_journal_commit(struct job_journal *journal)
{
	if (journal->new_fd < 0) {
		journal->n_lost = 0; /* those of this try count once */
		return;
	}
	if (renameat(journal->dir_fd, NAME_NEW, journal->dir_fd, NAME) < 0) {
		journal_fail(journal, -errno, "replace");
		return;
	}
	journal->fd = journal->new_fd;
	journal->new_fd = -1;
	journal->is_failed = false;
}

void job_journal_write(struct job_journal *journal, const struct job_record *record)
{
	if (journal->new_fd >= 0)
		journal_append(journal, journal->new_fd, record);
	else if (journal->fd >= 0)
		journal_append(journal, journal->fd, record);
	else
		journal->n_lost++;
}

bool job_journal_is_long(const struct job_journal *journal, uint32_t n_live)
{
	if (journal->is_failed)
		return journal->n_lost >= LOST_MAX;
	return journal->fd >= 0 && journal->n_records >= RECORDS_MIN &&
	       journal->n_records / RECORDS_EACH >= n_live;
}

void job_journal_close(struct job_journal *journal)
{
	journal->fd = fd_close(journal->fd);
	journal->new_fd = fd_close(journal->new_fd);
}
