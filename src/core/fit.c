/* SPDX-License-Identifier: Apache-2.0 */

#include "core/fit.h"

#include "core/heap.h"
#include "core/list.h"
#include "core/reserve.h"
#include "core/u64.h"

#include <assert.h>

/* No sum of five of these over 2^17 clients overflows. */
#define FIELD_MAX (1ull << 44)

#define WALK_MAX 128 /* runners, to find a place among them */

/*
 * The least part of a restore: a millisecond of the bus, which a message takes a tenth of.
 * While one part comes in room is made for the next.
 */
#define PART_MIN  (64ull << 20)
#define PART_CARD 64 /* or of a small card so much */

static const struct sched_gpu *gpu_of(const struct sched *sched, uint32_t client)
{
	return &sched->gpus[sched->clients[client].gpu];
}

uint64_t fit_usable(const struct sched *sched, uint32_t gpu)
{
	const struct sched_gpu *g = &sched->gpus[gpu];

	return u64_excess(g->total - reserve_bytes(sched, gpu), g->external);
}

uint64_t fit_room(const struct sched *sched, uint32_t gpu)
{
	return fit_usable(sched, gpu) + reserve_half(sched, gpu);
}

static uint64_t capacity_now(const struct sched *sched, uint32_t gpu, uint64_t lead)
{
	const struct sched_sums *sums = &sched->gpus[gpu].sums;

	return fit_usable(sched, gpu) +
	       reserve_used(sched, gpu, sums->pager_context, sums->pinned, lead);
}

uint64_t fit_capacity(const struct sched *sched, uint32_t gpu)
{
	return capacity_now(sched, gpu, 0);
}

uint64_t fit_spare(const struct sched *sched, uint32_t gpu)
{
	const struct sched_sums *sums = &sched->gpus[gpu].sums;
	uint64_t stays = u64_min(u64_excess(sums->charged, sums->asked), fit_room(sched, gpu));

	return u64_excess(stays, fit_usable(sched, gpu));
}

/* What may be used now, as long as more is on its way out. */
static uint64_t room_now(const struct sched *sched, uint32_t gpu)
{
	return capacity_now(sched, gpu, sched->gpus[gpu].sums.asked);
}

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

/* What no eviction takes; what was given to be pinned counts until a report says what is. */
static uint64_t fixed_bytes(const struct sched_client *client)
{
	return u64_min(client->memory.pinned + client->promised, fit_charge(client));
}

uint64_t fit_pageable(const struct sched_client *client)
{
	return fit_charge(client) - fixed_bytes(client);
}

static uint64_t pinned_by_others(const struct sched *sched, uint32_t client)
{
	return gpu_of(sched, client)->sums.pinned - sched->clients[client].counted.pinned;
}

/* Of the card, without what others use now. */
static uint64_t card_of(const struct sched *sched, uint32_t gpu)
{
	return fit_usable(sched, gpu) + sched->gpus[gpu].external;
}

/* What others have pinned beyond their part of the reserve. */
static uint64_t pinned_in_the_way(const struct sched *sched, uint32_t client)
{
	return u64_excess(pinned_by_others(sched, client),
			  reserve_half(sched, sched->clients[client].gpu));
}

uint64_t fit_limit_alone(const struct sched *sched, uint32_t client)
{
	return u64_excess(card_of(sched, sched->clients[client].gpu),
			  pinned_in_the_way(sched, client));
}

uint64_t fit_limit(const struct sched *sched, uint32_t client)
{
	return u64_excess(fit_usable(sched, sched->clients[client].gpu),
			  pinned_in_the_way(sched, client));
}

static uint64_t owned_by(const struct sched_client *c)
{
	return c->memory.resident + c->memory.pinned + c->memory.swapped;
}

bool fit_oversize(const struct sched *sched, uint32_t client)
{
	const struct sched_client *c = &sched->clients[client];

	return c->state != SCHED_CLIENT_RUNNING && owned_by(c) > fit_limit(sched, client);
}

uint64_t fit_budget_target(const struct sched *sched, uint32_t client)
{
	const struct sched_client *c = &sched->clients[client];

	if (c->state == SCHED_CLIENT_RUNNING)
		return c->is_growing ? c->budget_target : fit_charge(c);
	if (fit_oversize(sched, client))
		return u64_min(owned_by(c), gpu_of(sched, client)->total);
	return fit_footprint(c);
}

