/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/tools/status_fill.h"

#include "core/policy/policy.h"
#include "daemon/peers/pauses.h"
#include "daemon/server.h"
#include "nvshare/version.h"
#include "util/clock.h"

#include <assert.h>
#include <string.h>
#include <unistd.h>

/* The core numbers its states, modes and waits as the wire does, so numbers pass unchanged. */
_Static_assert((int)SCHED_MODE_CONCURRENT == (int)NVSHARE_MODE_CONCURRENT, "enum nvshare_mode");
_Static_assert((int)SCHED_SWITCH_FIXED == (int)NVSHARE_SWITCH_FIXED, "enum nvshare_switch_mode");
_Static_assert((int)SCHED_CLIENT_IDLE == NVSHARE_CLIENT_IDLE + 1, "enum nvshare_client_state");
_Static_assert((int)SCHED_CLIENT_STOPPING == NVSHARE_CLIENT_STOPPING + 1,
	       "enum nvshare_client_state");

_Static_assert((int)SCHED_OBSTACLE_HUNG == (int)NVSHARE_OBSTACLE_HUNG &&
		       (int)SCHED_OBSTACLE_COUNT_ == (int)NVSHARE_OBSTACLE_STOPPED,
	       "enum nvshare_obstacle");
_Static_assert((int)SCHED_POLICY_DEADLINE == (int)NVSHARE_POLICY_DEADLINE, "enum nvshare_policy");

/* Entries without a total are free. */
static uint32_t status_n_gpus(const struct server *server)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < server->gpus.n; i++)
		n += server->gpus.at[i].total > 0;
	return n;
}

void status_fill_node(const struct server *server, struct nvshare_status_node *ret)
{
	const struct sched_config *config = &server->settings.config;
	struct sched_gpu_config each = sched_gpu_config_of(config);
	uint32_t n_waiting = jobs_n_queued(&server->jobs.core);

	_Static_assert(JOB_QUEUE_MAX <= UINT16_MAX, "counts of jobs");
	*ret = (struct nvshare_status_node){
		.uptime_ns = server->now_ns - server->started_ns,
		.tq_ns = config->tq_ns,
		.switch_fixed_ns = config->switch_fixed_ns,
		.switch_min_ns = config->switch_min_ns,
		.switch_max_ns = config->switch_max_ns,
		.max_runtime_ns = config->max_runtime_ns,
		.mode = config->mode,
		.switch_mode = config->switch_mode,
		.switch_multiplier = config->switch_multiplier,
		.reserve_percent = config->reserve_percent,
		.anti_thrash = config->anti_thrash,
		.policy = config->policy,
		.n_gpus = status_n_gpus(server),
		.n_clients = server->n_clients,
		.pid = (uint32_t)getpid(),
		.credit_round_ms = (uint32_t)(policy_round_ns(&each) / CLOCK_NS_PER_MS),
		.version = NVSHARE_VERSION,
		.sharing_degree = config->sharing_degree,
		.n_jobs_running = (uint16_t)(server->jobs.n_live - n_waiting),
		.n_jobs_waiting = (uint16_t)n_waiting,
	};
}

