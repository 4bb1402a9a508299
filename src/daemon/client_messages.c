/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/client_messages.h"

#include "core/u64.h"
#include "daemon/dispatch.h"
#include "daemon/gpu/doubts.h"
#include "daemon/gpu/hearsay.h"
#include "daemon/halts.h"
#include "daemon/jobs/job_programs.h"
#include "daemon/peers/claims.h"
#include "daemon/peers/process.h"
#include "daemon/server.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/text.h"

#include <string.h>

/*
 * A registration looks into /proc and NVML, and takes a place in the core. It counts as so many
 * messages more.
 */
#define REGISTER_COST 4

static uint64_t client_pinned_sum(const struct nvshare_mem *mem)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < NVSHARE_PINNED_COUNT; i++)
		sum += mem->pinned[i];
	return sum;
}

/*
 * Takes a client's report into the GPU's account and the event's memory. Bytes on the card are
 * cut to the card's size, because the core must count what is compared with NVML.
 */
static void client_take_memory(struct server *server, struct peer *peer,
			       const struct nvshare_mem *mem, struct sched_memory *ret_memory)
{
	const struct memory_account before = peer->account;
	uint64_t total = server->gpus.at[peer->gpu].total;
	uint64_t *contexts = &peer->mem.pinned[NVSHARE_PINNED_CONTEXT], pinned, resident;

	if (mem->pinned[NVSHARE_PINNED_CONTEXT] != *contexts - peer->evidence.beyond)
		doubts_contexts(server, peer);
	if (!mem->pinned[NVSHARE_PINNED_CONTEXT])
		peer->evidence.beyond = 0;
	hearsay_note_context(server, peer,
			     mem->pinned[NVSHARE_PINNED_CONTEXT] + peer->evidence.beyond);
	host_out(server, peer);
	peer->mem = *mem;
	*contexts += peer->evidence.beyond;
	pinned = u64_min(client_pinned_sum(&peer->mem), total);
	resident = u64_min(mem->resident, total - pinned);
	peer->mem.pager_context = u64_min(mem->pager_context, total);
	host_in(server, peer);
	server_account(server, peer, resident + pinned, peer->account.budget);
	doubts_hear(server, peer, &before);
	*ret_memory = (struct sched_memory){
		.resident = resident,
		.swapped = mem->swapped,
		.pinned = pinned,
		.wanted = mem->wanted,
		.wanted_pinned = mem->wanted_pinned,
		.pager_context = peer->mem.pager_context,
	};
}

/*
 * A budget as the core counts (actions_told()). It is cut to the card's size: numbers from
 * strangers must not add up beyond it.
 */
static uint64_t client_clamp_budget(const struct server *server, const struct peer *peer,
				    uint64_t budget)
{
	uint64_t total = server->gpus.at[peer->gpu].total;

	return u64_min(budget, u64_excess(total, peer->evidence.beyond)) + peer->evidence.beyond;
}

static enum nvshare_register_result client_join(struct server *server, struct peer *peer,
						const struct nvshare_register *reg,
						struct sched_actions *ret_actions)
{
	struct sched_event event = {
		.type = SCHED_EVENT_JOIN,
		.client = peer->slot,
		.owner = peer->pod.owner,
		.running = reg->flags & NVSHARE_REGISTER_RUNNING,
		.fixed = reg->flags & NVSHARE_REGISTER_FIXED,
		.claim = claims_core(&peer->claim),
	};
	bool is_found = hearsay_find(server, peer, reg);
	int r;

	measure_tell_new(server); /* GPUs that NVML lists since the last look */
	if (!is_found)
		return NVSHARE_REGISTER_GPU;
	event.gpu = peer->gpu;
	event.budget = client_clamp_budget(server, peer, reg->budget);
	client_take_memory(server, peer, &reg->mem, &event.memory);
	event.doubted = peer->doubted;
	measure_join(server, peer);
	r = dispatch_step(server, &event, ret_actions);
	if (!r)
		return NVSHARE_REGISTER_OK;
	host_out(server, peer);
	peer->mem = (struct nvshare_mem){0};
	host_in(server, peer);
	server_account(server, peer, 0, 0);
	measure_left(server, peer->gpu);
	return r == SCHED_E_NO_FIT ? NVSHARE_REGISTER_NO_FIT : NVSHARE_REGISTER_GPU;
}

