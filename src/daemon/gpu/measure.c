/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/gpu/measure.h"

#include "daemon/dispatch.h"
#include "daemon/gpu/hearsay.h"
#include "daemon/peers/handover.h"
#include "daemon/server.h"
#include "util/log.h"
#include "util/text.h"

/* ---- telling the core -------------------------------------------------------- */

void measure_tell(struct server *server, uint32_t index)
{
	struct gpu *gpu = &server->gpus.at[index];
	struct sched_event event = {
		.type = SCHED_EVENT_GPU,
		.gpu = index,
		.bytes = gpu->total,
		.external = gpu->external,
		.link_bandwidth = gpu->link_bandwidth,
		.is_other = !gpu->is_told,
		.is_out = gpu->is_out,
	};

	if (event.is_other) {
		server->metrics_counts[index] = (struct metrics_counts){.n_grants = 0};
		shares_other_gpu(server, index);
		reconfigure_gpus(server);
	}
	gpu->is_told = true;
	gpu->is_resized = false;
	log_debug("gpu index=%u total=%llu external=%llu reported=%llu", index,
		  (unsigned long long)gpu->total, (unsigned long long)gpu->external,
		  (unsigned long long)gpu->reported);
	(void)dispatch_event(server, &event);
	job_queue_touch(server);
}

void measure_tell_new(struct server *server)
{
	for (uint32_t i = 0; i < server->gpus.n; i++) {
		struct gpu *gpu = &server->gpus.at[i];

		if ((gpu->is_told && !gpu->is_resized) || !gpu->total)
			continue;
		measure_tell(server, i);
		/* GPUs of NVML are logged in any case. Clients can name any number of others. */
		if (gpu->device || server_may_log(server, QUOTA_NOBODY, LOG_LEVEL_INFO))
			log_info("gpu index=%u total=%llu external=%llu link=%llu by=%s name=%s", i,
				 (unsigned long long)gpu->total, (unsigned long long)gpu->external,
				 (unsigned long long)gpu->link_bandwidth,
				 gpu->device ? "nvml" : "client", TEXT_QUOTED(gpu->name));
	}
}

/* ---- measuring --------------------------------------------------------------- */

/*
 * Marks the clients among the n processes found. false: a client of GPU index has an unknown pid.
 */
static bool measure_mark_clients(struct server *server, uint32_t index, uint32_t n)
{
	for (uint32_t i = 0; i < server->slots_used; i++) {
		const struct peer *peer = &server->peers[i];

		if (peer->state != PEER_STATE_CLIENT)
			continue;
		if (peer->cred.pid <= 0 && peer->gpu == index)
			return false;
		outsiders_ours(&server->measure.outsiders, n, (int)peer->cred.pid);
	}
	return true;
}

/* came: bytes of a client that may still be in the last list of outsiders. */
static void measure_outsiders(struct server *server, uint32_t index, uint64_t came)
{
	struct gpu *gpu = &server->gpus.at[index];
	struct outsiders_gpu *outside = &server->measure.outsiders.gpus[index];
	uint32_t n;

	if (outside->listed_ns && server->now_ns - outside->listed_ns < OUTSIDERS_PERIOD_NS) {
		gpu->outside = gpu->outside > came ? gpu->outside - came : 0;
		return;
	}
	if (outsiders_begin(&server->measure.outsiders, &server->gpus.nvml, gpu->device, &n) &&
	    measure_mark_clients(server, index, n))
		outsiders_end(&server->measure.outsiders, index, n, server->now_ns);
	else
		outsiders_forget(&server->measure.outsiders, index, server->now_ns);
	gpu->outside = outside->bytes;
}

/* came: bytes of clients that were taken for others' (gpus_sample()). */
static void measure_gpu(struct server *server, uint32_t index, uint64_t came)
{
	handover_note(server, index, NULL);
	if (server->gpus.at[index].device)
		measure_outsiders(server, index, came);
	if (gpus_sample(&server->gpus, index, server->now_ns, came))
		measure_tell(server, index);
}

static bool measure_is_settled(const struct server *server, uint32_t index)
{
	const struct gpu *gpu = &server->gpus.at[index];

	return !gpu->is_left && gpu->gone == 0;
}

void measure_sample(struct server *server, uint32_t index)
{
	server->gpus.at[index].is_left = false;
	measure_gpu(server, index, 0);
}

static void measure_on_due(struct server *server, struct deadline *deadline)
{
	struct sched_gpu_status status;

	for (uint32_t i = 0; i < server->gpus.n; i++) {
		if (!server->gpus.at[i].device)
			continue;
		sched_gpu_status(&server->sched, i, &status);
		if (status.n_queued == 0 && !job_queue_is_waiting(server) &&
		    measure_is_settled(server, i))
			continue;
		measure_sample(server, i);
		if (status.n_queued || job_queue_is_waiting(server) ||
		    !measure_is_settled(server, i))
			deadline_set(&server->deadlines, deadline,
				     server->now_ns + MEASURE_PERIOD_NS);
	}
}

void measure_sample_all(struct server *server)
{
	states_wake(server);
	if (grace_is_on(server))
		return; /* the used bytes belong to clients that come back */
	for (uint32_t i = 0; i < server->gpus.n; i++) {
		if (server->gpus.at[i].device)
			measure_sample(server, i);
	}
}

/* A restore that has failed takes nothing over any more, so nothing is on its way to peer. */
bool measure_full(struct server *server, const struct peer *peer)
{
	handover_note(server, peer->gpu, peer);
	return !grace_is_on(server) &&
	       gpus_sample_full(&server->gpus, peer->gpu, server->now_ns, &peer->account);
}

static void measure_plan(struct server *server, uint64_t at_ns)
{
	if (!deadline_is_set(&server->measure.sample))
		deadline_set(&server->deadlines, &server->measure.sample, at_ns);
}

void measure_wake(struct server *server)
{
	if (server->gpus.nvml.handle)
		measure_plan(server, server->now_ns);
}

void measure_init(struct server *server)
{
	server->measure.sample.on_due = measure_on_due;
}

/* ---- clients come and go ------------------------------------------------------ */

void measure_end_grace(struct server *server, uint32_t index)
{
	measure_gpu(server, index, server->gpus.at[index].footprint);
}

void measure_join(struct server *server, const struct peer *peer)
{
	outsiders_note(&server->measure.outsiders, (int)peer->cred.pid, server->now_ns);
	states_wake(server);
	if (!grace_is_on(server))
		measure_gpu(server, peer->gpu, gpus_footprint(&peer->account));
}

/*
 * The client is gone before all of its memory is free. That memory must not be taken for others'.
 */
void measure_leave(struct server *server, const struct peer *peer)
{
	struct gpu *gpu = &server->gpus.at[peer->gpu];

	outsiders_note(&server->measure.outsiders, (int)peer->cred.pid, server->now_ns);
	gpus_leave(gpu, &peer->account, server->now_ns);
	if (!gpu->device || grace_is_on(server))
		return;
	gpu->is_left = true;
	measure_plan(server, server->now_ns + MEASURE_PERIOD_NS);
}

void measure_left(struct server *server, uint32_t index)
{
	if (!server->gpus.at[index].device && hearsay_left(server, index))
		measure_tell(server, index);
}