void status_fill_gpu(const struct server *server, uint32_t index, struct nvshare_status_gpu *ret)
{
	const struct gpu *gpu = &server->gpus.at[index];
	struct sched_gpu_status status;
	struct timeshare_gpu_status share;
	uint64_t recent[RECENT_TOTAL_COUNT_], recent_ns;
	uint64_t next_ms = UINT64_MAX;

	sched_gpu_status(&server->sched, index, &status);
	timeshare_gpu_status(&server->shares.timeshare, index, &share);
	recent_ns = shares_recent(server, index, recent);
	if (status.next_switch_ns != SCHED_NO_DEADLINE)
		next_ms = status.next_switch_ns > server->now_ns
				  ? (status.next_switch_ns - server->now_ns) / CLOCK_NS_PER_MS
				  : 0;
	*ret = (struct nvshare_status_gpu){
		.total = status.total,
		.usable = status.usable,
		.external = status.external,
		.available = status.available,
		.running = status.running,
		.n_switches = status.n_switches,
		.moved_out = status.moved_out,
		.moved_in = status.moved_in,
		.bandwidth = status.bandwidth,
		.link_bandwidth = status.link_bandwidth,
		.next_switch_ms = next_ms,
		.n_preemptions = share.n_preemptions,
		.n_preempt_failures = share.n_failures,
		.n_preempt_timeouts = share.n_timeouts,
		.preempt_ns_total = share.preempt_ns_total,
		.preempt_ns_p50 = share.preempt_ns_p50,
		.preempt_ns_p99 = share.preempt_ns_p99,
		.preempt_ns_max = share.preempt_ns_max,
		.preempt_over_ns_p50 = share.over_ns_p50,
		.preempt_over_ns_p99 = share.over_ns_p99,
		.preempt_over_ns_max = share.over_ns_max,
		.n_preempted = share.n_preempted,
		.n_lc_tasks = share.n_lc_tasks,
		.n_be_tasks = share.n_be_tasks,
		.n_slo_violations = share.n_slo_violations,
		.lc_gpu_ns = share.lc_gpu_ns,
		.be_gpu_ns = share.be_gpu_ns,
		.known_ns = share.known_ns,
		.contexts = gpu->contexts,
		.contexts_max = gpu->contexts_max,
		.n_hints = share.n_hints,
		.n_hints_missed = share.n_hints_missed,
		.hint_error_ns = share.hint_error_ns,
		.index = index,
		.n_running = status.n_running,
		.n_waiting = status.n_waiting,
		.n_clients = status.n_clients,
		.recent_ns = recent_ns,
		.recent_lc_tasks = recent[RECENT_LC_TASKS],
		.recent_be_tasks = recent[RECENT_BE_TASKS],
		.recent_lc_gpu_ns = recent[RECENT_LC_GPU],
		.recent_be_gpu_ns = recent[RECENT_BE_GPU],
		.outside = server->measure.outsiders.gpus[index].bytes,
		.n_outsiders = server->measure.outsiders.gpus[index].n,
		.n_early = (uint32_t)status.n_early,
		.tq_ns = status.config.tq_ns,
		.switch_fixed_ns = status.config.switch_fixed_ns,
		.max_runtime_ns = status.config.max_runtime_ns,
		.mode = status.config.mode,
		.switch_mode = status.config.switch_mode,
		.reserve_percent = status.config.reserve_percent,
		.sharing_degree = status.config.sharing_degree,
	};
	memcpy(ret->uuid, gpu->uuid, sizeof(ret->uuid));
	memcpy(ret->name, gpu->name, sizeof(ret->name));
}

void status_fill_pool(const struct server *server, struct nvshare_status_pool *ret)
{
	struct lending_sums sums;

	lending_sums(server, &sums);
	*ret = (struct nvshare_status_pool){
		.lent = sums.lent,
		.ready = sums.ready,
		.limit = sums.limit,
		.n_borrowers = sums.n_borrowers,
	};
}

static uint32_t status_early_flag(enum sched_early early)
{
	static const uint32_t flags[] = {
		[SCHED_EARLY_NOT] = 0,
		[SCHED_EARLY_SOON] = NVSHARE_CLIENT_SOON,
		[SCHED_EARLY_MOVES] = NVSHARE_CLIENT_MOVES,
		[SCHED_EARLY_SHARE] = NVSHARE_CLIENT_SHARED,
		[SCHED_EARLY_CAME] = NVSHARE_CLIENT_EARLY,
		[SCHED_EARLY_MADE_WAY] = NVSHARE_CLIENT_MADE_WAY,
	};

	return flags[early];
}

