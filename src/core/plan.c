/* SPDX-License-Identifier: Apache-2.0 */

#include "core/plan.h"

#include "core/act.h"
#include "core/fit.h"
#include "core/gang/gang.h"
#include "core/notice.h"
#include "core/policy/policy.h"
#include "core/policy/quantum.h"
#include "core/policy/rank.h"
#include "core/policy/sleeper.h"
#include "core/queue.h"
#include "core/u64.h"

#define ANYBODY UINT64_MAX /* as a time by which turns began */

/*
 * The next place to look for victims after place; SCHED_PLACE_NONE: no more. is_crowded: more are
 * on the GPU than may be.
 */
static enum sched_place plan_next_place(const struct sched *sched, enum sched_place place,
					bool is_crowded)
{
	if (place == SCHED_PLACE_NONE)
		return SCHED_PLACE_BLOCKED;
	if (place == SCHED_PLACE_BLOCKED && sched->config.anti_thrash)
		return SCHED_PLACE_RUNNING_LOW;
	if (place >= SCHED_PLACE_RUNNING_LOW && place < SCHED_PLACE_RUNNING_CRITICAL)
		return place + 1;
	/* Its memory is no help, but it is not its turn. */
	if (place == SCHED_PLACE_RUNNING_CRITICAL && is_crowded)
		return SCHED_PLACE_BARE;
	return SCHED_PLACE_NONE;
}

struct plan {
	uint32_t head;
	uint32_t n_crowded; /* so many must still stop, whatever is missing */
	bool is_rough;      /* not every victim was looked at */
	uint32_t in_doubt;  /* the first victim that has failed for want of host memory */
	uint64_t missing;   /* bytes of load still too much */
	uint64_t out;       /* bytes to move */
	uint64_t turn_ns;   /* a usual turn */
	uint64_t due_ns;    /* the victims' turns are over */
	uint64_t ready_ns;  /* all have had something of theirs */
};

/* The part of a turn that nobody can take from a victim in this place. */
static uint64_t plan_least_turn(enum sched_place place, uint64_t turn_ns)
{
	return place == SCHED_PLACE_BLOCKED ? turn_ns : turn_ns / POLICY_TURN_PART;
}

static void plan_turn(const struct sched *sched, struct plan *plan, enum sched_place place,
		      uint32_t victim)
{
	uint64_t least_ns = sched->clients[victim].turn_ns + plan_least_turn(place, plan->turn_ns);

	if (sched->clients[plan->head].is_resident)
		return;
	plan->ready_ns = u64_max(plan->ready_ns, least_ns);
	/* A client that waits for memory makes no use of more than that. */
	plan->due_ns = u64_max(plan->due_ns,
			       place == SCHED_PLACE_BLOCKED
				       ? least_ns
				       : policy_end(sched, victim, plan->head, plan->turn_ns));
}

/* Takes victims of one place in order until nothing is missing. */
static void plan_place(struct sched *sched, struct plan *plan, enum sched_place place, bool prepare)
{
	const struct list *list = &sched->gpus[sched->clients[plan->head].gpu].place[place];
	uint32_t n = 0;

	for (uint32_t i = list->first;
	     i != SCHED_NONE && (plan->missing > 0 || plan->n_crowded > 0);
	     i = sched->clients[i].link[SCHED_LINK_PLACE].next) {
		const struct sched_client *victim = &sched->clients[i];

		if (i == plan->head)
			continue;
		if (plan->in_doubt == SCHED_NONE && victim->n_short > 0)
			plan->in_doubt = i;
		if (prepare && act_has_room(sched))
			notice_tell(sched, i, plan->out, sched->clients[plan->head].ready_ns);
		plan->missing -= u64_min(plan->missing, fit_pageable(victim));
		plan->n_crowded -= plan->n_crowded > 0;
		/* So many: assume that the youngest turn is among them. */
		if (++n == LINE_LOOK_AHEAD) {
			i = list->last;
			plan->missing = 0;
			plan->n_crowded = 0;
			plan->is_rough = true;
		}
		plan_turn(sched, plan, place, i);
	}
}

/*
 * The latest end of the turns of head's victims, now at the earliest, if n others come before it,
 * who add bytes. prepare: tells them.
 */
static struct plan plan_victims(struct sched *sched, uint32_t head, uint64_t bytes, uint32_t n,
				bool prepare)
{
	const struct sched_client *c = &sched->clients[head];
	struct plan plan = {
		.head = head,
		.n_crowded = fit_n_crowded_more(sched, head, n),
		.missing = fit_missing_more(sched, head, bytes),
		.out = fit_to_evict(sched, c->gpu, head),
		.in_doubt = SCHED_NONE,
		.due_ns = sched->now_ns,
		.ready_ns = sched->now_ns,
	};

	plan.turn_ns = quantum_turn(sched, c->gpu, plan.out + c->memory.swapped);
	for (enum sched_place place = plan_next_place(sched, SCHED_PLACE_NONE, false);
	     place != SCHED_PLACE_NONE; place = plan_next_place(sched, place, plan.n_crowded > 0))
		plan_place(sched, &plan, place, prepare);
	return plan;
}

