/* SPDX-License-Identifier: Apache-2.0 */

#include "simgpu/cuda/array.h"

#include <stdlib.h>

#include "simgpu/cuda/api.h"
#include "simgpu/cuda/hold.h"
#include "simgpu/cuda/memcpy.h"
#include "simgpu/cuda/space.h"
#include "simgpu/cuda/state.h"

#define ARRAY_MAGIC 0x6e76732d61727279ull

struct CUarray_st {
	uint64_t magic;
	CUDA_ARRAY3D_DESCRIPTOR desc;
	struct CUctx_st *ctx;
	uint64_t addr, size;
	size_t pitch, rows;
};

static size_t element_size(CUarray_format format, unsigned int channels)
{
	size_t bytes;

	switch (format) {
	case CU_AD_FORMAT_UNSIGNED_INT8:
	case CU_AD_FORMAT_SIGNED_INT8:
		bytes = 1;
		break;
	case CU_AD_FORMAT_UNSIGNED_INT16:
	case CU_AD_FORMAT_SIGNED_INT16:
	case CU_AD_FORMAT_HALF:
		bytes = 2;
		break;
	case CU_AD_FORMAT_UNSIGNED_INT32:
	case CU_AD_FORMAT_SIGNED_INT32:
	case CU_AD_FORMAT_FLOAT:
		bytes = 4;
		break;
	default:
		return 0;
	}
	return channels == 1 || channels == 2 || channels == 4 ? bytes * channels : 0;
}

static bool is_valid(CUarray array)
{
	return array && array->magic == ARRAY_MAGIC;
}

bool array_layout(CUarray array, uint64_t *ret_addr, size_t *ret_pitch, size_t *ret_rows)
{
	if (!is_valid(array))
		return false;
	*ret_addr = array->addr;
	*ret_pitch = array->pitch;
	*ret_rows = array->rows;
	return true;
}

static CUresult create_array(CUarray *ret, const CUDA_ARRAY3D_DESCRIPTOR *desc)
{
	size_t bytes = element_size(desc->Format, desc->NumChannels);
	size_t planes = desc->Depth ? desc->Depth : 1;
	struct CUarray_st *array;
	CUresult r;

	if (!ret || !bytes || !desc->Width || desc->Width > SIZE_MAX / bytes / 2 ||
	    desc->Height > 1u << 20 || desc->Depth > 1u << 20)
		return CUDA_ERROR_INVALID_VALUE;
	if (desc->Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING))
		return CUDA_ERROR_NOT_SUPPORTED;
	array = calloc(1, sizeof(*array));
	if (!array)
		return CUDA_ERROR_OUT_OF_MEMORY;
	array->magic = ARRAY_MAGIC;
	array->desc = *desc;
	array->ctx = context_current();
	array->pitch = (desc->Width * bytes + 511) / 512 * 512;
	array->rows = desc->Height ? desc->Height : 1;
	array->size = array->pitch * array->rows * planes;
	r = space_alloc(array->ctx, array->ctx->device, array->size, RANGE_ARRAY, &array->addr);
	if (r)
		free(array);
	else
		*ret = array;
	return r;
}

API(cuArrayCreate_v2, (CUarray * pHandle, const CUDA_ARRAY_DESCRIPTOR *pAllocateArray))
{
	CUDA_ARRAY3D_DESCRIPTOR desc = {0};

	API_ENTER(API_CONTEXT | API_UNSAFE);
	if (!pAllocateArray)
		return CUDA_ERROR_INVALID_VALUE;
	desc.Width = pAllocateArray->Width;
	desc.Height = pAllocateArray->Height;
	desc.Format = pAllocateArray->Format;
	desc.NumChannels = pAllocateArray->NumChannels;
	return create_array(pHandle, &desc);
}

API(cuArray3DCreate_v2, (CUarray * pHandle, const CUDA_ARRAY3D_DESCRIPTOR *pAllocateArray))
{
	API_ENTER(API_CONTEXT | API_UNSAFE);
	return pAllocateArray ? create_array(pHandle, pAllocateArray) : CUDA_ERROR_INVALID_VALUE;
}

API(cuArrayDestroy, (CUarray hArray))
{
	struct range *range;
	CUresult r;

	API_ENTER(API_CONTEXT | API_UNSAFE);
	if (!is_valid(hArray))
		return CUDA_ERROR_INVALID_HANDLE;
	state_lock();
	r = hold_drain(hArray->ctx);
	state_unlock();
	if (r)
		return r;
	space_write_lock();
	range = space_find(hArray->addr);
	if (range && range->kind == RANGE_ARRAY)
		space_free(range);
	space_unlock();
	hArray->magic = 0;
	free(hArray);
	return CUDA_SUCCESS;
}

