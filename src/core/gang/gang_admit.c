/* SPDX-License-Identifier: Apache-2.0 */

/*
 * When a gang gets its GPUs. Two gangs of which each holds what the other one needs would wait for
 * ever. So a gang gets all of its GPUs in one step, or none:
 *
 * 1. It is called on each GPU where its turn has come. There others go on without it.
 * 2. Called on all of them, it is due. Due gangs stand in one line. The first one that wants a GPU
 *    is next there, if no gang before it wants another one of its GPUs.
 * 3. It is chosen when its victims can be stopped on all of its GPUs.
 */

#include "core/fit.h"
#include "core/gang/gang_private.h"
#include "core/grant.h"
#include "core/list.h"
#include "core/plan.h"
#include "core/queue.h"
#include "core/turn.h"
#include "core/u64.h"

#include <assert.h>

#define GANG_SLOTS(clients) ((struct list_slots){&(clients)->gang_here.due, sizeof(*(clients))})

_Static_assert(SCHED_GPUS_MAX <= 32, "struct sched_gang::gpus");

uint64_t gang_added_before(const struct sched *sched, uint32_t client, uint32_t *ret_n)
{
	const struct sched_client *c = &sched->clients[client];
	bool is_behind = false;
	uint64_t bytes = 0;

	*ret_n = 0;
	GANG_FOR_EACH(sched, c->gang, i)
	{
		const struct sched_client *other = &sched->clients[i];

		is_behind = is_behind || i == client;
		if (i == client || other->gpu != c->gpu || !gang_member_waits(other))
			continue;
		/* As queue_push_coming() has it: critical members first, and the last of them. */
		if (other->is_resident ? c->is_resident && !is_behind : c->is_resident || is_behind)
			continue;
		bytes += fit_load_added(sched, i);
		++*ret_n;
	}
	return bytes;
}

bool gang_member_is_able(const struct sched *sched, uint32_t client)
{
	const struct sched_client *c = &sched->clients[client];
	uint32_t n;
	uint64_t bytes = gang_added_before(sched, client, &n);

	return !c->is_resting && !sched->gpus[c->gpu].is_out &&
	       fit_ever_more(sched, client, bytes, n);
}

/* The GPUs of those that wait. 0: nobody does, or it cannot come, or not all are called. */
static uint32_t gang_gpus(const struct sched *sched, uint32_t gang, bool must_be_called)
{
	const struct sched_gang *g = gang_at(sched, gang);
	uint32_t gpus = 0;

	if (!g->is_bound || g->is_lacking || !g->is_off)
		return 0;
	GANG_FOR_EACH(sched, gang, i)
	{
		const struct sched_client *c = &sched->clients[i];

		if (!gang_member_waits(c))
			continue;
		if (!gang_member_is_able(sched, i) || (must_be_called && !c->is_called))
			return 0;
		gpus |= 1u << c->gpu;
	}
	return gpus;
}

/* Its place among due gangs: critical ones, then those whose turn goes on, then all others. */
static uint32_t gang_due_band(const struct sched *sched, uint32_t gang)
{
	uint32_t band = 2;

	GANG_FOR_EACH(sched, gang, i)
	{
		const struct sched_client *c = &sched->clients[i];

		if (gang_member_waits(c) && c->is_resident)
			return 0;
		if (gang_member_waits(c) && c->is_displaced)
			band = 1;
	}
	return band;
}

/* Behind those that came before. */
static void gang_enter_due(struct sched *sched, uint32_t gang)
{
	uint32_t before = sched->due.first, band = gang_due_band(sched, gang);

	while (before != LIST_END && gang_due_band(sched, before) <= band)
		before = gang_at(sched, before)->due.next;
	if (before == LIST_END)
		list_push_back(GANG_SLOTS(sched->clients), &sched->due, gang);
	else
		list_insert(GANG_SLOTS(sched->clients), &sched->due, gang, before);
}

