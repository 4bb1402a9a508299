/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_SIMGPU_CUDA_MANAGED_H
#define NVS_SIMGPU_CUDA_MANAGED_H

/*
 * Managed memory: host memory whose 2 MiB pieces count as GPU memory while they are resident. A
 * kernel's touch or a prefetch moves a piece in; a prefetch or lack of room moves it out. A touch
 * by the host moves nothing, because the simulation does not see it. Only the worker, under
 * space's read lock, and frees change residency.
 */

#include "simgpu/cuda/space.h"
#include "simgpu/cuda/work.h"

enum work_step managed_prefetch_step(const struct work_memory *memory, struct progress *progress);
/* For a range that is being freed. Space's write lock held. */
void managed_release(struct range *range);

#endif
