/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_JOB_ENDS_H
#define NVS_DAEMON_JOB_ENDS_H

/*
 * The ends of jobs: what is learned from them, who is told, and what is kept for questions.
 *
 * Threading: the loop's.
 */

#include "core/jobs/jobs.h"
#include "nvshare/protocol.h"

#include <stdint.h>

struct job_entry;
struct job_record_ended;
struct peer;
struct server;

/* The process of entry reports. 0; or JOBS_E_*, and nothing has changed. */
int job_ends_report(struct server *server, struct job_entry *entry,
		    const struct nvshare_job_ended *ended);

/* The process of entry is gone. */
void job_ends_lost(struct server *server, struct job_entry *entry);

/* Actions of the core: entry is tried again; it is over. */
void job_ends_retry(struct server *server, struct job_entry *entry);
void job_ends_done(struct server *server, struct job_entry *entry, enum jobs_end end);

/* The job with that number, above 0, if it has ended and is kept; else NULL. */
const struct job_record_ended *job_ends_find(const struct server *server, uint64_t id);

/* peer, a tool, is told of the end of entry when it comes. flags: of its GET_JOBS. */
void job_ends_await(struct peer *peer, uint32_t seq, uint32_t flags, struct job_entry *entry);

#endif
