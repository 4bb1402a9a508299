/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/http/metrics_collect.h"

#include "daemon/server.h"
#include "daemon/tools/status_fill.h"
#include "ipc/names.h"
#include "util/clock.h"
#include "util/log.h"

#include <math.h>
#include <string.h>

#define NO_PLACE UINT32_MAX

/*
 * Values of NVML are shown for so long, and one interval more. On a node without clients the
 * scraper is the only viewer, and finds what NVML said a few seconds after the last scrape.
 */
#define NVML_FRESH_NS (120 * CLOCK_NS_PER_SEC)

static void collect_state(const struct server *server, uint32_t index, struct metrics_gpu *ret)
{
	struct nvshare_status_state state;
	uint32_t known = 0;

	states_fill(server, index, &state);
	ret->is_state[state.state] = true;
	ret->is_out = server->gpus.at[index].is_out;
	if (state.age_ns < NVML_FRESH_NS + server->settings.poll_ns)
		known = state.known;
	ret->celsius = known & NVSHARE_STATE_KNOWS_TEMPERATURE ? state.celsius : (double)NAN;
	ret->watts = known & NVSHARE_STATE_KNOWS_POWER ? (double)state.power_mw / 1e3 : (double)NAN;
	ret->joules =
		known & NVSHARE_STATE_KNOWS_ENERGY ? (double)state.energy_mj / 1e3 : (double)NAN;
	ret->nvml_ratio = known & NVSHARE_STATE_KNOWS_UTILIZATION
				  ? state.utilization_percent / 100.0
				  : (double)NAN;
}

static void collect_gpu(const struct server *server, uint32_t index, struct metrics_gpu *ret)
{
	const struct metrics_counts *counts = &server->metrics_counts[index];
	struct timeshare_gpu_status share;

	status_fill_gpu(server, index, &ret->status);
	timeshare_gpu_status(&server->shares.timeshare, index, &share);
	ret->used = ret->status.external + server->gpus.at[index].reported;
	ret->n_grants = counts->n_grants;
	ret->n_stop_failures = counts->n_stop_failures;
	ret->n_refusals = counts->n_refusals;
	ret->queue_wait = counts->queue_wait;
	ret->stop = counts->stop;
	ret->wake = counts->wake;
	ret->preempt = share.preempt;
	if (share.known_ns)
		ret->busy_ratio =
			(double)(share.lc_gpu_ns + share.be_gpu_ns) / (double)share.known_ns;
	ret->next_switch_seconds = ret->status.next_switch_ms == UINT64_MAX
					   ? (double)NAN
					   : (double)ret->status.next_switch_ms / 1e3;
	collect_state(server, index, ret);
}

static void collect_orion(const struct nvshare_orion *orion, struct metrics_client *ret)
{
	bool is_there = orion->n_clients;

	ret->orion_clients = is_there ? orion->n_clients : (double)NAN;
	ret->orion_waiting = is_there ? orion->n_waiting : (double)NAN;
	ret->orion_hp_ops = is_there ? (double)orion->hp_ops : (double)NAN;
	ret->orion_be_ops = is_there ? (double)orion->be_ops : (double)NAN;
	ret->orion_be_waits = is_there ? (double)orion->be_waits : (double)NAN;
	ret->orion_wait_seconds = is_there ? (double)orion->wait_us / 1e6 : (double)NAN;
}

static void collect_client(struct server *server, struct peer *peer, uint32_t place,
			   uint64_t ticket, struct metrics_client *ret)
{
	struct nvshare_status_client *status = &ret->status;

	*ret = (struct metrics_client){.place = place};
	status_fill_client(server, peer, status);
	for (size_t i = 0; i < NVSHARE_PINNED_COUNT; i++)
		ret->pinned += status->mem.pinned[i];
	ret->wanted = status->mem.wanted + status->mem.wanted_pinned;
	if (status->state == NVSHARE_CLIENT_WAITING)
		ret->wait_seconds = (double)status->since_ns / 1e9;
	ret->slo_seconds = status->claim.slo_us ? status->claim.slo_us / 1e6 : (double)NAN;
	ret->compute_limit =
		status->claim.compute_limit ? status->claim.compute_limit / 100.0 : (double)NAN;
	if (status->energy_j > peer->energy_j)
		peer->energy_j = status->energy_j;
	ret->energy_joules = peer->energy_j ? peer->energy_j : (double)NAN;
	collect_orion(&peer->orion, ret);
	ret->clean = peer->clean;
	(void)gangs_fill(server, peer, ticket, &ret->gang);
	(void)status_fill_wait(server, peer, ticket, &ret->wait);
	ret->is_running = status->state == NVSHARE_CLIENT_RUNNING;
	ret->is_hung = status->flags & NVSHARE_CLIENT_HUNG;
	ret->is_stopped = names_stopped(status->flags) != NULL;
	ret->is_doubted = status->flags & NVSHARE_CLIENT_DOUBTED;
	ret->is_paused = status->flags & NVSHARE_CLIENT_PAUSED;
	ret->is_preemptible = !(status->flags & NVSHARE_CLIENT_NOT_PREEMPTIBLE);
}

