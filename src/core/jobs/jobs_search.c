/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The search goes through the queue in its order, and stops at the first job that can start. The
 * jobs that may be next are kept in a heap: of each lane the next front, and of each owner and lane
 * the successor of the job that was looked at last.
 */

#include "core/jobs/jobs_search.h"

#include "core/jobs/jobs_gang.h"
#include "core/jobs/jobs_load.h"
#include "core/jobs/jobs_queue.h"

#include <assert.h>
#include <string.h>

/* A job that may be next. */
struct search_next {
	struct tree_key key;
	uint64_t id;
	uint32_t job, line;
	uint32_t n_before; /* of its owner's, in its lane; members of gangs count each */
	bool is_old;       /* it goes first for its age */
};

/*
 * Each job that was looked at is replaced by two at the most: its successor, and the next front. An
 * old one is replaced by the next old one.
 */
#define SEARCH_MAX (JOBS_LANES * (JOBS_LOOK_MAX + 2))

struct search {
	struct jobs *jobs;
	uint32_t open;                    /* GPUs where a job may start */
	uint32_t n_looked[JOBS_LANES][2]; /* not old, old */
	uint32_t n_members[JOBS_LANES][2];
	uint32_t n;
	struct search_next heap[SEARCH_MAX];
};

static bool search_is_before(const struct search_next *a, const struct search_next *b)
{
	if (tree_key_is_below(a->key, b->key))
		return true;
	return !tree_key_is_below(b->key, a->key) && a->id < b->id;
}

static void search_push(struct search *s, const struct search_next *next)
{
	uint32_t at = s->n++;

	assert(s->n <= SEARCH_MAX);
	for (uint32_t up; at > 0 && search_is_before(next, &s->heap[up = (at - 1) / 2]); at = up)
		s->heap[at] = s->heap[up];
	s->heap[at] = *next;
}

static struct search_next search_pop(struct search *s)
{
	struct search_next first = s->heap[0], last = s->heap[--s->n];
	uint32_t at = 0, below;

	while ((below = at * 2 + 1) < s->n) {
		if (below + 1 < s->n && search_is_before(&s->heap[below + 1], &s->heap[below]))
			below++;
		if (!search_is_before(&s->heap[below], &last))
			break;
		s->heap[at] = s->heap[below];
		at = below;
	}
	s->heap[at] = last;
	return first;
}

static void search_push_job(struct search *s, uint32_t job, uint32_t line, uint32_t n_before)
{
	search_push(s, &(struct search_next){
			       .key = jobs_front_key(s->jobs, job, n_before),
			       .id = s->jobs->slots[job].id,
			       .job = job,
			       .line = line,
			       .n_before = n_before,
		       });
}

static void search_push_front(struct search *s, uint32_t line)
{
	struct tree_slots owned = jobs_nodes(s->jobs, JOB_NODE_OWNED);

	if (line != TREE_NONE)
		search_push_job(s, tree_first(owned, s->jobs->slots[line].its_line.owned), line, 0);
}

/* A line's oldest job, if it is old enough; it stands before all that are not. */
static void search_push_old(struct search *s, uint32_t line)
{
	const struct jobs_line *l;
	uint32_t job;

	if (line == TREE_NONE)
		return;
	l = &s->jobs->slots[line].its_line;
	if (s->jobs->now_ns - l->oldest.key.first < s->jobs->config.age_ns)
		return;
	job = tree_first(jobs_nodes(s->jobs, JOB_NODE_OLD), l->old);
	search_push(s, &(struct search_next){
			       .key = {0, l->oldest.key.first, 0},
			       .id = s->jobs->slots[job].id,
			       .job = job,
			       .line = line,
			       .is_old = true,
		       });
}

static void search_push_after(struct search *s, const struct search_next *looked)
{
	uint32_t next;

	if (looked->is_old) {
		search_push_old(s, tree_next(jobs_oldest(s->jobs), looked->line));
		return;
	}
	next = tree_next(jobs_nodes(s->jobs, JOB_NODE_OWNED), looked->job);

	if (next != TREE_NONE)
		search_push_job(s, next, looked->line,
				looked->n_before + jobs_look_cost(&s->jobs->slots[looked->job]));
	if (looked->n_before == 0)
		search_push_front(s, tree_next(jobs_fronts(s->jobs), looked->line));
}

