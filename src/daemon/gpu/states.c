/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/gpu/states.h"

#include "core/u64.h"
#include "daemon/gpu/spawn.h"
#include "daemon/server.h"
#include "util/clock.h"
#include "util/fd.h"
#include "util/log.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* A healthy driver answers within milliseconds, also where it brings a GPU up first. */
#define HANG_NS (10 * CLOCK_NS_PER_SEC)

/* A viewer that looks again within this time finds values that are fresh. */
#define VIEW_NS (10 * CLOCK_NS_PER_SEC)

/* A freeze takes a few milliseconds. Polling in that moment makes it longer. */
#define FREEZE_NS (20 * CLOCK_NS_PER_MS)

#define RETRY_MIN_NS        CLOCK_NS_PER_SEC
#define RETRY_DOUBLINGS_MAX 6

/* One callback reads at most so many reports. */
#define REPORTS_A_TURN 64

static void states_plan(struct server *server, uint64_t at_ns)
{
	struct states *states = &server->states;

	if (!deadline_is_set(&states->due) || at_ns < deadline_at(&states->due))
		deadline_set(&server->deadlines, &states->due, at_ns);
}

/* ---- the helper's life ------------------------------------------------------- */

static void states_blind(struct server *server)
{
	for (uint32_t i = 0; i < SCHED_GPUS_MAX; i++) {
		server->states.gpus[i].last.known = 0;
		(void)health_step(&server->states.gpus[i].health, HEALTH_BLIND, 0, server->now_ns);
	}
}

/* The helper may sit in the driver and outlive the signal. It is waited for without blocking. */
static void states_end(struct server *server, const char *why)
{
	struct states *states = &server->states;
	uint32_t doublings = (uint32_t)u64_min(states->n_failures, RETRY_DOUBLINGS_MAX);

	event_source_remove(&states->source);
	states->fd = fd_close(states->fd);
	if (states->pid)
		spawn_kill(states->pid);
	states->asked_ns = 0;
	states->n_failures++;
	states->retry_ns = server->now_ns + (RETRY_MIN_NS << doublings);
	states_blind(server);
	log_warn("nvml-helper-lost: %s; times=%u; the states of GPUs are unknown until the next"
		 " one answers",
		 why, states->n_failures);
	/* A helper that never answers is no news again and again. */
	if (states->n_failures == 1)
		events_add_gpu(server, NVSHARE_EVENT_MONITOR_DOWN, NVSHARE_EVENT_WARNING,
			       EVENTS_NONE, 0, "the helper that asks NVML is lost: %s", why);
	states_plan(server, states->retry_ns);
}

static enum health_input states_input(const struct helper_report *report)
{
	switch ((enum helper_outcome)report->outcome) {
	case HELPER_GOOD:
		return HEALTH_POLL_GOOD;
	case HELPER_LOST:
		return HEALTH_POLL_LOST;
	case HELPER_FAILED:
	case HELPER_OUTCOME_COUNT_:
		break;
	}
	return HEALTH_POLL_FAILED;
}

static void states_tell(struct server *server, uint32_t index, enum health_news news, uint32_t xid)
{
	const char *text = health_xid_text(xid);

	switch (news) {
	case HEALTH_NEWS_PROGRAM:
		server_log(server, QUOTA_NOBODY, LOG_LEVEL_INFO, "gpu-xid gpu=%u xid=%u: %s", index,
			   xid, text);
		events_add_gpu(server, NVSHARE_EVENT_GPU_XID, NVSHARE_EVENT_INFO, index, xid,
			       "GPU %u: %s (Xid %u)", index, text, xid);
		break;
	case HEALTH_NEWS_ERROR:
		log_error("gpu-error gpu=%u xid=%u: %s", index, xid, text);
		events_add_gpu(server, NVSHARE_EVENT_GPU_ERROR, NVSHARE_EVENT_ERROR, index, xid,
			       "GPU %u: %s (Xid %u)", index, text, xid);
		break;
	case HEALTH_NEWS_LOST:
		text = xid ? text : "the GPU is lost, or needs a reset";
		log_error("gpu-unrecoverable gpu=%u xid=%u: %s", index, xid, text);
		events_add_gpu(server, NVSHARE_EVENT_GPU_UNRECOVERABLE, NVSHARE_EVENT_ERROR, index,
			       xid, "GPU %u: %s (Xid %u)", index, text, xid);
		break;
	case HEALTH_NEWS_BACK:
		log_info("gpu-back gpu=%u", index);
		events_add_gpu(server, NVSHARE_EVENT_GPU_BACK, NVSHARE_EVENT_INFO, index, 0,
			       "GPU %u answers again", index);
		break;
	case HEALTH_NEWS_NONE:
	case HEALTH_NEWS_COUNT_:
		break;
	}
}