static void gang_look_again(struct sched *sched, uint32_t gpus)
{
	for (uint32_t gpu = 0; gpu < SCHED_GPUS_MAX; gpu++) {
		if (gpus & 1u << gpu)
			sched->gpus[gpu].is_dirty = true;
	}
}

void gang_set_due(struct sched *sched, uint32_t gang)
{
	struct sched_gang *g = gang_at(sched, gang);
	uint32_t gpus = gang_gpus(sched, gang, true), before = g->gpus;

	if (gpus == before)
		return;
	if (g->is_due)
		list_remove(GANG_SLOTS(sched->clients), &sched->due, gang);
	g->gpus = gpus;
	g->is_due = gpus != 0;
	if (g->is_due)
		gang_enter_due(sched, gang);
	/* The next gang may be another one on any GPU that some due gang wants. */
	gang_mark(sched, gang);
	gang_look_again(sched, gpus | before);
	for (uint32_t i = sched->due.first; i != LIST_END; i = gang_at(sched, i)->due.next)
		gang_look_again(sched, gang_at(sched, i)->gpus);
}

bool gang_member_is_first(const struct sched *sched, uint32_t client)
{
	uint32_t n = 0;

	for (uint32_t i = sched->gpus[sched->clients[client].gpu].queue.first;
	     i != SCHED_NONE && n < LINE_LOOK_AHEAD; i = turn_next_in_line(sched, i), n++) {
		if (i == client)
			return true;
		if (!gang_is_bound(sched, i) && queue_able(sched, i) != SCHED_NONE)
			return false;
	}
	return false;
}

bool gang_call(struct sched *sched, uint32_t client)
{
	uint32_t gang = sched->clients[client].gang;
	bool was_due = gang_at(sched, gang)->is_due;

	/* Others may have pinned memory since it was counted, or let some go. */
	gang_mark(sched, gang);
	if (gang_gpus(sched, gang, false) == 0)
		return false;
	GANG_FOR_EACH(sched, gang, i)
	{
		struct sched_client *c = &sched->clients[i];

		if (gang_member_waits(c) && !c->is_called)
			c->is_called = i == client || gang_member_is_first(sched, i);
	}
	gang_set_due(sched, gang);
	return !was_due && gang_at(sched, gang)->is_due;
}

static uint32_t gang_first(const struct sched *sched, uint32_t gpu)
{
	uint32_t taken = 0;

	for (uint32_t gang = sched->due.first; gang != LIST_END;
	     gang = gang_at(sched, gang)->due.next) {
		uint32_t gpus = gang_at(sched, gang)->gpus;

		if ((gpus & 1u << gpu) && (gpus & taken))
			return SCHED_NONE;
		taken |= gpus;
		if (!(gpus & 1u << gpu))
			continue;
		GANG_FOR_EACH(sched, gang, i)
		{
			if (sched->clients[i].gpu == gpu && gang_member_waits(&sched->clients[i]))
				return i;
		}
		return SCHED_NONE;
	}
	return SCHED_NONE;
}

uint32_t gang_head(struct sched *sched, uint32_t gpu)
{
	uint32_t head = gang_first(sched, gpu), gang;

	/* It cannot come any more: others have pinned memory in its way, or a GPU is out. */
	while (head != SCHED_NONE && gang_gpus(sched, sched->clients[head].gang, true) == 0) {
		gang = sched->clients[head].gang;
		gang_set_due(sched, gang);
		head = gang_first(sched, gpu);
	}
	return head;
}

/* A critical client that is not of the gang, and waits for one stop. */
static bool is_behind_critical(const struct sched *sched, uint32_t client)
{
	const struct sched_client *c = &sched->clients[client];
	uint32_t first = sched->gpus[c->gpu].queue.first;

	return first != SCHED_NONE && sched->clients[first].is_resident &&
	       sched->clients[first].gang != c->gang && queue_able(sched, first) == first;
}

