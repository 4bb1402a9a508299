/* SPDX-License-Identifier: Apache-2.0 */

/* While memory moves, the scheduler hears how far it is, and the agent what it is given. */

#include "hook/agent/agent_private.h"
#include "hook/memory/budget.h"
#include "util/clock.h"

/* Others can use it: so much, or this share of a small card. */
#define PROGRESS_BYTES_MAX (64ull << 20)
#define PROGRESS_CARD      64

/* Host memory that an eviction lacks is told again when it has changed by more than so much of it.
 */
#define LACK_PART 16

/* Messages that are heard between two looks at an eviction. */
#define HEAR_MAX 64

void agent_moved_out(CUdevice dev, uint64_t bytes)
{
	struct agent_link *link = agent_link_of(dev);
	uint64_t step;

	if (!link || bytes >= link->out_asked)
		return;
	step = link->total / PROGRESS_CARD;
	if (step > PROGRESS_BYTES_MAX)
		step = PROGRESS_BYTES_MAX;
	if (bytes - link->out_told < step)
		return;
	/* The next one says the same, and more. */
	agent_link_flush(link);
	if (link->n_queued)
		return;
	link->out_told = bytes;
	agent_lease_step(link, &(struct lease_event){.type = LEASE_EVENT_PROGRESS});
}

/* What the machine has changes all the time; all hear of it, so only much of a change is told. */
static bool is_other_lack(uint64_t told, uint64_t lacked)
{
	uint64_t change = told < lacked ? lacked - told : told - lacked;

	return !told != !lacked || change > told / LACK_PART;
}

/* Everything is told that has gone, for others have to come in to give host memory back. */
static void tell_lack(struct agent_link *link, uint64_t moved, uint64_t lacked)
{
	bool is_news = is_other_lack(link->host_lacked, lacked);

	agent_link_flush(link);
	if (link->n_queued)
		return;
	if (is_news)
		link->host_lacked = lacked;
	if (moved > link->out_told) {
		link->out_told = moved;
		agent_lease_step(link, &(struct lease_event){.type = LEASE_EVENT_PROGRESS});
	} else if (is_news) {
		agent_lease_report(link, true);
	}
}

/*
 * What means nothing to the lease. Anything else waits until the eviction has ended, but for what
 * is told to all at any time, behind which that there is host memory again would not be heard.
 */
static bool hear_beside_eviction(struct agent_link *link)
{
	bool has_any = false;

	/* Whatever keeps coming, the eviction goes on. */
	for (int i = 0; i < HEAR_MAX && (agent_link_receive_if(link, NVSHARE_MSG_HOST_MEMORY) ||
					 agent_link_receive_if(link, NVSHARE_MSG_HANDOVER) ||
					 agent_link_receive_if(link, NVSHARE_MSG_WAIT_FOR_MEM) ||
					 agent_link_receive_if(link, NVSHARE_MSG_SET_SHARE) ||
					 agent_link_receive_if(link, NVSHARE_MSG_HEARTBEAT) ||
					 agent_link_receive_if(link, NVSHARE_MSG_PING));
	     i++)
		has_any = true;
	return has_any;
}

bool agent_await_host(CUdevice dev, uint64_t moved, uint64_t bytes, int wait_ms)
{
	struct agent_link *link = agent_link_of(dev);

	if (!link || link->state != AGENT_LINK_UP || link->is_broken)
		return false;
	tell_lack(link, moved, bytes);
	if (!agent_link_hear(link, wait_ms))
		return true;
	if (!hear_beside_eviction(link))
		clock_nap((uint64_t)wait_ms * CLOCK_NS_PER_MS);
	return !link->is_broken;
}

enum pager_more agent_more_budget(CUdevice dev, int wait_ms)
{
	struct agent_link *link = agent_link_of(dev);
	struct nvshare_mem mem;

	if (!link)
		return PAGER_MORE_LATER;
	/* What lacked a budget has been freed: all will have come in when the copies have. */
	budget_read(dev, &mem);
	if (!mem.swapped)
		return PAGER_MORE_LATER;
	if (!link->lease.is_used_up)
		agent_lease_step(link, &(struct lease_event){.type = LEASE_EVENT_PART,
							     .outcome = NVSHARE_OUTCOME_PARTIAL});
	if (!link->lease.is_used_up)
		return PAGER_MORE_LATER;
	if (!agent_link_hear(link, wait_ms))
		return PAGER_MORE_NOT_YET;
	if (agent_link_receive_if(link, NVSHARE_MSG_HOST_MEMORY) ||
	    agent_link_receive_if(link, NVSHARE_MSG_HANDOVER))
		return PAGER_MORE_NOT_YET; /* it is for what is taken, not for what comes back */
	if (!agent_link_receive_if(link, NVSHARE_MSG_MEM_AVAILABLE) || link->lease.is_used_up)
		return PAGER_MORE_LATER;
	return PAGER_MORE_GIVEN;
}
