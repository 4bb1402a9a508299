/* SPDX-License-Identifier: Apache-2.0 */
#include "core/jobs/jobs_gang.h"

#include "core/jobs/jobs_load.h"
#include "core/jobs/jobs_queue.h"
#include "core/u64.h"

/* The values that decide where the members of a gang stand. */
struct gang_count {
	uint32_t first; /* slot of the first member; TREE_NONE: there is none */
	uint32_t size, n, n_queued, n_resting, n_on;
	uint32_t n_new;    /* started for the first time, in others' seats, since gang_ns */
	uint64_t gang_ns;  /* since then it runs; without started members UINT64_MAX */
	uint64_t whole_ns; /* since then the first round is whole, if it is */
};

static struct tree_key gang_key(uint32_t owner_number, uint64_t gang, uint64_t id)
{
	return (struct tree_key){owner_number, gang, id};
}

/* The member behind job, which is one; TREE_NONE: job is the last. */
static uint32_t gang_next(const struct jobs *jobs, uint32_t job)
{
	const struct job *j = &jobs->slots[job], *k;
	uint32_t next = tree_next(jobs_nodes(jobs, JOB_NODE_GANG), job);

	if (next == TREE_NONE)
		return TREE_NONE;
	k = &jobs->slots[next];
	return k->owner_number == j->owner_number && k->request.gang == j->request.gang ? next
											: TREE_NONE;
}

static uint32_t gang_first(const struct jobs *jobs, uint32_t owner_number, uint64_t gang)
{
	struct tree_slots gangs = jobs_nodes(jobs, JOB_NODE_GANG);
	uint32_t at = tree_n_below(gangs, jobs->gangs, gang_key(owner_number, gang, 0));
	uint32_t job = tree_at(gangs, jobs->gangs, at);

	if (job == TREE_NONE || jobs->slots[job].owner_number != owner_number ||
	    jobs->slots[job].request.gang != gang)
		return TREE_NONE;
	return job;
}

static struct gang_count gang_count(const struct jobs *jobs, uint32_t owner_number, uint64_t gang)
{
	struct gang_count c = {
		.first = gang_first(jobs, owner_number, gang),
		.gang_ns = UINT64_MAX,
	};

	if (c.first == TREE_NONE)
		return c;
	c.size = jobs->slots[c.first].request.gang_size;
	for (uint32_t i = c.first; i != TREE_NONE; i = gang_next(jobs, i)) {
		const struct job *j = &jobs->slots[i];

		c.n++;
		if (j->state == JOBS_QUEUED && c.n_queued++ < c.size)
			c.whole_ns = u64_max(c.whole_ns, j->queued_ns);
		c.n_resting += j->state == JOBS_RESTING;
		if (jobs_is_on(j)) {
			c.n_on++;
			c.gang_ns = u64_min(c.gang_ns, j->gang_ns);
			c.n_new = u64_max(c.n_new, j->gang_n_new);
		}
	}
	return c;
}

static struct gang_count gang_count_of(const struct jobs *jobs, uint32_t job)
{
	return gang_count(jobs, jobs->slots[job].owner_number, jobs->slots[job].request.gang);
}

void jobs_members(const struct jobs *jobs, uint32_t job, uint32_t *ret_n, uint32_t *ret_n_on)
{
	struct gang_count c = {0};

	if (jobs->slots[job].request.gang)
		c = gang_count_of(jobs, job);
	*ret_n = c.n;
	*ret_n_on = c.n_on;
}

/* So many of those that wait come back to the gang that runs. */
static uint32_t gang_n_back(const struct gang_count *c)
{
	bool is_short = c->n_on > 0 && c->n_on < c->size && c->n_queued < c->size;

	return is_short ? (uint32_t)u64_min(c->size - c->n_on, c->n_queued) : 0;
}

uint32_t jobs_gang_together(const struct jobs *jobs, uint32_t job)
{
	struct gang_count c = gang_count_of(jobs, job);
	uint32_t n = c.n_on + gang_n_back(&c);

	return n + (uint32_t)u64_min(u64_excess(c.size, n), c.n_resting);
}

