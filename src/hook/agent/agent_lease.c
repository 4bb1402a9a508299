/* SPDX-License-Identifier: Apache-2.0 */

/* What happens goes into the lease, what it decides is done here. */

#include "hook/agent/agent_private.h"
#include "hook/base/descriptors.h"
#include "hook/base/hook_log.h"
#include "hook/base/hook_options.h"
#include "hook/freeze/channels.h"
#include "hook/gate/bell.h"
#include "hook/gate/gate.h"
#include "hook/host/hostmem.h"
#include "hook/host/hostpool.h"
#include "hook/memory/budget.h"
#include "hook/memory/rdma.h"
#include "hook/pager/backend.h"
#include "hook/pager/oversub.h"
#include "hook/pager/pager_context.h"
#include "hook/pager/transfer.h"
#include "hook/table/cuda_real.h"
#include "util/clock.h"

#include <string.h>

#define REPORT_INTERVAL_NS (10 * CLOCK_NS_PER_MS)
#define ORPHAN_RETRY_NS    CLOCK_NS_PER_SEC
#define SLACK_BYTES_MIN    (256ull << 20)

static uint64_t on_card(const struct nvshare_mem *mem)
{
	uint64_t bytes = mem->resident;

	for (int i = 0; i < NVSHARE_PINNED_COUNT; i++)
		bytes += mem->pinned[i];
	return bytes;
}

/*
 * What counts as ours on the card. A stopped process has a budget of 0, so that nobody
 * takes more, and still keeps what it has.
 */
uint64_t agent_lease_budget(CUdevice dev, const struct nvshare_mem *mem)
{
	uint64_t budget = budget_get(dev), used = on_card(mem);

	return budget == BUDGET_UNLIMITED || budget < used ? used : budget;
}

void agent_lease_memory(CUdevice dev, struct nvshare_mem *ret_mem)
{
	const struct agent_link *link = agent_link_of(dev);

	budget_read(dev, ret_mem);
	ret_mem->host = hostpool_bytes();
	if (backend_of(dev) == NVSHARE_BACKEND_MANAGED)
		ret_mem->host += ret_mem->swapped + oversub_bytes(dev);
	ret_mem->host_wanted = link ? link->host_lacked : 0;
	ret_mem->pager_context = pager_context_bytes(dev);
}

/* The gate is one a process: it opens when the process may use all of its GPUs. */
void agent_lease_sync_gate(void)
{
	bool may_run = true;

	for (struct agent_link *l = agent_link_next(NULL); l; l = agent_link_next(l))
		may_run = may_run && lease_is_open(&l->lease);
	may_run = may_run && !share_bars_gate();
	if (may_run && gate_get() != GATE_OPEN) {
		agent_resume();
		gate_set(GATE_OPEN);
	} else if (!may_run && gate_get() == GATE_OPEN) {
		gate_set(GATE_CLOSED);
	}
}

/* Ours if there is one, which works while the program's is frozen, and outlives it. */
bool agent_enter_context(CUdevice dev, struct agent_place *ret_place)
{
	struct device_context *c = device_context_hold(dev);
	CUcontext second = pager_context_get(dev);

	if ((!c && !second) ||
	    cuda_real.cuCtxPushCurrent_v2(second ? second : c->ctx) != CUDA_SUCCESS) {
		device_context_drop(c);
		return false;
	}
	if (second)
		channels_own_begin();
	*ret_place = (struct agent_place){.held = c, .is_second = second != NULL};
	return true;
}

void agent_leave_context(const struct agent_place *place)
{
	CUcontext popped;

	if (place->is_second)
		channels_own_end();
	(void)cuda_real.cuCtxPopCurrent_v2(&popped);
	device_context_drop(place->held);
}

/*
 * To move bytes. What the program has mapped itself outlives its contexts: when the last is
 * gone, such memory can only be moved in one of ours, which may cost max bytes.
 */
static bool enter_to_move(CUdevice dev, uint64_t bytes, uint64_t max, struct agent_place *ret_place)
{
	if (agent_enter_context(dev, ret_place))
		return true;
	return bytes && backend_of(dev) != NVSHARE_BACKEND_MANAGED &&
	       pager_context_make(dev, max) && agent_enter_context(dev, ret_place);
}

