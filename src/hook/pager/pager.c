/* SPDX-License-Identifier: Apache-2.0 */

#include "hook/pager/pager.h"

#include "hook/pager/pager_ops.h"
#include "hook/pager/pager_private.h"

#include "hook/gate/device.h"
#include "hook/gate/gate.h"
#include "hook/memory/charge.h"
#include "hook/memory/ledger.h"
#include "hook/memory/vmm.h"
#include "hook/pager/managed.h"
#include "hook/pager/pager_context.h"
#include "hook/pager/pager_vmm.h"
#include "hook/pager/peer.h"
#include "hook/pager/transfer.h"
#include "hook/table/cuda_real.h"

#include <stdlib.h>

/* Far from the driver's own identifiers, which count up from 1. */
#define PAGER_FIRST_ID (1ull << 48)

struct pager pager = {
	.lock = HOOK_MUTEX(HOOK_LOCK_PAGER),
	.changed = PTHREAD_COND_INITIALIZER,
	.last_id = PAGER_FIRST_ID,
};

static int alloc_compare(struct pager_alloc *a, struct pager_alloc *b)
{
	return a->addr < b->addr ? -1 : a->addr > b->addr;
}

/* cppcheck-suppress unknownMacro */
RBTREE_GENERATE(pager_tree, pager_alloc, link, alloc_compare)

/* Lock held. Once it is added, another thread may end its context, and with it the alloc. */
static void alloc_add(struct pager_alloc *alloc)
{
	alloc->id = ++pager.last_id;
	RB_INSERT(pager_tree, &pager.allocs, alloc);
}

static struct pager_arena *arena_get(CUdevice dev, CUcontext ctx)
{
	struct pager_arena *arena;

	for (arena = pager.arenas; arena; arena = arena->next) {
		if (arena->ctx == ctx && arena->dev == dev)
			return arena;
	}
	arena = calloc(1, sizeof(*arena));
	if (!arena)
		return NULL;
	arena->ctx = ctx;
	arena->dev = dev;
	extent_init(&arena->extent);
	arena->next = pager.arenas;
	pager.arenas = arena;
	return arena;
}

/* A place in a shared range. Lock held. */
static int arena_place(struct pager_arena *arena, struct pager_alloc *alloc, CUdeviceptr *ret_ptr)
{
	struct pager_range *range;
	uint64_t addr;
	int r = extent_alloc(&arena->extent, alloc->size, &addr);

	if (r)
		return r;
	range = arena->spare;
	if (range && addr - range->addr < range->size)
		arena->spare = NULL;
	alloc->arena = arena;
	alloc->addr = *ret_ptr = addr;
	alloc_add(alloc);
	return 0;
}

/* Twice the size so far, within bounds, so that few chunks hold many allocations. */
static size_t arena_next_size(const struct pager_arena *arena, size_t granularity)
{
	uint64_t have = arena->extent.bytes_used + arena->extent.bytes_free;
	size_t size = granularity;

	while (size < PAGER_SHARED_MAX && size < have)
		size *= 2;
	return size;
}

/*
 * Adds range to the arena and places alloc, which may land elsewhere: another thread may
 * have freed or added a range meanwhile. Then range is the arena's spare, or goes again.
 */
static int arena_add_and_place(struct pager_arena *arena, struct pager_range *range, bool may_keep,
			       struct pager_alloc *alloc, CUdeviceptr *ret_ptr)
{
	bool is_needed = false;
	int r;

	hook_lock(&pager.lock);
	r = extent_add(&arena->extent, range->addr, range->size);
	if (r == 0) {
		r = arena_place(arena, alloc, ret_ptr);
		is_needed = r == 0 && *ret_ptr - range->addr < range->size;
		if (!is_needed && may_keep && !arena->spare && !arena->is_dead) {
			arena->spare = range;
			is_needed = true;
		}
		if (!is_needed)
			(void)extent_remove(&arena->extent, range->addr);
	}
	hook_unlock(&pager.lock);
	if (!is_needed)
		pager_range_free(range);
	return r;
}

static void arena_free(struct pager_arena *arena)
{
	extent_deinit(&arena->extent);
	free(arena);
}

