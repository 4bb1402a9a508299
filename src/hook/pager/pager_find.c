/* SPDX-License-Identifier: Apache-2.0 */

/* Finds the memory that an address lies in, and keeps it where it is. */

#include "hook/pager/pager.h"

#include "hook/pager/pager_private.h"

#include "hook/gate/gate.h"
#include "util/clock.h"

#include <stdlib.h>

struct pager_alloc *pager_alloc_at(CUdeviceptr ptr)
{
	struct pager_alloc *alloc = pager.allocs.rbh_root, *best = NULL;

	while (alloc) {
		if (alloc->addr <= ptr) {
			best = alloc;
			alloc = alloc->link.rbe_right;
		} else {
			alloc = alloc->link.rbe_left;
		}
	}
	return best && ptr - best->addr < best->size ? best : NULL;
}

struct pager_range *pager_range_at(CUdeviceptr ptr)
{
	struct pager_range *range = pager.ranges.rbh_root, *best = NULL;

	while (range) {
		if (range->addr <= ptr) {
			best = range;
			range = range->by_addr.rbe_right;
		} else {
			range = range->by_addr.rbe_left;
		}
	}
	return best && ptr - best->addr < best->size ? best : NULL;
}

bool pager_owns(CUdeviceptr ptr)
{
	bool is_ours;

	hook_lock(&pager.lock);
	is_ours = pager_range_at(ptr) != NULL;
	hook_unlock(&pager.lock);
	return is_ours;
}

bool pager_is_gap(CUdeviceptr ptr, uint64_t size)
{
	struct pager_alloc *alloc;
	bool is_gap;

	hook_lock(&pager.lock);
	alloc = pager_alloc_at(ptr);
	if (alloc)
		is_gap = size > alloc->addr + alloc->size - ptr;
	else
		is_gap = pager_range_at(ptr) != NULL;
	hook_unlock(&pager.lock);
	return is_gap;
}

bool pager_find(CUdeviceptr ptr, CUdeviceptr *ret_base, size_t *ret_size, CUcontext *ret_ctx,
		CUdevice *ret_dev, uint64_t *ret_buffer_id)
{
	struct pager_alloc *alloc;

	hook_lock(&pager.lock);
	alloc = pager_alloc_at(ptr);
	if (alloc) {
		if (ret_base)
			*ret_base = alloc->addr;
		if (ret_size)
			*ret_size = alloc->size;
		if (ret_ctx)
			*ret_ctx = alloc->block ? NULL : alloc->ctx;
		if (ret_dev)
			*ret_dev = alloc->dev;
		if (ret_buffer_id)
			*ret_buffer_id = alloc->id;
	}
	hook_unlock(&pager.lock);
	return alloc != NULL;
}

bool pager_pool(CUdeviceptr ptr, CUmemoryPool *ret_pool)
{
	struct pager_alloc *alloc;

	hook_lock(&pager.lock);
	alloc = pager_alloc_at(ptr);
	if (alloc)
		*ret_pool = alloc->pool;
	hook_unlock(&pager.lock);
	return alloc != NULL;
}

bool pager_sync_memops(CUdeviceptr ptr, bool *ret_on)
{
	struct pager_alloc *alloc;

	hook_lock(&pager.lock);
	alloc = pager_alloc_at(ptr);
	if (alloc)
		*ret_on = alloc->sync_memops;
	hook_unlock(&pager.lock);
	return alloc != NULL;
}

bool pager_set_sync_memops(CUdeviceptr ptr, bool on)
{
	struct pager_alloc *alloc;

	hook_lock(&pager.lock);
	alloc = pager_alloc_at(ptr);
	if (alloc)
		alloc->sync_memops = on;
	hook_unlock(&pager.lock);
	return alloc != NULL;
}

/* Memory that was freed meanwhile counts as held. Lock held. */
static bool range_try_hold(const struct pager_hold *hold)
{
	struct pager_chunk *chunks = hold->range->chunks;

	for (size_t i = hold->first; i < hold->end; i++) {
		while (chunks[i].state == PAGER_BUSY)
			hook_wait(&pager.changed, &pager.lock);
		if (chunks[i].state != PAGER_SWAPPED) {
			chunks[i].n_holds++;
			continue;
		}
		while (i-- > hold->first)
			chunks[i].n_holds--;
		return false;
	}
	return true;
}

