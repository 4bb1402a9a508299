/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_SIMGPU_CUDA_DEVICE_H
#define NVS_SIMGPU_CUDA_DEVICE_H

/* The node's devices that this process sees, and their attributes. */

#include "abi/cuda_abi.h"

/* Applies CUDA_VISIBLE_DEVICES: indices, and GPU-... and MIG-... names or prefixes of them. */
CUresult device_enumerate(void);

#endif
