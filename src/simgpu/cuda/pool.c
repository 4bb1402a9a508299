/* SPDX-License-Identifier: Apache-2.0 */

#include "simgpu/cuda/pool.h"

#include <stdlib.h>
#include <string.h>

#include "simgpu/cuda/api.h"
#include "simgpu/cuda/capture.h"
#include "simgpu/cuda/context.h"
#include "simgpu/cuda/graph.h"
#include "simgpu/cuda/hold.h"
#include "simgpu/cuda/run.h"

enum { WAITS_MAX = 64 };

#define POOL_MAGIC 0x6e76732d706f6f6cull

struct CUmemPoolHandle_st {
	uint64_t magic;
	struct CUmemPoolHandle_st *next;
	int device;
	bool is_default;
	bool is_destroyed; /* the pool goes with its last allocation */
	size_t n_ranges;   /* live ones and kept ones */
	struct range **kept;
	size_t n_kept, n_allocated;
	uint64_t threshold;
	uint64_t reserved, reserved_high, used, used_high;
	int reuse[4];
};

static struct CUmemPoolHandle_st *pools;
static struct CUmemPoolHandle_st *current[NODE_DEVICES_MAX]; /* NULL: the default pool */

static struct CUmemPoolHandle_st *pool_new(int device, bool is_default)
{
	struct CUmemPoolHandle_st *pool = calloc(1, sizeof(*pool));
	int i;

	if (!pool)
		return NULL;
	pool->magic = POOL_MAGIC;
	pool->device = device;
	pool->is_default = is_default;
	for (i = 0; i < 4; i++)
		pool->reuse[i] = 1;
	pool->next = pools;
	pools = pool;
	return pool;
}

static struct CUmemPoolHandle_st *default_pool(int device)
{
	struct CUmemPoolHandle_st *pool;

	for (pool = pools; pool; pool = pool->next)
		if (pool->is_default && pool->device == device)
			return pool;
	return pool_new(device, true);
}

static bool is_valid(CUmemoryPool handle)
{
	struct CUmemPoolHandle_st *pool;

	for (pool = pools; pool && pool != handle; pool = pool->next)
		;
	return pool && !pool->is_destroyed;
}

static void pool_reap(struct CUmemPoolHandle_st *pool)
{
	struct CUmemPoolHandle_st **link;

	if (!pool->is_destroyed || pool->n_ranges)
		return;
	for (link = &pools; *link != pool; link = &(*link)->next)
		;
	*link = pool->next;
	free(pool->kept);
	free(pool);
}

void pool_forget(struct range *range)
{
	struct CUmemPoolHandle_st *pool = range->pool;

	if (!pool)
		return;
	pool->used -= range->size;
	pool->reserved -= range->size;
	pool->n_ranges--;
	range->pool = NULL;
	pool_reap(pool);
}

static void release_kept(struct CUmemPoolHandle_st *pool, uint64_t keep)
{
	struct range *range;

	while (pool->n_kept && pool->reserved > keep) {
		range = pool->kept[--pool->n_kept];
		pool->reserved -= range->size;
		pool->n_ranges--;
		/* A kept range is not in space's table, so that touching it is an error. */
		range->pool = NULL;
		space_insert(range);
		space_free(range);
	}
}

void pool_context_gone(struct CUctx_st *ctx)
{
	struct CUmemPoolHandle_st *pool;
	struct range *range;
	size_t i;

	for (pool = pools; pool; pool = pool->next)
		for (i = pool->n_kept; i-- > 0;) {
			range = pool->kept[i];
			if (range->ctx != ctx)
				continue;
			pool->kept[i] = pool->kept[--pool->n_kept];
			pool->reserved -= range->size;
			pool->n_ranges--;
			range->pool = NULL;
			space_insert(range);
			space_free(range);
		}
}

static bool keep_range(struct CUmemPoolHandle_st *pool, struct range *range)
{
	struct range **grown;

	if (pool->is_destroyed || pool->reserved > pool->threshold)
		return false;
	if (pool->n_kept == pool->n_allocated) {
		grown = realloc(pool->kept, (2 * pool->n_allocated + 16) * sizeof(struct range *));
		if (!grown)
			return false;
		pool->kept = grown;
		pool->n_allocated = 2 * pool->n_allocated + 16;
	}
	space_remove(range);
	range->is_freeing = false;
	pool->kept[pool->n_kept++] = range;
	return true;
}

