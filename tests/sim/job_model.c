/* SPDX-License-Identifier: Apache-2.0 */
#include "job_model.h"

#include "core/jobs/jobs_queue.h"

#include <assert.h>
#include <string.h>

bool job_model_is_on(const struct job_model_job *job)
{
	return job->state == JOBS_STARTED || job->state == JOBS_RUNNING ||
	       job->state == JOBS_STOPPING || job->state == JOBS_KILLED;
}

void job_model_init(struct job_model *model, uint32_t n_slots, const struct jobs_config *config)
{
	assert(n_slots <= JOB_MODEL_JOBS);
	memset(model, 0, sizeof(*model));
	model->config = *config;
	model->n_slots = n_slots;
	place_init(&model->place, &config->place);
	for (int gpu = 0; gpu < PLACE_GPUS_MAX; gpu++)
		model->booked[gpu] = JOBS_NONE;
}

/* ---- sums by a look at all ------------------------------------------------------ */

static uint64_t job_charge(const struct job_model_job *job)
{
	bool is_less = job->footprint < job->request.need;

	return job->is_reserved && is_less ? job->request.need : job->footprint;
}

static void job_model_load(struct job_model *model)
{
	for (int gpu = 0; gpu < PLACE_GPUS_MAX; gpu++)
		model->place.gpu[gpu].load = (struct place_load){0};
	for (uint32_t i = 0; i < model->n_slots; i++) {
		const struct job_model_job *job = &model->jobs[i];

		if (!job_model_is_on(job))
			continue;
		model->place.gpu[job->gpu].load.n_jobs++;
		model->place.gpu[job->gpu].load.charged += job_charge(job);
		if (job->request.is_critical)
			model->place.gpu[job->gpu].load.critical += job_charge(job);
	}
}

static uint32_t job_n_on(const struct job_model *model, uint32_t owner)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < model->n_slots; i++)
		n += job_model_is_on(&model->jobs[i]) && model->jobs[i].owner == owner;
	return n;
}

static bool job_has_any(const struct job_model *model, uint32_t owner)
{
	for (uint32_t i = 0; i < model->n_slots; i++) {
		enum jobs_state state = model->jobs[i].state;

		if (model->jobs[i].owner == owner && state != JOBS_FREE && state != JOBS_DONE)
			return true;
	}
	return false;
}

/* Of the same owner and lane, those that go before by priority and id. */
static uint32_t job_n_before(const struct job_model *model, uint32_t job)
{
	const struct job_model_job *j = &model->jobs[job];
	uint32_t n = 0;

	for (uint32_t i = 0; i < model->n_slots; i++) {
		const struct job_model_job *k = &model->jobs[i];

		n += k->state == JOBS_QUEUED && k->owner == j->owner &&
		     jobs_lane(&k->request) == jobs_lane(&j->request) &&
		     (k->priority > j->priority || (k->priority == j->priority && k->id < j->id));
	}
	return n;
}

/* ---- the order, as it reads ------------------------------------------------------ */

/* The first difference decides. */
static bool job_goes_before(const struct job_model *model, uint32_t a, uint32_t b)
{
	const struct job_model_job *left = &model->jobs[a], *right = &model->jobs[b];

	if (left->priority != right->priority)
		return left->priority > right->priority;
	if (left->tier != right->tier)
		return left->tier < right->tier;
	if (left->n_on != right->n_on)
		return left->n_on < right->n_on;
	if (left->owner != right->owner)
		return model->turn[left->owner] < model->turn[right->owner];
	return left->id < right->id;
}

static uint64_t job_old_since(const struct job_model *model, uint32_t job)
{
	uint64_t queued_ns = model->jobs[job].queued_ns;
	uint64_t aged_ns = model->aged_ns[model->jobs[job].owner];

	return queued_ns > aged_ns ? queued_ns : aged_ns;
}

/* No other one of the same owner and lane waits longer. */
static bool job_is_oldest(const struct job_model *model, uint32_t job)
{
	const struct job_model_job *j = &model->jobs[job];

	for (uint32_t i = 0; i < model->n_slots; i++) {
		const struct job_model_job *k = &model->jobs[i];

		if (k->state != JOBS_QUEUED || k->owner != j->owner || i == job ||
		    jobs_lane(&k->request) != jobs_lane(&j->request))
			continue;
		if (k->queued_ns < j->queued_ns || (k->queued_ns == j->queued_ns && k->id < j->id))
			return false;
	}
	return true;
}

