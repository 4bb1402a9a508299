/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Copies ahead of an eviction, of a program that is idle. The gate is closed and all work has
 * ended, so the memory does not change. The copies go in pieces, so that whoever needs the bus
 * waits for one piece at the most.
 */

#include "hook/pager/pager.h"
#include "hook/pager/pager_copy.h"
#include "hook/pager/pager_plan.h"

#include "core/u64.h"
#include "hook/base/hook_options.h"
#include "hook/gate/bell.h"
#include "hook/gate/gate.h"
#include "hook/pager/backend.h"
#include "hook/table/cuda_real.h"

#define PIECE_BYTES (32ull << 20) /* 0.6 ms of the bus */

/* Host memory is made ready for so many bytes at a time, or for one larger chunk. */
#define READY_BYTES (2ull << 30)

/* Lock held. */
static bool chunk_is_wanted(const struct pager_chunk *chunk)
{
	return chunk->state == PAGER_RESIDENT && !chunk->is_pinned && !chunk->is_shared &&
	       !chunk->n_holds && !chunk->is_blank && !chunk->hung_in &&
	       !pager_copy_is_fresh(chunk);
}

/*
 * Lock held. Bytes that lack a fresh copy, among them the host memory that is missing, and the
 * least of it that a chunk takes.
 */
static uint64_t device_lacks(const struct pager_device *device, uint64_t *ret_host,
			     uint64_t *ret_least)
{
	uint64_t bytes = 0;

	*ret_host = 0;
	*ret_least = UINT64_MAX;
	for (const struct pager_range *range = device->ranges; range; range = range->next) {
		for (size_t i = 0; i < range->n_chunks; i++) {
			const struct pager_chunk *chunk = &range->chunks[i];

			if (!chunk_is_wanted(chunk))
				continue;
			bytes += chunk->size;
			if (chunk->host)
				continue;
			*ret_host += chunk->size;
			*ret_least = u64_min(*ret_least, chunk->size);
		}
	}
	return bytes;
}

/*
 * Takes a chunk that lacks a fresh copy, with a reference to its range: one that is half copied,
 * else one that has host memory, else one for which there is some. NULL: none.
 */
static struct pager_chunk *chunk_choose(CUdevice dev, uint64_t unused)
{
	struct pager_chunk *best = NULL;
	int best_rank = -1;

	hook_lock(&pager.lock);
	for (struct pager_range *range = pager.devices[dev].ranges; range; range = range->next) {
		for (size_t i = 0; i < range->n_chunks; i++) {
			struct pager_chunk *chunk = &range->chunks[i];
			bool is_begun = chunk->copied && chunk->stamp == gate_openings();
			int rank = !chunk->host ? 0 : is_begun ? 2 : 1;

			if (!chunk_is_wanted(chunk) || rank <= best_rank ||
			    (rank == 0 && chunk->size > unused))
				continue;
			best = chunk;
			best_rank = rank;
		}
	}
	if (best) {
		pager_range_ref(best->range);
		best->state = PAGER_BUSY;
	}
	hook_unlock(&pager.lock);
	return best;
}

/* A half-copied chunk goes on; else its digests are taken first. false: the GPU hangs. */
static bool chunk_begin(struct pager_mover *mover, struct pager_batch *batch)
{
	struct pager_chunk *chunk = batch->chunks[0];

	if (chunk->copied && chunk->stamp == gate_openings())
		return true;
	if (!pager_batch_digest(batch, mover))
		return false;
	pager_copy_begin(chunk, batch->digests[0]);
	return true;
}

/* One piece, whose copy is awaited. */
static CUresult chunk_copy_piece(struct pager_mover *mover, struct pager_chunk *chunk,
				 uint64_t *ret_bytes)
{
	CUresult res = pager_chunk_reach(chunk);

	*ret_bytes = 0;
	if (res == CUDA_SUCCESS)
		res = pager_copy_some(chunk, mover->stream, PIECE_BYTES, ret_bytes);
	if (res == CUDA_SUCCESS)
		res = pager_mover_settle(mover);
	if (res == CUDA_SUCCESS && chunk->copied == chunk->size)
		pager_copy_end(chunk);
	return res;
}

/* The chunk is as if it had never been copied. A copy may still land in its host memory. */
static void chunk_fail(struct pager_mover *mover, struct pager_chunk *chunk, CUresult res)
{
	if (res != CUDA_ERROR_NOT_READY)
		res = pager_mover_settle(mover);
	pager_copy_forget(chunk);
	if (res == CUDA_ERROR_NOT_READY)
		pager_mover_park(mover, chunk, chunk->host);
	else
		hostpool_put(chunk->host);
	chunk->host = NULL;
}

/* batch holds the one chunk, and lets it go when this is over. */
static enum pager_ahead ahead_piece(CUdevice dev, struct pager_batch *batch)
{
	struct pager_chunk *chunk = batch->chunks[0];
	struct pager_mover *mover = pager_mover();
	CUresult res = CUDA_SUCCESS;
	uint64_t bytes = 0;

	if (!mover || mover->is_hung)
		return PAGER_AHEAD_DONE;
	if (!chunk->host)
		chunk->host = hostpool_get(chunk->size);
	if (!chunk->host)
		return PAGER_AHEAD_LATER;
	if (!chunk_begin(mover, batch))
		return PAGER_AHEAD_DONE;
	res = chunk_copy_piece(mover, chunk, &bytes);
	if (res != CUDA_SUCCESS) {
		chunk_fail(mover, chunk, res);
		return PAGER_AHEAD_DONE;
	}
	hook_lock(&pager.lock);
	pager.devices[dev].copied_ahead += bytes;
	hook_unlock(&pager.lock);
	return PAGER_AHEAD_MORE;
}

enum pager_ahead pager_copy_ahead(CUdevice dev)
{
	struct pager_batch batch = {.n = 1};
	struct pager_range *range;
	enum pager_ahead more;
	uint64_t bytes, host, least;

	if (!hook_options()->clean || backend_of(dev) == NVSHARE_BACKEND_MANAGED ||
	    !pager_device(dev) || pager_mover_is_any_hung())
		return PAGER_AHEAD_DONE;
	hook_lock(&pager.lock);
	bytes = device_lacks(&pager.devices[dev], &host, &least);
	hook_unlock(&pager.lock);
	if (!bytes)
		return PAGER_AHEAD_DONE;
	host = u64_min(host, u64_max(READY_BYTES, least));
	if (host)
		hostpool_begin(host, false, bell_ring);
	batch.chunks[0] = chunk_choose(dev, hostpool_unused());
	if (!batch.chunks[0])
		return hostpool_lacks(host) ? PAGER_AHEAD_DONE : PAGER_AHEAD_LATER;
	range = batch.chunks[0]->range;
	more = ahead_piece(dev, &batch);
	pager_batch_drop(&batch);
	pager_range_unref(range);
	return more;
}

void pager_drop_copies(CUdevice dev)
{
	if (pager_device(dev))
		(void)pager_copies_drop(dev, UINT64_MAX);
}