bool gang_can_switch(struct sched *sched, uint32_t client)
{
	uint32_t gang = sched->clients[client].gang;
	bool can = true;

	GANG_FOR_EACH(sched, gang, i)
	{
		const struct sched_client *c = &sched->clients[i];
		uint64_t bytes;
		uint32_t n;

		if (!gang_member_waits(c))
			continue;
		bytes = gang_added_before(sched, i, &n);
		/* Each of them is planned, since each look brings its times up to date. */
		can = fit_by_switch_more(sched, i, bytes, n) &&
		      plan_head_more(sched, i, bytes, n) && can &&
		      sched->gpus[c->gpu].coming.n < TURN_COMING_MAX - n &&
		      !is_behind_critical(sched, i);
	}
	return can;
}

void gang_share_ends(struct sched *sched, uint32_t client)
{
	uint64_t ends_ns[SCHED_GPUS_MAX] = {0}, ends_blocked_ns[SCHED_GPUS_MAX] = {0};
	uint32_t gang = sched->clients[client].gang;

	GANG_FOR_EACH(sched, gang, i)
	{
		const struct sched_client *c = &sched->clients[i];

		/* Critical ones end everybody's turn; they come first, and the others need no more.
		 */
		if (c->state != SCHED_CLIENT_INCOMING || c->is_resident)
			continue;
		ends_ns[c->gpu] = u64_max(ends_ns[c->gpu], c->ends_ns);
		ends_blocked_ns[c->gpu] = u64_max(ends_blocked_ns[c->gpu], c->ends_blocked_ns);
	}
	GANG_FOR_EACH(sched, gang, i)
	{
		struct sched_client *c = &sched->clients[i];

		if (c->state != SCHED_CLIENT_INCOMING || c->is_resident)
			continue;
		c->ends_ns = ends_ns[c->gpu];
		c->ends_blocked_ns = ends_blocked_ns[c->gpu];
	}
}

bool gang_member_may_pass(const struct sched *sched, uint32_t client)
{
	const struct sched_client *c = &sched->clients[client];
	const struct sched_gpu *g = &sched->gpus[c->gpu];
	bool is_own = g->head != SCHED_NONE && sched->clients[g->head].gang == c->gang;
	uint64_t bytes;
	uint32_t n;

	bytes = gang_added_before(sched, client, &n);
	if (!gang_member_is_able(sched, client) || g->coming.n + n >= TURN_PASSERS_MAX ||
	    !fit_beside_more(sched, client, bytes, n))
		return false;
	return is_own || !turn_head_is_held_up(sched, g->head);
}

bool gang_fits_beside(const struct sched *sched, uint32_t client)
{
	uint32_t gang = sched->clients[client].gang;

	if (gang_at(sched, gang)->is_lacking || gang_at(sched, gang)->is_yielding)
		return false;
	GANG_FOR_EACH(sched, gang, i)
	{
		const struct sched_client *c = &sched->clients[i];

		if (!gang_counts(c))
			continue;
		if (gang_member_holds_up(c))
			return false;
		if (c->state == SCHED_CLIENT_WAITING &&
		    (c->spared_ns == sched->now_ns || !gang_member_may_pass(sched, i)))
			return false;
	}
	return true;
}

/* Nobody is on the way there, and not all of gang's members can come by a switch. */
static bool gang_is_jammed_on(const struct sched *sched, uint32_t gang, uint32_t gpu)
{
	if (sched->gpus[gpu].coming.n > 0)
		return false;
	GANG_FOR_EACH(sched, gang, i)
	{
		const struct sched_client *c = &sched->clients[i];
		uint64_t bytes;
		uint32_t n;

		if (!gang_member_waits(c) || c->gpu != gpu)
			continue;
		bytes = gang_added_before(sched, i, &n);
		if (!fit_by_switch_more(sched, i, bytes, n))
			return true;
	}
	return false;
}