static bool job_is_older(const struct job_model *model, uint32_t a, uint32_t b)
{
	uint64_t left = job_old_since(model, a), right = job_old_since(model, b);

	return left != right ? left < right : model->jobs[a].id < model->jobs[b].id;
}

struct job_order {
	uint32_t n;
	uint32_t at[JOB_MODEL_JOBS];
};

static void job_order_add(const struct job_model *model, struct job_order *order, uint32_t job,
			  bool (*is_before)(const struct job_model *, uint32_t, uint32_t))
{
	uint32_t at = order->n++;

	for (; at > 0 && is_before(model, job, order->at[at - 1]); at--)
		order->at[at] = order->at[at - 1];
	order->at[at] = job;
}

/* ---- the search -------------------------------------------------------------------- */

static uint32_t job_choose(struct job_model *model, uint32_t job, struct place_request *ret_request,
			   struct place_score *ret_scores)
{
	const struct jobs_request *r = &model->jobs[job].request;

	*ret_request = (struct place_request){
		.need = r->need, .model = r->model, .gpu = r->gpu, .is_whole = r->is_whole};
	for (uint32_t i = 0; i < model->n_slots; i++) {
		const struct job_model_job *k = &model->jobs[i];

		if (r->apart && job_model_is_on(k) && k->request.apart == r->apart)
			ret_request->apart |= 1u << k->gpu;
	}
	for (int gpu = 0; gpu < PLACE_GPUS_MAX; gpu++) {
		if (model->booked[gpu] != JOBS_NONE && model->booked[gpu] != job)
			ret_request->booked |= 1u << gpu;
	}
	return place_choose(&model->place, ret_request, model->now_ns, ret_scores);
}

static bool job_look(struct job_model *model, uint32_t job, uint32_t *ret_gpu, bool *ret_is_turns)
{
	struct place_score scores[PLACE_GPUS_MAX];
	struct place_request request;
	uint32_t best = PLACE_NONE;

	*ret_gpu = job_choose(model, job, &request, scores);
	if (*ret_gpu != PLACE_NONE) {
		*ret_is_turns = !scores[*ret_gpu].is_fit;
		return true;
	}
	if (model->now_ns < model->jobs[job].queued_ns + model->config.pass_ns)
		return false;
	for (uint32_t gpu = 0; gpu < PLACE_GPUS_MAX; gpu++) {
		if (model->booked[gpu] == job)
			return false;
		if (request.apart & 1u << gpu)
			continue;
		if (model->booked[gpu] == JOBS_NONE &&
		    place_can_empty(&model->place, gpu, &request) &&
		    (best == PLACE_NONE || scores[gpu].free > scores[best].free))
			best = gpu;
	}
	if (best != PLACE_NONE)
		model->booked[best] = job;
	return false;
}

/* A GPU where some job might start: there is a place, and nobody has booked it. */
static bool job_is_open(const struct job_model *model, uint32_t gpu)
{
	const struct place_gpu *facts = &model->place.gpu[gpu].facts;
	uint32_t n_on = facts->n_others + model->place.gpu[gpu].load.n_jobs;

	return facts->is_known && !facts->is_out && model->booked[gpu] == JOBS_NONE &&
	       (facts->degree == 0 || n_on < facts->degree) &&
	       model->config.place.allowed >> gpu & 1 && !(model->config.place.reserved >> gpu & 1);
}

static bool job_has_open(const struct job_model *model, const struct jobs_request *request)
{
	for (uint32_t gpu = 0; gpu < PLACE_GPUS_MAX; gpu++) {
		if (job_is_open(model, gpu) && (request->gpu == PLACE_ANY || request->gpu == gpu))
			return true;
	}
	return false;
}

