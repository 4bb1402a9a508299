/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_SIMGPU_CUDA_MANAGED_H
#define NVS_SIMGPU_CUDA_MANAGED_H

/*
 * Managed memory: host memory whose 2 MiB pieces count as GPU memory while they are
 * resident there. A kernel's touch or a prefetch moves them in, a prefetch or lack of room
 * moves them out. What the host touches is not seen, so it moves nothing. Only the worker
 * changes residency, under space's read lock; only it and frees do.
 */

#include "simgpu/cuda/space.h"
#include "simgpu/cuda/work.h"

enum work_step managed_prefetch_step(const struct work_memory *memory, struct progress *progress);
/* The range is being freed; space's write lock held. */
void managed_release(struct range *range);

#endif
