/* SPDX-License-Identifier: Apache-2.0 */

#include "core/line.h"

#include "core/act.h"
#include "core/fit.h"
#include "core/heap.h"
#include "core/list.h"
#include "core/policy/policy.h"
#include "core/policy/rank.h"

#define AGE_MAX 4 /* at a time: a thousand may have come together */

void line_bound(const struct sched *sched, struct sched_client *c)
{
	bool wants = c->memory.wanted > 0 || c->memory.wanted_pinned > 0;

	if (!wants || c->line != SCHED_LINE_QUEUE)
		c->bound_ns = SCHED_NO_DEADLINE;
	else if (c->bound_ns == SCHED_NO_DEADLINE)
		c->bound_ns = sched->now_ns + sched->config.wait_bound_ns;
}

static void enter_queue(struct sched *sched, uint32_t client)
{
	struct sched_client *c = &sched->clients[client];

	policy_rank(sched, client);
	rank_insert(sched, client);
	if (policy_ages_ns(sched, client) != SCHED_NO_DEADLINE)
		heap_set(sched->clients, &sched->gpus[c->gpu].oldest, SCHED_NODE_AGE, client,
			 c->asked_ns);
	c->line = SCHED_LINE_QUEUE;
}

static void leave_queue(struct sched *sched, uint32_t client)
{
	struct sched_gpu *g = &sched->gpus[sched->clients[client].gpu];

	rank_remove(sched, client);
	heap_remove(sched->clients, &g->oldest, SCHED_NODE_AGE, client);
}

void line_push(struct sched *sched, uint32_t client)
{
	struct sched_client *c = &sched->clients[client];

	assert(c->line == SCHED_LINE_NONE);
	c->ticket = ++sched->gpus[c->gpu].n_tickets;
	c->asked_ns = sched->now_ns;
	c->is_aged = false;
	c->due_ns = SCHED_NO_DEADLINE;
	c->ready_ns = SCHED_NO_DEADLINE;
	line_push_again(sched, client);
}

void line_push_again(struct sched *sched, uint32_t client)
{
	struct sched_client *c = &sched->clients[client];

	assert(c->line == SCHED_LINE_NONE);
	enter_queue(sched, client);
	c->is_wait_told = false;
	line_bound(sched, c);
}

void line_rank(struct sched *sched, uint32_t client)
{
	if (sched->clients[client].line != SCHED_LINE_QUEUE)
		return;
	leave_queue(sched, client);
	enter_queue(sched, client);
}

uint64_t line_ages_ns(const struct sched *sched, uint32_t gpu)
{
	uint32_t oldest = sched->gpus[gpu].oldest;

	return oldest == SCHED_NONE ? SCHED_NO_DEADLINE : policy_ages_ns(sched, oldest);
}

void line_age(struct sched *sched, uint32_t gpu)
{
	for (int n = 0; n < AGE_MAX && line_ages_ns(sched, gpu) <= sched->now_ns; n++) {
		uint32_t client = sched->gpus[gpu].oldest;

		sched->clients[client].is_aged = true;
		line_rank(sched, client);
	}
}

void line_push_coming(struct sched *sched, uint32_t client)
{
	struct sched_client *c = &sched->clients[client];

	assert(c->line == SCHED_LINE_NONE);
	/* The resident wait for nobody else who comes; and are the last to be put back. */
	if (c->is_resident)
		list_push_front(sched->clients, &sched->gpus[c->gpu].coming, SCHED_LINK_LINE,
				client);
	else
		list_push_back(sched->clients, &sched->gpus[c->gpu].coming, SCHED_LINK_LINE,
			       client);
	c->line = SCHED_LINE_COMING;
}

void line_leave(struct sched *sched, uint32_t client)
{
	struct sched_client *c = &sched->clients[client];
	struct sched_gpu *g = &sched->gpus[c->gpu];

	switch (c->line) {
	case SCHED_LINE_NONE:
		return;
	case SCHED_LINE_QUEUE:
		leave_queue(sched, client);
		if (g->head == client)
			g->head = SCHED_NONE;
		break;
	case SCHED_LINE_COMING:
		list_remove(sched->clients, &g->coming, SCHED_LINK_LINE, client);
		if (g->restoring == client)
			g->restoring = SCHED_NONE;
		break;
	}
	c->line = SCHED_LINE_NONE;
	c->bound_ns = SCHED_NO_DEADLINE;
}

uint32_t line_position(const struct sched *sched, uint32_t client)
{
	return sched->clients[client].line == SCHED_LINE_QUEUE ? rank_position(sched, client) : 0;
}

enum sched_wait line_why(const struct sched *sched, uint32_t client)
{
	const struct sched_client *c = &sched->clients[client];

	if (c->line == SCHED_LINE_COMING)
		return SCHED_WAIT_SWAP;
	if (c->line == SCHED_LINE_NONE)
		return c->state == SCHED_CLIENT_WAITING ? SCHED_WAIT_STUCK : SCHED_WAIT_NOT;
	if (!fit_ever(sched, client))
		return SCHED_WAIT_STUCK;
	/* Its turn has come, and nothing is under way that could make room. */
	if (c->due_ns <= sched->now_ns && !fit_by_switch(sched, client) &&
	    sched->gpus[c->gpu].coming.n == 0)
		return SCHED_WAIT_STUCK;
	return fit_exclusive(sched) ? SCHED_WAIT_TURN : SCHED_WAIT_MEMORY;
}

void line_tell(struct sched *sched, uint32_t client)
{
	sched->clients[client].is_wait_told = true;
	act_emit(sched, (struct sched_action){.type = SCHED_ACTION_WAIT,
					      .client = client,
					      .bytes = fit_missing(sched, client),
					      .position = line_position(sched, client),
					      .why = line_why(sched, client)});
}
