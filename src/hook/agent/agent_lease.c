/* SPDX-License-Identifier: Apache-2.0 */

/* Events go into the lease, and its actions are carried out here. */

#include "hook/agent/agent_private.h"
#include "hook/base/descriptors.h"
#include "hook/base/hook_log.h"
#include "hook/base/hook_options.h"
#include "hook/freeze/channels.h"
#include "hook/gate/gate.h"
#include "hook/host/hostmem.h"
#include "hook/host/hostpool.h"
#include "hook/memory/budget.h"
#include "hook/memory/rdma.h"
#include "hook/pager/backend.h"
#include "hook/pager/oversub.h"
#include "hook/pager/pager_context.h"
#include "hook/pager/transfer.h"
#include "hook/table/bypass.h"
#include "hook/table/cuda_real.h"
#include "hook/table/reach.h"
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

/* The scheduler adds up what connections tell. So one of them tells it for the process. */
const struct agent_link *agent_lease_host_teller(void)
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

void agent_lease_memory(CUdevice dev, struct nvshare_mem *ret_mem)
{
	const struct agent_link *link = agent_link_of(dev), *teller = agent_lease_host_teller();

	budget_read(dev, ret_mem);
	ret_mem->host = !teller || teller == link ? hostpool_bytes() : 0;
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

		if (!is_open && agent_lease_counts(l))
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
	*ret_place = (struct agent_place){.held = c, .is_pager_context = pager_ctx != NULL};
	return true;
}

void agent_leave_context(const struct agent_place *place)
{
	CUcontext popped;

	if (place->is_pager_context)
		channels_own_end();
	(void)cuda_real.cuCtxPopCurrent_v2(&popped);
	device_context_drop(place->held);
}

/*
 * Enters a context in which bytes can be moved. Memory that the program has mapped itself outlives
 * its contexts. After the last one it can be moved in a pager context only, which may cost max
 * bytes.
 */
static bool device_enter_to_move(CUdevice dev, uint64_t bytes, uint64_t max,
				 struct agent_place *ret_place)
{
	if (agent_enter_context(dev, ret_place))
		return true;
	return bytes && backend_of(dev) != NVSHARE_BACKEND_MANAGED && !agent_halt_is_frozen() &&
	       pager_context_make(dev, max) && agent_enter_context(dev, ret_place);
}

/* The receiver that an order has named is for this eviction alone. */
static int link_evict_and_hand_over(struct agent_link *link, uint64_t bytes)
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
 * Where a device, or a library whose calls go past us, may reach memory by itself, all memory
 * stays, because nobody can tell which memory that is. Managed memory cannot be registered, and the
 * driver moves it.
 */
static bool link_may_move(const struct agent_link *link, uint64_t bytes)
{
	enum rdma rdma;

	if (!bytes || backend_of(link->dev) == NVSHARE_BACKEND_MANAGED)
		return true;
	rdma = rdma_look(NULL);
	if (rdma == RDMA_OPEN || rdma == RDMA_HIDDEN || reach_look())
		pager_pin_all(link->dev);
	if (rdma == RDMA_UNKNOWN && descriptors_are_short())
		hook_warn_once("file descriptors are short (RLIMIT_NOFILE): memory of this program "
			       "can not make room for others");
	return rdma == RDMA_NONE && !bypass_seen();
}

/* A program that cannot give the bytes is not stopped for them. */
static uint32_t link_stop(struct agent_link *link, uint64_t bytes)
{
	if (!link_may_move(link, bytes))
		return NVSHARE_OUTCOME_UNSUPPORTED;
	return agent_halt(link, bytes, link->lease.work == LEASE_WORK_GIVE_UP);
}

/*
 * Gives budget that is not in use, and returns how many of bytes have to move then. A restore that
 * found too little for its next chunk has such budget. A stopped program reports it before anything
 * moves: others may lack no more than that, and memory may not be able to move.
 */
static uint64_t link_give_unused(struct agent_link *link, uint64_t bytes,
				 const struct nvshare_mem *mem)
{
	uint64_t used = agent_lease_on_card(mem),
		 unused = link->charge > used ? link->charge - used : 0;

	if (unused && link->lease.work != LEASE_WORK_DROP)
		agent_report(link, true);
	return bytes > unused ? bytes - unused : 0;
}

/*
 * A stop on another GPU may have failed after it had let the process go, and then this GPU computes
 * although it was told to stop. Memory goes only when the process stands again.
 */
