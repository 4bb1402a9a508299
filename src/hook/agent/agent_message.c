/* SPDX-License-Identifier: Apache-2.0 */

/* Messages of the scheduler, one at a time, and descriptors that come with them. */

#include "core/u64.h"
#include "hook/agent/agent_private.h"
#include "hook/base/hook_log.h"
#include "hook/base/hook_options.h"
#include "hook/gate/gate.h"
#include "hook/host/hostmem.h"
#include "hook/memory/budget.h"
#include "hook/memory/context_cost.h"
#include "hook/pager/backend.h"
#include "hook/pager/transfer.h"
#include "hook/tickets/tickets.h"
#include "ipc/pass.h"
#include "util/clock.h"

#include <stdio.h>

#define MESSAGE_BYTES_MAX (1ull << 48) /* above any card or machine, as in a report */

/* While the answer came, threads may have given up, or may need less now. */
static bool memory_is_still_lacked(const struct agent_link *link, uint64_t wanted)
{
	struct nvshare_mem mem;
	uint64_t lacked;

	budget_read(link->dev, &mem);
	lacked = mem.wanted + mem.wanted_pinned;
	return lacked && lacked >= wanted;
}

/* A budget above the card's size would limit nothing. */
static uint64_t link_possible_budget(const struct agent_link *link, uint64_t budget)
{
	if (backend_of(link->dev) == NVSHARE_BACKEND_MANAGED)
		return u64_min(budget, MESSAGE_BYTES_MAX);
	return u64_min(budget, link->total);
}

/*
 * To the scheduler another connection of this process is another client. The limit keeps sums from
 * overflowing.
 */
static void host_take_others(const struct agent_link *link, uint64_t others)
{
	uint64_t own = agent_lease_host_told(link).bytes;

	others -= u64_min(own, others);
	hostmem_set_others(u64_min(others, MESSAGE_BYTES_MAX));
}

void agent_message_take_descriptor(struct agent_link *link, const struct msg *msg, int fd)
{
	bool is_drop = msg->header.type == NVSHARE_MSG_DROP_LOCK;
	bool is_awaited = link->may_hand_over && link->state == AGENT_LINK_UP;

	if (is_drop) /* each order says it anew */
		link->hand_bytes = fd >= 0 && is_awaited ? msg->body.drop_lock.hand_bytes : 0;
	if (is_drop && link->hand_bytes)
		transfer_set_sink(link->dev, fd);
	else if (msg->header.type == NVSHARE_MSG_HANDOVER && is_awaited && fd >= 0)
		transfer_add_source(link->dev, fd);
	else if (msg->header.type == NVSHARE_MSG_SLABS && link->state == AGENT_LINK_UP && fd >= 0)
		agent_slabs_lent(link, &msg->body.slabs, fd);
	else
		pass_close(fd);
}

/*
 * REGISTER has said that nothing runs here, but a thread may have made a context since. The
 * scheduler would then take the memory of work that runs. The gate is closed first, so nothing
 * begins after the look.
 */
static bool link_has_begun_since(struct agent_link *link)
{
	if (link->is_running || !lease_is_open(&link->lease) || agent_lease_is_out(link->dev))
		return false;
	gate_set(GATE_CLOSED);
	if (!device_has_context(link->dev))
		return false;
	agent_lease_sync_gate();
	return true;
}

/*
 * Warns a program that asked for a priority and got a lower one. Only at the first registration:
 * later nvsharectl may have given another.
 */
static void claim_check_priority(const struct agent_link *link, const struct nvshare_claim *given)
{
	if (!link->was_registered && link->claimed.priority > NVSHARE_PRIORITY_NORMAL &&
	    given->priority < link->claimed.priority)
		hook_warn_once("priority %s is given, not %s: what users may claim is the "
			       "scheduler's NVSHARE_PRIORITY_MAX",
			       hook_options_priority(given->priority),
			       hook_options_priority(link->claimed.priority));
}

