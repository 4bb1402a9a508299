/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Prints the layouts that cuda_structs.h adds to cuda_abi.h, by our header or by the
 * toolkit's (-DCHECK_TOOLKIT), as check_layout.c does for the rest.
 */

#ifdef CHECK_TOOLKIT
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
typedef CUDA_KERNEL_NODE_PARAMS_v2 KERNEL_NODE_PARAMS;
#else
#include "abi/cuda_structs.h"
typedef CUDA_KERNEL_NODE_PARAMS KERNEL_NODE_PARAMS;
#endif

#include <stddef.h>
#include <stdio.h>

#define VALUE(name) printf("%s = %lld\n", #name, (long long)name);
#define SIZE(type)  printf("sizeof(%s) = %zu\n", #type, sizeof(type));
#define MEMBER(type, member)                                                        \
	printf("%s.%s at %zu, %zu bytes\n", #type, #member, offsetof(type, member), \
	       sizeof(((type *)NULL)->member));

static void copies(void)
{
	SIZE(struct CUDA_MEMCPY2D_st)
	MEMBER(struct CUDA_MEMCPY2D_st, srcMemoryType)
	MEMBER(struct CUDA_MEMCPY2D_st, srcHost)
	MEMBER(struct CUDA_MEMCPY2D_st, srcPitch)
	MEMBER(struct CUDA_MEMCPY2D_st, dstXInBytes)
	MEMBER(struct CUDA_MEMCPY2D_st, dstArray)
	MEMBER(struct CUDA_MEMCPY2D_st, WidthInBytes)
	MEMBER(struct CUDA_MEMCPY2D_st, Height)
	SIZE(struct CUDA_MEMCPY3D_st)
	MEMBER(struct CUDA_MEMCPY3D_st, srcLOD)
	MEMBER(struct CUDA_MEMCPY3D_st, srcMemoryType)
	MEMBER(struct CUDA_MEMCPY3D_st, srcHeight)
	MEMBER(struct CUDA_MEMCPY3D_st, dstZ)
	MEMBER(struct CUDA_MEMCPY3D_st, dstDevice)
	MEMBER(struct CUDA_MEMCPY3D_st, dstHeight)
	MEMBER(struct CUDA_MEMCPY3D_st, Depth)
	SIZE(struct CUDA_MEMCPY3D_PEER_st)
	MEMBER(struct CUDA_MEMCPY3D_PEER_st, srcContext)
	MEMBER(struct CUDA_MEMCPY3D_PEER_st, dstContext)
	MEMBER(struct CUDA_MEMCPY3D_PEER_st, Depth)
	SIZE(struct CUmemcpyAttributes_st)
	MEMBER(struct CUmemcpyAttributes_st, dstLocHint)
}

static void launches(void)
{
	SIZE(struct CUlaunchAttribute_st)
	MEMBER(struct CUlaunchAttribute_st, id)
	MEMBER(struct CUlaunchAttribute_st, value)
	SIZE(struct CUlaunchConfig_st)
	MEMBER(struct CUlaunchConfig_st, sharedMemBytes)
	MEMBER(struct CUlaunchConfig_st, hStream)
	MEMBER(struct CUlaunchConfig_st, attrs)
	MEMBER(struct CUlaunchConfig_st, numAttrs)
	SIZE(struct CUctxCreateParams_st)
	MEMBER(struct CUctxCreateParams_st, numExecAffinityParams)
	MEMBER(struct CUctxCreateParams_st, cigParams)
	SIZE(union CUstreamBatchMemOpParams_union)
	MEMBER(union CUstreamBatchMemOpParams_union, waitValue.address)
	MEMBER(union CUstreamBatchMemOpParams_union, waitValue.value64)
	MEMBER(union CUstreamBatchMemOpParams_union, waitValue.flags)
	MEMBER(union CUstreamBatchMemOpParams_union, writeValue.alias)
	VALUE(CU_STREAM_MEM_OP_WAIT_VALUE_32)
	VALUE(CU_STREAM_MEM_OP_WRITE_VALUE_32)
	VALUE(CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES)
	VALUE(CU_STREAM_MEM_OP_WAIT_VALUE_64)
	VALUE(CU_STREAM_MEM_OP_WRITE_VALUE_64)
	VALUE(CU_STREAM_MEM_OP_BARRIER)
	VALUE(CU_STREAM_WAIT_VALUE_GEQ)
	VALUE(CU_STREAM_WAIT_VALUE_EQ)
	VALUE(CU_STREAM_WAIT_VALUE_AND)
	VALUE(CU_STREAM_WAIT_VALUE_NOR)
	VALUE(CU_LAUNCH_PARAM_END)
	VALUE(CU_LAUNCH_PARAM_BUFFER_POINTER)
	VALUE(CU_LAUNCH_PARAM_BUFFER_SIZE)
	VALUE(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)
	VALUE(CU_FUNC_ATTRIBUTE_MAX)
}

