/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/tools/tool_status.h"

#include "daemon/jobs/job_messages.h"
#include "daemon/server.h"
#include "daemon/tools/status_fill.h"
#include "util/log.h"

/* The most packets of a status, and slots looked at, a turn: clients come in between. */
#define PACKETS_A_TURN 16
#define SLOTS_A_TURN   1024

/* The body of a packet about one client, of those that not all clients have. */
union status_body {
	struct nvshare_status_orion orion;
	struct nvshare_status_clean clean;
	struct nvshare_status_gang gang;
	struct nvshare_status_wait wait;
};

/* The part is made once for all tools that have asked by now. */
static const struct nvshare_status_client *status_client(struct server *server,
							 const struct peer *peer, uint64_t ticket)
{
	const struct nvshare_status_client *found =
		snapshot_find(&server->tools.snapshot, peer->slot, peer->generation, ticket);
	struct nvshare_status_client *made;

	if (found)
		return found;
	made = snapshot_make(&server->tools.snapshot, peer->slot, peer->generation);
	status_fill_client(server, peer, made);
	return made;
}

/* The next outsider from *at on, GPU by GPU. false: there is none. */
static bool status_next_outsider(const struct server *server, uint32_t *at,
				 struct nvshare_status_outsider *ret)
{
	for (; *at < server->gpus.n * OUTSIDERS_SHOWN; (*at)++) {
		uint32_t gpu = *at / OUTSIDERS_SHOWN, i = *at % OUTSIDERS_SHOWN;
		const struct outsiders_gpu *outside = &server->measure.outsiders.gpus[gpu];

		if (i >= outside->n_shown)
			continue;
		*ret = (struct nvshare_status_outsider){
			.bytes = outside->shown[i].bytes,
			.gpu = gpu,
			.pid = outside->shown[i].pid,
		};
		outsiders_name(ret->pid, ret->name);
		(*at)++;
		return true;
	}
	return false;
}

/* The state of the next GPU from cursor->at on. false: there is none, or the tool wants none. */
static bool status_next_state(const struct server *server, struct peer_cursor *cursor,
			      struct nvshare_status_state *ret)
{
	while (cursor->at < server->gpus.n && !server->gpus.at[cursor->at].total)
		cursor->at++;
	if (!(cursor->flags & NVSHARE_GET_STATUS_STATES) || cursor->at >= server->gpus.n)
		return false;
	states_fill(server, cursor->at++, ret);
	return true;
}

/* The next client from cursor->at on. NULL: there is none among the slots of this turn. */
static const struct peer *status_next_client(const struct server *server,
					     struct peer_cursor *cursor, uint32_t *n_looked)
{
	while (cursor->at < server->slots_used && (*n_looked)++ < SLOTS_A_TURN) {
		const struct peer *peer = &server->peers[cursor->at++];

		if (peer->state == PEER_STATE_CLIENT)
			return peer;
	}
	return NULL;
}

/*
 * The parts of a status about some of the clients, in their order behind STATUS_CLIENT. Each fills
 * in the body of a packet about peer. false: there is nothing to tell.
 */
static bool status_orion(struct server *server, const struct peer *peer, uint64_t ticket,
			 union status_body *ret)
{
	(void)server;
	(void)ticket;
	ret->orion = (struct nvshare_status_orion){peer->orion, peer->id, 0};
	return peer->orion.n_clients;
}

static bool status_clean(struct server *server, const struct peer *peer, uint64_t ticket,
			 union status_body *ret)
{
	(void)server;
	(void)ticket;
	ret->clean = (struct nvshare_status_clean){peer->clean, peer->id, 0};
	return peer->clean.bytes || peer->clean.copied || peer->clean.saved;
}

static bool status_gang(struct server *server, const struct peer *peer, uint64_t ticket,
			union status_body *ret)
{
	return gangs_fill(server, peer, ticket, &ret->gang);
}

static bool status_wait(struct server *server, const struct peer *peer, uint64_t ticket,
			union status_body *ret)
{
	return status_fill_wait(server, peer, ticket, &ret->wait);
}

static const struct status_part {
	uint32_t flag; /* NVSHARE_GET_STATUS_* */
	uint16_t type;
	bool (*fill)(struct server *server, const struct peer *peer, uint64_t ticket,
		     union status_body *ret);
} status_parts[] = {
	[PEER_STAGE_ORION - PEER_STAGE_ORION] = {NVSHARE_GET_STATUS_ORION, NVSHARE_MSG_STATUS_ORION,
						 status_orion},
	[PEER_STAGE_CLEAN - PEER_STAGE_ORION] = {NVSHARE_GET_STATUS_CLEAN, NVSHARE_MSG_STATUS_CLEAN,
						 status_clean},
	[PEER_STAGE_GANGS - PEER_STAGE_ORION] = {NVSHARE_GET_STATUS_GANGS, NVSHARE_MSG_STATUS_GANG,
						 status_gang},
	[PEER_STAGE_WAITS - PEER_STAGE_ORION] = {NVSHARE_GET_STATUS_WAITS, NVSHARE_MSG_STATUS_WAIT,
						 status_wait},
};

/* The next packet of the stage, which is one of status_parts. false: as below. */
static bool status_next_part(struct server *server, struct peer_cursor *cursor, uint32_t *n_looked,
			     struct msg *ret_msg)
{
	const struct status_part *part = &status_parts[cursor->stage - PEER_STAGE_ORION];
	union status_body body;
	const struct peer *peer;

