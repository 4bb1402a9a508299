/* SPDX-License-Identifier: Apache-2.0 */

#include "core/fit.h"

#include "core/gang/gang.h"
#include "core/reserve.h"
#include "core/u64.h"

#include <assert.h>

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

/* The bytes that may be used now, as long as more is on its way out. */
static uint64_t room_now(const struct sched *sched, uint32_t gpu)
{
	return capacity_now(sched, gpu, sched->gpus[gpu].sums.asked);
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

/* The bytes that others have pinned beyond their part of the reserve. */
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

static uint64_t owned_bytes(const struct sched_client *c)
{
	return c->memory.resident + c->memory.pinned + c->memory.swapped;
}

bool fit_oversize(const struct sched *sched, uint32_t client)
{
	const struct sched_client *c = &sched->clients[client];

	return c->state != SCHED_CLIENT_RUNNING && owned_bytes(c) > fit_limit(sched, client);
}

uint64_t fit_budget_target(const struct sched *sched, uint32_t client)
{
	const struct sched_client *c = &sched->clients[client];

	if (c->state == SCHED_CLIENT_RUNNING)
		return c->is_growing ? c->budget_target : fit_charge(c);
	if (fit_oversize(sched, client))
		return u64_min(owned_bytes(c), gpu_of(sched, client)->total);
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
	       reserve_used(
		       sched, c->gpu, pager_contexts_of_all(sched, client),
		       pinned_by_others(sched, client) + fit_fixed(c) + c->memory.wanted_pinned, 0);
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
bool fit_can_be_whole(const struct sched *sched, uint32_t client)
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
 * The bytes that it adds to the load. One that needs more than all that there is comes when the
 * others are out: it is larger than the card, or pager contexts take of the reserve what it needs
 * of it.
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

void fit_update_target(struct sched *sched, uint32_t client)
{
	struct sched_client *c = &sched->clients[client];

	if (c->state != SCHED_CLIENT_INCOMING || c->task == SCHED_TASK_RESTORE ||
	    c->load_bytes >= c->budget_target)
		return;
	fit_set_target(sched, client);
	fit_change(sched, client);
}

uint32_t fit_degree(const struct sched *sched, uint32_t gpu)
{
	const struct sched_gpu_config *config = &sched->gpus[gpu].config;

	if (!sched->config.anti_thrash)
		return UINT32_MAX;
	if (config->mode != SCHED_MODE_AUTO)
		return 1;
	return config->sharing_degree ? config->sharing_degree : UINT32_MAX;
}

bool fit_exclusive(const struct sched *sched, uint32_t gpu)
{
	return fit_degree(sched, gpu) == 1;
}

/* So many of n others are too many beside client. */
static uint32_t fit_too_many(const struct sched *sched, uint32_t client, uint32_t n)
{
	uint32_t degree = fit_degree(sched, sched->clients[client].gpu);

	return n < degree ? 0 : n - degree + 1;
}

uint32_t fit_n_crowded(const struct sched *sched, uint32_t client)
{
	return fit_n_crowded_more(sched, client, 0);
}

uint32_t fit_n_crowded_more(const struct sched *sched, uint32_t client, uint32_t n)
{
	const struct sched_client *c = &sched->clients[client];

	return fit_too_many(sched, client, gpu_of(sched, client)->sums.n_on - c->counted.n_on + n);
}

bool fit_never(const struct sched *sched, uint32_t client)
{
	const struct sched_client *c = &sched->clients[client];

	if (fit_lacks_nothing(c))
		return false;
	return fit_footprint(c) > fit_limit_alone(sched, client);
}

uint64_t fit_load_added(const struct sched *sched, uint32_t client)
{
	return u64_excess(load_bytes_of(sched, client), sched->clients[client].counted.load);
}

/*
 * There is room if client had its target, more bytes were added to the others' load, and freed of
 * it had gone.
 */
static bool fits_without(const struct sched *sched, uint32_t client, uint64_t freed, uint64_t more)
{
	const struct sched_client *c = &sched->clients[client];
	uint64_t load = gpu_of(sched, client)->sums.load - c->counted.load + more;
	uint64_t capacity = capacity_for(sched, client);

	assert(freed <= load);
	/* Beside others that come it is no more than it would be without this one's pinned bytes.
	 */
	if (more > 0)
		capacity = u64_min(capacity, fit_capacity(sched, c->gpu));
	return load - freed + load_bytes_of(sched, client) <= capacity;
}

bool fit_beside_more(const struct sched *sched, uint32_t client, uint64_t bytes, uint32_t n)
{
	if (!fit_can_be_whole(sched, client))
		return false;
	if (fit_n_crowded_more(sched, client, n) > 0)
		return false;
	return fits_without(sched, client, 0, bytes);
}

bool fit_beside(const struct sched *sched, uint32_t client)
{
	return fit_beside_more(sched, client, 0, 0);
}

bool fit_by_switch(const struct sched *sched, uint32_t client)
{
	return fit_by_switch_more(sched, client, 0, 0);
}

bool fit_by_switch_more(const struct sched *sched, uint32_t client, uint64_t bytes, uint32_t n)
{
	const struct sched_sums *own = &sched->clients[client].counted;
	const struct sched_gpu *g = gpu_of(sched, client);
	uint64_t freed = g->sums.blocked - own->blocked;

	if (!fit_can_be_whole(sched, client))
		return false;
	if (fit_too_many(sched, client, g->sums.n_fast - own->n_fast + n) > 0)
		return false;
	if (sched->config.anti_thrash)
		freed += g->sums.running - own->running;
	return fits_without(sched, client, freed, bytes);
}

bool fit_ever(const struct sched *sched, uint32_t client)
{
	return fit_ever_more(sched, client, 0, 0);
}

bool fit_ever_more(const struct sched *sched, uint32_t client, uint64_t bytes, uint32_t n)
{
	const struct sched_sums *own = &sched->clients[client].counted;
	const struct sched_sums *sums = &gpu_of(sched, client)->sums;

	if (!fit_can_be_whole(sched, client))
		return false;
	if (fit_too_many(sched, client, sums->n_never - own->n_never + n) > 0)
		return false;
	return fits_without(sched, client,
			    sums->blocked - own->blocked + sums->running - own->running +
				    sums->later - own->later,
			    bytes);
}

uint64_t fit_missing(const struct sched *sched, uint32_t client)
{
	return fit_missing_more(sched, client, 0);
}

uint64_t fit_missing_more(const struct sched *sched, uint32_t client, uint64_t bytes)
{
	const struct sched_client *c = &sched->clients[client];
	uint64_t load = gpu_of(sched, client)->sums.load - c->counted.load + bytes;

	return u64_excess(load + load_bytes_of(sched, client), capacity_for(sched, client));
}

uint64_t fit_to_evict(const struct sched *sched, uint32_t gpu, uint32_t client)
{
	return fit_to_evict_more(sched, gpu, client, 0);
}

uint64_t fit_to_evict_more(const struct sched *sched, uint32_t gpu, uint32_t client, uint64_t bytes)
{
	const struct sched_sums *sums = &sched->gpus[gpu].sums;
	uint64_t want = sums->charged + sums->reserved + bytes;

	if (client != SCHED_NONE)
		want += u64_excess(fit_budget_target(sched, client),
				   fit_charge(&sched->clients[client]));
	return u64_excess(want, fit_capacity(sched, gpu) + sums->asked);
}

bool fit_is_contended(const struct sched *sched, uint32_t gpu)
{
	const struct sched_sums *sums = &sched->gpus[gpu].sums;

	return sums->out > 0 && sums->charged + sums->out > fit_capacity(sched, gpu);
}

bool fit_has_room(const struct sched *sched, uint32_t client)
{
	const struct sched_client *c = &sched->clients[client];
	uint64_t others = gpu_of(sched, client)->sums.charged - c->counted.charged;

	/*
	 * It needs nothing but what it has on the card. Another member of its gang, which waits for
	 * it, may have more than there is for all.
	 */
	if (gang_is_bound(sched, client) && c->memory.swapped == 0 &&
	    c->budget_target <= c->memory.resident + c->memory.pinned)
		return true;
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

/* The part of lack that there is room for; 0: too little to be worth a message. */
static uint64_t part_of_lack(const struct sched_gpu *g, uint64_t lack, uint64_t room)
{
	uint64_t part = u64_min(lack, u64_excess(room, g->sums.charged));
	uint64_t least = u64_min(PART_MIN, g->total / PART_CARD);

	return part < lack && part < least ? 0 : part;
}

uint64_t fit_part(const struct sched *sched, uint32_t client)
{
	const struct sched_client *c = &sched->clients[client];

	return part_of_lack(gpu_of(sched, client), u64_excess(c->budget_target, fit_charge(c)),
			    room_now(sched, c->gpu));
}

uint64_t fit_ahead(const struct sched *sched, uint32_t client)
{
	const struct sched_client *c = &sched->clients[client];
	uint64_t lack = u64_excess(fit_budget_target(sched, client), fit_charge(c));

	return part_of_lack(gpu_of(sched, client), u64_min(lack, c->memory.swapped),
			    capacity_now(sched, c->gpu, UINT64_MAX));
}