static void node_params(void)
{
	SIZE(struct CUDA_MEMSET_NODE_PARAMS_v2_st)
	MEMBER(struct CUDA_MEMSET_NODE_PARAMS_v2_st, height)
	MEMBER(struct CUDA_MEMSET_NODE_PARAMS_v2_st, ctx)
	SIZE(struct CUDA_MEMCPY_NODE_PARAMS_st)
	MEMBER(struct CUDA_MEMCPY_NODE_PARAMS_st, copyCtx)
	MEMBER(struct CUDA_MEMCPY_NODE_PARAMS_st, copyParams)
	SIZE(struct CUgraphNodeParams_st)
	MEMBER(struct CUgraphNodeParams_st, type)
	MEMBER(struct CUgraphNodeParams_st, memcpy)
	MEMBER(struct CUgraphNodeParams_st, memset)
	MEMBER(struct CUgraphNodeParams_st, alloc)
	MEMBER(struct CUgraphNodeParams_st, free)
	MEMBER(struct CUgraphNodeParams_st, reserved2)
	SIZE(struct CUmemcpy3DOperand_st)
	MEMBER(struct CUmemcpy3DOperand_st, type)
	SIZE(struct CUDA_MEMCPY3D_BATCH_OP_st)
	MEMBER(struct CUDA_MEMCPY3D_BATCH_OP_st, dst)
	MEMBER(struct CUDA_MEMCPY3D_BATCH_OP_st, extent)
	MEMBER(struct CUDA_MEMCPY3D_BATCH_OP_st, flags)
	VALUE(CU_MEMCPY_OPERAND_TYPE_POINTER)
	VALUE(CU_MEMCPY_OPERAND_TYPE_ARRAY)
}

int main(void)
{
	copies();
	launches();
	node_params();
	SIZE(KERNEL_NODE_PARAMS)
	MEMBER(KERNEL_NODE_PARAMS, sharedMemBytes)
	MEMBER(KERNEL_NODE_PARAMS, kernelParams)
	MEMBER(KERNEL_NODE_PARAMS, kern)
	MEMBER(KERNEL_NODE_PARAMS, ctx)
	SIZE(struct CUDA_MEMSET_NODE_PARAMS_st)
	MEMBER(struct CUDA_MEMSET_NODE_PARAMS_st, elementSize)
	MEMBER(struct CUDA_MEMSET_NODE_PARAMS_st, height)
	SIZE(struct CUDA_HOST_NODE_PARAMS_st)
	SIZE(struct CUgraphExecUpdateResultInfo_st)
	MEMBER(struct CUgraphExecUpdateResultInfo_st, errorFromNode)
	VALUE(CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED)
	VALUE(CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED)
	SIZE(struct CUgraphEdgeData_st)
	SIZE(struct CUdevResource_st)
	MEMBER(struct CUdevResource_st, type)
	VALUE(CU_DEV_RESOURCE_TYPE_INVALID)
	VALUE(CU_DEV_RESOURCE_TYPE_SM)
	VALUE(CU_GREEN_CTX_DEFAULT_STREAM)
	VALUE(CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK)
	VALUE(CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED)
	VALUE(CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED)
	VALUE(CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED)
	return 0;
}