static uint32_t link_stand(struct agent_link *link, uint64_t bytes)
{
	bool is_of_stopped = link->lease.work == LEASE_WORK_EVICT_IDLE ||
			     link->lease.work == LEASE_WORK_EVICT_ASKED;

	if (!bytes || !is_of_stopped || agent_halt_stands() ||
	    !agent_link_next(agent_link_next(NULL)))
		return NVSHARE_OUTCOME_SUCCESS;
	return agent_halt(link, bytes, false);
}

static uint32_t link_evict(struct agent_link *link, uint64_t bytes)
{
	int outcome = NVSHARE_OUTCOME_SUCCESS;
	struct agent_place place;
	struct nvshare_mem mem;

	link->out = (struct pager_move){0};
	link->out_told = 0;
	budget_read(link->dev, &mem);
	bytes = link_give_unused(link, bytes, &mem);
	if (!link_may_move(link, bytes))
		return agent_halt_evicted(NVSHARE_OUTCOME_UNSUPPORTED);
	outcome = (int)link_stand(link, bytes);
	if (outcome)
		return (uint32_t)outcome;
	if (!device_enter_to_move(link->dev, bytes ? mem.resident : 0, link->pager_context_max,
				  &place))
		return agent_halt_evicted(bytes && mem.resident ? NVSHARE_OUTCOME_INVALID_STATE
								: NVSHARE_OUTCOME_SUCCESS);
	if (bytes)
		outcome = link_evict_and_hand_over(link, bytes);
	agent_leave_context(&place);
	outcome = (int)agent_halt_evicted((uint32_t)outcome);
	agent_ahead_evicted(link);
	hook_debug("device %d: evicted %llu of %llu bytes in %llu us, outcome %d, %llu copied, "
		   "%llu handed over",
		   (int)link->dev, (unsigned long long)link->out.bytes, (unsigned long long)bytes,
		   (unsigned long long)(link->out.ns / 1000), outcome,
		   (unsigned long long)link->out.copied, (unsigned long long)link->out.handed);
	return (uint32_t)outcome;
}

static bool device_has_room_for_all(CUdevice dev)
{
	size_t bytes_free, total;
	struct nvshare_mem mem;

	budget_read(dev, &mem);
	return !cuda_real.cuMemGetInfo_v2 ||
	       cuda_real.cuMemGetInfo_v2(&bytes_free, &total) != CUDA_SUCCESS ||
	       bytes_free >= mem.swapped;
}

/* A process can only run with all of its memory in, on all of its GPUs. */
static bool process_has_room_for_all(void)
{
	bool has_room = true;

	agent_for_each_link (l) {
		struct agent_place place;

		if (!agent_enter_context(l->dev, &place))
			continue;
		has_room = has_room && device_has_room_for_all(l->dev);
		agent_leave_context(&place);
	}
	return has_room;
}

/* Has no scheduler, and may have as much memory as there is. */
static bool link_is_alone(const struct agent_link *link)
{
	return link->lease.state == LEASE_OFF || link->lease.work == LEASE_WORK_ALONE;
}

/* Those of its GPUs that have come in already, and were put out again, come with this one. */
static int process_restore(CUdevice dev, struct pager_move *move)
{
	int outcome = pager_restore(dev, move);

	agent_for_each_link (l) {
		struct pager_move other = {0};
		struct agent_place place;

		if (outcome || l->dev == dev || !link_is_alone(l) || !agent_lease_is_out(l->dev))
			continue;
		outcome = NVSHARE_OUTCOME_INVALID_STATE;
		if (!agent_enter_context(l->dev, &place))
			continue;
		outcome = pager_restore(l->dev, &other);
		agent_leave_context(&place);
	}
	return outcome;
}

/*
 * Two processes that each had the memory of one GPU in, and lacked room on the other, would wait
 * for each other for ever.
 */
static void process_put_out(CUdevice dev)
{
	agent_for_each_link (l) {
		bool is_ours = l->dev == dev || (link_is_alone(l) && agent_halt_stands());
		struct pager_move out = {0};
		struct agent_place place;

		if (!is_ours || !agent_enter_context(l->dev, &place))
			continue;
		(void)pager_evict(l->dev, UINT64_MAX, agent_halt_is_frozen(), &out);
		agent_leave_context(&place);
	}
}

/*
 * Without a scheduler stopped programs come in as they find room. Part of the memory on the cards
 * is of no use, and in another's way. So all of it goes in, or out again.
 */