/* Nothing will come to it or be given back. Lock held. */
static bool arena_is_over(const struct pager_arena *arena)
{
	return arena->is_dead && !arena->n_users && !arena->extent.n_used;
}

/* No range of the arena has room. The caller is one of its users. */
static CUresult arena_grow(struct pager_arena *arena, size_t size, size_t granularity,
			   struct pager_alloc *alloc, CUdeviceptr *ret_ptr)
{
	struct pager_range *range;
	int r = EXTENT_E_FULL;

	while (r == EXTENT_E_FULL) {
		CUresult res = pager_range_new(alloc->dev, alloc->ctx, arena, size, &range);

		if (res == CUDA_ERROR_OUT_OF_MEMORY && size > granularity) {
			size = granularity;
			continue;
		}
		if (res != CUDA_SUCCESS)
			return res;
		r = arena_add_and_place(arena, range, size == granularity, alloc, ret_ptr);
	}
	return r == 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult alloc_small(struct pager_device *device, struct pager_alloc *alloc,
			    CUdeviceptr *ret_ptr)
{
	CUresult res = CUDA_ERROR_OUT_OF_MEMORY;
	struct pager_arena *arena;
	bool is_last;
	size_t size = 0;
	int r = -1;

	hook_lock(&pager.lock);
	arena = arena_get(alloc->dev, alloc->ctx);
	if (arena) {
		r = arena_place(arena, alloc, ret_ptr);
		size = arena_next_size(arena, device->granularity);
		arena->n_users += r == EXTENT_E_FULL;
	}
	hook_unlock(&pager.lock);
	if (r != EXTENT_E_FULL)
		return r == 0 ? CUDA_SUCCESS : res;
	res = arena_grow(arena, size, device->granularity, alloc, ret_ptr);
	hook_lock(&pager.lock);
	arena->n_users--;
	is_last = arena_is_over(arena);
	hook_unlock(&pager.lock);
	if (is_last)
		arena_free(arena);
	return res;
}

static CUresult alloc_large(struct pager_device *device, struct pager_alloc *alloc,
			    CUdeviceptr *ret_ptr)
{
	size_t mask = device->granularity - 1;
	CUresult res;

	if (alloc->size > SIZE_MAX - mask)
		return CUDA_ERROR_OUT_OF_MEMORY;
	res = pager_range_new(alloc->dev, alloc->ctx, NULL, (alloc->size + mask) & ~mask,
			      &alloc->range);
	if (res != CUDA_SUCCESS)
		return res;
	alloc->addr = *ret_ptr = alloc->range->addr;
	hook_lock(&pager.lock);
	alloc_add(alloc);
	hook_unlock(&pager.lock);
	return CUDA_SUCCESS;
}

CUresult pager_alloc(CUdevice dev, CUcontext ctx, size_t bytes, CUdeviceptr *ret_ptr)
{
	struct pager_device *device = pager_device(dev);
	struct pager_alloc *alloc;
	CUdeviceptr ptr;
	uint64_t total;
	CUresult res;

	if (__atomic_load_n(&pager.put_off, __ATOMIC_RELAXED))
		pager_flush_frees();
	total = budget_total(dev);
	if (total && bytes > total)
		return CUDA_ERROR_OUT_OF_MEMORY;
	res = budget_ask(dev, bytes);
	if (res != CUDA_SUCCESS)
		return res;
	alloc = calloc(1, sizeof(*alloc));
	if (!alloc) {
		res = CUDA_ERROR_OUT_OF_MEMORY;
		goto out;
	}
	alloc->ctx = ctx;
	alloc->dev = dev;
	alloc->size = bytes;
	alloc->sync_memops = true; /* as plain memory says, seen on 580 */
	if (bytes < PAGER_LARGE)
		res = alloc_small(device, alloc, &ptr);
	else
		res = alloc_large(device, alloc, &ptr);
out:
	if (res != CUDA_SUCCESS) {
		free(alloc);
		budget_allocated(dev, -(int64_t)bytes);
		return res;
	}
	*ret_ptr = ptr;
	return CUDA_SUCCESS;
}

/* Takes a small one's bytes back; the range that is to go with it, or NULL. Lock held. */
static struct pager_range *arena_unplace(struct pager_alloc *alloc)
{
	struct pager_arena *arena = alloc->arena;
	struct extent_region region;
	struct pager_range *range;