/* The sums of a GPU hold all of its clients, listed or not. */
static void collect_sums(const struct metrics_client *client, struct metrics_gpu *gpu)
{
	const struct nvshare_mem *mem = &client->status.mem;

	gpu->resident += mem->resident;
	gpu->swapped += mem->swapped;
	gpu->host += mem->host;
	gpu->pinned += client->pinned;
	gpu->n_hung += client->is_hung;
	gpu->n_stopped += client->is_stopped;
	gpu->n_doubted += client->is_doubted;
	gpu->n_paused += client->is_paused;
	gpu->n_unstoppable += !client->is_preemptible;
	gpu->n_waiters[client->status.why]++;
}

static void collect_jobs(const struct server *server, struct metrics_node *ret)
{
	const struct job_counts *counts = &server->jobs.counts;

	ret->n_jobs_waiting = jobs_n_queued(&server->jobs.core);
	ret->n_jobs_running = server->jobs.n_live - ret->n_jobs_waiting;
	ret->n_jobs_submitted = counts->n_submitted;
	ret->n_jobs_started = counts->n_started;
	ret->n_jobs_retried = counts->n_retried;
	ret->n_jobs_refused = counts->n_refused;
	ret->n_jobs_failed = counts->n_failed;
	memcpy(ret->n_jobs_ended, counts->n_ended, sizeof(ret->n_jobs_ended));
	ret->jobs_wait = counts->wait;
}

void metrics_collect(struct server *server, struct metrics *ret)
{
	struct metrics_client unlisted;
	uint32_t places[SCHED_GPUS_MAX];
	uint64_t ticket = snapshot_ask(&server->tools.snapshot);

	/* Not all of it: most of the places of clients are unused. */
	ret->node = (struct metrics_node){.n_lines_dropped = log_dropped(),
					  .n_answers = server->http.n_answers,
					  .wait_bound_ns = server->settings.config.wait_bound_ns};
	ret->n_gpus = ret->n_clients = 0;
	measure_sample_all(server);
	stopped_look(server);
	shares_power(server);
	status_fill_node(server, &ret->node.status);
	status_fill_pool(server, &ret->node.pool);
	collect_jobs(server, &ret->node);
	ret->node.n_gangs = server->gangs.n_shown;
	ret->node.n_gang_members = server->gangs.n_shown_members;
	memcpy(ret->node.n_events, server->events.n, sizeof(ret->node.n_events));
	for (uint32_t i = 0; i < server->gpus.n; i++) {
		places[i] = NO_PLACE;
		if (!server->gpus.at[i].total)
			continue;
		places[i] = ret->n_gpus;
		ret->gpus[ret->n_gpus] = (struct metrics_gpu){.n_grants = 0};
		collect_gpu(server, i, &ret->gpus[ret->n_gpus++]);
	}
	for (uint32_t slot = 0; slot < server->slots_used; slot++) {
		struct peer *peer = &server->peers[slot];
		struct metrics_client *client = &unlisted;

		if (peer->state != PEER_STATE_CLIENT || places[peer->gpu] == NO_PLACE)
			continue;
		if (ret->n_clients < METRICS_CLIENTS_MAX)
			client = &ret->clients[ret->n_clients++];
		else
			ret->node.n_unlisted++;
		collect_client(server, peer, places[peer->gpu], ticket, client);
		collect_sums(client, &ret->gpus[places[peer->gpu]]);
	}
}