static void message_registered(struct agent_link *link, const struct nvshare_registered *body)
{
	if (link->state != AGENT_LINK_REGISTERING) {
		link->is_broken = true;
		return;
	}
	if (body->result != NVSHARE_REGISTER_OK) {
		agent_link_refused(link, body);
		link->is_broken = true;
		return;
	}
	if (link_has_begun_since(link)) {
		agent_link_register_again(link);
		return;
	}
	if (!share_admitted(link, body)) {
		agent_lease_sync_gate();
		agent_link_register_again(link);
		return;
	}
	hook_debug("device %d: registered as client %u", (int)link->dev, body->client);
	link->state = AGENT_LINK_UP;
	claim_check_priority(link, &body->claim);
	share_registered(link, body);
	if (body->flags & NVSHARE_REGISTERED_WATCH)
		agent_link_send(link, NVSHARE_MSG_WATCH, NULL);
	agent_gang_begin(link, body); /* before it asks for the lock */
	link->takes_bypass = body->flags & NVSHARE_REGISTERED_BYPASS;
	agent_orion_begin(link, body);
	agent_ahead_begin(link, body);
	agent_slabs_begin(link, body);
	tickets_renew(hook_options()->ipc_moves && (body->flags & NVSHARE_REGISTERED_TICKETS));
	link->was_registered = true;
	link->is_missed = false;
	link->is_away = false;
	link->busy_ns = 0;
	link->up_ns = clock_now_ns();
	link->quiet_ns = 0;
	link->backoff_ns = AGENT_BACKOFF_NS_MIN;
	link->orphan_ns = AGENT_NEVER;
	link->is_orphan_late = false;
	if (body->context_bytes && body->context_bytes <= link->total)
		context_cost_learn(link->dev, body->context_bytes);
	budget_set_reserve(link->dev, body->reserve_percent);
	/* The process may have to stop for another GPU, before an order says what this one may
	 * have. */
	link->pager_context_max = link->total / 100 * body->reserve_percent;
	agent_lease_step(link, &(struct lease_event){.type = LEASE_EVENT_REGISTERED,
						     .running = link->is_running});
	if (link->lease.state == LEASE_HOLDING)
		agent_lease_want(link);
	agent_settle(link->dev, CUDA_SUCCESS);
}

/* The user cannot see from the program why it waits. */
static void message_gpu_state(const struct agent_link *link, const struct nvshare_gpu_state *body)
{
	char xid[32] = "";

	if (body->xid)
		(void)snprintf(xid, sizeof(xid), " (Xid %u)", body->xid);
	if (body->state == NVSHARE_STATE_LOST)
		hook_log_warn("GPU %d is lost%s: this program gets no turn there until the GPU is "
			      "reset and answers again",
			      (int)link->dev, xid);
	else if (body->state == NVSHARE_STATE_ERROR)
		hook_log_warn("GPU %d has an error%s: this program gets no turn there until the "
			      "GPU has recovered",
			      (int)link->dev, xid);
	else
		hook_debug("GPU %d is used again", (int)link->dev);
}

static void message_host_memory(const struct agent_link *link,
				const struct nvshare_host_memory *body)
{
	uint64_t own = agent_lease_host_told(link).lacked;

	host_take_others(link, body->others);
	agent_spares_wanted(body->wanted - u64_min(own, body->wanted));
	hook_debug("others have %llu bytes of host memory, and lack %llu",
		   (unsigned long long)body->others, (unsigned long long)body->wanted);
}

static void message_drop_lock(struct agent_link *link, const struct nvshare_drop_lock *body,
			      struct lease_event *ret_event)
{
	uint64_t own = agent_lease_host_told(link).unused;

	*ret_event = (struct lease_event){
		.type = LEASE_EVENT_DROP,
		.grant = body->grant,
		.bytes = body->bytes,
		.epoch = body->epoch,
	};
	host_take_others(link, body->host_others);
	link->host_coming =
		u64_min(body->host_coming, u64_min(body->host_others, MESSAGE_BYTES_MAX));
	link->host_coming -= u64_min(own, link->host_coming);
	agent_moves_sync_coming();
	link->pager_context_max = body->pager_context_max;
	link->charge = body->charge;
}

/* Messages that the lease hears of. false: it is none of them. */
static bool message_to_event(struct agent_link *link, const struct msg *msg,
			     struct lease_event *ret_event)
{
	struct lease_event event = {0};

