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

static bool job_is_in_line(const struct job_model_job *job)
{
	return job->state == JOBS_QUEUED && job->stand != STAND_NOT;
}

/* ---- gangs ----------------------------------------------------------------------- */

static bool job_are_mates(const struct job_model_job *a, const struct job_model_job *b)
{
	return a->request.gang && a->request.gang == b->request.gang && a->owner == b->owner;
}

static uint32_t job_gang_n_on(const struct job_model *model, uint32_t job)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < model->n_slots; i++)
		n += job_model_is_on(&model->jobs[i]) &&
		     job_are_mates(&model->jobs[i], &model->jobs[job]);
	return n;
}

/* Since when the members of job's gang that are on are a gang that runs. */
static uint64_t job_gang_since(const struct job_model *model, uint32_t job)
{
	uint64_t since_ns = UINT64_MAX;

	for (uint32_t i = 0; i < model->n_slots; i++) {
		const struct job_model_job *k = &model->jobs[i];

		if (job_model_is_on(k) && job_are_mates(k, &model->jobs[job]) &&
		    k->gang_ns < since_ns)
			since_ns = k->gang_ns;
	}
	return since_ns;
}

/* The queued members by their ids. */
static uint32_t job_gang_queued(const struct job_model *model, uint32_t job,
				uint32_t ret[JOB_MODEL_JOBS])
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < model->n_slots; i++) {
		uint32_t at = n;

		if (model->jobs[i].state != JOBS_QUEUED ||
		    !job_are_mates(&model->jobs[i], &model->jobs[job]))
			continue;
		for (; at > 0 && model->jobs[ret[at - 1]].id > model->jobs[i].id; at--)
			ret[at] = ret[at - 1];
		ret[at] = i;
		n++;
	}
	return n;
}

/* So many have come to job's gang since it runs. */
static uint32_t job_gang_n_new(const struct job_model *model, uint32_t job)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < model->n_slots; i++) {
		const struct job_model_job *k = &model->jobs[i];

		if (job_model_is_on(k) && job_are_mates(k, &model->jobs[job]) && k->gang_n_new > n)
			n = k->gang_n_new;
	}
	return n;
}

static void job_stand_gang(struct job_model *model, uint32_t job)
{
	struct job_model_job *j = &model->jobs[job];
	uint32_t queued[JOB_MODEL_JOBS], n = job_gang_queued(model, job, queued), rank = 0;
	uint32_t n_on = job_gang_n_on(model, job), size = j->request.gang_size;
	uint64_t gang_ns = job_gang_since(model, job);

	while (queued[rank] != job)
		rank++;
	j->stand = STAND_NOT;
	if (n_on > 0 && n_on < size && n < size) {
		bool is_early = model->now_ns < gang_ns + model->config.limit_max_ns;
		bool is_known = j->n_starts > 0 || job_gang_n_new(model, job) < size;

		if (rank < size - n_on)
			j->stand = is_early && is_known ? STAND_FIRST : STAND_LINE;
	} else if (rank == 0 && n >= size) {
		j->stand = STAND_GANG;
		for (uint32_t i = 0; i < size; i++) {
			if (model->jobs[queued[i]].queued_ns > j->since_ns)
				j->since_ns = model->jobs[queued[i]].queued_ns;
		}
	}
}

static void job_model_stand(struct job_model *model)
{
	for (uint32_t i = 0; i < model->n_slots; i++) {
		struct job_model_job *job = &model->jobs[i];

		if (job->state != JOBS_QUEUED)
			continue;
		job->stand = STAND_LINE;
		job->since_ns = job->queued_ns;
		if (job->request.gang)
			job_stand_gang(model, i);
	}
}

/* It has run, and too few others are left to start with it. */
static bool job_is_over(const struct job_model *model, const struct job_model_job *job)
{
	uint32_t n = 0;

	if (job->state != JOBS_QUEUED || job->n_starts == 0 || !job->request.gang)
		return false;
	for (uint32_t i = 0; i < model->n_slots; i++) {
		const struct job_model_job *k = &model->jobs[i];

		if (k->state == JOBS_FREE || k->state == JOBS_DONE || !job_are_mates(k, job))
			continue;
		if (job_model_is_on(k))
			return false;
		n++;
	}
	return n < job->request.gang_size;
}

