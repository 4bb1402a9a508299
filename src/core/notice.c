/* SPDX-License-Identifier: Apache-2.0 */

#include "core/notice.h"

#include "core/act.h"
#include "core/fit.h"
#include "core/forecast.h"
#include "core/list.h"
#include "core/stop.h"

/* No card runs more at once with any sense; it bounds the work of one newcomer. */
#define TOLD_MAX 64

/*
 * Somebody waits, or somebody's memory is out: then whoever it belongs to may come back at any
 * time, and those who run and fall idle give up before that.
 */
static bool notice_is_due(const struct sched *sched, uint32_t gpu)
{
	return sched->gpus[gpu].queue.n > 0 || fit_is_contended(sched, gpu);
}

static void notice_emit(struct sched *sched, uint32_t client, uint64_t bytes, uint64_t due_ms)
{
	act_emit(sched, (struct sched_action){.type = SCHED_ACTION_PREPARE,
					      .client = client,
					      .bytes = bytes,
					      .due_ms = due_ms});
}

static void notice_remember(struct sched *sched, uint32_t client)
{
	struct sched_client *c = &sched->clients[client];

	c->prepare = SCHED_PREPARE_NOW;
	c->beat_ns = sched->now_ns + sched->config.heartbeat_ns;
	list_push_back(LIST_SLOTS(sched->clients, SCHED_LINK_TOLD), &sched->gpus[c->gpu].told,
		       client);
	fit_change(sched, client);
}

void notice_resume(struct sched *sched, uint32_t client)
{
	const struct sched_client *c = &sched->clients[client];

	if (c->is_warned && c->prepare != SCHED_PREPARE_NOW && !notice_is_due(sched, c->gpu))
		notice_remember(sched, client);
}

/* Its part of what has to go: all of it at the most. */
static uint64_t notice_bytes_of(const struct sched_client *c, uint64_t bytes)
{
	uint64_t pageable = fit_pageable(c);

	return bytes < pageable ? bytes : pageable;
}

void notice_tell(struct sched *sched, uint32_t client, uint64_t bytes, uint64_t due_ns)
{
	struct sched_client *c = &sched->clients[client];
	uint64_t due_ms;

	/* Not 0, which says that nobody waits; unknown is a turn of the longest kind. */
	due_ms = due_ns == SCHED_NO_DEADLINE ? sched->gpus[c->gpu].config.max_runtime_ns / 1000000
		 : due_ns <= sched->now_ns   ? 0
					     : (due_ns - sched->now_ns) / 1000000;
	forecast_forget(sched, client);
	if (c->prepare != SCHED_PREPARE_NOW)
		notice_remember(sched, client);
	c->is_warned = true;
	c->told_bytes = notice_bytes_of(c, bytes);
	notice_emit(sched, client, c->told_bytes, due_ms ? due_ms : 1);
}

void notice_forget(struct sched *sched, uint32_t client)
{
	struct sched_client *c = &sched->clients[client];

	if (c->prepare != SCHED_PREPARE_NOW)
		return;
	c->prepare = SCHED_PREPARE_NONE;
	c->beat_ns = SCHED_NO_DEADLINE;
	list_remove(LIST_SLOTS(sched->clients, SCHED_LINK_TOLD), &sched->gpus[c->gpu].told, client);
	fit_change(sched, client);
}

/* It was told something far from what it would be told now. */
static bool notice_is_outdated(const struct sched_client *c, uint64_t bytes)
{
	uint64_t now = notice_bytes_of(c, bytes), quarter = c->told_bytes / 4;

	return now > c->told_bytes + quarter || now < c->told_bytes - quarter;
}

static bool notice_tell_place(struct sched *sched, uint32_t gpu, enum sched_place place)
{
	const struct sched_gpu *g = &sched->gpus[gpu];
	bool is_waited_for = g->queue.n > 0;
	uint64_t bytes = is_waited_for ? fit_to_evict(sched, gpu, g->head) : g->sums.out;
	uint64_t due_ns =
		g->head == SCHED_NONE ? SCHED_NO_DEADLINE : sched->clients[g->head].ready_ns;

	for (uint32_t i = g->place[place].first, n = 0; i != SCHED_NONE && n < TOLD_MAX;
	     i = sched->clients[i].link[SCHED_LINK_PLACE].next, n++) {
		const struct sched_client *c = &sched->clients[i];

		/* A client that is the only one to wait need not hear of itself. */
		/* Nor one that keeps its memory: to give up early would help nobody. */
		if (c->is_hung || c->is_resident ||
		    (c->line == SCHED_LINE_QUEUE && g->queue.n == 1))
			continue;
		if (c->prepare == SCHED_PREPARE_NOW &&
		    (!is_waited_for || !notice_is_outdated(c, bytes)))
			continue;
		if (c->prepare != SCHED_PREPARE_NOW && g->told.n >= TOLD_MAX)
			return true;
		if (!act_has_room(sched))
			return false;
		notice_tell(sched, i, bytes, due_ns);
	}
	return true;
}

static bool notice_tell_running(struct sched *sched, uint32_t gpu)
{
	for (int place = SCHED_PLACE_RUNNING_LOW; place <= SCHED_PLACE_RUNNING_CRITICAL; place++) {
		if (!notice_tell_place(sched, gpu, (enum sched_place)place))
			return false;
	}
	return true;
}

bool notice_update(struct sched *sched, uint32_t gpu)
{
	return !notice_is_due(sched, gpu) || (notice_tell_place(sched, gpu, SCHED_PLACE_BLOCKED) &&
					      notice_tell_running(sched, gpu) &&
					      notice_tell_place(sched, gpu, SCHED_PLACE_BARE) &&
					      notice_tell_place(sched, gpu, SCHED_PLACE_KEPT));
}

void notice_beat(struct sched *sched, uint32_t client)
{
	struct sched_client *c = &sched->clients[client];

	/* Only now: a wait often lasts for an instant, and each time all would hear. */
	if (!notice_is_due(sched, c->gpu)) {
		notice_forget(sched, client);
		c->is_warned = false;
		notice_emit(sched, client, 0, 0);
		return;
	}
	if (c->silent_ns != SCHED_NO_DEADLINE &&
	    sched->now_ns - c->silent_ns >= sched->config.heartbeat_limit_ns) {
		stop_hung(sched, client);
		return;
	}
	if (c->silent_ns == SCHED_NO_DEADLINE)
		c->silent_ns = sched->now_ns;
	c->beat_ns = sched->now_ns + sched->config.heartbeat_ns;
	fit_change(sched, client);
	act_emit(sched, (struct sched_action){.type = SCHED_ACTION_BEAT, .client = client});
}
