/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_PAGER_VMM_H
#define NVS_HOOK_PAGER_VMM_H

/*
 * The program's own virtual memory management, where its memory can move: the program has
 * handles of ours, which mean memory that lives as long as a handle or a mapping of it is
 * there, on the card or in host memory. The driver's handle changes with every eviction
 * and is not shown.
 *
 * Every function here has the driver's name for what it does. Those that return a bool
 * return false, with nothing done, when the handle or the addresses are not ours: the
 * driver is to be asked. What needs the memory on the card waits at the gate for it;
 * unmapping and releasing work on memory that is out as well.
 *
 * Threading: any thread; pager.lock, never held over a driver call.
 */

#include "hook/pager/pager_memory.h"

/* Whether memory with these properties can move. Makes driver calls. */
bool pager_vmm_can(size_t size, const CUmemAllocationProp *prop, unsigned long long flags);

/* The bytes are charged already, as BUDGET_PAGEABLE. */
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

/* Whether something of ours is mapped in there. */
bool pager_vmm_is_mapped(CUdeviceptr ptr, size_t size);

/*
 * For calls that give the driver's handle to others: waits until the memory is on the card
 * and keeps it there until drop, inside the gate. NULL when the handle is not ours, which
 * drop takes. With is_pinned it has to stay for ever, and counts as pinned.
 */
struct pager_memory *pager_vmm_hold(CUmemGenericAllocationHandle handle,
				    CUmemGenericAllocationHandle *ret_real);
void pager_vmm_drop(struct pager_memory *memory, bool is_pinned);

/* The same at once for what is mapped in there. */
bool pager_vmm_pin(CUdeviceptr ptr, size_t size);

/* *value is the driver's answer for what is mapped at ptr: what it said the first time. */
void pager_vmm_keep_id(CUdeviceptr ptr, enum pager_id which, uint64_t *value);

void pager_vmm_after_fork_child(void);

#endif