void pool_free_now(uint64_t addr)
{
	struct CUmemPoolHandle_st *pool;
	struct range *range;

	space_write_lock();
	range = space_find(addr);
	if (range && range->pool) {
		pool = range->pool;
		pool->used -= range->size;
		if (!keep_range(pool, range)) {
			pool->reserved -= range->size;
			pool->n_ranges--;
			range->pool = NULL;
			space_free(range);
			pool_reap(pool);
		}
	} else if (range && range->addr == addr) {
		space_free(range);
	}
	space_unlock();
}

/* The device is full: all its pools free the memory that they keep. */
static void release_all(int device)
{
	struct CUmemPoolHandle_st *pool;

	space_write_lock();
	for (pool = pools; pool; pool = pool->next)
		if (pool->device == device)
			release_kept(pool, 0);
	space_unlock();
	graph_memory_trim(device);
}

static bool has_kept(int device)
{
	const struct CUmemPoolHandle_st *pool;
	bool r = false;

	space_read_lock();
	for (pool = pools; pool; pool = pool->next)
		r = r || (pool->device == device && pool->n_kept);
	space_unlock();
	return r;
}

static CUresult wait_for(struct CUctx_st *ctx)
{
	CUresult r;

	state_lock();
	r = hold_drain(ctx);
	state_unlock();
	return r;
}

/*
 * Pools free kept memory only when the context is idle. Queued frees free memory, too, when
 * their turn comes. Another thread may take it first, so the call tries several times.
 */
static CUresult alloc_range(struct CUctx_st *ctx, int device, uint64_t size, enum range_kind kind,
			    uint64_t *ret, bool may_wait)
{
	CUresult r = space_alloc(ctx, device, size, kind, ret);

	if (r != CUDA_ERROR_OUT_OF_MEMORY)
		return r;
	r = has_kept(device) ? wait_for(ctx) : CUDA_SUCCESS;
	if (r)
		return r;
	release_all(device);
	r = space_alloc(ctx, device, size, kind, ret);
	for (int i = 0; i < WAITS_MAX && may_wait && r == CUDA_ERROR_OUT_OF_MEMORY; i++) {
		r = wait_for(ctx);
		if (r)
			return r;
		release_all(device);
		r = space_alloc(ctx, device, size, kind, ret);
	}
	return r;
}

CUresult pool_retry_alloc(struct CUctx_st *ctx, uint64_t size, CUdeviceptr *ret)
{
	uint64_t addr;
	CUresult r = alloc_range(ctx, ctx->device, size, RANGE_PLAIN, &addr, false);

	if (!r)
		*ret = addr;
	return r;
}

/* Takes a kept piece of this size. It then belongs to ctx. */
static bool reuse_kept(struct CUmemPoolHandle_st *pool, struct CUctx_st *ctx, uint64_t size,
		       uint64_t *ret)
{
	struct range *range;
	size_t i;

	for (i = 0; i < pool->n_kept; i++) {
		range = pool->kept[i];
		if (range->size != size || range->ctx != ctx)
			continue;
		pool->kept[i] = pool->kept[--pool->n_kept];
		range->id = state_next_id();
		space_insert(range);
		*ret = range->addr;
		return true;
	}
	return false;
}

static void count_used(struct CUmemPoolHandle_st *pool, uint64_t size, bool is_new)
{
	pool->used += size;
	if (pool->used > pool->used_high)
		pool->used_high = pool->used;
	if (!is_new)
		return;
	pool->n_ranges++;
	pool->reserved += size;
	if (pool->reserved > pool->reserved_high)
		pool->reserved_high = pool->reserved;
}

static CUresult pool_alloc(struct CUmemPoolHandle_st *pool, struct CUctx_st *ctx, uint64_t size,
			   uint64_t *ret)
{
	uint64_t addr;
	bool is_reused;
	CUresult r;

	space_write_lock();
	is_reused = reuse_kept(pool, ctx, size, ret);
	if (is_reused)
		count_used(pool, size, false);
	space_unlock();
	if (is_reused)
		return CUDA_SUCCESS;
	r = alloc_range(ctx, pool->device, size, RANGE_ASYNC, &addr, true);
	if (r)
		return r;
	space_write_lock();
	space_find(addr)->pool = pool;
	count_used(pool, size, true);
	space_unlock();
	*ret = addr;
	return CUDA_SUCCESS;
}