static uint32_t job_search(struct job_model *model, uint32_t *ret_gpu, bool *ret_is_turns)
{
	static const struct jobs_request any = {.gpu = PLACE_ANY};
	struct job_order old = {0}, all = {0};
	uint32_t n_looked[JOBS_LANES] = {0}, n_old[JOBS_LANES] = {0};

	for (int gpu = 0; gpu < PLACE_GPUS_MAX; gpu++)
		model->booked[gpu] = JOBS_NONE;
	job_model_load(model);
	if (!job_has_open(model, &any))
		return JOBS_NONE;
	for (uint32_t i = 0; i < model->n_slots; i++) {
		if (model->jobs[i].state != JOBS_QUEUED)
			continue;
		model->jobs[i].tier = job_n_before(model, i) / JOBS_TIER;
		model->jobs[i].n_on = job_n_on(model, model->jobs[i].owner);
		job_order_add(model, &all, i, job_goes_before);
		if (job_is_oldest(model, i))
			job_order_add(model, &old, i, job_is_older);
	}
	for (uint32_t i = 0; i < old.n; i++) {
		const struct jobs_request *request = &model->jobs[old.at[i]].request;

		if (model->now_ns < job_old_since(model, old.at[i]) + model->config.age_ns)
			break;
		if (!job_has_open(model, request) || n_old[jobs_lane(request)]++ >= JOBS_LOOK_MAX)
			continue;
		model->was_aged[old.at[i]] = true;
		if (job_look(model, old.at[i], ret_gpu, ret_is_turns))
			return old.at[i];
	}
	for (uint32_t i = 0; i < all.n; i++) {
		const struct jobs_request *request = &model->jobs[all.at[i]].request;

		if (!job_has_open(model, request) ||
		    n_looked[jobs_lane(request)]++ >= JOBS_LOOK_MAX)
			continue;
		model->was_aged[all.at[i]] = false;
		if (job_look(model, all.at[i], ret_gpu, ret_is_turns))
			return all.at[i];
	}
	return JOBS_NONE;
}

/* ---- a job's life -------------------------------------------------------------------- */

static void job_stop(struct job_model *model, struct job_model_job *job, enum jobs_end end)
{
	job->state = JOBS_STOPPING;
	job->end = end;
	job->is_reserved = false;
	job->due_ns = model->now_ns + model->config.grace_ns;
}

static void job_start(struct job_model *model, uint32_t i, uint32_t gpu)
{
	struct job_model_job *job = &model->jobs[i];

	job->state = JOBS_STARTED;
	job->gpu = gpu;
	job->is_reserved = true;
	job->reserve_until_ns = model->now_ns + model->config.reserve_ns;
	model->turn[job->owner] = ++model->n_turns;
	place_model_begin(&model->place, gpu, &job->request.model, model->now_ns);
}

static bool job_is_counting(const struct job_model_job *job)
{
	return (job->state == JOBS_STARTED || job->state == JOBS_RUNNING) && !job->is_stopped;
}

static uint64_t job_due(const struct job_model *model, const struct job_model_job *job)
{
	uint64_t due_ns = JOBS_NO_DEADLINE;

	if (job->state == JOBS_STOPPING || job->state == JOBS_RESTING)
		return job->due_ns;
	if (job_is_counting(job)) {
		uint64_t left_ns =
			job->counted_ns < job->limit_ns ? job->limit_ns - job->counted_ns : 0;

		due_ns = model->now_ns + left_ns;
	}
	if (job_model_is_on(job) && job->is_reserved && job->reserve_until_ns < due_ns)
		due_ns = job->reserve_until_ns;
	return due_ns;
}

/* The first that is due; JOBS_NONE: none is. */
static uint32_t job_next_due(const struct job_model *model, uint64_t *ret_due_ns)
{
	uint32_t first = JOBS_NONE;

	*ret_due_ns = JOBS_NO_DEADLINE;
	for (uint32_t i = 0; i < model->n_slots; i++) {
		uint64_t due_ns = job_due(model, &model->jobs[i]);

		if (due_ns < *ret_due_ns) {
			*ret_due_ns = due_ns;
			first = i;
		}
	}
	return first;
}

static void job_expect(const struct jobs_actions *actions, uint32_t *n, enum jobs_action_type type,
		       uint32_t job, enum jobs_end end)
{
	const struct jobs_action *a = &actions->at[*n];

	assert(*n < actions->n);
	assert(a->type == type && a->job == job && a->end == end);
	++*n;
}

static void job_end(struct job_model *model, const struct jobs_event *event,
		    const struct jobs_actions *actions, uint32_t *n)
{
	struct job_model_job *job = &model->jobs[event->job];
	bool was_on = job_model_is_on(job);
	bool is_told = job->state == JOBS_STOPPING || job->state == JOBS_KILLED;
	bool has_failed = event->end == JOBS_END_FAILED || event->end == JOBS_END_OOM;

	if (was_on) {
		model->turn[job->owner] = ++model->n_turns;
		place_model_end(&model->place, job->gpu, &job->request.model, model->now_ns);
	}
	job->footprint = 0;
	job->is_reserved = false;
	job->is_stopped = false;
	if (was_on && !is_told && has_failed && job->n_retries > 0) {
		job->n_retries--;
		job->state = JOBS_RESTING;
		job->due_ns = model->now_ns + model->config.retry_ns;
		job->counted_ns = 0;
		if (event->need)
			job->request.need = event->need;
		job_expect(actions, n, JOBS_ACTION_RETRY, event->job, event->end);
		return;
	}
	job->state = JOBS_DONE;
	if (!is_told)
		job->end = event->end;
	job_expect(actions, n, JOBS_ACTION_DONE, event->job, job->end);
}

