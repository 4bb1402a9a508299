/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Gangs and sleepers (policy/sleeper.h).
 *
 * A gang that has slept comes before its usual turn: on all of its GPUs in one step, or on none.
 * Each GPU asks for what it asks of a single client, and its own account pays for the moves there.
 *
 * A gang that runs makes way for a sleeper, on all of its GPUs. They stand empty for a use of one
 * of them. So the account of each of them must have what the switch costs, and pays for the time
 * that the gang is off. An account gets moving_percent of the time in which the gang runs, so a
 * gang loses no more than that, on however many GPUs there are sleepers. Its GPUs are kept for it
 * meanwhile: else its other GPUs would have other turns, and it would wait for those.
 */

#include "core/early.h"
#include "core/fit.h"
#include "core/gang/gang_private.h"
#include "core/plan.h"
#include "core/policy/policy.h"
#include "core/policy/sleeper.h"
#include "core/queue.h"
#include "core/turn.h"
#include "core/u64.h"

static bool member_can_come_early(const struct sched *sched, uint32_t client)
{
	const struct sched_client *c = &sched->clients[client];
	const struct sched_gpu *g = &sched->gpus[c->gpu];
	uint64_t bytes;
	uint32_t n;

	if (gang_member_may_pass(sched, client))
		return true;
	bytes = gang_added_before(sched, client, &n);
	return !g->is_out && g->coming.n == 0 && c->waking == SCHED_WAKING_SOON &&
	       sleeper_is_below_share(sched, client) && early_may_pass(sched, client) &&
	       fit_by_switch_more(sched, client, bytes, n) && n < TURN_COMING_MAX;
}

bool gang_can_come_early(const struct sched *sched, uint32_t client)
{
	uint32_t gang = sched->clients[client].gang;

	if (gang_at(sched, gang)->is_lacking || gang_at(sched, gang)->is_yielding)
		return false;
	GANG_FOR_EACH(sched, gang, i)
	{
		const struct sched_client *c = &sched->clients[i];

		if (!gang_counts(c))
			continue;
		/* A member that computes for long makes the whole gang no sleeper. */
		if (!sleeper_is(sched, i) || gang_member_holds_up(c) ||
		    c->spared_ns == sched->now_ns)
			return false;
		if (c->state == SCHED_CLIENT_WAITING && !member_can_come_early(sched, i))
			return false;
	}
	return true;
}

uint64_t gang_early_ns(struct sched *sched, uint32_t client, uint64_t *ret_here_ns)
{
	uint64_t ready_ns = sched->now_ns;

	*ret_here_ns = sched->now_ns;
	GANG_FOR_EACH(sched, sched->clients[client].gang, i)
	{
		uint64_t bytes, member_ns;
		uint32_t n;

		if (!gang_member_waits(&sched->clients[i]))
			continue;
		if (gang_member_may_pass(sched, i)) {
			plan_beside(sched, i);
			continue;
		}
		bytes = gang_added_before(sched, i, &n);
		member_ns = plan_early_more(sched, i, bytes, n);
		ready_ns = u64_max(ready_ns, member_ns);
		if (sched->clients[i].gpu == sched->clients[client].gpu)
			*ret_here_ns = u64_max(*ret_here_ns, member_ns);
	}
	return ready_ns;
}

void gang_watch(struct sched *sched, uint32_t client, uint32_t gpu)
{
	GANG_FOR_EACH(sched, sched->clients[client].gang, i)
	{
		if (sched->clients[i].gpu != gpu)
			sched->gpus[sched->clients[i].gpu].watchers |= 1u << gpu;
	}
}

bool gang_may_stop_early(const struct sched *sched, uint32_t victim, uint32_t client)
{
	const struct sched_client *c = &sched->clients[client];
	uint32_t gang = sched->clients[victim].gang;

	/* A member that joins its own gang takes no turn from it. */
	if (gang == c->gang)
		return false;
	GANG_FOR_EACH(sched, gang, i)
	{
		const struct sched_client *v = &sched->clients[i];

		if (gang_counts(v) && v->state >= SCHED_CLIENT_INCOMING &&
		    (v->is_guest || v->is_not_preemptible || v->claim.priority > c->claim.priority))
			return false;
	}
	return true;
}

