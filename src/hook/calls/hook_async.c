/* SPDX-License-Identifier: Apache-2.0 */

/* Stream-ordered memory and its pools: ours where possible (pools.h), else the driver's, pinned. */

#include "hook/table/hooks.h"

#include "hook/calls/graph_memory.h"
#include "hook/freeze/freeze.h"
#include "hook/gate/device.h"
#include "hook/gate/gate.h"
#include "hook/memory/budget.h"
#include "hook/memory/charge.h"
#include "hook/pager/managed.h"
#include "hook/pager/pager.h"
#include "hook/pools/pools.h"
#include "hook/table/cuda_real.h"
#include "hook/tickets/tickets.h"

/* The pool that an allocation comes from; dev < 0: a pool of host memory. */
struct pool {
	CUmemoryPool handle;
	CUdevice dev;
};

static uint64_t pool_key(CUmemoryPool pool)
{
	return (uintptr_t)pool;
}

/*
 * A pool of the driver keeps freed memory up to its release threshold, and grows in large steps. So
 * it has more of the card than the program's requests sum up to.
 */
static void pool_count_reserve(const struct pool *pool)
{
	cuuint64_t reserved = 0, owned;
	int64_t delta;

	if (pool->dev < 0 || !pool->handle || !cuda_real.cuMemPoolGetAttribute ||
	    cuda_real.cuMemPoolGetAttribute(pool->handle, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT,
					    &reserved) != CUDA_SUCCESS)
		return;
	owned = ledger_owner_bytes(pool_key(pool->handle));
	delta = ledger_resize(LEDGER_POOL, pool_key(pool->handle),
			      reserved > owned ? reserved - owned : 0);
	if (delta > 0)
		budget_force(pool->dev, (uint64_t)delta, NVSHARE_PINNED_ASYNC);
	else if (delta < 0)
		budget_give(pool->dev, -(uint64_t)delta, NVSHARE_PINNED_ASYNC);
}

/* ctx: the context whose reset empties a device's default pool; NULL: a pool of the program. */
static void pool_add(const struct pool *pool, CUcontext ctx)
{
	struct ledger_entry entry = {
		.class = LEDGER_POOL,
		.key = pool_key(pool->handle),
		.ctx = ctx,
		.dev = pool->dev,
		.kind = NVSHARE_PINNED_ASYNC,
	};

	(void)ledger_add(&entry); /* known already is fine */
}

/* The pool that cuMemAllocAsync takes from; NULL: the driver does not say. */
static CUmemoryPool pool_current(CUdevice dev)
{
	CUmemoryPool handle = NULL;

	if (!cuda_real.cuDeviceGetMemPool ||
	    cuda_real.cuDeviceGetMemPool(&handle, dev) != CUDA_SUCCESS)
		return NULL;
	return handle;
}

/* A pool that no call of this process made is the current device's default pool. */
static void pool_find(CUmemoryPool handle, CUcontext ctx, CUdevice dev, struct pool *ret_pool)
{
	struct ledger_entry entry;

	ret_pool->handle = handle;
	ret_pool->dev = dev;
	if (!ret_pool->handle)
		return;
	if (ledger_find(LEDGER_POOL, pool_key(ret_pool->handle), &entry))
		ret_pool->dev = entry.dev;
	else
		pool_add(ret_pool, ctx);
}

/* One form of the driver's function, with its arguments. */
struct async_call {
	CUresult (*alloc)(CUdeviceptr *dptr, size_t bytesize, CUstream hStream);
	CUresult (*from_pool)(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool,
			      CUstream hStream);
	CUmemoryPool pool;
	CUstream stream;
};

static CUresult alloc_forward(const struct async_call *call, CUdeviceptr *dptr, size_t bytesize)
{
	if (call->from_pool)
		return call->from_pool(dptr, bytesize, call->pool, call->stream);
	return call->alloc(dptr, bytesize, call->stream);
}

