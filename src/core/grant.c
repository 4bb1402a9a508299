/* SPDX-License-Identifier: Apache-2.0 */

#include "core/grant.h"

#include "core/act.h"
#include "core/fit.h"
#include "core/forecast.h"
#include "core/gang/gang.h"
#include "core/notice.h"
#include "core/policy/quantum.h"
#include "core/policy/sleeper.h"
#include "core/queue.h"
#include "core/stop.h"
#include "core/u64.h"

/* The bytes that it wanted are in its budget now, and wanted no more. */
static void grant_settle_wanted(struct sched *sched, uint32_t client)
{
	struct sched_client *c = &sched->clients[client];

	forecast_grown(sched, client, c->memory.wanted + c->memory.wanted_pinned);
	c->promised += c->memory.wanted_pinned;
	c->memory.wanted = 0;
	c->memory.wanted_pinned = 0;
}

void grant_run(struct sched *sched, uint32_t client)
{
	struct sched_client *c = &sched->clients[client];
	uint64_t woke_ns = sched->now_ns - c->since_ns;

	queue_leave(sched, client);
	/* Put back and chosen again for less, it may still be at work within the larger one. */
	if (c->task != SCHED_TASK_RESTORE)
		c->budget = u64_max(c->budget_target, c->budget);
	/* Its budget does not hold this: it asks again, as one that runs. */
	if (c->budget < fit_footprint(c))
		c->memory.wanted_pinned = 0;
	grant_settle_wanted(sched, client);
	c->task = SCHED_TASK_NONE;
	c->has_switched = false;
	c->last_outcome = 0; /* whatever failed before: it is back */
	c->answer_ns = SCHED_NO_DEADLINE;
	c->grant = ++sched->n_grants;
	stop_epoch(c, true);
	sleeper_come_done(sched, client);
	if (!c->is_displaced)
		c->had_ns = 0;
	else if (gang_is_back(sched, client))
		sleeper_pay(sched, client);
	stop_set_state(sched, client, SCHED_CLIENT_RUNNING);
	c->granted_ns = sched->now_ns;
	c->turn_ns = sched->now_ns;
	sched->gpus[c->gpu].still_ns = sched->now_ns;
	fit_change(sched, client);
	act_emit(sched, (struct sched_action){.type = SCHED_ACTION_GRANT,
					      .client = client,
					      .grant = c->grant,
					      .budget = c->budget,
					      .epoch = c->epoch,
					      .woke_ns = woke_ns});
	notice_resume(sched, client);
}

void grant_emit_budget(struct sched *sched, uint32_t client)
{
	const struct sched_client *c = &sched->clients[client];

	act_emit(sched, (struct sched_action){.type = SCHED_ACTION_BUDGET,
					      .client = client,
					      .budget = c->budget,
					      .epoch = c->epoch});
}

void grant_growth(struct sched *sched, uint32_t client)
{
	struct sched_client *c = &sched->clients[client];

	queue_leave(sched, client);
	c->budget = u64_max(c->budget_target, c->budget);
	grant_settle_wanted(sched, client);
	c->is_growing = false;
	/* A client that waited for its turn in order to grow has a whole turn before it: else two
	 * that outgrow the card would stop each other at every allocation. */
	if (c->has_switched) {
		c->turn_ns = sched->now_ns;
		c->had_ns = 0;
	}
	c->has_switched = false;
	sched->gpus[c->gpu].still_ns = sched->now_ns;
	stop_epoch(c, true);
	fit_change(sched, client);
	grant_emit_budget(sched, client);
}

static void grant_start_restore(struct sched *sched, uint32_t client, uint64_t budget)
{
	struct sched_client *c = &sched->clients[client];

	/* Put back and chosen again, it may still be at work within an earlier, larger one. */
	c->budget = u64_max(budget, c->budget);
	c->task = SCHED_TASK_RESTORE;
	c->answer_ns = sched->now_ns + quantum_answer(sched, c->gpu, c->memory.swapped);
	stop_epoch(c, false);
	sched->gpus[c->gpu].restoring = client;
	fit_change(sched, client);
	grant_emit_budget(sched, client);
}

/* It has all that it is to get, or can have it now. */
bool grant_is_whole(const struct sched_client *c)
{
	return c->is_ready || (c->task == SCHED_TASK_RESTORE && fit_allowed(c) >= c->budget_target);
}

/*
 * No more have a grant than may be on the GPU, even while some of them stop. While more have been
 * chosen than that, the place that is free belongs to one who came before. A GPU that is out gives
 * no grants.
 */
