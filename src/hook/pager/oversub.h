/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_OVERSUB_H
#define NVS_HOOK_OVERSUB_H

/*
 * One program that is larger than the card (NVSHARE_ENABLE_SINGLE_OVERSUB with the managed
 * backend). Each allocation has a part that moves, as any memory of the backend does, and a
 * part that stays in host memory, which the GPU uses over the bus. So the program has no more
 * on the card than its budget, and the scheduler sees one that nearly fills the card.
 *
 * Threading: any thread.
 */

#include "abi/cuda_abi.h"

#include <stddef.h>
#include <stdint.h>

/*
 * Divides an allocation of bytes: *ret_moving of them are taken from the budget, as pageable,
 * like by budget_take() (inside the gate; it may wait); the rest is counted as staying in host
 * memory. CUDA_ERROR_OUT_OF_MEMORY: host memory has no room for the rest; nothing is taken.
 */
CUresult oversub_take(CUdevice dev, size_t bytes, size_t *ret_moving);

/* So many bytes stay in host memory no more: freed. The moving part goes by budget_give(). */
void oversub_give(CUdevice dev, size_t bytes);

/* Bytes that stay in host memory. */
uint64_t oversub_bytes(CUdevice dev);

void oversub_after_fork_child(void);

#endif
