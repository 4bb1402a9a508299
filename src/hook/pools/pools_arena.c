/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Pools and their memory: ranges of the pager, handed out in parts. A region goes back to the card
 * as a whole, when all of it is free.
 */

#include "hook/pools/pools.h"
#include "hook/pools/pools_private.h"

#include "hook/pager/backend.h"
#include "hook/pager/pager.h"
#include "hook/table/cuda_real.h"
#include "nvshare/protocol.h"

#include <stdlib.h>
#include <utlist.h>

/* ---- pools ------------------------------------------------------------------ */

/* The driver has all functions that pools of ours need, and dev uses the VMM backend. */
static bool pools_are_supported(CUdevice dev)
{
	return cuda_real.cuEventCreate && cuda_real.cuEventRecord && cuda_real.cuEventQuery &&
	       cuda_real.cuEventSynchronize && cuda_real.cuStreamGetCtx &&
	       cuda_real.cuStreamWaitEvent && cuda_real.cuMemPoolGetAttribute && dev >= 0 &&
	       dev < PAGER_DEVICES && backend_of(dev) == NVSHARE_BACKEND_VMM;
}

struct pools_pool *pools_find(CUmemoryPool handle)
{
	struct pools_pool *pool;

	LL_FOREACH (pools.pools, pool) {
		if (pool->handle == handle && !pool->is_destroyed)
			return pool;
	}
	return NULL;
}

static bool pool_is_set(CUmemoryPool handle, CUmemPool_attribute attr)
{
	int value = 1; /* the driver's default */

	(void)cuda_real.cuMemPoolGetAttribute(handle, attr, &value);
	return value != 0;
}

static struct pools_pool *pool_new(CUmemoryPool handle, CUdevice dev, bool is_ours)
{
	struct pools_pool *pool = calloc(1, sizeof(*pool));
	cuuint64_t threshold = 0;

	if (!pool)
		return NULL;
	pools_join_pager();
	pool->handle = handle;
	pool->dev = dev;
	pool->is_ours = is_ours;
	if (!is_ours)
		return pool;
	(void)cuda_real.cuMemPoolGetAttribute(handle, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD,
					      &threshold);
	pool->threshold = threshold;
	pool->is_opportunistic = pool_is_set(handle, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC);
	pool->has_dependencies =
		pool_is_set(handle, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES);
	return pool;
}

/* Two threads may learn of a pool at once: the first one's struct stays. */
static void pool_add(struct pools_pool *pool)
{
	bool is_known;

	if (!pool)
		return;
	hook_lock(&pools.lock);
	is_known = pools_find(pool->handle) != NULL;
	if (!is_known)
		LL_PREPEND(pools.pools, pool);
	hook_unlock(&pools.lock);
	if (is_known)
		free(pool);
}

/* A pool that no call of this process made is a device's default pool, or another process's. */
void pools_learn(CUmemoryPool handle)
{
	CUmemoryPool own;
	int n = 0;

	if (!cuda_real.cuDeviceGetDefaultMemPool || !cuda_real.cuDeviceGetCount ||
	    cuda_real.cuDeviceGetCount(&n) != CUDA_SUCCESS)
		return;
	for (CUdevice dev = 0; dev < n; dev++) {
		if (pools_are_supported(dev) &&
		    cuda_real.cuDeviceGetDefaultMemPool(&own, dev) == CUDA_SUCCESS &&
		    own == handle) {
			pool_add(pool_new(handle, dev, true));
			return;
		}
	}
	pool_add(pool_new(handle, -1, false));
}

bool pools_created(CUmemoryPool handle, const CUmemPoolProps *props)
{
	bool is_ours = props->location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
		       props->allocType == CU_MEM_ALLOCATION_TYPE_PINNED &&
		       props->handleTypes == 0 && props->usage == 0 &&
		       pools_are_supported(props->location.id);
	struct pools_pool *pool = pool_new(handle, props->location.id, is_ours), *stale;

	if (!pool)
		return false;
	pool->size_max = props->maxSize;
	hook_lock(&pools.lock);
	stale = pools_find(handle);
	if (stale)
		stale->is_destroyed = true; /* the handle is new, so the old pool is gone */
	LL_PREPEND(pools.pools, pool);
	hook_unlock(&pools.lock);
	return is_ours;
}

struct pools_pool *pools_destroy_begin(CUmemoryPool handle)
{
	struct pools_pool *pool;

	hook_lock(&pools.lock);
	pool = pools_find(handle);
	if (pool) {
		pool->is_destroyed = true;
		pool->is_leaving = true;
	}
	hook_unlock(&pools.lock);
	return pool;
}

void pools_destroy_end(struct pools_pool *pool, bool is_destroyed)
{
	CUdevice dev = pool->dev;
	uint64_t peers = 0;

	hook_lock(&pools.lock);
	pool->is_destroyed = is_destroyed;
	pool->is_leaving = false;
	if (is_destroyed) {
		peers = pool->peers;
		pool->peers = 0;
	}
	hook_unlock(&pools.lock);
	for (CUdevice peer = 0; peer < PAGER_DEVICES; peer++) {
		if (peers >> peer & 1)
			(void)pager_peer(dev, peer, false);
	}
	pools_collect(false);
	pools_settle(dev);
}

