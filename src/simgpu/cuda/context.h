/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_SIMGPU_CUDA_CONTEXT_H
#define NVS_SIMGPU_CUDA_CONTEXT_H

/* Life of contexts, and the streams in them. */

#include "simgpu/cuda/state.h"

/* Charges the node, makes channel groups and the legacy stream. No lock held. */
CUresult context_new(int device, unsigned int flags, bool is_primary, struct CUctx_st **ret);
/* Waits for its work and frees all it owns; the handle stays, dead. No lock held. */
void context_destroy(struct CUctx_st *ctx);

/* Creation flags that the driver would take. */
bool context_flags_are_fine(unsigned int flags);
/*
 * The limit, and with it the memory that the context costs if it had no work yet. _OUT_OF_MEMORY,
 * which changes nothing, when a raise does not fit. No lock held.
 */
CUresult context_set_limit(struct CUctx_st *ctx, CUlimit limit, size_t value);

/* One more, or one less, owner of a device's primary context. No lock held. */
CUresult primary_retain(CUdevice dev, struct CUctx_st **ret);
CUresult primary_release(CUdevice dev);

/* As the program knows it: a green context's own handle. NULL: none is current. */
struct CUctx_st *context_handle(void);

struct work;

/* Lock held, but for a context that is being made. */
struct CUstream_st *stream_new(struct CUctx_st *ctx, enum stream_kind kind, unsigned int flags,
			       int priority);
/* One that no handle names: it goes when its work is done. Lock held. */
struct CUstream_st *stream_new_hidden(struct CUctx_st *ctx);
/*
 * work on stream after everything that is queued in the context, or, if the stream was made
 * for a green one, in that. Lock held.
 */
CUresult stream_join_all(struct CUstream_st *stream, const struct work *work);
/* All streams that the legacy stream waits for. Lock held. */
CUresult stream_sync_blocking(struct CUctx_st *ctx);
/*
 * Takes sim.lock. 0, CU_STREAM_LEGACY and CU_STREAM_PER_THREAD are those of the current
 * context. On CUDA_SUCCESS the lock is held and the stream's context is sound; else it is not held.
 */
CUresult stream_lock(CUstream handle, struct CUstream_st **ret);
/* The same for work that takes a place in the queue: waits while the queue is full. */
CUresult stream_lock_room(CUstream handle, struct CUstream_st **ret);
/* The same for questions, which the legacy stream answers also during a capture. */
CUresult stream_lock_any(CUstream handle, struct CUstream_st **ret);

#endif
