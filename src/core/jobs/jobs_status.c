/* SPDX-License-Identifier: Apache-2.0 */
#include "core/jobs/jobs.h"
#include "core/jobs/jobs_gang.h"
#include "core/jobs/jobs_load.h"
#include "core/jobs/jobs_queue.h"
#include "core/jobs/jobs_search.h"
#include "core/u64.h"

#include <assert.h>
#include <string.h>

enum jobs_state jobs_state(const struct jobs *jobs, uint32_t job)
{
	assert(job < jobs->n_slots);
	return jobs->slots[job].state;
}

/* A member that another reason does not concern for good waits for the others. */
static void jobs_status_gang(const struct jobs *jobs, uint32_t job, struct jobs_status *ret)
{
	bool is_passing = ret->wait == JOBS_WAIT_POSITION || ret->reason == PLACE_APART ||
			  ret->reason == PLACE_FULL || ret->reason == PLACE_NO_ROOM ||
			  ret->reason == PLACE_BOOKED;
	bool is_never;

	if (!jobs_gang_is_in_round(jobs, job, &ret->n_missing, &is_never))
		return;
	if (is_never)
		ret->wait = JOBS_WAIT_NEVER;
	else if (ret->n_missing > 0)
		ret->wait = JOBS_WAIT_MEMBERS;
	else if (is_passing)
		ret->wait = JOBS_WAIT_GANG;
}

static void jobs_status_wait(const struct jobs *jobs, uint32_t job, uint64_t now_ns,
			     struct jobs_status *ret)
{
	struct place_score scores[PLACE_GPUS_MAX];
	uint32_t gpu = jobs_search_place(jobs, &ret->request, job, now_ns, scores);

	ret->wait = gpu == PLACE_NONE ? JOBS_WAIT_PLACE : JOBS_WAIT_POSITION;
	ret->reason = gpu == PLACE_NONE ? place_reason_of(scores) : PLACE_OK;
	ret->position = jobs_position(jobs, job);
	for (gpu = 0; gpu < PLACE_GPUS_MAX; gpu++) {
		if (jobs->booked[gpu] == job)
			ret->booked = gpu;
	}
	if (ret->request.gang)
		jobs_status_gang(jobs, job, ret);
}

void jobs_status(const struct jobs *jobs, uint32_t job, uint64_t now_ns, struct jobs_status *ret)
{
	const struct job *j = &jobs->slots[job];
	bool is_waiting;

	assert(job < jobs->n_slots);
	is_waiting = j->state == JOBS_QUEUED || j->state == JOBS_RESTING;
	*ret = (struct jobs_status){
		.state = j->state,
		.end = j->end,
		.wait = j->state == JOBS_RESTING ? JOBS_WAIT_REST : JOBS_WAIT_NOT,
		.gpu = is_waiting ? JOBS_NONE : j->gpu,
		.booked = JOBS_NONE,
		.is_turns = !is_waiting && j->is_turns,
		.id = j->id,
		.owner = j->owner_number,
		.priority = j->priority,
		.n_retries = j->n_retries,
		.n_starts = j->n_starts,
		.request = j->request,
		.reserved = u64_excess(j->charged, j->footprint),
		.footprint = j->footprint,
		.waited_ns = j->waited_ns + (is_waiting ? now_ns - j->wait_ns : 0),
		.counted_ns = jobs_counted_ns(j, now_ns),
		.limit_ns = j->limit_ns,
	};
	if (jobs_is_on(j))
		ret->ran_ns = now_ns - j->started_ns;
	else if (j->n_starts > 0 && j->state != JOBS_FREE)
		ret->ran_ns = j->ran_ns;
	if (j->state == JOBS_QUEUED)
		jobs_status_wait(jobs, job, now_ns, ret);
}

uint32_t jobs_at(const struct jobs *jobs, uint32_t index)
{
	return tree_at(jobs_nodes(jobs, JOB_NODE_ALL), jobs->all, index);
}

uint32_t jobs_n_queued(const struct jobs *jobs)
{
	return tree_n(jobs_nodes(jobs, JOB_NODE_ALL), jobs->all);
}

uint32_t jobs_n_on(const struct jobs *jobs, uint32_t gpu)
{
	assert(gpu < PLACE_GPUS_MAX);
	return jobs->place.gpu[gpu].load.n_jobs;
}

uint32_t jobs_place(const struct jobs *jobs, const struct jobs_request *request, uint64_t now_ns,
		    struct place_score ret_scores[PLACE_GPUS_MAX])
{
	return jobs_search_place(jobs, request, JOBS_NONE, now_ns, ret_scores);
}

int jobs_check(const struct jobs *jobs, const struct jobs_request *request, uint64_t now_ns)
{
	struct place_score scores[PLACE_GPUS_MAX];
	uint32_t n_known = 0, n_small = 0, n_usable = 0;

	(void)jobs_search_place(jobs, request, JOBS_NONE, now_ns, scores);
	for (uint32_t gpu = 0; gpu < PLACE_GPUS_MAX; gpu++) {
		enum place_reason reason = scores[gpu].reason;

		n_known += reason != PLACE_NO_GPU;
		n_small += reason == PLACE_TOO_SMALL;
		n_usable += reason != PLACE_NO_GPU && reason != PLACE_NOT_ASKED &&
			    reason != PLACE_NOT_IN_SET && reason != PLACE_RESERVED;
	}
	if (n_usable == 0 && (n_known > 0 || request->gpu != PLACE_ANY))
		return JOBS_E_GPU;
	return n_usable > 0 && n_small == n_usable ? JOBS_E_NEVER : 0;
}

const char *jobs_wait_text(enum jobs_wait wait)
{
	switch (wait) {
	case JOBS_WAIT_NOT:
		return "it does not wait";
	case JOBS_WAIT_POSITION:
		return "others stand before it";
	case JOBS_WAIT_PLACE:
		return "no GPU can take it now";
	case JOBS_WAIT_REST:
		return "it rests before it is tried again";
	case JOBS_WAIT_MEMBERS:
		return "its gang lacks members";
	case JOBS_WAIT_GANG:
		return "there are no places for all of its gang";
	case JOBS_WAIT_NEVER:
		return "this node can never have places for all of its gang";
	}
	return "unknown";
}
