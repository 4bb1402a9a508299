/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The program's questions about memory: sizes, ranges, attributes. Memory of the pager answers like
 * plain device memory.
 */

#include "hook/table/hooks.h"

#include "hook/base/hook_options.h"
#include "hook/gate/gate.h"
#include "hook/memory/charge.h"
#include "hook/memory/meminfo.h"
#include "hook/pager/managed.h"
#include "hook/pager/pager.h"
#include "hook/pager/pager_share.h"
#include "hook/pager/pager_vmm.h"
#include "hook/table/cuda_real.h"
#include "hook/tickets/tickets.h"

#include <limits.h>
#include <string.h>

/* ---- sizes ---------------------------------------------------------------- */

CUresult cuMemGetInfo_v2(size_t *free, size_t *total)
{
	size_t real_free = 0, real_total = 0;
	uint64_t mine;
	CUcontext ctx;
	CUdevice dev;
	CUresult res;

	if (!cuda_real.cuMemGetInfo_v2)
		return CUDA_ERROR_NOT_FOUND;
	/* The driver is asked for an error, and for the card's size. */
	res = cuda_real.cuMemGetInfo_v2(&real_free, &real_total);
	if (res != CUDA_SUCCESS)
		return res;
	if (charge_here(&ctx, &dev) != CUDA_SUCCESS) {
		mine = real_total;
	} else {
		mine = meminfo_total(dev, real_total);
		real_free = meminfo_free(dev, mine);
	}
	if (free)
		*free = real_free;
	if (total)
		*total = mine;
	return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev)
{
	CUresult res;

	if (!cuda_real.cuDeviceTotalMem_v2)
		return CUDA_ERROR_NOT_FOUND;
	res = cuda_real.cuDeviceTotalMem_v2(bytes, dev);
	if (res == CUDA_SUCCESS)
		*bytes = meminfo_total(dev, *bytes);
	return res;
}

static unsigned int range_clamp(uint64_t bytes)
{
	return bytes < UINT_MAX ? (unsigned int)bytes : UINT_MAX;
}

