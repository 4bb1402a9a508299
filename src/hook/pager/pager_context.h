/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_PAGER_CONTEXT_H
#define NVS_HOOK_PAGER_CONTEXT_H

/*
 * A second context of the process on a GPU: the library's own. It reads and writes the
 * program's memory while the program's channels are frozen, since its channels are not.
 *
 * It costs GPU memory, so it is made only when an eviction is near and goes away when
 * contention has been over for long, or with the program's last context; but memory that
 * the program mapped itself outlives that, and comes in again through one of ours. It lives in the
 * scheduler's reserve: what it costs is no part of the budget, and it is not made where the reserve
 * has no room for it.
 *
 * Threading: the agent's thread.
 */

#include "abi/cuda_abi.h"

#include <stdbool.h>
#include <stdint.h>

/*
 * Makes it if there is none. false: it can not be had now (it would cost more than max
 * bytes, or the card is full); asked again, it tries again.
 */
bool pager_context_make(CUdevice dev, uint64_t max);
uint64_t pager_context_bytes(CUdevice dev); /* what it costs; 0: there is none */

CUcontext pager_context_get(CUdevice dev); /* NULL: there is none */

/* Destroys it, with what the pager keeps in it. */
void pager_context_drop(CUdevice dev);

void pager_context_after_fork_child(void);

#endif