/* Turns that began before it have lasted for span_ns now. */
static uint64_t plan_begun_before(const struct sched *sched, uint64_t span_ns)
{
	return sched->now_ns >= span_ns ? sched->now_ns - span_ns + 1 : 0;
}

bool plan_head(struct sched *sched, uint32_t head)
{
	return plan_head_more(sched, head, 0, 0);
}

bool plan_head_more(struct sched *sched, uint32_t head, uint64_t bytes, uint32_t n)
{
	struct sched_client *c = &sched->clients[head];
	struct plan plan = plan_victims(sched, head, bytes, n, false);

	c->due_ns = u64_min(c->due_ns, plan.due_ns);
	c->ready_ns = u64_max(c->due_ns, plan.ready_ns);
	/* Chosen a moment ago, and there was nobody to stop: not again in the same moment. */
	if (c->spared_ns == sched->now_ns)
		c->ready_ns = u64_max(c->ready_ns, sched->now_ns + 1);
	if (c->ready_ns > sched->now_ns)
		return false;
	plan_beside(sched, head);
	if (!c->is_resident) {
		c->ends_ns = plan_begun_before(
			sched, plan_least_turn(SCHED_PLACE_RUNNING_LOW, plan.turn_ns));
		c->ends_blocked_ns = plan_begun_before(
			sched, plan_least_turn(SCHED_PLACE_BLOCKED, plan.turn_ns));
	}
	if (plan.is_rough)
		c->ends_ns = c->ends_blocked_ns = ANYBODY;
	return true;
}

/*
 * A guest has a short turn already, and a higher class goes first. A gang that has such a member
 * goes on, too.
 */
static bool plan_may_stop_early(const struct sched *sched, uint32_t victim, uint32_t client)
{
	const struct sched_client *v = &sched->clients[victim];

	if (gang_is_bound(sched, victim))
		return gang_may_stop_early(sched, victim, client);
	return !v->is_guest && v->claim.priority <= sched->clients[client].claim.priority;
}

/* The part of a turn that a sleeper leaves to others; switches have a bound of their own. */
static uint64_t plan_least_early(uint64_t turn_ns)
{
	return u64_min(turn_ns / POLICY_TURN_PART, SLEEPER_USE_NS / 2);
}

/* The victims of one place, in order. false: one of them must not be stopped early. */
static bool plan_place_early(struct sched *sched, struct plan *plan, enum sched_place place)
{
	const struct sched_client *head = &sched->clients[plan->head];
	const struct list *list = &sched->gpus[head->gpu].place[place];
	uint32_t n = 0;

	for (uint32_t i = list->first;
	     i != SCHED_NONE && (plan->missing > 0 || plan->n_crowded > 0);
	     i = sched->clients[i].link[SCHED_LINK_PLACE].next) {
		const struct sched_client *victim = &sched->clients[i];

		if (gang_is_bound(sched, i))
			gang_watch(sched, i, head->gpu);
		if (++n > LINE_LOOK_AHEAD || !plan_may_stop_early(sched, i, plan->head))
			return false;
		plan->missing -= u64_min(plan->missing, fit_pageable(victim));
		plan->n_crowded -= plan->n_crowded > 0;
		plan->ready_ns =
			u64_max(plan->ready_ns, victim->turn_ns + plan_least_early(plan->turn_ns));
		if (gang_is_bound(sched, i))
			plan->ready_ns =
				u64_max(plan->ready_ns,
					gang_stops_early_ns(sched, i, plan->head,
							    plan_least_early(plan->turn_ns)));
	}
	return true;
}

uint64_t plan_early(struct sched *sched, uint32_t client)
{
	return plan_early_more(sched, client, 0, 0);
}

uint64_t plan_early_more(struct sched *sched, uint32_t client, uint64_t bytes, uint32_t n)
{
	struct sched_client *c = &sched->clients[client];
	struct plan plan = {
		.head = client,
		.n_crowded = fit_n_crowded_more(sched, client, n),
		.missing = fit_missing_more(sched, client, bytes),
		.out = fit_to_evict(sched, c->gpu, client),
	};

	plan.turn_ns = quantum_turn(sched, c->gpu, plan.out + c->memory.swapped);
	/* Both ways at once, and all of it back. */
	c->early_cost_ns = 2 * quantum_swap(sched, c->gpu, u64_max(plan.out, c->memory.swapped));
	plan.ready_ns = sleeper_affords_ns(sched, c->gpu, c->early_cost_ns);
	for (enum sched_place place = SCHED_PLACE_RUNNING_LOW; place != SCHED_PLACE_NONE;
	     place = plan_next_place(sched, place, plan.n_crowded > 0)) {
		if (!plan_place_early(sched, &plan, place))
			return SCHED_NO_DEADLINE;
	}
	if (plan.missing > 0 || plan.n_crowded > 0 || plan.ready_ns == SCHED_NO_DEADLINE)
		return SCHED_NO_DEADLINE;
	c->ends_ns = plan_begun_before(sched, plan_least_early(plan.turn_ns));
	c->ends_blocked_ns = 0;
	return plan.ready_ns;
}

