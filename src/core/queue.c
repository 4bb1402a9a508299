/* SPDX-License-Identifier: Apache-2.0 */

#include "core/queue.h"

#include "core/act.h"
#include "core/fit.h"
#include "core/gang/gang.h"
#include "core/heap.h"
#include "core/list.h"
#include "core/policy/owner.h"
#include "core/policy/policy.h"
#include "core/policy/rank.h"
#include "core/policy/sleeper.h"

#define AGE_MAX  4   /* at a time: a thousand may have come together */
#define ABLE_MAX 512 /* looks behind fronts that can not come, of all owners */

void queue_bound(const struct sched *sched, struct sched_client *c)
{
	bool wants = c->memory.wanted > 0 || c->memory.wanted_pinned > 0;

	if (!wants || c->line != SCHED_LINE_QUEUE)
		c->bound_ns = SCHED_NO_DEADLINE;
	else if (c->bound_ns == SCHED_NO_DEADLINE)
		c->bound_ns = sched->now_ns + sched->config.wait_bound_ns;
}

/* When client, in the queue or none, ages has changed, or how. */
static void queue_set_age(struct sched *sched, uint32_t client)
{
	uint64_t waits_ns;
	uint32_t *oldest;

	if (client == SCHED_NONE)
		return;
	oldest = &sched->gpus[sched->clients[client].gpu].oldest;
	waits_ns = policy_waits_ns(sched, client);
	if (waits_ns != SCHED_NO_DEADLINE)
		heap_set(sched->clients, oldest, SCHED_NODE_AGE, client, waits_ns);
	else
		heap_remove(sched->clients, oldest, SCHED_NODE_AGE, client);
}

static void queue_enter(struct sched *sched, uint32_t client)
{
	policy_rank(sched, client);
	queue_set_age(sched, owner_enter(sched, client));
	queue_set_age(sched, client);
	sched->clients[client].line = SCHED_LINE_QUEUE;
}

static void queue_exit(struct sched *sched, uint32_t client)
{
	struct sched_gpu *g = &sched->gpus[sched->clients[client].gpu];

	queue_set_age(sched, owner_exit(sched, client));
	heap_remove(sched->clients, &g->oldest, SCHED_NODE_AGE, client);
}

void queue_renew(struct sched *sched, uint32_t client)
{
	struct sched_client *c = &sched->clients[client];

	assert(c->line == SCHED_LINE_NONE);
	c->ticket = ++sched->gpus[c->gpu].n_tickets;
	c->asked_ns = sched->now_ns;
	c->is_aged = false;
	owner_wait(sched, client);
}

void queue_push(struct sched *sched, uint32_t client)
{
	queue_renew(sched, client);
	queue_push_kept(sched, client);
}

void queue_push_kept(struct sched *sched, uint32_t client)
{
	struct sched_client *c = &sched->clients[client];

	/* Those who run may be others than when it was the head. */
	c->due_ns = SCHED_NO_DEADLINE;
	c->ready_ns = SCHED_NO_DEADLINE;
	queue_push_again(sched, client);
	sleeper_wait(sched, client);
}

void queue_push_again(struct sched *sched, uint32_t client)
{
	struct sched_client *c = &sched->clients[client];

	assert(c->line == SCHED_LINE_NONE);
	queue_set_age(sched, owner_put_back(sched, client));
	queue_enter(sched, client);
	c->is_wait_told = false;
	queue_bound(sched, c);
}

void queue_unrank(struct sched *sched, uint32_t client)
{
	if (sched->clients[client].line == SCHED_LINE_QUEUE)
		queue_exit(sched, client);
}

void queue_rerank(struct sched *sched, uint32_t client)
{
	if (sched->clients[client].line == SCHED_LINE_QUEUE)
		queue_enter(sched, client);
}

void queue_rank(struct sched *sched, uint32_t client)
{
	queue_unrank(sched, client);
	queue_rerank(sched, client);
}

void queue_choose(struct sched *sched, uint32_t client, bool has_switched)
{
	struct sched_client *c = &sched->clients[client];

	/* A turn that goes on, or comes before it is due, is no new turn of its owner's. */
	if (c->state == SCHED_CLIENT_WAITING && (c->is_early || c->is_displaced)) {
		c->has_turn = false;
		return;
	}
	policy_choose(sched, client);
	queue_set_age(sched, owner_turn(sched, client, has_switched));
}

/*
 * A gang's members come by gang_head(), or beside all others. One that is called off is to stop,
 * and grows when it is back.
 */
