/* SPDX-License-Identifier: Apache-2.0 */
#include "core/jobs/jobs.h"

#include "core/jobs/jobs_gang.h"
#include "core/jobs/jobs_load.h"
#include "core/jobs/jobs_queue.h"
#include "core/jobs/jobs_search.h"
#include "core/u64.h"

#include <assert.h>
#include <string.h>

/* More programs than any node has, so that sums stay within 32 bits. */
#define PROGRAMS_MAX 1000000u

void jobs_init(struct jobs *jobs, struct job *slots, uint32_t n_slots,
	       const struct jobs_config *config)
{
	assert(n_slots > 0);
	memset(jobs, 0, sizeof(*jobs));
	memset(slots, 0, n_slots * sizeof(*slots));
	jobs->config = *config;
	jobs->slots = slots;
	jobs->n_slots = n_slots;
	jobs->all = jobs->timers = jobs->firsts = jobs->gangs = TREE_NONE;
	for (uint32_t lane = 0; lane < JOBS_LANES; lane++)
		jobs->fronts[lane] = jobs->oldest[lane] = TREE_NONE;
	for (uint32_t gpu = 0; gpu < PLACE_GPUS_MAX; gpu++) {
		jobs->booked[gpu] = JOBS_NONE;
		list_init(&jobs->apart[gpu]);
	}
	place_init(&jobs->place, &config->place);
	jobs_queue_init(jobs);
}

static bool jobs_is_full(const struct jobs_actions *actions)
{
	return actions->n == JOBS_ACTIONS_MAX;
}

static void jobs_act(struct jobs *jobs, struct jobs_actions *actions, enum jobs_action_type type,
		     uint32_t job)
{
	const struct job *j = &jobs->slots[job];

	assert(!jobs_is_full(actions));
	actions->at[actions->n++] = (struct jobs_action){type, job, j->gpu, j->is_turns, j->end};
}

/* ---- a job's life ---------------------------------------------------------- */

static void job_queue(struct jobs *jobs, uint32_t job)
{
	jobs->slots[job].state = JOBS_QUEUED;
	jobs_queue_enter(jobs, job);
	jobs->is_changed = true;
}

/* It waits no more. Its place in the queue is given up first. */
static void job_end_wait(struct jobs *jobs, uint32_t job)
{
	struct job *j = &jobs->slots[job];

	if (j->state == JOBS_QUEUED) {
		jobs_queue_exit(jobs, job);
		/* It may have booked a GPU, or hidden others from the search. */
		jobs->is_changed = true;
	}
	j->waited_ns += jobs->now_ns - j->wait_ns;
}

static void job_begin(struct jobs *jobs, uint32_t job, uint32_t gpu, bool is_aged)
{
	struct job *j = &jobs->slots[job];

	j->state = JOBS_STARTED;
	j->gpu = gpu;
	j->started_ns = jobs->now_ns;
	j->counted_at_ns = jobs->now_ns;
	j->n_starts++;
	jobs_queue_begin(jobs, job, is_aged);
	jobs_load_begin(jobs, job);
	if (j->request.gang)
		jobs_gang_begin(jobs, job);
}

static void job_done(struct jobs *jobs, uint32_t job, enum jobs_end end,
		     struct jobs_actions *actions)
{
	struct job *j = &jobs->slots[job];

	j->state = JOBS_DONE;
	j->end = end;
	jobs_gang_leave(jobs, job);
	jobs_queue_leave(jobs, job);
	jobs_act(jobs, actions, JOBS_ACTION_DONE, job);
}

static void job_stop(struct jobs *jobs, uint32_t job, enum jobs_end end,
		     struct jobs_actions *actions)
{
	struct job *j = &jobs->slots[job];

	jobs_count(jobs, job);
	j->state = JOBS_STOPPING;
	j->end = end;
	j->due_ns = jobs->now_ns + jobs->config.grace_ns;
	jobs_load_reserve(jobs, job, false);
	jobs_act(jobs, actions, JOBS_ACTION_TERM, job);
}

/* ---- events ---------------------------------------------------------------- */

