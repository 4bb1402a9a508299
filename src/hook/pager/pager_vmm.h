/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_PAGER_VMM_H
#define NVS_HOOK_PAGER_VMM_H

/*
 * The program's own virtual memory management, where its memory can move. The program has handles
 * of ours. Their memory lives as long as a handle or a mapping of it, on the card or in host
 * memory. The driver's handle changes with each eviction, so the program does not see it.
 *
 * The functions are named after the driver's. A function that returns false has done nothing: the
 * handle or the addresses are not ours, and the caller asks the driver. Calls that need the memory
 * on the card wait at the gate. Unmapping and releasing work on memory that is out, too.
 *
 * Threading: any thread. pager.lock, which no thread keeps over a driver call.
 */

#include "hook/pager/pager_memory.h"

/* Memory with these properties can move. Makes driver calls. */
bool pager_vmm_can(size_t size, const CUmemAllocationProp *prop, unsigned long long flags);

/* The caller has taken the budget, as BUDGET_PAGEABLE. */
CUresult pager_vmm_create(CUmemGenericAllocationHandle *ret_handle, size_t size,
			  const CUmemAllocationProp *prop);
bool pager_vmm_release(CUmemGenericAllocationHandle handle);
bool pager_vmm_retain(CUdeviceptr ptr, CUmemGenericAllocationHandle *ret_handle);
bool pager_vmm_properties(CUmemGenericAllocationHandle handle, CUmemAllocationProp *ret_prop);

bool pager_vmm_map(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
		   unsigned long long flags, CUresult *ret_res);
bool pager_vmm_unmap(CUdeviceptr ptr, size_t size, CUresult *ret_res);
bool pager_vmm_set_access(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *descs, size_t n,
			  CUresult *ret_res);
bool pager_vmm_get_access(CUdeviceptr ptr, const CUmemLocation *location,
			  unsigned long long *ret_flags);

/* Memory of ours is mapped somewhere in there. */
bool pager_vmm_is_mapped(CUdeviceptr ptr, size_t size);

/*
 * For calls that give the driver's handle to others. hold waits until the memory is on the card,
 * and keeps it there until drop, inside the gate. NULL: the handle is not ours; drop takes that.
 * is_pinned: the memory stays for good, and counts as pinned.
 */
struct pager_memory *pager_vmm_hold(CUmemGenericAllocationHandle handle,
				    CUmemGenericAllocationHandle *ret_real);
void pager_vmm_drop(struct pager_memory *memory, bool is_pinned);

/* Pins all memory of ours that is mapped in there. */
bool pager_vmm_pin(CUdeviceptr ptr, size_t size);

/* *value: the driver's answer for the memory at ptr now; becomes its first answer. */
void pager_vmm_keep_id(CUdeviceptr ptr, enum pager_id which, uint64_t *value);

void pager_vmm_after_fork_child(void);

#endif
