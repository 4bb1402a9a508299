/* SPDX-License-Identifier: Apache-2.0 */

#include "core/early.h"

#include "core/fit.h"
#include "core/gang/gang.h"
#include "core/plan.h"
#include "core/policy/policy.h"
#include "core/policy/sleeper.h"
#include "core/turn.h"
#include "core/u64.h"

/* Sleepers that a decision looks at. */
#define EARLY_LOOKS 16

static bool is_of_one_gang(const struct sched *sched, uint32_t a, uint32_t b)
{
	uint32_t gang = sched->clients[a].gang;

	return gang != SCHED_NONE && gang == sched->clients[b].gang;
}

/* A client whose turn is due has waited for that. */
bool early_may_pass(const struct sched *sched, uint32_t client)
{
	const struct sched_client *c = &sched->clients[client];
	uint32_t head = sched->gpus[c->gpu].head, first = sched->gpus[c->gpu].queue.first;

	/* A gang that has made way waits on all of its GPUs: for one visit at a time. */
	if (sched->clients[first].is_displaced && gang_is_bound(sched, first) &&
	    !is_of_one_gang(sched, first, client))
		return false;
	if (head != SCHED_NONE && head != client && !is_of_one_gang(sched, head, client) &&
	    sched->clients[head].due_ns <= sched->now_ns)
		return false;
	return !c->is_resting && policy_may_pass(sched, client);
}

/* client is a sleeper that has woken, and may come before its usual turn. */
static bool early_is_able(const struct sched *sched, uint32_t client)
{
	uint32_t first = sched->gpus[sched->clients[client].gpu].queue.first;

	if (!early_may_pass(sched, client))
		return false;
	if (gang_is_bound(sched, client))
		return !gang_fits_beside(sched, client) && gang_can_come_early(sched, client);
	/* Beside all others it comes as everybody does; but not before one that is to be back. */
	if (fit_beside(sched, client))
		return first != client && sched->clients[first].is_displaced;
	return fit_by_switch(sched, client) && sched->clients[client].spared_ns != sched->now_ns;
}

/*
 * The first sleeper from here on that may come early, or here itself; those that have had their
 * share wait as others do. *n counts looks.
 */
static uint32_t early_next(struct sched *sched, uint32_t here, uint32_t *n)
{
	uint32_t next;

	for (uint32_t i = here; i != SCHED_NONE && *n < EARLY_LOOKS; ++*n) {
		next = sched->clients[i].link[SCHED_LINK_WOKEN].next;
		if (!sleeper_is_below_share(sched, i))
			sleeper_leave(sched, i, SCHED_WAKING_SHARE);
		else if (early_is_able(sched, i))
			return i;
		i = next;
	}
	return SCHED_NONE;
}

/* The displaced client is to be back soon, whoever passes it. */
void early_set_guest(struct sched *sched, uint32_t client)
{
	uint32_t first = sched->gpus[sched->clients[client].gpu].queue.first;

	if (first != client && sched->clients[first].is_displaced &&
	    !is_of_one_gang(sched, first, client))
		sched->clients[client].is_guest = true;
}

/* After gang_early_ns(): those members that come by a switch are early ones. */
static void admit_gang_early(struct sched *sched, uint32_t client)
{
	uint32_t gang = sched->clients[client].gang;

	for (uint32_t i = sched->clients[gang].gang_here.members.first; i != SCHED_NONE;
	     i = sched->clients[i].link[SCHED_LINK_GANG].next) {
		bool is_early = sched->clients[i].ends_ns > 0;

		if (sched->clients[i].state != SCHED_CLIENT_WAITING || sched->clients[i].is_hung)
			continue;
		if (is_early)
			sleeper_come(sched, i);
		else
			early_set_guest(sched, i);
		turn_choose(sched, i, is_early);
	}
	gang_share_ends(sched, client);
}

static void admit_sleeper(struct sched *sched, uint32_t client)
{
	if (gang_is_bound(sched, client)) {
		admit_gang_early(sched, client);
		return;
	}
	sleeper_come(sched, client);
	turn_choose(sched, client, true);
}

/*
 * Sleepers come in the order in which they woke. One that waits for this GPU keeps back those
 * behind it; a gang that waits only for another GPU does not.
 */
bool early_admit(struct sched *sched, uint32_t gpu)
{
	struct sched_gpu *g = &sched->gpus[gpu];
	uint32_t n = 0;

	g->early_ns = SCHED_NO_DEADLINE;
	if (!sleeper_is_on(sched) || g->woken.n == 0 || g->coming.n > 0)
		return false;
	for (uint32_t i = early_next(sched, g->woken.first, &n); i != SCHED_NONE; n++) {
		uint64_t here_ns, ready_ns;

		if (gang_is_bound(sched, i))
			ready_ns = gang_early_ns(sched, i, &here_ns);
		else
			ready_ns = here_ns = plan_early(sched, i);
		if (ready_ns <= sched->now_ns) {
			admit_sleeper(sched, i);
			return true;
		}
		g->early_ns = u64_min(g->early_ns, ready_ns);
		if (here_ns > sched->now_ns)
			return false;
		i = early_next(sched, sched->clients[i].link[SCHED_LINK_WOKEN].next, &n);
	}
	return false;
}
