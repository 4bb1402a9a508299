/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A look costs some system calls, so few processes are looked at: those that have something which
 * others wait for, and the one that is next.
 */

#include "daemon/peers/stopped.h"

#include "core/u64.h"
#include "daemon/dispatch.h"
#include "daemon/gpu/doubts.h"
#include "daemon/server.h"
#include "util/clock.h"
#include "util/log.h"

#define PROC   "/proc"
#define CGROUP "/sys/fs/cgroup"

/* Looks of one pass. More clients take their turns, pass by pass. */
#define LOOKS_MAX 64

/* A process that was looked at so lately is not looked at again. */
#define FRESH_NS (100 * CLOCK_NS_PER_MS)

/* A waiter that cannot be seen, and answers no question for so long, is passed over. */
#define SILENT_NS (3 * CLOCK_NS_PER_SEC)

static const char *stopped_words(enum process_state state)
{
	switch (state) {
	case PROCESS_STOPPED:
		return "by a signal or a debugger";
	case PROCESS_FROZEN:
		return "by a frozen control group";
	case PROCESS_SILENT:
		return "or hung: it answers no question";
	case PROCESS_GOES_ON:
	case PROCESS_UNSEEN:
		break;
	}
	return "?";
}

static void stopped_tell(struct server *server, struct peer *peer, bool is_stopped)
{
	struct sched_event event = {
		.type = SCHED_EVENT_PROCESS, .client = peer->slot, .is_stopped = is_stopped};

	(void)dispatch_event(server, &event);
	doubts_wake(server, peer->gpu);
}

static void stopped_found(struct server *server, struct peer *peer, enum process_state state)
{
	bool is_new = peer->stopped == PROCESS_GOES_ON;

	peer->stopped = state;
	if (!is_new)
		return;
	server_log(server, peer->pod.owner, LOG_LEVEL_INFO,
		   "process-stopped client=%u pid=%d gpu=%u: stopped %s; it is passed over until it"
		   " goes on",
		   peer->id, (int)peer->cred.pid, peer->gpu, stopped_words(state));
	actions_ask_beat(server, peer);
	stopped_tell(server, peer, true);
}

/* It waits, and cannot be seen: it has to answer before it is served. Its place is kept. */
static void stopped_question(struct server *server, struct peer *peer)
{
	struct sched_client_status status;

	sched_client_status(&server->sched, peer->slot, server->now_ns, &status);
	if (status.position == 0 || peer->stopped != PROCESS_GOES_ON)
		return;
	if (!peer->is_beat_asked)
		actions_ask_beat(server, peer);
	else if (server->now_ns - peer->beat_ns >= SILENT_NS)
		stopped_found(server, peer, PROCESS_SILENT);
}

static void stopped_look_at(struct server *server, struct peer *peer)
{
	enum process_state state;

	if (server->now_ns - peer->looked_ns < FRESH_NS)
		return;
	peer->looked_ns = server->now_ns;
	state = process_state(PROC, CGROUP, peer->cred.pid);
	switch (state) {
	case PROCESS_STOPPED:
	case PROCESS_FROZEN:
		stopped_found(server, peer, state);
		break;
	case PROCESS_GOES_ON:
		/* It has still to answer the heartbeat that it was asked for. */
		if (peer->stopped != PROCESS_GOES_ON)
			peer->stopped = PROCESS_SILENT;
		break;
	case PROCESS_UNSEEN:
		stopped_question(server, peer);
		break;
	case PROCESS_SILENT:
		break;
	}
}

void stopped_heard(struct server *server, struct peer *peer)
{
	if (peer->stopped == PROCESS_GOES_ON)
		return;
	stopped_tell(server, peer, false);
	peer->stopped = PROCESS_GOES_ON;
}

/* It has the GPU, or memory there, or is on its way. */
static bool stopped_matters(const struct server *server, const struct peer *peer)
{
	return peer->state == PEER_STATE_CLIENT && !peer->is_closing &&
	       (sched_client_state(&server->sched, peer->slot) >= SCHED_CLIENT_INCOMING ||
		peer->account.on_card > 0 || peer->stopped != PROCESS_GOES_ON);
}

/* Those on the GPUs of this set. */
static void stopped_pass(struct server *server, uint32_t gpus)
{
	uint32_t n = server->slots_used, n_looks = 0, slot = server->stopped.next;

	for (uint32_t i = 0; i < n && n_looks < LOOKS_MAX; i++, slot++) {
		struct peer *peer = &server->peers[slot % n];

		if (!stopped_matters(server, peer) || !(gpus & 1u << peer->gpu))
			continue;
		stopped_look_at(server, peer);
		n_looks++;
	}
	server->stopped.next = n ? slot % n : 0;
}

static void stopped_look_at_head(struct server *server, const struct sched_gpu_status *status)
{
	if (status->head != SCHED_NONE && server->peers[status->head].state == PEER_STATE_CLIENT)
		stopped_look_at(server, &server->peers[status->head]);
}

static void stopped_on_due(struct server *server, struct deadline *deadline)
{
	struct sched_gpu_status status;
	uint32_t gpus = 0;

	for (uint32_t i = 0; i < server->gpus.n; i++) {
		if (!server->gpus.at[i].is_told)
			continue;
		sched_gpu_status(&server->sched, i, &status);
		if (status.n_queued == 0)
			continue;
		gpus |= 1u << i;
		stopped_look_at_head(server, &status);
	}
	if (gpus == 0)
		return;
	stopped_pass(server, gpus);
	deadline_set(&server->deadlines, deadline, server->now_ns + MEASURE_PERIOD_NS);
}

void stopped_look_ahead(struct server *server)
{
	struct sched_gpu_status status;

	for (uint32_t i = 0; i < server->gpus.n; i++) {
		if (!server->gpus.at[i].is_told)
			continue;
		sched_gpu_status(&server->sched, i, &status);
		if (status.next_switch_ns <= server->now_ns)
			stopped_look_at_head(server, &status);
	}
}

void stopped_look(struct server *server)
{
	stopped_pass(server, UINT32_MAX);
}

void stopped_wake(struct server *server)
{
	if (!deadline_is_set(&server->stopped.due))
		deadline_set(&server->deadlines, &server->stopped.due, server->now_ns);
}

void stopped_init(struct server *server)
{
	server->stopped.due.on_due = stopped_on_due;
}