static void job_cancel(struct job_model *model, uint32_t i, const struct jobs_actions *actions,
		       uint32_t *n)
{
	struct job_model_job *job = &model->jobs[i];

	if (job->state == JOBS_QUEUED || job->state == JOBS_RESTING) {
		job->state = JOBS_DONE;
		job->end = JOBS_END_CANCELLED;
		job_expect(actions, n, JOBS_ACTION_DONE, i, JOBS_END_CANCELLED);
	} else if (job->state == JOBS_STARTED || job->state == JOBS_RUNNING) {
		job_stop(model, job, JOBS_END_CANCELLED);
		job_expect(actions, n, JOBS_ACTION_TERM, i, JOBS_END_CANCELLED);
	}
}

static void job_programs(struct job_model *model, const struct jobs_event *event)
{
	struct job_model_job *job = &model->jobs[event->job];

	job->footprint = event->footprint;
	job->is_stopped = event->is_stopped && event->n_programs > 0;
	if (job->state == JOBS_STARTED && event->n_programs > 0) {
		job->state = JOBS_RUNNING;
		if (job->is_reserved)
			job->reserve_until_ns = model->now_ns + model->config.reserve_ns;
	}
	if (job->footprint >= job->request.need)
		job->is_reserved = false;
}

static void job_submit(struct job_model *model, const struct jobs_event *event)
{
	struct job_model_job *job = &model->jobs[event->job];

	if (!job_has_any(model, event->owner)) {
		model->turn[event->owner] = ++model->n_turns;
		model->aged_ns[event->owner] = 0;
	}
	*job = (struct job_model_job){
		.state = JOBS_QUEUED,
		.id = event->id,
		.request = event->request,
		.owner = event->owner,
		.priority = event->priority,
		.n_retries = event->n_retries,
		.limit_ns = event->limit_ns ? event->limit_ns : model->config.limit_ns,
		.counted_ns = event->counted_ns,
		.queued_ns = event->since_ns,
	};
	if (event->type == JOBS_EVENT_ADOPT)
		job_start(model, event->job, event->gpu);
}

static void job_event(struct job_model *model, const struct jobs_event *event,
		      const struct jobs_actions *actions, uint32_t *n)
{
	switch (event->type) {
	case JOBS_EVENT_TIME:
	case JOBS_EVENT_COUNT_:
		break;
	case JOBS_EVENT_CONFIG:
		model->config = *event->config;
		model->place.config = event->config->place;
		break;
	case JOBS_EVENT_GPU:
		model->place.gpu[event->gpu].facts = event->facts;
		if (event->is_other || !event->facts.is_known)
			place_model_forget(&model->place, event->gpu);
		break;
	case JOBS_EVENT_SUBMIT:
	case JOBS_EVENT_ADOPT:
		job_submit(model, event);
		break;
	case JOBS_EVENT_CANCEL:
		job_cancel(model, event->job, actions, n);
		break;
	case JOBS_EVENT_PROGRAMS:
		job_programs(model, event);
		break;
	case JOBS_EVENT_ENDED:
		job_end(model, event, actions, n);
		break;
	case JOBS_EVENT_FORGET:
		model->jobs[event->job].state = JOBS_FREE;
		break;
	}
}

static void job_timers(struct job_model *model, const struct jobs_actions *actions, uint32_t *n)
{
	uint64_t due_ns;
	uint32_t i;

	while (*n < JOBS_ACTIONS_MAX && (i = job_next_due(model, &due_ns)) != JOBS_NONE &&
	       due_ns <= model->now_ns) {
		struct job_model_job *job = &model->jobs[i];

		if (job->state == JOBS_RESTING) {
			job->state = JOBS_QUEUED;
			job->end = JOBS_END_NOT;
			job->queued_ns = model->now_ns;
		} else if (job->state == JOBS_STOPPING) {
			job->state = JOBS_KILLED;
			job_expect(actions, n, JOBS_ACTION_KILL, i, job->end);
		} else if (job->is_reserved && job->reserve_until_ns <= model->now_ns) {
			job->is_reserved = false;
		} else {
			job_stop(model, job, JOBS_END_TIMEOUT);
			job_expect(actions, n, JOBS_ACTION_TERM, i, JOBS_END_TIMEOUT);
		}
	}
}