API(cuArray3DGetDescriptor_v2, (CUDA_ARRAY3D_DESCRIPTOR * pArrayDescriptor, CUarray hArray))
{
	API_ENTER(API_CONTEXT);
	if (!pArrayDescriptor)
		return CUDA_ERROR_INVALID_VALUE;
	if (!is_valid(hArray))
		return CUDA_ERROR_INVALID_HANDLE;
	*pArrayDescriptor = hArray->desc;
	return CUDA_SUCCESS;
}

API(cuArrayGetDescriptor_v2, (CUDA_ARRAY_DESCRIPTOR * pArrayDescriptor, CUarray hArray))
{
	API_ENTER(API_CONTEXT);
	if (!pArrayDescriptor)
		return CUDA_ERROR_INVALID_VALUE;
	if (!is_valid(hArray))
		return CUDA_ERROR_INVALID_HANDLE;
	pArrayDescriptor->Width = hArray->desc.Width;
	pArrayDescriptor->Height = hArray->desc.Height;
	pArrayDescriptor->Format = hArray->desc.Format;
	pArrayDescriptor->NumChannels = hArray->desc.NumChannels;
	return CUDA_SUCCESS;
}

API(cuArrayGetMemoryRequirements,
    (CUDA_ARRAY_MEMORY_REQUIREMENTS * memoryRequirements, CUarray array, CUdevice device))
{
	API_ENTER(API_INIT);
	if (!memoryRequirements)
		return CUDA_ERROR_INVALID_VALUE;
	if (!is_valid(array))
		return CUDA_ERROR_INVALID_HANDLE;
	if (device_check(device))
		return CUDA_ERROR_INVALID_DEVICE;
	*memoryRequirements = (CUDA_ARRAY_MEMORY_REQUIREMENTS){
		.size = (array->size + SPACE_GRANULARITY - 1) / SPACE_GRANULARITY *
			SPACE_GRANULARITY,
		.alignment = SPACE_GRANULARITY,
	};
	return CUDA_SUCCESS;
}

static uint64_t array_address(CUarray array, size_t offset)
{
	return is_valid(array) && offset < array->size ? array->addr + offset : 0;
}

/* Linear copies: as in the driver, the offset counts in the first row. */
#define SYNC(symbol, twin, params, dst, src, kind) \
	API_TWIN(symbol, twin, params,             \
		 memcpy_linear(__func__, dst, src, ByteCount, kind, false, zero))
#define ASYNC(symbol, twin, params, dst, src, kind)                       \
	API_TWIN(symbol, twin, params,                                    \
		 memcpy_linear(__func__, dst, src, ByteCount, kind, true, \
			       hStream ? hStream : zero))

SYNC(cuMemcpyAtoA_v2, cuMemcpyAtoA_v2_ptds,
     (CUarray dstArray, size_t dstOffset, CUarray srcArray, size_t srcOffset, size_t ByteCount),
     array_address(dstArray, dstOffset), array_address(srcArray, srcOffset), MEMCPY_ON_DEVICE)
SYNC(cuMemcpyAtoD_v2, cuMemcpyAtoD_v2_ptds,
     (CUdeviceptr dstDevice, CUarray srcArray, size_t srcOffset, size_t ByteCount), dstDevice,
     array_address(srcArray, srcOffset), MEMCPY_ON_DEVICE)
SYNC(cuMemcpyDtoA_v2, cuMemcpyDtoA_v2_ptds,
     (CUarray dstArray, size_t dstOffset, CUdeviceptr srcDevice, size_t ByteCount),
     array_address(dstArray, dstOffset), srcDevice, MEMCPY_ON_DEVICE)
SYNC(cuMemcpyAtoH_v2, cuMemcpyAtoH_v2_ptds,
     (void *dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount), (uintptr_t)dstHost,
     array_address(srcArray, srcOffset), MEMCPY_TO_HOST)
SYNC(cuMemcpyHtoA_v2, cuMemcpyHtoA_v2_ptds,
     (CUarray dstArray, size_t dstOffset, const void *srcHost, size_t ByteCount),
     array_address(dstArray, dstOffset), (uintptr_t)srcHost, MEMCPY_TO_DEVICE)
ASYNC(cuMemcpyAtoHAsync_v2, cuMemcpyAtoHAsync_v2_ptsz,
      (void *dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount, CUstream hStream),
      (uintptr_t)dstHost, array_address(srcArray, srcOffset), MEMCPY_TO_HOST)
ASYNC(cuMemcpyHtoAAsync_v2, cuMemcpyHtoAAsync_v2_ptsz,
      (CUarray dstArray, size_t dstOffset, const void *srcHost, size_t ByteCount, CUstream hStream),
      array_address(dstArray, dstOffset), (uintptr_t)srcHost, MEMCPY_TO_DEVICE)