	switch (msg->header.type) {
	case NVSHARE_MSG_LOCK_OK:
		budget_set_bound(link->dev, UINT64_MAX);
		event.type = LEASE_EVENT_LOCK_OK;
		event.grant = msg->body.lock_ok.grant;
		event.budget = link_possible_budget(link, msg->body.lock_ok.budget);
		event.epoch = msg->body.lock_ok.epoch;
		break;
	case NVSHARE_MSG_DROP_LOCK:
		message_drop_lock(link, &msg->body.drop_lock, &event);
		break;
	case NVSHARE_MSG_MEM_AVAILABLE:
		event.type = LEASE_EVENT_BUDGET;
		event.budget = link_possible_budget(link, msg->body.mem_available.budget);
		event.epoch = msg->body.mem_available.epoch;
		break;
	case NVSHARE_MSG_MEM_REFUSED:
		event.type = LEASE_EVENT_REFUSED;
		budget_set_bound(link->dev, msg->body.mem_refused.limit);
		break;
	case NVSHARE_MSG_PREPARE_SWAP_OUT:
		event.type = LEASE_EVENT_PREPARE;
		event.bytes = msg->body.prepare_swap_out.bytes;
		event.due_ms = msg->body.prepare_swap_out.due_ms;
		host_take_others(link, msg->body.prepare_swap_out.host_others);
		link->pager_context_max = msg->body.prepare_swap_out.pager_context_max;
		break;
	default:
		return false;
	}
	*ret_event = event;
	return true;
}

/* A DROP is being answered. */
static bool link_moves_out(const struct agent_link *link)
{
	enum lease_work work = link->lease.work;

	return work == LEASE_WORK_DROP || work == LEASE_WORK_EVICT_IDLE ||
	       work == LEASE_WORK_EVICT_ASKED;
}

static void message_step_lease(struct agent_link *link, const struct msg *msg,
			       const struct lease_event *event)
{
	if (link->state != AGENT_LINK_UP) {
		link->is_broken = true;
		return;
	}
	hook_debug("device %d: %s", (int)link->dev, msg_name(msg->header.type));
	if (event->type == LEASE_EVENT_REFUSED &&
	    !memory_is_still_lacked(link, msg->body.mem_refused.wanted)) {
		agent_lease_want(link); /* asks anew: may this be had, or is it refused, too? */
		return;
	}
	agent_lease_step(link, event);
	/* An order that has crossed what this program did meanwhile leads to nothing. */
	if (event->type == LEASE_EVENT_DROP && !link_moves_out(link))
		agent_moves_end_order(link);
	if (event->type == LEASE_EVENT_LOCK_OK && link->lease.state == LEASE_HOLDING)
		link->mistrust_ns = 0;
	/* Where a thread waits for more than the new budget, the scheduler must hear of it again.
	 */
	if (link->lease.state == LEASE_HOLDING &&
	    (event->type == LEASE_EVENT_LOCK_OK || event->type == LEASE_EVENT_BUDGET))
		agent_lease_want(link);
}

void agent_message_handle(struct agent_link *link, const struct msg *msg)
{
	struct lease_event event;

	switch (msg->header.type) {
	case NVSHARE_MSG_REGISTERED:
		message_registered(link, &msg->body.registered);
		return;
	case NVSHARE_MSG_HEARTBEAT:
		agent_link_send(link, NVSHARE_MSG_HEARTBEAT, &msg->body.heartbeat);
		return;
	case NVSHARE_MSG_SET_SHARE:
		if (link->state == AGENT_LINK_UP)
			share_set(link, &msg->body.set_share);
		else
			link->is_broken = true;
		return;
	case NVSHARE_MSG_HOST_MEMORY:
		message_host_memory(link, &msg->body.host_memory);
		return;
	case NVSHARE_MSG_TICKET_WORD:
		agent_tickets_hear(&msg->body.ticket_word);
		return;
	case NVSHARE_MSG_COPY_AHEAD:
		if (link->state == AGENT_LINK_UP)
			agent_ahead_hear(link, msg->body.copy_ahead.bytes);
		else
			link->is_broken = true;
		return;
	case NVSHARE_MSG_GPU_STATE:
		message_gpu_state(link, &msg->body.gpu_state);
		return;
	case NVSHARE_MSG_WAIT_FOR_MEM:
		/* Where memory is being moved, the slack that was asked for comes with it. */
		if (msg->body.wait_for_mem.why != NVSHARE_WAIT_SWAP &&
		    link->state == AGENT_LINK_UP && budget_drop_slack(link->dev))
			agent_report(link, true);
		return;
	default:
		/* Of the others PING informs; HANDOVER and SLABS have brought descriptors already.
		 */
		if (message_to_event(link, msg, &event))
			message_step_lease(link, msg, &event);
	}
}
