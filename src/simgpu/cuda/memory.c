/* SPDX-License-Identifier: Apache-2.0 */

/* Plain device memory, host memory, and cuMemGetInfo. */

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "simgpu/cuda/api.h"
#include "simgpu/cuda/capture.h"
#include "simgpu/cuda/context.h"
#include "simgpu/cuda/hold.h"
#include "simgpu/cuda/pool.h"
#include "simgpu/cuda/space.h"

enum { PITCH_ALIGNMENT = 512, HOST_PAGE = 4096 };

API(cuMemGetInfo_v2, (size_t * free_, size_t *total))
{
	unsigned int device;
	uint64_t used, capacity;

	API_ENTER(API_CONTEXT);
	if (!free_ || !total)
		return CUDA_ERROR_INVALID_VALUE;
	device = device_node(context_current()->device);
	used = node_used(device);
	capacity = node_view.shared->device[device].capacity;
	*free_ = used < capacity ? capacity - used : 0;
	*total = capacity;
	return CUDA_SUCCESS;
}

API(cuMemAlloc_v2, (CUdeviceptr * dptr, size_t bytesize))
{
	struct CUctx_st *ctx = context_current();

	API_ENTER(API_CONTEXT | API_UNSAFE);
	if (!dptr || !bytesize)
		return CUDA_ERROR_INVALID_VALUE;
	return pool_retry_alloc(ctx, bytesize, dptr);
}

API(cuMemAllocPitch_v2, (CUdeviceptr * dptr, size_t *pPitch, size_t WidthInBytes, size_t Height,
			 unsigned int ElementSizeBytes))
{
	struct CUctx_st *ctx = context_current();
	size_t pitch;
	CUresult r;

	API_ENTER(API_CONTEXT | API_UNSAFE);
	if (!dptr || !pPitch || !WidthInBytes || !Height ||
	    (ElementSizeBytes != 4 && ElementSizeBytes != 8 && ElementSizeBytes != 16))
		return CUDA_ERROR_INVALID_VALUE;
	pitch = (WidthInBytes + PITCH_ALIGNMENT - 1) / PITCH_ALIGNMENT * PITCH_ALIGNMENT;
	if (pitch < WidthInBytes || Height > SIZE_MAX / pitch)
		return CUDA_ERROR_OUT_OF_MEMORY;
	r = pool_retry_alloc(ctx, pitch * Height, dptr);
	if (!r)
		*pPitch = pitch;
	return r;
}

/* Queued work may use the memory, so cuMemFree waits for it. */
API(cuMemFree_v2, (CUdeviceptr dptr))
{
	struct range *range;
	struct CUctx_st *ctx;
	CUresult r = CUDA_SUCCESS;

	API_ENTER(API_CONTEXT | API_UNSAFE);
	if (!dptr)
		return CUDA_SUCCESS;
	space_read_lock();
	range = space_find(dptr);
	ctx = range && range->ctx ? range->ctx : context_current();
	if (!range || range->addr != dptr || range->kind == RANGE_MAPPED ||
	    range->kind == RANGE_HOST || range->kind == RANGE_REGISTERED ||
	    range->kind == RANGE_GLOBAL || range->kind == RANGE_ARRAY ||
	    range->kind == RANGE_OPENED)
		r = CUDA_ERROR_INVALID_VALUE;
	space_unlock();
	if (r)
		return r;
	state_lock();
	r = hold_drain(ctx);
	state_unlock();
	if (r)
		return r;
	space_write_lock();
	range = space_find(dptr);
	if (!range || range->addr != dptr) {
		r = CUDA_ERROR_INVALID_VALUE; /* another thread has freed it */
	} else {
		space_free(range);
	}
	space_unlock();
	return r;
}