bool gang_update_jam(struct sched *sched, uint32_t gpu)
{
	struct sched_gpu *g = &sched->gpus[gpu];
	uint32_t jammed = SCHED_NONE, before = g->jammed;

	if (g->head != SCHED_NONE && gang_is_bound(sched, g->head) &&
	    gang_is_jammed_on(sched, sched->clients[g->head].gang, gpu))
		jammed = sched->clients[g->head].gang;
	if (jammed == before)
		return false;
	g->jammed = jammed;
	if (before != SCHED_NONE)
		gang_look_at_gpus(sched, before);
	if (jammed != SCHED_NONE)
		gang_look_at_gpus(sched, jammed);
	return true;
}

bool gang_is_jammed(const struct sched *sched, uint32_t client)
{
	uint32_t gang = sched->clients[client].gang;

	GANG_FOR_EACH(sched, gang, i)
	{
		const struct sched_client *c = &sched->clients[i];

		if (gang_member_waits(c) && sched->gpus[c->gpu].jammed == gang)
			return true;
	}
	return false;
}

bool gang_holds_up(const struct sched *sched, uint32_t client)
{
	GANG_FOR_EACH(sched, sched->clients[client].gang, i)
	{
		const struct sched_client *c = &sched->clients[i];

		if (gang_member_waits(c) && c->due_ns > sched->now_ns)
			return false;
	}
	return true;
}

void gang_passed(struct sched *sched, uint32_t client)
{
	if (!gang_is_bound(sched, client))
		return;
	gang_look_at_gpus(sched, sched->clients[client].gang);
	gang_change(sched, client);
}

bool gang_is_ready(const struct sched *sched, uint32_t client)
{
	/* The others have gone meanwhile, or are each for itself by now. */
	if (!gang_is_bound(sched, client))
		return !grant_is_barred(sched, client);
	if (gang_at(sched, sched->clients[client].gang)->is_lacking)
		return false;
	GANG_FOR_EACH(sched, sched->clients[client].gang, i)
	{
		const struct sched_client *c = &sched->clients[i];

		if (!gang_counts(c))
			continue;
		if (c->state == SCHED_CLIENT_WAITING || c->state == SCHED_CLIENT_STOPPING)
			return false;
		if (c->state == SCHED_CLIENT_INCOMING &&
		    (!c->is_ready || grant_is_barred(sched, i)))
			return false;
	}
	return true;
}

/*
 * No member is called before this one is resumed, or its GPU is back. An idle member on a GPU that
 * is out holds nobody up.
 */
static bool member_bars_all(const struct sched *sched, const struct sched_client *c)
{
	return gang_counts(c) &&
	       (c->is_asking || (sched->gpus[c->gpu].is_out && c->state != SCHED_CLIENT_IDLE));
}

/* Its turn has not come on its GPU, or has come and waits for a stop. */
static bool member_is_in_the_way(const struct sched *sched, const struct sched_client *c)
{
	return gang_member_waits(c) &&
	       (!c->is_called || !fit_ever(sched, (uint32_t)(c - sched->clients)) ||
		c->due_ns > sched->now_ns || c->ready_ns > sched->now_ns);
}

bool gang_waits(const struct sched *sched, uint32_t client, uint32_t *ret_gpu)
{
	const struct sched_client *c = &sched->clients[client];

	*ret_gpu = SCHED_NONE;
	if (!gang_is_bound(sched, client) || c->line != SCHED_LINE_QUEUE ||
	    c->state != SCHED_CLIENT_WAITING)
		return false;
	if (gang_at(sched, c->gang)->is_lacking)
		return true;
	if (!fit_ever(sched, client))
		return false;
	GANG_FOR_EACH(sched, c->gang, i)
	{
		if (i == client || !member_bars_all(sched, &sched->clients[i]))
			continue;
		*ret_gpu = sched->clients[i].gpu;
		return true;
	}
	if (!c->is_called)
		return false;
	GANG_FOR_EACH(sched, c->gang, i)
	{
		const struct sched_client *other = &sched->clients[i];

		if (other->gpu == c->gpu || !member_is_in_the_way(sched, other))
			continue;
		*ret_gpu = other->gpu;
		return true;
	}
	return false;
}
