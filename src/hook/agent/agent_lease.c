/* SPDX-License-Identifier: Apache-2.0 */

/* Events go into the lease, and its actions are carried out here. */

#include "core/u64.h"
#include "hook/agent/agent_private.h"
#include "hook/base/hook_log.h"
#include "hook/base/hook_options.h"
#include "hook/freeze/channels.h"
#include "hook/gate/gate.h"
#include "hook/host/hostpool.h"
#include "hook/memory/budget.h"
#include "hook/pager/backend.h"
#include "hook/pager/oversub.h"
#include "hook/pager/pager_context.h"
#include "hook/table/cuda_real.h"
#include "hook/tickets/tickets.h"
#include "util/clock.h"

#define ORPHAN_RETRY_NS CLOCK_NS_PER_SEC

uint64_t agent_lease_on_card(const struct nvshare_mem *mem)
{
	uint64_t bytes = mem->resident;

	for (int i = 0; i < NVSHARE_PINNED_COUNT; i++)
		bytes += mem->pinned[i];
	return bytes;
}

/* A stopped process has a budget of 0, so that no thread takes more, and keeps what it has. */
uint64_t agent_lease_budget(CUdevice dev, const struct nvshare_mem *mem)
{
	uint64_t budget = budget_get(dev), used = agent_lease_on_card(mem);

	return budget == BUDGET_UNLIMITED || budget < used ? used : budget;
}

/* The first connection tells what the others leave. NULL: there is none. */
static const struct agent_link *host_first(void)
{
	const struct agent_link *registering = NULL;

	agent_for_each_link (l) {
		if (l->state == AGENT_LINK_UP)
			return l;
		if (!registering && l->fd >= 0)
			registering = l;
	}
	return registering;
}

/*
 * The process has one pool, and the scheduler adds up what connections tell. It takes no more from
 * one than its card holds. So each tells as much as its memory needs.
 */
static uint64_t link_host_bytes(const struct agent_link *link)
{
	const struct agent_link *first = host_first();
	uint64_t left = hostpool_bytes();
	struct nvshare_mem mem;

	agent_for_each_link (l) {
		uint64_t bytes;

		if (l == first || l->state != AGENT_LINK_UP ||
		    backend_of(l->dev) == NVSHARE_BACKEND_MANAGED)
			continue;
		budget_read(l->dev, &mem);
		bytes = u64_min(left, mem.resident + mem.swapped);
		if (l == link)
			return bytes;
		left -= bytes;
	}
	return !first || first == link ? left : 0;
}

struct agent_host agent_lease_host_told(const struct agent_link *except)
{
	struct agent_host told = {0};

	agent_for_each_link (l) {
		const struct nvshare_mem *mem = &l->reported;

		if (l == except || l->fd < 0)
			continue;
		told.bytes += mem->host;
		if (backend_of(l->dev) != NVSHARE_BACKEND_MANAGED)
			told.unused += mem->host - u64_min(mem->host, mem->swapped);
		told.lacked += mem->host_wanted;
	}
	return told;
}

void agent_lease_memory(CUdevice dev, struct nvshare_mem *ret_mem)
{
	const struct agent_link *link = agent_link_of(dev);

	budget_read(dev, ret_mem);
	ret_mem->host = link_host_bytes(link);
	if (backend_of(dev) == NVSHARE_BACKEND_MANAGED)
		ret_mem->host += ret_mem->swapped + oversub_bytes(dev);
	ret_mem->host_wanted = link ? link->host_lacked : 0;
	ret_mem->pager_context = pager_context_bytes(dev);
}

/* Memory that only a restore brings back. The driver brings managed memory in as it is touched. */
bool agent_lease_is_out(CUdevice dev)
{
	struct nvshare_mem mem;

	budget_read(dev, &mem);
	return mem.swapped && backend_of(dev) != NVSHARE_BACKEND_MANAGED;
}

/* The program can have work or memory there. */
static bool link_is_used(const struct agent_link *link)
{
	struct nvshare_mem mem;

	if (device_has_context(link->dev))
		return true;
	budget_read(link->dev, &mem);
	return mem.resident || mem.swapped;
}

/*
 * The program runs on while it waits for the budget of its first context on another GPU. So the
 * lease of a GPU that is not used yet counts only where none is used.
 */
bool agent_lease_counts(const struct agent_link *link)
{
	bool is_any_used = false;

	if (!agent_link_next(agent_link_next(NULL)) || link_is_used(link))
		return true;
	agent_for_each_link (l)
		is_any_used = is_any_used || link_is_used(l);
	return !is_any_used;
}

