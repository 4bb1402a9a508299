/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_SIMGPU_CUDA_MEMSET_H
#define NVS_SIMGPU_CUDA_MEMSET_H

#include "abi/cuda_abi.h"
#include "simgpu/cuda/work.h"

/* INVALID_VALUE: not aligned, or not all in memory that a device may write. */
CUresult memset_check(const struct work_fill *fill);

#endif