	while (cursor->flags & part->flag &&
	       (peer = status_next_client(server, cursor, n_looked))) {
		if (!part->fill(server, peer, cursor->ticket, &body))
			continue;
		(void)msg_encode(part->type, cursor->seq, &body, ret_msg);
		return true;
	}
	return false;
}

/* The next packet from the clients on. false: there is none among the slots of this turn. */
static bool status_next_of_clients(struct server *server, struct peer_cursor *cursor,
				   struct msg *ret_msg)
{
	struct nvshare_status_end end;
	const struct peer *peer;
	uint32_t n_looked = 0;

	if (cursor->stage == PEER_STAGE_CLIENTS) {
		peer = status_next_client(server, cursor, &n_looked);
		if (peer) {
			(void)msg_encode(NVSHARE_MSG_STATUS_CLIENT, cursor->seq,
					 status_client(server, peer, cursor->ticket), ret_msg);
			cursor->n_clients++;
			return true;
		}
		if (cursor->at < server->slots_used)
			return false;
		cursor->stage = PEER_STAGE_ORION;
		cursor->at = 0;
	}
	for (; cursor->stage <= PEER_STAGE_WAITS; cursor->stage++, cursor->at = 0) {
		if (status_next_part(server, cursor, &n_looked, ret_msg))
			return true;
		if (cursor->flags & status_parts[cursor->stage - PEER_STAGE_ORION].flag &&
		    cursor->at < server->slots_used)
			return false;
	}
	end = (struct nvshare_status_end){cursor->n_gpus, cursor->n_clients};
	(void)msg_encode(NVSHARE_MSG_STATUS_END, cursor->seq, &end, ret_msg);
	cursor->stage = PEER_STAGE_NONE;
	return true;
}

/* The next packet of the status. false: all slots of this turn are looked at. */
static bool status_next_packet(struct server *server, struct peer_cursor *cursor,
			       struct msg *ret_msg)
{
	union {
		struct nvshare_status_node node;
		struct nvshare_status_pool pool;
		struct nvshare_status_gpu gpu;
		struct nvshare_status_state state;
		struct nvshare_status_outsider outsider;
	} body;

	if (cursor->stage == PEER_STAGE_NODE) {
		log_debug("status ticket=%llu", (unsigned long long)cursor->ticket);
		measure_sample_all(server);
		stopped_look(server);
		shares_power(server);
		status_fill_node(server, &body.node);
		(void)msg_encode(NVSHARE_MSG_STATUS_NODE, cursor->seq, &body, ret_msg);
		cursor->stage =
			cursor->flags & NVSHARE_GET_STATUS_POOL ? PEER_STAGE_POOL : PEER_STAGE_GPUS;
		return true;
	}
	if (cursor->stage == PEER_STAGE_POOL) {
		status_fill_pool(server, &body.pool);
		(void)msg_encode(NVSHARE_MSG_STATUS_POOL, cursor->seq, &body, ret_msg);
		cursor->stage = PEER_STAGE_GPUS;
		return true;
	}
	if (cursor->stage == PEER_STAGE_GPUS) {
		while (cursor->at < server->gpus.n && !server->gpus.at[cursor->at].total)
			cursor->at++;
		if (cursor->at < server->gpus.n) {
			cursor->n_gpus++;
			status_fill_gpu(server, cursor->at++, &body.gpu);
			(void)msg_encode(NVSHARE_MSG_STATUS_GPU, cursor->seq, &body, ret_msg);
			return true;
		}
		cursor->stage = PEER_STAGE_STATES;
		cursor->at = 0;
	}
	if (cursor->stage == PEER_STAGE_STATES) {
		if (status_next_state(server, cursor, &body.state)) {
			(void)msg_encode(NVSHARE_MSG_STATUS_STATE, cursor->seq, &body, ret_msg);
			return true;
		}
		cursor->stage = PEER_STAGE_OUTSIDERS;
		cursor->at = 0;
	}
	if (cursor->stage == PEER_STAGE_OUTSIDERS) {
		if (status_next_outsider(server, &cursor->at, &body.outsider)) {
			(void)msg_encode(NVSHARE_MSG_STATUS_OUTSIDER, cursor->seq, &body, ret_msg);
			return true;
		}
		cursor->stage = PEER_STAGE_CLIENTS;
		cursor->at = 0;
	}
	return status_next_of_clients(server, cursor, ret_msg);
}

void tool_status_begin(struct server *server, struct peer *peer, uint32_t seq, uint32_t flags)
{
	peer->cursor = (struct peer_cursor){
		.stage = PEER_STAGE_NODE,
		.flags = flags,
		.seq = seq,
		.ticket = snapshot_ask(&server->tools.snapshot),
	};
}

void tool_status_continue(struct server *server, struct peer *peer)
{
	struct msg msg;

	/* A packet that does not go out is queued. The cursor waits until it has gone. */
	for (unsigned int i = 0; i < PACKETS_A_TURN; i++) {
		bool is_jobs = peer->cursor.stage >= PEER_STAGE_JOBS &&
			       peer->cursor.stage <= PEER_STAGE_QUEUE;

		if (peer->cursor.stage == PEER_STAGE_NONE || peer->queue_len || peer->is_closing)
			return;
		if (is_jobs ? !job_messages_next(server, &peer->cursor, &msg)
			    : !status_next_packet(server, &peer->cursor, &msg))
			return;
		server_send(server, peer, &msg);
		flow_charge(server, peer, 1);
	}
}
