/* SPDX-License-Identifier: Apache-2.0 */

/* Host memory for bytes that move out: taken ahead, and given back to others. */

#include "hook/pager/pager.h"
#include "hook/pager/pager_copy.h"
#include "hook/pager/pager_ops.h"
#include "hook/pager/pager_private.h"

#include "hook/gate/bell.h"
#include "hook/pager/backend.h"
#include "hook/table/cuda_real.h"

/* Clean copies are given up so many bytes at a time: they are worth a copy each. */
#define GIVE_BYTES (1ull << 30)

/* Registering host memory needs a context; the caller need not have one current. */
static bool host_enter_any(CUdevice dev, bool *ret_pushed)
{
	struct pager_range *range;
	CUcontext ctx = NULL;

	*ret_pushed = false;
	if (cuda_real.cuCtxGetCurrent(&ctx) == CUDA_SUCCESS && ctx)
		return true;
	hook_lock(&pager.lock);
	for (range = pager.devices[dev].ranges; range && !ctx; range = range->next)
		ctx = range->ctx;
	hook_unlock(&pager.lock);
	return ctx && pager_push(ctx, ret_pushed) == CUDA_SUCCESS;
}

uint64_t pager_give_host_memory(CUdevice dev)
{
	uint64_t bytes;
	bool pushed;

	if (!pager_device(dev) || !host_enter_any(dev, &pushed))
		return 0;
	bytes = hostpool_give_some();
	if (!bytes) {
		(void)pager_copies_drop(dev, GIVE_BYTES);
		bytes = hostpool_give_some();
	}
	pager_pop(pushed);
	return bytes;
}

uint64_t pager_return_slab(CUdevice dev, bool is_wanted)
{
	uint64_t bytes = hostpool_return_one(is_wanted);

	if (bytes || !is_wanted || !pager_device(dev))
		return bytes;
	(void)pager_copies_drop(dev, GIVE_BYTES);
	return hostpool_return_one(is_wanted);
}

/* Managed memory goes into host memory of the driver's. */
static bool host_is_taken(CUdevice dev)
{
	return backend_of(dev) != NVSHARE_BACKEND_MANAGED && pager_device(dev);
}

/*
 * The most that an eviction of so many bytes can take from the pool. A chunk that came back keeps
 * the host memory of its copy (pager_copy.h), and goes out into the same again.
 */
static uint64_t host_needed(CUdevice dev, uint64_t bytes)
{
	uint64_t without = 0;

	hook_lock(&pager.lock);
	for (const struct pager_range *range = pager.devices[dev].ranges; range;
	     range = range->next) {
		for (size_t i = 0; i < range->n_chunks; i++) {
			const struct pager_chunk *chunk = &range->chunks[i];

			if ((chunk->state == PAGER_RESIDENT || chunk->state == PAGER_BUSY) &&
			    !chunk->host && !chunk->is_pinned)
				without += chunk->size;
		}
	}
	hook_unlock(&pager.lock);
	return bytes < without ? bytes : without;
}

void pager_touch(CUdevice dev, uint64_t bytes)
{
	if (host_is_taken(dev))
		hostpool_touch(host_needed(dev, bytes), bell_ring);
}

void pager_prepare(CUdevice dev, uint64_t bytes, bool is_urgent)
{
	bool pushed;

	/*
	 * A client waits, and memory that nobody uses need not move. A free would wait for a copy
	 * that hangs, which this thread alone finds to have ended.
	 */
	if (!pager_mover_is_any_hung())
		(void)pager_pools()->release(dev);
	if (!host_is_taken(dev) || !host_enter_any(dev, &pushed))
		return;
	if (bytes)
		hostpool_begin(host_needed(dev, bytes), is_urgent, bell_ring);
	else
		hostpool_trim();
	pager_pop(pushed);
}
