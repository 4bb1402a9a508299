/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_SIMGPU_CUDA_VMM_H
#define NVS_SIMGPU_CUDA_VMM_H

/*
 * Virtual memory management. All physical memory of the process is pages of one memfd, so a
 * thousand handles need one descriptor, and an address outlives the handle that is mapped to it.
 * Memory that may be exported has a memfd of its own. The exported descriptor is the token of
 * node_pass(), with the memfd in it.
 */

#include "simgpu/cuda/space.h"

/* Takes a mapping's pages away, and keeps the reservation. Write lock held. */
void vmm_unmap(struct range *range);
/* In a forked child, closes descriptors that would keep the parent's memory alive. */
void vmm_forget(void);
/* true: the address lies in a reservation. Read or write lock held. */
bool vmm_is_reserved(uint64_t addr);

#endif
