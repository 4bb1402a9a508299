/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_PAGER_PLAN_H
#define NVS_HOOK_PAGER_PLAN_H

/*
 * Used by evictions and restores: the chunks that they move, and the copies under way. Copies of
 * several chunks run at once on a stream of our own. The next one is submitted before the oldest
 * has ended, so the bus is never idle.
 *
 * Threading: a plan and its copies belong to their maker, which calls without the pager's lock.
 */

#include "hook/pager/pager.h"
#include "hook/pager/pager_copy.h"

struct pager_plan {
	struct pager_range **ranges; /* a reference to each */
	size_t n_ranges;
	struct pager_chunk **chunks; /* largest first; of equals, those that need no copy first */
	size_t n_chunks;
};

/* The chunks of dev in this state, without those that must stay. false: no memory. */
bool pager_plan_init(struct pager_plan *plan, CUdevice dev, enum pager_state state);
void pager_plan_deinit(struct pager_plan *plan);

/*
 * Cuts the plan to chunks that make up bytes, with as little on top as possible: large ones while
 * they fit, then the smallest one that covers the rest. A few small ones come first then.
 */
void pager_plan_cut(struct pager_plan *plan, uint64_t bytes);

struct pager_moving;

/*
 * A part of a move that waits for nothing for long. It chooses the step after it, and returns when
 * to call that one: 0: at once, else so many nanoseconds later.
 */
typedef uint64_t pager_step(struct pager_moving *move);

/* An eviction or a restore. Its copies are a ring, oldest first. */
struct pager_moving {
	CUdevice dev;
	pager_step *step; /* the next one; NULL: the move has ended */
	struct pager_plan plan;
	size_t next;             /* the place in the plan of the chunk that comes next */
	struct pager_move moved; /* of managed memory, and at the end */
	uint64_t start_ns;
	struct pager_mover *mover;
	struct pager_chunk *in_flight[PAGER_IN_FLIGHT];
	size_t n_started;
	size_t n_ended;
	struct pager_wait wait; /* for the oldest one */
	int outcome;            /* enum nvshare_outcome; after a failure no copy is started */
	uint64_t bytes;
	uint64_t handed; /* the part of bytes whose memory was handed over */

	/* An eviction. */
	struct pager_moving *next_eviction; /* pager::evictions */
	uint64_t asked;                     /* bytes */
	bool is_frozen;      /* the program was frozen, not drained, and the watchdog may thaw it */
	bool is_shared;      /* the round of shared memory, which is the last one */
	size_t n_taken_back; /* chunks of shared memory that nobody else has mapped any more */
	uint64_t until_ns;   /* others have so long to give their mappings up */
	bool is_host_short;  /* there was not enough host memory for all of it */
	uint64_t host_ns;    /* the end of the wait for host memory; 0: it does not wait */
	pager_step *has_host; /* the step that waits for host memory */
	uint64_t to_copy;     /* bytes that still need host memory */
	uint64_t copied;      /* of bytes: the part that was copied for this eviction */
	struct pager_batch batch;
	size_t batch_begin; /* the first one's place in the plan */

	/* A restore. */
	struct pager_chunk *mapping; /* waits for room; NULL: none does */
	uint64_t room_until_ns;      /* the end of the wait for room; 0: it has not begun */
};

/* The first steps. */
pager_step pager_evict_step;
pager_step pager_restore_step;

#endif
