/* SPDX-License-Identifier: Apache-2.0 */

/* Each client as it counts: its part of its GPU's sums, its list, its timer. */

#include "core/fit.h"

#include "core/gang/gang.h"
#include "core/heap.h"
#include "core/list.h"
#include "core/u64.h"

#include <assert.h>

/* No sum of five of these over 2^17 clients overflows. */
#define FIELD_MAX (1ull << 44)

#define WALK_MAX 128 /* runners, to find a place among them */

uint64_t fit_footprint(const struct sched_client *client)
{
	const struct sched_memory *m = &client->memory;

	return m->resident + m->pinned + m->swapped + m->wanted + m->wanted_pinned;
}

uint64_t fit_allowed(const struct sched_client *client)
{
	return u64_max(client->budget,
		       client->memory.resident + client->memory.pinned + client->promised);
}

uint64_t fit_charge(const struct sched_client *client)
{
	return u64_excess(fit_allowed(client), client->doubted);
}

uint64_t fit_fixed(const struct sched_client *client)
{
	return u64_min(client->memory.pinned + client->promised, fit_charge(client));
}

uint64_t fit_pageable(const struct sched_client *client)
{
	return fit_charge(client) - fit_fixed(client);
}

/* Critical, and whole: its memory is not asked back even when it has nothing to do. */
static bool sums_is_kept(const struct sched_client *c)
{
	return c->is_resident && c->granted_ns != SCHED_NO_DEADLINE && c->memory.swapped == 0;
}

bool fit_lacks_nothing(const struct sched_client *c)
{
	return c->memory.wanted == 0 && c->memory.wanted_pinned == 0;
}

static void sums_of_holder(const struct sched_client *c, struct sched_sums *sums)
{
	uint64_t charge = fit_charge(c), pinned = fit_fixed(c);

	sums->holder_bytes = charge;
	sums->load = charge;
	if (c->is_hung)
		return;
	sums->n_busy = fit_lacks_nothing(c) && !c->is_stuck;
	sums->n_on = 1;
	sums->n_holding = 1;
	sums->n_guests = c->is_guest;
	sums->n_blocked = c->line == SCHED_LINE_QUEUE;
	if (c->line == SCHED_LINE_COMING)
		sums->load = c->load_bytes;
	if (c->is_fixed || c->is_not_preemptible || c->is_resident) {
		sums->n_fast = 1;
		sums->n_never = 1;
	} else if (c->is_retrying || c->is_held || c->line == SCHED_LINE_COMING) {
		sums->n_fast = 1;
		sums->later = u64_excess(sums->load, pinned);
	} else if (c->is_growing || c->is_stuck) {
		sums->blocked = charge - pinned;
	} else {
		sums->running = charge - pinned;
	}
}

struct sched_sums fit_sums_of(const struct sched *sched, uint32_t client)
{
	const struct sched_client *c = &sched->clients[client];
	uint64_t charge = fit_charge(c), pinned = fit_fixed(c);
	struct sched_sums sums = {
		.charged = charge,
		.pinned = pinned,
		.pager_context = c->memory.pager_context,
		.out = c->memory.swapped + c->memory.wanted + c->memory.wanted_pinned,
	};
	bool is_coming = c->line == SCHED_LINE_COMING;

	if (sched_has_drop(c) && !c->is_hung && !is_coming)
		sums.asked = u64_min(c->drop_bytes, charge - pinned);
	if (is_coming)
		sums.reserved = u64_excess(c->budget_target, charge);
	if (is_coming)
		sums.pinned += c->memory.wanted_pinned; /* as good as pinned */

	switch (c->state) {
	case SCHED_CLIENT_FREE:
		return (struct sched_sums){0};
	case SCHED_CLIENT_IDLE:
	case SCHED_CLIENT_WAITING:
		sums.load = c->is_hung || c->is_retrying || sums_is_kept(c) ? charge : pinned;
		break;
	case SCHED_CLIENT_INCOMING:
		sums.load = c->task == SCHED_TASK_RESTORE ? u64_max(c->load_bytes, charge)
							  : c->load_bytes;
		sums.n_on = 1;
		sums.n_fast = 1;
		if (c->is_fixed || c->is_resident)
			sums.n_never = 1;
		else
			sums.later = u64_excess(sums.load, pinned);
		break;
	case SCHED_CLIENT_RUNNING:
		sums_of_holder(c, &sums);
		break;
	case SCHED_CLIENT_STOPPING:
		sums.holder_bytes = charge;
		sums.load = c->is_hung ? charge : pinned;
		sums.n_holding = !c->is_hung;
		sums.n_guests = !c->is_hung && c->is_guest;
		sums.n_displaced = !c->is_hung && c->is_displaced && gang_is_bound(sched, client);
		sums.n_busy = !c->is_hung && fit_lacks_nothing(c);
		break;
	case SCHED_CLIENT_STATE_COUNT_:
		assert(!"client state out of range");
	}
	return sums;
}

enum sched_place fit_place(const struct sched_client *c)
{
	bool can_give = fit_pageable(c) > 0 && !c->is_hung && !c->is_retrying &&
			!sched_has_drop(c) && !sums_is_kept(c);