static CUresult host_range(void *p, size_t size, enum range_kind kind, unsigned int flags)
{
	struct range *range = calloc(1, sizeof(*range)), *next;
	CUresult r = CUDA_SUCCESS;

	if (!range)
		return CUDA_ERROR_OUT_OF_MEMORY;
	range->addr = (uintptr_t)p;
	range->size = size;
	range->kind = kind;
	range->flags = flags;
	range->ctx = context_current();
	range->device = -1;
	range->id = state_next_id();
	space_write_lock();
	next = space_next(range->addr);
	if (space_find(range->addr) || (next && next->addr < range->addr + size))
		r = CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
	else if (space_insert(range) < 0)
		r = CUDA_ERROR_OUT_OF_MEMORY;
	space_unlock();
	if (r)
		free(range);
	return r;
}

static CUresult host_alloc(void **pp, size_t size, unsigned int flags)
{
	size_t whole = (size + HOST_PAGE - 1) / HOST_PAGE * HOST_PAGE;
	void *p;
	CUresult r;

	if (!pp || !size || flags & ~7u)
		return CUDA_ERROR_INVALID_VALUE;
	if (whole < size)
		return CUDA_ERROR_OUT_OF_MEMORY;
	p = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
		 -1, 0);
	if (p == MAP_FAILED)
		return CUDA_ERROR_OUT_OF_MEMORY;
	r = host_range(p, size, RANGE_HOST, flags);
	if (r)
		munmap(p, whole);
	else
		*pp = p;
	return r;
}

API(cuMemHostAlloc, (void **pp, size_t bytesize, unsigned int Flags))
{
	API_ENTER(API_CONTEXT | API_UNSAFE);
	return host_alloc(pp, bytesize, Flags);
}

API(cuMemAllocHost_v2, (void **pp, size_t bytesize))
{
	API_ENTER(API_CONTEXT | API_UNSAFE);
	return host_alloc(pp, bytesize, 0);
}

API(cuMemHostRegister_v2, (void *p, size_t bytesize, unsigned int Flags))
{
	API_ENTER(API_CONTEXT | API_UNSAFE);
	if (!p || !bytesize || Flags & ~15u)
		return CUDA_ERROR_INVALID_VALUE;
	hold_pass_ends();
	return host_range(p, bytesize, RANGE_REGISTERED, Flags);
}

/* Freeing and unregistering wait for the context's work, which may use the memory. */
static CUresult host_gone(void *p, enum range_kind kind, CUresult unknown)
{
	struct range *range;
	CUresult r;

	state_lock();
	r = hold_drain(context_current());
	state_unlock();
	if (r)
		return r;
	space_write_lock();
	range = space_find((uintptr_t)p);
	if (range && range->addr == (uintptr_t)p && range->kind == kind)
		space_free(range);
	else
		r = unknown;
	space_unlock();
	return r;
}

API(cuMemFreeHost, (void *p))
{
	API_ENTER(API_CONTEXT | API_UNSAFE);
	return host_gone(p, RANGE_HOST, CUDA_ERROR_INVALID_VALUE);
}

API(cuMemHostUnregister, (void *p))
{
	API_ENTER(API_CONTEXT | API_UNSAFE);
	hold_pass_ends();
	return host_gone(p, RANGE_REGISTERED, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

static CUresult host_pointer(CUdeviceptr *pdptr, unsigned int *flags, void *p)
{
	struct range *range;
	CUresult r = CUDA_ERROR_INVALID_VALUE;

	space_read_lock();
	range = space_find((uintptr_t)p);
	if (range && range->device < 0) {
		if (pdptr)
			*pdptr = (uintptr_t)p;
		if (flags)
			*flags = range->flags;
		r = CUDA_SUCCESS;
	}
	space_unlock();
	return r;
}

API(cuMemHostGetDevicePointer_v2, (CUdeviceptr * pdptr, void *p, unsigned int Flags))
{
	API_ENTER(API_CONTEXT);
	return pdptr && !Flags ? host_pointer(pdptr, NULL, p) : CUDA_ERROR_INVALID_VALUE;
}

API(cuMemHostGetFlags, (unsigned int *pFlags, void *p))
{
	API_ENTER(API_CONTEXT);
	return pFlags ? host_pointer(NULL, pFlags, p) : CUDA_ERROR_INVALID_VALUE;
}
