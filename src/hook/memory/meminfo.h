/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_MEMINFO_H
#define NVS_HOOK_MEMINFO_H

/* What the program is told about the memory of its GPUs. Threading: any thread. */

#include "abi/cuda_abi.h"

#include <stdbool.h>
#include <stdint.h>

/* What dev has in all, where the driver says total: that, or the limit. */
uint64_t meminfo_total(CUdevice dev, uint64_t total);

/*
 * What is left of such a total, less the scheduler's reserve, which no program gets: moves by what
 * this program allocates, never otherwise.
 */
uint64_t meminfo_free(CUdevice dev, uint64_t total);

/*
 * The program's own view of the GPU (or MIG instance) with this UUID, as cuMemGetInfo()
 * gives it. false, and the out pointers untouched: this process neither uses CUDA there
 * nor has a limit (NVSHARE_GPU_MEMORY_LIMIT), so the card's numbers stand.
 */
bool meminfo_by_uuid(const unsigned char uuid[16], uint64_t *ret_free, uint64_t *ret_total);

#endif