/* During a capture, asynchronous memory is unsafe on streams outside the capture. */
static CUresult stream_lock_memory(CUstream handle, struct CUstream_st **ret)
{
	struct CUstream_st *stream;
	CUresult r = stream_lock(handle, &stream);
	bool is_captured;

	if (r)
		return r;
	is_captured = stream->capture != NULL;
	state_unlock();
	r = is_captured ? CUDA_SUCCESS : capture_check_unsafe();
	return r ? r : stream_lock(handle, ret);
}

/* In a capture the address is there at once, the memory when the graph reaches the node. */
static CUresult capture_alloc(struct CUstream_st *stream, uint64_t size, int device,
			      CUdeviceptr *ret)
{
	struct work work = {.kind = WORK_GRAPH_ALLOC};
	uint64_t addr;
	CUresult r;

	if (stream->capture->is_invalid)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	r = graph_reserve(stream->capture->graph, size, &addr);
	if (r)
		return r;
	work.memory = (struct work_memory){addr, size, device};
	r = run_submit(stream, &work, NULL);
	if (!r)
		*ret = addr;
	return r;
}

static CUresult alloc_async(const char *name, CUdeviceptr *dptr, size_t size,
			    struct CUmemPoolHandle_st *pool, bool is_pool_given, CUstream handle)
{
	struct CUstream_st *stream;
	struct CUctx_st *ctx;
	uint64_t addr;
	CUresult r = api_enter(name, API_CONTEXT);

	if (r)
		return r;
	if (!dptr)
		return CUDA_ERROR_INVALID_VALUE;
	if (!size) {
		*dptr = 0;
		return CUDA_SUCCESS;
	}
	r = stream_lock_memory(handle, &stream);
	if (r)
		return r;
	ctx = stream->ctx;
	space_write_lock();
	if (!is_pool_given)
		pool = current[ctx->device] ? current[ctx->device] : default_pool(ctx->device);
	if (!pool || !is_valid(pool))
		r = CUDA_ERROR_INVALID_VALUE;
	space_unlock();
	if (!r && stream->capture) {
		r = capture_alloc(stream, size, pool->device, dptr);
		state_unlock();
		return r;
	}
	state_unlock();
	if (!r)
		r = pool_alloc(pool, ctx, size, &addr);
	if (!r)
		*dptr = addr;
	return r;
}

API_TWIN(cuMemAllocAsync, cuMemAllocAsync_ptsz,
	 (CUdeviceptr * dptr, size_t bytesize, CUstream hStream),
	 alloc_async(__func__, dptr, bytesize, NULL, false, hStream ? hStream : zero))

API_TWIN(cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync_ptsz,
	 (CUdeviceptr * dptr, size_t bytesize, CUmemoryPool pool, CUstream hStream),
	 alloc_async(__func__, dptr, bytesize, pool, true, hStream ? hStream : zero))

static CUresult free_async(const char *name, CUdeviceptr dptr, CUstream handle)
{
	struct work work = {.kind = WORK_FREE, .memory = {dptr, 0, 0}};
	struct CUstream_st *stream;
	struct range *range;
	CUresult r = api_enter(name, API_CONTEXT);

	if (r)
		return r;
	r = stream_lock_memory(handle, &stream);
	if (r)
		return r;
	if (!dptr) {
		state_unlock();
		return CUDA_SUCCESS;
	}
	space_write_lock();
	range = space_find(dptr);
	if (range && range->addr == dptr && !range->is_freeing &&
	    (range->kind == RANGE_ASYNC || range->kind == RANGE_PLAIN))
		range->is_freeing = !stream->capture;
	else if (stream->capture || (range && range->kind == RANGE_GRAPH && range->addr == dptr))
		work.kind = WORK_GRAPH_FREE;
	else
		r = CUDA_ERROR_INVALID_VALUE;
	space_unlock();
	if (!r)
		r = run_submit(stream, &work, NULL);
	state_unlock();
	return r;
}

API_TWIN(cuMemFreeAsync, cuMemFreeAsync_ptsz, (CUdeviceptr dptr, CUstream hStream),
	 free_async(__func__, dptr, hStream ? hStream : zero))

