/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_PEER_H
#define NVS_HOOK_PEER_H

/*
 * The book of contexts that may reach others. The pager opens a device's memory to a peer as long
 * as one context asks for it. Threading: any thread; a short lock.
 */

#include "abi/cuda_abi.h"

/* ctx (on dev) may reach the memory of target (on target_dev). */
CUresult peer_enabled(CUcontext ctx, CUdevice dev, CUcontext target, CUdevice target_dev);
void peer_disabled(CUcontext ctx, CUcontext target);
void peer_context_gone(CUcontext ctx);
void peer_after_fork_child(void);

#endif
