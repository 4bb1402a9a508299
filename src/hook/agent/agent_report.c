/* SPDX-License-Identifier: Apache-2.0 */

/* Messages of the agent that carry memory numbers: REQ_LOCK, MEM_UPDATE, LOCK_RELEASED. */

#include "hook/agent/agent_private.h"
#include "hook/gate/bell.h"
#include "hook/memory/budget.h"
#include "hook/memory/rdma.h"
#include "hook/pager/backend.h"
#include "hook/table/bypass.h"
#include "util/clock.h"

#include <string.h>

#define REPORT_INTERVAL_NS (10 * CLOCK_NS_PER_MS)
#define SLACK_BYTES_MIN    (256ull << 20)

/* While another client waits, budget that is not in use goes back. */
static void link_return_slack(struct agent_link *link)
{
	uint64_t keep = link->total / 8;

	if (link->is_watched && link->lease.state == LEASE_HOLDING)
		(void)budget_return_slack(link->dev,
					  keep > SLACK_BYTES_MIN ? keep : SLACK_BYTES_MIN);
}

static uint32_t stay_flags(const struct agent_link *link)
{
	if (bypass_seen())
		return link->takes_bypass ? NVSHARE_REPORT_BYPASS : NVSHARE_REPORT_RDMA;
	switch (rdma_seen()) {
	case RDMA_OPEN:
		return NVSHARE_REPORT_RDMA;
	case RDMA_HIDDEN:
		return NVSHARE_REPORT_NO_PROC;
	case RDMA_NONE:
	case RDMA_UNKNOWN:
		break;
	}
	return 0;
}

static uint32_t report_flags(const struct agent_link *link)
{
	return stay_flags(link) | (agent_watch_rests() ? NVSHARE_REPORT_RESTS : 0);
}

/* Memory that others may reach is pinned, with memory that was allocated since the last look. */
static void link_pin_registrable(const struct agent_link *link)
{
	if ((rdma_seen() != RDMA_NONE || bypass_seen()) &&
	    backend_of(link->dev) != NVSHARE_BACKEND_MANAGED)
		pager_pin_all(link->dev);
}

void agent_report_send(struct agent_link *link)
{
	struct nvshare_mem_update body = {
		.epoch = link->lease.epoch,
		.moved = link->in.bytes,
		.move_ns = link->in.ns,
		.halt = agent_halt_how(link),
		.flags = report_flags(link),
	};

	link_return_slack(link);
	link_pin_registrable(link);
	agent_lease_memory(link->dev, &body.mem);
	body.budget = agent_lease_budget(link->dev, &body.mem);
	link->in = (struct pager_move){0};
	link->reported = body.mem;
	link->is_report_due = false;
	link->report_ns = clock_now_ns() + REPORT_INTERVAL_NS;
	agent_link_send(link, NVSHARE_MSG_MEM_UPDATE, &body);
}

void agent_report(struct agent_link *link, bool is_urgent)
{
	struct nvshare_mem mem;

	if (bell_take_changed(link->dev)) {
		agent_lease_memory(link->dev, &mem);
		if (memcmp(&mem, &link->reported, sizeof(mem)) != 0)
			is_urgent = true;
	}
	if (is_urgent)
		agent_report_send(link);
	link->is_report_due = false;
}

void agent_report_request(struct agent_link *link)
{
	struct nvshare_req_lock body;

	(void)bell_take_changed(link->dev);
	agent_lease_memory(link->dev, &body.mem);
	link->reported = body.mem;
	agent_link_send(link, NVSHARE_MSG_REQ_LOCK, &body);
}

void agent_report_released(struct agent_link *link, const struct lease_action *action)
{
	struct nvshare_lock_released body = {
		.grant = action->grant,
		.epoch = action->epoch,
		.moved = link->out.copied,
		.move_ns = link->out.copied == link->out.bytes ? link->out.ns : 0,
		.outcome = action->outcome,
		.wants = action->wants,
		.halt = agent_halt_how(link),
		.flags = report_flags(link),
	};

	(void)bell_take_changed(link->dev);
	link_pin_registrable(link);
	agent_lease_memory(link->dev, &body.mem);
	body.budget = action->outcome == NVSHARE_OUTCOME_SUCCESS ? agent_lease_on_card(&body.mem)
								 : link->lease.budget;
	link->out = (struct pager_move){0};
	link->reported = body.mem;
	agent_link_send(link, NVSHARE_MSG_LOCK_RELEASED, &body);
}