static CUresult alloc_async(const struct async_call *call, CUstream stream, CUdeviceptr *dptr,
			    size_t bytesize)
{
	struct charge charge;
	CUmemoryPool handle;
	struct pool pool;
	bool captures, is_booked;
	CUcontext ctx;
	CUdevice dev;
	CUresult res;

	if (!call->alloc && !call->from_pool)
		return CUDA_ERROR_NOT_FOUND;
	if (!dptr || !bytesize || charge_here(&ctx, &dev) != CUDA_SUCCESS)
		return alloc_forward(call, dptr, bytesize);
	handle = call->from_pool ? call->pool : pool_current(dev);
	/* In a capture it is a node of a graph, and its memory is counted with the graph. */
	captures = gate_stream_captures(stream);
	is_booked = device_of(ctx) != DEVICE_ANY;
	if (handle && !captures && pools_alloc(handle, stream, bytesize, dptr, &res))
		return res == CUDA_SUCCESS && is_booked ? pager_context_check(ctx) : res;
	pool_find(handle, ctx, dev, &pool);
	if (pool.dev < 0 || captures) {
		if (captures)
			graph_memory_seen();
		gate_enter();
		res = alloc_forward(call, dptr, bytesize);
		gate_leave();
		return res;
	}
	res = charge_begin_on(&charge, pool.dev, bytesize, NVSHARE_PINNED_ASYNC);
	if (res != CUDA_SUCCESS)
		return res;
	charge.ctx = ctx;
	charge.owner = pool_key(pool.handle);
	do
		res = alloc_forward(call, dptr, bytesize);
	while (charge_again(&charge, res));
	charge_end(&charge, res, LEDGER_ADDRESS, res == CUDA_SUCCESS ? *dptr : 0);
	pool_count_reserve(&pool);
	return res;
}

static CUstream stream_legacy(CUstream stream)
{
	return stream ? stream : CU_STREAM_LEGACY;
}

static CUstream stream_own(CUstream stream)
{
	return stream ? stream : CU_STREAM_PER_THREAD;
}

CUresult cuMemAllocAsync(CUdeviceptr *dptr, size_t bytesize, CUstream hStream)
{
	struct async_call call = {.alloc = cuda_real.cuMemAllocAsync, .stream = hStream};

	return alloc_async(&call, stream_legacy(hStream), dptr, bytesize);
}

CUresult cuMemAllocAsync_ptsz(CUdeviceptr *dptr, size_t bytesize, CUstream hStream)
{
	struct async_call call = {.alloc = cuda_real.cuMemAllocAsync_ptsz, .stream = hStream};

	return alloc_async(&call, stream_own(hStream), dptr, bytesize);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool,
				 CUstream hStream)
{
	struct async_call call = {
		.from_pool = cuda_real.cuMemAllocFromPoolAsync, .pool = pool, .stream = hStream};

	return alloc_async(&call, stream_legacy(hStream), dptr, bytesize);
}

CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool,
				      CUstream hStream)
{
	struct async_call call = {.from_pool = cuda_real.cuMemAllocFromPoolAsync_ptsz,
				  .pool = pool,
				  .stream = hStream};

	return alloc_async(&call, stream_own(hStream), dptr, bytesize);
}

/*
 * A free submits work, so it passes the gate. In a capture it makes a node of a graph, which may
 * only free memory of such a node. So our memory is refused there, as the driver would do.
 */
static CUresult alloc_free_async(CUresult (*real)(CUdeviceptr dptr, CUstream hStream),
				 CUdeviceptr dptr, CUstream hStream, CUstream stream)
{
	struct ledger_entry entry;
	struct pool pool;
	bool captures, is_known;
	CUresult res;

	if (!real)
		return CUDA_ERROR_NOT_FOUND;
	captures = gate_stream_captures(stream);
	if (captures && pager_find(dptr, NULL, NULL, NULL, NULL, NULL))
		return CUDA_ERROR_INVALID_VALUE;
	if (!captures)
		tickets_freed(dptr);
	if (!captures && (pools_free(dptr, stream, &res) || managed_free(dptr, &res)))
		return res;
	gate_enter();
	is_known = !captures && charge_free_begin(LEDGER_ADDRESS, dptr, &entry);
	res = real(dptr, hStream);
	gate_leave();
	if (!is_known)
		return res;
	charge_free_end(&entry, res);
	if (entry.owner) {
		pool_find((CUmemoryPool)(uintptr_t)entry.owner, entry.ctx, entry.dev, &pool);
		pool_count_reserve(&pool);
	}
	return res;
}

