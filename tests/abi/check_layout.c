/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Prints values and layouts of the driver's ABI, by our header or by the toolkit's
 * (-DCHECK_TOOLKIT): the two use the same names, so one program can not see both.
 * scripts/check-abi makes check_values.h, one VALUE(name) a constant of ours, and
 * compares what the two programs print.
 */

#ifdef CHECK_TOOLKIT
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#else
#include "abi/cuda_abi.h"
#endif

#include <stddef.h>
#include <stdio.h>

#define VALUE(name) printf("%s = %lld\n", #name, (long long)name);
#define SIZE(type)  printf("sizeof(%s) = %zu\n", #type, sizeof(type));
#define MEMBER(type, member)                                                        \
	printf("%s.%s at %zu, %zu bytes\n", #type, #member, offsetof(type, member), \
	       sizeof(((type *)NULL)->member));

int main(void)
{
#include "check_values.h"

	SIZE(CUdevice)
	SIZE(CUdeviceptr)
	SIZE(CUdeviceptr_v1)
	SIZE(CUmemGenericAllocationHandle)
	SIZE(CUresult)
	SIZE(CUjit_option)
	SIZE(CUlibraryOption)
	SIZE(CUuuid)
	SIZE(CUipcMemHandle)
	SIZE(CUmemLocation)
	MEMBER(CUmemLocation, type)
	MEMBER(CUmemLocation, id)
	SIZE(CUmemAllocationProp)
	MEMBER(CUmemAllocationProp, type)
	MEMBER(CUmemAllocationProp, requestedHandleTypes)
	MEMBER(CUmemAllocationProp, location)
	MEMBER(CUmemAllocationProp, win32HandleMetaData)
	MEMBER(CUmemAllocationProp, allocFlags)
	MEMBER(CUmemAllocationProp, allocFlags.compressionType)
	MEMBER(CUmemAllocationProp, allocFlags.gpuDirectRDMACapable)
	MEMBER(CUmemAllocationProp, allocFlags.usage)
	SIZE(CUmemAccessDesc)
	MEMBER(CUmemAccessDesc, location)
	MEMBER(CUmemAccessDesc, flags)
	SIZE(CUmemPoolProps)
	MEMBER(CUmemPoolProps, allocType)
	MEMBER(CUmemPoolProps, handleTypes)
	MEMBER(CUmemPoolProps, location)
	MEMBER(CUmemPoolProps, maxSize)
	MEMBER(CUmemPoolProps, usage)
	SIZE(CUDA_ARRAY_DESCRIPTOR)
	MEMBER(CUDA_ARRAY_DESCRIPTOR, Width)
	MEMBER(CUDA_ARRAY_DESCRIPTOR, Height)
	MEMBER(CUDA_ARRAY_DESCRIPTOR, Format)
	MEMBER(CUDA_ARRAY_DESCRIPTOR, NumChannels)
	SIZE(CUDA_ARRAY3D_DESCRIPTOR)
	MEMBER(CUDA_ARRAY3D_DESCRIPTOR, Depth)
	MEMBER(CUDA_ARRAY3D_DESCRIPTOR, Format)
	MEMBER(CUDA_ARRAY3D_DESCRIPTOR, NumChannels)
	MEMBER(CUDA_ARRAY3D_DESCRIPTOR, Flags)
	SIZE(CUDA_ARRAY_DESCRIPTOR_v1)
	MEMBER(CUDA_ARRAY_DESCRIPTOR_v1, Format)
	SIZE(CUDA_ARRAY3D_DESCRIPTOR_v1)
	MEMBER(CUDA_ARRAY3D_DESCRIPTOR_v1, Flags)
	SIZE(CUDA_ARRAY_MEMORY_REQUIREMENTS)
	MEMBER(CUDA_ARRAY_MEMORY_REQUIREMENTS, size)
	SIZE(CUDA_MEM_ALLOC_NODE_PARAMS)
	MEMBER(CUDA_MEM_ALLOC_NODE_PARAMS, poolProps)
	MEMBER(CUDA_MEM_ALLOC_NODE_PARAMS, bytesize)
	MEMBER(CUDA_MEM_ALLOC_NODE_PARAMS, dptr)
	SIZE(CUDA_GRAPH_INSTANTIATE_PARAMS)
	MEMBER(CUDA_GRAPH_INSTANTIATE_PARAMS, flags)
	MEMBER(CUDA_GRAPH_INSTANTIATE_PARAMS, hUploadStream)
	MEMBER(CUDA_GRAPH_INSTANTIATE_PARAMS, hErrNode_out)
	MEMBER(CUDA_GRAPH_INSTANTIATE_PARAMS, result_out)
	return 0;
}
