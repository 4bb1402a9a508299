/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_SIMGPU_CUDA_DEVICE_H
#define NVS_SIMGPU_CUDA_DEVICE_H

/* Which of the node's devices this process sees, and what they say of themselves. */

#include "abi/cuda_abi.h"

/* By CUDA_VISIBLE_DEVICES: indices, GPU-... and MIG-... names or beginnings of them. */
CUresult device_enumerate(void);

#endif
