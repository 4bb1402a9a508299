/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/actions.h"

#include "core/u64.h"
#include "daemon/gpu/doubts.h"
#include "daemon/host.h"
#include "daemon/jobs/job_programs.h"
#include "daemon/peers/handover.h"
#include "daemon/server.h"
#include "util/clock.h"
#include "util/log.h"

/* The core numbers its outcomes and waits as the wire does, so numbers pass unchanged. */
_Static_assert((int)SCHED_WAIT_STUCK == (int)NVSHARE_WAIT_STUCK, "enum nvshare_wait");
_Static_assert((int)SCHED_WAIT_MEMORY == (int)NVSHARE_WAIT_MEMORY, "enum nvshare_wait");

/* Clients may have too much for a moment in a switch. After this time something is wrong. */
#define OVERCOMMITTED_NS (5 * CLOCK_NS_PER_SEC)

const char *actions_outcome(uint64_t outcome)
{
	static const char *const names[] = {
		[NVSHARE_OUTCOME_SUCCESS] = "success",
		[NVSHARE_OUTCOME_TIMEOUT] = "timeout",
		[NVSHARE_OUTCOME_SAVE_FAILED] = "save-failed",
		[NVSHARE_OUTCOME_NO_HOST_MEMORY] = "no-host-memory",
		[NVSHARE_OUTCOME_GPU_HUNG] = "gpu-hung",
		[NVSHARE_OUTCOME_INVALID_STATE] = "invalid-state",
		[NVSHARE_OUTCOME_UNSUPPORTED] = "unsupported",
		[NVSHARE_OUTCOME_PARTIAL] = "partial",
		[NVSHARE_OUTCOME_NO_CARD_MEMORY] = "no-card-memory",
	};

	return outcome < NVSHARE_OUTCOME_COUNT ? names[outcome] : "?";
}

/* A stop that fails is tried again and again. The 1st, 2nd, 4th, 8th ... failure is logged. */
static void actions_log_failed(struct server *server, struct peer *peer, uint32_t outcome)
{
	bool is_new = outcome != peer->last_failed;

	peer->last_failed = outcome;
	peer->n_failed++;
	if (!is_new && (peer->n_failed & (peer->n_failed - 1)))
		return;
	server_log(server, peer->pod.owner, LOG_LEVEL_WARN,
		   "stop-failed client=%u pid=%d gpu=%u outcome=%s times=%u", peer->id,
		   (int)peer->cred.pid, peer->gpu, actions_outcome(outcome), peer->n_failed);
}

static void actions_on_overcommitted(struct server *server, struct deadline *deadline)
{
	uint32_t index = (uint32_t)(deadline - server->actions.overcommitted);
	struct sched_gpu_status status;

	sched_gpu_status(&server->sched, index, &status);
	if (status.overcommitted)
		log_warn("overcommitted gpu=%u bytes=%llu: clients have so much more"
			 " than the card's usable memory",
			 index, (unsigned long long)status.overcommitted);
}

void actions_init(struct server *server)
{
	for (uint32_t i = 0; i < SCHED_GPUS_MAX; i++)
		server->actions.overcommitted[i].on_due = actions_on_overcommitted;
}

