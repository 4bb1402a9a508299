/* SPDX-License-Identifier: Apache-2.0 */

#include "core/ahead.h"

#include "core/act.h"
#include "core/fit.h"
#include "core/list.h"
#include "core/u64.h"

/* A client that does not answer must not keep the others from copying. */
#define AHEAD_NS (30 * 1000000000ull)

/* Of the idle clients so many are looked at. */
#define LOOK_MAX 16

static void ahead_emit(struct sched *sched, uint32_t client, uint64_t bytes)
{
	act_emit(sched, (struct sched_action){
				.type = SCHED_ACTION_AHEAD, .client = client, .bytes = bytes});
}

static void ahead_set(struct sched *sched, uint32_t client, enum sched_ahead ahead)
{
	struct sched_client *c = &sched->clients[client];
	struct sched_gpu *g = &sched->gpus[c->gpu];
	struct list_slots slots = LIST_SLOTS(sched->clients, SCHED_LINK_COPIED);

	if (c->ahead == SCHED_AHEAD_TOLD)
		g->ahead = SCHED_NONE;
	if (ahead == SCHED_AHEAD_TOLD)
		g->ahead = client;
	if (c->ahead == SCHED_AHEAD_DONE)
		list_remove(slots, &g->copied, client);
	if (ahead == SCHED_AHEAD_DONE)
		list_push_back(slots, &g->copied, client);
	c->ahead = ahead;
}

void ahead_forget(struct sched *sched, uint32_t client)
{
	ahead_set(sched, client, SCHED_AHEAD_NONE);
	sched->clients[client].memory.clean = 0;
}

/* Memory moves, or is about to. */
static bool is_bus_busy(const struct sched_gpu *g)
{
	return g->sums.asked > 0 || g->coming.n > 0 || g->restoring != SCHED_NONE;
}

static bool ahead_may(const struct sched *sched, uint32_t gpu)
{
	const struct sched_gpu *g = &sched->gpus[gpu];

	return !g->is_out && !is_bus_busy(g) && fit_is_contended(sched, gpu);
}

static bool ahead_is_wanted(const struct sched_client *c)
{
	return c->copies_ahead && c->ahead == SCHED_AHEAD_NONE && !c->is_ahead_owed &&
	       c->memory.clean < fit_pageable(c);
}

static void ahead_tell(struct sched *sched, uint32_t client)
{
	struct sched_client *c = &sched->clients[client];
	struct sched_gpu *g = &sched->gpus[c->gpu];

	ahead_set(sched, client, SCHED_AHEAD_TOLD);
	g->ahead_until_ns = sched->now_ns + AHEAD_NS;
	ahead_emit(sched, client, fit_pageable(c));
}

static void ahead_take_back(struct sched *sched, uint32_t client, enum sched_ahead then)
{
	struct sched_client *c = &sched->clients[client];

	ahead_set(sched, client, then);
	c->is_ahead_owed = true;
	ahead_emit(sched, client, 0);
}

/* Contention is over, so nobody needs the copies. */
static bool ahead_end(struct sched *sched, uint32_t gpu)
{
	struct sched_gpu *g = &sched->gpus[gpu];

	while (g->copied.n > 0) {
		if (!act_has_room(sched))
			return false;
		ahead_take_back(sched, g->copied.first, SCHED_AHEAD_NONE);
	}
	return true;
}

void ahead_report(struct sched *sched, uint32_t client, uint64_t bytes, bool is_done)
{
	struct sched_client *c = &sched->clients[client];

	c->memory.clean = u64_min(bytes, c->memory.resident);
	c->copies_ahead = true;
	c->is_ahead_owed = false;
	if (c->ahead == SCHED_AHEAD_TOLD && is_done)
		ahead_set(sched, client, SCHED_AHEAD_DONE);
	sched->gpus[c->gpu].is_dirty = true;
}

bool ahead_update(struct sched *sched, uint32_t gpu)
{
	struct sched_gpu *g = &sched->gpus[gpu];
	bool may = ahead_may(sched, gpu), is_late = g->ahead_until_ns <= sched->now_ns;
	uint32_t n = 0;

	if (!fit_is_contended(sched, gpu) && !ahead_end(sched, gpu))
		return false;
	if (!act_has_room(sched))
		return g->ahead == SCHED_NONE && !may;
	if (g->ahead != SCHED_NONE && (!may || is_late))
		ahead_take_back(sched, g->ahead, may ? SCHED_AHEAD_DONE : SCHED_AHEAD_NONE);
	for (uint32_t i = g->place[SCHED_PLACE_IDLE].first;
	     may && g->ahead == SCHED_NONE && i != SCHED_NONE && n < LOOK_MAX;
	     i = sched->clients[i].link[SCHED_LINK_PLACE].next, n++) {
		if (ahead_is_wanted(&sched->clients[i]))
			ahead_tell(sched, i);
	}
	return true;
}

uint64_t ahead_wake_ns(const struct sched *sched, uint32_t gpu)
{
	const struct sched_gpu *g = &sched->gpus[gpu];

	return g->ahead == SCHED_NONE ? SCHED_NO_DEADLINE : g->ahead_until_ns;
}
