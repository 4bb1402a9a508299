/* SPDX-License-Identifier: Apache-2.0 */
#include "world_turns.h"

#include "core/fit.h"

#include <assert.h>

void world_look(const struct world *world, const struct sched_event *event,
		struct world_before *ret_before)
{
	*ret_before = (struct world_before){.joining = SCHED_NONE};
	if (event->type == SCHED_EVENT_JOIN) {
		ret_before->joining = event->client;
		ret_before->n_on[event->gpu] += event->running;
	}
	for (uint32_t p = 0; p < WORLD_PROCS; p++) {
		const struct sched_client *c = &world->clients[p];
		bool is_blocked = c->is_growing, is_heard = event->type == SCHED_EVENT_MEMORY;

		if (event->client == p && is_heard && event->epoch == c->epoch)
			is_blocked = event->memory.wanted || event->memory.wanted_pinned;
		ret_before->n_on[c->gpu] += c->state >= SCHED_CLIENT_INCOMING;
		ret_before->is_coming[p] = c->line == SCHED_LINE_COMING;
		if (event->client == p && event->type == SCHED_EVENT_LEAVE)
			continue;
		if (event->client == p && event->type == SCHED_EVENT_RELEASED)
			continue;
		if (c->state != SCHED_CLIENT_RUNNING || c->is_hung)
			continue;
		ret_before->is_blocked[p] = is_blocked;
		ret_before->is_free[p] = !is_blocked;
	}
}

/* The shortest that a turn can be, however many wait. */
static uint64_t world_turn_min(const struct sched *sched, uint32_t gpu)
{
	const struct sched_gpu_config *config = &sched->gpus[gpu].config;
	uint64_t turn = config->mode == SCHED_MODE_CONCURRENT       ? config->tq_ns
			: config->switch_mode == SCHED_SWITCH_FIXED ? config->switch_fixed_ns
								    : sched->config.switch_min_ns;
	const uint64_t second = 1000000000;

	return turn < second ? turn : second;
}

/* It comes, or grows, or had what it came or waited for at once, out of the reserve. */
static bool world_has_critical(const struct world *world, uint32_t gpu,
			       const struct world_before *before)
{
	for (uint32_t p = 0; p < WORLD_PROCS; p++) {
		const struct sched_client *c = &world->clients[p];

		if (c->gpu == gpu && c->is_resident &&
		    (c->line != SCHED_LINE_NONE || c->turn_ns == world->now ||
		     before->is_blocked[p]))
			return true;
	}
	return false;
}

/* Who is found to be hung in the same step is nobody to wait for. */
static bool world_has_free(const struct world *world, uint32_t gpu,
			   const struct world_before *before)
{
	for (uint32_t p = 0; p < WORLD_PROCS; p++) {
		const struct sched_client *c = &world->clients[p];

		if (c->gpu == gpu && before->is_free[p] && !c->is_hung)
			return true;
	}
	return false;
}

void world_check_stop(struct world *world, uint32_t p, const struct world_before *before)
{
	const struct sched_client *c = &world->clients[p];
	uint64_t had_ns = world->now - c->turn_ns, least_ns = world_turn_min(&world->sched, c->gpu);

	/* It is paused, or others of its gang do not run. */
	if (c->is_paused || c->is_called_off)
		return;
	if (!before->is_blocked[p])
		least_ns /= 8;
	if (had_ns >= least_ns) {
		world->procs[p].is_cut = false;
		return;
	}
	/*
	 * Only so many may run, and more have until now: by another mode, without a scheduler, or
	 * because one was hung, or did not stop.
	 */
	if (before->n_on[c->gpu] > fit_degree(&world->sched, c->gpu))
		return;
	/* It comes back with more than there is room for now. */
	if (before->joining == p)
		return;
	if (world_has_critical(world, c->gpu, before))
		return;
	assert(before->is_blocked[p]);
	assert(!world_has_free(world, c->gpu, before));
	assert(!world->procs[p].is_cut);
	world->procs[p].is_cut = true;
}