/*
 * A retry only takes its own seat again. Newcomers might be as many as their user likes, and much
 * larger than those before them, so the whole queue lets only gang_size of them pass.
 */
static bool gang_goes_first(const struct gang_count *c, const struct job *j)
{
	return j->n_starts > 0 || c->n_new < c->size;
}

/*
 * It has run, and too few are left to start with it. Nobody has to come, so it might wait for ever.
 */
static bool gang_is_over(const struct gang_count *c, const struct job *j)
{
	return j->n_starts > 0 && c->n_on == 0 && c->n < c->size;
}

bool jobs_gang_is_over(const struct jobs *jobs, uint32_t job)
{
	struct gang_count c = gang_count_of(jobs, job);

	return gang_is_over(&c, &jobs->slots[job]);
}

/* The queued member that has rank queued ones before it. */
static struct jobs_standing gang_stand(const struct jobs *jobs, const struct gang_count *c,
				       const struct job *j, uint32_t rank)
{
	struct jobs_standing s = {STAND_NOT, j->queued_ns, JOBS_NO_DEADLINE};

	if (gang_is_over(c, j)) {
		s.until_ns = j->queued_ns; /* at once */
	} else if (rank < gang_n_back(c)) {
		uint64_t until_ns = c->gang_ns + jobs->config.limit_max_ns;

		s.stand = STAND_LINE;
		if (jobs->now_ns < until_ns && gang_goes_first(c, j)) {
			s.stand = STAND_FIRST;
			s.until_ns = until_ns;
		}
	} else if (rank == 0 && c->n_queued >= c->size) {
		s.stand = STAND_GANG;
		s.since_ns = c->whole_ns;
	}
	return s;
}

static uint32_t gang_rank(const struct jobs *jobs, const struct gang_count *c, uint32_t job)
{
	uint32_t rank = 0;

	for (uint32_t i = c->first; i != job; i = gang_next(jobs, i))
		rank += jobs->slots[i].state == JOBS_QUEUED;
	return rank;
}

struct jobs_standing jobs_gang_stand(const struct jobs *jobs, uint32_t job)
{
	struct gang_count c = gang_count_of(jobs, job);

	return gang_stand(jobs, &c, &jobs->slots[job], gang_rank(jobs, &c, job));
}

static void gang_move(struct jobs *jobs, uint32_t job, const struct jobs_standing *s)
{
	struct job *j = &jobs->slots[job];

	if (j->due_ns != s->until_ns) {
		j->due_ns = s->until_ns;
		jobs_timer_set(jobs, job);
	}
	if (s->stand == j->stand && s->since_ns == j->stand_ns)
		return;
	jobs_queue_stand(jobs, job, s->stand, s->since_ns);
	jobs->is_changed = true;
}

static void gang_settle(struct jobs *jobs, const struct gang_count *c)
{
	uint32_t rank = 0;

	for (uint32_t i = c->first; i != TREE_NONE; i = gang_next(jobs, i)) {
		struct jobs_standing s;

		if (jobs->slots[i].state != JOBS_QUEUED)
			continue;
		s = gang_stand(jobs, c, &jobs->slots[i], rank++);
		gang_move(jobs, i, &s);
	}
}

void jobs_gang_settle(struct jobs *jobs, uint32_t job)
{
	struct gang_count c;

	if (!jobs->slots[job].request.gang)
		return;
	c = gang_count_of(jobs, job);
	gang_settle(jobs, &c);
}

void jobs_gang_settle_all(struct jobs *jobs)
{
	struct tree_slots gangs = jobs_nodes(jobs, JOB_NODE_GANG);
	uint32_t n = 0, job;

	while ((job = tree_at(gangs, jobs->gangs, n)) != TREE_NONE) {
		struct gang_count c = gang_count_of(jobs, job);

		gang_settle(jobs, &c);
		n += c.n;
	}
}

void jobs_gang_join(struct jobs *jobs, uint32_t job)
{
	const struct job *j = &jobs->slots[job];

	if (j->request.gang)
		tree_insert(jobs_nodes(jobs, JOB_NODE_GANG), &jobs->gangs, job,
			    gang_key(j->owner_number, j->request.gang, j->id));
}

