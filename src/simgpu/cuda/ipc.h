/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_SIMGPU_CUDA_IPC_H
#define NVS_SIMGPU_CUDA_IPC_H

/*
 * Plain memory that other processes open (cuIpcGetMemHandle). The first handle moves the pages of
 * the allocation, or of the block that it shares with others, into a memfd, which openers map. It
 * counts for its owner alone, also after the owner's end: then it counts for nobody.
 *
 * Threading: space's write lock is held, but for ipc_forget().
 */

#include <stdint.h>

struct range;

/* The pages from addr on are about to be unmapped; they may have a handle. */
void ipc_pages_gone(uint64_t addr);

/* Unmaps memory of another process. */
void ipc_unmap(struct range *range);

/* In a forked child: closes descriptors of the parent's memory. */
void ipc_forget(void);

#endif
