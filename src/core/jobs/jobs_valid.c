/* SPDX-License-Identifier: Apache-2.0 */

/* Every invariant. The simulation and the tests check them after each step. */

#include "core/jobs/jobs.h"
#include "core/jobs/jobs_gang.h"
#include "core/jobs/jobs_load.h"
#include "core/jobs/jobs_queue.h"
#include "core/u64.h"

#include <assert.h>

/* Each member of a gang stands where its gang puts it; every other job stands in its lane. */
static void job_stand_assert_valid(const struct jobs *jobs, uint32_t job)
{
	const struct job *j = &jobs->slots[job];
	struct jobs_standing s = {STAND_LINE, j->queued_ns, JOBS_NO_DEADLINE};

	/* There was no room for what is due in this step. */
	if (j->due_ns <= jobs->now_ns)
		return;
	if (j->request.gang)
		s = jobs_gang_stand(jobs, job);
	assert(j->stand == s.stand && j->stand_ns == s.since_ns && j->due_ns == s.until_ns);
}

static void job_assert_valid(const struct jobs *jobs, uint32_t job)
{
	const struct job *j = &jobs->slots[job];
	bool is_queued = j->state == JOBS_QUEUED, is_on = jobs_is_on(j);
	bool is_open = is_queued || is_on || j->state == JOBS_RESTING;
	uint64_t due_ns = jobs_due_ns(j);

	bool is_in_line = j->stand != STAND_NOT;

	assert((j->line != JOBS_NONE) == is_in_line || j->state == JOBS_FREE);
	assert((j->node[JOB_NODE_ALL].n > 0) == is_queued);
	assert((j->node[JOB_NODE_OWNED].n > 0) == is_in_line);
	assert((j->node[JOB_NODE_OLD].n > 0) == is_in_line);
	assert((j->node[JOB_NODE_FIRST].n > 0) == (j->stand == STAND_FIRST));
	assert((j->node[JOB_NODE_GANG].n > 0) == (is_open && j->request.gang > 0));
	if (is_queued)
		job_stand_assert_valid(jobs, job);
	else
		assert(j->stand == STAND_NOT);
	assert((j->node[JOB_NODE_TIMER].n > 0) == (due_ns != JOBS_NO_DEADLINE));
	assert(due_ns == JOBS_NO_DEADLINE || j->node[JOB_NODE_TIMER].key.first == due_ns);
	assert(!is_on || j->gpu < PLACE_GPUS_MAX);
	assert(is_on || (j->charged == 0 && j->footprint == 0 && !j->is_reserved));
	if (j->is_reserved)
		assert(j->charged >= j->request.need &&
		       (j->state == JOBS_STARTED || j->state == JOBS_RUNNING) &&
		       j->reserve_until_ns <= jobs->now_ns + 3600 * 1000000000ull);
	assert(j->state != JOBS_DONE || j->end != JOBS_END_NOT);
	assert(!is_open || j->owner < jobs->n_slots);
	if (is_in_line) {
		const struct jobs_line *line = &jobs->slots[j->line].its_line;

		assert(line->owner == j->owner && line->lane == jobs_lane(&j->request));
	}
}

static void jobs_gpus_assert_valid(const struct jobs *jobs)
{
	struct place_load sums[PLACE_GPUS_MAX] = {{0}};

	for (uint32_t i = 0; i < jobs->n_slots; i++) {
		const struct job *j = &jobs->slots[i];

		if (!jobs_is_on(j))
			continue;
		sums[j->gpu].n_jobs++;
		sums[j->gpu].charged += j->charged;
		if (j->request.is_critical)
			sums[j->gpu].critical += j->charged;
	}
	for (uint32_t gpu = 0; gpu < PLACE_GPUS_MAX; gpu++) {
		const struct place_slot *slot = &jobs->place.gpu[gpu];
		uint32_t booker = jobs->booked[gpu];

		assert(slot->load.n_jobs == sums[gpu].n_jobs);
		assert(slot->load.charged == sums[gpu].charged);
		assert(slot->load.critical == sums[gpu].critical);
		assert(slot->n_models <= PLACE_MODELS_MAX);
		assert(booker == JOBS_NONE || booker < jobs->n_slots);
	}
}