static void client_on_register(struct server *server, struct peer *peer,
			       const struct nvshare_register *reg)
{
	struct nvshare_registered answer = {.result = NVSHARE_REGISTER_OK};
	struct sched_actions actions = {.n = 0};

	flow_charge(server, peer, REGISTER_COST);
	if (!process_watch(server, peer)) {
		server_close(server, peer, "its process is gone");
		return;
	}
	peer->backend = reg->backend;
	peer->can_hand_over = reg->flags & NVSHARE_REGISTER_HANDOVER;
	claims_take(server, peer, &reg->claim);
	answer.result = NVSHARE_REGISTER_FULL;
	if (users_add_client(&server->users, peer->user)) {
		answer.result = client_join(server, peer, reg, &actions);
		if (answer.result != NVSHARE_REGISTER_OK)
			users_remove_client(&server->users, peer->user);
	}
	if (answer.result != NVSHARE_REGISTER_OK) {
		server_send_body(server, peer, NVSHARE_MSG_REGISTERED, 0, &answer);
		server_close(server, peer, "refused");
		return;
	}
	peer->state = PEER_STATE_CLIENT;
	peer->id = ++server->last_id;
	memcpy(peer->name, reg->name, sizeof(peer->name));
	if (peer->pod.kind != POD_KIND_POD)
		memcpy(peer->pod.name, reg->pod, sizeof(peer->pod.name));
	text_sanitize(peer->name);
	text_sanitize(peer->pod.name);
	server->n_clients++;
	server->gpus.at[peer->gpu].n_clients++;
	server_log(server, peer->pod.owner, LOG_LEVEL_INFO,
		   "join client=%u gpu=%u pid=%d uid=%u running=%d back=%d name=%s pod=%s"
		   " container=%.12s",
		   peer->id, peer->gpu, (int)peer->cred.pid, (unsigned int)peer->cred.uid,
		   !!(reg->flags & NVSHARE_REGISTER_RUNNING),
		   !!(reg->flags & NVSHARE_REGISTER_RECONNECT), TEXT_QUOTED(peer->name),
		   TEXT_QUOTED(peer->pod.name),
		   *peer->pod.group.container ? peer->pod.group.container : "none");
	trace_client(server, peer,
		     &(struct nvshare_trace_entry){
			     .kind = NVSHARE_TRACE_JOIN,
			     .detail = (reg->flags & NVSHARE_REGISTER_RUNNING) != 0,
			     .value = (uint64_t)peer->cred.pid,
		     });
	trace_name(server, peer);
	/* The answer leaves before the messages of the core's actions. */
	answer.client = peer->id;
	answer.claim = peer->claim;
	peer->context_told = hearsay_context(server, peer);
	answer.context_bytes = peer->context_told;
	answer.reserve_percent = server->reconfigure.gpus[peer->gpu].config.reserve_percent;
	answer.flags = NVSHARE_REGISTERED_WATCH | NVSHARE_REGISTERED_ORION |
		       NVSHARE_REGISTERED_SLABS | NVSHARE_REGISTERED_CLEAN |
		       NVSHARE_REGISTERED_BYPASS | NVSHARE_REGISTERED_GANG |
		       NVSHARE_REGISTERED_TICKETS;
	server_send_body(server, peer, NVSHARE_MSG_REGISTERED, 0, &answer);
	shares_join(server, peer);
	job_programs_join(server, peer);
	tickets_client_joined(server, peer);
	dispatch_perform(server, peer, &actions);
}

void client_messages_request(struct server *server, struct peer *peer,
			     const struct nvshare_mem *mem)
{
	struct sched_event event = {.type = SCHED_EVENT_REQUEST, .client = peer->slot};
	int r;

	client_take_memory(server, peer, mem, &event.memory);
	r = dispatch_event(server, &event);
	if (r)
		log_debug("ignored client=%u message=REQ_LOCK core=%d", peer->id, r);
}

void client_messages_grow(struct server *server, struct peer *peer, const struct nvshare_mem *mem)
{
	struct sched_event event = {
		.type = SCHED_EVENT_MEMORY,
		.client = peer->slot,
		.epoch = peer->held_epoch,
		.budget = peer->account.budget,
	};
	int r;

	client_take_memory(server, peer, mem, &event.memory);
	r = dispatch_event(server, &event);
	if (r)
		log_debug("ignored client=%u message=MEM_UPDATE core=%d", peer->id, r);
}