API(cuMemPoolCreate, (CUmemoryPool * pool, const CUmemPoolProps *poolProps))
{
	API_ENTER(API_INIT | API_UNSAFE);
	if (!pool || !poolProps || poolProps->allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
	    poolProps->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
		return CUDA_ERROR_INVALID_VALUE;
	if (device_check(poolProps->location.id))
		return CUDA_ERROR_INVALID_DEVICE;
	space_write_lock();
	*pool = pool_new(poolProps->location.id, false);
	space_unlock();
	return *pool ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

API(cuMemPoolDestroy, (CUmemoryPool pool))
{
	CUresult r = CUDA_ERROR_INVALID_VALUE;
	int i;

	API_ENTER(API_INIT | API_UNSAFE);
	space_write_lock();
	if (is_valid(pool) && !pool->is_default) {
		release_kept(pool, 0);
		pool->is_destroyed = true;
		for (i = 0; i < NODE_DEVICES_MAX; i++)
			if (current[i] == pool)
				current[i] = NULL;
		pool_reap(pool);
		r = CUDA_SUCCESS;
	}
	space_unlock();
	return r;
}

API(cuMemPoolTrimTo, (CUmemoryPool pool, size_t minBytesToKeep))
{
	CUresult r = CUDA_ERROR_INVALID_VALUE;

	API_ENTER(API_INIT | API_UNSAFE);
	space_write_lock();
	if (is_valid(pool)) {
		release_kept(pool, minBytesToKeep);
		r = CUDA_SUCCESS;
	}
	space_unlock();
	return r;
}

static CUresult get_pool(CUmemoryPool *pool, CUdevice dev, bool is_current)
{
	if (!pool)
		return CUDA_ERROR_INVALID_VALUE;
	if (device_check(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	space_write_lock();
	*pool = is_current && current[dev] ? current[dev] : default_pool(dev);
	space_unlock();
	return *pool ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

API(cuDeviceGetDefaultMemPool, (CUmemoryPool * pool_out, CUdevice dev))
{
	API_ENTER(API_INIT);
	return get_pool(pool_out, dev, false);
}

API(cuDeviceGetMemPool, (CUmemoryPool * pool, CUdevice dev))
{
	API_ENTER(API_INIT);
	return get_pool(pool, dev, true);
}

API(cuDeviceSetMemPool, (CUdevice dev, CUmemoryPool pool))
{
	CUresult r = CUDA_ERROR_INVALID_VALUE;

	API_ENTER(API_INIT);
	if (device_check(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	space_write_lock();
	if (is_valid(pool)) {
		current[dev] = pool;
		r = CUDA_SUCCESS;
	}
	space_unlock();
	return r;
}

/* The variable of a 64-bit attribute; NULL: another attribute. */
static uint64_t *counter_attribute(struct CUmemPoolHandle_st *pool, CUmemPool_attribute attr)
{
	switch (attr) {
	case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
		return &pool->threshold;
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
	default:
		return NULL;
	}
}

static bool is_reuse_attribute(CUmemPool_attribute attr)
{
	return attr >= CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES &&
	       attr <= CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES;
}

API(cuMemPoolGetAttribute, (CUmemoryPool pool, CUmemPool_attribute attr, void *value))
{
	CUresult r = CUDA_SUCCESS;

	API_ENTER(API_INIT);
	space_read_lock();
	if (!value || !is_valid(pool))
		r = CUDA_ERROR_INVALID_VALUE;
	else if (counter_attribute(pool, attr))
		*(cuuint64_t *)value = *counter_attribute(pool, attr);
	else if (is_reuse_attribute(attr))
		*(int *)value = pool->reuse[attr];
	else
		r = CUDA_ERROR_INVALID_VALUE;
	space_unlock();
	return r;
}

API(cuMemPoolSetAttribute, (CUmemoryPool pool, CUmemPool_attribute attr, void *value))
{
	CUresult r = CUDA_SUCCESS;

	API_ENTER(API_INIT);
	space_write_lock();
	if (!value || !is_valid(pool))
		r = CUDA_ERROR_INVALID_VALUE;
	else if (attr == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
		pool->threshold = *(cuuint64_t *)value;
	else if (attr == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH && !*(cuuint64_t *)value)
		pool->reserved_high = pool->reserved;
	else if (attr == CU_MEMPOOL_ATTR_USED_MEM_HIGH && !*(cuuint64_t *)value)
		pool->used_high = pool->used;
	else if (is_reuse_attribute(attr))
		pool->reuse[attr] = *(int *)value;
	else
		r = CUDA_ERROR_INVALID_VALUE;
	space_unlock();
	return r;
}

/* All devices may access a pool's memory here, so access lists change nothing. */
API(cuMemPoolSetAccess, (CUmemoryPool pool, const CUmemAccessDesc *map, size_t count))
{
	API_ENTER(API_INIT);
	return pool && (map || !count) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