static void jobs_owners_assert_valid(const struct jobs *jobs)
{
	uint32_t n_waiting = 0;

	for (uint32_t slot = 0; slot < jobs->n_slots; slot++) {
		const struct jobs_owner *o = &jobs->slots[slot].its_owner;
		uint32_t n_jobs = 0, n_on = 0, n_queued = 0;

		for (uint32_t i = 0; i < jobs->n_slots && o->n_jobs > 0; i++) {
			const struct job *j = &jobs->slots[i];

			if (j->state == JOBS_FREE || j->owner != slot)
				continue;
			n_jobs++;
			n_on += jobs_is_on(j);
			n_queued += j->state == JOBS_QUEUED;
		}
		assert(o->n_jobs == n_jobs);
		assert(o->n_jobs == 0 || (o->n_on == n_on && o->n_queued == n_queued));
		n_waiting += n_queued > 0;
	}
	assert(jobs->n_waiting == n_waiting);
}

/* Each line stands where its first and its oldest job and its owner put it. */
static uint32_t jobs_lines_assert_valid(const struct jobs *jobs)
{
	struct tree_slots owned = jobs_nodes(jobs, JOB_NODE_OWNED);
	struct tree_slots old = jobs_nodes(jobs, JOB_NODE_OLD);
	uint32_t n_queued = 0;

	for (uint32_t lane = 0; lane < JOBS_LANES; lane++) {
		struct tree_slots fronts = jobs_fronts(jobs);

		assert(tree_assert_valid(fronts, jobs->fronts[lane]) ==
		       tree_assert_valid(jobs_oldest(jobs), jobs->oldest[lane]));
		for (uint32_t slot = tree_first(fronts, jobs->fronts[lane]); slot != TREE_NONE;
		     slot = tree_next(fronts, slot)) {
			const struct jobs_line *line = &jobs->slots[slot].its_line;
			const struct jobs_owner *o = &jobs->slots[line->owner].its_owner;
			uint32_t n = tree_assert_valid(owned, line->owned), first, oldest;
			struct tree_key key;

			assert(line->lane == lane && n > 0);
			assert(tree_assert_valid(old, line->old) == n);
			n_queued += n;
			first = tree_first(owned, line->owned);
			oldest = tree_first(old, line->old);
			key = jobs_front_key(jobs, first, 0);
			assert(!tree_key_is_below(key, line->front.key) &&
			       !tree_key_is_below(line->front.key, key));
			assert(line->oldest.key.first ==
			       u64_max(jobs->slots[oldest].stand_ns, o->aged_ns));
		}
	}
	return n_queued;
}

void jobs_assert_valid(const struct jobs *jobs)
{
	uint32_t n_queued = 0, n_in_line = 0, n_firsts = 0, n_gangs = 0, n_timers = 0;

	for (uint32_t i = 0; i < jobs->n_slots; i++) {
		job_assert_valid(jobs, i);
		n_queued += jobs->slots[i].state == JOBS_QUEUED;
		n_in_line += jobs->slots[i].node[JOB_NODE_OWNED].n > 0;
		n_firsts += jobs->slots[i].node[JOB_NODE_FIRST].n > 0;
		n_gangs += jobs->slots[i].node[JOB_NODE_GANG].n > 0;
		n_timers += jobs->slots[i].node[JOB_NODE_TIMER].n > 0;
	}
	assert(tree_assert_valid(jobs_nodes(jobs, JOB_NODE_ALL), jobs->all) == n_queued);
	assert(jobs_lines_assert_valid(jobs) == n_in_line);
	assert(tree_assert_valid(jobs_nodes(jobs, JOB_NODE_FIRST), jobs->firsts) == n_firsts);
	assert(tree_assert_valid(jobs_nodes(jobs, JOB_NODE_GANG), jobs->gangs) == n_gangs);
	assert(tree_assert_valid(jobs_nodes(jobs, JOB_NODE_TIMER), jobs->timers) == n_timers);
	jobs_gpus_assert_valid(jobs);
	jobs_owners_assert_valid(jobs);
}
