/* SPDX-License-Identifier: Apache-2.0 */

#include "core/fit.h"
#include "core/gang/gang.h"
#include "core/policy/sleeper.h"
#include "core/queue.h"
#include "core/reserve.h"
#include "core/sched.h"
#include "core/u64.h"

#include <assert.h>

void sched_gpu_status(const struct sched *sched, uint32_t gpu, struct sched_gpu_status *ret)
{
	const struct sched_gpu *g = &sched->gpus[gpu];
	uint64_t budgets = fit_usable(sched, gpu);

	assert(gpu < SCHED_GPUS_MAX && g->is_known);
	*ret = (struct sched_gpu_status){
		.total = g->total,
		.usable = g->total - reserve_bytes(sched, gpu),
		.external = g->external,
		.available = u64_excess(budgets, g->sums.charged),
		.running = g->sums.holder_bytes,
		.spare = fit_spare(sched, gpu),
		.n_switches = g->n_switches,
		.n_early = g->n_early,
		.moved_out = g->moved_out,
		.moved_in = g->moved_in,
		.bandwidth = g->bandwidth,
		.link_bandwidth = g->link_bandwidth,
		.overcommitted = g->is_overcommitted ? u64_excess(g->sums.charged, budgets) : 0,
		.next_switch_ns = SCHED_NO_DEADLINE,
		.head = g->head,
		.n_running = g->sums.n_holding,
		.n_queued = g->queue.n,
		.n_waiting = g->queue.n - g->sums.n_blocked,
		.n_clients = g->n_clients,
		.config = g->config,
	};
	if (g->head != SCHED_NONE)
		ret->next_switch_ns = sched->clients[g->head].ready_ns;
}

enum sched_client_state sched_client_state(const struct sched *sched, uint32_t client)
{
	assert(client < sched->n_clients);
	return sched->clients[client].state;
}

/*
 * The bytes that it would lack if all that can go of the other clients had gone; 0 if external is
 * less.
 */
static uint64_t outside_bytes(const struct sched *sched, uint32_t client)
{
	const struct sched_client *c = &sched->clients[client];
	uint64_t need = fit_footprint(c), limit = fit_limit(sched, client);

	if (c->line != SCHED_LINE_QUEUE && c->state != SCHED_CLIENT_WAITING)
		return 0;
	if (need <= limit || need - limit > sched->gpus[c->gpu].external || fit_ever(sched, client))
		return 0;
	return need - limit;
}

void sched_client_status(const struct sched *sched, uint32_t client, uint64_t now_ns,
			 struct sched_client_status *ret)
{
	const struct sched_client *c = &sched->clients[client];
	bool runs = c->state == SCHED_CLIENT_RUNNING || c->state == SCHED_CLIENT_STOPPING;

	assert(client < sched->n_clients);
	*ret = (struct sched_client_status){
		.state = c->state,
		.why = c->state == SCHED_CLIENT_FREE ? SCHED_WAIT_NOT : queue_why(sched, client),
		.early = sleeper_status(sched, client),
		.gpu = c->gpu,
		.position = c->state == SCHED_CLIENT_FREE ? 0 : queue_position(sched, client),
		.last_outcome = c->last_outcome,
		.hung = c->is_hung,
		.paused = c->is_paused,
		.not_preemptible = c->is_not_preemptible,
		.fixed = c->is_fixed,
		.growing = c->is_growing,
		.claim = c->claim,
		.memory = c->memory,
		.budget = c->budget,
		.since_ns = now_ns - c->since_ns,
		.last_scheduled_ns = c->granted_ns == SCHED_NO_DEADLINE ? SCHED_NO_DEADLINE
									: now_ns - c->granted_ns,
		.run_ns = c->run_ns + (runs ? now_ns - c->granted_ns : 0),
		.used_ns = c->used_ns,
		.n_switches = c->n_switches,
		.gang = c->gang,
		.outside = c->state == SCHED_CLIENT_FREE ? 0 : outside_bytes(sched, client),
	};
	ret->gang_gpu = SCHED_NONE;
	if (ret->why == SCHED_WAIT_GANG)
		(void)gang_waits(sched, client, &ret->gang_gpu);
}

/* ranks: two places, most bytes first. */
static void blocker_rank(struct sched_blocker ranks[2], struct sched_blocker blocker)
{
	struct sched_blocker *at = &ranks[ranks[0].obstacle != SCHED_OBSTACLE_NONE];

	if (at->obstacle != SCHED_OBSTACLE_NONE && blocker.bytes <= at->bytes)
		return;
	*at = blocker;
	if (at->bytes > ranks[0].bytes) {
		ranks[1] = ranks[0];
		ranks[0] = blocker;
	}
}

static enum sched_obstacle obstacle_of(const struct sched_client *c)
{
	if (c->is_hung)
		return SCHED_OBSTACLE_HUNG;
	if (c->is_fixed)
		return SCHED_OBSTACLE_FIXED;
	if (c->is_resident && !c->is_not_preemptible && !c->is_retrying)
		return SCHED_OBSTACLE_CRITICAL;
	return SCHED_OBSTACLE_NOT_STOPPED;
}

void sched_blockers_add(const struct sched *sched, uint32_t client, struct sched_blockers *blockers)
{
	const struct sched_client *c = &sched->clients[client];
	const struct sched_sums *own = &c->counted;
	uint64_t kept = own->load - own->running - own->blocked;
	struct sched_blocker blocker = {.client = client};

	if (c->state == SCHED_CLIENT_FREE || c->state == SCHED_CLIENT_INCOMING)
		return;
	if (own->pinned > 0) {
		blocker.obstacle = SCHED_OBSTACLE_PINNED;
		blocker.bytes = own->pinned;
		blocker_rank(blockers->pinned, blocker);
	}
	if (kept > own->pinned || own->n_never > 0) {
		blocker.obstacle = obstacle_of(c);
		blocker.bytes = kept;
		blocker_rank(blockers->kept, blocker);
	}
}

struct sched_blocker sched_blocker_of(const struct sched *sched, uint32_t client,
				      const struct sched_blockers *blockers)
{
	struct sched_blocker none = {.client = SCHED_NONE};
	enum sched_wait why = queue_why(sched, client);
	struct sched_blocker pinned = blockers->pinned[blockers->pinned[0].client == client];
	struct sched_blocker kept = blockers->kept[blockers->kept[0].client == client];

	if (sched->clients[client].line != SCHED_LINE_QUEUE || why == SCHED_WAIT_GANG ||
	    outside_bytes(sched, client) > 0 || sched->gpus[sched->clients[client].gpu].is_out)
		return none;
	if (!fit_can_be_whole(sched, client))
		return pinned;
	if (!sched->config.anti_thrash && fit_ever(sched, client)) {
		none.obstacle = SCHED_OBSTACLE_TURNS_OFF;
		return none;
	}
	if (why != SCHED_WAIT_STUCK)
		return none;
	return kept.obstacle != SCHED_OBSTACLE_NONE ? kept : pinned;
}