/* A pool has one bit a device; the pager counts how many pools ask for the same device. */
CUresult pools_set_access(CUmemoryPool handle, CUdevice peer, bool enable)
{
	struct pools_pool *pool;
	bool is_change = false;
	CUdevice dev = -1;
	CUresult res;

	if (peer < 0 || peer >= PAGER_DEVICES)
		return CUDA_SUCCESS;
	hook_lock(&pools.lock);
	pool = pools_find(handle);
	if (pool && pool->is_ours && pool->dev != peer) {
		dev = pool->dev;
		is_change = (pool->peers >> peer & 1) != enable;
		pool->peers ^= (uint64_t)is_change << peer;
	}
	hook_unlock(&pools.lock);
	if (!is_change)
		return CUDA_SUCCESS;
	res = pager_peer(dev, peer, enable);
	if (res == CUDA_SUCCESS || !enable)
		return CUDA_SUCCESS;
	(void)pager_peer(dev, peer, false);
	hook_lock(&pools.lock);
	pool = pools_find(handle);
	if (pool)
		pool->peers &= ~(1ull << peer);
	hook_unlock(&pools.lock);
	return res;
}

/* ---- arenas ----------------------------------------------------------------- */

struct pools_arena *pools_arena_get(struct pools_pool *pool, CUcontext ctx, size_t size)
{
	bool is_large = size >= PAGER_LARGE;
	struct pools_arena *arena;

	LL_FOREACH (pools.arenas, arena) {
		if (arena->pool == pool && arena->ctx == ctx && arena->is_large == is_large &&
		    !arena->is_dead)
			break;
	}
	if (!arena) {
		arena = calloc(1, sizeof(*arena));
		if (!arena)
			return NULL;
		arena->pool = pool;
		arena->ctx = ctx;
		arena->is_large = is_large;
		extent_init(&arena->extent);
		LL_PREPEND(pools.arenas, arena);
	}
	arena->n_users++;
	return arena;
}

struct pools_block *pools_arena_place(struct pools_arena *arena, size_t size)
{
	struct pools_block *block;
	uint64_t addr;

	if (arena->extent.bytes_free < size)
		return NULL;
	block = calloc(1, sizeof(*block));
	if (!block)
		return NULL;
	if (extent_alloc(&arena->extent, size, &addr) != 0) {
		free(block);
		return NULL;
	}
	block->arena = arena;
	block->room = size;
	block->alloc.addr = addr;
	arena->n_users++;
	return block;
}

void pools_arena_give(struct pools_block *block)
{
	struct pools_arena *arena = block->arena;

	if (!arena->is_dead)
		(void)extent_free(&arena->extent, block->alloc.addr, NULL);
	arena->n_users--;
	free(block);
}

/*
 * About the size that the arena has, within bounds: the arena doubles, so that few chunks hold many
 * allocations.
 */
static size_t arena_next_size(const struct pools_arena *arena, size_t size, size_t granularity)
{
	uint64_t have = arena->extent.bytes_used + arena->extent.bytes_free;
	size_t next = granularity;

	while (next < PAGER_SHARED_MAX && next < have)
		next *= 2;
	size = (size + granularity - 1) & ~(granularity - 1);
	return size > next ? size : next;
}

static bool arena_fits_pool(const struct pools_pool *pool, uint64_t size)
{
	return !pool->size_max || pool->reserved + size <= pool->size_max;
}

static int arena_add_region(struct pools_arena *arena, struct pools_region *region)
{
	struct pools_pool *pool = arena->pool;
	struct pager_range *range = region->range;
	int r = -1;

	hook_lock(&pools.lock);
	/* Other threads may have grown the pool meanwhile. */
	if (!arena->is_dead && arena_fits_pool(pool, range->size))
		r = extent_add(&arena->extent, range->addr, range->size);
	if (r == 0) {
		LL_PREPEND(arena->regions, region);
		pool->reserved += range->size;
		if (pool->reserved > pool->reserved_high)
			pool->reserved_high = pool->reserved;
	}
	hook_unlock(&pools.lock);
	return r;
}

