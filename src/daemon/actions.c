/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/server.h"

#include "util/clock.h"
#include "util/log.h"

/* The core names its outcomes and waits like the wire does; so numbers pass unchanged. */
_Static_assert((int)SCHED_WAIT_STUCK == (int)NVSHARE_WAIT_STUCK, "enum nvshare_wait");
_Static_assert((int)SCHED_WAIT_MEMORY == (int)NVSHARE_WAIT_MEMORY, "enum nvshare_wait");

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
	};

	return outcome < NVSHARE_OUTCOME_COUNT ? names[outcome] : "?";
}

static void log_report(const struct peer *peer, const struct sched_action *action)
{
	switch (action->report) {
	case SCHED_REPORT_HUNG:
		log_warn("hung client=%u pid=%d gpu=%u: does not answer; its memory counts until"
			 " it is gone",
			 peer->id, (int)peer->cred.pid, peer->gpu);
		break;
	case SCHED_REPORT_BACK:
		log_info("back client=%u pid=%d gpu=%u", peer->id, (int)peer->cred.pid, peer->gpu);
		break;
	case SCHED_REPORT_LATE:
		log_warn("late client=%u pid=%d gpu=%u: no answer in time", peer->id,
			 (int)peer->cred.pid, peer->gpu);
		break;
	case SCHED_REPORT_STOP_FAILED:
		log_warn("stop-failed client=%u pid=%d gpu=%u outcome=%s", peer->id,
			 (int)peer->cred.pid, peer->gpu, actions_outcome(action->bytes));
		break;
	case SCHED_REPORT_NOT_PREEMPTIBLE:
		log_warn("not-preemptible client=%u pid=%d gpu=%u: three stops failed in a row",
			 peer->id, (int)peer->cred.pid, peer->gpu);
		break;
	case SCHED_REPORT_OVERCOMMITTED:
		log_warn("overcommitted client=%u gpu=%u: reports add up to more than the card has",
			 peer->id, peer->gpu);
		break;
	}
}

static void perform_grant(struct server *server, struct peer *peer,
			  const struct sched_action *action)
{
	uint64_t waited_ns = peer->asked_ns ? server->now_ns - peer->asked_ns : 0;

	server_send_body(server, peer, NVSHARE_MSG_LOCK_OK, 0,
			 &(struct nvshare_lock_ok){action->grant, action->budget, action->epoch});
	log_info("grant client=%u gpu=%u grant=%llu waited_ms=%llu", peer->id, peer->gpu,
		 (unsigned long long)action->grant,
		 (unsigned long long)(waited_ns / CLOCK_NS_PER_MS));
	peer->asked_ns = 0;
}

static void perform_drop(struct server *server, struct peer *peer,
			 const struct sched_action *action)
{
	server_send_body(server, peer, NVSHARE_MSG_DROP_LOCK, 0,
			 &(struct nvshare_drop_lock){action->grant, action->bytes, action->epoch});
	log_info("drop client=%u gpu=%u grant=%llu bytes=%llu", peer->id, peer->gpu,
		 (unsigned long long)action->grant, (unsigned long long)action->bytes);
}

static void perform_beat(struct server *server, struct peer *peer)
{
	/* One at a time: a stopped process must not find its buffers full of them. */
	if (peer->is_beat_asked)
		return;
	peer->is_beat_asked = true;
	peer->nonce++;
	server_send_body(server, peer, NVSHARE_MSG_HEARTBEAT, 0,
			 &(struct nvshare_heartbeat){peer->nonce});
}

static void perform(struct server *server, const struct sched_action *action)
{
	struct peer *peer = &server->peers[action->client];

	if (action->type == SCHED_ACTION_REPORT)
		log_report(peer, action);
	if (peer->state != PEER_STATE_CLIENT || peer->is_closing)
		return;
	switch (action->type) {
	case SCHED_ACTION_GRANT:
		perform_grant(server, peer, action);
		break;
	case SCHED_ACTION_DROP:
		perform_drop(server, peer, action);
		break;
	case SCHED_ACTION_WAIT:
		if (server->sample_ns == SERVER_NEVER && server->gpus.nvml.library)
			server->sample_ns = server->now_ns + SERVER_SAMPLE_NS;
		server_send_body(server, peer, NVSHARE_MSG_WAIT_FOR_MEM, 0,
				 &(struct nvshare_wait_for_mem){action->bytes, action->position,
								action->why});
		break;
	case SCHED_ACTION_BUDGET:
		server_send_body(server, peer, NVSHARE_MSG_MEM_AVAILABLE, 0,
				 &(struct nvshare_mem_available){action->budget, action->epoch});
		break;
	case SCHED_ACTION_REFUSE:
		server_send_body(server, peer, NVSHARE_MSG_MEM_REFUSED, 0,
				 &(struct nvshare_mem_refused){action->bytes, action->budget});
		log_info("refuse client=%u gpu=%u wanted=%llu limit=%llu", peer->id, peer->gpu,
			 (unsigned long long)action->bytes, (unsigned long long)action->budget);
		break;
	case SCHED_ACTION_PREPARE:
		server_send_body(server, peer, NVSHARE_MSG_PREPARE_SWAP_OUT, 0,
				 &(struct nvshare_prepare_swap_out){action->bytes, action->due_ms});
		break;
	case SCHED_ACTION_BEAT:
		perform_beat(server, peer);
		break;
	case SCHED_ACTION_REPORT:
		break;
	}
}

void actions_perform(struct server *server, const struct sched_actions *actions)
{
	for (uint32_t i = 0; i < actions->n; i++)
		perform(server, &actions->at[i]);
}
