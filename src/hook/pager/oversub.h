/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_OVERSUB_H
#define NVS_HOOK_OVERSUB_H

/*
 * A program that is larger than the card (NVSHARE_ENABLE_SINGLE_OVERSUB with the managed backend).
 * One part of each allocation moves, as other memory of the backend does. The other part stays in
 * host memory, and the GPU uses it over the bus. So the program has no more on the card than its
 * budget, and the scheduler sees a program that nearly fills the card.
 *
 * Threading: any thread.
 */

#include "abi/cuda_abi.h"

#include <stddef.h>
#include <stdint.h>

/*
 * Divides an allocation of bytes. Takes *ret_moving of them from the budget, as budget_take() does,
 * and counts the rest as staying. CUDA_ERROR_OUT_OF_MEMORY: host memory has no room for the rest,
 * and nothing is taken.
 */
CUresult oversub_take(CUdevice dev, size_t bytes, size_t *ret_moving);

/* Bytes that stayed are freed. budget_give() takes the part that moves. */
void oversub_give(CUdevice dev, size_t bytes);

/* Bytes that stay in host memory. */
uint64_t oversub_bytes(CUdevice dev);

void oversub_after_fork_child(void);

#endif