/* What the order named is for what it asks for, and for nothing after it. */
static int evict_and_hand_over(struct agent_link *link, uint64_t bytes)
{
	int outcome;

	transfer_aim(link->dev, link->hand_bytes);
	link->out_asked = bytes;
	outcome = pager_evict(link->dev, bytes, agent_halt_is_frozen(), &link->out);
	link->out_asked = 0;
	transfer_aim(link->dev, 0);
	link->hand_bytes = 0;
	hostmem_set_coming(0);
	link->host_lacked = 0;
	return outcome;
}

/*
 * Memory that a device may reach by itself stays: all of it, since nobody can tell which that
 * is. Managed memory can not be registered, and moves by the driver's own doing.
 */
static bool may_move(const struct agent_link *link, uint64_t bytes)
{
	enum rdma rdma;

	if (!bytes || backend_of(link->dev) == NVSHARE_BACKEND_MANAGED)
		return true;
	rdma = rdma_look(NULL);
	if (rdma == RDMA_OPEN || rdma == RDMA_HIDDEN)
		pager_pin_all(link->dev);
	if (rdma == RDMA_UNKNOWN && descriptors_are_short())
		hook_warn_once("file descriptors are short (RLIMIT_NOFILE): memory of this program "
			       "can not make room for others");
	return rdma == RDMA_NONE;
}

/* Not even stopped for bytes that it does not give. */
static uint32_t stop(struct agent_link *link, uint64_t bytes)
{
	if (!may_move(link, bytes))
		return NVSHARE_OUTCOME_UNSUPPORTED;
	return agent_halt(link, bytes, link->lease.work == LEASE_WORK_GIVE_UP);
}

/*
 * What is left to move of bytes. Budget that is not in use goes by itself: a restore that
 * found too little for its next chunk keeps what it was given. Who has stopped says so before
 * anything moves, since that may be all that others lack, and nothing may be able to move.
 */
static uint64_t give_unused(struct agent_link *link, uint64_t bytes, const struct nvshare_mem *mem)
{
	uint64_t used = on_card(mem), unused = link->charge > used ? link->charge - used : 0;

	if (unused && link->lease.work != LEASE_WORK_DROP)
		agent_lease_report(link, true);
	return bytes > unused ? bytes - unused : 0;
}

static uint32_t evict(struct agent_link *link, uint64_t bytes)
{
	int outcome = NVSHARE_OUTCOME_SUCCESS;
	struct agent_place place;
	struct nvshare_mem mem;

	link->out = (struct pager_move){0};
	link->out_told = 0;
	budget_read(link->dev, &mem);
	bytes = give_unused(link, bytes, &mem);
	if (!may_move(link, bytes))
		return agent_halt_evicted(NVSHARE_OUTCOME_UNSUPPORTED);
	if (!enter_to_move(link->dev, bytes ? mem.resident : 0, link->second_max, &place))
		return agent_halt_evicted(bytes && mem.resident ? NVSHARE_OUTCOME_INVALID_STATE
								: NVSHARE_OUTCOME_SUCCESS);
	if (agent_halt_is_frozen() && !pager_context_get(link->dev))
		outcome = NVSHARE_OUTCOME_INVALID_STATE; /* copies would stand still, too */
	else if (bytes)
		outcome = evict_and_hand_over(link, bytes);
	agent_leave_context(&place);
	outcome = (int)agent_halt_evicted((uint32_t)outcome);
	hook_debug("device %d: evicted %llu of %llu bytes in %llu us, outcome %d, %llu handed over",
		   (int)link->dev, (unsigned long long)link->out.bytes, (unsigned long long)bytes,
		   (unsigned long long)(link->out.ns / 1000), outcome,
		   (unsigned long long)link->out.handed);
	return (uint32_t)outcome;
}

static bool has_room_for_all(CUdevice dev)
{
	size_t bytes_free, total;
	struct nvshare_mem mem;

	budget_read(dev, &mem);
	return !cuda_real.cuMemGetInfo_v2 ||
	       cuda_real.cuMemGetInfo_v2(&bytes_free, &total) != CUDA_SUCCESS ||
	       bytes_free >= mem.swapped;
}

/*
 * Without a scheduler those that were stopped come in as they find room. Part of the
 * memory is of no use on the card, and in the way of another one: all goes in, or out.
 */
static int restore_alone(CUdevice dev, struct pager_move *move)
{
	struct pager_move out = {0};
	int outcome = NVSHARE_OUTCOME_INVALID_STATE;

	if (has_room_for_all(dev))
		outcome = pager_restore(dev, move);
	if (outcome)
		(void)pager_evict(dev, UINT64_MAX, agent_halt_is_frozen(), &out);
	else
		budget_lost(dev); /* what it allocates next waits for it, too */
	return outcome;
}