	if (extent_free(&arena->extent, alloc->addr, &region) != 0 || !region.is_empty)
		return NULL;
	range = pager_range_at(region.addr);
	if (!range)
		return NULL;
	if (!arena->spare && !arena->is_dead &&
	    range->size == pager.devices[arena->dev].granularity) {
		arena->spare = range;
		return NULL;
	}
	(void)extent_remove(&arena->extent, region.addr);
	return range;
}

void pager_add(struct pager_alloc *alloc)
{
	hook_lock(&pager.lock);
	alloc_add(alloc);
	hook_unlock(&pager.lock);
}

void pager_release(struct pager_alloc *alloc)
{
	struct pager_range *range = alloc->range;
	bool is_last = false;

	if (alloc->block) {
		pager_pools()->block_free(alloc->block);
		return;
	}
	if (alloc->arena) {
		hook_lock(&pager.lock);
		range = arena_unplace(alloc);
		is_last = arena_is_over(alloc->arena);
		hook_unlock(&pager.lock);
	}
	if (range)
		pager_range_free(range);
	if (is_last)
		arena_free(alloc->arena);
	free(alloc);
}

static bool res_is_capture_error(CUresult res)
{
	return res >= CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED &&
	       res <= CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
}

bool pager_settle_context(CUcontext ctx, CUresult *ret_res)
{
	struct device_context *held;
	CUresult res;
	bool pushed;

	if (!gate_bar_captures())
		return false;
	if (!device_context_hold_this(ctx, &held)) {
		gate_allow_captures();
		return false;
	}
	res = pager_push(ctx, &pushed);
	if (res == CUDA_SUCCESS) {
		res = cuda_real.cuCtxSynchronize();
		pager_pop(pushed);
	} else {
		res = CUDA_SUCCESS; /* no such context any more: nothing runs in it */
	}
	device_context_drop(held);
	gate_allow_captures();
	if (res_is_capture_error(res))
		return false;
	*ret_res = res;
	return true;
}

static void alloc_put_off(struct pager_alloc *alloc)
{
	hook_lock(&pager.lock);
	alloc->next = pager.put_off;
	__atomic_store_n(&pager.put_off, alloc, __ATOMIC_RELAXED);
	hook_unlock(&pager.lock);
}

/* Freed memory is not found again, so the driver refuses a second free itself. */
bool pager_take(CUdeviceptr ptr, struct pager_alloc **ret_alloc)
{
	struct pager_alloc *alloc;
	bool is_ours;

	hook_lock(&pager.lock);
	alloc = pager_alloc_at(ptr);
	is_ours = alloc != NULL;
	if (alloc && alloc->addr == ptr)
		RB_REMOVE(pager_tree, &pager.allocs, alloc);
	else
		alloc = NULL;
	hook_unlock(&pager.lock);
	*ret_alloc = alloc;
	return is_ours;
}

bool pager_free(CUdeviceptr ptr, CUresult *ret_res)
{
	struct pager_alloc *alloc;

	if (!pager_take(ptr, &alloc))
		return false;
	if (!alloc) {
		*ret_res = CUDA_ERROR_INVALID_VALUE;
		return true;
	}

	budget_allocated(alloc->dev, -(int64_t)alloc->size);
	*ret_res = CUDA_SUCCESS;
	if (pager_settle_context(alloc->ctx, ret_res))
		pager_release(alloc);
	else
		alloc_put_off(alloc);
	return true;
}

void pager_flush_frees(void)
{
	struct pager_alloc *list, *next;
	CUcontext synced = NULL;
	CUresult res;

	if (gate_capture_open())
		return;
	hook_lock(&pager.lock);
	list = pager.put_off;
	__atomic_store_n(&pager.put_off, NULL, __ATOMIC_RELAXED);
	hook_unlock(&pager.lock);
	for (; list; list = next) {
		next = list->next;
		if (list->ctx != synced && !pager_settle_context(list->ctx, &res)) {
			alloc_put_off(list);
			continue;
		}
		synced = list->ctx;
		pager_release(list);
	}
}

/* Takes all allocations of the dead context out of the books in one go. */
static void context_take(CUcontext ctx, struct pager_alloc **ret_allocs,
			 struct pager_arena **ret_arenas)
{
	struct pager_alloc *alloc, *next, **off;
	struct pager_arena **arena, *a;