/* Of a client that does not answer. */
static uint32_t status_hung_flag(const struct peer *peer)
{
	if (peer->stopped == PROCESS_STOPPED)
		return NVSHARE_CLIENT_STOPPED;
	return peer->stopped == PROCESS_FROZEN ? NVSHARE_CLIENT_FROZEN : NVSHARE_CLIENT_HUNG;
}

static uint32_t status_client_flags(const struct peer *peer,
				    const struct sched_client_status *status,
				    const struct timeshare_client_status *share)
{
	return (status->hung ? status_hung_flag(peer) : 0) |
	       (status->not_preemptible ? NVSHARE_CLIENT_NOT_PREEMPTIBLE : 0) |
	       (status->fixed ? NVSHARE_CLIENT_FIXED : 0) |
	       (status->growing ? NVSHARE_CLIENT_GROWING : 0) |
	       (peer->pauses & PAUSE_OPERATOR ? NVSHARE_CLIENT_PAUSED : 0) |
	       (peer->pauses & PAUSE_TICKETS ? NVSHARE_CLIENT_PARKING : 0) |
	       (peer->pod.kind == POD_KIND_POD ? NVSHARE_CLIENT_POD : 0) |
	       (share->is_held ? NVSHARE_CLIENT_HELD : 0) |
	       (share->is_busy ? NVSHARE_CLIENT_BUSY : 0) |
	       (share->is_slices_only ? NVSHARE_CLIENT_SLICES_ONLY : 0) |
	       (peer->report_flags & NVSHARE_REPORT_RDMA ? NVSHARE_CLIENT_RDMA : 0) |
	       (peer->report_flags & NVSHARE_REPORT_NO_PROC ? NVSHARE_CLIENT_NO_PROC : 0) |
	       (peer->report_flags & NVSHARE_REPORT_BYPASS ? NVSHARE_CLIENT_BYPASS : 0) |
	       (peer->evidence.doubted ? NVSHARE_CLIENT_DOUBTED : 0) |
	       status_early_flag(status->early);
}

_Static_assert((int)TIMESHARE_WARNING_HINT == NVSHARE_WARNING_HINT &&
		       (int)TIMESHARE_WARNING_PAUSE == NVSHARE_WARNING_PAUSE &&
		       (int)TIMESHARE_WARNINGS_ == NVSHARE_WARNING_COUNT,
	       "the same order");

static enum nvshare_preference learned_preference(const struct timeshare_learned *learned)
{
	if (!learned->is_decided)
		return NVSHARE_PREFERS_UNDECIDED;
	return learned->is_holding ? NVSHARE_PREFERS_PREEMPTION : NVSHARE_PREFERS_TIMESLICES;
}

static void status_fill_learned(const struct timeshare_client_status *share,
				struct nvshare_learned ret[NVSHARE_WARNING_COUNT])
{
	for (size_t i = 0; i < NVSHARE_WARNING_COUNT; i++) {
		ret[i] = (struct nvshare_learned){
			.n_bursts = share->learned[i].n_bursts,
			.prefers = learned_preference(&share->learned[i]),
			.preempt_tail_us = share->learned[i].hold_us,
			.slices_tail_us = share->learned[i].slices_us,
		};
	}
}

static uint32_t status_client_why(const struct sched_client_status *status)
{
	if (status->outside)
		return NVSHARE_WAIT_OUTSIDERS;
	return status->why == SCHED_WAIT_GANG ? NVSHARE_WAIT_GANG : (uint32_t)status->why;
}

void status_fill_client(const struct server *server, const struct peer *peer,
			struct nvshare_status_client *ret)
{
	struct sched_client_status status;
	struct timeshare_client_status share;
	uint64_t energy_j;

