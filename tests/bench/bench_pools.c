/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What cuMemAllocAsync and cuMemFreeAsync of a block that the stream has just freed cost
 * in the library alone: the driver's functions do nothing here.
 */
#include "hook/table/cuda_real.h"
#include "hook/table/hooks.h"
#include "timing.h"
#include "util/clock.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BENCH_CALLS   500000u
#define BENCH_BATCHES 11
#define BENCH_GRANULE (2u << 20)
#define BENCH_HANDLE  0x1000u

static CUresult current(CUcontext *ctx)
{
	*ctx = (CUcontext)(uintptr_t)BENCH_HANDLE;
	return CUDA_SUCCESS;
}

static CUresult context_of(CUstream stream, CUcontext *ctx)
{
	(void)stream;
	return current(ctx);
}

static CUresult device(CUdevice *dev)
{
	*dev = 0;
	return CUDA_SUCCESS;
}

static CUresult count(int *n)
{
	*n = 1;
	return CUDA_SUCCESS;
}

static CUresult total(size_t *bytes, CUdevice dev)
{
	(void)dev;
	*bytes = (size_t)1 << 34;
	return CUDA_SUCCESS;
}

static CUresult attribute(int *value, CUdevice_attribute attr, CUdevice dev)
{
	(void)dev;
	*value = attr == CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED;
	return CUDA_SUCCESS;
}

static CUresult granularity(size_t *bytes, const CUmemAllocationProp *prop,
			    CUmemAllocationGranularity_flags option)
{
	(void)prop;
	(void)option;
	*bytes = BENCH_GRANULE;
	return CUDA_SUCCESS;
}

static CUresult reserve(CUdeviceptr *ptr, size_t size, size_t alignment, CUdeviceptr addr,
			unsigned long long flags)
{
	static CUdeviceptr last = (CUdeviceptr)1 << 40;

	(void)alignment;
	(void)addr;
	(void)flags;
	*ptr = last;
	last += size;
	return CUDA_SUCCESS;
}

static CUresult create(CUmemGenericAllocationHandle *handle, size_t size,
		       const CUmemAllocationProp *prop, unsigned long long flags)
{
	(void)size;
	(void)prop;
	(void)flags;
	*handle = 1;
	return CUDA_SUCCESS;
}

static CUresult map(CUdeviceptr ptr, size_t size, size_t offset,
		    CUmemGenericAllocationHandle handle, unsigned long long flags)
{
	(void)ptr;
	(void)size;
	(void)offset;
	(void)handle;
	(void)flags;
	return CUDA_SUCCESS;
}

static CUresult set_access(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t n)
{
	(void)ptr;
	(void)size;
	(void)desc;
	(void)n;
	return CUDA_SUCCESS;
}

static CUresult default_pool(CUmemoryPool *pool, CUdevice dev)
{
	(void)dev;
	*pool = (CUmemoryPool)(uintptr_t)BENCH_HANDLE;
	return CUDA_SUCCESS;
}

static CUresult pool_attribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
	uint64_t kept = UINT64_MAX;

	(void)pool;
	if (attr == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
		memcpy(value, &kept, sizeof(kept));
	return CUDA_SUCCESS;
}

static CUresult event_create(CUevent *event, unsigned int flags)
{
	(void)flags;
	*event = (CUevent)(uintptr_t)BENCH_HANDLE;
	return CUDA_SUCCESS;
}

static CUresult event_record(CUevent event, CUstream stream)
{
	(void)event;
	(void)stream;
	return CUDA_SUCCESS;
}

static CUresult event_query(CUevent event)
{
	(void)event;
	return CUDA_ERROR_NOT_READY;
}

static CUresult event_sync(CUevent event)
{
	(void)event;
	return CUDA_SUCCESS;
}

static CUresult stream_wait(CUstream stream, CUevent event, unsigned int flags)
{
	(void)stream;
	(void)event;
	(void)flags;
	return CUDA_SUCCESS;
}

static CUresult alloc_async(CUdeviceptr *ptr, size_t size, CUstream stream)
{
	(void)ptr;
	(void)size;
	(void)stream;
	return CUDA_ERROR_INVALID_VALUE; /* what is ours never comes here */
}

static CUresult free_async(CUdeviceptr ptr, CUstream stream)
{
	(void)ptr;
	(void)stream;
	return CUDA_ERROR_INVALID_VALUE;
}

static void fill(void)
{
	cuda_real.cuCtxGetCurrent = current;
	cuda_real.cuCtxGetDevice = device;
	cuda_real.cuStreamGetCtx = context_of;
	cuda_real.cuDeviceGetCount = count;
	cuda_real.cuDeviceTotalMem_v2 = total;
	cuda_real.cuDeviceGetAttribute = attribute;
	cuda_real.cuMemGetAllocationGranularity = granularity;
	cuda_real.cuMemAddressReserve = reserve;
	cuda_real.cuMemCreate = create;
	cuda_real.cuMemMap = map;
	cuda_real.cuMemSetAccess = set_access;
	cuda_real.cuDeviceGetMemPool = default_pool;
	cuda_real.cuDeviceGetDefaultMemPool = default_pool;
	cuda_real.cuMemPoolGetAttribute = pool_attribute;
	cuda_real.cuEventCreate = event_create;
	cuda_real.cuEventRecord = event_record;
	cuda_real.cuEventQuery = event_query;
	cuda_real.cuEventSynchronize = event_sync;
	cuda_real.cuStreamWaitEvent = stream_wait;
	cuda_real.cuMemAllocAsync = alloc_async;
	cuda_real.cuMemFreeAsync = free_async;
}

static double pair_ns(void)
{
	CUstream stream = (CUstream)(uintptr_t)BENCH_HANDLE;
	uint64_t start = clock_now_ns();
	CUdeviceptr p;
	uint32_t i;

	for (i = 0; i < BENCH_CALLS; i++) {
		if (cuMemAllocAsync(&p, 4096, stream) != CUDA_SUCCESS ||
		    cuMemFreeAsync(p, stream) != CUDA_SUCCESS)
			exit(1);
	}
	return (double)(clock_now_ns() - start) / BENCH_CALLS;
}

int main(void)
{
	double batches[BENCH_BATCHES];
	int i;

	fill();
	pair_ns();
	for (i = 0; i < BENCH_BATCHES; i++)
		batches[i] = pair_ns();
	printf("allocation and free in stream order, of a cached block: %.0f ns in the library\n",
	       timing_median(batches, BENCH_BATCHES));
	return 0;
}
