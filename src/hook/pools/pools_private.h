/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_POOLS_PRIVATE_H
#define NVS_HOOK_POOLS_PRIVATE_H

/*
 * The parts of the pools: pools.c allocates, frees and serves the pager; pools_stream.c has frees
 * that are not done yet; pools_arena.c has pools and their memory. pools.lock guards all of it, and
 * no thread keeps it over a driver call. A thread that opens the lock in between counts as a user
 * of the arena or the stream.
 *
 * A block is in use (the pager's tree finds it), or pending (freed on a stream, in that stream's
 * list and tree), or free (a part of its arena's extent, without a struct).
 */

#include "abi/cuda_abi.h"
#include "hook/base/hook_mutex.h"
#include "hook/host/extent.h"
#include "hook/memory/rbtree.h"
#include "hook/pager/pager_ops.h"
#include "hook/pager/pager_private.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pools_event {
	struct pools_event *prev, *next; /* pools::in_use; pools::events, without users */
	CUcontext ctx;
	CUevent event;
	unsigned int n_users; /* pending blocks, and threads that ask for it */
	uint64_t after;       /* blocks up to this number were pending before it was recorded */
	bool is_dead;         /* atomic; its context has ended */
};

struct pools_region {
	struct pools_region *next; /* pools_arena::regions, or a list to be freed */
	struct pager_range *range;
};

/* Memory of a pool in one context, which ends with it. Small and large blocks lie apart. */
struct pools_arena {
	struct pools_arena *next; /* pools::arenas */
	struct pools_pool *pool;
	CUcontext ctx;
	struct extent extent; /* pending blocks count as used */
	struct pools_region *regions;
	size_t n_users; /* blocks that are not free, and threads in between */
	bool is_large;
	bool is_dead;
};

struct pools_pool {
	struct pools_pool *next; /* pools::pools */
	CUmemoryPool handle;
	CUdevice dev;
	bool is_ours;
	bool is_destroyed; /* it ends when its last memory is freed */
	bool is_leaving;   /* the driver is destroying it */
	bool is_opportunistic;
	bool has_dependencies; /* it may make streams wait for each other */
	uint64_t threshold;
	uint64_t size_max;
	uint64_t reserved, reserved_high;
	uint64_t used, used_high;
	uint64_t peers; /* a bit for each device */
	unsigned int n_frees;
};

struct pools_block {
	struct pager_alloc alloc;
	struct pools_arena *arena; /* NULL: plain memory, freed in stream order */
	struct pager_alloc *plain;
	size_t room; /* of alloc.size, rounded up */
	struct pools_event *event;
	uint64_t number;                 /* of the free, from 1 */
	RB_ENTRY(pools_block) link;      /* pools_stream::sizes */
	struct pools_block *prev, *next; /* pools_stream::pending, or a list to be freed */
};

RB_HEAD(pools_size_tree, pools_block);

/* The identity of a stream, since default streams have the same handle in all contexts. */
struct pools_where {
	CUcontext ctx;
	CUstream stream;
	uint64_t thread; /* of a per-thread stream; else 0 */
};

/* A stream with frees that have not been seen to be done. */
struct pools_stream {
	struct pools_stream *prev, *next; /* pools::streams */
	struct pools_where where;
	struct pools_block *pending;  /* by their numbers */
	struct pools_size_tree sizes; /* pending blocks of arenas */
	unsigned int n_users;
	bool is_detached; /* destroyed: pending blocks stay, and none is added */
	bool is_gone;     /* out of the list */
};

/* All under the lock. */
struct pools {
	struct hook_mutex lock;
	struct pools_pool *pools;
	struct pools_arena *arenas;
	struct pools_stream *streams;
	struct pools_event *events;
	struct pools_event *in_use;
	uint64_t n_pended;
};

extern struct pools pools;

/* ---- streams ---------------------------------------------------------------- */

/* An error of the driver when there is no such stream. */
CUresult pools_where(CUstream stream, struct pools_where *ret_where);

/* Lock held. find: NULL when nothing is pending there; get: NULL without memory. */
struct pools_stream *pools_stream_find(const struct pools_where *where);
struct pools_stream *pools_stream_get(const struct pools_where *where); /* a user more */
void pools_stream_put(struct pools_stream *stream);

/* Without the lock. An event that the caller records now. NULL: the driver has none. */
struct pools_event *pools_event_get(CUcontext ctx);
/* Lock held. */
void pools_event_put(struct pools_event *event);

/* Lock held. Makes the block pending until its event is done. */
void pools_pend(struct pools_stream *stream, struct pools_block *block);

/*
 * A pending block of the stream with at least size bytes, cut to them, with the event that
 * the taker gives back; NULL: none. Lock held.
 */
struct pools_block *pools_take_pending(struct pools_stream *stream, struct pools_arena *arena,
				       size_t size);

/* The same of any stream; makes where's stream wait for the free. Without the lock. */
struct pools_block *pools_take_other(struct pools_arena *arena, const struct pools_where *where,
				     size_t size);

/* Finds frees that are done. waits: waits for all. Without the lock. */
void pools_collect(bool waits);

/* Lock held: the pending frees that ctx takes with it, as a list to be freed by drop. */
struct pools_block *pools_stream_context_gone(CUcontext ctx);
void pools_drop_plain(struct pools_block *blocks); /* without the lock; takes NULL */

/* ---- arenas ----------------------------------------------------------------- */

/* Lock held. NULL: not known, or destroyed. */
struct pools_pool *pools_find(CUmemoryPool handle);

/* Asks the driver about the pool, which is known then. Without the lock. */
void pools_learn(CUmemoryPool handle);

/* Lock held. With one user more; NULL without memory. */
struct pools_arena *pools_arena_get(struct pools_pool *pool, CUcontext ctx, size_t size);

/* A free part of the arena; NULL: none, or no memory. Lock held. */
struct pools_block *pools_arena_place(struct pools_arena *arena, size_t size);

/* Makes the block free for all streams, and frees its struct. Lock held. */
void pools_arena_give(struct pools_block *block);

/* Adds memory for size bytes at least. Inside one gate_enter(), without the lock. */
CUresult pools_arena_grow(struct pools_arena *arena, size_t size);

/* Gives whole regions back until the pool has no more than keep bytes. Without the lock. */
void pools_give_back(const struct pools_pool *pool, uint64_t keep);

/* The same for all pools of dev, down to their thresholds. Frees pools that have ended. */
void pools_settle(CUdevice dev);

/* Lock held: the regions of ctx, for pools_free_regions(). Blocks in use stay as they are. */
struct pools_region *pools_arena_context_gone(CUcontext ctx);
void pools_free_regions(struct pools_region *gone); /* without the lock; takes NULL */

/* The budget of dev has no room for bytes more. */
bool pools_is_short(CUdevice dev, uint64_t bytes);

#endif