void client_messages_contexts(struct server *server, struct peer *peer, uint64_t beyond)
{
	struct nvshare_mem mem = peer->mem;
	struct sched_event event = {.type = SCHED_EVENT_PINNED, .client = peer->slot};
	struct sched_memory memory;

	/* Without contexts there is nothing that more could be the cost of. */
	if (beyond == peer->evidence.beyond ||
	    mem.pinned[NVSHARE_PINNED_CONTEXT] <= peer->evidence.beyond)
		return;
	mem.pinned[NVSHARE_PINNED_CONTEXT] -= peer->evidence.beyond;
	peer->evidence.beyond = beyond;
	/* It is no change of its contexts. */
	peer->mem.pinned[NVSHARE_PINNED_CONTEXT] = mem.pinned[NVSHARE_PINNED_CONTEXT] + beyond;
	client_take_memory(server, peer, &mem, &memory);
	event.bytes = memory.pinned;
	(void)dispatch_event(server, &event);
}

static void client_note_asked(struct server *server, struct peer *peer)
{
	if (peer->asked_ns)
		return;
	peer->asked_ns = server->now_ns;
	trace_client(server, peer, &(struct nvshare_trace_entry){.kind = NVSHARE_TRACE_ASK});
}

static void client_on_req_lock(struct server *server, struct peer *peer,
			       const struct nvshare_req_lock *req)
{
	struct sched_memory memory;

	client_note_asked(server, peer);
	if (!grace_is_on(server)) {
		client_messages_request(server, peer, &req->mem);
		return;
	}
	/* After a restart, running programs come back first. Until then nobody is let in. */
	client_take_memory(server, peer, &req->mem, &memory);
	grace_hold(server, peer, false);
}

static void client_log_released(struct server *server, const struct peer *peer,
				const struct nvshare_lock_released *released, bool is_early)
{
	/*
	 * Bytes that a stopped client gives up in parts are in the status. A failed stop has its
	 * own line.
	 */
	bool is_turn = released->grant && !released->outcome;

	if (is_early)
		server_log(server, peer->pod.owner, LOG_LEVEL_INFO,
			   "early client=%u gpu=%u grant=%llu: gave the GPU up, since it was idle",
			   peer->id, peer->gpu, (unsigned long long)released->grant);
	/* A turn that ends without moving bytes shows in the log by the next client's grant. */
	if (released->moved || released->outcome)
		server_log(server, peer->pod.owner, is_turn ? LOG_LEVEL_INFO : LOG_LEVEL_DEBUG,
			   "released client=%u gpu=%u grant=%llu outcome=%s moved=%llu ms=%llu",
			   peer->id, peer->gpu, (unsigned long long)released->grant,
			   actions_outcome(released->outcome), (unsigned long long)released->moved,
			   (unsigned long long)(released->move_ns / CLOCK_NS_PER_MS));
}

static void client_note_stopped(struct server *server, struct peer *peer,
				const struct nvshare_lock_released *released)
{
	if (!released->grant || !peer->dropped_ns)
		return;
	histogram_add(&server->metrics_counts[peer->gpu].stop, server->now_ns - peer->dropped_ns);
	peer->dropped_ns = 0;
}

static void client_release(struct server *server, struct peer *peer,
			   const struct nvshare_lock_released *released, struct sched_event *event)
{
	bool is_early = released->grant && !released->outcome &&
			sched_client_state(&server->sched, peer->slot) == SCHED_CLIENT_RUNNING;
	struct sched_actions actions;
	int r = dispatch_step(server, event, &actions);

	if (r) {
		log_debug("ignored client=%u message=LOCK_RELEASED grant=%llu core=%d", peer->id,
			  (unsigned long long)released->grant, r);
		return;
	}
	trace_client(server, peer,
		     &(struct nvshare_trace_entry){
			     .kind = NVSHARE_TRACE_RELEASE,
			     .detail = (uint8_t)released->outcome,
			     .value = released->moved,
			     .ns = released->move_ns,
		     });
	if (released->wants)
		client_note_asked(server, peer);
	if (!released->outcome) {
		server_account(server, peer, peer->account.on_card, event->budget);
		peer->n_failed = 0;
		peer->is_host_taker = false; /* until it is told to stop again */
		client_note_stopped(server, peer, released);
	}
	client_log_released(server, peer, released, is_early);
	dispatch_perform(server, peer, &actions);
}

