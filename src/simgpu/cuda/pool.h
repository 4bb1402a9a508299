/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_SIMGPU_CUDA_POOL_H
#define NVS_SIMGPU_CUDA_POOL_H

/*
 * Memory pools. An asynchronous allocation gets its memory at once; an asynchronous free takes
 * effect in its stream. A pool keeps freed pieces, up to its release threshold, for later
 * requests of the same size. Threading: space's write lock guards pools.
 */

#include "simgpu/cuda/space.h"
#include "simgpu/cuda/work.h"

/* Carries out the queued free of an asynchronous allocation. No lock held. */
void pool_free_now(uint64_t addr);
/* Takes a range that is being freed out of its pool, if it has one. Write lock held. */
void pool_forget(struct range *range);
/* Pools free the context's memory that they keep. Write lock held. */
void pool_context_gone(struct CUctx_st *ctx);
/* A plain allocation. If the device is full, pools first free the memory that they keep. */
CUresult pool_retry_alloc(struct CUctx_st *ctx, uint64_t size, CUdeviceptr *ret);

#endif