/* The GPUs where some job might start, as far as no job's request matters. */
static uint32_t search_open(const struct jobs *jobs)
{
	const struct place_config *c = &jobs->config.place;
	uint32_t open = 0;

	for (uint32_t gpu = 0; gpu < PLACE_GPUS_MAX; gpu++) {
		const struct place_gpu *facts = &jobs->place.gpu[gpu].facts;
		uint32_t n_on = facts->n_others + jobs->place.gpu[gpu].load.n_jobs;

		if (facts->is_known && !facts->is_out &&
		    (facts->degree == 0 || n_on < facts->degree))
			open |= 1u << gpu;
	}
	return open & c->allowed & ~c->reserved;
}

struct place_request jobs_search_request(const struct jobs *jobs,
					 const struct jobs_request *request, uint32_t job)
{
	struct place_request r = {
		.need = request->need,
		.model = request->model,
		.gpu = request->gpu,
		.apart = jobs_load_apart(jobs, request->apart),
		.is_whole = request->is_whole,
	};

	for (uint32_t gpu = 0; gpu < PLACE_GPUS_MAX; gpu++) {
		if (jobs->booked[gpu] != JOBS_NONE && jobs->booked[gpu] != job)
			r.booked |= 1u << gpu;
	}
	return r;
}

uint32_t jobs_search_place(const struct jobs *jobs, const struct jobs_request *request,
			   uint32_t job, uint64_t now_ns,
			   struct place_score ret_scores[PLACE_GPUS_MAX])
{
	struct place_request r = jobs_search_request(jobs, request, job);

	r.is_explained = true;
	return place_choose(&jobs->place, &r, now_ns, ret_scores);
}

/*
 * Keeps a GPU for a job that has let others pass for long enough: the one with the most free bytes,
 * of those where it can start once the jobs there have ended. Nobody begins there meanwhile, so
 * the free bytes only grow, and a later search that prefers another GPU prefers one with more.
 */
static void search_book(struct search *s, uint32_t job, const struct place_request *request,
			const struct place_score scores[PLACE_GPUS_MAX])
{
	struct jobs *jobs = s->jobs;
	uint32_t best = PLACE_NONE;

	if (jobs->now_ns - jobs->slots[job].stand_ns < jobs->config.pass_ns)
		return;
	for (uint32_t gpu = 0; gpu < PLACE_GPUS_MAX; gpu++) {
		/* It was looked at as its owner's oldest one. */
		if (jobs->booked[gpu] == job)
			return;
		/* It waits there for a job of its own owner, and others need not. */
		if (request->apart & 1u << gpu)
			continue;
		if (jobs->booked[gpu] == JOBS_NONE && place_can_empty(&jobs->place, gpu, request) &&
		    (best == PLACE_NONE || scores[gpu].free > scores[best].free))
			best = gpu;
	}
	if (best == PLACE_NONE)
		return;
	jobs->booked[best] = job;
	s->open &= ~(1u << best);
}

static bool search_look_gang(struct search *s, uint32_t job, struct jobs_found *ret_found)
{
	uint32_t booked;
	bool is_found = jobs_gang_look(s->jobs, job, ret_found, &booked);

	s->open &= ~booked;
	return is_found;
}

/* Can job start by itself? If not, it may book a GPU. */
static bool search_look_job(struct search *s, uint32_t job, struct jobs_found *ret_found)
{
	struct jobs *jobs = s->jobs;
	struct place_request r = jobs_search_request(jobs, &jobs->slots[job].request, job);
	struct place_score scores[PLACE_GPUS_MAX];
	uint32_t gpu = place_choose(&jobs->place, &r, jobs->now_ns, scores);

	if (gpu == PLACE_NONE) {
		search_book(s, job, &r, scores);
		return false;
	}
	ret_found->n = 1;
	ret_found->at[0] = (struct jobs_start){job, gpu, !scores[gpu].is_fit};
	return true;
}