bool grant_is_barred(const struct sched *sched, uint32_t client)
{
	const struct sched_client *c = &sched->clients[client];

	const struct sched_gpu *g = &sched->gpus[c->gpu];
	uint32_t degree = fit_degree(sched, c->gpu);

	return g->is_out || g->sums.n_on > degree ||
	       g->sums.n_holding - c->counted.n_holding >= degree;
}

bool grant_restored_part(struct sched *sched, uint32_t client)
{
	struct sched_client *c = &sched->clients[client];

	c->task = SCHED_TASK_NONE;
	c->answer_ns = SCHED_NO_DEADLINE;
	sched->gpus[c->gpu].restoring = SCHED_NONE;
	fit_set_target(sched, client);
	fit_change(sched, client);
	return fit_allowed(c) < c->budget_target;
}

/*
 * Its budget does not hold what it has come to want since: to let it run without would be to stop
 * somebody for nothing.
 */
static bool grant_has_all(const struct sched *sched, uint32_t client)
{
	const struct sched_client *c = &sched->clients[client];

	return grant_is_whole(c) && fit_allowed(c) >= fit_budget_target(sched, client);
}

/* client, which comes, has what it needs. It runs when all of its gang have that. */
static void grant_ready(struct sched *sched, uint32_t client)
{
	struct sched_client *c = &sched->clients[client];

	if (c->task == SCHED_TASK_RESTORE) {
		c->task = SCHED_TASK_NONE;
		c->answer_ns = SCHED_NO_DEADLINE;
		sched->gpus[c->gpu].restoring = SCHED_NONE;
	}
	c->kept_budget = c->budget;
	c->budget = u64_max(c->budget_target, c->budget);
	c->is_ready = true;
	c->ready_until_ns = sched->now_ns + gang_patience_ns(sched, client);
	fit_change(sched, client);
}

void grant_unready(struct sched_client *c)
{
	if (!c->is_ready)
		return;
	c->is_ready = false;
	c->ready_until_ns = SCHED_NO_DEADLINE;
	c->budget = u64_min(c->budget, c->kept_budget);
}

void grant_restored(struct sched *sched, uint32_t client)
{
	if (grant_has_all(sched, client) && gang_is_bound(sched, client))
		grant_ready(sched, client);
	else if (grant_has_all(sched, client) && !grant_is_barred(sched, client))
		grant_run(sched, client);
	else
		(void)grant_restored_part(sched, client);
}

static bool grant_can_give(const struct sched *sched, uint32_t client)
{
	const struct sched_client *c = &sched->clients[client];
	const struct sched_gpu *g = &sched->gpus[c->gpu];

	if (c->task != SCHED_TASK_NONE || !fit_has_room(sched, client) ||
	    grant_is_barred(sched, client))
		return false;
	return c->state == SCHED_CLIENT_RUNNING || c->memory.swapped == 0 ||
	       g->restoring == SCHED_NONE;
}

bool grant_next(struct sched *sched, uint32_t gpu)
{
	for (uint32_t i = sched->gpus[gpu].coming.first; i != SCHED_NONE;
	     i = sched->clients[i].link[SCHED_LINK_LINE].next) {
		struct sched_client *c = &sched->clients[i];

		if (c->is_ready && !gang_is_ready(sched, i))
			continue;
		if (c->is_ready) {
			grant_run(sched, i);
			return true;
		}
		fit_update_target(sched, i);
		if (!grant_can_give(sched, i))
			continue;
		if (c->state == SCHED_CLIENT_RUNNING)
			grant_growth(sched, i);
		else if (c->memory.swapped > 0)
			grant_start_restore(sched, i, c->budget_target);
		else if (gang_is_bound(sched, i))
			grant_ready(sched, i);
		else
			grant_run(sched, i);
		return true;
	}
	return false;
}

/*
 * The first that comes restores within what is there while those in its way still move out, so
 * that both directions of the bus are used. The next ones would take the room that it waits for.
 */
bool grant_part(struct sched *sched, uint32_t gpu)
{
	const struct sched_gpu *g = &sched->gpus[gpu];
	const struct sched_client *c;
	uint64_t part;

	if (g->coming.n == 0 || g->restoring != SCHED_NONE)
		return false;
	c = &sched->clients[g->coming.first];
	if (c->state != SCHED_CLIENT_INCOMING || c->memory.swapped == 0 || sched_has_drop(c) ||
	    c->is_ready)
		return false;
	part = fit_part(sched, g->coming.first);
	if (part == 0)
		return false;
	grant_start_restore(sched, g->coming.first, fit_allowed(c) + part);
	return true;
}