/* Without a scheduler memory goes out, too: process_put_out(). */
bool agent_lease_is_stopped(void)
{
	agent_for_each_link (l) {
		bool is_open = lease_is_open(&l->lease) &&
			       !(l->lease.state == LEASE_OFF && agent_lease_is_out(l->dev));

		if (l->moving || (!is_open && agent_lease_counts(l)))
			return true;
	}
	return false;
}

/* A process has one gate, so it opens when the process may use all of its GPUs. */
void agent_lease_sync_gate(void)
{
	bool may_run = !agent_lease_is_stopped() && !share_bars_gate();

	if (may_run && gate_get() != GATE_OPEN) {
		if (!agent_tickets_come_back())
			return; /* agent_tickets_tick() has it tried again */
		agent_resume();
		gate_set(GATE_OPEN);
	} else if (!may_run && gate_get() != GATE_CLOSED) {
		gate_set(GATE_CLOSED);
	}
}

/*
 * The pager context if there is one: it works while the program's is frozen, and outlives it. A
 * call in the program's context would wait for the frozen work.
 */
bool agent_enter_context(CUdevice dev, struct agent_place *ret_place)
{
	struct device_context *c = device_context_hold(dev);
	CUcontext pager_ctx = pager_context_get(dev);

	if ((!pager_ctx && (!c || agent_halt_is_frozen())) ||
	    cuda_real.cuCtxPushCurrent_v2(pager_ctx ? pager_ctx : c->ctx) != CUDA_SUCCESS) {
		device_context_drop(c);
		return false;
	}
	if (pager_ctx)
		channels_own_begin();
	*ret_place = (struct agent_place){
		.held = c,
		.ctx = pager_ctx ? pager_ctx : c->ctx,
		.is_pager_context = pager_ctx != NULL,
	};
	return true;
}

void agent_pause_context(const struct agent_place *place)
{
	CUcontext popped;

	if (place->is_pager_context)
		channels_own_end();
	(void)cuda_real.cuCtxPopCurrent_v2(&popped);
}

bool agent_go_on_in_context(const struct agent_place *place)
{
	if (cuda_real.cuCtxPushCurrent_v2(place->ctx) != CUDA_SUCCESS)
		return false;
	if (place->is_pager_context)
		channels_own_begin();
	return true;
}

void agent_leave_context(const struct agent_place *place)
{
	agent_pause_context(place);
	device_context_drop(place->held);
}

/* When nobody waits any more, what was made ready is kept for a while: somebody may wait again. */
static void link_prepare(struct agent_link *link, const struct lease_action *action)
{
	link->is_watched = action->due_ms > 0;
	link->is_near = !link->is_watched && action->bytes;
	link->is_report_due = link->is_watched; /* it returns slack */
	/* A move under way has what it needs, and this would take from it. */
	if (agent_moves_are_running())
		return;
	if (!link->is_watched)
		agent_spares_touch(link, action->bytes);
	/* While another GPU keeps it off, a frozen thread may hold what the driver would need. */
	else if (action->bytes && !agent_halt_is_frozen())
		(void)agent_halt_prepare(link, action->bytes, false);
}

/* Two orphans that try at the same times would be in each other's way for ever. */
static uint64_t orphan_retry_ns(void)
{
	return ORPHAN_RETRY_NS / 2 + clock_now_ns() % ORPHAN_RETRY_NS;
}

/*
 * Carries out an action. true: it was work, and *ret_end is the event of its end. Memory that is on
 * its way then has no end yet (link->moving).
 */
static bool link_perform(struct agent_link *link, const struct lease_action *action,
			 struct lease_event *ret_end)
{
	uint32_t outcome;

