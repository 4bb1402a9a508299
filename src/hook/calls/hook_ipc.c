/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Memory that processes share by the old handles. The driver shares only its plain memory, and
 * NVSHARE_IPC=1 makes all memory plain. Memory that is opened here is counted in the process that
 * allocated it.
 */

#include "hook/table/hooks.h"

#include "hook/base/hook_log.h"
#include "hook/pager/managed.h"
#include "hook/pager/pager.h"
#include "hook/table/cuda_real.h"

CUresult cuIpcGetMemHandle(CUipcMemHandle *pHandle, CUdeviceptr dptr)
{
	if (!cuda_real.cuIpcGetMemHandle)
		return CUDA_ERROR_NOT_FOUND;
	if (pager_find(dptr, NULL, NULL, NULL, NULL, NULL) || managed_find(dptr))
		hook_warn_once("this program shares GPU memory with other processes "
			       "(cuIpcGetMemHandle); run it with NVSHARE_IPC=1");
	return cuda_real.cuIpcGetMemHandle(pHandle, dptr);
}

CUresult cuIpcOpenMemHandle(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags)
{
	if (!cuda_real.cuIpcOpenMemHandle)
		return CUDA_ERROR_NOT_FOUND;
	return cuda_real.cuIpcOpenMemHandle(pdptr, handle, Flags);
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags)
{
	if (!cuda_real.cuIpcOpenMemHandle_v2)
		return CUDA_ERROR_NOT_FOUND;
	return cuda_real.cuIpcOpenMemHandle_v2(pdptr, handle, Flags);
}
