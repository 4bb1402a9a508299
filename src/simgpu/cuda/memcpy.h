/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_SIMGPU_CUDA_MEMCPY_H
#define NVS_SIMGPU_CUDA_MEMCPY_H

#include "abi/cuda_structs.h"
#include "simgpu/cuda/work.h"

enum memcpy_kind { MEMCPY_ANY, MEMCPY_TO_DEVICE, MEMCPY_TO_HOST, MEMCPY_ON_DEVICE };

/* Finds out where both sides are. The caller has set addresses and extents. */
CUresult memcpy_make_work(struct work_copy *copy, enum memcpy_kind kind);
CUresult memcpy_3d_work(const CUDA_MEMCPY3D *p, struct work *ret);
/* A whole exported call, with api_enter(). */
CUresult memcpy_linear(const char *name, uint64_t dst, uint64_t src, size_t size,
		       enum memcpy_kind kind, bool is_async, CUstream stream);

#endif