static uint64_t pager_contexts_of_all(const struct sched *sched, uint32_t client)
{
	const struct sched_client *c = &sched->clients[client];

	return gpu_of(sched, client)->sums.pager_context - c->counted.pager_context +
	       c->memory.pager_context;
}

/* The capacity once client has come, whatever of it is in the sums. */
static uint64_t capacity_for(const struct sched *sched, uint32_t client)
{
	const struct sched_client *c = &sched->clients[client];

	return fit_usable(sched, c->gpu) +
	       reserve_used(sched, c->gpu, pager_contexts_of_all(sched, client),
			    pinned_by_others(sched, client) + fixed_bytes(c) +
				    c->memory.wanted_pinned,
			    0);
}

/* All that there is for it when the others are out. */
static uint64_t all_there_is(const struct sched *sched, uint32_t client)
{
	return u64_excess(capacity_for(sched, client), pinned_by_others(sched, client));
}

/*
 * With all the others out there is room for what it needs. One that is larger than the card may
 * try, but not while pinned bytes of others are why it does not fit. Pager contexts do not count:
 * they come and go, and the client that was given pinned bytes last must always be able to come,
 * or all would wait for each other.
 */
static bool can_be_whole(const struct sched *sched, uint32_t client)
{
	uint64_t target = fit_budget_target(sched, client);

	if (target <= all_there_is(sched, client))
		return true;
	if (target > fit_limit(sched, client))
		return pinned_in_the_way(sched, client) == 0 ||
		       target <= fit_limit_alone(sched, client);
	return target + pinned_by_others(sched, client) <=
	       fit_room(sched, sched->clients[client].gpu);
}

/*
 * What it adds to the load. One that needs more than all that there is comes when the others are
 * out: it is larger than the card, or pager contexts take of the reserve what it needs of it.
 */
static uint64_t load_bytes_of(const struct sched *sched, uint32_t client)
{
	uint64_t bytes =
		u64_max(fit_budget_target(sched, client), fit_charge(&sched->clients[client]));

	if (fit_oversize(sched, client) ||
	    fit_budget_target(sched, client) <= fit_limit(sched, client))
		bytes = u64_min(bytes, all_there_is(sched, client));
	return bytes;
}

void fit_set_target(struct sched *sched, uint32_t client)
{
	struct sched_client *c = &sched->clients[client];

	c->budget_target = fit_budget_target(sched, client);
	c->load_bytes = load_bytes_of(sched, client);
}

/* Critical, and whole: its memory is not asked back even when it has nothing to do. */
static bool is_kept(const struct sched_client *c)
{
	return c->is_resident && c->granted_ns != SCHED_NO_DEADLINE && c->memory.swapped == 0;
}

void fit_update_target(struct sched *sched, uint32_t client)
{
	struct sched_client *c = &sched->clients[client];

	if (c->state != SCHED_CLIENT_INCOMING || c->task == SCHED_TASK_RESTORE ||
	    c->load_bytes >= c->budget_target)
		return;
	fit_set_target(sched, client);
	fit_change(sched, client);
}

static bool lacks_nothing(const struct sched_client *c)
{
	return c->memory.wanted == 0 && c->memory.wanted_pinned == 0;
}

static void sums_of_holder(const struct sched_client *c, struct sched_sums *sums)
{
	uint64_t charge = fit_charge(c), pinned = fixed_bytes(c);

	sums->holder_bytes = charge;
	sums->load = charge;
	if (c->is_hung)
		return;
	sums->n_busy = lacks_nothing(c);
	sums->n_on = 1;
	sums->n_holding = 1;
	sums->n_blocked = c->line == SCHED_LINE_QUEUE;
	if (c->line == SCHED_LINE_COMING)
		sums->load = c->load_bytes;
	if (c->is_fixed || c->is_not_preemptible || c->is_resident) {
		sums->n_fast = 1;
		sums->n_never = 1;
	} else if (c->is_retrying || c->line == SCHED_LINE_COMING) {
		sums->n_fast = 1;
		sums->later = u64_excess(sums->load, pinned);
	} else if (c->is_growing) {
		sums->blocked = charge - pinned;
	} else {
		sums->running = charge - pinned;
	}
}