static int device_restore_alone(CUdevice dev, struct pager_move *move)
{
	int outcome = NVSHARE_OUTCOME_INVALID_STATE;

	if (process_has_room_for_all())
		outcome = process_restore(dev, move);
	if (outcome)
		process_put_out(dev);
	else
		budget_lost(dev); /* its next allocation waits for the scheduler */
	return outcome;
}

/*
 * Brings all memory in, since nothing may run with memory out. A pager context that this needs
 * gets the room that the program's contexts had, so the reserve sets no limit.
 */
static uint32_t link_restore(struct agent_link *link)
{
	struct pager_move move = {0};
	struct agent_place place;
	struct nvshare_mem mem;
	int outcome;

	budget_read(link->dev, &mem);
	if (!device_enter_to_move(link->dev, mem.swapped, UINT64_MAX, &place))
		return mem.swapped ? NVSHARE_OUTCOME_INVALID_STATE : NVSHARE_OUTCOME_SUCCESS;
	if (link->lease.work == LEASE_WORK_ALONE)
		outcome = device_restore_alone(link->dev, &move);
	else
		outcome = pager_restore(link->dev, &move);
	agent_leave_context(&place);
	link->in.bytes += move.bytes;
	link->in.ns += move.ns;
	if (outcome == NVSHARE_OUTCOME_SUCCESS)
		tickets_return(); /* openers come with this process, and find the memory there */
	hook_debug("device %d: restored %llu bytes in %llu us, outcome %d, %llu taken over",
		   (int)link->dev, (unsigned long long)move.bytes,
		   (unsigned long long)(move.ns / 1000), outcome, (unsigned long long)move.handed);
	return (uint32_t)outcome;
}

/* When nobody waits any more, what was made ready is kept for a while: somebody may wait again. */
static void link_prepare(struct agent_link *link, const struct lease_action *action)
{
	link->is_watched = action->due_ms > 0;
	link->is_near = !link->is_watched && action->bytes;
	if (!link->is_watched)
		agent_spares_touch(link, action->bytes);
	/* While another GPU keeps it off, a frozen thread may hold what the driver would need. */
	else if (action->bytes && !agent_halt_is_frozen())
		(void)agent_halt_prepare(link, action->bytes, false);
	link->is_report_due = link->is_watched; /* it returns slack */
}

/* Two orphans that try at the same times would be in each other's way for ever. */
static uint64_t orphan_retry_ns(void)
{
	return ORPHAN_RETRY_NS / 2 + clock_now_ns() % ORPHAN_RETRY_NS;
}

/* Carries out an action. true: it was work, and *ret_end is the event of its end. */
static bool link_perform(struct agent_link *link, const struct lease_action *action,
			 struct lease_event *ret_end)
{
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
			.outcome = link_stop(link, action->bytes),
		};
		agent_tickets_park();
		return true;
	case LEASE_ACTION_EVICT:
		*ret_end = (struct lease_event){
			.type = LEASE_EVENT_EVICTED,
			.outcome = link_evict(link, action->bytes),
		};
		agent_tickets_park();
		return true;
	case LEASE_ACTION_RESTORE:
		*ret_end = (struct lease_event){
			.type = LEASE_EVENT_RESTORED,
			.outcome = link_restore(link),
		};
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

/* The work of an action ends within it, and its event follows at once. */
void agent_lease_step(struct agent_link *link, const struct lease_event *event)
{
	struct lease_event now = *event, end = {0};
	struct lease_actions actions;
	bool was_holding = link->lease.state == LEASE_HOLDING;
	bool has_more = true, wanting = false;
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
	link->has_run = link->has_run || link->lease.state == LEASE_HOLDING;
	if (link->lease.state != LEASE_HOLDING)
		link->is_watched = false; /* with the next grant the scheduler says it anew */
	if (was_holding && (event->type == LEASE_EVENT_DROP || link->lease.state != LEASE_HOLDING))
		share_dropped(link);
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

/* An idle lease asks for the GPU. One that holds it is told of lacking memory only. */
void agent_lease_want(struct agent_link *link)
{
	bool lacks = budget_wanting(link->dev);

	if (link->state != AGENT_LINK_UP)
		return;
	if (lacks || (link->lease.state == LEASE_IDLE && link_is_wanted(link)))
		agent_lease_step(link, &(struct lease_event){.type = LEASE_EVENT_WANT});
}
