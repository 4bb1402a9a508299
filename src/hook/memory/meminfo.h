/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_MEMINFO_H
#define NVS_HOOK_MEMINFO_H

/* The answers that a program gets about the memory of its GPUs. Threading: any thread. */

#include "abi/cuda_abi.h"

#include <stdbool.h>
#include <stdint.h>

/* The size of dev's memory: the driver's total, or the program's limit if that is less. */
uint64_t meminfo_total(CUdevice dev, uint64_t total);

/*
 * The free part of such a total, without the scheduler's reserve. Only this program's own
 * allocations change it.
 */
uint64_t meminfo_free(CUdevice dev, uint64_t total);

/*
 * The same view of the GPU (or MIG instance) with this UUID. false: the process does not use CUDA
 * there and has no NVSHARE_GPU_MEMORY_LIMIT, so the card's numbers are right.
 */
bool meminfo_by_uuid(const unsigned char uuid[16], uint64_t *ret_free, uint64_t *ret_total);

#endif
