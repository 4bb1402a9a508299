/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_SIMGPU_CUDA_FAIL_H
#define NVS_SIMGPU_CUDA_FAIL_H

/*
 * Failures on demand: NVSHARE_SIM_FAIL="cuMemCreate:3:2,cuMemMap:1:205" makes the third
 * cuMemCreate of the process return 2 and the first cuMemMap 205. Names are without _v2,
 * _ptsz and the like.
 */

#include "abi/cuda_abi.h"

void fail_init(void); /* reads the environment, once */
CUresult fail_check(const char *name);

#endif