static int jobs_check_submit(const struct jobs *jobs, const struct jobs_event *event)
{
	const struct jobs_request *r = &event->request;
	int error;

	if (jobs->slots[event->job].state != JOBS_FREE)
		return JOBS_E_EXISTS;
	if (!u64_is_within(r->need, 1, PLACE_BYTES_MAX) || event->since_ns > event->now_ns ||
	    event->priority > JOBS_PRIORITY_MAX || event->n_retries > JOBS_RETRIES_MAX ||
	    (r->gpu != PLACE_ANY && r->gpu >= PLACE_GPUS_MAX) || (r->is_critical && !r->is_whole) ||
	    !u64_is_within(r->gang_size, r->gang ? 2 : 0, r->gang ? JOBS_GANG_MAX : 0))
		return JOBS_E_VALUE;
	if (event->is_restored || event->type == JOBS_EVENT_ADOPT)
		return 0;
	if (event->limit_ns > jobs->config.limit_max_ns && event->limit_ns != JOBS_NO_LIMIT)
		return JOBS_E_LIMIT;
	error = jobs_check(jobs, r, jobs->now_ns);
	return error ? error : jobs_gang_check(jobs, event);
}

static int jobs_on_submit(struct jobs *jobs, const struct jobs_event *event)
{
	struct job *j = &jobs->slots[event->job];
	struct jobs_line line = j->its_line;
	struct jobs_owner owner = j->its_owner;
	int r = jobs_check_submit(jobs, event);

	if (r)
		return r;
	if (event->type == JOBS_EVENT_ADOPT && event->gpu >= PLACE_GPUS_MAX)
		return JOBS_E_VALUE;
	*j = (struct job){
		.id = event->id,
		.request = event->request,
		.owner_number = event->owner,
		.owner = JOBS_NONE,
		.line = JOBS_NONE,
		.gpu = JOBS_NONE,
		.priority = event->priority,
		.n_retries = event->n_retries,
		.limit_ns = event->limit_ns ? event->limit_ns : jobs->config.limit_ns,
		.counted_ns = event->counted_ns,
		.queued_ns = event->since_ns,
		.wait_ns = event->since_ns,
		.its_line = line,
		.its_owner = owner,
	};
	jobs_queue_join(jobs, event->job);
	jobs_gang_join(jobs, event->job);
	if (event->type == JOBS_EVENT_SUBMIT) {
		job_queue(jobs, event->job);
	} else {
		job_begin(jobs, event->job, event->gpu, false);
		j->gang_ns = event->since_ns; /* its gang had not started before */
	}
	return 0;
}

static int jobs_on_tried(struct jobs *jobs, uint32_t job)
{
	if (jobs->slots[job].state != JOBS_QUEUED)
		return JOBS_E_STATE;
	jobs->slots[job].n_starts++;
	return 0;
}

static int jobs_on_cancel(struct jobs *jobs, uint32_t job, struct jobs_actions *actions)
{
	switch (jobs->slots[job].state) {
	case JOBS_QUEUED:
	case JOBS_RESTING:
		job_end_wait(jobs, job);
		job_done(jobs, job, JOBS_END_CANCELLED, actions);
		return 0;
	case JOBS_STARTED:
	case JOBS_RUNNING:
		job_stop(jobs, job, JOBS_END_CANCELLED, actions);
		return 0;
	case JOBS_STOPPING:
	case JOBS_KILLED:
	case JOBS_DONE:
		return 0;
	case JOBS_FREE:
	case JOBS_STATE_COUNT_:
		break;
	}
	return JOBS_E_NO_JOB;
}

static int jobs_on_programs(struct jobs *jobs, const struct jobs_event *event)
{
	struct job *j = &jobs->slots[event->job];

	if (!jobs_is_on(j))
		return JOBS_E_STATE;
	if (event->n_programs > PROGRAMS_MAX || event->footprint > PLACE_BYTES_MAX)
		return JOBS_E_VALUE;
	jobs_count(jobs, event->job);
	j->n_programs = event->n_programs;
	j->footprint = event->footprint;
	j->is_stopped = event->is_stopped && event->n_programs > 0;
	if (j->state == JOBS_STARTED && j->n_programs > 0) {
		j->state = JOBS_RUNNING;
		jobs_load_reserve(jobs, event->job, j->is_reserved);
	}
	if (j->footprint >= j->request.need)
		jobs_load_reserve(jobs, event->job, false);
	jobs_load_charge(jobs, event->job);
	return 0;
}

static int jobs_on_ended(struct jobs *jobs, const struct jobs_event *event,
			 struct jobs_actions *actions)
{
	struct job *j = &jobs->slots[event->job];
	bool has_failed = event->end == JOBS_END_FAILED || event->end == JOBS_END_OOM;