void jobs_gang_leave(struct jobs *jobs, uint32_t job)
{
	tree_remove(jobs_nodes(jobs, JOB_NODE_GANG), &jobs->gangs, job);
}

void jobs_gang_begin(struct jobs *jobs, uint32_t job)
{
	struct job *j = &jobs->slots[job];
	struct gang_count c;

	/* Of one that comes back, the gang's start counts. Those of a round start at the same time.
	 */
	j->gang_ns = jobs->now_ns;
	j->gang_n_new = 0;
	c = gang_count_of(jobs, job);
	j->gang_ns = c.gang_ns;
	j->gang_n_new = c.n_new;
}

void jobs_gang_replace(struct jobs *jobs, uint32_t job)
{
	struct gang_count c;

	if (!jobs->slots[job].request.gang || jobs->slots[job].n_starts > 1)
		return;
	c = gang_count_of(jobs, job);
	for (uint32_t i = c.first; i != TREE_NONE; i = gang_next(jobs, i)) {
		if (jobs_is_on(&jobs->slots[i]))
			jobs->slots[i].gang_n_new = c.n_new + 1;
	}
}

/* So many queued members stand before the round of the one at rank. Rounds follow one another. */
static uint32_t gang_n_before(const struct gang_count *c, uint32_t rank)
{
	uint32_t n_back = gang_n_back(c);

	return n_back + (rank - n_back) / c->size * c->size;
}

/* The queued members of one round; those that are to come need nothing but a place. */
static bool gang_can_round(const struct jobs *jobs, const struct gang_count *c, uint32_t n_before,
			   const struct jobs_request *newcomer)
{
	static const struct jobs_request any = {.need = 1, .gpu = PLACE_ANY};
	struct jobs_round round = {.n = 0};
	uint32_t rank = 0;

	for (uint32_t i = c->first; i != TREE_NONE && round.n < c->size; i = gang_next(jobs, i)) {
		if (jobs->slots[i].state == JOBS_QUEUED && rank++ >= n_before)
			jobs_round_add(&round, i, &jobs->slots[i].request);
	}
	if (newcomer)
		jobs_round_add(&round, JOBS_NONE, newcomer);
	while (round.n < c->size)
		jobs_round_add(&round, JOBS_NONE, &any);
	return jobs_gang_can_ever(jobs, &round);
}

bool jobs_gang_is_in_round(const struct jobs *jobs, uint32_t job, uint32_t *ret_n_missing,
			   bool *ret_is_never)
{
	struct gang_count c = gang_count_of(jobs, job);
	uint32_t rank = gang_rank(jobs, &c, job), n_before;

	if (rank < gang_n_back(&c))
		return false;
	/* The last round may lack members. */
	n_before = gang_n_before(&c, rank);
	*ret_n_missing = (uint32_t)u64_excess(c.size, c.n_queued - n_before);
	*ret_is_never = !gang_can_round(jobs, &c, n_before, NULL);
	return true;
}

void jobs_gang_round(const struct jobs *jobs, uint32_t job, struct jobs_round *ret)
{
	uint32_t size = jobs->slots[job].request.gang_size;

	ret->n = 0;
	for (uint32_t i = job; i != TREE_NONE && ret->n < size; i = gang_next(jobs, i)) {
		if (jobs->slots[i].state == JOBS_QUEUED)
			jobs_round_add(ret, i, &jobs->slots[i].request);
	}
}

int jobs_gang_check(const struct jobs *jobs, const struct jobs_event *event)
{
	const struct jobs_request *r = &event->request;
	struct gang_count c;
	uint32_t rank;

	if (!r->gang)
		return 0;
	c = gang_count(jobs, event->owner, r->gang);
	if (c.n > 0 && c.size != r->gang_size)
		return JOBS_E_GANG_SIZE;
	if (c.n >= JOBS_GANG_OPEN_MAX)
		return JOBS_E_GANG_FULL;
	/* As if it was queued. */
	c.size = r->gang_size;
	rank = c.n_queued++;
	/* Those whose seat it takes have had places together. */
	if (rank < gang_n_back(&c))
		return 0;
	return gang_can_round(jobs, &c, gang_n_before(&c, rank), r) ? 0 : JOBS_E_GANG_NEVER;
}