	RB_FOREACH_SAFE(alloc, pager_tree, &pager.allocs, next)
	{
		if (alloc->ctx != ctx)
			continue;
		RB_REMOVE(pager_tree, &pager.allocs, alloc);
		alloc->next = *ret_allocs;
		*ret_allocs = alloc;
	}
	for (off = &pager.put_off; (alloc = *off);) {
		if (alloc->ctx != ctx) {
			off = &alloc->next;
			continue;
		}
		__atomic_store_n(off, alloc->next, __ATOMIC_RELAXED);
		alloc->size = 0; /* given back when the program freed it */
		alloc->next = *ret_allocs;
		*ret_allocs = alloc;
	}
	for (arena = &pager.arenas; (a = *arena);) {
		if (a->ctx != ctx) {
			arena = &a->next;
			continue;
		}
		*arena = a->next;
		a->next = *ret_arenas;
		*ret_arenas = a;
	}
}

/* Frees that were put off, or are done by now, may be in the hands of another thread. */
static void arena_end(struct pager_arena *arena)
{
	struct pager_range *spare;
	bool is_last;

	hook_lock(&pager.lock);
	spare = arena->spare;
	if (spare)
		(void)extent_remove(&arena->extent, spare->addr);
	arena->spare = NULL;
	arena->is_dead = true;
	is_last = arena_is_over(arena);
	hook_unlock(&pager.lock);
	if (spare)
		pager_range_free(spare);
	if (is_last)
		arena_free(arena);
}

void pager_context_gone(CUcontext ctx)
{
	struct pager_alloc *allocs = NULL, *next;
	struct pager_arena *arenas = NULL, *arena;

	hook_lock(&pager.lock);
	context_take(ctx, &allocs, &arenas);
	hook_unlock(&pager.lock);
	pager_mover_gone(ctx);
	managed_context_gone(ctx);
	peer_context_gone(ctx);
	ledger_context_gone(ctx, charge_give_back);
	for (; allocs; allocs = next) {
		next = allocs->next;
		budget_allocated(allocs->dev, -(int64_t)allocs->size);
		pager_release(allocs);
	}
	pager_pools()->context_gone(
		ctx); /* before the arenas, since pending memory may be theirs */
	while ((arena = arenas)) {
		arenas = arena->next;
		arena_end(arena);
	}
}

/* The turn waits for the thread that ends the context, which may be refused. */
CUresult pager_context_check(CUcontext ctx)
{
	CUresult res = CUDA_SUCCESS;

	if (device_of(ctx) != DEVICE_ANY)
		return CUDA_SUCCESS;
	device_turn_begin();
	if (device_of(ctx) == DEVICE_ANY) {
		pager_context_gone(ctx);
		res = CUDA_ERROR_CONTEXT_IS_DESTROYED;
	}
	device_turn_end();
	return res;
}

/*
 * The parent's device memory is none of the child's, which has no CUDA until it starts
 * anew, and another thread may have held the lock.
 */
void pager_after_fork_child(void)
{
	hook_mutex_renew(&pager.lock, HOOK_LOCK_PAGER);
	pthread_cond_init(&pager.changed, NULL);
	RB_INIT(&pager.allocs);
	RB_INIT(&pager.ranges);
	pager.put_off = NULL;
	pager.arenas = NULL;
	pager.movers = NULL;
	pager.evictions = NULL;
	pager.n_moves = 0;
	for (CUdevice dev = 0; dev < PAGER_DEVICES; dev++)
		pager.devices[dev] = (struct pager_device){0};
	pager_context_after_fork_child();
	hostpool_after_fork_child();
	managed_after_fork_child();
	pager_vmm_after_fork_child();
	transfer_after_fork_child();
	peer_after_fork_child();
	vmm_after_fork_child();
	ledger_after_fork_child();
	budget_after_fork_child();
}