	if (!has_failed && event->end != JOBS_END_SUCCESS && event->end != JOBS_END_LOST)
		return JOBS_E_VALUE;
	if (event->need > PLACE_BYTES_MAX)
		return JOBS_E_VALUE;
	if (!jobs_is_on(j)) {
		if (j->state == JOBS_DONE || event->end != JOBS_END_LOST)
			return JOBS_E_STATE;
		job_end_wait(jobs, event->job);
		job_done(jobs, event->job, JOBS_END_LOST, actions);
		return 0;
	}
	jobs_count(jobs, event->job);
	jobs_load_end(jobs, event->job);
	jobs_queue_end(jobs, event->job);
	j->ran_ns = jobs->now_ns - j->started_ns;
	if (j->end != JOBS_END_NOT) { /* it was told to stop */
		job_done(jobs, event->job, j->end, actions);
		return 0;
	}
	if (!has_failed || j->n_retries == 0) {
		job_done(jobs, event->job, event->end, actions);
		return 0;
	}
	j->n_retries--;
	j->state = JOBS_RESTING;
	j->end = event->end;
	j->due_ns = jobs->now_ns + jobs->config.retry_ns;
	j->wait_ns = jobs->now_ns;
	if (event->need)
		j->request.need = event->need;
	jobs_act(jobs, actions, JOBS_ACTION_RETRY, event->job);
	j->end = JOBS_END_NOT;
	j->counted_ns = 0;
	return 0;
}

/* Nothing else of the facts decides whether a job can start. */
static bool jobs_are_facts_alike(const struct place_gpu *a, const struct place_gpu *b)
{
	return a->is_known == b->is_known && a->is_out == b->is_out && a->total == b->total &&
	       a->reserve == b->reserve && a->external == b->external && a->others == b->others &&
	       a->critical == b->critical && a->n_others == b->n_others && a->degree == b->degree;
}

static int jobs_on_gpu(struct jobs *jobs, const struct jobs_event *event)
{
	const struct place_gpu *facts = &event->facts;
	struct place_gpu *known;

	if (event->gpu >= PLACE_GPUS_MAX || facts->total > PLACE_BYTES_MAX ||
	    facts->reserve > PLACE_BYTES_MAX || facts->external > PLACE_BYTES_MAX ||
	    facts->critical > facts->others || facts->n_others > PROGRAMS_MAX)
		return JOBS_E_VALUE;
	known = &jobs->place.gpu[event->gpu].facts;
	if (event->is_other || !facts->is_known)
		place_model_forget(&jobs->place, event->gpu);
	if (event->is_other || !jobs_are_facts_alike(known, facts))
		jobs->is_changed = true;
	*known = *facts;
	return 0;
}

static int jobs_on_config(struct jobs *jobs, const struct jobs_event *event)
{
	if (jobs_config_check(event->config))
		return JOBS_E_VALUE;
	jobs->config = *event->config;
	jobs->place.config = event->config->place;
	jobs->is_changed = true;
	jobs_gang_settle_all(jobs);
	return 0;
}

static int jobs_on_job_event(struct jobs *jobs, const struct jobs_event *event,
			     struct jobs_actions *actions)
{
	bool is_new = event->type == JOBS_EVENT_SUBMIT || event->type == JOBS_EVENT_ADOPT;
	int r = JOBS_E_VALUE;

	if (event->job >= jobs->n_slots || (!is_new && jobs->slots[event->job].state == JOBS_FREE))
		return JOBS_E_NO_JOB;
	switch (event->type) {
	case JOBS_EVENT_SUBMIT:
	case JOBS_EVENT_ADOPT:
		r = jobs_on_submit(jobs, event);
		break;
	case JOBS_EVENT_TRIED:
		r = jobs_on_tried(jobs, event->job);
		break;
	case JOBS_EVENT_CANCEL:
		r = jobs_on_cancel(jobs, event->job, actions);
		break;
	case JOBS_EVENT_PROGRAMS:
		r = jobs_on_programs(jobs, event);
		break;
	case JOBS_EVENT_ENDED:
		r = jobs_on_ended(jobs, event, actions);
		break;
	case JOBS_EVENT_FORGET:
		if (jobs->slots[event->job].state != JOBS_DONE)
			return JOBS_E_STATE;
		jobs->slots[event->job].state = JOBS_FREE;
		return 0;
	case JOBS_EVENT_TIME:
	case JOBS_EVENT_CONFIG:
	case JOBS_EVENT_GPU:
	case JOBS_EVENT_COUNT_:
		break;
	}
	if (r == 0) {
		jobs_timer_set(jobs, event->job);
		jobs_gang_settle(jobs, event->job);
	}
	return r;
}

