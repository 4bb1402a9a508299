/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Memory that processes of one gang share, and that leaves the card with them (hook/tickets).
 * Owner and openers stop in the same step, and each of them waits for the other's agent: an owner
 * that evicts hears and obeys words about what it has opened itself.
 */

#include "hook/agent/agent_private.h"
#include "hook/base/hook_log.h"
#include "hook/tickets/tickets.h"
#include "util/clock.h"

#define RETURN_NS (5 * CLOCK_NS_PER_MS)

/* A thaw would run without the parked memory, so the freeze is committed first. */
static bool process_stands(void)
{
	return agent_halt_stands() ||
	       (agent_halt_evicted(NVSHARE_OUTCOME_SUCCESS) == NVSHARE_OUTCOME_SUCCESS &&
		agent_halt_stands());
}

enum pager_back agent_tickets_take_back(CUdeviceptr addr, size_t size, bool is_late)
{
	enum tickets_taken taken;

	if (!process_stands())
		return PAGER_BACK_NO;
	taken = tickets_take(addr, size);
	if (taken == TICKETS_HELD && !is_late) {
		agent_hear_beside_eviction();
		opened_park();
		return PAGER_BACK_LATER;
	}
	if (taken == TICKETS_HELD)
		tickets_keep(addr, size);
	hook_debug("shared memory of %zu bytes %s", size,
		   taken == TICKETS_TAKEN  ? "goes"
		   : taken == TICKETS_STAY ? "stays"
					   : "was not given back in time");
	return taken == TICKETS_TAKEN ? PAGER_BACK_YES : PAGER_BACK_NO;
}

void agent_tickets_hear(const struct nvshare_ticket_word *word)
{
	tickets_hear(word);
	agent_tickets_park();
}

void agent_tickets_park(void)
{
	if (agent_halt_stands())
		opened_park();
}

static bool device_come_back(CUdevice dev)
{
	struct agent_place place;
	bool is_back;

	if (!opened_is_parked(dev))
		return true;
	if (!agent_enter_context(dev, &place))
		return false;
	is_back = opened_return(dev);
	agent_leave_context(&place);
	return is_back;
}

bool agent_tickets_come_back(void)
{
	bool is_back = true;

	tickets_return();
	agent_for_each_link (l)
		is_back = device_come_back(l->dev) && is_back;
	return is_back;
}

uint64_t agent_tickets_tick(uint64_t now_ns)
{
	uint64_t due = tickets_tick(now_ns);

	agent_for_each_link (l) {
		if (tickets_are_wanted())
			agent_lease_want(l);
	}
	if (opened_is_parked(DEVICE_ANY) && !agent_lease_is_stopped() && now_ns + RETURN_NS < due)
		due = now_ns + RETURN_NS;
	return due;
}
