/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_JOB_JOURNAL_H
#define NVS_DAEMON_JOB_JOURNAL_H

/*
 * The file in the socket's folder that keeps the places of jobs over a restart of the scheduler
 * (daemon/jobs/job_record.h). It is appended to, and now and then written anew: a file beside it
 * takes its name when it is whole. Nothing is synchronised with a disk, because no process outlives
 * the kernel.
 *
 * Without the file (no room, no right) jobs run all the same. A file that cannot be written any
 * more stays as it is, so a restart knows jobs as they were, and loses the places of later ones.
 * The first failure is logged.
 *
 * Threading: none.
 */

#include "daemon/jobs/job_record.h"

#include <stdbool.h>
#include <stdint.h>

#define JOB_JOURNAL_NAME "jobs.journal"

struct job_journal {
	int dir_fd; /* borrowed */
	int fd;     /* -1: there is none */
	int new_fd; /* -1: none is being written */
	uint32_t n_records;
	bool is_failed;  /* it was logged */
	uint32_t n_lost; /* records since then */
};

/*
 * Reads what an earlier scheduler left, from this run of the machine. dir_fd stays the caller's and
 * must outlive journal. A file that cannot be read, or holds bytes that are no records, is set
 * aside unchanged, with a line in the log.
 * replay: zeroed; the caller calls job_replay_deinit(). No file is open for writing afterwards:
 * call job_journal_begin() and job_journal_commit().
 */
void job_journal_read(struct job_journal *journal, int dir_fd, struct job_replay *replay);

/* A new file begins, with the highest id so far. All jobs that live are written to it next. */
void job_journal_begin(struct job_journal *journal, uint64_t last_id);
/* The new file takes the place of the old one. */
void job_journal_commit(struct job_journal *journal);

void job_journal_write(struct job_journal *journal, const struct job_record *record);

/* Whether the file has far more records than n_live jobs need. */
bool job_journal_is_long(const struct job_journal *journal, uint32_t n_live);

void job_journal_close(struct job_journal *journal);

#endif