	timeshare_client_status(&server->shares.timeshare, peer->slot, &share);
	energy_j = share.energy_uj / 1000000;
	sched_client_status(&server->sched, peer->slot, server->now_ns, &status);
	assert(status.state != SCHED_CLIENT_FREE); /* core and peers go together */
	*ret = (struct nvshare_status_client){
		.budget = status.budget,
		.since_ns = status.since_ns,
		.last_scheduled_ns = status.last_scheduled_ns,
		.run_ns = status.run_ns,
		.n_switches = status.n_switches,
		.gpu_ns = share.gpu_ns,
		.held_ns = share.held_ns,
		.slice_us = share.slice_us,
		.n_tasks = share.n_tasks,
		.n_slo_violations = share.n_slo_violations,
		.n_hints = share.n_hints,
		.hint_margin_ns = share.margin_ns,
		.hint_prepare_ns = share.prepare_ns,
		.hint_ratio_ppm = share.ratio_ppm,
		.hint_error_ppm = share.error_ppm,
		.mem = peer->mem,
		.id = peer->id,
		.gpu = peer->gpu,
		.pid = (uint32_t)peer->cred.pid,
		.uid = peer->cred.uid,
		.state = (uint32_t)status.state - 1,
		.why = status_client_why(&status),
		.position = status.position,
		.backend = peer->backend,
		.flags = status_client_flags(peer, &status, &share),
		.last_outcome = status.last_outcome,
		.halt = peer->halt,
		.claim = peer->claim,
		.energy_j = energy_j < UINT32_MAX ? (uint32_t)energy_j : UINT32_MAX,
	};
	status_fill_learned(&share, ret->learned);
	memcpy(ret->name, peer->name, sizeof(ret->name));
	memcpy(ret->pod, peer->pod.name, sizeof(ret->pod));
}

/* Of each GPU, the clients that are most in the way of others. */
static const struct sched_blockers *status_blockers(struct server *server, uint64_t ticket)
{
	struct tools *tools = &server->tools;

	if (tools->n_asked >= ticket)
		return tools->blockers;
	tools->n_asked = tools->snapshot.n_asked;
	memset(tools->blockers, 0, sizeof(tools->blockers));
	for (uint32_t i = 0; i < server->slots_used; i++) {
		if (server->peers[i].state == PEER_STATE_CLIENT)
			sched_blockers_add(&server->sched, i,
					   &tools->blockers[server->peers[i].gpu]);
	}
	return tools->blockers;
}

static enum nvshare_pinned most_pinned(const struct nvshare_mem *mem)
{
	enum nvshare_pinned most = NVSHARE_PINNED_CONTEXT;

	for (int kind = 0; kind < NVSHARE_PINNED_COUNT; kind++) {
		if (mem->pinned[kind] > mem->pinned[most])
			most = (enum nvshare_pinned)kind;
	}
	return most;
}

bool status_fill_wait(struct server *server, const struct peer *peer, uint64_t ticket,
		      struct nvshare_status_wait *ret)
{
	const struct sched_blockers *blockers = status_blockers(server, ticket);
	struct sched_blocker found =
		sched_blocker_of(&server->sched, peer->slot, &blockers[peer->gpu]);
	const struct peer *blocker =
		found.client == SCHED_NONE ? NULL : &server->peers[found.client];

	if (found.obstacle == SCHED_OBSTACLE_NONE)
		return false;
	/* It may have left since all were looked at. */
	if (blocker && blocker->state != PEER_STATE_CLIENT)
		return false;
	*ret = (struct nvshare_status_wait){
		.bytes = found.bytes,
		.client = peer->id,
		.blocker = blocker ? blocker->id : 0,
		.obstacle = found.obstacle,
	};
	if (found.obstacle == SCHED_OBSTACLE_HUNG &&
	    status_hung_flag(blocker) != NVSHARE_CLIENT_HUNG)
		ret->obstacle = NVSHARE_OBSTACLE_STOPPED;
	if (found.obstacle == SCHED_OBSTACLE_PINNED) {
		ret->kind = most_pinned(&blocker->mem);
		ret->bytes = blocker->mem.pinned[ret->kind];
	}
	return true;
}
