/* SPDX-License-Identifier: Apache-2.0 */
#include "core/jobs/jobs_load.h"

#include "core/jobs/jobs_queue.h"
#include "core/u64.h"

#define APART_SLOTS(jobs) ((struct list_slots){&(jobs)->slots[0].apart, sizeof(struct job)})

bool jobs_is_on(const struct job *job)
{
	switch (job->state) {
	case JOBS_STARTED:
	case JOBS_RUNNING:
	case JOBS_STOPPING:
	case JOBS_KILLED:
		return true;
	case JOBS_FREE:
	case JOBS_QUEUED:
	case JOBS_RESTING:
	case JOBS_DONE:
	case JOBS_STATE_COUNT_:
		break;
	}
	return false;
}

void jobs_load_charge(struct jobs *jobs, uint32_t job)
{
	struct job *j = &jobs->slots[job];
	struct place_load *load = &jobs->place.gpu[j->gpu].load;
	/* A reservation ends when the footprint has reached it. */
	uint64_t charged = j->is_reserved ? j->request.need : j->footprint;

	if (charged == j->charged)
		return;
	load->charged += charged - j->charged;
	if (j->request.is_critical)
		load->critical += charged - j->charged;
	j->charged = charged;
	jobs->is_changed = true;
}

void jobs_load_reserve(struct jobs *jobs, uint32_t job, bool is_reserved)
{
	struct job *j = &jobs->slots[job];

	j->is_reserved = is_reserved;
	j->reserve_until_ns = is_reserved ? jobs->now_ns + jobs->config.reserve_ns : 0;
	jobs_load_charge(jobs, job);
}

void jobs_load_begin(struct jobs *jobs, uint32_t job)
{
	struct job *j = &jobs->slots[job];

	jobs->place.gpu[j->gpu].load.n_jobs++;
	place_model_begin(&jobs->place, j->gpu, &j->request.model, jobs->now_ns);
	if (j->request.apart)
		list_push_back(APART_SLOTS(jobs), &jobs->apart[j->gpu], job);
	jobs_load_reserve(jobs, job, true);
}

void jobs_load_end(struct jobs *jobs, uint32_t job)
{
	struct job *j = &jobs->slots[job];

	j->footprint = 0;
	j->n_programs = 0;
	j->is_stopped = false;
	jobs_load_reserve(jobs, job, false);
	if (j->request.apart)
		list_remove(APART_SLOTS(jobs), &jobs->apart[j->gpu], job);
	place_model_end(&jobs->place, j->gpu, &j->request.model, jobs->now_ns);
	jobs->place.gpu[j->gpu].load.n_jobs--;
	jobs->is_changed = true;
}

uint32_t jobs_load_apart(const struct jobs *jobs, uint64_t apart)
{
	uint32_t mask = 0;

	if (!apart)
		return 0;
	for (uint32_t gpu = 0; gpu < PLACE_GPUS_MAX; gpu++) {
		for (uint32_t i = jobs->apart[gpu].first; i != LIST_END;
		     i = jobs->slots[i].apart.next) {
			if (jobs->slots[i].request.apart == apart)
				mask |= 1u << gpu;
		}
	}
	return mask;
}

static bool jobs_is_counting(const struct job *job)
{
	return (job->state == JOBS_STARTED || job->state == JOBS_RUNNING) && !job->is_stopped;
}

uint64_t jobs_counted_ns(const struct job *job, uint64_t now_ns)
{
	return job->counted_ns + (jobs_is_counting(job) ? now_ns - job->counted_at_ns : 0);
}

void jobs_count(struct jobs *jobs, uint32_t job)
{
	struct job *j = &jobs->slots[job];

	j->counted_ns = jobs_counted_ns(j, jobs->now_ns);
	j->counted_at_ns = jobs->now_ns;
}

uint64_t jobs_due_ns(const struct job *job)
{
	uint64_t due_ns = JOBS_NO_DEADLINE;

	switch (job->state) {
	case JOBS_QUEUED:
	case JOBS_RESTING:
	case JOBS_STOPPING:
		return job->due_ns;
	case JOBS_STARTED:
	case JOBS_RUNNING:
		if (jobs_is_counting(job) && job->limit_ns != JOBS_NO_LIMIT)
			due_ns = job->counted_at_ns + u64_excess(job->limit_ns, job->counted_ns);
		if (job->is_reserved)
			due_ns = u64_min(due_ns, job->reserve_until_ns);
		break;
	case JOBS_FREE:
	case JOBS_KILLED:
	case JOBS_DONE:
	case JOBS_STATE_COUNT_:
		break;
	}
	return due_ns;
}

void jobs_timer_set(struct jobs *jobs, uint32_t job)
{
	struct job *j = &jobs->slots[job];
	struct tree_slots timers = jobs_nodes(jobs, JOB_NODE_TIMER);
	uint64_t due_ns = jobs_due_ns(j);

	if (j->node[JOB_NODE_TIMER].n > 0 && j->node[JOB_NODE_TIMER].key.first == due_ns)
		return;
	tree_remove(timers, &jobs->timers, job);
	if (due_ns != JOBS_NO_DEADLINE)
		tree_insert(timers, &jobs->timers, job, (struct tree_key){due_ns, 0, 0});
}
