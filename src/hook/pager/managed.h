/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_MANAGED_H
#define NVS_HOOK_MANAGED_H

/*
 * The classic backend (NVSHARE_MEMORY_BACKEND=managed). cuMemAllocManaged serves plain memory;
 * advice and prefetches move it. Both are needed: advice alone moves nothing, and the GPU uses
 * pages in host memory over the bus until they are fetched. Contracts as for the pager's functions
 * of these names.
 *
 * A process gets no more than the card, since the driver would not refuse it;
 * NVSHARE_ENABLE_SINGLE_OVERSUB=1 lifts that (oversub.h).
 */

#include "hook/pager/pager.h"

CUresult managed_alloc(CUdevice dev, CUcontext ctx, size_t bytes, CUdeviceptr *ret_ptr);
bool managed_free(CUdeviceptr ptr, CUresult *ret_res);
int managed_evict(CUdevice dev, uint64_t bytes, struct pager_move *ret_move);
int managed_restore(CUdevice dev, struct pager_move *ret_move);

/* ptr lies in memory of this backend: to the program it is plain. */
bool managed_find(CUdeviceptr ptr);

void managed_context_gone(CUcontext ctx);
void managed_after_fork_child(void);

#endif