/*
 * Nothing may run with memory out. A context of ours that this needs has the room of the
 * program's, which are gone, whatever the reserve has.
 */
static uint32_t restore(struct agent_link *link)
{
	struct pager_move move = {0};
	struct agent_place place;
	struct nvshare_mem mem;
	int outcome;

	budget_read(link->dev, &mem);
	if (!enter_to_move(link->dev, mem.swapped, UINT64_MAX, &place))
		return mem.swapped ? NVSHARE_OUTCOME_INVALID_STATE : NVSHARE_OUTCOME_SUCCESS;
	if (link->lease.work == LEASE_WORK_ALONE)
		outcome = restore_alone(link->dev, &move);
	else
		outcome = pager_restore(link->dev, &move);
	agent_leave_context(&place);
	link->in.bytes += move.bytes;
	link->in.ns += move.ns;
	hook_debug("device %d: restored %llu bytes in %llu us, outcome %d, %llu taken over",
		   (int)link->dev, (unsigned long long)move.bytes,
		   (unsigned long long)(move.ns / 1000), outcome, (unsigned long long)move.handed);
	return (uint32_t)outcome;
}

/* Nobody waits any more: what was made ready is kept, since somebody may soon again. */
static void prepare(struct agent_link *link, const struct lease_action *action)
{
	link->is_watched = action->due_ms > 0;
	link->is_near = !link->is_watched && action->bytes;
	if (!link->is_watched)
		agent_halt_touch(link, action->bytes);
	else if (action->bytes)
		(void)agent_halt_prepare(link, action->bytes, false);
	link->is_report_due = link->is_watched; /* what is not used can go back at once */
}

/* Budget that lies idle while somebody waits goes back. */
static void return_slack(struct agent_link *link)
{
	uint64_t keep = link->total / 8;

	if (link->is_watched && link->lease.state == LEASE_HOLDING)
		(void)budget_return_slack(link->dev,
					  keep > SLACK_BYTES_MIN ? keep : SLACK_BYTES_MIN);
}

static uint32_t report_flags(void)
{
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

/* What has been allocated since it was known to stay does, too, and is not to be counted on. */
static void pin_registrable(const struct agent_link *link)
{
	if (rdma_seen() != RDMA_NONE && backend_of(link->dev) != NVSHARE_BACKEND_MANAGED)
		pager_pin_all(link->dev);
}

static void send_memory(struct agent_link *link)
{
	struct nvshare_mem_update body = {
		.epoch = link->lease.epoch,
		.moved = link->in.bytes,
		.move_ns = link->in.ns,
		.halt = agent_halt_how(link),
		.flags = report_flags(),
	};

	return_slack(link);
	pin_registrable(link);
	agent_lease_memory(link->dev, &body.mem);
	body.budget = agent_lease_budget(link->dev, &body.mem);
	link->in = (struct pager_move){0};
	link->reported = body.mem;
	link->is_report_due = false;
	link->report_ns = clock_now_ns() + REPORT_INTERVAL_NS;
	agent_link_send(link, NVSHARE_MSG_MEM_UPDATE, &body);
}

void agent_lease_report(struct agent_link *link, bool is_urgent)
{
	struct nvshare_mem mem;

	if (bell_take_changed(link->dev)) {
		agent_lease_memory(link->dev, &mem);
		if (memcmp(&mem, &link->reported, sizeof(mem)) != 0)
			is_urgent = true;
	}
	if (is_urgent)
		send_memory(link);
	link->is_report_due = false;
}

static void send_request(struct agent_link *link)
{
	struct nvshare_req_lock body;

	(void)bell_take_changed(link->dev);
	agent_lease_memory(link->dev, &body.mem);
	link->reported = body.mem;
	agent_link_send(link, NVSHARE_MSG_REQ_LOCK, &body);
}

static void send_released(struct agent_link *link, const struct lease_action *action)
{
	struct nvshare_lock_released body = {
		.grant = action->grant,
		.epoch = action->epoch,
		.moved = link->out.bytes,
		.move_ns = link->out.ns,
		.outcome = action->outcome,
		.wants = action->wants,
		.halt = agent_halt_how(link),
		.flags = report_flags(),
	};

	(void)bell_take_changed(link->dev);
	pin_registrable(link);
	agent_lease_memory(link->dev, &body.mem);
	body.budget = action->outcome == NVSHARE_OUTCOME_SUCCESS ? on_card(&body.mem)
								 : link->lease.budget;
	link->out = (struct pager_move){0};
	link->reported = body.mem;
	agent_link_send(link, NVSHARE_MSG_LOCK_RELEASED, &body);
}

/* Two that were lost at once and try at once would be in each other's way for ever. */
static uint64_t orphan_retry_ns(void)
{
	return ORPHAN_RETRY_NS / 2 + clock_now_ns() % ORPHAN_RETRY_NS;
}

/* Does one action. true: it was work whose end is *ret_end. */
static bool perform(struct agent_link *link, const struct lease_action *action,
		    struct lease_event *ret_end)
{
	switch (action->type) {
	case LEASE_ACTION_SEND_REQ:
		send_request(link);
		return false;
	case LEASE_ACTION_SEND_RELEASED:
		send_released(link, action);
		return false;
	case LEASE_ACTION_SEND_MEMORY:
		send_memory(link);
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
		prepare(link, action);
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
			.outcome = stop(link, action->bytes),
		};
		return true;
	case LEASE_ACTION_EVICT:
		*ret_end = (struct lease_event){
			.type = LEASE_EVENT_EVICTED,
			.outcome = evict(link, action->bytes),
		};
		return true;
	case LEASE_ACTION_RESTORE:
		*ret_end = (struct lease_event){
			.type = LEASE_EVENT_RESTORED,
			.outcome = restore(link),
		};
		return true;
	}
	return false;
}

