/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CORE_JOBS_SEARCH_H
#define NVS_CORE_JOBS_SEARCH_H

/* The search for the job that starts next. */

#include "core/jobs/jobs.h"

struct jobs_start {
	uint32_t job, gpu;
	bool is_turns;
};

struct jobs_found {
	uint32_t n; /* 1, or a gang's */
	struct jobs_start at[JOBS_GANG_MAX];
	bool is_aged; /* it goes first for its age */
};

/*
 * The first job in the order of jobs.h that can start now, with those that start together with it.
 * false: there is none. jobs::booked says afterwards which GPUs are kept for the jobs before it
 * that cannot start.
 */
bool jobs_search(struct jobs *jobs, struct jobs_found *ret_found);

/*
 * How a job with this request would be placed now. job: the queued one whose request it is, for
 * which its own booking does not count; JOBS_NONE: none.
 */
uint32_t jobs_search_place(const struct jobs *jobs, const struct jobs_request *request,
			   uint32_t job, uint64_t now_ns,
			   struct place_score ret_scores[PLACE_GPUS_MAX]);

/* The request as core/place takes it; job: as above. */
struct place_request jobs_search_request(const struct jobs *jobs,
					 const struct jobs_request *request, uint32_t job);

#endif