static void job_starts(struct job_model *model, const struct jobs_actions *actions, uint32_t *n)
{
	uint32_t i, gpu;
	bool is_turns;

	while (*n < JOBS_ACTIONS_MAX) {
		i = job_search(model, &gpu, &is_turns);
		if (i == JOBS_NONE)
			return;
		job_expect(actions, n, JOBS_ACTION_START, i, JOBS_END_NOT);
		assert(actions->at[*n - 1].gpu == gpu);
		assert(actions->at[*n - 1].is_turns == is_turns);
		model->jobs[i].is_turns = is_turns;
		job_start(model, i, gpu);
		if (model->was_aged[i])
			model->aged_ns[model->jobs[i].owner] = model->now_ns;
	}
}

/* ---- the comparison -------------------------------------------------------------------- */

static void job_model_compare(struct job_model *model, const struct jobs *jobs, bool is_full)
{
	uint64_t due_ns;

	job_model_load(model);
	for (uint32_t i = 0; i < model->n_slots; i++) {
		const struct job_model_job *job = &model->jobs[i];
		struct jobs_status status;

		assert(jobs_state(jobs, i) == job->state);
		if (job->state == JOBS_FREE)
			continue;
		jobs_status(jobs, i, model->now_ns, &status);
		assert(status.id == job->id && status.n_retries == job->n_retries);
		assert(status.counted_ns == job->counted_ns);
		assert(status.footprint == job->footprint);
		assert(!job_model_is_on(job) ||
		       (status.gpu == job->gpu &&
			status.reserved == job_charge(job) - job->footprint));
	}
	for (int gpu = 0; gpu < PLACE_GPUS_MAX; gpu++) {
		const struct place_load *real = &jobs->place.gpu[gpu].load;
		const struct place_load *load = &model->place.gpu[gpu].load;

		assert(real->n_jobs == load->n_jobs && real->charged == load->charged &&
		       real->critical == load->critical);
	}
	(void)job_next_due(model, &due_ns);
	if (is_full)
		return;
	assert(jobs_deadline(jobs) == due_ns);
	assert(!memcmp(model->booked, jobs->booked, sizeof(model->booked)));
}

/* All that decides whether a job can start. Only a change of it needs a search. */
struct job_sight {
	struct place_gpu facts[PLACE_GPUS_MAX];
	struct place_load load[PLACE_GPUS_MAX];
	uint64_t queued; /* a bit for each job */
};

static void job_model_see(struct job_model *model, struct job_sight *ret)
{
	memset(ret, 0, sizeof(*ret));
	job_model_load(model);
	for (int gpu = 0; gpu < PLACE_GPUS_MAX; gpu++) {
		struct place_gpu *facts = &ret->facts[gpu];

		memcpy(facts, &model->place.gpu[gpu].facts, sizeof(*facts));
		facts->utilization = facts->temperature = 0;
		facts->idle_ns = 0;
		memcpy(&ret->load[gpu], &model->place.gpu[gpu].load, sizeof(ret->load[gpu]));
	}
	for (uint32_t i = 0; i < model->n_slots; i++)
		ret->queued |= (uint64_t)(model->jobs[i].state == JOBS_QUEUED) << i;
}

void job_model_step(struct job_model *model, const struct jobs *jobs,
		    const struct jobs_event *event, int r, const struct jobs_actions *actions)
{
	struct job_sight before, after;
	bool is_changed = !event || event->type == JOBS_EVENT_CONFIG ||
			  (event->type == JOBS_EVENT_GPU && event->is_other);
	uint32_t n = 0;

	for (uint32_t i = 0; event && i < model->n_slots; i++) {
		if (job_is_counting(&model->jobs[i]))
			model->jobs[i].counted_ns += event->now_ns - model->now_ns;
	}
	if (event)
		model->now_ns = event->now_ns;
	if (r == 0) {
		job_model_see(model, &before);
		if (event)
			job_event(model, event, actions, &n);
		job_timers(model, actions, &n);
		job_model_see(model, &after);
		if (is_changed || memcmp(&before, &after, sizeof(before)) != 0)
			job_starts(model, actions, &n);
	}
	assert(n == actions->n);
	job_model_compare(model, jobs, n == JOBS_ACTIONS_MAX);
}