/* Whether a job stands elsewhere than before. */
static bool job_model_moves(struct job_model *model)
{
	enum job_stand before[JOB_MODEL_JOBS];
	bool is_moved = false;

	for (uint32_t i = 0; i < model->n_slots; i++)
		before[i] = model->jobs[i].stand;
	job_model_stand(model);
	for (uint32_t i = 0; i < model->n_slots; i++)
		is_moved |=
			model->jobs[i].state == JOBS_QUEUED && model->jobs[i].stand != before[i];
	return is_moved;
}

bool job_model_is_lacking(const struct job_model *model, uint32_t job)
{
	const struct job_model_job *j = &model->jobs[job];
	uint32_t queued[JOB_MODEL_JOBS], n = job_gang_queued(model, job, queued), rank = 0;
	uint32_t n_on = job_gang_n_on(model, job), size = j->request.gang_size;

	if (j->state != JOBS_QUEUED || !j->request.gang)
		return false;
	while (queued[rank] != job)
		rank++;
	if (n_on > 0 && n_on < size && n < size)
		return rank >= size - n_on;
	return rank >= n - n % size;
}

/* Of the same owner and lane, those that go before by priority and id. */
static uint32_t job_n_before(const struct job_model *model, uint32_t job)
{
	const struct job_model_job *j = &model->jobs[job];
	uint32_t n = 0;

	for (uint32_t i = 0; i < model->n_slots; i++) {
		const struct job_model_job *k = &model->jobs[i];

		if (job_is_in_line(k) && k->owner == j->owner &&
		    jobs_lane(&k->request) == jobs_lane(&j->request) &&
		    (k->priority > j->priority || (k->priority == j->priority && k->id < j->id)))
			n += k->stand == STAND_GANG ? k->request.gang_size : 1;
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
	uint64_t since_ns = model->jobs[job].since_ns;
	uint64_t aged_ns = model->aged_ns[model->jobs[job].owner];

	return since_ns > aged_ns ? since_ns : aged_ns;
}

/* No other one of the same owner and lane waits longer. */
static bool job_is_oldest(const struct job_model *model, uint32_t job)
{
	const struct job_model_job *j = &model->jobs[job];

	for (uint32_t i = 0; i < model->n_slots; i++) {
		const struct job_model_job *k = &model->jobs[i];

		if (!job_is_in_line(k) || k->owner != j->owner || i == job ||
		    jobs_lane(&k->request) != jobs_lane(&j->request))
			continue;
		if (k->since_ns < j->since_ns || (k->since_ns == j->since_ns && k->id < j->id))
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

struct job_found {
	uint32_t n;
	uint32_t job[JOB_MODEL_JOBS], gpu[JOB_MODEL_JOBS];
	bool is_turns[JOB_MODEL_JOBS];
};

/* The GPUs that r keeps apart from: of jobs that are on, and of the first n of found. */
static uint32_t job_apart(const struct job_model *model, const struct jobs_request *r,
			  const struct job_found *found)
{
	uint32_t mask = 0;

	for (uint32_t i = 0; i < model->n_slots && r->apart; i++) {
		const struct job_model_job *k = &model->jobs[i];

		if (job_model_is_on(k) && k->request.apart == r->apart)
			mask |= 1u << k->gpu;
	}
	for (uint32_t i = 0; i < found->n && r->apart; i++) {
		if (model->jobs[found->job[i]].request.apart == r->apart)
			mask |= 1u << found->gpu[i];
	}
	return mask;
}

/* booker: the job whose bookings do not matter. */
static struct place_request job_request(const struct job_model *model, uint32_t job,
					uint32_t booker, const struct job_found *found)
{
	const struct jobs_request *r = &model->jobs[job].request;
	struct place_request request = {.need = r->need,
					.model = r->model,
					.gpu = r->gpu,
					.is_whole = r->is_whole,
					.apart = job_apart(model, r, found)};

	for (int gpu = 0; gpu < PLACE_GPUS_MAX; gpu++) {
		if (model->booked[gpu] != JOBS_NONE && model->booked[gpu] != booker)
			request.booked |= 1u << gpu;
	}
	return request;
}

static bool job_has_booked(const struct job_model *model, uint32_t job)
{
	for (uint32_t gpu = 0; gpu < PLACE_GPUS_MAX; gpu++) {
		if (model->booked[gpu] == job)
			return true;
	}
	return false;
}

static bool job_look(struct job_model *model, uint32_t job, struct job_found *ret)
{
	struct place_score scores[PLACE_GPUS_MAX];
	struct place_request request;
	uint32_t best = PLACE_NONE;

	ret->n = 0;
	request = job_request(model, job, job, ret);
	ret->job[0] = job;
	ret->gpu[0] = place_choose(&model->place, &request, model->now_ns, scores);
	if (ret->gpu[0] != PLACE_NONE) {
		ret->is_turns[0] = !scores[ret->gpu[0]].is_fit;
		ret->n = 1;
		return true;
	}
	if (model->now_ns < model->jobs[job].since_ns + model->config.pass_ns ||
	    job_has_booked(model, job))
		return false;
	for (uint32_t gpu = 0; gpu < PLACE_GPUS_MAX; gpu++) {
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

static void job_add_load(struct place_load *load, const struct jobs_request *request)
{
	load->n_jobs++;
	load->charged += request->need;
	load->critical += request->is_critical ? request->need : 0;
}

static bool job_is_placed_before(const struct jobs_request *a, const struct jobs_request *b)
{
	if ((a->gpu == PLACE_ANY) != (b->gpu == PLACE_ANY))
		return b->gpu == PLACE_ANY;
	return a->need > b->need;
}

/* The first round of job's gang, in the order in which the members are placed. */
static uint32_t job_round(const struct job_model *model, uint32_t job, uint32_t ret[JOB_MODEL_JOBS])
{
	uint32_t queued[JOB_MODEL_JOBS], size = model->jobs[job].request.gang_size;

	(void)job_gang_queued(model, job, queued);
	for (uint32_t i = 0; i < size; i++) {
		uint32_t at = i;

		for (; at > 0 && job_is_placed_before(&model->jobs[queued[i]].request,
						      &model->jobs[ret[at - 1]].request);
		     at--)
			ret[at] = ret[at - 1];
		ret[at] = queued[i];
	}
	return size;
}

/* plan NULL: each member goes to its best GPU. */
static bool job_try_round(struct job_model *model, uint32_t leader, const struct job_found *plan,
			  struct job_found *ret)
{
	uint32_t members[JOB_MODEL_JOBS], n = job_round(model, leader, members);

	ret->n = 0;
	for (uint32_t i = 0; i < n; i++) {
		struct place_score scores[PLACE_GPUS_MAX];
		struct place_request request = job_request(model, members[i], leader, ret);
		uint32_t gpu;

		request.gpu = plan ? plan->gpu[i] : request.gpu;
		gpu = place_choose(&model->place, &request, model->now_ns, scores);
		if (gpu == PLACE_NONE)
			break;
		job_add_load(&model->place.gpu[gpu].load, &model->jobs[members[i]].request);
		ret->job[i] = members[i];
		ret->gpu[i] = gpu;
		ret->is_turns[i] = !scores[gpu].is_fit;
		ret->n++;
	}
	job_model_load(model);
	return ret->n == n;
}

/* On a node without other jobs, which is place; GPUs with more of what key counts come first. */
static bool job_plan_round(const struct job_model *model, const struct place *place,
			   uint32_t leader, const uint64_t key[PLACE_GPUS_MAX],
			   struct job_found *ret)
{
	uint32_t members[JOB_MODEL_JOBS], n = job_round(model, leader, members);
	struct place_load loads[PLACE_GPUS_MAX] = {{0}};

	ret->n = 0;
	for (uint32_t i = 0; i < n; i++) {
		struct place_request request = job_request(model, members[i], leader, ret);
		uint32_t best = PLACE_NONE;

		for (uint32_t gpu = 0; gpu < PLACE_GPUS_MAX; gpu++) {
			if (!(request.booked & 1u << gpu) &&
			    place_can_beside(place, gpu, &loads[gpu], &request) &&
			    (best == PLACE_NONE || key[gpu] > key[best]))
				best = gpu;
		}
		if (best == PLACE_NONE)
			return false;
		job_add_load(&loads[best], &model->jobs[members[i]].request);
		ret->job[i] = members[i];
		ret->gpu[i] = best;
		ret->n++;
	}
	return true;
}

static bool job_look_gang(struct job_model *model, uint32_t job, struct job_found *ret)
{
	uint64_t free[PLACE_GPUS_MAX], total[PLACE_GPUS_MAX];
	struct job_found plan;

	if (job_try_round(model, job, NULL, ret))
		return true;
	if (job_has_booked(model, job))
		return false;
	for (uint32_t gpu = 0; gpu < PLACE_GPUS_MAX; gpu++) {
		const struct place_gpu *facts = &model->place.gpu[gpu].facts;
		uint64_t used =
			facts->external + facts->others + model->place.gpu[gpu].load.charged;

		total[gpu] = facts->total;
		free[gpu] = used < facts->total ? facts->total - used : 0;
	}
	if (!job_plan_round(model, &model->place, job, free, &plan) &&
	    !job_plan_round(model, &model->place, job, total, &plan))
		return false;
	if (job_try_round(model, job, &plan, ret))
		return true;
	if (model->now_ns < model->jobs[job].since_ns + model->config.pass_ns)
		return false;
	for (uint32_t i = 0; i < plan.n; i++)
		model->booked[plan.gpu[i]] = job;
	return false;
}

bool job_model_is_stuck(const struct job_model *model, uint32_t job)
{
	static struct job_model alone;
	uint64_t total[PLACE_GPUS_MAX];
	struct job_found plan;
	uint32_t queued[JOB_MODEL_JOBS];

	if (model->jobs[job].state != JOBS_QUEUED || !model->jobs[job].request.gang)
		return false;
	if (job_model_is_lacking(model, job))
		return true;
	alone = *model;
	(void)job_gang_queued(&alone, job, queued);
	if (alone.jobs[queued[0]].request.gang_size > job_gang_queued(&alone, job, queued))
		return false; /* it comes back by itself */
	for (uint32_t i = 0; i < alone.n_slots; i++) {
		if (job_model_is_on(&alone.jobs[i]))
			alone.jobs[i].state = JOBS_DONE;
	}
	for (uint32_t gpu = 0; gpu < PLACE_GPUS_MAX; gpu++) {
		alone.booked[gpu] = JOBS_NONE;
		total[gpu] = alone.place.gpu[gpu].facts.total;
	}
	return !job_plan_round(&alone, &alone.place, queued[0], total, &plan);
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

/* Those that come back, by their ids. */
static bool job_search_firsts(struct job_model *model, struct job_found *ret)
{
	uint32_t n_looked = 0, next;
	uint64_t after = 0;

	do {
		next = JOBS_NONE;
		for (uint32_t i = 0; i < model->n_slots; i++) {
			const struct job_model_job *k = &model->jobs[i];

			if (k->state == JOBS_QUEUED && k->stand == STAND_FIRST && k->id > after &&
			    (next == JOBS_NONE || k->id < model->jobs[next].id))
				next = i;
		}
		if (next == JOBS_NONE || n_looked == JOBS_LOOK_MAX)
			return false;
		after = model->jobs[next].id;
		if (!job_has_open(model, &model->jobs[next].request))
			continue;
		n_looked++;
		model->was_aged[next] = false;
		if (job_look(model, next, ret))
			return true;
	} while (true);
}

static bool job_search_line(struct job_model *model, uint32_t job, bool is_old,
			    struct job_found *ret)
{
	bool is_found = model->jobs[job].stand == STAND_GANG ? job_look_gang(model, job, ret)
							     : job_look(model, job, ret);

	for (uint32_t i = 0; is_found && i < ret->n; i++)
		model->was_aged[ret->job[i]] = is_old;
	return is_found;
}

static bool job_search(struct job_model *model, struct job_found *ret)
{
	static const struct jobs_request any = {.gpu = PLACE_ANY};
	struct job_order old = {0}, all = {0};
	uint32_t n_looked[JOBS_LANES] = {0}, n_old[JOBS_LANES] = {0};

	for (int gpu = 0; gpu < PLACE_GPUS_MAX; gpu++)
		model->booked[gpu] = JOBS_NONE;
	job_model_load(model);
	job_model_stand(model);
	if (!job_has_open(model, &any))
		return false;
	for (uint32_t i = 0; i < model->n_slots; i++) {
		if (!job_is_in_line(&model->jobs[i]))
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
		if (job_search_line(model, old.at[i], true, ret))
			return true;
	}
	if (job_search_firsts(model, ret))
		return true;
	for (uint32_t i = 0; i < all.n; i++) {
		const struct jobs_request *request = &model->jobs[all.at[i]].request;

		if (!job_has_open(model, request) ||
		    n_looked[jobs_lane(request)]++ >= JOBS_LOOK_MAX)
			continue;
		if (job_search_line(model, all.at[i], false, ret))
			return true;
	}
	return false;
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
	job->gang_ns = model->now_ns;
	job->gang_n_new = 0;
	job->gang_ns = job->request.gang ? job_gang_since(model, i) : 0;
	job->gang_n_new = job_gang_n_new(model, i);
	job->n_starts++;
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
	if (job_is_over(model, job))
		return job->queued_ns;
	if (job->state == JOBS_QUEUED && job->stand == STAND_FIRST)
		due_ns = job_gang_since(model, (uint32_t)(job - model->jobs)) +
			 model->config.limit_max_ns;
	if (job_is_counting(job) && job->limit_ns != JOBS_NO_LIMIT) {
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
	if (event->type == JOBS_EVENT_ADOPT) {
		job_start(model, event->job, event->gpu);
		job->gang_ns = event->since_ns;
	}
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
	case JOBS_EVENT_TRIED:
		model->jobs[event->job].n_starts++;
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

/* Whether a job has ended in the queue. */
static bool job_timers(struct job_model *model, const struct jobs_actions *actions, uint32_t *n)
{
	bool has_ended = false;
	uint64_t due_ns;
	uint32_t i;

	while (*n < JOBS_ACTIONS_MAX && (i = job_next_due(model, &due_ns)) != JOBS_NONE &&
	       due_ns <= model->now_ns) {
		struct job_model_job *job = &model->jobs[i];

		if (job->state == JOBS_RESTING) {
			job->state = JOBS_QUEUED;
			job->end = JOBS_END_NOT;
			job->queued_ns = model->now_ns;
			job_model_stand(model); /* where it stood before counts no more */
		} else if (job_is_over(model, job)) {
			job->state = JOBS_DONE;
			job->end = JOBS_END_FAILED;
			job_expect(actions, n, JOBS_ACTION_DONE, i, JOBS_END_FAILED);
			has_ended = true;
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
	return has_ended;
}

/* It has started by itself: if it never ran before, it has another's seat. */
static void job_replace(struct job_model *model, uint32_t job)
{
	uint32_t n_new = job_gang_n_new(model, job) + 1;

	for (uint32_t i = 0; i < model->n_slots && model->jobs[job].n_starts == 1; i++) {
		if (job_model_is_on(&model->jobs[i]) &&
		    job_are_mates(&model->jobs[i], &model->jobs[job]))
			model->jobs[i].gang_n_new = n_new;
	}
}

/* false: there was not room for the actions of all that can start. */
static bool job_starts(struct job_model *model, const struct jobs_actions *actions, uint32_t *n)
{
	struct job_found found;

	while (job_search(model, &found)) {
		if (found.n > JOBS_ACTIONS_MAX - *n)
			return false;
		for (uint32_t i = 0; i < found.n; i++) {
			uint32_t job = found.job[i];

			job_expect(actions, n, JOBS_ACTION_START, job, JOBS_END_NOT);
			assert(actions->at[*n - 1].gpu == found.gpu[i]);
			assert(actions->at[*n - 1].is_turns == found.is_turns[i]);
			model->jobs[job].is_turns = found.is_turns[i];
			job_start(model, job, found.gpu[i]);
			if (model->was_aged[job])
				model->aged_ns[model->jobs[job].owner] = model->now_ns;
		}
		if (found.n == 1)
			job_replace(model, found.job[0]);
	}
	return true;
}

/* Before the step took place in the model: a gang of which nothing runs starts whole, or not. */
static void job_check_gangs(const struct job_model *model, const struct jobs_actions *actions)
{
	for (uint32_t i = 0; i < actions->n; i++) {
		uint32_t job = actions->at[i].job, n = 0;

		if (actions->at[i].type != JOBS_ACTION_START || !model->jobs[job].request.gang)
			continue;
		for (uint32_t k = 0; k < actions->n; k++)
			n += actions->at[k].type == JOBS_ACTION_START &&
			     job_are_mates(&model->jobs[actions->at[k].job], &model->jobs[job]);
		assert(job_gang_n_on(model, job) > 0 ||
		       n % model->jobs[job].request.gang_size == 0);
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
	bool is_whole = true;
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
		is_changed |= job_model_moves(model);
		is_changed |= job_timers(model, actions, &n);
		is_changed |= job_model_moves(model);
		job_check_gangs(model, actions);
		job_model_see(model, &after);
		if (is_changed || memcmp(&before, &after, sizeof(before)) != 0)
			is_whole = job_starts(model, actions, &n);
	}
	assert(n == actions->n);
	job_model_compare(model, jobs, n == JOBS_ACTIONS_MAX || !is_whole);
}