static void actions_log_report(struct server *server, struct peer *peer,
			       const struct sched_action *action)
{
	switch (action->report) {
	case SCHED_REPORT_HUNG:
		server_log(server, peer->pod.owner, LOG_LEVEL_WARN,
			   "hung client=%u pid=%d gpu=%u: does not answer; its memory counts for as"
			   " long as it is there",
			   peer->id, (int)peer->cred.pid, peer->gpu);
		peer->is_down = true;
		events_add_client(server, NVSHARE_EVENT_WORKER_DOWN, NVSHARE_EVENT_WARNING, peer,
				  "client %u (%s, pid %d) does not answer, and lost its turn",
				  peer->id, peer->name, (int)peer->cred.pid);
		break;
	case SCHED_REPORT_BACK:
		server_log(server, peer->pod.owner, LOG_LEVEL_INFO, "back client=%u pid=%d gpu=%u",
			   peer->id, (int)peer->cred.pid, peer->gpu);
		if (peer->is_down)
			events_add_client(server, NVSHARE_EVENT_WORKER_BACK, NVSHARE_EVENT_INFO,
					  peer, "client %u (%s, pid %d) answers again", peer->id,
					  peer->name, (int)peer->cred.pid);
		peer->is_down = false;
		peer->stopped = PROCESS_GOES_ON;
		break;
	case SCHED_REPORT_LATE:
		server_log(server, peer->pod.owner, LOG_LEVEL_WARN,
			   "late client=%u pid=%d gpu=%u: no answer in time", peer->id,
			   (int)peer->cred.pid, peer->gpu);
		break;
	case SCHED_REPORT_STOP_FAILED:
		server->metrics_counts[peer->gpu].n_stop_failures++;
		actions_log_failed(server, peer, (uint32_t)action->bytes);
		break;
	case SCHED_REPORT_NOT_PREEMPTIBLE:
		server_log(server, peer->pod.owner, LOG_LEVEL_WARN,
			   "not-preemptible client=%u pid=%d gpu=%u: three stops failed in a row",
			   peer->id, (int)peer->cred.pid, peer->gpu);
		break;
	case SCHED_REPORT_OVERCOMMITTED:
		/* This report is about a GPU; its index stands in the client's place. */
		deadline_set(&server->deadlines, &server->actions.overcommitted[action->client],
			     server->now_ns + OVERCOMMITTED_NS);
		break;
	}
}

void actions_ask_beat(struct server *server, struct peer *peer)
{
	/* One heartbeat at a time: they must not fill the socket of a stopped process. */
	if (peer->is_beat_asked)
		return;
	peer->is_beat_asked = true;
	peer->beat_ns = server->now_ns;
	peer->nonce++;
	server_queue_body(server, peer, NVSHARE_MSG_HEARTBEAT,
			  &(struct nvshare_heartbeat){peer->nonce});
}

/* As the client counts: it does not know of the bytes of its contexts that it does not report. */
static uint64_t actions_told(const struct peer *peer, uint64_t budget)
{
	return u64_excess(budget, peer->evidence.beyond);
}

static void actions_give_budget(struct server *server, struct peer *peer, uint64_t budget)
{
	uint64_t total = server->gpus.at[peer->gpu].total;

	server_account(server, peer, peer->account.on_card, budget < total ? budget : total);
}

/* Second contexts share the reserve with pinned bytes. A client that finds it full drains. */
static uint64_t actions_second_max(const struct server *server, struct peer *peer)
{
	const struct gpu *gpu = &server->gpus.at[peer->gpu];
	const struct per_gpu_limits *own = &server->reconfigure.gpus[peer->gpu];
	uint64_t reserve = gpu->total / 100 * own->config.reserve_percent;
	struct sched_gpu_status status;
	struct gpu_limits limits = {.bytes = own->context_bytes_max, .n = own->n_contexts_max};

	sched_gpu_status(&server->sched, peer->gpu, &status);
	limits.reserve = reserve > status.spare ? reserve - status.spare : 0;
	return gpus_second_max(gpu, &peer->account, &limits, &peer->is_second_limited);
}

/* A client that cannot be frozen for a reason other than room needs no pager context. */
static bool peer_may_freeze(const struct peer *peer)
{
	return peer->halt == NVSHARE_HALT_UNKNOWN || peer->halt == NVSHARE_HALT_FREEZE ||
	       peer->halt == NVSHARE_HALT_NO_ROOM || peer->halt == NVSHARE_HALT_CONTEXTS;
}

/*
 * The promise counts until the context is made or given up, so clients told in the same moment
 * hear of what is left. is_needed: false: nobody waits yet, and the client makes no context.
 */
static uint64_t actions_promise_second(struct server *server, struct peer *peer, bool is_needed)
{
	uint64_t max = actions_second_max(server, peer);
	/* The client's own context is the best guess that costs no search. */
	uint64_t context = peer->context_bytes ? peer->context_bytes : peer->context_told;

	peer->promised = max < context ? max : context;
	if (!is_needed || !peer_may_freeze(peer))
		peer->promised = 0;
	server_account(server, peer, peer->account.on_card, peer->account.budget);
	return max;
}

