/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_APPS_CUDA_LOAD_H
#define NVS_APPS_CUDA_LOAD_H

/*
 * Opens libcuda.so.1 at run time, so that one binary of a test program runs on the simulated GPU
 * and on a real one. cuda.cuMemAlloc_v2(...) is a typed call.
 *
 * Functions come from dlsym or, with NVSHARE_APP_RESOLVE=procaddress, from cuGetProcAddress, like
 * the CUDA runtime's. A preloaded library sees both look-ups. With NVSHARE_APP_RESOLVE=contained
 * they come from the program itself, which contains the library. With CUDA_LOAD_PER_THREAD they are
 * the forms for per-thread default streams, if the driver has them.
 */

#include "abi/cuda_structs.h"

#include <stdbool.h>

/* CUDA_FUNCTION(base name, exported symbol, CUDA version, per-thread suffix, parameters) */
/* clang-format off */
#define CUDA_FUNCTIONS(F)                                                                          \
	F(cuInit, cuInit, 2000, "", (unsigned int flags))                                          \
	F(cuDriverGetVersion, cuDriverGetVersion, 2020, "", (int *version))                        \
	F(cuGetErrorName, cuGetErrorName, 6000, "", (CUresult res, const char **str))              \
	F(cuDeviceGet, cuDeviceGet, 2000, "", (CUdevice *dev, int ordinal))                        \
	F(cuDeviceGetCount, cuDeviceGetCount, 2000, "", (int *count))                              \
	F(cuDeviceGetName, cuDeviceGetName, 2000, "", (char *name, int len, CUdevice dev))         \
	F(cuDeviceTotalMem, cuDeviceTotalMem_v2, 3020, "", (size_t *bytes, CUdevice dev))          \
	F(cuDeviceGetAttribute, cuDeviceGetAttribute, 2000, "",                                    \
	  (int *pi, CUdevice_attribute attrib, CUdevice dev))                                      \
	F(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, 7000, "",                            \
	  (CUcontext *ctx, CUdevice dev))                                                          \
	F(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, 11000, "", (CUdevice dev))      \
	F(cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset_v2, 11000, "", (CUdevice dev))          \
	F(cuCtxCreate, cuCtxCreate_v2, 3020, "",                                                   \
	  (CUcontext *ctx, unsigned int flags, CUdevice dev))                                      \
	F(cuCtxDestroy, cuCtxDestroy_v2, 4000, "", (CUcontext ctx))                                \
	F(cuCtxSetCurrent, cuCtxSetCurrent, 4000, "", (CUcontext ctx))                             \
	F(cuCtxGetCurrent, cuCtxGetCurrent, 4000, "", (CUcontext *ctx))                            \
	F(cuCtxSetLimit, cuCtxSetLimit, 3010, "", (CUlimit limit, size_t value))                   \
	F(cuCtxSynchronize, cuCtxSynchronize, 2000, "", (void))                                    \
	F(cuCtxEnablePeerAccess, cuCtxEnablePeerAccess, 4000, "",                                  \
	  (CUcontext peer, unsigned int flags))                                                    \
	F(cuCtxDisablePeerAccess, cuCtxDisablePeerAccess, 4000, "", (CUcontext peer))              \
	F(cuDeviceCanAccessPeer, cuDeviceCanAccessPeer, 4000, "",                                  \
	  (int *can, CUdevice dev, CUdevice peer))                                                 \
	F(cuModuleLoadData, cuModuleLoadData, 2000, "", (CUmodule *module, const void *image))     \
	F(cuModuleUnload, cuModuleUnload, 2000, "", (CUmodule module))                             \
	F(cuModuleGetFunction, cuModuleGetFunction, 2000, "",                                      \
	  (CUfunction *function, CUmodule module, const char *name))                               \
	F(cuMemGetInfo, cuMemGetInfo_v2, 3020, "", (size_t *free_bytes, size_t *total))            \
	F(cuMemAlloc, cuMemAlloc_v2, 3020, "", (CUdeviceptr *ptr, size_t bytes))                   \
	F(cuMemAllocPitch, cuMemAllocPitch_v2, 3020, "",                                           \
	  (CUdeviceptr *ptr, size_t *pitch, size_t width, size_t height, unsigned int element))    \
	F(cuMemFree, cuMemFree_v2, 3020, "", (CUdeviceptr ptr))                                    \
	F(cuMemGetAddressRange, cuMemGetAddressRange_v2, 3020, "",                                 \
	  (CUdeviceptr *base, size_t *size, CUdeviceptr ptr))                                      \
	F(cuMemAllocManaged, cuMemAllocManaged, 6000, "",                                          \
	  (CUdeviceptr *ptr, size_t bytes, unsigned int flags))                                    \
	F(cuIpcGetMemHandle, cuIpcGetMemHandle, 4010, "",                                          \
	  (CUipcMemHandle *handle, CUdeviceptr ptr))                                               \
	F(cuIpcOpenMemHandle, cuIpcOpenMemHandle_v2, 11000, "",                                    \
	  (CUdeviceptr *ptr, CUipcMemHandle handle, unsigned int flags))                           \
	F(cuIpcCloseMemHandle, cuIpcCloseMemHandle, 4010, "", (CUdeviceptr ptr))                   \
	F(cuMemHostAlloc, cuMemHostAlloc, 2020, "", (void **ptr, size_t bytes, unsigned int flags))\
	F(cuMemFreeHost, cuMemFreeHost, 2000, "", (void *ptr))                                     \
	F(cuPointerGetAttribute, cuPointerGetAttribute, 4000, "",                                  \
	  (void *data, CUpointer_attribute attribute, CUdeviceptr ptr))                            \
	F(cuPointerSetAttribute, cuPointerSetAttribute, 6000, "",                                  \
	  (const void *value, CUpointer_attribute attribute, CUdeviceptr ptr))                     \
	F(cuPointerGetAttributes, cuPointerGetAttributes, 7000, "",                                \
	  (unsigned int n, CUpointer_attribute *attributes, void **data, CUdeviceptr ptr))         \
	F(cuMemcpyHtoD, cuMemcpyHtoD_v2, 3020, "_ptds",                                            \
	  (CUdeviceptr dst, const void *src, size_t bytes))                                        \
	F(cuMemcpyDtoH, cuMemcpyDtoH_v2, 3020, "_ptds",                                            \
	  (void *dst, CUdeviceptr src, size_t bytes))                                              \
	F(cuMemcpyDtoD, cuMemcpyDtoD_v2, 3020, "_ptds",                                            \
	  (CUdeviceptr dst, CUdeviceptr src, size_t bytes))                                        \
	F(cuMemcpyHtoDAsync, cuMemcpyHtoDAsync_v2, 3020, "_ptsz",                                  \
	  (CUdeviceptr dst, const void *src, size_t bytes, CUstream stream))                       \
	F(cuMemcpyDtoHAsync, cuMemcpyDtoHAsync_v2, 3020, "_ptsz",                                  \
	  (void *dst, CUdeviceptr src, size_t bytes, CUstream stream))                             \
	F(cuMemcpyAsync, cuMemcpyAsync, 4000, "_ptsz",                                             \
	  (CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream))                       \
	F(cuMemcpyPeer, cuMemcpyPeer, 4000, "_ptds",                                               \
	  (CUdeviceptr dst, CUcontext dst_ctx, CUdeviceptr src, CUcontext src_ctx, size_t bytes))  \
	F(cuMemcpyHtoA, cuMemcpyHtoA_v2, 3020, "_ptds",                                            \
	  (CUarray dst, size_t offset, const void *src, size_t bytes))                             \
	F(cuMemcpyAtoH, cuMemcpyAtoH_v2, 3020, "_ptds",                                            \
	  (void *dst, CUarray src, size_t offset, size_t bytes))                                   \
	F(cuMemsetD8, cuMemsetD8_v2, 3020, "_ptds",                                                \
	  (CUdeviceptr ptr, unsigned char value, size_t n))                                        \
	F(cuMemsetD32, cuMemsetD32_v2, 3020, "_ptds",                                              \
	  (CUdeviceptr ptr, unsigned int value, size_t n))                                         \
	F(cuMemsetD2D8, cuMemsetD2D8_v2, 3020, "_ptds",                                            \
	  (CUdeviceptr ptr, size_t pitch, unsigned char value, size_t width, size_t height))       \
	F(cuArrayCreate, cuArrayCreate_v2, 3020, "",                                               \
	  (CUarray *array, const CUDA_ARRAY_DESCRIPTOR *descriptor))                               \
	F(cuArrayDestroy, cuArrayDestroy, 2000, "", (CUarray array))                               \
	F(cuStreamCreate, cuStreamCreate, 2000, "", (CUstream *stream, unsigned int flags))        \
	F(cuStreamDestroy, cuStreamDestroy_v2, 4000, "", (CUstream stream))                        \
	F(cuStreamSynchronize, cuStreamSynchronize, 2000, "_ptsz", (CUstream stream))              \
	F(cuStreamBeginCapture, cuStreamBeginCapture_v2, 10010, "_ptsz",                           \
	  (CUstream stream, CUstreamCaptureMode mode))                                             \
	F(cuStreamEndCapture, cuStreamEndCapture, 10000, "_ptsz",                                  \
	  (CUstream stream, CUgraph *graph))                                                       \
	F(cuThreadExchangeStreamCaptureMode, cuThreadExchangeStreamCaptureMode, 10010, "",         \
	  (CUstreamCaptureMode *mode))                                                             \
	F(cuCtxRecordEvent, cuCtxRecordEvent, 12050, "", (CUcontext ctx, CUevent event))           \
	F(cuEventCreate, cuEventCreate, 2000, "", (CUevent *event, unsigned int flags))            \
	F(cuEventQuery, cuEventQuery, 2000, "", (CUevent event))                                   \
	F(cuEventSynchronize, cuEventSynchronize, 2000, "", (CUevent event))                       \
	F(cuEventDestroy, cuEventDestroy_v2, 4000, "", (CUevent event))                            \
	F(cuGraphInstantiateWithFlags, cuGraphInstantiateWithFlags, 11040, "",                     \
	  (CUgraphExec *exec, CUgraph graph, unsigned long long flags))                            \
	F(cuGraphLaunch, cuGraphLaunch, 10000, "_ptsz", (CUgraphExec exec, CUstream stream))       \
	F(cuGraphExecDestroy, cuGraphExecDestroy, 10000, "", (CUgraphExec exec))                   \
	F(cuGraphDestroy, cuGraphDestroy, 10000, "", (CUgraph graph))                              \
	F(cuGraphCreate, cuGraphCreate, 10000, "", (CUgraph *graph, unsigned int flags))           \
	F(cuGraphAddMemcpyNode, cuGraphAddMemcpyNode, 10000, "",                                   \
	  (CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t n,            \
	   const CUDA_MEMCPY3D *params, CUcontext ctx))                                            \
	F(cuGraphMemcpyNodeSetParams, cuGraphMemcpyNodeSetParams, 10000, "",                       \
	  (CUgraphNode node, const CUDA_MEMCPY3D *params))                                         \
	F(cuGraphExecMemcpyNodeSetParams, cuGraphExecMemcpyNodeSetParams, 10020, "",               \
	  (CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D *params, CUcontext ctx))        \
	F(cuGraphAddMemAllocNode, cuGraphAddMemAllocNode, 11040, "",                               \
	  (CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t n,            \
	   CUDA_MEM_ALLOC_NODE_PARAMS *params))                                                    \
	F(cuCtxAttach, cuCtxAttach, 2000, "", (CUcontext * ctx, unsigned int flags))               \
	F(cuCtxDetach, cuCtxDetach, 2000, "", (CUcontext ctx))                                     \
	F(cuDeviceGetDevResource, cuDeviceGetDevResource, 12040, "",                               \
	  (CUdevice dev, CUdevResource *resource, CUdevResourceType type))                         \
	F(cuDevResourceGenerateDesc, cuDevResourceGenerateDesc, 12040, "",                         \
	  (CUdevResourceDesc * desc, CUdevResource *resources, unsigned int n))                    \
	F(cuGreenCtxCreate, cuGreenCtxCreate, 12040, "",                                           \
	  (CUgreenCtx * green, CUdevResourceDesc desc, CUdevice dev, unsigned int flags))          \
	F(cuGreenCtxDestroy, cuGreenCtxDestroy, 12040, "", (CUgreenCtx green))                     \
	F(cuCtxFromGreenCtx, cuCtxFromGreenCtx, 12040, "", (CUcontext * ctx, CUgreenCtx green))    \
	F(cuGreenCtxStreamCreate, cuGreenCtxStreamCreate, 12050, "",                               \
	  (CUstream * stream, CUgreenCtx green, unsigned int flags, int priority))                 \
	F(cuGraphAddNode, cuGraphAddNode_v2, 12030, "",                                            \
	  (CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,                      \
	   const CUgraphEdgeData *edges, size_t n, CUgraphNodeParams *params))                     \
	F(cuGraphAddMemsetNode, cuGraphAddMemsetNode, 10000, "",                                   \
	  (CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t n,            \
	   const CUDA_MEMSET_NODE_PARAMS *params, CUcontext ctx))                                  \
	F(cuGraphExecNodeSetParams, cuGraphExecNodeSetParams, 12020, "",                           \
	  (CUgraphExec exec, CUgraphNode node, CUgraphNodeParams *params))                         \
	F(cuStreamBatchMemOp, cuStreamBatchMemOp_v2, 11070, "_ptsz",                               \
	  (CUstream stream, unsigned int n, CUstreamBatchMemOpParams *ops, unsigned int flags))    \
	F(cuGraphAddMemFreeNode, cuGraphAddMemFreeNode, 11040, "",                                 \
	  (CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t n,            \
	   CUdeviceptr ptr))                                                                       \
	F(cuDeviceGraphMemTrim, cuDeviceGraphMemTrim, 11040, "", (CUdevice dev))                   \
	F(cuLaunchKernel, cuLaunchKernel, 4000, "_ptsz",                                           \
	  (CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx,       \
	   unsigned int by, unsigned int bz, unsigned int shared, CUstream stream, void **params,  \
	   void **extra))                                                                          \
	F(cuMemAllocAsync, cuMemAllocAsync, 11020, "_ptsz",                                        \
	  (CUdeviceptr *ptr, size_t bytes, CUstream stream))                                       \
	F(cuMemFreeAsync, cuMemFreeAsync, 11020, "_ptsz", (CUdeviceptr ptr, CUstream stream))      \
	F(cuMemPoolCreate, cuMemPoolCreate, 11020, "",                                             \
	  (CUmemoryPool *pool, const CUmemPoolProps *props))                                       \
	F(cuMemPoolDestroy, cuMemPoolDestroy, 11020, "", (CUmemoryPool pool))                      \
	F(cuMemPoolTrimTo, cuMemPoolTrimTo, 11020, "", (CUmemoryPool pool, size_t keep))           \
	F(cuMemPoolGetAttribute, cuMemPoolGetAttribute, 11020, "",                                 \
	  (CUmemoryPool pool, CUmemPool_attribute attr, void *value))                              \
	F(cuMemPoolSetAttribute, cuMemPoolSetAttribute, 11020, "",                                 \
	  (CUmemoryPool pool, CUmemPool_attribute attr, void *value))                              \
	F(cuDeviceGetDefaultMemPool, cuDeviceGetDefaultMemPool, 11020, "",                         \
	  (CUmemoryPool *pool, CUdevice dev))                                                      \
	F(cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync, 11020, "_ptsz",                        \
	  (CUdeviceptr *ptr, size_t bytes, CUmemoryPool pool, CUstream stream))                    \
	F(cuMemHostRegister, cuMemHostRegister_v2, 6050, "",                                       \
	  (void *ptr, size_t bytes, unsigned int flags))                                           \
	F(cuMemHostUnregister, cuMemHostUnregister, 4000, "", (void *ptr))                         \
	F(cuMemPrefetchAsync, cuMemPrefetchAsync_v2, 12020, "_ptsz",                               \
	  (CUdeviceptr ptr, size_t bytes, CUmemLocation location, unsigned int flags,              \
	   CUstream stream))                                                                       \
	F(cuEventRecord, cuEventRecord, 2000, "_ptsz", (CUevent event, CUstream stream))           \
	F(cuLaunchHostFunc, cuLaunchHostFunc, 10000, "_ptsz",                                      \
	  (CUstream stream, CUhostFn fn, void *data))                                              \
	F(cuLibraryLoadData, cuLibraryLoadData, 12000, "",                                         \
	  (CUlibrary *library, const void *code, CUjit_option *jit, void **jit_values,             \
	   unsigned int n_jit, CUlibraryOption *options, void **values, unsigned int n))           \
	F(cuLibraryGetKernel, cuLibraryGetKernel, 12000, "",                                       \
	  (CUkernel *kernel, CUlibrary library, const char *name))                                 \
	F(cuLibraryUnload, cuLibraryUnload, 12000, "", (CUlibrary library))                        \
	F(cuCheckpointProcessLock, cuCheckpointProcessLock, 12080, "", (int pid, void *args))      \
	F(cuCheckpointProcessCheckpoint, cuCheckpointProcessCheckpoint, 12080, "",                 \
	  (int pid, void *args))                                                                   \
	F(cuCheckpointProcessRestore, cuCheckpointProcessRestore, 12080, "",                       \
	  (int pid, void *args))                                                                   \
	F(cuCheckpointProcessUnlock, cuCheckpointProcessUnlock, 12080, "",                         \
	  (int pid, void *args))                                                                   \
	F(cuMemGetAllocationGranularity, cuMemGetAllocationGranularity, 10020, "",                 \
	  (size_t *granularity, const CUmemAllocationProp *prop,                                   \
	   CUmemAllocationGranularity_flags option))                                               \
	F(cuMemAddressReserve, cuMemAddressReserve, 10020, "",                                     \
	  (CUdeviceptr *ptr, size_t bytes, size_t align, CUdeviceptr addr,                         \
	   unsigned long long flags))                                                              \
	F(cuMemAddressFree, cuMemAddressFree, 10020, "", (CUdeviceptr ptr, size_t bytes))          \
	F(cuMemCreate, cuMemCreate, 10020, "",                                                     \
	  (CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *prop,    \
	   unsigned long long flags))                                                              \
	F(cuMemRelease, cuMemRelease, 10020, "", (CUmemGenericAllocationHandle handle))            \
	F(cuMemMap, cuMemMap, 10020, "",                                                           \
	  (CUdeviceptr ptr, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,      \
	   unsigned long long flags))                                                              \
	F(cuMemExportToShareableHandle, cuMemExportToShareableHandle, 10020, "",                   \
	  (void *shareable, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,   \
	   unsigned long long flags))                                                              \
	F(cuMemImportFromShareableHandle, cuMemImportFromShareableHandle, 10020, "",               \
	  (CUmemGenericAllocationHandle *handle, void *shareable, CUmemAllocationHandleType type)) \
	F(cuMemUnmap, cuMemUnmap, 10020, "", (CUdeviceptr ptr, size_t bytes))                      \
	F(cuMemSetAccess, cuMemSetAccess, 10020, "",                                               \
	  (CUdeviceptr ptr, size_t bytes, const CUmemAccessDesc *desc, size_t count))
/* clang-format on */

struct cuda_load {
#define CUDA_FUNCTION(base, symbol, since, per_thread, params) CUresult(*base) params;
	CUDA_FUNCTIONS(CUDA_FUNCTION)
#undef CUDA_FUNCTION
};

/* Functions that are newer than CUDA 10.0 may be NULL. */
extern struct cuda_load cuda;

enum cuda_load_flags { CUDA_LOAD_PER_THREAD = 1 };

/* Opens the driver and fills `cuda`. false: it cannot; *ret_why is the reason. */
bool cuda_load_driver(unsigned int flags, const char **ret_why);

#endif
