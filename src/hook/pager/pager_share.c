/* SPDX-License-Identifier: Apache-2.0 */
#include "hook/pager/pager_share.h"

#include "hook/base/hook_log.h"
#include "hook/pager/pager.h"
#include "hook/pager/pager_private.h"
#include "hook/pager/transfer.h"
#include "hook/table/cuda_real.h"

bool pager_is_shareable(CUdevice dev)
{
	const struct pager_device *device = pager_device(dev);

	return device && __atomic_load_n(&device->is_exportable, __ATOMIC_RELAXED);
}

/* Of a live allocation, or NULL. Lock held. */
static struct pager_range *share_range(const struct pager_alloc *alloc)
{
	if (!alloc || alloc->block)
		return NULL;
	return alloc->range ? alloc->range : pager_range_at(alloc->addr);
}

/* Lock held. */
static bool share_describe(CUdeviceptr ptr, struct pager_shared *ret)
{
	const struct pager_alloc *alloc = pager_alloc_at(ptr);
	const struct pager_range *range = share_range(alloc);
	size_t first, end, rest;

	if (!range)
		return false;
	first = (alloc->addr - range->addr) / range->chunk_size;
	end = (alloc->addr - range->addr + alloc->size + range->chunk_size - 1) / range->chunk_size;
	rest = range->size - first * range->chunk_size;
	*ret = (struct pager_shared){
		.base = alloc->addr,
		.bytes = alloc->size,
		.id = alloc->id,
		.ctx = alloc->ctx,
		.dev = alloc->dev,
		.addr = range->addr + first * range->chunk_size,
		.size = (end - first) * range->chunk_size,
		.chunk_size = range->chunk_size,
		.n_chunks = end - first,
	};
	if (ret->size > rest)
		ret->size = rest;
	return true;
}

/* Lock held, and given back meanwhile. NULL: the allocation is gone, or has no such chunk. */
static struct pager_chunk *share_chunk(const struct pager_shared *shared, size_t i)
{
	for (;;) {
		const struct pager_alloc *alloc = pager_alloc_at(shared->base);
		struct pager_range *range = share_range(alloc);
		struct pager_chunk *chunk;

		if (!range || alloc->id != shared->id || i >= shared->n_chunks)
			return NULL;
		chunk = &range->chunks[(shared->addr - range->addr) / range->chunk_size + i];
		if (chunk->state != PAGER_BUSY)
			return chunk;
		hook_wait(&pager.changed, &pager.lock);
	}
}

static void share_pin(const struct pager_shared *shared, bool is_for_good)
{
	struct pager_chunk *chunk;
	uint64_t bytes = 0;

	hook_lock(&pager.lock);
	for (size_t i = 0; (chunk = share_chunk(shared, i)); i++) {
		chunk->is_shared = true;
		chunk->is_pinned_to_share = chunk->is_pinned_to_share && !is_for_good;
		if (chunk->is_pinned || chunk->state != PAGER_RESIDENT)
			continue;
		chunk->is_pinned = true;
		chunk->is_pinned_to_share = !is_for_good;
		bytes += chunk->size;
	}
	if (bytes)
		budget_pin(shared->dev, bytes, pager_chunk_ops.pinned_kind);
	hook_unlock(&pager.lock);
}

void pager_share_pin(const struct pager_shared *shared)
{
	share_pin(shared, false);
}

void pager_share_pin_for_good(const struct pager_shared *shared)
{
	share_pin(shared, true);
}

void pager_share_unpin(const struct pager_shared *shared)
{
	struct pager_chunk *chunk;
	uint64_t bytes = 0;

	hook_lock(&pager.lock);
	for (size_t i = 0; (chunk = share_chunk(shared, i)); i++) {
		if (!chunk->is_pinned_to_share)
			continue;
		chunk->is_pinned_to_share = false;
		chunk->is_pinned = false;
		bytes += chunk->size;
	}
	if (bytes)
		budget_unpin(shared->dev, bytes, pager_chunk_ops.pinned_kind);
	hook_unlock(&pager.lock);
}

bool pager_share_is_in(const struct pager_shared *shared)
{
	const struct pager_chunk *chunk;
	bool is_in = true;

	hook_lock(&pager.lock);
	for (size_t i = 0; is_in && (chunk = share_chunk(shared, i)); i++)
		is_in = chunk->state == PAGER_RESIDENT;
	hook_unlock(&pager.lock);
	return is_in;
}

bool pager_share(CUdeviceptr ptr, struct pager_shared *ret)
{
	struct pager_hold hold;
	bool is_there;

	hook_lock(&pager.lock);
	is_there = share_describe(ptr, ret);
	hook_unlock(&pager.lock);
	if (!is_there || !pager_hold(ret->base, ret->bytes, &hold))
		return false;
	share_pin(ret, false);
	pager_unhold(&hold, false);
	return true;
}

/*
 * The chunk, busy, so that a thread that frees it waits. NULL: the allocation is gone, or its
 * memory is out. The range stays as long as it has a busy chunk.
 */
static struct pager_chunk *share_claim(const struct pager_shared *shared, size_t i)
{
	struct pager_chunk *chunk;

	hook_lock(&pager.lock);
	chunk = share_chunk(shared, i);
	if (chunk && (chunk->state != PAGER_RESIDENT || !chunk->is_shared))
		chunk = NULL;
	if (chunk)
		chunk->state = PAGER_BUSY;
	hook_unlock(&pager.lock);
	return chunk;
}

int pager_share_chunk(const struct pager_shared *shared, size_t i)
{
	struct pager_chunk *chunk = share_claim(shared, i);
	CUresult res = CUDA_SUCCESS;
	int fd = -1;

	if (!chunk)
		return -1;
	if (chunk->kept)
		fd = transfer_copy_kept(chunk->kept);
	else if (chunk->is_exportable)
		res = cuda_real.cuMemExportToShareableHandle(
			&fd, chunk->handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
	pager_chunk_set(chunk, PAGER_RESIDENT);
	if (res == CUDA_SUCCESS)
		return fd;
	hook_debug("memory could not be shared: error %d", (int)res);
	return -1;
}
