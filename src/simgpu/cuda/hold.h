/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_SIMGPU_CUDA_HOLD_H
#define NVS_SIMGPU_CUDA_HOLD_H

/*
 * The driver's locks. Some calls keep their context to themselves while they wait for the
 * GPU: a launch into a full queue, a copy of pageable memory, a free, a module that is
 * loaded or unloaded, the end of a context. Meanwhile every other call into that context,
 * or with it current, waits. Calls with another context current go on, but for those that
 * register host memory and the like: they wait for the end of any context.
 *
 * NVSHARE_SIM_LOCKS=process makes it one lock for the whole process, for a driver that is
 * worse than the one we know: then every call of the process waits, and only an ioctl gets
 * through.
 *
 * All under sim.lock unless said otherwise.
 */

#include "simgpu/cuda/state.h"

enum { HOLD_QUEUE_MAX = 1024 }; /* work in a queue; the next launch waits */

void hold_init(void); /* reads the environment, once */

/* Until no other thread holds ctx, which may be NULL. No lock held. */
void hold_pass(struct CUctx_st *ctx);
/* True when it had to wait: the lock was released, so what was looked up may be gone. */
bool hold_pass_locked(struct CUctx_st *ctx);

/* Until the work of every context that is being destroyed is done. No lock held. */
void hold_pass_ends(void);

/* Not twice by one thread. Waits for another holder. */
void hold_take(struct CUctx_st *ctx);
void hold_drop(struct CUctx_st *ctx);

/* context_drain(), holding the context. */
CUresult hold_drain(struct CUctx_st *ctx);
/* Until the stream has room for more work or its context's error, holding the context. */
CUresult hold_room(struct CUstream_st *stream);
/* Until the context's copy channels are on the GPU, holding the context. No lock held. */
CUresult hold_upload(struct CUctx_st *ctx);

#endif
