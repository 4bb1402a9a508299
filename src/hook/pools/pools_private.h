/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_POOLS_PRIVATE_H
#define NVS_HOOK_POOLS_PRIVATE_H

/*
 * The parts of the pools: pools.c allocates, frees and serves the pager; pools_stream.c has frees
 * that are not done yet; pools_arena.c has pools and their memory. pools.lock guards all of it, and
 * no thread keeps it over a driver call. A thread that opens the lock half way is counted as a user
 * of the arena, the stream or the event, so that they stay.
 *
 * A block is in use (the pager's tree finds it), or pending (freed on a stream, in that stream's
 * list and tree), or free (a part of its arena's extent, without a struct).
 */

#include "abi/cuda_abi.h"
#include "hook/base/hook_mutex.h"
#include "hook/gate/green.h"
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
	unsigned int n_users; /* pending blocks, and threads that query it */
	uint64_t after;       /* blocks up to this number were pending before it was recorded */
	bool is_dead;         /* atomic; its context has ended */
};

struct pools_region {
	struct pools_region *next; /* pools_arena::regions, or a list to be freed */
	struct pager_range *range;
};

/* A pool's memory in one context; it ends with the context. Small and large blocks lie apart. */
struct pools_arena {
	struct pools_arena *next; /* pools::arenas */
	struct pools_pool *pool;
	CUcontext ctx;
	struct extent extent; /* pending blocks count as used */
	struct pools_region *regions;
	size_t n_users; /* blocks that are not free, and threads half way */
	bool is_large;
	bool is_dead;
};

struct pools_pool {
	struct pools_pool *next; /* pools::pools */
	CUmemoryPool handle;
	CUdevice dev;
	bool is_ours;
	bool is_destroyed; /* the pool ends when its last memory is freed */
	bool is_leaving;   /* the driver is destroying it */
	bool is_opportunistic;
	bool has_dependencies; /* an allocation may make its stream wait for another one */
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
	size_t room; /* bytes of the block: alloc.size, rounded up */
	struct pools_event *event;
	uint64_t number;                 /* of the free, from 1 */
	RB_ENTRY(pools_block) link;      /* pools_stream::sizes */
	struct pools_block *prev, *next; /* pools_stream::pending, or a list to be freed */
};

RB_HEAD(pools_size_tree, pools_block);

/* Identifies a stream: default streams have the same handle in all contexts. */
struct pools_where {
	struct green_place place; /* its owner has events and memory, which outlive a green one */
	CUstream stream;
	uint64_t thread; /* number of a per-thread stream's thread; else 0 */
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

/* lock guards all of it. */
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

/*
 * Identifies a stream that the program names in the call at hand. Returns the driver's error if
 * there is no such stream, and CUDA_ERROR_STREAM_DETACHED if its green context has ended.
 */
CUresult pools_where(CUstream stream, struct pools_where *ret_where);

/* Lock held. find: NULL when nothing is pending there. get: one user more; NULL without memory. */
struct pools_stream *pools_stream_find(const struct pools_where *where);
struct pools_stream *pools_stream_get(const struct pools_where *where);
void pools_stream_put(struct pools_stream *stream);

/* Without the lock. Returns an event, which the caller records at once; NULL: none to be had. */
struct pools_event *pools_event_get(CUcontext ctx);
/* Lock held. */
void pools_event_put(struct pools_event *event);

/* Lock held. Makes the block pending until its event is done. */
void pools_pend(struct pools_stream *stream, struct pools_block *block);

/*
 * Lock held. Takes a pending block of at least size bytes from the stream, and cuts it to size. The
 * caller puts its event back. NULL: none.
 */
struct pools_block *pools_take_pending(struct pools_stream *stream, struct pools_arena *arena,
				       size_t size);

/* The same of any stream; makes where's stream wait for the free. Without the lock. */
struct pools_block *pools_take_other(struct pools_arena *arena, const struct pools_where *where,
				     size_t size);

/* Makes blocks free whose events are done. waits: waits for all of them. Without the lock. */
void pools_collect(bool waits);

/* Lock held: returns the pending plain memory of a context that ends, for pools_drop_plain(). */
struct pools_block *pools_stream_context_gone(CUcontext ctx);
void pools_drop_plain(struct pools_block *blocks); /* without the lock; takes NULL */

/* ---- arenas ----------------------------------------------------------------- */

/* Lock held. NULL: the pool is not known, or destroyed. */
struct pools_pool *pools_find(CUmemoryPool handle);

/* Asks the driver about the pool; pools_find() finds it from then on. Without the lock. */
void pools_learn(CUmemoryPool handle);

/* Lock held. The arena for a block of size bytes, with one user more; NULL without memory. */
struct pools_arena *pools_arena_get(struct pools_pool *pool, CUcontext ctx, size_t size);

/* A free part of the arena; NULL: none, or no memory. Lock held. */
struct pools_block *pools_arena_place(struct pools_arena *arena, size_t size);

/* Makes the block free for all streams, and frees its struct. Lock held. */
void pools_arena_give(struct pools_block *block);

/* Adds memory for size bytes at least. Inside one gate_enter(), without the lock. */
CUresult pools_arena_grow(struct pools_arena *arena, size_t size);

/* Gives whole regions back until the pool has no more than keep bytes. Without the lock. */
void pools_give_back(const struct pools_pool *pool, uint64_t keep);

/* The same for all pools of dev, down to their release thresholds. Frees pools that have ended. */
void pools_settle(CUdevice dev);

/* Lock held: takes the regions of ctx, for pools_free_regions(). Blocks in use stay as they are. */
struct pools_region *pools_arena_context_gone(CUcontext ctx);
void pools_free_regions(struct pools_region *gone); /* without the lock; takes NULL */

/* The budget of dev has no room for bytes more. */
bool pools_is_short(CUdevice dev, uint64_t bytes);

#endif
