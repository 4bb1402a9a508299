/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_SIMGPU_CUDA_CONTEXT_H
#define NVS_SIMGPU_CUDA_CONTEXT_H

/* Contexts and their streams, from creation to end. */

#include "simgpu/cuda/state.h"

/* Charges the node, and makes channel groups and the legacy stream. No lock held. */
CUresult context_new(int device, unsigned int flags, bool is_primary, struct CUctx_st **ret);
/* Waits for the context's work, and frees what it owns. Its handle stays, dead. No lock held. */
void context_destroy(struct CUctx_st *ctx);

/* true: the driver would take these creation flags. */
bool context_flags_are_fine(unsigned int flags);
/*
 * Sets a limit. Before its first work the context's memory changes with it.
 * CUDA_ERROR_OUT_OF_MEMORY: the larger context does not fit, and nothing has changed. No lock held.
 */
CUresult context_set_limit(struct CUctx_st *ctx, CUlimit limit, size_t value);

/* Adds or removes an owner of a device's primary context. No lock held. */
CUresult primary_retain(CUdevice dev, struct CUctx_st **ret);
CUresult primary_release(CUdevice dev);

/* The current context's handle as the program has it, also of a green one. NULL: none. */
struct CUctx_st *context_handle(void);

struct work;

/* Lock held, except for a context that is being made. */
struct CUstream_st *stream_new(struct CUctx_st *ctx, enum stream_kind kind, unsigned int flags,
			       int priority);
/* A stream without a handle, which goes when its work is done. Lock held. */
struct CUstream_st *stream_new_hidden(struct CUctx_st *ctx);
/*
 * Queues work on stream behind all that is queued in its context; for a stream of a green
 * context, in the green context. Lock held.
 */
CUresult stream_join_all(struct CUstream_st *stream, const struct work *work);
/* Waits for all streams that the legacy stream waits for. Lock held. */
CUresult stream_sync_blocking(struct CUctx_st *ctx);
/*
 * Finds the stream of handle, and takes sim.lock. 0, CU_STREAM_LEGACY and CU_STREAM_PER_THREAD
 * are streams of the current context. The lock is held only after CUDA_SUCCESS; then the
 * stream's context has no sticky error. CUDA_ERROR_STREAM_DETACHED: its green context has ended.
 */
CUresult stream_lock(CUstream handle, struct CUstream_st **ret);
/* The same for work that takes a place in the queue: waits while the queue is full. */
CUresult stream_lock_room(CUstream handle, struct CUstream_st **ret);
/*
 * The same for queries, which the legacy stream answers also during a capture. The process ends
 * with SIGSEGV where the stream's green context has ended.
 */
CUresult stream_lock_any(CUstream handle, struct CUstream_st **ret);

#endif