/* Others have their turn next on victim's GPU, or come there already. */
static bool member_is_awaited(const struct sched *sched, uint32_t victim, uint32_t client)
{
	const struct sched_gpu *g = &sched->gpus[sched->clients[victim].gpu];
	const struct sched_client *c = &sched->clients[client];
	bool is_own = g->head == client || (g->head != SCHED_NONE && c->gang != SCHED_NONE &&
					    sched->clients[g->head].gang == c->gang);

	if (g->coming.n > 0 || g->is_out)
		return true;
	if (g->head != SCHED_NONE && !is_own && sched->clients[g->head].due_ns <= sched->now_ns)
		return true;
	return g->queue.n > 0 && !policy_may_pass(sched, victim);
}

uint64_t gang_stops_early_ns(const struct sched *sched, uint32_t victim, uint32_t client,
			     uint64_t least_ns)
{
	uint64_t cost_ns = sched->clients[client].early_cost_ns, ready_ns = sched->now_ns;

	GANG_FOR_EACH(sched, sched->clients[victim].gang, i)
	{
		const struct sched_client *v = &sched->clients[i];

		if (!gang_counts(v) || v->state == SCHED_CLIENT_IDLE)
			continue;
		/* One that waits for memory had nothing of its turn yet. */
		if (v->state != SCHED_CLIENT_RUNNING || v->is_growing || v->is_called_off ||
		    member_is_awaited(sched, i, client))
			return SCHED_NO_DEADLINE;
		ready_ns = u64_max(ready_ns, v->turn_ns + least_ns);
		ready_ns = u64_max(ready_ns, sleeper_affords_ns(sched, v->gpu, cost_ns));
	}
	return ready_ns;
}

bool gang_comes_early(const struct sched *sched, uint32_t client)
{
	const struct sched_client *c = &sched->clients[client];

	if (sched_comes_early(c))
		return true;
	if (!gang_is_bound(sched, client) || c->state != SCHED_CLIENT_INCOMING)
		return false;
	GANG_FOR_EACH(sched, c->gang, i)
	{
		if (sched->clients[i].gpu == c->gpu && sched_comes_early(&sched->clients[i]))
			return true;
	}
	return false;
}

bool gang_is_displaced(const struct sched *sched, uint32_t client)
{
	if (!gang_is_bound(sched, client))
		return false;
	if (gang_at(sched, sched->clients[client].gang)->makes_way)
		return true;
	GANG_FOR_EACH(sched, sched->clients[client].gang, i)
	{
		if (gang_counts(&sched->clients[i]) && sched->clients[i].is_displaced)
			return true;
	}
	return false;
}

bool gang_comes_back(const struct sched *sched, uint32_t client)
{
	uint32_t gang = sched->clients[client].gang;

	if (gang_at(sched, gang)->is_lacking)
		return false;
	GANG_FOR_EACH(sched, gang, i)
	{
		const struct sched_client *c = &sched->clients[i];

		if (!gang_counts(c))
			continue;
		if (c->is_asking || sched->gpus[c->gpu].is_out)
			return false;
		if (c->state == SCHED_CLIENT_WAITING &&
		    (!c->is_displaced || !gang_member_is_able(sched, i) ||
		     (!c->is_called && !gang_member_is_first(sched, i))))
			return false;
	}
	return true;
}

bool gang_is_back(const struct sched *sched, uint32_t client)
{
	const struct sched_client *c = &sched->clients[client];

	if (!gang_is_bound(sched, client))
		return false;
	GANG_FOR_EACH(sched, c->gang, i)
	{
		const struct sched_client *other = &sched->clients[i];

		if (i != client && other->gpu == c->gpu && gang_counts(other) &&
		    other->is_displaced)
			return false;
	}
	return true;
}

void gang_lose_place(struct sched *sched, uint32_t client)
{
	GANG_FOR_EACH(sched, sched->clients[client].gang, i)
	{
		struct sched_client *c = &sched->clients[i];

		if (c->state != SCHED_CLIENT_WAITING || !c->is_displaced)
			continue;
		c->is_displaced = false;
		queue_rank(sched, i);
		sched->gpus[c->gpu].is_dirty = true;
	}
	gang_change(sched, client);
}