/* Not twice: what was in vain is in vain for the rest of this search. */
static bool search_look(struct search *s, uint32_t job, struct jobs_found *ret_found)
{
	struct job *j = &s->jobs->slots[job];

	if (j->n_looked == s->jobs->n_searches)
		return false;
	j->n_looked = s->jobs->n_searches;
	return j->stand == STAND_GANG ? search_look_gang(s, job, ret_found)
				      : search_look_job(s, job, ret_found);
}

/* A lane's gangs that cannot start must cost no more than its jobs, and hide none of them. */
static bool search_is_too_much(struct search *s, uint32_t lane, const struct search_next *next)
{
	const struct job *j = &s->jobs->slots[next->job];
	uint32_t *n_members = &s->n_members[lane][next->is_old];

	if (j->stand != STAND_GANG || j->n_looked == s->jobs->n_searches)
		return false;
	if (*n_members >= JOBS_GANG_LOOK_MAX)
		return true;
	*n_members += jobs_look_cost(j);
	return false;
}

static bool search_is_open(const struct search *s, uint32_t lane)
{
	uint32_t gpu = jobs_lane_gpu(lane);

	return gpu == PLACE_ANY ? s->open != 0 : s->open >> gpu & 1;
}

/* Those that come back to their gangs. Only old jobs have booked a GPU yet. */
static bool search_firsts(struct search *s, struct jobs_found *ret_found)
{
	struct tree_slots firsts = jobs_nodes(s->jobs, JOB_NODE_FIRST);
	uint32_t n_looked = 0;

	for (uint32_t job = tree_first(firsts, s->jobs->firsts);
	     job != TREE_NONE && n_looked < JOBS_LOOK_MAX; job = tree_next(firsts, job)) {
		if (!search_is_open(s, jobs_lane(&s->jobs->slots[job].request)))
			continue;
		if (search_look(s, job, ret_found))
			return true;
		n_looked++;
	}
	return false;
}

/* Looks at all that may be next. */
static bool search_run(struct search *s, struct jobs_found *ret_found)
{
	const struct jobs *jobs = s->jobs;

	while (s->n > 0) {
		struct search_next next = search_pop(s);
		uint32_t lane = jobs->slots[next.line].its_line.lane;

		if (!search_is_open(s, lane) || s->n_looked[lane][next.is_old]++ >= JOBS_LOOK_MAX)
			continue;
		if (!search_is_too_much(s, lane, &next) && search_look(s, next.job, ret_found)) {
			ret_found->is_aged = next.is_old;
			return true;
		}
		search_push_after(s, &next);
	}
	return false;
}

static bool search_old(struct search *s, struct jobs_found *ret_found)
{
	const struct jobs *jobs = s->jobs;

	for (uint32_t lane = 0; lane < JOBS_LANES; lane++) {
		if (search_is_open(s, lane))
			search_push_old(s, tree_first(jobs_oldest(jobs), jobs->oldest[lane]));
	}
	return search_run(s, ret_found);
}

static bool search_fronts(struct search *s, struct jobs_found *ret_found)
{
	const struct jobs *jobs = s->jobs;

	for (uint32_t lane = 0; lane < JOBS_LANES; lane++) {
		if (search_is_open(s, lane))
			search_push_front(s, tree_first(jobs_fronts(jobs), jobs->fronts[lane]));
	}
	return search_run(s, ret_found);
}

bool jobs_search(struct jobs *jobs, struct jobs_found *ret_found)
{
	struct search s;

	s.jobs = jobs;
	s.open = search_open(jobs);
	s.n = 0;
	jobs->n_searches++;
	memset(s.n_looked, 0, sizeof(s.n_looked));
	memset(s.n_members, 0, sizeof(s.n_members));
	for (uint32_t gpu = 0; gpu < PLACE_GPUS_MAX; gpu++)
		jobs->booked[gpu] = JOBS_NONE;
	ret_found->is_aged = false;
	return search_old(&s, ret_found) || search_firsts(&s, ret_found) ||
	       search_fronts(&s, ret_found);
}
