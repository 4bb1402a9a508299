/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The program's own virtual memory management. Memory that can move is the pager's (pager_vmm.h),
 * behind handles of ours. The rest is the driver's, and pinned. It is charged to the device that
 * the properties name, not to the current one. The charge ends with the last handle and the last
 * mapping, when the driver frees the memory.
 */

#include "hook/table/hooks.h"

#include "hook/freeze/freeze.h"
#include "hook/gate/gate.h"
#include "hook/memory/charge.h"
#include "hook/memory/oom_retry.h"
#include "hook/memory/vmm.h"
#include "hook/pager/pager.h"
#include "hook/pager/pager_vmm.h"
#include "hook/pools/pools.h"
#include "hook/table/cuda_real.h"
#include "nvshare/protocol.h"

/* ---- handles -------------------------------------------------------------- */

static CUresult vmm_create_pinned(CUmemGenericAllocationHandle *handle, size_t size,
				  const CUmemAllocationProp *prop, unsigned long long flags)
{
	struct charge charge;
	CUresult res = charge_begin_on(&charge, prop->location.id, size, NVSHARE_PINNED_VMM);

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

static CUresult vmm_create_paged(CUmemGenericAllocationHandle *handle, size_t size,
				 const CUmemAllocationProp *prop)
{
	uint64_t total = budget_total(prop->location.id);
	struct charge charge;
	CUresult res;

	if (total && size > total)
		return CUDA_ERROR_OUT_OF_MEMORY;
	pools_make_room(prop->location.id, size);
	res = charge_begin_on(&charge, prop->location.id, size, BUDGET_PAGEABLE);
	if (res != CUDA_SUCCESS)
		return res;
	do
		res = pager_vmm_create(handle, size, prop);
	while ((res == CUDA_ERROR_OUT_OF_MEMORY && pools_release(prop->location.id)) ||
	       charge_again(&charge, res));
	if (res == CUDA_SUCCESS)
		charge_keep(&charge);
	else
		charge_end(&charge, res, LEDGER_ADDRESS, 0);
	return res;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size,
		     const CUmemAllocationProp *prop, unsigned long long flags)
{
	if (!cuda_real.cuMemCreate)
		return CUDA_ERROR_NOT_FOUND;
	if (!handle || !prop || prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
		return cuda_real.cuMemCreate(handle, size, prop, flags);
	if (pager_vmm_can(size, prop, flags))
		return vmm_create_paged(handle, size, prop);
	return vmm_create_pinned(handle, size, prop, flags);
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
	struct vmm_block *block;
	CUresult res;

	if (!cuda_real.cuMemRelease)
		return CUDA_ERROR_NOT_FOUND;
	if (!freeze_enter())
		return CUDA_ERROR_DEINITIALIZED;
	if (pager_vmm_release(handle))
		return freeze_left(CUDA_SUCCESS);
	block = vmm_release_begin(handle);
	res = freeze_left(cuda_real.cuMemRelease(handle));
	vmm_release_end(block, res == CUDA_SUCCESS);
	return res;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr)
{
	CUdeviceptr ptr = (CUdeviceptr)(uintptr_t)addr;
	CUresult res;

	if (!cuda_real.cuMemRetainAllocationHandle)
		return CUDA_ERROR_NOT_FOUND;
	/* The program did not create this memory, so it gets no handle, as with plain memory. */
	if (pager_owns(ptr))
		return CUDA_ERROR_INVALID_VALUE;
	if (handle && pager_vmm_retain(ptr, handle))
		return CUDA_SUCCESS;
	res = cuda_real.cuMemRetainAllocationHandle(handle, addr);
	if (res == CUDA_SUCCESS)
		vmm_retained(*handle, ptr);
	return res;
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop,
						CUmemGenericAllocationHandle handle)
{
	if (!cuda_real.cuMemGetAllocationPropertiesFromHandle)
		return CUDA_ERROR_NOT_FOUND;
	if (prop && pager_vmm_properties(handle, prop))
		return CUDA_SUCCESS;
	return cuda_real.cuMemGetAllocationPropertiesFromHandle(prop, handle);
}

/*
 * ---- mappings -------------------------------------------------------------
 *
 * The program did not map its plain memory, so the driver would refuse it here. But the pager did.
 */

CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
		  unsigned long long flags)
{
	CUresult res;

	if (!cuda_real.cuMemMap)
		return CUDA_ERROR_NOT_FOUND;
	if (pager_owns(ptr))
		return CUDA_ERROR_INVALID_VALUE;
	if (pager_vmm_map(ptr, size, offset, handle, flags, &res))
		return res;
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
	if (pager_owns(ptr))
		return CUDA_ERROR_INVALID_VALUE;
	if (!freeze_enter())
		return CUDA_ERROR_DEINITIALIZED;
	if (pager_vmm_unmap(ptr, size, &res))
		return freeze_left(res);
	res = freeze_left(cuda_real.cuMemUnmap(ptr, size));
	if (res == CUDA_SUCCESS)
		vmm_unmapped(ptr, size);
	return res;
}

static CUresult vmm_set_access_at(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc,
				  size_t count)
{
	CUresult res;

	if (pager_vmm_set_access(ptr, size, desc, count, &res))
		return res;
	return cuda_real.cuMemSetAccess(ptr, size, desc, count);
}

/* Access needs page tables, which are memory too. */
CUresult cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count)
{
	CUresult res;

	if (!cuda_real.cuMemSetAccess)
		return CUDA_ERROR_NOT_FOUND;
	if (pager_owns(ptr))
		return CUDA_ERROR_INVALID_VALUE;
	res = vmm_set_access_at(ptr, size, desc, count);
	if (res != CUDA_ERROR_OUT_OF_MEMORY)
		return res;
	gate_enter();
	ROOM_RETRY(res, vmm_set_access_at(ptr, size, desc, count));
	gate_leave();
	return res;
}

CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr ptr)
{
	if (!cuda_real.cuMemGetAccess)
		return CUDA_ERROR_NOT_FOUND;
	if (pager_owns(ptr))
		return CUDA_ERROR_INVALID_VALUE;
	if (flags && location && pager_vmm_get_access(ptr, location, flags))
		return CUDA_SUCCESS;
	return cuda_real.cuMemGetAccess(flags, location, ptr);
}

/* Mapped memory may be out. The driver would free addresses to which that memory must return. */
CUresult cuMemAddressFree(CUdeviceptr ptr, size_t size)
{
	if (!cuda_real.cuMemAddressFree)
		return CUDA_ERROR_NOT_FOUND;
	if (pager_owns(ptr) || pager_vmm_is_mapped(ptr, size))
		return CUDA_ERROR_INVALID_VALUE;
	return cuda_real.cuMemAddressFree(ptr, size);
}

/* ---- memory that others get ------------------------------------------------ */

/* Memory of another process is counted there. */
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
	CUmemGenericAllocationHandle real = handle;
	struct pager_memory *memory;
	CUresult res;

	if (!cuda_real.cuMemExportToShareableHandle)
		return CUDA_ERROR_NOT_FOUND;
	memory = pager_vmm_hold(handle, &real);
	res = cuda_real.cuMemExportToShareableHandle(shareableHandle, real, handleType, flags);
	pager_vmm_drop(memory, res == CUDA_SUCCESS);
	return res;
}

CUresult cuMulticastBindMem(CUmemGenericAllocationHandle mcHandle, size_t mcOffset,
			    CUmemGenericAllocationHandle memHandle, size_t memOffset, size_t size,
			    unsigned long long flags)
{
	CUmemGenericAllocationHandle real = memHandle;
	struct pager_memory *memory;
	CUresult res;

	if (!cuda_real.cuMulticastBindMem)
		return CUDA_ERROR_NOT_FOUND;
	memory = pager_vmm_hold(memHandle, &real);
	res = cuda_real.cuMulticastBindMem(mcHandle, mcOffset, real, memOffset, size, flags);
	pager_vmm_drop(memory, res == CUDA_SUCCESS);
	return res;
}

/*
 * Memory of any kind at an address, while a call lets others reach it. The memory is held, so the
 * call can stay outside the gate. It must: cuMulticastBindAddr() waits until the team's other
 * devices are added, perhaps by a process that waits for this one to stop.
 */
struct reach {
	struct pager_hold hold;
	bool is_held;
};

static void vmm_reach_begin(struct reach *reach, CUdeviceptr ptr, size_t size)
{
	(void)pager_vmm_pin(ptr, size);
	gate_enter();
	reach->is_held = pager_hold(ptr, size, &reach->hold);
	gate_leave();
}

static CUresult vmm_reach_end(const struct reach *reach, CUresult res)
{
	if (reach->is_held)
		pager_unhold(&reach->hold, res == CUDA_SUCCESS);
	return res;
}

CUresult cuMulticastBindAddr(CUmemGenericAllocationHandle mcHandle, size_t mcOffset,
			     CUdeviceptr memptr, size_t size, unsigned long long flags)
{
	struct reach reach;

	if (!cuda_real.cuMulticastBindAddr)
		return CUDA_ERROR_NOT_FOUND;
	if (pager_is_gap(memptr, 1))
		return CUDA_ERROR_INVALID_VALUE;
	vmm_reach_begin(&reach, memptr, size);
	return vmm_reach_end(
		&reach, cuda_real.cuMulticastBindAddr(mcHandle, mcOffset, memptr, size, flags));
}

/* A device behind the file descriptor may reach the bytes at any time from now on. */
CUresult cuMemGetHandleForAddressRange(void *handle, CUdeviceptr dptr, size_t size,
				       CUmemRangeHandleType handleType, unsigned long long flags)
{
	struct reach reach;

	if (!cuda_real.cuMemGetHandleForAddressRange)
		return CUDA_ERROR_NOT_FOUND;
	if (pager_is_gap(dptr, 1))
		return CUDA_ERROR_INVALID_VALUE;
	vmm_reach_begin(&reach, dptr, size);
	return vmm_reach_end(&reach, cuda_real.cuMemGetHandleForAddressRange(handle, dptr, size,
									     handleType, flags));
}
