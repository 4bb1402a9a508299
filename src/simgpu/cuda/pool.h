/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_SIMGPU_CUDA_POOL_H
#define NVS_SIMGPU_CUDA_POOL_H

/*
 * Memory pools. An asynchronous allocation has its memory at once; an asynchronous free
 * takes effect in its stream. Freed pieces stay reserved up to the pool's release
 * threshold and serve later requests of the same size. Behind space's write lock.
 */

#include "simgpu/cuda/space.h"
#include "simgpu/cuda/work.h"

/* The queued free of an asynchronous allocation has come to its turn. No lock held. */
void pool_free_now(uint64_t addr);
/* The range is being freed: its pool, if any, no longer counts it. Write lock held. */
void pool_forget(struct range *range);
/* What pools keep of the context's memory is given back. Write lock held. */
void pool_context_gone(struct CUctx_st *ctx);
/* A plain allocation; when the device is full, what pools keep is given back first. */
CUresult pool_retry_alloc(struct CUctx_st *ctx, uint64_t size, CUdeviceptr *ret);

#endif