CUresult cuMemGetInfo(unsigned int *free, unsigned int *total)
{
	size_t wide_free, wide_total;
	CUresult res = cuMemGetInfo_v2(&wide_free, &wide_total);

	if (res != CUDA_SUCCESS)
		return res;
	if (free)
		*free = range_clamp(wide_free);
	if (total)
		*total = range_clamp(wide_total);
	return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem(unsigned int *bytes, CUdevice dev)
{
	CUresult res;

	if (!cuda_real.cuDeviceTotalMem)
		return CUDA_ERROR_NOT_FOUND;
	res = cuda_real.cuDeviceTotalMem(bytes, dev);
	if (res == CUDA_SUCCESS)
		*bytes = range_clamp(meminfo_total(dev, *bytes));
	return res;
}

/* ---- address ranges ------------------------------------------------------- */

/*
 * The driver can answer about memory that the program mapped itself, but only while that memory is
 * on the card. So the caller waits for it at the gate.
 */
static bool gate_enter_if_mapped(CUdeviceptr ptr)
{
	bool is_mapped = pager_vmm_is_mapped(ptr, 1);

	if (is_mapped)
		gate_enter();
	return is_mapped;
}

static void gate_leave_if(bool is_entered)
{
	if (is_entered)
		gate_leave();
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *pbase, size_t *psize, CUdeviceptr dptr)
{
	struct opened_memory opened;
	bool is_entered;
	CUresult res;

	if (!cuda_real.cuMemGetAddressRange_v2)
		return CUDA_ERROR_NOT_FOUND;
	if (pager_find(dptr, pbase, psize, NULL, NULL, NULL))
		return CUDA_SUCCESS;
	if (opened_find(dptr, &opened)) {
		if (pbase)
			*pbase = opened.base;
		if (psize)
			*psize = opened.size;
		return CUDA_SUCCESS;
	}
	if (pager_is_gap(dptr, 1))
		return CUDA_ERROR_NOT_FOUND;
	is_entered = gate_enter_if_mapped(dptr);
	res = cuda_real.cuMemGetAddressRange_v2(pbase, psize, dptr);
	gate_leave_if(is_entered);
	return res;
}

/* No address of the pager fits these parameters. */
CUresult cuMemGetAddressRange(CUdeviceptr_v1 *pbase, unsigned int *psize, CUdeviceptr_v1 dptr)
{
	if (!cuda_real.cuMemGetAddressRange)
		return CUDA_ERROR_NOT_FOUND;
	return cuda_real.cuMemGetAddressRange(pbase, psize, dptr);
}

/* ---- pointer attributes --------------------------------------------------- */

struct query {
	CUdeviceptr ptr;
	CUdeviceptr base;
	size_t size;
	CUcontext ctx;
	CUdevice dev;
	CUmemoryPool pool;
	uint64_t buffer_id;
	bool sync_memops;
	bool is_opened; /* of another process */
};

/* Driver 580 writes four bytes for truth values and enumerations, and eight for the rest. */
static void answer_put_u32(void *data, uint32_t value)
{
	memcpy(data, &value, sizeof(value));
}

static void answer_put_u64(void *data, uint64_t value)
{
	memcpy(data, &value, sizeof(value));
}

static void answer_put_pointer(void *data, const void *value)
{
	memcpy(data, &value, sizeof(value));
}

/* Answers like plain device memory. false: the driver is to answer. */
static bool attribute_answer(const struct query *q, CUpointer_attribute attribute, void *data,
			     CUresult *res)
{
	*res = CUDA_SUCCESS;
	switch (attribute) {
	case CU_POINTER_ATTRIBUTE_CONTEXT:
		answer_put_pointer(data, q->ctx);
		return true;
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
		answer_put_u32(data, CU_MEMORYTYPE_DEVICE);
		return true;
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
		answer_put_u64(data, q->ptr);
		return true;
	case CU_POINTER_ATTRIBUTE_HOST_POINTER:
		answer_put_pointer(data, NULL); /* and an error: the host cannot reach it */
		*res = CUDA_ERROR_INVALID_VALUE;
		return true;
	case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
		answer_put_u32(data, q->sync_memops);
		return !q->is_opened;
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
		answer_put_u64(data, q->buffer_id);
		return !q->is_opened;
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
		answer_put_u32(data, 0);
		return true;
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		answer_put_u32(data, (uint32_t)q->dev);
		return true;
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
		answer_put_u64(data, q->base);
		return true;
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
		answer_put_u64(data, q->size);
		return true;
	case CU_POINTER_ATTRIBUTE_MAPPED:
		answer_put_u32(data, 1);
		return true;
	case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
		answer_put_u64(data, 0);
		return true;
	case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
		answer_put_u32(data, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
		return true;
	case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
		answer_put_pointer(data, q->pool);
		return true;
	case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
		/* NCCL and UCX take slow paths for memory that is not. */
		answer_put_u32(data, !q->is_opened && !q->pool && pager_is_shareable(q->dev));
		return true;
	case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
	case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
	case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
	case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
	case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
	case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
		break;
	}
	return false;
}

static bool attribute_find(CUdeviceptr ptr, struct query *q)
{
	struct opened_memory opened;

	*q = (struct query){.ptr = ptr};
	if (opened_find(ptr, &opened)) {
		q->base = opened.base;
		q->size = opened.size;
		q->ctx = opened.ctx;
		q->dev = opened.dev;
		q->is_opened = true;
		return true;
	}
	return pager_find(ptr, &q->base, &q->size, &q->ctx, &q->dev, &q->buffer_id) &&
	       pager_pool(ptr, &q->pool) && pager_sync_memops(ptr, &q->sync_memops);
}

/* The driver numbers each mapping anew. The program may compare, so the first number stays. */
static void attribute_keep_id(CUdeviceptr ptr, CUpointer_attribute attribute, void *data)
{
	uint64_t id;

	if (attribute != CU_POINTER_ATTRIBUTE_BUFFER_ID &&
	    attribute != CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID)
		return;
	memcpy(&id, data, sizeof(id));
	pager_vmm_keep_id(
		ptr, attribute == CU_POINTER_ATTRIBUTE_BUFFER_ID ? PAGER_ID_BUFFER : PAGER_ID_BLOCK,
		&id);
	answer_put_u64(data, id);
}

CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr)
{
	struct query q;
	bool is_entered;
	CUresult res;

	if (!cuda_real.cuPointerGetAttribute)
		return CUDA_ERROR_NOT_FOUND;
	if (data && attribute_find(ptr, &q) && attribute_answer(&q, attribute, data, &res))
		return res;
	if (pager_is_gap(ptr, 1))
		return CUDA_ERROR_INVALID_VALUE;
	is_entered = gate_enter_if_mapped(ptr);
	res = cuda_real.cuPointerGetAttribute(data, attribute, ptr);
	gate_leave_if(is_entered);
	if (res == CUDA_SUCCESS && is_entered)
		attribute_keep_id(ptr, attribute, data);
	if (res == CUDA_SUCCESS && attribute == CU_POINTER_ATTRIBUTE_IS_MANAGED &&
	    managed_find(ptr))
		answer_put_u32(data, 0);
	return res;
}

/* An address at which no memory is. */
#define NO_MEMORY ((CUdeviceptr)0)

/* The driver answers first, with zeros where it has no answer. Ours overwrite them. */
CUresult cuPointerGetAttributes(unsigned int numAttributes, CUpointer_attribute *attributes,
				void **data, CUdeviceptr ptr)
{
	struct query q;
	bool is_ours, is_entered;
	CUresult res, one;

	if (!cuda_real.cuPointerGetAttributes)
		return CUDA_ERROR_NOT_FOUND;
	is_entered = gate_enter_if_mapped(ptr);
	res = cuda_real.cuPointerGetAttributes(numAttributes, attributes, data,
					       pager_is_gap(ptr, 1) ? NO_MEMORY : ptr);
	gate_leave_if(is_entered);
	if (res != CUDA_SUCCESS)
		return res;
	is_ours = attribute_find(ptr, &q);
	for (unsigned int i = 0; i < numAttributes; i++) {
		if (!data[i])
			continue;
		if (is_ours)
			(void)attribute_answer(&q, attributes[i], data[i],
					       &one); /* this call reports no error for it */
		else if (is_entered)
			attribute_keep_id(ptr, attributes[i], data[i]);
		else if (attributes[i] == CU_POINTER_ATTRIBUTE_IS_MANAGED && managed_find(ptr))
			answer_put_u32(data[i], 0);
	}
	return CUDA_SUCCESS;
}

/*
 * A program sets the attribute before it registers memory with a device, which then reads and
 * writes the memory by itself. So the memory stays on the card, also when the attribute is taken
 * back. false: not the pager's.
 */
static bool attribute_set_sync_memops(bool on, CUdeviceptr ptr)
{
	struct pager_hold hold;
	CUdeviceptr base;
	size_t size;

	if (on && hook_options()->rdma != HOOK_OPTIONS_RDMA_IGNORE &&
	    pager_find(ptr, &base, &size, NULL, NULL, NULL)) {
		gate_enter();
		if (pager_hold(base, size, &hold))
			pager_unhold(&hold, true);
		gate_leave();
	}
	return pager_set_sync_memops(ptr, on);
}

CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr ptr)
{
	struct opened_memory opened;
	bool is_entered;
	unsigned int on;
	CUresult res;

	if (!cuda_real.cuPointerSetAttribute)
		return CUDA_ERROR_NOT_FOUND;
	if (value && attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS) {
		memcpy(&on, value, sizeof(on));
		/* Opened memory is pinned by its owner. */
		if (opened_find(ptr, &opened) || attribute_set_sync_memops(on != 0, ptr)) {
			/* The driver may refuse memory that is not plain; that error is ignored. */
			(void)cuda_real.cuPointerSetAttribute(value, attribute, ptr);
			return CUDA_SUCCESS;
		}
	}
	if (pager_is_gap(ptr, 1))
		return CUDA_ERROR_INVALID_VALUE;
	/* Eviction would lose the attribute, and a device may read the memory: it stays. */
	is_entered = pager_vmm_pin(ptr, 1);
	if (is_entered)
		gate_enter();
	res = cuda_real.cuPointerSetAttribute(value, attribute, ptr);
	gate_leave_if(is_entered);
	return res;
}

/* ---- where managed memory is ------------------------------------------------ */

/* To the program the memory of the managed backend is plain, of which the driver knows no such. */
#define RANGE_QUERY(symbol, params, args)                \
	CUresult symbol params                           \
	{                                                \
		if (!cuda_real.symbol)                   \
			return CUDA_ERROR_NOT_FOUND;     \
		if (managed_find(devPtr))                \
			return CUDA_ERROR_INVALID_VALUE; \
		return cuda_real.symbol args;            \
	}

RANGE_QUERY(cuMemAdvise, (CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUdevice device),
	    (devPtr, count, advice, device))
RANGE_QUERY(cuMemAdvise_v2,
	    (CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUmemLocation location),
	    (devPtr, count, advice, location))
RANGE_QUERY(cuMemRangeGetAttribute,
	    (void *data, size_t dataSize, CUmem_range_attribute attribute, CUdeviceptr devPtr,
	     size_t count),
	    (data, dataSize, attribute, devPtr, count))
RANGE_QUERY(cuMemRangeGetAttributes,
	    (void **data, size_t *dataSizes, CUmem_range_attribute *attributes,
	     size_t numAttributes, CUdeviceptr devPtr, size_t count),
	    (data, dataSizes, attributes, numAttributes, devPtr, count))
