/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_POOLS_H
#define NVS_HOOK_POOLS_H

/*
 * Stream-ordered memory (cuMemAllocAsync and pools) that can move. The bytes come from the pager's
 * ranges, and events of ours keep the order. The program's handle is the driver's own pool, which
 * stays empty.
 *
 * A pool is ours if it is a device's default pool, or a pool of cuMemPoolCreate that is not for
 * export. The device must use the VMM backend. The memory of other pools is the driver's, and
 * pinned.
 *
 * Freed memory is free for the same stream at once, because the stream's later work runs after the
 * free. It is free for other streams when the event of the free is done. An allocation makes its
 * stream wait for another one, or waits itself, only when memory is short.
 *
 * Threading: any thread. No thread keeps the lock over a driver call, or together with the pager's.
 * Errors: as the driver would return them.
 */

#include "abi/cuda_abi.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pools_block;
struct pools_pool;

/* Allocates from pool handle for stream (not NULL, not captured). false: the pool is not ours. */
bool pools_alloc(CUmemoryPool handle, CUstream stream, size_t bytes, CUdeviceptr *ret_ptr,
		 CUresult *ret_res);

/* Frees in stream order, also memory that is not from a pool. false: ptr is not the pager's. */
bool pools_free(CUdeviceptr ptr, CUstream stream, CUresult *ret_res);

/* The driver has made a pool for the program. true: it is ours. */
bool pools_created(CUmemoryPool handle, const CUmemPoolProps *props);

/*
 * Call begin before the driver destroys the pool, and end after it. The driver may give the handle
 * to another thread at once. begin returns NULL if the pool is not known. Memory in use lives on.
 */
struct pools_pool *pools_destroy_begin(CUmemoryPool handle);
void pools_destroy_end(struct pools_pool *pool, bool is_destroyed);

/* Call these after the driver's own. false: the pool is not ours; use the driver's answer. */
bool pools_trim(CUmemoryPool handle, uint64_t keep);
bool pools_get_attribute(CUmemoryPool handle, CUmemPool_attribute attr, void *value);
bool pools_set_attribute(CUmemoryPool handle, CUmemPool_attribute attr, const void *value);

/* Lets peer reach the pool's memory, and all memory of the pager on that device; or ends that. */
CUresult pools_set_access(CUmemoryPool handle, CUdevice peer, bool enable);

/* Call it before the driver destroys the stream: the handle may name another one afterwards. */
void pools_stream_gone(CUstream stream);

/*
 * Gives free memory whose work is done back to the card. pools_release() returns true if there was
 * some. pools_make_room() does it only if the budget has no room for bytes more.
 */
bool pools_release(CUdevice dev);
void pools_make_room(CUdevice dev, uint64_t bytes);

/* Gives the pager the functions that it calls (pager_ops.h). */
void pools_join_pager(void);

void pools_after_fork_child(void);

#endif
