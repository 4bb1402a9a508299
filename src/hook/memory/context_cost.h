/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_CONTEXT_COST_H
#define NVS_HOOK_CONTEXT_COST_H

/* Bytes that a context takes of a card. Threading: any thread. */

#include "abi/cuda_abi.h"

#include <stdint.h>

/* The scheduler's measurement; before one, half a GiB, or 1/32 of a small card. */
uint64_t context_cost(CUdevice dev);

/* bytes: the scheduler's measurement; 0: it has none. */
void context_cost_learn(CUdevice dev, uint64_t bytes);

void context_cost_after_fork_child(void);

#endif
