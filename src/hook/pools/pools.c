/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Allocating and freeing in stream order. An allocation looks for memory in this order:
 *
 *	freed on the same stream;
 *	free for all streams;
 *	new from the card.
 *
 * When the card is short, it first looks at all frees that are done. Then it takes memory that was
 * freed on another stream, and makes its own stream wait for that one. At last it waits itself.
 */

#include "hook/pools/pools.h"
#include "hook/pools/pools_private.h"

#include "hook/gate/gate.h"
#include "hook/memory/budget.h"
#include "hook/pager/pager.h"
#include "hook/table/cuda_real.h"

#include <stdlib.h>
#include <string.h>

/* After so many frees the pool gives back its memory beyond the release threshold. */
#define POOLS_FREES 64

struct pools pools = {.lock = HOOK_MUTEX(HOOK_LOCK_POOLS)};

struct request {
	struct pools_pool *pool;
	struct pools_arena *arena; /* the request counts as its user */
	struct pools_where where;
	CUdevice dev;
	size_t size;
	bool is_opportunistic;
	bool has_dependencies;
};

/* ---- allocating ------------------------------------------------------------- */

static struct pools_block *block_place(const struct request *rq)
{
	struct pools_block *block;

	hook_lock(&pools.lock);
	block = pools_arena_place(rq->arena, rq->size);
	hook_unlock(&pools.lock);
	return block;
}

static struct pools_block *block_place_done(const struct request *rq, bool waits)
{
	pools_collect(waits);
	return block_place(rq);
}

/* Memory is short: finds a block without taking more of the card. Inside the gate. */
static struct pools_block *arena_squeeze(const struct request *rq)
{
	struct pools_block *block = block_place_done(rq, false);

	if (block)
		return block;
	if (rq->has_dependencies) {
		block = pools_take_other(rq->arena, &rq->where, rq->size);
		if (block)
			return block;
	}
	(void)pools_release(rq->dev);
	if (!pools_is_short(rq->dev, rq->size))
		return NULL;
	gate_leave(); /* while this thread waits for the GPU, the gate must be able to close */
	pager_flush_frees();
	pools_collect(true);
	gate_enter();
	block = block_place(rq);
	if (!block)
		(void)pools_release(rq->dev);
	return block;
}

/* Inside the gate. */
static CUresult arena_find_or_grow(const struct request *rq, struct pools_block **ret_block)
{
	struct pools_block *block = NULL;
	bool is_squeezed = false;
	CUresult res;

	if (rq->is_opportunistic)
		block = block_place_done(rq, false);
	if (!block && pools_is_short(rq->dev, rq->size)) {
		is_squeezed = true;
		block = arena_squeeze(rq);
	}
	while (!block) {
		res = pools_arena_grow(rq->arena, rq->size);
		if (res == CUDA_ERROR_OUT_OF_MEMORY && !is_squeezed) {
			is_squeezed = true;
			block = arena_squeeze(rq);
			continue;
		}
		if (res != CUDA_SUCCESS)
			return res;
		block = block_place(rq); /* another thread may have been faster */
	}
	*ret_block = block;
	return CUDA_SUCCESS;
}

/* Finds a block without a driver call. Lock held. */
static struct pools_block *arena_find_ready(const struct request *rq)
{
	struct pools_stream *stream = pools_stream_find(&rq->where);
	struct pools_block *block;

	block = stream ? pools_take_pending(stream, rq->arena, rq->size) : NULL;
	return block ? block : pools_arena_place(rq->arena, rq->size);
}

static void arena_count_used(struct pools_pool *pool, uint64_t bytes)
{
	pool->used += bytes;
	if (pool->used > pool->used_high)
		pool->used_high = pool->used;
}

/* Gives the block to the program. */
static void block_hand_out(const struct request *rq, struct pools_block *block, size_t bytes)
{
	hook_lock(&pools.lock);
	if (block->event)
		pools_event_put(block->event);
	block->event = NULL;
	arena_count_used(rq->pool, block->room);
	rq->arena->n_users--;
	hook_unlock(&pools.lock);
	block->alloc.block = block;
	block->alloc.pool = rq->pool->handle;
	block->alloc.ctx = rq->where.place.owner;
	block->alloc.dev = rq->dev;
	block->alloc.size = bytes;
	block->alloc.sync_memops = false;
	pager_add(&block->alloc);
}

/* Finds the pool and an arena. false: the pool is not ours. arena NULL: no memory for one. */
static bool request_begin(CUmemoryPool handle, size_t bytes, struct request *rq)
{
	struct pools_pool *pool;
	bool is_ours;

	hook_lock(&pools.lock);
	pool = pools_find(handle);
	if (!pool) {
		hook_unlock(&pools.lock);
		pools_learn(handle);
		hook_lock(&pools.lock);
		pool = pools_find(handle);
	}
	is_ours = pool && pool->is_ours;
	if (is_ours) {
		rq->pool = pool;
		rq->dev = pool->dev;
		rq->is_opportunistic = pool->is_opportunistic;
		rq->has_dependencies = pool->has_dependencies;
		rq->size = (bytes + EXTENT_ALIGN - 1) & ~(size_t)(EXTENT_ALIGN - 1);
		rq->arena = pools_arena_get(pool, rq->where.place.owner, rq->size);
	}
	hook_unlock(&pools.lock);
	return is_ours;
}

