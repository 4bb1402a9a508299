/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_JOB_FILL_H
#define NVS_DAEMON_JOB_FILL_H

/*
 * Jobs and placements as messages, for processes and tools.
 *
 * Threading: the loop's.
 */

#include "core/place/place.h"
#include "daemon/jobs/job_record.h"
#include "nvshare/protocol.h"

#include <stddef.h>
#include <stdint.h>

struct job_entry;
struct peer;
struct server;

void job_fill(const struct server *server, const struct job_entry *entry, struct nvshare_job *ret);

/* One JOB to peer. */
void job_fill_send(struct server *server, struct peer *peer, uint32_t seq,
		   const struct job_entry *entry);

/* With its gang: all that it would be kept with if it ended now. */
void job_fill_all(const struct server *server, const struct job_entry *entry,
		  struct job_record_ended *ret);

/* The answer to a GET_JOBS with these flags about one job. */
void job_fill_answer(struct server *server, struct peer *peer, uint32_t seq, uint32_t flags,
		     const struct job_record_ended *found);

/* One JOB to the process of entry, if it is connected. */
void job_fill_tell(struct server *server, const struct job_entry *entry, uint32_t seq);

enum nvshare_verdict job_fill_verdict(const struct place_score *score);

/*
 * Why a job that needs so many bytes cannot start, of scores for which none is PLACE_OK. reason:
 * of place_reason_of(). Returns the bytes that the best GPU lacks; 0: memory is not the reason.
 */
uint64_t job_fill_reason(const struct server *server, const struct place_score *scores,
			 enum place_reason reason, uint64_t memory, char *buf, size_t size);

#endif