static void actions_send_drop(struct server *server, struct peer *peer,
			      const struct sched_action *action)
{
	struct nvshare_drop_lock drop = {
		.grant = action->grant,
		.bytes = action->bytes,
		.epoch = action->epoch,
		.host_others = host_others(server, peer, true),
		.host_coming = host_coming(server, peer, action->to),
		.pager_context_max = actions_promise_second(server, peer, true),
		.charge = actions_told(peer, action->budget),
	};

	if (action->grant)
		states_note_order(server);
	if (!handover_drop(server, peer, action->to, &drop))
		server_queue_body(server, peer, NVSHARE_MSG_DROP_LOCK, &drop);
}

/* A client gives up what it can spare while it waits, whoever's turn it is. */
static uint32_t actions_wait_why(const struct sched_action *action)
{
	return action->why == SCHED_WAIT_GANG ? NVSHARE_WAIT_TURN : (uint32_t)action->why;
}

static void actions_send(struct server *server, struct peer *peer,
			 const struct sched_action *action)
{
	switch (action->type) {
	case SCHED_ACTION_GRANT:
		actions_give_budget(server, peer, action->budget);
		server_queue_body(server, peer, NVSHARE_MSG_LOCK_OK,
				  &(struct nvshare_lock_ok){action->grant,
							    actions_told(peer, action->budget),
							    action->epoch});
		break;
	case SCHED_ACTION_DROP:
		actions_send_drop(server, peer, action);
		break;
	case SCHED_ACTION_WAIT:
		server_queue_body(server, peer, NVSHARE_MSG_WAIT_FOR_MEM,
				  &(struct nvshare_wait_for_mem){action->bytes, action->position,
								 actions_wait_why(action)});
		break;
	case SCHED_ACTION_BUDGET:
		actions_give_budget(server, peer, action->budget);
		server_queue_body(server, peer, NVSHARE_MSG_MEM_AVAILABLE,
				  &(struct nvshare_mem_available){
					  actions_told(peer, action->budget), action->epoch});
		break;
	case SCHED_ACTION_REFUSE:
		server_queue_body(server, peer, NVSHARE_MSG_MEM_REFUSED,
				  &(struct nvshare_mem_refused){action->bytes, action->budget});
		break;
	case SCHED_ACTION_PREPARE:
		server_queue_body(
			server, peer, NVSHARE_MSG_PREPARE_SWAP_OUT,
			&(struct nvshare_prepare_swap_out){
				action->bytes, action->due_ms,
				host_others(server, peer, action->bytes > 0),
				actions_promise_second(server, peer, action->due_ms > 0)});
		break;
	case SCHED_ACTION_BEAT:
		actions_ask_beat(server, peer);
		break;
	case SCHED_ACTION_AHEAD:
		server_queue_body(server, peer, NVSHARE_MSG_COPY_AHEAD,
				  &(struct nvshare_copy_ahead){action->bytes});
		break;
	case SCHED_ACTION_REPORT:
		break;
	}
}

static void actions_note_grant(struct server *server, struct peer *peer,
			       const struct sched_action *action)
{
	uint64_t waited_ns = peer->asked_ns ? server->now_ns - peer->asked_ns : 0;
	struct metrics_counts *counts = &server->metrics_counts[peer->gpu];

	counts->n_grants++;
	if (peer->asked_ns) {
		histogram_add(&counts->queue_wait, waited_ns);
		histogram_add(&counts->wake, action->woke_ns);
	}
	peer->dropped_ns = 0;
	server_log(server, peer->pod.owner, LOG_LEVEL_INFO,
		   "grant client=%u gpu=%u grant=%llu waited_ms=%llu", peer->id, peer->gpu,
		   (unsigned long long)action->grant,
		   (unsigned long long)(waited_ns / CLOCK_NS_PER_MS));
	peer->asked_ns = 0;
	peer->n_failed = 0;
}