static CUresult request_serve(const struct request *rq, size_t bytes,
			      struct pools_block **ret_block)
{
	uint64_t total = budget_total(rq->dev);
	struct pools_block *block;
	CUresult res;

	if (total && bytes > total)
		return CUDA_ERROR_OUT_OF_MEMORY;
	res = budget_ask(rq->dev, bytes);
	if (res != CUDA_SUCCESS)
		return res;
	gate_enter();
	hook_lock(&pools.lock);
	block = arena_find_ready(rq);
	hook_unlock(&pools.lock);
	if (!block)
		res = arena_find_or_grow(rq, &block);
	gate_leave();
	if (res == CUDA_SUCCESS)
		*ret_block = block;
	else
		budget_allocated(rq->dev, -(int64_t)bytes);
	return res;
}

bool pools_alloc(CUmemoryPool handle, CUstream stream, size_t bytes, CUdeviceptr *ret_ptr,
		 CUresult *ret_res)
{
	struct pools_block *block;
	struct request rq = {0};

	if (bytes > SIZE_MAX - EXTENT_ALIGN || !cuda_real.cuStreamGetCtx ||
	    pools_where(stream, &rq.where) != CUDA_SUCCESS)
		return false; /* the driver chooses the error */
	if (!request_begin(handle, bytes, &rq))
		return false;
	*ret_res = rq.arena ? request_serve(&rq, bytes, &block) : CUDA_ERROR_OUT_OF_MEMORY;
	if (*ret_res == CUDA_SUCCESS) {
		block_hand_out(&rq, block, bytes);
		*ret_ptr = block->alloc.addr;
	} else if (rq.arena) {
		hook_lock(&pools.lock);
		rq.arena->n_users--;
		hook_unlock(&pools.lock);
	}
	return true;
}

/* ---- freeing ---------------------------------------------------------------- */

/* The block that becomes pending for an allocation that left the pager's books. */
static struct pools_block *pools_block_of(struct pager_alloc *alloc)
{
	struct pools_block *block = alloc->block;

	if (block)
		return block;
	pools_join_pager();
	block = calloc(1, sizeof(*block));
	if (block)
		block->plain = alloc;
	return block;
}

static CUresult block_record(const struct pools_where *where, struct pools_event *event)
{
	bool pushed;
	CUresult res;

	gate_enter();
	res = pager_push(where->place.ctx, &pushed);
	if (res == CUDA_SUCCESS) {
		res = cuda_real.cuEventRecord(event->event, where->stream);
		pager_pop(pushed);
	}
	gate_leave();
	return res;
}

/* Lock held. true: it is time to give back what the pool has beyond its release threshold. */
static bool arena_count_free(struct pools_block *block)
{
	struct pools_pool *pool = block->arena->pool;

	pool->used -= block->room;
	return pool->is_destroyed ||
	       (pool->reserved > pool->threshold && ++pool->n_frees % POOLS_FREES == 0);
}

/* The allocation has left the pager's books. After an error the caller puts it back. */
static CUresult block_free_in_order(struct pager_alloc *alloc, const struct pools_where *where)
{
	struct pools_block *block = pools_block_of(alloc);
	struct pools_event *event = block ? pools_event_get(where->place.owner) : NULL;
	struct pools_stream *stream = NULL;
	CUdevice dev = alloc->dev;
	bool is_due = false;
	CUresult res = CUDA_ERROR_OUT_OF_MEMORY;

	if (event)
		res = block_record(where, event);
	hook_lock(&pools.lock);
	if (res == CUDA_SUCCESS)
		stream = pools_stream_get(where);
	if (stream) {
		block->event = event;
		if (block->arena)
			is_due = arena_count_free(block);
		pools_pend(stream, block);
		pools_stream_put(stream);
	} else if (event) {
		pools_event_put(event);
	}
	hook_unlock(&pools.lock);
	if (!stream) {
		if (!alloc->block)
			free(block);
		return res == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : res;
	}
	if (is_due) {
		pools_collect(false);
		pools_settle(dev);
	}
	return CUDA_SUCCESS;
}