/* What only a restore brings back: managed memory the driver brings in as it is touched. */
static bool is_out(CUdevice dev)
{
	struct nvshare_mem mem;

	budget_read(dev, &mem);
	return mem.swapped && backend_of(dev) != NVSHARE_BACKEND_MANAGED;
}

/* The program would compute with what is not there. It stays as it is, as if nobody had spoken. */
static void refuse_grant(struct agent_link *link)
{
	hook_warn_once("the scheduler would let this program run while part of its memory is out: "
		       "the connection is closed, and tried again (are both of one release?)");
	agent_link_wrong(link);
}

/* Work that an action starts ends within it, so that its event follows at once. */
void agent_lease_step(struct agent_link *link, const struct lease_event *event)
{
	struct lease_event now = *event, end = {0};
	struct lease_actions actions;
	bool was_holding = link->lease.state == LEASE_HOLDING;
	bool has_more = true, wanting = false;
	int r;

	while (has_more) {
		has_more = false;
		/* For memory: a thread that stood there before an eviction still does after. */
		wanting = wanting || gate_wanted() || budget_wanting(link->dev) ||
			  agent_halt_is_frozen();
		now.wanting = wanting;
		now.is_out = now.type == LEASE_EVENT_LOCK_OK && is_out(link->dev);
		r = lease_step(&link->lease, &now, &actions);
		if (r == LEASE_E_OUT) {
			refuse_grant(link);
			break;
		}
		if (r) {
			hook_debug("device %d: event %d means nothing in state %d", (int)link->dev,
				   (int)now.type, (int)link->lease.state);
			break;
		}
		for (uint32_t i = 0; i < actions.n; i++)
			has_more |= perform(link, &actions.at[i], &end);
		now = end;
	}
	if (link->lease.state != LEASE_HOLDING)
		link->is_watched = false; /* who waits next is told to the next grant */
	if (was_holding && (event->type == LEASE_EVENT_DROP || link->lease.state != LEASE_HOLDING))
		share_dropped(link);
	/* What was expected has come; or it wants the GPU itself, and hears again if it runs. */
	if (event->type == LEASE_EVENT_DROP ||
	    (link->lease.state != LEASE_HOLDING && link->lease.state != LEASE_IDLE))
		link->is_near = false;
	agent_halt_keep(link);
	agent_lease_sync_gate();
}

/* An idle lease asks; a holding one is told only of memory, which it may have asked for. */
void agent_lease_want(struct agent_link *link)
{
	bool lacks = budget_wanting(link->dev);

	if (link->state != AGENT_LINK_UP)
		return;
	if (lacks || (link->lease.state == LEASE_IDLE && gate_wanted()))
		agent_lease_step(link, &(struct lease_event){.type = LEASE_EVENT_WANT});
}
