/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_PAGER_CONTEXT_H
#define NVS_HOOK_PAGER_CONTEXT_H

/*
 * The pager context: the library's own context on a GPU. Its channels are never frozen, so it
 * copies the program's memory while the program is frozen.
 *
 * It costs GPU memory. So it is made only when an eviction is near. It ends when contention has
 * been over for long, or with the program's last context. Memory that the program has mapped itself
 * outlives that context, and comes in again through a new pager context.
 *
 * It lives in the scheduler's reserve. Its cost is no part of the budget, and it is not made where
 * the reserve has no room.
 *
 * Threading: the agent's thread.
 */

#include "abi/cuda_abi.h"

#include <stdbool.h>
#include <stdint.h>

/*
 * Makes it if there is none. false: it would cost more than max bytes, or the card is full; a later
 * call tries again.
 */
bool pager_context_make(CUdevice dev, uint64_t max);

/*
 * Loads the kernel for digests into it, if it is there and max bytes are enough for both and for
 * another program's context. That takes some 100 ms the first time, and nothing may be frozen.
 * Evictions without it copy every byte.
 */
void pager_context_load_digests(CUdevice dev, uint64_t max);
uint64_t pager_context_bytes(CUdevice dev); /* its cost; 0: there is none */

CUcontext pager_context_get(CUdevice dev); /* NULL: there is none */

/* Destroys it, with the pager's stream and events in it. */
void pager_context_drop(CUdevice dev);

void pager_context_after_fork_child(void);

#endif
