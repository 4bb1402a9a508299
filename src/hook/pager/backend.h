/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_BACKEND_H
#define NVS_HOOK_BACKEND_H

/* How plain device memory of a card is served. Threading: any thread. */

#include "abi/cuda_abi.h"
#include "nvshare/protocol.h"

/*
 * What NVSHARE_MEMORY_BACKEND asks for if dev can do it (decided once for each device,
 * with one line when the answer is no), and NONE with NVSHARE_IPC. Makes driver calls.
 */
enum nvshare_backend backend_of(CUdevice dev);

#endif
