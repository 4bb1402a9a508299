/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_VMM_H
#define NVS_HOOK_VMM_H

/*
 * The program's own physical memory (cuMemCreate): how many handles and mappings keep
 * each piece. The last one to go gives its bytes back to the budget. Handles and
 * addresses that are not known are none of its business.
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
 * Around the driver's cuMemRelease: a handle whose last reference goes leaves the books
 * before the driver can give its number to another thread, and returns if it refused.
 * begin: NULL when the handle is not known, which end takes.
 */
struct vmm_block *vmm_release_begin(CUmemGenericAllocationHandle handle);
void vmm_release_end(struct vmm_block *block, bool is_released);

/* handle now stands for what is mapped at ptr, once more. */
void vmm_retained(CUmemGenericAllocationHandle handle, CUdeviceptr ptr);

void vmm_mapped(CUdeviceptr ptr, CUmemGenericAllocationHandle handle);
void vmm_unmapped(CUdeviceptr ptr, size_t size);

void vmm_after_fork_child(void);

#endif
