/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_POOLS_H
#define NVS_HOOK_POOLS_H

/*
 * Stream-ordered memory (cuMemAllocAsync and pools) that can move: the bytes come from
 * the pager's ranges, the order from events of ours. The driver's own pool stays what the
 * program holds a handle of, and is empty.
 *
 * Ours are the devices' default pools and those of cuMemPoolCreate that are plain: pinned
 * memory of a device with the VMM backend, not for export. Everything else is the
 * driver's, and pinned.
 *
 * Memory freed on a stream is at once good for that stream, since whatever comes there
 * comes later; for others when the event of the free is done. Only when memory is short
 * does an allocation make its stream wait for another, or wait itself.
 *
 * Threading: any thread; one short lock, never held over a driver call nor with the
 * pager's. Errors: CUresult as the program would see it from the driver.
 */

#include "abi/cuda_abi.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pools_block;
struct pools_pool;

/* From pool handle for stream (not NULL), which is not captured. false: it is not ours. */
bool pools_alloc(CUmemoryPool handle, CUstream stream, size_t bytes, CUdeviceptr *ret_ptr,
		 CUresult *ret_res);

/* Frees in stream order, plain memory of the pager too. false: ptr is not the pager's. */
bool pools_free(CUdeviceptr ptr, CUstream stream, CUresult *ret_res);

/* A pool that the program made, after the driver did. Returns whether it is ours. */
bool pools_created(CUmemoryPool handle, const CUmemPoolProps *props);

/*
 * Around the driver's destroy, which may give the handle to another thread at once; begin
 * returns NULL when the pool is not known. Memory that is in use lives on.
 */
struct pools_pool *pools_destroy_begin(CUmemoryPool handle);
void pools_destroy_end(struct pools_pool *pool, bool is_destroyed);

/* After the driver agreed. false: the pool is not ours and the driver's answer stands. */
bool pools_trim(CUmemoryPool handle, uint64_t keep);
bool pools_get_attribute(CUmemoryPool handle, CUmemPool_attribute attr, void *value);
bool pools_set_attribute(CUmemoryPool handle, CUmemPool_attribute attr, const void *value);

/* peer may reach the pool's memory, or no more: then all of the pager's on that device. */
CUresult pools_set_access(CUmemoryPool handle, CUdevice peer, bool enable);

/* Before the driver destroys it: its handle may then mean another stream. */
void pools_stream_gone(CUstream stream);

/*
 * What is freed and done goes back to the card: all of it; all if bytes more would be
 * beyond the budget. release returns whether anything did.
 */
bool pools_release(CUdevice dev);
void pools_make_room(CUdevice dev, uint64_t bytes);

/* What the pager asks for (pager_ops.h), once the pools have joined it. */
void pools_block_free(struct pools_block *block);
void pools_context_gone(CUcontext ctx);
void pools_join_pager(void);

void pools_after_fork_child(void);

#endif
