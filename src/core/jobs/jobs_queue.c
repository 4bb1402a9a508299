/* SPDX-License-Identifier: Apache-2.0 */
#include "core/jobs/jobs_queue.h"

#include "core/u64.h"

#include <assert.h>

struct tree_slots jobs_nodes(const struct jobs *jobs, enum job_node kind)
{
	return (struct tree_slots){&jobs->slots[0].node[kind], sizeof(struct job)};
}

struct tree_slots jobs_fronts(const struct jobs *jobs)
{
	return (struct tree_slots){&jobs->slots[0].its_line.front, sizeof(struct job)};
}

struct tree_slots jobs_oldest(const struct jobs *jobs)
{
	return (struct tree_slots){&jobs->slots[0].its_line.oldest, sizeof(struct job)};
}

uint32_t jobs_lane(const struct jobs_request *request)
{
	uint32_t gpu = request->gpu == PLACE_ANY ? PLACE_GPUS_MAX : request->gpu;

	return gpu * 2 + request->is_whole;
}

uint32_t jobs_lane_gpu(uint32_t lane)
{
	return lane / 2 == PLACE_GPUS_MAX ? PLACE_ANY : lane / 2;
}

static struct jobs_owner *jobs_owner_of(const struct jobs *jobs, uint32_t job)
{
	return &jobs->slots[jobs->slots[job].owner].its_owner;
}

/* The slot whose bucket holds what has this hash. */
static uint32_t jobs_hash(const struct jobs *jobs, uint32_t number)
{
	uint32_t x = number * 0x9e3779b1u;

	x ^= x >> 15;
	return x % jobs->n_slots;
}

static uint32_t *jobs_owner_bucket(const struct jobs *jobs, uint32_t number)
{
	return &jobs->slots[jobs_hash(jobs, number)].its_owner.bucket;
}

static uint32_t *jobs_line_bucket(const struct jobs *jobs, uint32_t owner, uint32_t lane)
{
	return &jobs->slots[jobs_hash(jobs, owner * JOBS_LANES + lane)].its_line.bucket;
}

void jobs_queue_init(struct jobs *jobs)
{
	for (uint32_t i = 0; i < jobs->n_slots; i++) {
		uint32_t next = i + 1 < jobs->n_slots ? i + 1 : JOBS_NONE;

		jobs->slots[i].its_line = (struct jobs_line){.next = next, .bucket = JOBS_NONE};
		jobs->slots[i].its_owner = (struct jobs_owner){.next = next, .bucket = JOBS_NONE};
	}
	jobs->free_line = jobs->n_slots > 0 ? 0 : JOBS_NONE;
	jobs->free_owner = jobs->free_line;
}

/* ---- owners ---------------------------------------------------------------- */

void jobs_queue_join(struct jobs *jobs, uint32_t job)
{
	uint32_t number = jobs->config.fair_users ? jobs->slots[job].owner_number : 0;
	uint32_t slot = *jobs_owner_bucket(jobs, number);
	struct jobs_owner *o;

	while (slot != JOBS_NONE && jobs->slots[slot].its_owner.number != number)
		slot = jobs->slots[slot].its_owner.next;
	if (slot == JOBS_NONE) {
		/* There is a slot, as there are no more owners than jobs. */
		slot = jobs->free_owner;
		assert(slot != JOBS_NONE);
		o = &jobs->slots[slot].its_owner;
		jobs->free_owner = o->next;
		/* The bucket in the slot is not this owner's. */
		*o = (struct jobs_owner){
			.number = number,
			.next = *jobs_owner_bucket(jobs, number),
			.bucket = o->bucket,
			.turn = ++jobs->n_turns,
		};
		*jobs_owner_bucket(jobs, number) = slot;
	}
	jobs->slots[job].owner = slot;
	jobs->slots[slot].its_owner.n_jobs++;
}

void jobs_queue_leave(struct jobs *jobs, uint32_t job)
{
	uint32_t slot = jobs->slots[job].owner, *at;
	struct jobs_owner *o = jobs_owner_of(jobs, job);

	jobs->slots[job].owner = JOBS_NONE;
	if (--o->n_jobs > 0)
		return;
	at = jobs_owner_bucket(jobs, o->number);
	while (*at != slot)
		at = &jobs->slots[*at].its_owner.next;
	*at = o->next;
	o->next = jobs->free_owner;
	jobs->free_owner = slot;
}

