/* SPDX-License-Identifier: Apache-2.0 */

#include "core/fit.h"
#include "core/gang/gang.h"
#include "core/policy/sleeper.h"
#include "core/queue.h"
#include "core/sched.h"

#include <assert.h>

void sched_gpu_status(const struct sched *sched, uint32_t gpu, struct sched_gpu_status *ret)
{
	const struct sched_gpu *g = &sched->gpus[gpu];
	uint64_t usable = fit_usable(sched, gpu);

	assert(gpu < SCHED_GPUS_MAX && g->is_known);
	*ret = (struct sched_gpu_status){
		.total = g->total,
		.usable = usable,
		.external = g->external,
		.available = usable > g->sums.charged ? usable - g->sums.charged : 0,
		.running = g->sums.holder_bytes,
		.spare = fit_spare(sched, gpu),
		.n_switches = g->n_switches,
		.n_early = g->n_early,
		.moved_out = g->moved_out,
		.moved_in = g->moved_in,
		.bandwidth = g->bandwidth,
		.link_bandwidth = g->link_bandwidth,
		.overcommitted = g->is_overcommitted && g->sums.charged > usable
					 ? g->sums.charged - usable
					 : 0,
		.next_switch_ns = SCHED_NO_DEADLINE,
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
