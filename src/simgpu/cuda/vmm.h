/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_SIMGPU_CUDA_VMM_H
#define NVS_SIMGPU_CUDA_VMM_H

/*
 * Virtual memory management. Physical memory is pages of one memfd of the process (a memfd
 * each for what may be exported), so a thousand handles cost one descriptor, and the
 * address that they are mapped to outlives them. What is exported is the token of
 * node_pass(), with the memfd in it.
 */

#include "simgpu/cuda/space.h"

/* A mapping goes: takes its pages away, keeps the reservation. Write lock held. */
void vmm_unmap(struct range *range);
/* In a forked child: the parent's memory must not live on by descriptors of it. */
void vmm_forget(void);
/* Does the address lie in a reservation? Either lock held. */
bool vmm_is_reserved(uint64_t addr);

#endif
