/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_BACKEND_H
#define NVS_HOOK_BACKEND_H

/* How plain device memory of a card is served. Threading: any thread. */

#include "abi/cuda_abi.h"
#include "nvshare/protocol.h"

/*
 * The backend that NVSHARE_MEMORY_BACKEND names, if dev can do it; NONE with NVSHARE_IPC. Decided
 * once for each device, with a warning if dev cannot. Makes driver calls.
 */
enum nvshare_backend backend_of(CUdevice dev);

#endif
