/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_SIMGPU_CUDA_HOLD_H
#define NVS_SIMGPU_CUDA_HOLD_H

/*
 * The driver's locks. Some calls hold their context while they wait for the GPU: a launch into a
 * full queue, a copy of pageable memory, a free, the load or unload of a module, the end of a
 * context. Meanwhile all other calls into the context, or with it current, wait. Calls with
 * another context current go on. One exception: calls that register host memory wait until no
 * context is being destroyed.
 *
 * NVSHARE_SIM_LOCKS=process models a worse driver, with one lock for the whole process: then all
 * calls of the process wait, and only an ioctl gets through.
 *
 * Threading: all under sim.lock unless said otherwise.
 */

#include "simgpu/cuda/state.h"

enum { HOLD_QUEUE_MAX = 1024 }; /* with so much work in a queue the next launch waits */

void hold_init(void); /* reads the environment, once */

/* Waits until no other thread holds ctx, which may be NULL. No lock held. */
void hold_pass(struct CUctx_st *ctx);
/* true: it waited, and released the lock meanwhile. Objects found before may be gone. */
bool hold_pass_locked(struct CUctx_st *ctx);

/* Waits for the work of all contexts that are being destroyed. No lock held. */
void hold_pass_ends(void);

/* Waits for another holder. A thread must not take a context twice. */
void hold_take(struct CUctx_st *ctx);
void hold_drop(struct CUctx_st *ctx);

/* These hold the context while they wait. hold_drain() is context_drain(). */
CUresult hold_drain(struct CUctx_st *ctx);
/* Waits until the stream has room for more work, or its context has an error. */
CUresult hold_room(struct CUstream_st *stream);
/* Waits until the context's copy channels are on the GPU. No lock held. */
CUresult hold_upload(struct CUctx_st *ctx);

#endif