/* A program may try again and again, so one line a second must do. */
static void actions_log_refusal(struct server *server, struct peer *peer,
				const struct sched_action *action)
{
	if (peer->refused_ns && server->now_ns - peer->refused_ns < CLOCK_NS_PER_SEC)
		return;
	peer->refused_ns = server->now_ns;
	server_log(server, peer->pod.owner, LOG_LEVEL_INFO,
		   "refuse client=%u gpu=%u wanted=%llu limit=%llu", peer->id, peer->gpu,
		   (unsigned long long)action->bytes, (unsigned long long)action->budget);
}

/* The news among the actions; refusals and heartbeats are none. */
static void actions_trace(struct server *server, struct peer *peer,
			  const struct sched_action *action)
{
	struct nvshare_trace_entry entry = {.value = action->bytes};

	switch (action->type) {
	case SCHED_ACTION_GRANT:
		entry.kind = NVSHARE_TRACE_GRANT;
		entry.value = action->budget;
		break;
	case SCHED_ACTION_DROP:
		entry.kind = NVSHARE_TRACE_STOP;
		entry.detail = action->grant != 0;
		break;
	case SCHED_ACTION_WAIT:
		entry.kind = NVSHARE_TRACE_WAIT;
		entry.detail =
			action->why == SCHED_WAIT_GANG ? NVSHARE_WAIT_GANG : (uint8_t)action->why;
		break;
	case SCHED_ACTION_BUDGET:
		if (sched_client_state(&server->sched, peer->slot) != SCHED_CLIENT_INCOMING)
			return;
		entry.kind = NVSHARE_TRACE_BRING;
		entry.value = action->budget;
		break;
	case SCHED_ACTION_REFUSE:
	case SCHED_ACTION_PREPARE:
	case SCHED_ACTION_BEAT:
	case SCHED_ACTION_AHEAD:
	case SCHED_ACTION_REPORT:
		return;
	}
	trace_client(server, peer, &entry);
}

static void actions_note(struct server *server, struct peer *peer,
			 const struct sched_action *action)
{
	switch (action->type) {
	case SCHED_ACTION_GRANT:
		actions_note_grant(server, peer, action);
		break;
	case SCHED_ACTION_DROP:
		if (action->grant && !peer->dropped_ns)
			peer->dropped_ns = server->now_ns;
		server_log(server, peer->pod.owner,
			   action->grant ? LOG_LEVEL_INFO : LOG_LEVEL_DEBUG,
			   "drop client=%u gpu=%u grant=%llu bytes=%llu", peer->id, peer->gpu,
			   (unsigned long long)action->grant, (unsigned long long)action->bytes);
		break;
	case SCHED_ACTION_WAIT:
		measure_wake(server); /* the card may have room by now */
		stopped_wake(server);
		doubts_wake(server, peer->gpu);
		break;
	case SCHED_ACTION_REFUSE:
		server->metrics_counts[peer->gpu].n_refusals++;
		job_programs_refused(peer);
		doubts_wake(server, peer->gpu);
		actions_log_refusal(server, peer, action);
		break;
	case SCHED_ACTION_REPORT:
		actions_log_report(server, peer, action);
		break;
	case SCHED_ACTION_BUDGET:
	case SCHED_ACTION_PREPARE:
	case SCHED_ACTION_BEAT:
	case SCHED_ACTION_AHEAD:
		break;
	}
}

void actions_perform(struct server *server, const struct sched_actions *actions)
{
	/* All messages leave before the first line is written, because clients wait for them. */
	for (uint32_t i = 0; i < actions->n; i++) {
		struct peer *peer = &server->peers[actions->at[i].client];

		if (peer->state == PEER_STATE_CLIENT)
			actions_send(server, peer, &actions->at[i]);
	}
	server_flush(server);
	for (uint32_t i = 0; i < actions->n; i++) {
		struct peer *peer = &server->peers[actions->at[i].client];

		if (peer->state == PEER_STATE_CLIENT)
			actions_trace(server, peer, &actions->at[i]);
		actions_note(server, peer, &actions->at[i]);
	}
}
