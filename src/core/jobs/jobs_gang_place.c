/* SPDX-License-Identifier: Apache-2.0 */

/* Places for all members of a round, or for none. The members are placed one after the other. */

#include "core/jobs/jobs_gang.h"

#include "core/jobs/jobs_load.h"

#include <string.h>

/* A score's value by which GPUs are tried in turn. */
enum round_order { ROUND_BY_FREE, ROUND_BY_TOTAL };

/* Where a plan may place members, and which bytes and places are taken there already. */
struct round_node {
	const struct place *place;
	const struct jobs *jobs; /* NULL: the jobs that run do not count */
	uint32_t closed;         /* mask of GPUs that others have booked */
	uint32_t order[PLACE_GPUS_MAX];
};

static bool round_goes_before(const struct jobs_request *a, const struct jobs_request *b)
{
	bool is_a_named = a->gpu != PLACE_ANY, is_b_named = b->gpu != PLACE_ANY;

	if (is_a_named != is_b_named)
		return is_a_named;
	return a->need > b->need;
}

void jobs_round_add(struct jobs_round *round, uint32_t job, const struct jobs_request *request)
{
	uint32_t at = round->n++;

	for (; at > 0 && round_goes_before(request, round->request[at - 1]); at--) {
		round->job[at] = round->job[at - 1];
		round->request[at] = round->request[at - 1];
	}
	round->job[at] = job;
	round->request[at] = request;
}

/* Members before the one at index keep it away from these GPUs. */
static uint32_t round_apart(const struct jobs_round *round, const uint32_t *gpus, uint32_t index)
{
	uint64_t apart = round->request[index]->apart;
	uint32_t mask = 0;

	for (uint32_t i = 0; i < index && apart; i++) {
		if (round->request[i]->apart == apart)
			mask |= 1u << gpus[i];
	}
	return mask;
}

static void round_load(struct place_load *load, const struct jobs_request *request)
{
	load->n_jobs++;
	load->charged += request->need;
	load->critical += request->is_critical ? request->need : 0;
}

/* ---- now ------------------------------------------------------------------------ */

/* is_planned: each on the GPU of the plan; else on the best one. */
static bool round_try(struct jobs *jobs, uint32_t job, const struct jobs_round *round,
		      bool is_planned, struct jobs_found *ret_found)
{
	uint32_t gpus[JOBS_GANG_MAX];
	struct place_load loads[PLACE_GPUS_MAX];
	uint32_t n = 0;

	for (uint32_t gpu = 0; gpu < PLACE_GPUS_MAX; gpu++)
		loads[gpu] = jobs->place.gpu[gpu].load;
	for (; n < round->n; n++) {
		struct place_score scores[PLACE_GPUS_MAX];
		struct place_request r = jobs_search_request(jobs, round->request[n], job);

		r.apart |= round_apart(round, gpus, n);
		if (is_planned)
			r.gpu = round->gpu[n];
		gpus[n] = place_choose(&jobs->place, &r, jobs->now_ns, scores);
		if (gpus[n] == PLACE_NONE)
			break;
		round_load(&jobs->place.gpu[gpus[n]].load, round->request[n]);
		ret_found->at[n] =
			(struct jobs_start){round->job[n], gpus[n], !scores[gpus[n]].is_fit};
	}
	/* The actions begin them. */
	for (uint32_t gpu = 0; gpu < PLACE_GPUS_MAX; gpu++)
		jobs->place.gpu[gpu].load = loads[gpu];
	ret_found->n = n;
	return n == round->n;
}

/* ---- once the jobs there have ended -------------------------------------------------- */

static bool round_plan(const struct round_node *node, struct jobs_round *round)
{
	struct place_load loads[PLACE_GPUS_MAX];

	memset(loads, 0, sizeof(loads));
	for (uint32_t n = 0; n < round->n; n++) {
		const struct jobs_request *request = round->request[n];
		struct place_request r = {
			.need = request->need,
			.gpu = request->gpu,
			.is_whole = request->is_whole,
			.apart = round_apart(round, round->gpu, n),
		};
		uint32_t i = 0;

		if (node->jobs)
			r.apart |= jobs_load_apart(node->jobs, request->apart);
		while (i < PLACE_GPUS_MAX &&
		       (node->closed >> node->order[i] & 1 ||
			!place_can_beside(node->place, node->order[i], &loads[node->order[i]], &r)))
			i++;
		if (i == PLACE_GPUS_MAX)
			return false;
		round->gpu[n] = node->order[i];
		round_load(&loads[node->order[i]], request);
	}
	return true;
}

static void round_order(struct round_node *node, enum round_order by)
{
	static const struct place_request any = {.need = 1, .gpu = PLACE_ANY};
	struct place_score scores[PLACE_GPUS_MAX];

	(void)place_choose(node->place, &any, 0, scores); /* only bytes count */
	for (uint32_t gpu = 0; gpu < PLACE_GPUS_MAX; gpu++) {
		uint64_t bytes = by == ROUND_BY_FREE ? scores[gpu].free : scores[gpu].total;
		uint32_t at = gpu;

		for (; at > 0; at--) {
			const struct place_score *before = &scores[node->order[at - 1]];

			if (bytes <= (by == ROUND_BY_FREE ? before->free : before->total))
				break;
			node->order[at] = node->order[at - 1];
		}
		node->order[at] = gpu;
	}
}

/*
 * The GPUs with the most free bytes first, as for one job: a booked one only gets more of them. By
 * their sizes the plan is the same as at the submission, which has shown that there is one.
 */
static bool round_plan_any(struct round_node *node, struct jobs_round *round)
{
	round_order(node, ROUND_BY_FREE);
	if (round_plan(node, round))
		return true;
	round_order(node, ROUND_BY_TOTAL);
	return round_plan(node, round);
}

bool jobs_gang_look(struct jobs *jobs, uint32_t job, struct jobs_found *ret_found,
		    uint32_t *ret_booked)
{
	struct round_node node = {.place = &jobs->place, .jobs = jobs};
	struct jobs_round round;

	*ret_booked = 0;
	jobs_gang_round(jobs, job, &round);
	if (round_try(jobs, job, &round, false, ret_found))
		return true;
	for (uint32_t gpu = 0; gpu < PLACE_GPUS_MAX; gpu++) {
		/* It was looked at as its owner's oldest one. */
		if (jobs->booked[gpu] == job)
			return false;
		if (jobs->booked[gpu] != JOBS_NONE)
			node.closed |= 1u << gpu;
	}
	if (!round_plan_any(&node, &round))
		return false;
	if (round_try(jobs, job, &round, true, ret_found))
		return true;
	if (jobs->now_ns - jobs->slots[job].stand_ns < jobs->config.pass_ns)
		return false;
	for (uint32_t i = 0; i < round.n; i++) {
		jobs->booked[round.gpu[i]] = job;
		*ret_booked |= 1u << round.gpu[i];
	}
	return false;
}

bool jobs_gang_can_ever(const struct jobs *jobs, struct jobs_round *round)
{
	struct place alone = jobs->place;
	struct round_node node = {.place = &alone};
	bool is_known = false;

	for (uint32_t gpu = 0; gpu < PLACE_GPUS_MAX; gpu++) {
		struct place_gpu *facts = &alone.gpu[gpu].facts;

		is_known |= facts->is_known;
		facts->is_out = false;
		facts->external = facts->others = facts->critical = 0;
		facts->n_others = 0;
	}
	round_order(&node, ROUND_BY_TOTAL);
	return !is_known || round_plan(&node, round);
}
