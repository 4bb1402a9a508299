/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_PAGER_PLAN_H
#define NVS_HOOK_PAGER_PLAN_H

/*
 * What an eviction and a restore have in common: which chunks they move, and the copies that
 * are on their way. Copies run on a stream of our own, several chunks at once and none waited
 * for before the next is on its way: the bus is never idle.
 *
 * Threading: a plan and what is moving are their maker's. The pager's lock is not held.
 */

#include "hook/pager/pager_private.h"

struct pager_plan {
	struct pager_range **ranges; /* a reference to each */
	size_t n_ranges;
	struct pager_chunk **chunks; /* largest first; of equals, those that need no copy first */
	size_t n_chunks;
};

/* The chunks of dev that are in state now, those that must stay left out. false: no memory. */
bool pager_plan_init(struct pager_plan *plan, CUdevice dev, enum pager_state state);
void pager_plan_deinit(struct pager_plan *plan);

/*
 * Cuts plan to the chunks that make up bytes: large ones while they fit into what is
 * missing, then the smallest one that covers the rest, since what need not go should not. A
 * few small ones come first then.
 */
void pager_plan_cut(struct pager_plan *plan, uint64_t bytes);

/* Makes chunk busy if it is still in state, and may move. */
bool pager_claim(struct pager_chunk *chunk, enum pager_state state);

/* The copies on their way: a ring, oldest first. */
struct pager_moving {
	struct pager_mover *mover;
	struct pager_chunk *in_flight[PAGER_IN_FLIGHT];
	size_t n_started;
	size_t n_ended;
	int outcome;    /* enum nvshare_outcome; once not SUCCESS nothing new is started */
	bool is_frozen; /* what is copied stands still because it is frozen, if it still is */
	uint64_t bytes;
	uint64_t handed;        /* of bytes: memory of the other program's, now or before */
	bool is_host_short;     /* host memory for all of it was, or is, not there */
	uint64_t to_copy;       /* bytes that still need some */
	uint64_t room_until_ns; /* 0: not waited for yet */
};

#endif
