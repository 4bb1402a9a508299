/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Victims in doubt. A client that lacked host memory when it was to give its bytes up may lack it
 * again. If it did, those whom the gang has stopped on its other GPUs would have stopped in vain,
 * and at each try. So it is asked alone, and the gang comes when it has stopped.
 */

#include "core/fit.h"
#include "core/gang/gang_private.h"
#include "core/plan.h"
#include "core/queue.h"
#include "core/stop.h"
#include "core/u64.h"

static bool is_in_doubt(const struct sched *sched, uint32_t client)
{
	/* Members of a gang are asked all at once. */
	return client != SCHED_NONE && sched->clients[client].n_short > 0 &&
	       !sched->clients[client].is_hung && !gang_is_bound(sched, client);
}

/* Of those on gpu that are idle, and of which bytes have to go; SCHED_NONE: none is in doubt. */
static uint32_t idle_in_doubt(const struct sched *sched, uint32_t gpu, uint64_t bytes)
{
	uint32_t i = sched->gpus[gpu].place[SCHED_PLACE_IDLE].first, n = 0;

	for (; i != SCHED_NONE && bytes > 0 && n < LINE_LOOK_AHEAD; n++) {
		if (is_in_doubt(sched, i))
			return i;
		bytes -= u64_min(bytes, fit_pageable(&sched->clients[i]));
		i = sched->clients[i].link[SCHED_LINK_PLACE].next;
	}
	return SCHED_NONE;
}

/* Bytes that those who wait on member's GPU before it will have on the card, and have not yet. */
static uint64_t charged_before(const struct sched *sched, uint32_t member)
{
	const struct sched_client *c = &sched->clients[member];
	uint64_t bytes = 0;

	GANG_FOR_EACH(sched, c->gang, i)
	{
		const struct sched_client *other = &sched->clients[i];

		if (i == member)
			break;
		if (other->gpu == c->gpu && gang_member_waits(other))
			bytes += u64_excess(fit_budget_target(sched, i), fit_charge(other));
	}
	return bytes;
}

/* true: one that has to go for member is in doubt, and is asked. */
static bool member_asks(struct sched *sched, uint32_t member)
{
	uint32_t gpu = sched->clients[member].gpu, idle, victim, n;
	uint64_t before = gang_added_before(sched, member, &n);
	uint64_t bytes = fit_to_evict_more(sched, gpu, member, charged_before(sched, member));

	idle = victim = idle_in_doubt(sched, gpu, bytes);
	if (idle == SCHED_NONE && !fit_beside_more(sched, member, before, n))
		victim = plan_in_doubt(sched, member, before, n);
	if (!is_in_doubt(sched, victim))
		return false;
	bytes = u64_min(bytes, fit_pageable(&sched->clients[victim]));
	sched->gpus[gpu].in_doubt = victim;
	if (idle != SCHED_NONE)
		stop_evict(sched, victim, bytes, SCHED_NONE);
	else
		stop_drop(sched, victim, bytes, SCHED_NONE);
	return true;
}

bool gang_asks_first(struct sched *sched, uint32_t client)
{
	GANG_FOR_EACH(sched, sched->clients[client].gang, i)
	{
		if (gang_member_waits(&sched->clients[i]) && member_asks(sched, i))
			return true;
	}
	return false;
}

bool gang_awaits_doubt(const struct sched *sched, uint32_t client)
{
	GANG_FOR_EACH(sched, sched->clients[client].gang, i)
	{
		uint32_t gpu = sched->clients[i].gpu, asked = sched->gpus[gpu].in_doubt;

		/* Its place may be another client's by now. */
		if (gang_member_waits(&sched->clients[i]) && is_in_doubt(sched, asked) &&
		    sched->clients[asked].gpu == gpu && sched_has_drop(&sched->clients[asked]))
			return true;
	}
	return false;
}