static void client_on_released(struct server *server, struct peer *peer,
			       const struct nvshare_lock_released *released)
{
	struct sched_event event = {
		.type = SCHED_EVENT_RELEASED,
		.client = peer->slot,
		.grant = released->grant,
		.epoch = released->epoch,
		.budget = client_clamp_budget(server, peer, released->budget),
		.outcome = released->outcome,
		.is_part = released->outcome == NVSHARE_OUTCOME_PARTIAL,
		.is_short = released->outcome == NVSHARE_OUTCOME_NO_HOST_MEMORY,
		.wants = released->wants,
		.stops = halts_stops(released->halt),
		.moved = released->moved,
		.move_ns = released->move_ns,
	};
	bool is_full;

	peer->promised = 0;
	client_take_memory(server, peer, &released->mem, &event.memory);
	halts_note(server, peer, released->halt, released->flags);
	/* Measured first: what the core does next may let memory be handed over. */
	is_full = released->outcome == NVSHARE_OUTCOME_NO_CARD_MEMORY && measure_full(server, peer);
	client_release(server, peer, released, &event);
	if (is_full)
		measure_tell(server, peer->gpu);
}

static void client_on_mem_update(struct server *server, struct peer *peer,
				 const struct nvshare_mem_update *update)
{
	struct sched_event event = {
		.type = SCHED_EVENT_MEMORY,
		.client = peer->slot,
		.epoch = update->epoch,
		.budget = client_clamp_budget(server, peer, update->budget),
		.moved = update->moved,
		.move_ns = update->move_ns,
		.stops = halts_stops(update->halt),
	};
	bool is_short = false;
	int r;

	client_take_memory(server, peer, &update->mem, &event.memory);
	server_log(server, peer->pod.owner, LOG_LEVEL_DEBUG,
		   "memory client=%u gpu=%u bytes=%llu resident=%llu swapped=%llu pinned=%llu"
		   " wanted=%llu",
		   peer->id, peer->gpu, (unsigned long long)update->mem.allocated,
		   (unsigned long long)event.memory.resident,
		   (unsigned long long)event.memory.swapped,
		   (unsigned long long)event.memory.pinned,
		   (unsigned long long)(event.memory.wanted + event.memory.wanted_pinned));
	halts_note(server, peer, update->halt, update->flags);
	/* Nobody may grow until all clients are back, because their memory is unknown before. */
	if (grace_is_on(server) && (event.memory.wanted || event.memory.wanted_pinned)) {
		event.memory.wanted = 0;
		event.memory.wanted_pinned = 0;
		if (!peer->is_held)
			grace_hold(server, peer, true);
		peer->held_epoch = update->epoch;
	}
	/* A client may give budget back. More budget comes from the core alone, by an action. */
	if (event.budget < peer->account.budget) {
		server_account(server, peer, peer->account.on_card, event.budget);
		is_short = event.memory.wanted || event.memory.wanted_pinned;
	}
	if (update->moved)
		trace_client(server, peer,
			     &(struct nvshare_trace_entry){
				     .kind = NVSHARE_TRACE_BROUGHT,
				     .value = update->moved,
				     .ns = update->move_ns,
			     });
	r = dispatch_event(server, &event);
	if (r)
		log_debug("ignored client=%u message=MEM_UPDATE core=%d", peer->id, r);
	/*
	 * The client gives back the bytes that it asks for, because the driver had no room within
	 * the budget. So others may use more than the core knows. The core knows it when the
	 * client asks again.
	 */
	if (is_short && !grace_is_on(server) &&
	    sched_client_state(&server->sched, peer->slot) == SCHED_CLIENT_RUNNING)
		measure_sample(server, peer->gpu);
}

static void client_on_heartbeat(struct server *server, struct peer *peer,
				const struct nvshare_heartbeat *heartbeat)
{
	struct sched_event event = {.type = SCHED_EVENT_ALIVE, .client = peer->slot};

	if (!peer->is_beat_asked || heartbeat->nonce != peer->nonce)
		return; /* the answer to another heartbeat, or to none */
	peer->is_beat_asked = false;
	stopped_heard(server, peer);
	(void)dispatch_event(server, &event);
}

static void client_on_clean(struct server *server, struct peer *peer,
			    const struct nvshare_clean *clean)
{
	struct sched_event event = {
		.type = SCHED_EVENT_AHEAD,
		.client = peer->slot,
		.bytes = clean->bytes,
		.is_done = clean->is_done,
	};

	peer->clean = *clean;
	(void)dispatch_event(server, &event);
}

