/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The program's own virtual memory management: pinned, charged to the device that the
 * properties name (not the current one), and given back when the last handle and the
 * last mapping are gone, which is when the driver gives it back.
 */

#include "hook/table/hooks.h"

#include "hook/gate/gate.h"
#include "hook/memory/charge.h"
#include "hook/memory/vmm.h"
#include "hook/pager/pager.h"
#include "hook/table/cuda_real.h"
#include "nvshare/protocol.h"

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size,
		     const CUmemAllocationProp *prop, unsigned long long flags)
{
	struct charge charge;
	CUresult res;

	if (!cuda_real.cuMemCreate)
		return CUDA_ERROR_NOT_FOUND;
	if (!handle || !prop || prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
		return cuda_real.cuMemCreate(handle, size, prop, flags);
	res = charge_begin_on(&charge, prop->location.id, size, NVSHARE_PINNED_VMM);
	if (res != CUDA_SUCCESS)
		return res;
	do
		res = cuda_real.cuMemCreate(handle, size, prop, flags);
	while (charge_again(&charge, res));
	if (res == CUDA_SUCCESS && vmm_created(*handle, prop->location.id, size))
		charge_keep(&charge);
	else
		charge_end(&charge, CUDA_ERROR_UNKNOWN, LEDGER_ADDRESS, 0);
	return res;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
	struct vmm_block *block;
	CUresult res;

	if (!cuda_real.cuMemRelease)
		return CUDA_ERROR_NOT_FOUND;
	block = vmm_release_begin(handle);
	res = cuda_real.cuMemRelease(handle);
	vmm_release_end(block, res == CUDA_SUCCESS);
	return res;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr)
{
	CUdeviceptr ptr = (CUdeviceptr)(uintptr_t)addr;
	CUresult res;

	if (!cuda_real.cuMemRetainAllocationHandle)
		return CUDA_ERROR_NOT_FOUND;
	/* Plain memory has no handle to give; the pager's own is not for strangers. */
	if (pager_find(ptr, NULL, NULL, NULL, NULL, NULL))
		return CUDA_ERROR_INVALID_VALUE;
	res = cuda_real.cuMemRetainAllocationHandle(handle, addr);
	if (res == CUDA_SUCCESS)
		vmm_retained(*handle, ptr);
	return res;
}

CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
		  unsigned long long flags)
{
	CUresult res;

	if (!cuda_real.cuMemMap)
		return CUDA_ERROR_NOT_FOUND;
	res = cuda_real.cuMemMap(ptr, size, offset, handle, flags);
	if (res == CUDA_SUCCESS)
		vmm_mapped(ptr, handle);
	return res;
}

CUresult cuMemUnmap(CUdeviceptr ptr, size_t size)
{
	CUresult res;

	if (!cuda_real.cuMemUnmap)
		return CUDA_ERROR_NOT_FOUND;
	res = cuda_real.cuMemUnmap(ptr, size);
	if (res == CUDA_SUCCESS)
		vmm_unmapped(ptr, size);
	return res;
}

/* Another process's memory: counted there. */
CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *osHandle,
					CUmemAllocationHandleType shHandleType)
{
	if (!cuda_real.cuMemImportFromShareableHandle)
		return CUDA_ERROR_NOT_FOUND;
	return cuda_real.cuMemImportFromShareableHandle(handle, osHandle, shHandleType);
}

CUresult cuMemExportToShareableHandle(void *shareableHandle, CUmemGenericAllocationHandle handle,
				      CUmemAllocationHandleType handleType,
				      unsigned long long flags)
{
	if (!cuda_real.cuMemExportToShareableHandle)
		return CUDA_ERROR_NOT_FOUND;
	return cuda_real.cuMemExportToShareableHandle(shareableHandle, handle, handleType, flags);
}

/* A device behind the file descriptor may reach the bytes at any time from now on. */
CUresult cuMemGetHandleForAddressRange(void *handle, CUdeviceptr dptr, size_t size,
				       CUmemRangeHandleType handleType, unsigned long long flags)
{
	CUresult res;

	if (!cuda_real.cuMemGetHandleForAddressRange)
		return CUDA_ERROR_NOT_FOUND;
	gate_enter();
	res = cuda_real.cuMemGetHandleForAddressRange(handle, dptr, size, handleType, flags);
	if (res == CUDA_SUCCESS)
		(void)pager_pin(dptr, size);
	gate_leave();
	return res;
}