CUresult pools_arena_grow(struct pools_arena *arena, size_t size)
{
	struct pools_pool *pool = arena->pool;
	size_t granularity = pager_device(pool->dev)->granularity, exact, next;
	struct pools_region *region;
	CUresult res;

	if (size > SIZE_MAX - granularity)
		return CUDA_ERROR_OUT_OF_MEMORY;
	exact = (size + granularity - 1) & ~(granularity - 1);
	hook_lock(&pools.lock);
	next = arena_next_size(arena, size, granularity);
	if (!arena_fits_pool(pool, next))
		next = exact;
	res = arena_fits_pool(pool, next) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
	hook_unlock(&pools.lock);
	if (res != CUDA_SUCCESS)
		return res;
	if (next > exact && pools_is_short(pool->dev, next))
		next = exact;
	region = calloc(1, sizeof(*region));
	if (!region)
		return CUDA_ERROR_OUT_OF_MEMORY;
	res = pager_range_new(pool->dev, arena->ctx, NULL, next, &region->range);
	if (res == CUDA_ERROR_OUT_OF_MEMORY && next > exact)
		res = pager_range_new(pool->dev, arena->ctx, NULL, exact, &region->range);
	if (res == CUDA_SUCCESS && arena_add_region(arena, region) != 0) {
		pager_range_free(region->range);
		res = CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (res != CUDA_SUCCESS)
		free(region);
	return res;
}

/* ---- giving back ------------------------------------------------------------ */

/* Moves the arena's empty regions to *gone until its pool has no more than keep. Lock held. */
static void arena_take_empty(struct pools_arena *arena, uint64_t keep, struct pools_region **gone)
{
	struct pools_region *region, **link;

	for (link = &arena->regions; (region = *link) && arena->pool->reserved > keep;) {
		if (extent_remove(&arena->extent, region->range->addr) != 0) {
			link = &region->next;
			continue;
		}
		*link = region->next;
		arena->pool->reserved -= region->range->size;
		LL_PREPEND(*gone, region);
	}
}

void pools_free_regions(struct pools_region *gone)
{
	struct pools_region *region;

	while ((region = gone)) {
		gone = region->next;
		pager_range_free(region->range);
		free(region);
	}
}

static bool pool_has_arena(const struct pools_pool *pool)
{
	const struct pools_arena *arena;

	LL_FOREACH (pools.arenas, arena) {
		if (arena->pool == pool)
			return true;
	}
	return false;
}

/* Frees arenas of dead contexts and destroyed pools, and those pools. Lock held. */
static void arena_reap(struct pools_region **gone)
{
	struct pools_arena *arena, *next_arena;
	struct pools_pool *pool, *next_pool;

	LL_FOREACH_SAFE (pools.arenas, arena, next_arena) {
		if (arena->n_users || !(arena->is_dead || arena->pool->is_destroyed))
			continue;
		arena_take_empty(arena, 0, gone);
		LL_DELETE(pools.arenas, arena);
		extent_deinit(&arena->extent);
		free(arena);
	}
	LL_FOREACH_SAFE (pools.pools, pool, next_pool) {
		if (!pool->is_destroyed || pool->is_leaving || pool_has_arena(pool))
			continue;
		LL_DELETE(pools.pools, pool);
		free(pool);
	}
}

/* The pool may be gone: its address is only compared. */
void pools_give_back(const struct pools_pool *pool, uint64_t keep)
{
	struct pools_region *gone = NULL;
	struct pools_arena *arena;

	hook_lock(&pools.lock);
	LL_FOREACH (pools.arenas, arena) {
		if (arena->pool == pool)
			arena_take_empty(arena, keep, &gone);
	}
	hook_unlock(&pools.lock);
	pools_free_regions(gone);
}

static bool arena_give_back_all(CUdevice dev, bool to_threshold)
{
	struct pools_region *gone = NULL;
	struct pools_arena *arena;
	bool has_any;

	hook_lock(&pools.lock);
	LL_FOREACH (pools.arenas, arena) {
		const struct pools_pool *pool = arena->pool;

		if (pool->dev == dev)
			arena_take_empty(arena,
					 to_threshold && !pool->is_destroyed ? pool->threshold : 0,
					 &gone);
	}
	arena_reap(&gone);
	hook_unlock(&pools.lock);
	has_any = gone != NULL;
	pools_free_regions(gone);
	return has_any;
}

void pools_settle(CUdevice dev)
{
	(void)arena_give_back_all(dev, true);
}

bool pools_release(CUdevice dev)
{
	pools_collect(false);
	return arena_give_back_all(dev, false);
}

void pools_make_room(CUdevice dev, uint64_t bytes)
{
	if (pools_is_short(dev, bytes))
		(void)pools_release(dev);
}

struct pools_region *pools_arena_context_gone(CUcontext ctx)
{
	struct pools_region *gone = NULL, *region;
	struct pools_arena *arena;

	LL_FOREACH (pools.arenas, arena) {
		if (arena->ctx != ctx || arena->is_dead)
			continue;
		arena->is_dead = true;
		while ((region = arena->regions)) {
			arena->regions = region->next;
			arena->pool->reserved -= region->range->size;
			LL_PREPEND(gone, region);
		}
		extent_deinit(&arena->extent);
	}
	arena_reap(&gone);
	return gone;
}

bool pools_is_short(CUdevice dev, uint64_t bytes)
{
	uint64_t budget = budget_get(dev), used;
	struct nvshare_mem mem;

	if (budget == BUDGET_UNLIMITED)
		return false;
	budget_read(dev, &mem);
	used = mem.resident + bytes;
	for (size_t i = 0; i < NVSHARE_PINNED_COUNT; i++)
		used += mem.pinned[i];
	return used > budget;
}