/* ---- lines ----------------------------------------------------------------- */

static uint32_t jobs_line_find(const struct jobs *jobs, uint32_t owner, uint32_t lane)
{
	uint32_t slot = *jobs_line_bucket(jobs, owner, lane);

	while (slot != JOBS_NONE) {
		const struct jobs_line *line = &jobs->slots[slot].its_line;

		if (line->owner == owner && line->lane == lane)
			break;
		slot = line->next;
	}
	return slot;
}

static uint32_t jobs_line_new(struct jobs *jobs, uint32_t owner, uint32_t lane)
{
	uint32_t slot = jobs->free_line;
	struct jobs_line *line = &jobs->slots[slot].its_line;

	assert(slot != JOBS_NONE);
	jobs->free_line = line->next;
	*line = (struct jobs_line){
		.owner = owner,
		.lane = lane,
		.next = *jobs_line_bucket(jobs, owner, lane),
		.bucket = line->bucket,
		.owned = TREE_NONE,
		.old = TREE_NONE,
	};
	*jobs_line_bucket(jobs, owner, lane) = slot;
	return slot;
}

static void jobs_line_free(struct jobs *jobs, uint32_t slot)
{
	struct jobs_line *line = &jobs->slots[slot].its_line;
	uint32_t *at = jobs_line_bucket(jobs, line->owner, line->lane);

	while (*at != slot)
		at = &jobs->slots[*at].its_line.next;
	*at = line->next;
	line->next = jobs->free_line;
	jobs->free_line = slot;
}

uint32_t jobs_look_cost(const struct job *job)
{
	return job->stand == STAND_GANG ? job->request.gang_size : 1;
}

struct tree_key jobs_front_key(const struct jobs *jobs, uint32_t job, uint32_t n_before)
{
	const struct jobs_owner *o = jobs_owner_of(jobs, job);

	return (struct tree_key){(uint64_t)(JOBS_PRIORITY_MAX + 1 - jobs->slots[job].priority)
						 << 32 |
					 n_before / JOBS_TIER,
				 o->n_on, o->turn};
}

/* The line's jobs, or its owner's account, have changed: its places follow. */
static void jobs_line_move(struct jobs *jobs, uint32_t slot)
{
	struct jobs_line *line = &jobs->slots[slot].its_line;
	struct tree_slots fronts = jobs_fronts(jobs), oldest = jobs_oldest(jobs);
	uint32_t *root = &jobs->fronts[line->lane], front, old;
	uint64_t since_ns;

	tree_remove(fronts, root, slot);
	tree_remove(oldest, &jobs->oldest[line->lane], slot);
	if (line->owned == TREE_NONE)
		return;
	front = tree_first(jobs_nodes(jobs, JOB_NODE_OWNED), line->owned);
	old = tree_first(jobs_nodes(jobs, JOB_NODE_OLD), line->old);
	since_ns = u64_max(jobs->slots[old].stand_ns, jobs_owner_of(jobs, old)->aged_ns);
	tree_insert(fronts, root, slot, jobs_front_key(jobs, front, 0));
	tree_insert(oldest, &jobs->oldest[line->lane], slot,
		    (struct tree_key){since_ns, jobs->slots[old].id, 0});
}

static void jobs_owner_move(struct jobs *jobs, uint32_t owner)
{
	if (jobs->slots[owner].its_owner.n_queued == 0)
		return;
	for (uint32_t lane = 0; lane < JOBS_LANES; lane++) {
		uint32_t slot = jobs_line_find(jobs, owner, lane);

		if (slot != JOBS_NONE)
			jobs_line_move(jobs, slot);
	}
}

/* ---- the queue ------------------------------------------------------------- */

static struct tree_key jobs_priority_key(const struct job *j)
{
	return (struct tree_key){JOBS_PRIORITY_MAX - j->priority, j->id, 0};
}