	switch (action->type) {
	case LEASE_ACTION_SEND_REQ:
		agent_report_request(link);
		return false;
	case LEASE_ACTION_SEND_RELEASED:
		agent_report_released(link, action);
		return false;
	case LEASE_ACTION_SEND_MEMORY:
		agent_report_send(link);
		return false;
	case LEASE_ACTION_SET_BUDGET:
		budget_set(link->dev, action->budget);
		return false;
	case LEASE_ACTION_REFUSE:
		budget_refuse(link->dev);
		return false;
	case LEASE_ACTION_OPEN:
	case LEASE_ACTION_CLOSE:
		agent_lease_sync_gate();
		return false;
	case LEASE_ACTION_PREPARE:
		link_prepare(link, action);
		return false;
	case LEASE_ACTION_ORPHAN_TIMER:
		link->orphan_ns =
			clock_now_ns() +
			(link->is_orphan_late ? orphan_retry_ns() : hook_options()->orphan_ns);
		link->is_orphan_late = true;
		return false;
	case LEASE_ACTION_DRAIN:
		*ret_end = (struct lease_event){
			.type = LEASE_EVENT_DRAINED,
			.outcome = agent_moves_stop(link, action->bytes),
		};
		agent_tickets_park();
		return true;
	case LEASE_ACTION_EVICT:
		if (agent_moves_evict(link, action->bytes, &outcome))
			return false;
		*ret_end = (struct lease_event){.type = LEASE_EVENT_EVICTED, .outcome = outcome};
		agent_tickets_park();
		return true;
	case LEASE_ACTION_RESTORE:
		if (agent_moves_restore(link, &outcome))
			return false;
		*ret_end = (struct lease_event){.type = LEASE_EVENT_RESTORED, .outcome = outcome};
		return true;
	}
	return false;
}

/* With this grant the program would compute without its memory. The lease has ignored it. */
static void link_refuse_grant(struct agent_link *link)
{
	hook_warn_once("the scheduler would let this program run while part of its memory is out: "
		       "the connection is closed, and tried again (are both of one release?)");
	agent_link_wrong(link);
}

/* A thread stands at the gate, or frozen work is to go on. */
static bool link_is_wanted(const struct agent_link *link)
{
	return (gate_wanted() || agent_halt_is_frozen() || tickets_are_wanted()) &&
	       agent_lease_counts(link);
}

/*
 * The work of an action ends within it, and its event follows at once; but a move that has begun
 * ends later.
 */
static void link_take_event(struct agent_link *link, const struct lease_event *event)
{
	struct lease_event now = *event, end = {0};
	struct lease_actions actions;
	bool has_more = true, was_moving = link->moving, wanting = link->was_wanting;
	int r;

	while (has_more) {
		has_more = false;
		/* A thread that lacked memory before an eviction still lacks it afterwards. */
		wanting = wanting || budget_wanting(link->dev) || link_is_wanted(link);
		now.wanting = wanting;
		now.is_out = now.type == LEASE_EVENT_LOCK_OK && agent_lease_is_out(link->dev);
		r = lease_step(&link->lease, &now, &actions);
		if (r == LEASE_E_OUT) {
			link_refuse_grant(link);
			break;
		}
		if (r) {
			hook_debug("device %d: event %d means nothing in state %d", (int)link->dev,
				   (int)now.type, (int)link->lease.state);
			break;
		}
		for (uint32_t i = 0; i < actions.n; i++)
			has_more |= link_perform(link, &actions.at[i], &end);
		now = end;
	}
	if (!was_moving || !link->moving)
		link->was_wanting = link->moving && wanting;
}

/* The event has been taken, and its work may be under way still. */
static void link_settle(struct agent_link *link, const struct lease_event *event)
{
	link->has_run = link->has_run || link->lease.state == LEASE_HOLDING;
	if (link->lease.state != LEASE_HOLDING)
		link->is_watched = false; /* with the next grant the scheduler says it anew */
	if (!link->moving) {
		if (link->was_holding && (link->was_dropped || link->lease.state != LEASE_HOLDING))
			share_dropped(link);
		link->was_holding = false;
		link->was_dropped = false;
	}
	/* The expected client has come, or this one waits itself, and is told when it runs. */
	if (event->type == LEASE_EVENT_DROP ||
	    (link->lease.state != LEASE_HOLDING && link->lease.state != LEASE_IDLE))
		link->is_near = false;
	if (link->lease.state != LEASE_IDLE || event->type == LEASE_EVENT_DROP)
		agent_ahead_end(link);
	agent_for_each_link (l)
		agent_spares_keep(l);
	agent_lease_sync_gate();
}

void agent_lease_step(struct agent_link *link, const struct lease_event *event)
{
	link->was_holding = link->was_holding || link->lease.state == LEASE_HOLDING;
	link->was_dropped = link->was_dropped || event->type == LEASE_EVENT_DROP;
	link_take_event(link, event);
	agent_moves_run();
	link_settle(link, event);
}

/* An idle lease asks for the GPU. One that holds it is told of lacking memory only. */
void agent_lease_want(struct agent_link *link)
{
	bool lacks = budget_wanting(link->dev);

	if (link->state != AGENT_LINK_UP)
		return;
	if (lacks || (link->lease.state == LEASE_IDLE && link_is_wanted(link)))
		agent_lease_step(link, &(struct lease_event){.type = LEASE_EVENT_WANT});
}
