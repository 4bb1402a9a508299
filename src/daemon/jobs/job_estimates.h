/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_JOB_ESTIMATES_H
#define NVS_DAEMON_JOB_ESTIMATES_H

/*
 * How much memory jobs are likely to need: the core's table (core/place/estimate.h), and its file
 * in the scheduler's state folder. Only jobs with a model or a type are learned from: all others
 * of a user have nothing in common.
 *
 * The file is written a while after something was learned, as a new file that takes the old one's
 * name. A file that cannot be read is set aside, with a line in the log. Without a state folder
 * nothing is kept over a restart.
 *
 * Threading: the loop's.
 */

#include "core/jobs/jobs.h"
#include "core/place/estimate.h"

#include <stdint.h>

struct job_entry;
struct server;

void job_estimates_open(struct server *server);
void job_estimates_config(struct server *server);

/* Writes what is not written yet. */
void job_estimates_save(struct server *server);

/*
 * The bytes that such work of owner needs. work: its names are set, or not. Cut to what a GPU of
 * the node can give, so that the job can be placed at all.
 */
uint64_t job_estimates_bytes(const struct server *server, const struct estimate_work *work);

/*
 * The command of entry, which was started, has ended so. Returns the bytes that it is to have when
 * it is tried again; 0: as before.
 */
uint64_t job_estimates_learn(struct server *server, const struct job_entry *entry,
			     enum jobs_end end);

/* The work of a submission, whose texts are checked. */
struct nvshare_submit;
int job_estimates_work(const struct nvshare_submit *submit, uint32_t owner,
		       struct estimate_work *ret);

#endif