static void jobs_line_enter(struct jobs *jobs, uint32_t job)
{
	struct job *j = &jobs->slots[job];
	uint32_t lane = jobs_lane(&j->request), slot = jobs_line_find(jobs, j->owner, lane);
	struct jobs_line *line;

	if (slot == JOBS_NONE)
		slot = jobs_line_new(jobs, j->owner, lane);
	line = &jobs->slots[slot].its_line;
	j->line = slot;
	tree_insert(jobs_nodes(jobs, JOB_NODE_OWNED), &line->owned, job, jobs_priority_key(j));
	tree_insert(jobs_nodes(jobs, JOB_NODE_OLD), &line->old, job,
		    (struct tree_key){j->stand_ns, j->id, 0});
	jobs_line_move(jobs, slot);
}

static void jobs_line_exit(struct jobs *jobs, uint32_t job)
{
	struct job *j = &jobs->slots[job];
	uint32_t slot = j->line;
	struct jobs_line *line = &jobs->slots[slot].its_line;

	tree_remove(jobs_nodes(jobs, JOB_NODE_OWNED), &line->owned, job);
	tree_remove(jobs_nodes(jobs, JOB_NODE_OLD), &line->old, job);
	jobs_line_move(jobs, slot);
	if (line->owned == TREE_NONE)
		jobs_line_free(jobs, slot);
	j->line = JOBS_NONE;
}

void jobs_queue_stand(struct jobs *jobs, uint32_t job, enum job_stand stand, uint64_t since_ns)
{
	struct job *j = &jobs->slots[job];
	struct tree_slots firsts = jobs_nodes(jobs, JOB_NODE_FIRST);

	if (j->line != JOBS_NONE)
		jobs_line_exit(jobs, job);
	tree_remove(firsts, &jobs->firsts, job);
	j->stand = stand;
	j->stand_ns = since_ns;
	if (stand != STAND_NOT)
		jobs_line_enter(jobs, job);
	if (stand == STAND_FIRST)
		tree_insert(firsts, &jobs->firsts, job, (struct tree_key){j->id, 0, 0});
}

void jobs_queue_enter(struct jobs *jobs, uint32_t job)
{
	struct job *j = &jobs->slots[job];

	jobs->n_waiting += jobs_owner_of(jobs, job)->n_queued++ == 0;
	tree_insert(jobs_nodes(jobs, JOB_NODE_ALL), &jobs->all, job, jobs_priority_key(j));
	j->stand_ns = j->queued_ns;
	j->due_ns = JOBS_NO_DEADLINE;
	if (!j->request.gang)
		jobs_queue_stand(jobs, job, STAND_LINE, j->queued_ns);
}

void jobs_queue_exit(struct jobs *jobs, uint32_t job)
{
	jobs_queue_stand(jobs, job, STAND_NOT, 0);
	tree_remove(jobs_nodes(jobs, JOB_NODE_ALL), &jobs->all, job);
	jobs->n_waiting -= --jobs_owner_of(jobs, job)->n_queued == 0;
}

void jobs_queue_begin(struct jobs *jobs, uint32_t job, bool is_aged)
{
	struct jobs_owner *o = jobs_owner_of(jobs, job);

	o->n_on++;
	o->turn = ++jobs->n_turns;
	if (is_aged)
		o->aged_ns = jobs->now_ns;
	jobs_owner_move(jobs, jobs->slots[job].owner);
}

void jobs_queue_end(struct jobs *jobs, uint32_t job)
{
	struct jobs_owner *o = jobs_owner_of(jobs, job);

	o->n_on--;
	o->turn = ++jobs->n_turns;
	jobs_owner_move(jobs, jobs->slots[job].owner);
}

uint32_t jobs_position(const struct jobs *jobs, uint32_t job)
{
	const struct job *j = &jobs->slots[job];
	struct tree_slots all = jobs_nodes(jobs, JOB_NODE_ALL);
	struct tree_slots owned = jobs_nodes(jobs, JOB_NODE_OWNED);
	struct tree_key key = j->node[JOB_NODE_ALL].key, level = {key.first, 0, 0};
	uint64_t n_higher = tree_n_below(all, jobs->all, level), n_before;
	uint32_t rank = tree_n_below(all, jobs->all, key) + 1, root;

	if (j->line == JOBS_NONE)
		return rank;
	root = jobs->slots[j->line].its_line.owned;
	n_before = tree_n_below(owned, root, key) - tree_n_below(owned, root, level);
	return (uint32_t)u64_min(rank, n_higher + (n_before + 1) * jobs->n_waiting);
}