bool pager_hold(CUdeviceptr ptr, size_t size, struct pager_hold *ret_hold)
{
	struct pager_hold hold = {0};
	struct pager_alloc *alloc;
	uint64_t offset, rest;

	hook_lock(&pager.lock);
	alloc = pager_alloc_at(ptr);
	if (alloc)
		hold.range = alloc->range ? alloc->range : pager_range_at(ptr);
	if (!hold.range) {
		hook_unlock(&pager.lock);
		return false;
	}
	pager_range_ref(hold.range);
	offset = ptr - hold.range->addr;
	rest = hold.range->size - offset;
	hold.first = offset / hold.range->chunk_size;
	hold.end = (offset + (size < rest ? size : rest) + hold.range->chunk_size - 1) /
		   hold.range->chunk_size;
	while (!range_try_hold(&hold)) {
		hook_unlock(&pager.lock);
		gate_leave(); /* threads that wait there get it brought in */
		hook_lock(&pager.lock);
		(void)hook_wait_until(&pager.changed, &pager.lock,
				      clock_now_ns() + PAGER_LOOK_AGAIN_NS);
		hook_unlock(&pager.lock);
		gate_enter();
		hook_lock(&pager.lock);
	}
	hook_unlock(&pager.lock);
	*ret_hold = hold;
	return true;
}

/* Held memory stays, but another thread may be opening it to a peer. Lock held. */
static void range_wait_for_workers(const struct pager_hold *hold)
{
	const struct pager_chunk *chunks = hold->range->chunks;
	size_t i = hold->first;

	while (i < hold->end) {
		if (chunks[i].state == PAGER_BUSY) {
			hook_wait(&pager.changed, &pager.lock);
			i = hold->first; /* free memory may be in use by now */
		} else {
			i++;
		}
	}
}

void pager_unhold(const struct pager_hold *hold, bool is_pinned)
{
	CUdevice dev = hold->range->dev;
	uint64_t bytes = 0;

	hook_lock(&pager.lock);
	if (is_pinned)
		range_wait_for_workers(hold);
	for (size_t i = hold->first; i < hold->end; i++) {
		struct pager_chunk *chunk = &hold->range->chunks[i];

		chunk->n_holds--;
		chunk->is_pinned_to_share = chunk->is_pinned_to_share && !is_pinned;
		if (!is_pinned || chunk->is_pinned || chunk->state != PAGER_RESIDENT)
			continue;
		chunk->is_pinned = true;
		bytes += chunk->size;
	}
	if (bytes)
		budget_pin(dev, bytes, NVSHARE_PINNED_PLAIN);
	hook_unlock(&pager.lock);
	pager_range_unref(hold->range);
}

/*
 * A chunk that a thread works on is being made or freed, so no other has it. A chunk that is out
 * has no mapping to register. It counts under the lock, because a free gives back the kind that it
 * counts as.
 */
static void range_pin(struct pager_range *range)
{
	uint64_t bytes = 0;

	hook_lock(&pager.lock);
	for (size_t i = 0; i < range->n_chunks; i++) {
		struct pager_chunk *chunk = &range->chunks[i];

		chunk->is_pinned_to_share = false;
		if (chunk->is_pinned || chunk->state != PAGER_RESIDENT)
			continue;
		chunk->is_pinned = true;
		bytes += chunk->size;
	}
	if (bytes)
		budget_pin(range->dev, bytes, range->ops->pinned_kind);
	hook_unlock(&pager.lock);
}

void pager_pin_all(CUdevice dev)
{
	struct pager_range **ranges;
	size_t n;

	/* The rest is pinned when this is asked for again. */
	if (!pager_device(dev) || !pager_ranges(dev, &ranges, &n))
		return;
	for (size_t i = 0; i < n; i++) {
		range_pin(ranges[i]);
		pager_range_unref(ranges[i]);
	}
	free(ranges);
}