bool pools_free(CUdeviceptr ptr, CUstream stream, CUresult *ret_res)
{
	struct pools_where where;
	struct pager_alloc *alloc;
	uint64_t bytes;
	CUdevice dev;

	if (!cuda_real.cuEventQuery || !cuda_real.cuEventRecord || !cuda_real.cuStreamGetCtx)
		return pager_free(ptr, ret_res); /* an old driver: waits for the GPU */
	if (!pager_take(ptr, &alloc))
		return false;
	if (!alloc) {
		*ret_res = CUDA_ERROR_INVALID_VALUE; /* ptr is inside an allocation */
		return true;
	}
	dev = alloc->dev;
	bytes = alloc->size;
	*ret_res = pools_where(stream, &where);
	if (*ret_res == CUDA_SUCCESS)
		*ret_res = block_free_in_order(alloc, &where);
	if (*ret_res == CUDA_SUCCESS) {
		budget_allocated(dev, -(int64_t)bytes);
	} else {
		pager_add(alloc);
		/* No event can stand for the stream's work, and a free must not fail. */
		if (*ret_res == CUDA_ERROR_OUT_OF_MEMORY || *ret_res == CUDA_ERROR_STREAM_DETACHED)
			return pager_free(ptr, ret_res);
	}
	return true;
}

static void pools_block_free(struct pools_block *block)
{
	CUdevice dev = block->alloc.dev;
	bool is_due;

	hook_lock(&pools.lock);
	is_due = arena_count_free(block);
	pools_arena_give(block);
	hook_unlock(&pools.lock);
	if (is_due)
		pools_settle(dev);
}

/* ---- what the program asks for ---------------------------------------------- */

/* Our pool of that handle, which may be new to us; NULL: not ours. Returns with the lock held. */
static struct pools_pool *pool_lock_own(CUmemoryPool handle)
{
	struct pools_pool *pool;

	hook_lock(&pools.lock);
	pool = pools_find(handle);
	if (!pool) {
		hook_unlock(&pools.lock);
		pools_learn(handle);
		hook_lock(&pools.lock);
		pool = pools_find(handle);
	}
	return pool && pool->is_ours ? pool : NULL;
}

bool pools_trim(CUmemoryPool handle, uint64_t keep)
{
	struct pools_pool *pool = pool_lock_own(handle);

	hook_unlock(&pools.lock);
	if (!pool)
		return false;
	pools_collect(false);
	pools_give_back(pool, keep);
	return true;
}

static uint64_t *pool_counter(struct pools_pool *pool, CUmemPool_attribute attr)
{
	switch (attr) {
	case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
		return &pool->reserved;
	case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
		return &pool->reserved_high;
	case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
		return &pool->used;
	case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
		return &pool->used_high;
	case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
	case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
	case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
	case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
		break;
	}
	return NULL;
}

bool pools_get_attribute(CUmemoryPool handle, CUmemPool_attribute attr, void *value)
{
	struct pools_pool *pool;
	const uint64_t *bytes;
	CUdevice dev = -1;

	pool = pool_lock_own(handle);
	if (pool && attr == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)
		dev = pool->dev;
	hook_unlock(&pools.lock);
	if (dev >= 0) { /* a program that has synchronised expects its frees to show */
		pools_collect(false);
		pools_settle(dev);
	}
	pool = pool_lock_own(handle);
	bytes = pool ? pool_counter(pool, attr) : NULL;
	if (bytes)
		memcpy(value, bytes, sizeof(*bytes));
	hook_unlock(&pools.lock);
	return bytes != NULL;
}

static int pool_truth(const void *value)
{
	int on;

	memcpy(&on, value, sizeof(on));
	return on != 0;
}

bool pools_set_attribute(CUmemoryPool handle, CUmemPool_attribute attr, const void *value)
{
	struct pools_pool *pool = pool_lock_own(handle);

	if (pool) {
		switch (attr) {
		case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
			memcpy(&pool->threshold, value, sizeof(pool->threshold));
			break;
		case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
			pool->is_opportunistic = pool_truth(value);
			break;
		case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
			pool->has_dependencies = pool_truth(value);
			break;
		case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH: /* the driver allows only 0: a reset */
			pool->reserved_high = pool->reserved;
			break;
		case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
			pool->used_high = pool->used;
			break;
		case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
		case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
		case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
			break;
		}
	}
	hook_unlock(&pools.lock);
	return pool != NULL;
}

/* ---- ends ------------------------------------------------------------------- */

static void pools_context_gone(CUcontext ctx)
{
	struct pools_region *gone;
	struct pools_block *plain;

	hook_lock(&pools.lock);
	plain = pools_stream_context_gone(ctx);
	gone = pools_arena_context_gone(ctx);
	hook_unlock(&pools.lock);
	pools_drop_plain(plain);
	pools_free_regions(gone);
}

void pools_join_pager(void)
{
	static const struct pager_pools ops = {
		.release = pools_release,
		.make_room = pools_make_room,
		.block_free = pools_block_free,
		.context_gone = pools_context_gone,
	};

	pager_set_pools(&ops);
}

void pools_after_fork_child(void)
{
	pools = (struct pools){0};
	hook_mutex_renew(&pools.lock, HOOK_LOCK_POOLS);
}
