/* SPDX-License-Identifier: Apache-2.0 */

/* Attributes of addresses. */

#include <string.h>

#include "simgpu/cuda/api.h"
#include "simgpu/cuda/space.h"
#include "simgpu/cuda/state.h"

API(cuMemGetAddressRange_v2, (CUdeviceptr * pbase, size_t *psize, CUdeviceptr dptr))
{
	const struct range *range;
	CUresult r = CUDA_ERROR_NOT_FOUND;

	API_ENTER(API_CONTEXT);
	space_read_lock();
	range = space_find(dptr);
	if (range) {
		if (pbase)
			*pbase = range->addr;
		if (psize)
			*psize = range->size;
		r = CUDA_SUCCESS;
	}
	space_unlock();
	return r;
}

static struct CUctx_st *context_of(const struct range *range)
{
	/* Mappings belong to no context: the driver answers NULL. */
	return range->kind == RANGE_MAPPED ? NULL : range->ctx;
}

/* Attributes of existing memory. */
static CUresult attribute_of(void *data, CUpointer_attribute attribute, const struct range *range,
			     CUdeviceptr ptr)
{
	bool is_host = range->device < 0;

	switch (attribute) {
	case CU_POINTER_ATTRIBUTE_CONTEXT:
		*(CUcontext *)data = context_of(range);
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
		*(unsigned int *)data = is_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
		*(CUdeviceptr *)data = ptr;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_HOST_POINTER:
		if (!(is_host ? range->kind != RANGE_MAPPED || range->host_access
			      : range->kind == RANGE_MANAGED))
			return CUDA_ERROR_INVALID_VALUE;
		*(void **)data = (void *)(uintptr_t)ptr;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
		*(unsigned int *)data = range->has_sync_memops;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
		*(unsigned long long *)data = range->id;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
		*(unsigned int *)data = range->kind == RANGE_MANAGED;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		*(int *)data = is_host ? (range->ctx ? range->ctx->device : 0) : range->device;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
		*(unsigned int *)data = 0;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
	case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
		*(CUdeviceptr *)data = range->addr;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
	case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
		*(size_t *)data = range->size;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MAPPED:
		*(unsigned int *)data = 1;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
		*(unsigned long long *)data = 0;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
	case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
		*(unsigned int *)data = 0;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
		*(unsigned int *)data = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
		*(CUmemoryPool *)data = range->pool;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
		*(unsigned long long *)data = range->id;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

API(cuPointerGetAttribute, (void *data, CUpointer_attribute attribute, CUdeviceptr ptr))
{
	const struct range *range;
	CUresult r = CUDA_ERROR_INVALID_VALUE;

	API_ENTER(API_INIT);
	if (!data)
		return CUDA_ERROR_INVALID_VALUE;
	space_read_lock();
	range = space_find(ptr);
	if (range)
		r = attribute_of(data, attribute, range, ptr);
	space_unlock();
	return r;
}

/* Like the driver, this gives empty answers, not an error, for an unknown address. */
static size_t answer_size(CUpointer_attribute attribute)
{
	switch (attribute) {
	case CU_POINTER_ATTRIBUTE_CONTEXT:
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
	case CU_POINTER_ATTRIBUTE_HOST_POINTER:
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
	case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
	case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
	case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
	case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
	case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
		return 8;
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
	case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
	case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
	case CU_POINTER_ATTRIBUTE_MAPPED:
	case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
	case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
	case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
		return 4;
	case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
	default:
		return 0;
	}
}

API(cuPointerGetAttributes,
    (unsigned int numAttributes, CUpointer_attribute *attributes, void **data, CUdeviceptr ptr))
{
	const struct range *range;
	unsigned int i;

	API_ENTER(API_INIT);
	if (!numAttributes || !attributes || !data)
		return CUDA_ERROR_INVALID_VALUE;
	for (i = 0; i < numAttributes; i++)
		if (!data[i] || !answer_size(attributes[i]))
			return CUDA_ERROR_INVALID_VALUE;
	space_read_lock();
	range = space_find(ptr);
	for (i = 0; i < numAttributes; i++) {
		memset(data[i], 0, answer_size(attributes[i]));
		if (attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
			*(int *)data[i] = CU_DEVICE_INVALID;
		if (range)
			attribute_of(data[i], attributes[i], range, ptr);
	}
	space_unlock();
	return CUDA_SUCCESS;
}

API(cuPointerSetAttribute, (const void *value, CUpointer_attribute attribute, CUdeviceptr ptr))
{
	struct range *range;
	CUresult r = CUDA_ERROR_INVALID_VALUE;

	API_ENTER(API_INIT);
	if (!value || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)
		return CUDA_ERROR_INVALID_VALUE;
	space_write_lock();
	range = space_find(ptr);
	if (range && range->device >= 0 && range->kind != RANGE_MANAGED) {
		range->has_sync_memops = *(const unsigned int *)value != 0;
		r = CUDA_SUCCESS;
	}
	space_unlock();
	return r;
}