static int jobs_on_event(struct jobs *jobs, const struct jobs_event *event,
			 struct jobs_actions *actions)
{
	switch (event->type) {
	case JOBS_EVENT_TIME:
		return 0;
	case JOBS_EVENT_CONFIG:
		return jobs_on_config(jobs, event);
	case JOBS_EVENT_GPU:
		return jobs_on_gpu(jobs, event);
	case JOBS_EVENT_SUBMIT:
	case JOBS_EVENT_ADOPT:
	case JOBS_EVENT_TRIED:
	case JOBS_EVENT_CANCEL:
	case JOBS_EVENT_PROGRAMS:
	case JOBS_EVENT_ENDED:
	case JOBS_EVENT_FORGET:
		break;
	case JOBS_EVENT_COUNT_:
		return JOBS_E_VALUE;
	}
	return jobs_on_job_event(jobs, event, actions);
}

/* ---- time ------------------------------------------------------------------ */

/* The timer of job is due. */
static void job_on_time(struct jobs *jobs, uint32_t job, struct jobs_actions *actions)
{
	struct job *j = &jobs->slots[job];

	if (j->state == JOBS_RESTING) {
		j->queued_ns = jobs->now_ns;
		job_queue(jobs, job);
		jobs_gang_settle(jobs, job);
	} else if (j->state == JOBS_QUEUED) {
		if (jobs_gang_is_over(jobs, job)) {
			job_end_wait(jobs, job);
			job_done(jobs, job, JOBS_END_FAILED, actions);
		}
		jobs_gang_settle(jobs, job);
	} else if (j->state == JOBS_STOPPING) {
		j->state = JOBS_KILLED;
		jobs_act(jobs, actions, JOBS_ACTION_KILL, job);
	} else if (j->is_reserved && j->reserve_until_ns <= jobs->now_ns) {
		jobs_load_reserve(jobs, job, false);
	} else {
		job_stop(jobs, job, JOBS_END_TIMEOUT, actions);
	}
	jobs_timer_set(jobs, job);
}

static uint64_t jobs_timers_due_ns(const struct jobs *jobs)
{
	uint32_t job = tree_first(jobs_nodes(jobs, JOB_NODE_TIMER), jobs->timers);

	return job == TREE_NONE ? JOBS_NO_DEADLINE
				: jobs->slots[job].node[JOB_NODE_TIMER].key.first;
}

static void jobs_run_timers(struct jobs *jobs, struct jobs_actions *actions)
{
	while (jobs_timers_due_ns(jobs) <= jobs->now_ns && !jobs_is_full(actions))
		job_on_time(jobs, tree_first(jobs_nodes(jobs, JOB_NODE_TIMER), jobs->timers),
			    actions);
}

/* All of found have left the queue before one of them begins. */
static void jobs_start(struct jobs *jobs, const struct jobs_found *found,
		       struct jobs_actions *actions)
{
	for (uint32_t i = 0; i < found->n; i++)
		job_end_wait(jobs, found->at[i].job);
	for (uint32_t i = 0; i < found->n; i++) {
		const struct jobs_start *start = &found->at[i];

		jobs->slots[start->job].is_turns = start->is_turns;
		job_begin(jobs, start->job, start->gpu, found->is_aged);
		jobs_timer_set(jobs, start->job);
		jobs_act(jobs, actions, JOBS_ACTION_START, start->job);
	}
	if (found->n == 1)
		jobs_gang_replace(jobs, found->at[0].job);
	jobs_gang_settle(jobs, found->at[0].job);
}

static void jobs_start_all(struct jobs *jobs, struct jobs_actions *actions)
{
	struct jobs_found found;

	while (jobs->is_changed && !jobs_is_full(actions)) {
		if (!jobs_search(jobs, &found)) {
			jobs->is_changed = false;
			return;
		}
		/* A gang starts in one step: in the next one, where there is room for all. */
		if (found.n > JOBS_ACTIONS_MAX - actions->n)
			return;
		jobs_start(jobs, &found, actions);
	}
}

int jobs_step(struct jobs *jobs, const struct jobs_event *event, struct jobs_actions *ret_actions)
{
	int r;

	ret_actions->n = 0;
	jobs->now_ns = event->now_ns;
	r = jobs_on_event(jobs, event, ret_actions);
	if (r)
		return r;
	jobs_run_timers(jobs, ret_actions);
	jobs_start_all(jobs, ret_actions);
	return 0;
}

uint64_t jobs_deadline(const struct jobs *jobs)
{
	return jobs->is_changed ? jobs->now_ns : jobs_timers_due_ns(jobs);
}