struct sched_sums fit_sums_of(const struct sched_client *c)
{
	uint64_t charge = fit_charge(c), pinned = fixed_bytes(c);
	struct sched_sums sums = {
		.charged = charge, .pinned = pinned, .pager_context = c->memory.pager_context};
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
		sums.load = c->is_hung || c->is_retrying || is_kept(c) ? charge : pinned;
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
		sums.n_busy = !c->is_hung && lacks_nothing(c);
		break;
	case SCHED_CLIENT_STATE_COUNT_:
		assert(!"client state out of range");
	}
	return sums;
}

enum sched_place fit_place(const struct sched_client *c)
{
	bool can_give = fit_pageable(c) > 0 && !c->is_hung && !c->is_retrying &&
			!sched_has_drop(c) && !is_kept(c);

	switch (c->state) {
	case SCHED_CLIENT_IDLE:
		return can_give ? SCHED_PLACE_IDLE : SCHED_PLACE_NONE;
	case SCHED_CLIENT_WAITING:
		return can_give ? SCHED_PLACE_QUEUED : SCHED_PLACE_NONE;
	case SCHED_CLIENT_RUNNING:
		if (c->is_hung || c->is_fixed || c->is_not_preemptible || c->is_resident ||
		    c->is_retrying || c->line == SCHED_LINE_COMING)
			return SCHED_PLACE_KEPT;
		if (fit_pageable(c) == 0)
			return SCHED_PLACE_BARE;
		return c->is_growing ? SCHED_PLACE_BLOCKED
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
	sums->n_on += sign * part->n_on;
	sums->n_fast += sign * part->n_fast;
	sums->n_never += sign * part->n_never;
	sums->n_holding += sign * part->n_holding;
	sums->n_blocked += sign * part->n_blocked;
	sums->n_busy += sign * part->n_busy;
}

static uint64_t timer_of(const struct sched_client *c)
{
	return u64_min(u64_min(c->answer_ns, c->retry_ns), u64_min(c->bound_ns, c->beat_ns));
}

/*
 * Runners stand by the beginning of their turns. One that comes back among them (it had
 * waited for memory, or could not be stopped) is old: its place is near the front.
 */
static void enter_place(struct sched *sched, struct list *list, enum sched_place place,
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
	c->counted = fit_sums_of(c);
	fit_sums_add(&g->sums, &c->counted, 1);
	if (place != c->place) {
		if (c->place != SCHED_PLACE_NONE)
			list_remove(LIST_SLOTS(sched->clients, SCHED_LINK_PLACE),
				    &g->place[c->place], client);
		if (place != SCHED_PLACE_NONE)
			enter_place(sched, &g->place[place], place, client);
		c->place = place;
	}
	if (timer_of(c) != SCHED_NO_DEADLINE)
		heap_set(sched->clients, &sched->timers, SCHED_NODE_TIMER, client, timer_of(c));
	else
		heap_remove(sched->clients, &sched->timers, SCHED_NODE_TIMER, client);
	g->is_dirty = true;
}

/*
 * What is on the card can not be more than the card has, whatever a client says: so a
 * lie costs others no more than what its teller could allocate anyway.
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
	/* What is not reported any more is what was not there. */
	c->doubted = u64_min(c->doubted, u64_excess(c->memory.resident + c->memory.pinned, there));
}

bool fit_exclusive(const struct sched *sched)
{
	return sched->config.anti_thrash && sched->config.mode != SCHED_MODE_AUTO;
}

bool fit_never(const struct sched *sched, uint32_t client)
{
	const struct sched_client *c = &sched->clients[client];

	if (lacks_nothing(c))
		return false;
	return fit_footprint(c) > fit_limit_alone(sched, client);
}

/* The load if client had its target, and freed of the others' load had gone. */
static bool fits_without(const struct sched *sched, uint32_t client, uint64_t freed)
{
	const struct sched_client *c = &sched->clients[client];
	uint64_t load = gpu_of(sched, client)->sums.load - c->counted.load;

	assert(freed <= load);
	return load - freed + load_bytes_of(sched, client) <= capacity_for(sched, client);
}

