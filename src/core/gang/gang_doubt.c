/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Victims in doubt. A client that lacked host memory when it was to give its bytes up may lack it
 * again. If it did, those whom the gang has stopped on its other GPUs would have stopped in vain,
 * and at each try. So it is asked alone, and the gang comes when it has stopped.
 */

#include "core/fit.h"
#include "core/gang/gang_private.h"
#include "core/plan.h"
#include "core/stop.h"
#include "core/u64.h"

static bool is_in_doubt(const struct sched *sched, uint32_t client)
{
	/* Members of a gang are asked all at once. */
	return client != SCHED_NONE && sched->clients[client].n_short > 0 &&
	       !gang_is_bound(sched, client);
}

/* true: the first one that has to go for member is in doubt, and is asked. */
static bool member_asks(struct sched *sched, uint32_t member)
{
	struct sched_gpu *g = &sched->gpus[sched->clients[member].gpu];
	uint32_t gpu = sched->clients[member].gpu, idle = g->place[SCHED_PLACE_IDLE].first;
	uint64_t bytes = fit_to_evict(sched, gpu, member);
	bool is_idle = bytes > 0 && idle != SCHED_NONE;
	uint32_t victim = is_idle ? idle : SCHED_NONE;

	if (!is_idle && !fit_beside(sched, member))
		victim = plan_victim(sched, gpu, member);
	if (!is_in_doubt(sched, victim))
		return false;
	bytes = u64_min(bytes, fit_pageable(&sched->clients[victim]));
	g->in_doubt = victim;
	if (is_idle)
		stop_evict(sched, victim, bytes, SCHED_NONE);
	else
		stop_drop(sched, victim, bytes, SCHED_NONE);
	return true;
}

bool gang_asks_first(struct sched *sched, uint32_t client)
{
	GANG_FOR_EACH(sched, sched->clients[client].gang, i)
	{
		const struct sched_client *c = &sched->clients[i];

		if (gang_member_waits(c) && !c->is_resident && member_asks(sched, i))
			return true;
	}
	return false;
}

bool gang_awaits_doubt(const struct sched *sched, uint32_t client)
{
	GANG_FOR_EACH(sched, sched->clients[client].gang, i)
	{
		uint32_t asked = sched->gpus[sched->clients[i].gpu].in_doubt;

		if (gang_member_waits(&sched->clients[i]) && is_in_doubt(sched, asked) &&
		    sched_has_drop(&sched->clients[asked]))
			return true;
	}
	return false;
}
