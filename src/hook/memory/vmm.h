/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_VMM_H
#define NVS_HOOK_VMM_H

/*
 * The program's own physical memory (cuMemCreate) that does not move: counts the handles and
 * mappings of each piece. When the last one goes, its bytes go back to the budget. Unknown handles
 * and addresses are ignored.
 *
 * Threading: any thread; a short lock.
 */

#include "abi/cuda_abi.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct vmm_block;

/* false: no memory for the bookkeeping. */
bool vmm_created(CUmemGenericAllocationHandle handle, CUdevice dev, size_t size);

/*
 * Around the driver's cuMemRelease. A handle whose last reference goes must leave the book first,
 * because the driver may give its number to another thread at once. It comes back if the driver
 * refuses. begin returns NULL: the handle is not known; end takes that.
 */
struct vmm_block *vmm_release_begin(CUmemGenericAllocationHandle handle);
void vmm_release_end(struct vmm_block *block, bool is_released);

/* The driver has given handle out once more, for the memory that is mapped at ptr. */
void vmm_retained(CUmemGenericAllocationHandle handle, CUdeviceptr ptr);

void vmm_mapped(CUdeviceptr ptr, CUmemGenericAllocationHandle handle);
void vmm_unmapped(CUdeviceptr ptr, size_t size);

void vmm_after_fork_child(void);

#endif
