/* SPDX-License-Identifier: Apache-2.0 */

/* While memory moves: reports of progress, and messages that the agent takes meanwhile. */

#include "hook/agent/agent_private.h"
#include "hook/memory/budget.h"

/* A report of progress pays after so many bytes, or after this part of a small card. */
#define PROGRESS_BYTES_MAX (64ull << 20)
#define PROGRESS_CARD      64

/* A lack of host memory is reported again when it has changed by more than this part of it. */
#define LACK_PART 16

/* Messages that are taken between two looks at a move. */
#define HEAR_MAX 64

/*
 * The lease hears of none of these. Those that it hears of wait until the move has ended. They
 * come to all clients at any time, and the one about host memory may stand behind others.
 */
#define BESIDE_MOVE (AGENT_DURING_ALWAYS | AGENT_DURING_MOVE)

void agent_moved_out(CUdevice dev, uint64_t bytes)
{
	struct agent_link *link = agent_link_of(dev);
	uint64_t step;

	if (bytes)
		agent_halt_committed();
	if (!link || bytes >= link->out_asked)
		return;
	step = link->total / PROGRESS_CARD;
	if (step > PROGRESS_BYTES_MAX)
		step = PROGRESS_BYTES_MAX;
	if (bytes - link->out_told < step)
		return;
	/* If the socket takes no more, the next report says it. */
	agent_link_flush(link);
	if (link->n_queued)
		return;
	link->out_told = bytes;
	agent_lease_step(link, &(struct lease_event){.type = LEASE_EVENT_PROGRESS});
}

/* The free host memory changes all the time. All clients hear of a report, so small changes wait.
 */
static bool lack_has_changed(uint64_t told, uint64_t lacked)
{
	uint64_t change = told < lacked ? lacked - told : told - lacked;

	return !told != !lacked || change > told / LACK_PART;
}

/* Reports all that has gone: other clients give host memory back by coming in. */
static void link_report_lack(struct agent_link *link, uint64_t moved, uint64_t lacked)
{
	bool is_news = lack_has_changed(link->host_lacked, lacked);

	agent_link_flush(link);
	if (link->n_queued)
		return;
	if (is_news)
		link->host_lacked = lacked;
	if (moved > link->out_told) {
		link->out_told = moved;
		agent_lease_step(link, &(struct lease_event){.type = LEASE_EVENT_PROGRESS});
	} else if (is_news) {
		agent_report(link, true);
	}
}

/* true: it has taken some of the mask. A move goes on, even if messages keep coming. */
static bool link_hear(struct agent_link *link, unsigned int mask)
{
	bool has_any = false;

	for (int i = 0; i < HEAR_MAX && agent_link_receive_during(link, mask); i++)
		has_any = true;
	return has_any;
}

void agent_hear_beside_eviction(void)
{
	agent_for_each_link (l) {
		if (l->state == AGENT_LINK_UP && agent_link_hear(l, 0))
			(void)link_hear(l, BESIDE_MOVE);
	}
}

/*
 * An order for a further GPU. Until the process stands for good the watchdog may let it go on, and
 * a stop may have to freeze it anew; then the order waits. It may stand behind a warning.
 */
static void link_hear_order(struct agent_link *link)
{
	(void)agent_link_receive_during(
		link, AGENT_DURING_BUDGET | (agent_halt_stands() ? AGENT_DURING_ORDER : 0));
}

void agent_hear_beside_moves(bool may_begin)
{
	agent_for_each_link (l) {
		if (l->state != AGENT_LINK_UP || !agent_link_hear(l, 0))
			continue;
		/* The process is alive on all of its GPUs while memory of one moves. */
		if (l->moving)
			(void)link_hear(l, AGENT_DURING_ALWAYS);
		/* The first order may begin a move, and then the next one waits for its end. */
		else if (!link_hear(l, BESIDE_MOVE) && may_begin)
			link_hear_order(l);
	}
}

bool agent_await_host(CUdevice dev, uint64_t moved, uint64_t bytes)
{
	struct agent_link *link = agent_link_of(dev);

	if (!link || link->state != AGENT_LINK_UP || link->is_broken)
		return false;
	link_report_lack(link, moved, bytes);
	if (agent_link_hear(link, 0))
		(void)link_hear(link, BESIDE_MOVE);
	return !link->is_broken;
}

enum pager_more agent_more_budget(CUdevice dev)
{
	struct agent_link *link = agent_link_of(dev);
	struct nvshare_mem mem;

	if (!link)
		return PAGER_MORE_LATER;
	/* Nothing lacks a budget any more, so all is in when the copies have ended. */
	budget_read(dev, &mem);
	if (!mem.swapped)
		return PAGER_MORE_LATER;
	if (!link->lease.is_used_up)
		agent_lease_step(link, &(struct lease_event){.type = LEASE_EVENT_PART,
							     .outcome = NVSHARE_OUTCOME_PARTIAL});
	if (!link->lease.is_used_up)
		return PAGER_MORE_LATER;
	if (!agent_link_hear(link, 0))
		return PAGER_MORE_NOT_YET;
	switch (agent_link_receive_during(link, BESIDE_MOVE | AGENT_DURING_BUDGET)) {
	case AGENT_DURING_ALWAYS:
	case AGENT_DURING_MOVE:
		return PAGER_MORE_NOT_YET; /* these bring no budget */
	case AGENT_DURING_BUDGET:
		return link->lease.is_used_up ? PAGER_MORE_LATER : PAGER_MORE_GIVEN;
	default:
		return PAGER_MORE_LATER;
	}
}