CUresult cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream)
{
	return alloc_free_async(cuda_real.cuMemFreeAsync, dptr, hStream, stream_legacy(hStream));
}

CUresult cuMemFreeAsync_ptsz(CUdeviceptr dptr, CUstream hStream)
{
	return alloc_free_async(cuda_real.cuMemFreeAsync_ptsz, dptr, hStream, stream_own(hStream));
}

CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *poolProps)
{
	struct pool made;
	CUresult res;

	if (!cuda_real.cuMemPoolCreate)
		return CUDA_ERROR_NOT_FOUND;
	res = cuda_real.cuMemPoolCreate(pool, poolProps);
	if (res != CUDA_SUCCESS || pools_created(*pool, poolProps))
		return res;
	made.handle = *pool;
	made.dev = poolProps->location.type == CU_MEM_LOCATION_TYPE_DEVICE ? poolProps->location.id
									   : -1;
	pool_add(&made, NULL);
	return res;
}

CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
	struct ledger_entry entry;
	struct pools_pool *own;
	bool is_pinned;
	CUresult res;

	if (!cuda_real.cuMemPoolDestroy)
		return CUDA_ERROR_NOT_FOUND;
	own = pools_destroy_begin(pool);
	is_pinned = ledger_remove(LEDGER_POOL, pool_key(pool), &entry);
	res = FREEZE_AROUND(cuda_real.cuMemPoolDestroy(pool));
	if (own)
		pools_destroy_end(own, res == CUDA_SUCCESS);
	if (is_pinned)
		charge_free_end(&entry, res);
	return res;
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t minBytesToKeep)
{
	struct pool trimmed = {.handle = pool};
	struct ledger_entry entry;
	CUresult res;

	if (!cuda_real.cuMemPoolTrimTo)
		return CUDA_ERROR_NOT_FOUND;
	res = FREEZE_AROUND(cuda_real.cuMemPoolTrimTo(pool, minBytesToKeep));
	if (res != CUDA_SUCCESS || pools_trim(pool, minBytesToKeep))
		return res;
	if (ledger_find(LEDGER_POOL, pool_key(pool), &entry)) {
		trimmed.dev = entry.dev;
		pool_count_reserve(&trimmed);
	}
	return res;
}

/* The driver answers first, and refuses wrong arguments. Its pool is empty: ours has the sizes. */
CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
	CUresult res;

	if (!cuda_real.cuMemPoolGetAttribute)
		return CUDA_ERROR_NOT_FOUND;
	res = cuda_real.cuMemPoolGetAttribute(pool, attr, value);
	if (res == CUDA_SUCCESS)
		(void)pools_get_attribute(pool, attr, value);
	return res;
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
	CUresult res;

	if (!cuda_real.cuMemPoolSetAttribute)
		return CUDA_ERROR_NOT_FOUND;
	res = cuda_real.cuMemPoolSetAttribute(pool, attr, value);
	if (res == CUDA_SUCCESS)
		(void)pools_set_attribute(pool, attr, value);
	return res;
}

CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *map, size_t count)
{
	CUresult res, first = CUDA_SUCCESS;

	if (!cuda_real.cuMemPoolSetAccess)
		return CUDA_ERROR_NOT_FOUND;
	res = cuda_real.cuMemPoolSetAccess(pool, map, count);
	for (size_t i = 0; res == CUDA_SUCCESS && i < count; i++) {
		if (map[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE)
			continue;
		first = pools_set_access(pool, map[i].location.id,
					 map[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE);
		if (first != CUDA_SUCCESS)
			break;
	}
	return res == CUDA_SUCCESS ? first : res;
}