bool fit_beside(const struct sched *sched, uint32_t client)
{
	const struct sched_sums *own = &sched->clients[client].counted;
	const struct sched_gpu *g = gpu_of(sched, client);

	if (!can_be_whole(sched, client))
		return false;
	if (fit_exclusive(sched) && g->sums.n_on - own->n_on > 0)
		return false;
	return fits_without(sched, client, 0);
}

bool fit_by_switch(const struct sched *sched, uint32_t client)
{
	const struct sched_sums *own = &sched->clients[client].counted;
	const struct sched_gpu *g = gpu_of(sched, client);
	uint64_t freed = g->sums.blocked - own->blocked;

	if (!can_be_whole(sched, client))
		return false;
	if (fit_exclusive(sched) && g->sums.n_fast - own->n_fast > 0)
		return false;
	if (sched->config.anti_thrash)
		freed += g->sums.running - own->running;
	return fits_without(sched, client, freed);
}

bool fit_ever(const struct sched *sched, uint32_t client)
{
	const struct sched_sums *own = &sched->clients[client].counted;
	const struct sched_sums *sums = &gpu_of(sched, client)->sums;

	if (!can_be_whole(sched, client))
		return false;
	if (fit_exclusive(sched) && sums->n_never - own->n_never > 0)
		return false;
	return fits_without(sched, client,
			    sums->blocked - own->blocked + sums->running - own->running +
				    sums->later - own->later);
}

uint64_t fit_missing(const struct sched *sched, uint32_t client)
{
	const struct sched_client *c = &sched->clients[client];
	uint64_t load = gpu_of(sched, client)->sums.load - c->counted.load;

	return u64_excess(load + load_bytes_of(sched, client), capacity_for(sched, client));
}

uint64_t fit_to_evict(const struct sched *sched, uint32_t gpu, uint32_t client)
{
	const struct sched_sums *sums = &sched->gpus[gpu].sums;
	uint64_t want = sums->charged + sums->reserved;

	if (client != SCHED_NONE)
		want += u64_excess(fit_budget_target(sched, client),
				   fit_charge(&sched->clients[client]));
	return u64_excess(want, fit_capacity(sched, gpu) + sums->asked);
}

bool fit_has_room(const struct sched *sched, uint32_t client)
{
	const struct sched_client *c = &sched->clients[client];
	uint64_t others = gpu_of(sched, client)->sums.charged - c->counted.charged;

	/* Beyond its load it takes of the reserve, and so not what others are to leave yet. */
	if (c->budget_target > c->load_bytes && c->budget_target <= fit_limit(sched, client))
		return others + c->budget_target <= fit_room(sched, c->gpu);
	return others + c->load_bytes <= room_now(sched, c->gpu);
}

bool fit_at_once(const struct sched *sched, uint32_t client)
{
	const struct sched_client *c = &sched->clients[client];
	const struct sched_sums *sums = &gpu_of(sched, client)->sums;
	uint64_t capacity =
		fit_usable(sched, c->gpu) +
		reserve_used(sched, c->gpu, sums->pager_context - c->counted.pager_context,
			     pinned_by_others(sched, client), 0);

	return sums->charged - c->counted.charged + c->budget_target <= capacity;
}

/* What of lack there is room for; 0: too little to be worth a message. */
static uint64_t part_of(const struct sched_gpu *g, uint64_t lack, uint64_t room)
{
	uint64_t part = u64_min(lack, u64_excess(room, g->sums.charged));
	uint64_t least = u64_min(PART_MIN, g->total / PART_CARD);

	return part < lack && part < least ? 0 : part;
}

uint64_t fit_part(const struct sched *sched, uint32_t client)
{
	const struct sched_client *c = &sched->clients[client];

	return part_of(gpu_of(sched, client), u64_excess(c->budget_target, fit_charge(c)),
		       room_now(sched, c->gpu));
}

uint64_t fit_ahead(const struct sched *sched, uint32_t client)
{
	const struct sched_client *c = &sched->clients[client];
	uint64_t lack = u64_excess(fit_budget_target(sched, client), fit_charge(c));

	return part_of(gpu_of(sched, client), u64_min(lack, c->memory.swapped),
		       capacity_now(sched, c->gpu, UINT64_MAX));
}
