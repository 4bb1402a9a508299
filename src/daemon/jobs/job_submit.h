/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_JOB_SUBMIT_H
#define NVS_DAEMON_JOB_SUBMIT_H

/*
 * Submissions become jobs, and questions about them are answered.
 *
 * Threading: the loop's.
 */

#include "core/jobs/jobs.h"
#include "nvshare/protocol.h"

#include <stdint.h>

struct job_entry;
struct peer;
struct server;

/* SUBMIT or SUBMIT_GANG of peer; without a gang its size is 0. It gets its answer. */
void job_submit(struct server *server, struct peer *peer, uint32_t seq,
		const struct nvshare_submit *submit, const struct nvshare_gang *gang);

/* PLACE of peer. It gets its answer. */
void job_submit_place(struct server *server, struct peer *peer, uint32_t seq,
		      const struct nvshare_submit *submit);

/*
 * The event of the core for entry, whose submission, gang, owner and memory are set. 0, or -EINVAL:
 * the submission names what is not there; ret_text (may be NULL) says what.
 */
int job_submit_event(const struct server *server, const struct job_entry *entry,
		     struct jobs_event *ret_event, char ret_text[NVSHARE_TEXT_LEN]);

#endif