/* The GPU of a report; SCHED_GPUS_MAX: the scheduler does not know it. */
static uint32_t states_find(const struct server *server, const uint8_t uuid[16])
{
	for (uint32_t i = 0; i < server->gpus.n; i++) {
		if (server->gpus.at[i].device && !memcmp(server->gpus.at[i].uuid, uuid, 16))
			return i;
	}
	return SCHED_GPUS_MAX;
}

static uint32_t states_n_devices(const struct server *server)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < server->gpus.n; i++)
		n += server->gpus.at[i].device != NULL;
	return n;
}

static void states_tell_client(struct server *server, struct peer *peer)
{
	const struct health *health = &server->states.gpus[peer->gpu].health;

	server_send_body(server, peer, NVSHARE_MSG_GPU_STATE, 0,
			 &(struct nvshare_gpu_state){health->state, health->xid});
}

void states_watch(struct server *server, struct peer *peer)
{
	if (server->gpus.at[peer->gpu].is_out)
		states_tell_client(server, peer);
}

/* No client gets a new grant on a GPU that is out. */
static void states_take_out(struct server *server, uint32_t index)
{
	bool is_out = health_is_out(&server->states.gpus[index].health);

	if (server->gpus.at[index].is_out == is_out)
		return;
	server->gpus.at[index].is_out = is_out;
	measure_tell(server, index);
	for (uint32_t i = 0; i < server->slots_used; i++) {
		struct peer *peer = &server->peers[i];

		if (peer->state == PEER_STATE_CLIENT && peer->gpu == index && peer->is_watching)
			states_tell_client(server, peer);
	}
}

static void states_on_report(struct server *server, const struct helper_report *report)
{
	struct states *states = &server->states;
	struct states_gpu *gpu;
	enum health_input input;
	uint32_t index;

	if (report->kind == HELPER_REPORT_END) {
		if (report->seq == states->seq) {
			states->asked_ns = 0;
			/* Until now the due time was that of a helper that hangs. */
			deadline_set(&server->deadlines, &states->due,
				     u64_max(server->now_ns,
					     states->polled_ns + server->settings.poll_ns));
		}
		states->n_failures = 0;
		states->lists = report->n != states_n_devices(server);
		return;
	}
	index = states_find(server, report->uuid);
	if (index == SCHED_GPUS_MAX)
		return;
	gpu = &states->gpus[index];
	input = HEALTH_XID;
	if (report->kind == HELPER_REPORT_GPU) {
		gpu->last = *report;
		gpu->told_ns = server->now_ns;
		input = states_input(report);
	}
	states_tell(server, index, health_step(&gpu->health, input, report->xid, server->now_ns),
		    input == HEALTH_XID ? report->xid : gpu->health.xid);
	states_take_out(server, index);
	if (health_is_out(&gpu->health))
		states_plan(server, states->polled_ns + server->settings.poll_ns);
}

static void states_on_event(void *context, struct event_source *source, uint32_t events)
{
	struct server *server = context;
	struct states *states = &server->states;

	(void)source;
	(void)events;
	for (unsigned int i = 0; i < REPORTS_A_TURN && states->fd >= 0; i++) {
		struct helper_report report, bytes;
		ssize_t n = recv(states->fd, &bytes, sizeof(bytes), MSG_DONTWAIT | MSG_TRUNC);

		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (n <= 0)
			states_end(server, "it has ended");
		else if (!helper_report_decode(&bytes, (uint64_t)n, &report))
			states_end(server, "it reports nonsense");
		else
			states_on_report(server, &report);
	}
}

static int states_start(struct server *server)
{
	char name[] = "nvshare-scheduler", option[] = HELPER_OPTION;
	char *const args[] = {name, option, NULL};
	struct states *states = &server->states;
	int fds[2];
	int r;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0)
		return -errno;
	r = spawn_start("/proc/self/exe", args, environ, fds[1], &states->pid);
	(void)fd_close(fds[1]);
	if (!r)
		r = event_source_add(&server->poller, &states->source, fds[0], EPOLLIN,
				     states_on_event);
	if (r) {
		(void)fd_close(fds[0]);
		return r;
	}
	states->fd = fds[0];
	states->lists = false;
	log_debug("nvml-helper pid=%d", (int)states->pid);
	return 0;
}

/* One helper at a time: one that hangs in the driver would not be the last. */
static void states_restart(struct server *server)
{
	struct states *states = &server->states;
	int r = 0;

	if (states->pid && !spawn_has_ended(states->pid)) {
		states->retry_ns = server->now_ns + RETRY_MIN_NS;
		return;
	}
	states->pid = 0;
	r = states_start(server);
	if (r) {
		(void)log_errno(LOG_LEVEL_WARN, r, "cannot start the helper for NVML");
		states_end(server, "it did not start");
	}
}

