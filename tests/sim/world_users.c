/* SPDX-License-Identifier: Apache-2.0 */
#include "world_users.h"

#include "core/fit.h"
#include "core/gang/gang.h"

#include <assert.h>
#include <string.h>

void world_look_users(const struct world *world, struct world_users *ret_users)
{
	memset(ret_users, -1, sizeof(*ret_users));
	for (uint32_t p = 0; p < WORLD_PROCS; p++) {
		const struct sched_client *c = &world->clients[p];
		uint32_t owner = world->procs[p].owner;
		int level = (int)c->level;

		ret_users->line[p] = c->line;
		ret_users->state[p] = c->state;
		if (c->line != SCHED_LINE_QUEUE)
			continue;
		/* Resident ones that can not come make no other one urgent. */
		if (!c->is_resident && level > ret_users->all[c->gpu][owner])
			ret_users->all[c->gpu][owner] = level;
		/* A gang waits for other GPUs, too. */
		if (!c->is_resting && fit_ever(&world->sched, p) &&
		    !gang_is_bound(&world->sched, p) && level > ret_users->able[c->gpu][owner])
			ret_users->able[c->gpu][owner] = level;
	}
}

/* p has been chosen, or put back, which takes its user's turn away again. */
static void world_turn_of(struct world *world, uint32_t p, bool is_back,
			  const struct world_users *before, const struct world_users *now)
{
	uint32_t gpu = world->clients[p].gpu, owner = world->procs[p].owner;
	int level = before->all[gpu][owner];

	/* It may have claimed so in this step, or others have come. */
	if (level < now->all[gpu][owner])
		level = now->all[gpu][owner];
	if (level < (int)world->clients[p].level)
		level = (int)world->clients[p].level;
	for (uint32_t i = 0; i < WORLD_OWNERS; i++) {
		uint32_t *n = &world->n_passed[gpu][i][owner];

		if (i == owner)
			continue;
		if (is_back)
			*n -= *n > 0;
		else if (before->able[gpu][i] >= level)
			(*n)++;
	}
}

void world_check_users(struct world *world, const struct world_users *before)
{
	uint32_t n_turns[WORLD_GPUS][WORLD_OWNERS] = {0};
	const struct world_users now = world->users;

	for (uint32_t p = 0; p < WORLD_PROCS; p++) {
		const struct sched_client *c = &world->clients[p];
		bool was_queued = before->line[p] == SCHED_LINE_QUEUE;

		/* It may have come into the queue in this step. */
		if (c->has_turn && world->clients[c->owner].own.turn_ns >= world->now)
			n_turns[c->gpu][world->procs[p].owner]++;
		/* A gang that comes may have left its turn here to others before. */
		if (was_queued && c->has_turn && c->has_switched &&
		    !gang_is_bound(&world->sched, p) && before->state[p] == SCHED_CLIENT_WAITING)
			world_turn_of(world, p, false, before, &now);
		if (before->line[p] == SCHED_LINE_COMING && c->line == SCHED_LINE_QUEUE)
			world_turn_of(world, p, true, before, &now);
	}
	for (uint32_t gpu = 0; gpu < WORLD_GPUS; gpu++) {
		for (uint32_t i = 0; i < WORLD_OWNERS; i++) {
			uint32_t *n = world->n_passed[gpu][i];

			if (n_turns[gpu][i] > 0 || before->able[gpu][i] < 0 || now.able[gpu][i] < 0)
				memset(n, 0, sizeof(world->n_passed[gpu][i]));
			for (uint32_t j = 0; j < WORLD_OWNERS; j++)
				assert(n[j] <= 2 || !world->sched.config.fair_users);
		}
	}
}