static bool queue_is_able(const struct sched *sched, uint32_t client)
{
	const struct sched_client *c = &sched->clients[client];

	return !c->is_resting && !c->is_called_off && fit_ever(sched, client) &&
	       (c->state != SCHED_CLIENT_WAITING || !gang_is_bound(sched, client));
}

/*
 * The next in the queue would be another owner's: as long as others wait, those behind a first
 * one that can not come would never be first.
 */
uint32_t queue_able(const struct sched *sched, uint32_t client)
{
	const struct sched_client *c = &sched->clients[client];
	uint32_t n_owners = owner_n_waiting(sched, c->gpu), next = client;

	if (queue_is_able(sched, client))
		return client;
	if (owner_of(sched, c)->front != client || n_owners == 1)
		return SCHED_NONE;
	for (uint32_t n = 0; n <= ABLE_MAX / n_owners; n++) {
		next = owner_next(sched, next);
		if (next == SCHED_NONE || queue_is_able(sched, next))
			return next;
	}
	return SCHED_NONE;
}

uint64_t queue_ages_ns(const struct sched *sched, uint32_t gpu)
{
	uint32_t oldest = sched->gpus[gpu].oldest;

	return oldest == SCHED_NONE ? SCHED_NO_DEADLINE : policy_ages_ns(sched, oldest);
}

void queue_age(struct sched *sched, uint32_t gpu)
{
	for (int n = 0; n < AGE_MAX && queue_ages_ns(sched, gpu) <= sched->now_ns; n++) {
		uint32_t client = sched->gpus[gpu].oldest;

		policy_age(sched, client);
		queue_rank(sched, client);
	}
}

void queue_push_coming(struct sched *sched, uint32_t client)
{
	struct sched_client *c = &sched->clients[client];

	assert(c->line == SCHED_LINE_NONE);
	/* The resident wait for nobody else who comes; and are the last to be put back. */
	if (c->is_resident)
		list_push_front(LIST_SLOTS(sched->clients, SCHED_LINK_LINE),
				&sched->gpus[c->gpu].coming, client);
	else
		list_push_back(LIST_SLOTS(sched->clients, SCHED_LINK_LINE),
			       &sched->gpus[c->gpu].coming, client);
	c->line = SCHED_LINE_COMING;
}

void queue_leave(struct sched *sched, uint32_t client)
{
	struct sched_client *c = &sched->clients[client];
	struct sched_gpu *g = &sched->gpus[c->gpu];

	switch (c->line) {
	case SCHED_LINE_NONE:
		return;
	case SCHED_LINE_QUEUE:
		queue_exit(sched, client);
		sleeper_leave(sched, client, SCHED_WAKING_NOT);
		if (g->head == client)
			g->head = SCHED_NONE;
		break;
	case SCHED_LINE_COMING:
		list_remove(LIST_SLOTS(sched->clients, SCHED_LINK_LINE), &g->coming, client);
		if (g->restoring == client)
			g->restoring = SCHED_NONE;
		break;
	}
	c->line = SCHED_LINE_NONE;
	c->bound_ns = SCHED_NO_DEADLINE;
}

uint32_t queue_position(const struct sched *sched, uint32_t client)
{
	return sched->clients[client].line == SCHED_LINE_QUEUE ? rank_position(sched, client) : 0;
}

enum sched_wait queue_why(const struct sched *sched, uint32_t client)
{
	const struct sched_client *c = &sched->clients[client];
	uint32_t gpu;

	if (c->line == SCHED_LINE_COMING)
		return SCHED_WAIT_SWAP;
	if (c->line == SCHED_LINE_NONE)
		return c->state == SCHED_CLIENT_WAITING ? SCHED_WAIT_STUCK : SCHED_WAIT_NOT;
	if (gang_waits(sched, client, &gpu))
		return SCHED_WAIT_GANG;
	if (!fit_ever(sched, client))
		return SCHED_WAIT_STUCK;
	/* Its turn has come, and nothing is under way that could make room. */
	if (c->due_ns <= sched->now_ns && !fit_by_switch(sched, client) &&
	    sched->gpus[c->gpu].coming.n == 0)
		return SCHED_WAIT_STUCK;
	return fit_exclusive(sched, c->gpu) || fit_n_crowded(sched, client) > 0 ? SCHED_WAIT_TURN
										: SCHED_WAIT_MEMORY;
}

void queue_tell(struct sched *sched, uint32_t client)
{
	sched->clients[client].is_wait_told = true;
	act_emit(sched, (struct sched_action){.type = SCHED_ACTION_WAIT,
					      .client = client,
					      .bytes = fit_missing(sched, client),
					      .position = queue_position(sched, client),
					      .why = queue_why(sched, client)});
}