/* A counter that falls counts from another start: the end and the start came within a second. */
static bool client_has_other_orion(const struct nvshare_orion *before,
				   const struct nvshare_orion *now)
{
	return now->n_clients != before->n_clients || now->hp_ops < before->hp_ops ||
	       now->be_ops < before->be_ops || now->be_waits < before->be_waits ||
	       now->wait_us < before->wait_us;
}

static void client_on_orion(struct server *server, struct peer *peer,
			    const struct nvshare_orion *orion)
{
	bool is_other = client_has_other_orion(&peer->orion, orion);

	peer->orion = *orion;
	if (!is_other)
		return;
	server_log(server, peer->pod.owner, LOG_LEVEL_INFO, "orion client=%u gpu=%u clients=%u",
		   peer->id, peer->gpu, orion->n_clients);
	trace_client(server, peer,
		     &(struct nvshare_trace_entry){
			     .kind = NVSHARE_TRACE_ORION,
			     .value = orion->n_clients,
		     });
}

/* true: a registered client may send msg. */
static bool client_on_message(struct server *server, struct peer *peer, const struct msg *msg)
{
	switch (msg->header.type) {
	case NVSHARE_MSG_REQ_LOCK:
		client_on_req_lock(server, peer, &msg->body.req_lock);
		return true;
	case NVSHARE_MSG_LOCK_RELEASED:
		client_on_released(server, peer, &msg->body.lock_released);
		return true;
	case NVSHARE_MSG_MEM_UPDATE:
		client_on_mem_update(server, peer, &msg->body.mem_update);
		return true;
	case NVSHARE_MSG_HEARTBEAT:
		client_on_heartbeat(server, peer, &msg->body.heartbeat);
		return true;
	case NVSHARE_MSG_PING:
		server_send_body(server, peer, NVSHARE_MSG_PING, 0, &msg->body.heartbeat);
		return true;
	case NVSHARE_MSG_ACTIVITY:
		shares_activity(server, peer, &msg->body.activity);
		return true;
	case NVSHARE_MSG_SHARE_SET:
		shares_set(server, peer, &msg->body.share_set);
		return true;
	case NVSHARE_MSG_ORION:
		client_on_orion(server, peer, &msg->body.orion);
		return true;
	case NVSHARE_MSG_CLEAN:
		client_on_clean(server, peer, &msg->body.clean);
		return true;
	case NVSHARE_MSG_WATCH:
		peer->is_watching = true;
		states_watch(server, peer);
		return true;
	case NVSHARE_MSG_BORROW:
		lending_borrow(server, peer);
		return true;
	case NVSHARE_MSG_GANG:
		gangs_take(server, peer, &msg->body.gang);
		return true;
	default:
		return false;
	}
}

void client_messages_handle(struct server *server, struct peer *peer, const struct msg *msg)
{
	bool is_client_type =
		msg->header.type == NVSHARE_MSG_REQ_LOCK ||
		msg->header.type == NVSHARE_MSG_LOCK_RELEASED ||
		msg->header.type == NVSHARE_MSG_MEM_UPDATE ||
		msg->header.type == NVSHARE_MSG_HEARTBEAT || msg->header.type == NVSHARE_MSG_PING ||
		msg->header.type == NVSHARE_MSG_ACTIVITY ||
		msg->header.type == NVSHARE_MSG_SHARE_SET ||
		msg->header.type == NVSHARE_MSG_WATCH || msg->header.type == NVSHARE_MSG_ORION ||
		msg->header.type == NVSHARE_MSG_BORROW || msg->header.type == NVSHARE_MSG_CLEAN ||
		msg->header.type == NVSHARE_MSG_GANG;

	log_debug("message peer=%u type=%s", peer->slot, msg_name(msg->header.type));
	switch (peer->state) {
	case PEER_STATE_FREE:
	case PEER_STATE_REAPED:
		return;
	case PEER_STATE_CLIENT:
		if (!client_on_message(server, peer, msg))
			server_close(server, peer, "a message that a client may not send");
		return;
	case PEER_STATE_NEW:
		if (msg->header.type == NVSHARE_MSG_REGISTER) {
			client_on_register(server, peer, &msg->body.registration);
			return;
		}
		break;
	case PEER_STATE_TOOL:
		break;
	}
	if (is_client_type || msg->header.type == NVSHARE_MSG_REGISTER) {
		server_close(server, peer, "a message out of order");
		return;
	}
	connections_to_tools(server, peer);
	tools_message(server, peer, msg);
}
