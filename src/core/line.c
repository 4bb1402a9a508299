/* SPDX-License-Identifier: Apache-2.0 */

#include "core/line.h"

#include "core/act.h"
#include "core/fit.h"
#include "core/list.h"

#define TICKET_MIDDLE (1ull << 62)

void line_bound(const struct sched *sched, struct sched_client *c)
{
	bool wants = c->memory.wanted > 0 || c->memory.wanted_pinned > 0;

	if (!wants || c->line != SCHED_LINE_QUEUE)
		c->bound_ns = SCHED_NO_DEADLINE;
	else if (c->bound_ns == SCHED_NO_DEADLINE)
		c->bound_ns = sched->now_ns + sched->config.wait_bound_ns;
}

static void enter_queue(struct sched *sched, struct sched_client *c)
{
	c->line = SCHED_LINE_QUEUE;
	c->is_wait_told = false;
	line_bound(sched, c);
}

void line_push_back(struct sched *sched, uint32_t client)
{
	struct sched_client *c = &sched->clients[client];
	struct sched_gpu *g = &sched->gpus[c->gpu];

	assert(c->line == SCHED_LINE_NONE);
	c->ticket = TICKET_MIDDLE + ++g->tickets_back;
	c->due_ns = SCHED_NO_DEADLINE;
	list_push_back(sched->clients, &g->queue, SCHED_LINK_LINE, client);
	enter_queue(sched, c);
}

void line_push_front(struct sched *sched, uint32_t client)
{
	struct sched_client *c = &sched->clients[client];
	struct sched_gpu *g = &sched->gpus[c->gpu];

	assert(c->line == SCHED_LINE_NONE);
	c->ticket = TICKET_MIDDLE - g->tickets_front++;
	list_push_front(sched->clients, &g->queue, SCHED_LINK_LINE, client);
	enter_queue(sched, c);
}

void line_push_coming(struct sched *sched, uint32_t client)
{
	struct sched_client *c = &sched->clients[client];

	assert(c->line == SCHED_LINE_NONE);
	list_push_back(sched->clients, &sched->gpus[c->gpu].coming, SCHED_LINK_LINE, client);
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
		list_remove(sched->clients, &g->queue, SCHED_LINK_LINE, client);
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

/*
 * Exact near the front, where it matters; further back the tickets between tell the most
 * that there can be, so that a status of thousands does not count to thousands each time.
 */
uint32_t line_position(const struct sched *sched, uint32_t client)
{
	const struct sched_client *c = &sched->clients[client];
	const struct sched_list *queue = &sched->gpus[c->gpu].queue;
	uint32_t position = 0;
	uint64_t bound;

	if (c->line != SCHED_LINE_QUEUE)
		return 0;
	for (uint32_t i = queue->first; i != SCHED_NONE && position < LINE_LOOK_AHEAD;
	     i = sched->clients[i].link[SCHED_LINK_LINE].next) {
		position++;
		if (i == client)
			return position;
	}
	bound = c->ticket - sched->clients[queue->first].ticket + 1;
	return bound < queue->n ? (uint32_t)bound : queue->n;
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
	if (c->due_ns <= sched->now_ns && !fit_by_switch(sched, client))
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