/* ---- questions --------------------------------------------------------------- */

static bool states_is_wanted(const struct server *server)
{
	const struct states *states = &server->states;

	if (server->n_clients ||
	    (states->viewed_ns && server->now_ns - states->viewed_ns < VIEW_NS))
		return true;
	for (uint32_t i = 0; i < server->gpus.n; i++) {
		if (health_is_out(&states->gpus[i].health))
			return true;
	}
	return false;
}

/* The end of the freezes under way, but no later than a whole interval. */
static uint64_t states_clear_ns(const struct server *server)
{
	const struct states *states = &server->states;

	return u64_min(states->ordered_ns ? states->ordered_ns + FREEZE_NS : 0,
		       states->polled_ns + 2 * server->settings.poll_ns);
}

static void states_ask(struct server *server)
{
	struct states *states = &server->states;
	struct helper_question question = {
		.magic = HELPER_MAGIC,
		.seq = ++states->seq,
		.lists = states->lists,
	};

	states->polled_ns = server->now_ns;
	states->asked_ns = server->now_ns;
	if (send(states->fd, &question, sizeof(question), MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		states_end(server, "it takes no question");
}

static void states_on_due(struct server *server, struct deadline *deadline)
{
	struct states *states = &server->states;

	(void)deadline;
	if (states->fd < 0) {
		if (server->now_ns >= states->retry_ns)
			states_restart(server);
		if (states->fd < 0) {
			states_plan(server, states->retry_ns);
			return;
		}
	}
	if (!states_is_wanted(server))
		return;
	if (states->asked_ns && server->now_ns - states->asked_ns >= HANG_NS)
		states_end(server, "it does not answer");
	else if (!states->asked_ns && states_clear_ns(server) > server->now_ns)
		states_plan(server, states_clear_ns(server));
	else if (!states->asked_ns)
		states_ask(server);
	states_plan(server, server->now_ns + u64_min(server->settings.poll_ns, HANG_NS));
}

void states_config(struct server *server)
{
	if (deadline_is_set(&server->states.due))
		states_plan(server, server->now_ns + server->settings.poll_ns);
}

void states_wake(struct server *server)
{
	struct states *states = &server->states;
	/* The clock begins when the machine does: the first question waits for nothing. */
	uint64_t next_ns = states->polled_ns ? states->polled_ns + server->settings.poll_ns : 0;

	states->viewed_ns = server->now_ns;
	if (server->gpus.nvml.handle && !deadline_is_set(&states->due))
		states_plan(server, u64_max(server->now_ns, next_ns));
}

void states_note_order(struct server *server)
{
	server->states.ordered_ns = server->now_ns;
}

void states_open(struct server *server)
{
	server->states.fd = -1;
	server->states.due.on_due = states_on_due;
	if (server->gpus.nvml.handle)
		states_restart(server);
}

void states_close(struct server *server)
{
	event_source_remove(&server->states.source);
	server->states.fd = fd_close(server->states.fd);
	if (server->states.pid)
		spawn_kill(server->states.pid);
}

/* ---- status ------------------------------------------------------------------ */

_Static_assert((int)HEALTH_UNKNOWN == (int)NVSHARE_STATE_UNKNOWN, "enum nvshare_state");
_Static_assert((int)HEALTH_LOST == (int)NVSHARE_STATE_LOST, "enum nvshare_state");
_Static_assert(HELPER_KNOWS_ALL == NVSHARE_STATE_KNOWS_ALL, "NVSHARE_STATE_KNOWS_*");

void states_fill(const struct server *server, uint32_t index, struct nvshare_status_state *ret)
{
	const struct states_gpu *gpu = &server->states.gpus[index];

	*ret = (struct nvshare_status_state){
		.gpu = index,
		.state = gpu->health.state,
		.xid = gpu->health.xid,
		.known = gpu->last.known,
		.celsius = gpu->last.celsius,
		.utilization_percent = gpu->last.utilization_percent,
		.n_processes = gpu->last.n_processes,
		.is_mig = gpu->last.is_mig,
		.used = gpu->last.used,
		.power_mw = gpu->last.power_mw,
		.energy_mj = gpu->last.energy_mj,
		.since_ns =
			gpu->health.since_ns ? server->now_ns - gpu->health.since_ns : UINT64_MAX,
		.age_ns = gpu->told_ns ? server->now_ns - gpu->told_ns : UINT64_MAX,
	};
}