	switch (c->state) {
	case SCHED_CLIENT_IDLE:
		return can_give ? SCHED_PLACE_IDLE : SCHED_PLACE_NONE;
	case SCHED_CLIENT_WAITING:
		return can_give ? SCHED_PLACE_QUEUED : SCHED_PLACE_NONE;
	case SCHED_CLIENT_RUNNING:
		if (c->is_hung || c->is_fixed || c->is_not_preemptible || c->is_retrying ||
		    c->is_held || c->line == SCHED_LINE_COMING)
			return SCHED_PLACE_KEPT;
		if ((c->is_paused && !c->is_behind) || c->is_called_off)
			return SCHED_PLACE_PAUSED;
		if (c->is_resident)
			return SCHED_PLACE_KEPT;
		if (fit_pageable(c) == 0)
			return SCHED_PLACE_BARE;
		return c->is_growing || c->is_stuck
			       ? SCHED_PLACE_BLOCKED
			       : SCHED_PLACE_RUNNING_LOW + (unsigned int)c->level;
	case SCHED_CLIENT_FREE:
	case SCHED_CLIENT_INCOMING:
	case SCHED_CLIENT_STOPPING:
		return SCHED_PLACE_NONE;
	case SCHED_CLIENT_STATE_COUNT_:
		break;
	}
	assert(!"client state out of range");
	return SCHED_PLACE_NONE;
}

/* Unsigned arithmetic wraps, so that adding minus a part takes it out again. */
void fit_sums_add(struct sched_sums *sums, const struct sched_sums *part, uint32_t sign)
{
	uint64_t wide = sign == 1 ? 1 : UINT64_MAX;

	sums->charged += wide * part->charged;
	sums->load += wide * part->load;
	sums->pinned += wide * part->pinned;
	sums->running += wide * part->running;
	sums->blocked += wide * part->blocked;
	sums->later += wide * part->later;
	sums->asked += wide * part->asked;
	sums->reserved += wide * part->reserved;
	sums->holder_bytes += wide * part->holder_bytes;
	sums->pager_context += wide * part->pager_context;
	sums->out += wide * part->out;
	sums->n_on += sign * part->n_on;
	sums->n_fast += sign * part->n_fast;
	sums->n_never += sign * part->n_never;
	sums->n_holding += sign * part->n_holding;
	sums->n_guests += sign * part->n_guests;
	sums->n_displaced += sign * part->n_displaced;
	sums->n_blocked += sign * part->n_blocked;
	sums->n_busy += sign * part->n_busy;
}

static uint64_t sums_timer_ns(const struct sched_client *c)
{
	return u64_min(u64_min(c->answer_ns, u64_min(c->retry_ns, c->ready_until_ns)),
		       u64_min(c->bound_ns, c->beat_ns));
}

/*
 * Runners stand by the beginning of their turns. One that comes back among them (it had
 * waited for memory, or could not be stopped) is old: its place is near the front.
 */
static void sums_enter_place(struct sched *sched, struct list *list, enum sched_place place,
			     uint32_t client)
{
	const struct sched_client *clients = sched->clients;
	uint64_t turn_ns = clients[client].turn_ns;
	uint32_t before = list->first;

	if (place < SCHED_PLACE_RUNNING_LOW || list->n == 0 ||
	    clients[list->last].turn_ns <= turn_ns) {
		list_push_back(LIST_SLOTS(sched->clients, SCHED_LINK_PLACE), list, client);
		return;
	}
	for (int n = 0; n < WALK_MAX && clients[before].turn_ns <= turn_ns; n++)
		before = clients[before].link[SCHED_LINK_PLACE].next;
	list_insert(LIST_SLOTS(sched->clients, SCHED_LINK_PLACE), list, client, before);
}

void fit_change(struct sched *sched, uint32_t client)
{
	struct sched_client *c = &sched->clients[client];
	struct sched_gpu *g = &sched->gpus[c->gpu];
	enum sched_place place = fit_place(c);

	if (c->counted.n_busy)
		g->still_ns = sched->now_ns; /* up to now */
	fit_sums_add(&g->sums, &c->counted, UINT32_MAX);
	c->counted = fit_sums_of(sched, client);
	fit_sums_add(&g->sums, &c->counted, 1);
	if (place != c->place) {
		if (c->place != SCHED_PLACE_NONE)
			list_remove(LIST_SLOTS(sched->clients, SCHED_LINK_PLACE),
				    &g->place[c->place], client);
		if (place != SCHED_PLACE_NONE)
			sums_enter_place(sched, &g->place[place], place, client);
		c->place = place;
	}
	if (sums_timer_ns(c) != SCHED_NO_DEADLINE)
		heap_set(sched->clients, &sched->timers, SCHED_NODE_TIMER, client,
			 sums_timer_ns(c));
	else
		heap_remove(sched->clients, &sched->timers, SCHED_NODE_TIMER, client);
	g->is_dirty = true;
	gang_change(sched, client);
}

/*
 * A client can not have more on the card than the card has, whatever it says: so a lie costs
 * others no more than what its teller could allocate anyway.
 */
void fit_set_memory(struct sched *sched, uint32_t client, const struct sched_memory *memory)
{
	struct sched_client *c = &sched->clients[client];
	uint64_t total = u64_min(sched->gpus[c->gpu].total, FIELD_MAX);
	uint64_t there = u64_excess(c->memory.resident + c->memory.pinned, c->doubted);

	c->memory.pinned = u64_min(memory->pinned, total);
	c->memory.resident = u64_min(memory->resident, total - c->memory.pinned);
	c->memory.swapped = u64_min(memory->swapped, FIELD_MAX);
	c->memory.pager_context = u64_min(memory->pager_context, total);
	c->memory.wanted = u64_min(memory->wanted, FIELD_MAX);
	c->memory.wanted_pinned = u64_min(memory->wanted_pinned, FIELD_MAX);
	/* Bytes that are not reported any more are those that were not there. */
	c->doubted = u64_min(c->doubted, u64_excess(c->memory.resident + c->memory.pinned, there));
}
