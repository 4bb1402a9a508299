/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_SIMGPU_CUDA_VMM_H
#define NVS_SIMGPU_CUDA_VMM_H

/* Virtual memory management: addresses, and physical memory that is mapped there. */

#include "simgpu/cuda/space.h"

/* Takes a mapping's pages away, and keeps the reservation. Write lock held. */
void vmm_unmap(struct range *range);
/* true: the address lies in a reservation. Read or write lock held. */
bool vmm_is_reserved(uint64_t addr);

#endif
