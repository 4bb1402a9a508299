/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_TESTS_SIM_WORLD_TURNS_H
#define NVS_TESTS_SIM_WORLD_TURNS_H

/*
 * Nobody is stopped for another one's turn before it had something of its own: an eighth of a turn,
 * or all of it while an allocation waits. Where all that run wait for memory one is cut short all
 * the same. It then gets what it lacks before that can happen to it again: so there are no more
 * stops than there are turns and allocations.
 */

#include "world.h"

struct world_before {
	bool is_blocked[WORLD_PROCS]; /* runs, and waits for memory, as far as the core knows */
	bool is_free[WORLD_PROCS];    /* runs, and does not wait */
	bool is_coming[WORLD_PROCS];
	uint32_t n_on[WORLD_GPUS]; /* run, stop or come */
	uint32_t joining;          /* is it, and has run until now, without a scheduler */
};

/* Before a step. */
void world_look(const struct world *world, const struct sched_event *event,
		struct world_before *ret_before);

/* p, which ran, has just been told to stop. */
void world_check_stop(struct world *world, uint32_t p, const struct world_before *before);

#endif