uint32_t plan_in_doubt(struct sched *sched, uint32_t head, uint64_t bytes, uint32_t n)
{
	return plan_victims(sched, head, bytes, n, false).in_doubt;
}

void plan_prepare(struct sched *sched, uint32_t head)
{
	(void)plan_victims(sched, head, 0, 0, true);
}

void plan_beside(struct sched *sched, uint32_t client)
{
	struct sched_client *c = &sched->clients[client];

	c->ends_ns = c->is_resident ? ANYBODY : 0;
	c->ends_blocked_ns = c->ends_ns;
}

/* a rather than b is to get what it lacks. */
static bool plan_is_rather(const struct sched *sched, uint32_t a, uint32_t b)
{
	const struct sched_client *x = &sched->clients[a], *y = &sched->clients[b];

	if (x->level != y->level)
		return x->level > y->level;
	if (x->turn_ns != y->turn_ns)
		return x->turn_ns > y->turn_ns;
	return rank_position(sched, a) < rank_position(sched, b);
}

uint32_t plan_stalled(const struct sched *sched, uint32_t gpu)
{
	static const enum sched_place places[] = {SCHED_PLACE_BLOCKED, SCHED_PLACE_BARE,
						  SCHED_PLACE_KEPT};
	const struct sched_gpu *g = &sched->gpus[gpu];
	uint32_t best = SCHED_NONE;

	if (g->sums.n_blocked != g->sums.n_on || g->sums.n_blocked != g->sums.n_holding)
		return SCHED_NONE;
	for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
		uint32_t n = 0;

		for (uint32_t j = g->place[places[i]].last; j != SCHED_NONE && n < LINE_LOOK_AHEAD;
		     j = sched->clients[j].link[SCHED_LINK_PLACE].prev, n++) {
			if (sched->clients[j].counted.n_blocked > 0 &&
			    !sched->clients[j].is_called_off && fit_by_switch(sched, j) &&
			    (best == SCHED_NONE || plan_is_rather(sched, j, best)))
				best = j;
		}
	}
	return best;
}

void plan_stall(struct sched *sched, uint32_t client)
{
	struct sched_client *c = &sched->clients[client];

	c->ends_ns = 0;
	c->ends_blocked_ns = ANYBODY;
}

/*
 * Turns that began before it can be ended for client, if they are of those that wait for memory. A
 * stall allows it as long as nobody computes.
 */
static uint64_t plan_ends_blocked(const struct sched *sched, const struct sched_gpu *g,
				  uint32_t client)
{
	const struct sched_client *c = &sched->clients[client];
	bool is_anybody_free = g->sums.n_on - g->sums.n_blocked > g->coming.n;

	return c->ends_ns != ANYBODY && c->ends_blocked_ns == ANYBODY && is_anybody_free
		       ? 0
		       : c->ends_blocked_ns;
}

uint32_t plan_victim(const struct sched *sched, uint32_t gpu, uint32_t client)
{
	const struct sched_gpu *g = &sched->gpus[gpu];
	bool is_crowded = g->sums.n_on > fit_degree(sched, gpu);

	for (enum sched_place place = plan_next_place(sched, SCHED_PLACE_NONE, is_crowded);
	     place != SCHED_PLACE_NONE; place = plan_next_place(sched, place, is_crowded)) {
		uint32_t victim = g->place[place].first;
		uint64_t ends_ns = ANYBODY;

		if (victim == SCHED_NONE)
			continue;
		if (client != SCHED_NONE)
			ends_ns = place == SCHED_PLACE_BLOCKED ? plan_ends_blocked(sched, g, client)
							       : sched->clients[client].ends_ns;
		/* One without memory may be part of a stall, too. */
		if (client != SCHED_NONE && place == SCHED_PLACE_BARE &&
		    sched->clients[victim].is_growing)
			ends_ns = u64_max(ends_ns, plan_ends_blocked(sched, g, client));
		if (client != SCHED_NONE && gang_comes_early(sched, client) &&
		    !plan_may_stop_early(sched, victim, client))
			continue;
		if (sched->clients[victim].turn_ns < ends_ns)
			return victim;
	}
	return SCHED_NONE;
}
