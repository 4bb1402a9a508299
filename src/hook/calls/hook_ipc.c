/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Memory that processes share by the old handles (CUDA IPC). The driver shares only its plain
 * memory; for that of the pager the handle has a ticket (hook/tickets). NVSHARE_IPC=1 makes all
 * memory plain. Memory that is opened here is counted in the process that allocated it.
 */

#include "hook/table/hooks.h"

#include "hook/base/hook_log.h"
#include "hook/freeze/freeze.h"
#include "hook/pager/managed.h"
#include "hook/pager/pager.h"
#include "hook/pager/pager_share.h"
#include "hook/table/cuda_real.h"
#include "hook/tickets/tickets.h"

#include <pthread.h>

/* The one flag that the driver takes, and asks for. */
#define FLAGS CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS

/* The driver shares no memory of a pool in this way. */
static bool ipc_is_ticketed(CUdeviceptr ptr)
{
	CUmemoryPool pool;
	CUdevice dev;

	return pager_find(ptr, NULL, NULL, NULL, &dev, NULL) && pager_pool(ptr, &pool) && !pool &&
	       pager_is_shareable(dev);
}

/* A thread that pthread_cancel() ends in there would leave its ticket to nobody. */
static CUresult ipc_get(CUipcMemHandle *handle, CUdeviceptr ptr)
{
	CUresult res;
	int state;

	(void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	res = tickets_make(ptr, handle);
	(void)pthread_setcancelstate(state, NULL);
	return res;
}

CUresult cuIpcGetMemHandle(CUipcMemHandle *pHandle, CUdeviceptr dptr)
{
	if (!cuda_real.cuIpcGetMemHandle)
		return CUDA_ERROR_NOT_FOUND;
	if (pHandle && ipc_is_ticketed(dptr))
		return ipc_get(pHandle, dptr);
	if (pager_is_gap(dptr, 1))
		return CUDA_ERROR_INVALID_VALUE;
	if (pager_find(dptr, NULL, NULL, NULL, NULL, NULL) || managed_find(dptr))
		hook_warn_once("this program shares GPU memory with other processes "
			       "(cuIpcGetMemHandle) that this driver cannot share; run it with "
			       "NVSHARE_IPC=1");
	return cuda_real.cuIpcGetMemHandle(pHandle, dptr);
}

static CUresult ipc_open(CUdeviceptr *pdptr, const CUipcMemHandle *handle, unsigned int flags)
{
	CUresult res;
	int state;

	if (!pdptr || flags != FLAGS)
		return CUDA_ERROR_INVALID_VALUE;
	(void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	res = opened_open(handle, pdptr);
	(void)pthread_setcancelstate(state, NULL);
	return res;
}

CUresult cuIpcOpenMemHandle(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags)
{
	if (!cuda_real.cuIpcOpenMemHandle)
		return CUDA_ERROR_NOT_FOUND;
	if (tickets_is_handle(&handle))
		return ipc_open(pdptr, &handle, Flags);
	return cuda_real.cuIpcOpenMemHandle(pdptr, handle, Flags);
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags)
{
	if (!cuda_real.cuIpcOpenMemHandle_v2)
		return CUDA_ERROR_NOT_FOUND;
	if (tickets_is_handle(&handle))
		return ipc_open(pdptr, &handle, Flags);
	return cuda_real.cuIpcOpenMemHandle_v2(pdptr, handle, Flags);
}

CUresult cuIpcCloseMemHandle(CUdeviceptr dptr)
{
	CUresult res;

	if (!cuda_real.cuIpcCloseMemHandle)
		return CUDA_ERROR_NOT_FOUND;
	if (!freeze_enter())
		return CUDA_ERROR_DEINITIALIZED;
	if (!opened_close(dptr, &res))
		res = cuda_real.cuIpcCloseMemHandle(dptr);
	return freeze_left(res);
}
