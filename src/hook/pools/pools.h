/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_POOLS_H
#define NVS_HOOK_POOLS_H

/*
 * Stream-ordered memory (cuMemAllocAsync and pools) that can move. The bytes come from the pager's
 * ranges, the order from events of ours. The program's handle is the driver's own pool, which stays
 * empty.
 *
 * Our pools are the devices' default pools, and plain ones of cuMemPoolCreate: memory of a device
 * with the VMM backend, not for export. All others are the driver's, and pinned.
 *
 * Memory that is freed on a stream is free for that stream at once, since its later work comes
 * later. It is free for other streams when the event of the free is done. An allocation makes its
 * stream wait for another one, or waits itself, only when memory is short.
 *
 * Threading: any thread. A short lock, which no thread keeps over a driver call or together with
 * the pager's. Errors: as the driver would return them.
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

/* Frees in stream order; plain memory of the pager, too. false: ptr is not the pager's. */
bool pools_free(CUdeviceptr ptr, CUstream stream, CUresult *ret_res);

/* The driver has made a pool for the program. true: it is ours. */
bool pools_created(CUmemoryPool handle, const CUmemPoolProps *props);

/*
 * Around the driver's destroy, which may give the handle to another thread at once. begin returns
 * NULL: the pool is not known. Memory in use lives on.
 */
struct pools_pool *pools_destroy_begin(CUmemoryPool handle);
void pools_destroy_end(struct pools_pool *pool, bool is_destroyed);

/* After the driver has agreed. false: the pool is not ours, and the driver's answer stands. */
bool pools_trim(CUmemoryPool handle, uint64_t keep);
bool pools_get_attribute(CUmemoryPool handle, CUmemPool_attribute attr, void *value);
bool pools_set_attribute(CUmemoryPool handle, CUmemPool_attribute attr, const void *value);

/* Lets peer reach the pool's memory, or ends that. It opens all of the pager's on that device. */
CUresult pools_set_access(CUmemoryPool handle, CUdevice peer, bool enable);

/* Call it before the driver destroys the stream: the handle may mean another one afterwards. */
void pools_stream_gone(CUstream stream);

/*
 * Gives free memory whose work is done back to the card. make_room: only if the budget has no room
 * for bytes more. true: there was some.
 */
bool pools_release(CUdevice dev);
void pools_make_room(CUdevice dev, uint64_t bytes);

/* The pager's calls (pager_ops.h), after pools_join_pager(). */
void pools_block_free(struct pools_block *block);
void pools_context_gone(CUcontext ctx);
void pools_join_pager(void);

void pools_after_fork_child(void);

#endif
