/* SPDX-License-Identifier: Apache-2.0 */

#include "hook/pager/managed.h"

#include "hook/base/hook_mutex.h"
#include "hook/base/hook_options.h"
#include "hook/gate/bell.h"
#include "hook/gate/gate.h"
#include "hook/host/hostmem.h"
#include "hook/memory/budget.h"
#include "hook/memory/rbtree.h"
#include "hook/pager/oversub.h"
#include "hook/pager/pager_ops.h"
#include "hook/pager/pager_private.h"
#include "hook/table/cuda_real.h"
#include "util/clock.h"

#include <pthread.h>
#include <stdlib.h>

/* Prefetches take whole blocks of this size, so charges are rounded to it. */
#define MANAGED_ALIGN (64ull << 10)

/* A prefetch can not be called off: pieces of 50 ms, for a process that wants to exit. */
#define MANAGED_PIECE (256ull << 20)

struct managed_block {
	RB_ENTRY(managed_block) link;
	struct managed_block *next; /* in a list being worked on */
	CUdeviceptr addr;
	size_t size;    /* as asked for */
	size_t charged; /* rounded, without the bytes that stay */
	size_t staying; /* behind that: in host memory for good (oversub.h) */
	CUcontext ctx;
	CUdevice dev;
	bool is_busy; /* being moved */
	bool is_gone; /* while it was: its context has ended */
	bool is_out;  /* in host memory */
};

RB_HEAD(managed_tree, managed_block);

static int block_compare(struct managed_block *a, struct managed_block *b)
{
	return a->addr < b->addr ? -1 : a->addr > b->addr;
}

/* cppcheck-suppress unknownMacro */
RBTREE_GENERATE(managed_tree, managed_block, link, block_compare)

/* All under the lock. */
static struct {
	struct hook_mutex lock;
	pthread_cond_t changed; /* a block is not busy any more */
	struct managed_tree blocks;
} managed = {.lock = HOOK_MUTEX(HOOK_LOCK_MANAGED), .changed = PTHREAD_COND_INITIALIZER};

/* Lock held. */
static struct managed_block *block_find(CUdeviceptr ptr)
{
	struct managed_block *block = managed.blocks.rbh_root, *best = NULL;

	while (block) {
		if (block->addr <= ptr) {
			best = block;
			block = block->link.rbe_right;
		} else {
			block = block->link.rbe_left;
		}
	}
	return best && ptr - best->addr < best->size ? best : NULL;
}

bool managed_find(CUdeviceptr ptr)
{
	bool is_found;

	hook_lock(&managed.lock);
	is_found = block_find(ptr) != NULL;
	hook_unlock(&managed.lock);
	return is_found;
}

/* The driver gives more than the card has, and then the card crawls. */
static bool block_fits_card(CUdevice dev)
{
	struct nvshare_mem mem;

	budget_read(dev, &mem);
	return mem.allocated + mem.pinned[NVSHARE_PINNED_CONTEXT] <= budget_total(dev);
}

/* Takes bytes, rounded, for block. */
static CUresult managed_take(CUdevice dev, size_t bytes, struct managed_block *block)
{
	CUresult res;

	block->charged = bytes;
	if (!hook_options()->single_oversub)
		return block_fits_card(dev) ? budget_take(dev, bytes, BUDGET_PAGEABLE)
					    : CUDA_ERROR_OUT_OF_MEMORY;
	res = oversub_take(dev, bytes, &block->charged);
	block->staying = bytes - block->charged;
	return res;
}

/* Bytes from its start that move. */
static size_t block_is_moving(const struct managed_block *block)
{
	return block->staying ? block->charged : block->size;
}

/* Without the advice the GPU would use it, too, but it would come and go, in the way of others. */
static void block_keep_out(const struct managed_block *block)
{
	if (block->staying)
		(void)cuda_real.cuMemAdvise(block->addr + block->charged,
					    block->size - block->charged,
					    CU_MEM_ADVISE_SET_PREFERRED_LOCATION, CU_DEVICE_CPU);
}

static void block_give_back(struct managed_block *block)
{
	if (block->is_out)
		budget_swapped_freed(block->dev, block->charged);
	else
		budget_give(block->dev, block->charged, BUDGET_PAGEABLE);
	oversub_give(block->dev, block->staying);
	budget_allocated(block->dev, -(int64_t)block->size);
	free(block);
}

/* Takes it out of the books. A thread that moves it gives it back in the end. Lock held. */
static void block_forget(struct managed_block *block, struct managed_block **gone)
{
	RB_REMOVE(managed_tree, &managed.blocks, block);
	if (block->is_busy) {
		block->is_gone = true;
		return;
	}
	block->next = *gone;
	*gone = block;
}

static void managed_give_back_all(struct managed_block *gone)
{
	struct managed_block *next;

	for (; gone; gone = next) {
		next = gone->next;
		block_give_back(gone);
	}
}

/* A block that is known there has ended with its context, and is about to be forgotten. */
static void block_add(struct managed_block *block)
{
	struct managed_block *stale, *gone = NULL;

	hook_lock(&managed.lock);
	stale = RB_INSERT(managed_tree, &managed.blocks, block);
	if (stale) {
		block_forget(stale, &gone);
		RB_INSERT(managed_tree, &managed.blocks, block);
	}
	hook_unlock(&managed.lock);
	managed_give_back_all(gone);
}

CUresult managed_alloc(CUdevice dev, CUcontext ctx, size_t bytes, CUdeviceptr *ret_ptr)
{
	size_t charged = (bytes + MANAGED_ALIGN - 1) & ~(size_t)(MANAGED_ALIGN - 1);
	struct budget_tries tries = {0};
	struct managed_block *block;
	CUresult res;

	if (charged < bytes)
		return CUDA_ERROR_OUT_OF_MEMORY;
	res = budget_ask(dev, bytes);
	if (res != CUDA_SUCCESS)
		return res;
	block = calloc(1, sizeof(*block));
	res = block ? managed_take(dev, charged, block) : CUDA_ERROR_OUT_OF_MEMORY;
	if (res != CUDA_SUCCESS)
		goto fail;
	do
		res = cuda_real.cuMemAllocManaged(&block->addr, bytes, CU_MEM_ATTACH_GLOBAL);
	while (res == CUDA_ERROR_OUT_OF_MEMORY &&
	       budget_retry(dev, block->charged, BUDGET_PAGEABLE, &tries) == CUDA_SUCCESS);
	if (res != CUDA_SUCCESS) {
		budget_give(dev, block->charged, BUDGET_PAGEABLE);
		oversub_give(dev, block->staying);
		goto fail;
	}
	block->size = bytes;
	block->ctx = ctx;
	block->dev = dev;
	block_keep_out(block);
	*ret_ptr = block->addr;
	block_add(block);
	return CUDA_SUCCESS;
fail:
	free(block);
	budget_allocated(dev, -(int64_t)bytes);
	return res;
}

bool managed_free(CUdeviceptr ptr, CUresult *ret_res)
{
	struct managed_block *block;

	hook_lock(&managed.lock);
	while ((block = block_find(ptr)) && block->is_busy)
		hook_wait(&managed.changed, &managed.lock);
	if (block && block->addr == ptr)
		RB_REMOVE(managed_tree, &managed.blocks, block);
	hook_unlock(&managed.lock);
	if (!block)
		return false;
	if (block->addr != ptr) {
		*ret_res = CUDA_ERROR_INVALID_VALUE;
		return true;
	}
	*ret_res = cuda_real.cuMemFree_v2(ptr);
	if (*ret_res != CUDA_SUCCESS) { /* still there: a capture forbade it, say */
		hook_lock(&managed.lock);
		RB_INSERT(managed_tree, &managed.blocks, block);
		hook_unlock(&managed.lock);
		return true;
	}
	block_give_back(block);
	return true;
}

/* Claims the next block at or after addr on the wanted side. NULL: there is none. */
static struct managed_block *block_claim(CUdevice dev, CUdeviceptr addr, bool is_out)
{
	struct managed_block key = {.addr = addr}, *block;

	hook_lock(&managed.lock);
	block = RB_NFIND(managed_tree, &managed.blocks, &key);
	while (block &&
	       (block->dev != dev || block->is_out != is_out || block->is_busy || !block->charged))
		block = RB_NEXT(managed_tree, &managed.blocks, block);
	if (block)
		block->is_busy = true;
	hook_unlock(&managed.lock);
	return block;
}

/* false: it has gone meanwhile, so the result does not matter. */
static bool block_unclaim(struct managed_block *block, bool is_out)
{
	bool is_gone;

	hook_lock(&managed.lock);
	block->is_out = is_out;
	block->is_busy = false;
	is_gone = block->is_gone;
	pthread_cond_broadcast(&managed.changed);
	hook_unlock(&managed.lock);
	if (is_gone)
		block_give_back(block);
	return !is_gone;
}

static CUresult block_advise(const struct managed_block *block, bool to_host)
{
	return cuda_real.cuMemAdvise(block->addr, block_is_moving(block),
				     to_host ? CU_MEM_ADVISE_SET_PREFERRED_LOCATION
					     : CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION,
				     CU_DEVICE_CPU);
}

/*
 * Prefetches piece by piece. Behind a piece that hangs it submits all others, and waits for none.
 * ret_begun: bytes that may have moved. CUDA_ERROR_NOT_READY: the process exits, or a piece does
 * not end.
 */
static CUresult block_prefetch(const struct managed_block *block, CUdevice to,
			       struct pager_mover *mover, size_t *ret_begun)
{
	size_t bytes = block_is_moving(block), size;
	bool was_hung = mover->is_hung;
	CUresult res = CUDA_SUCCESS;

	*ret_begun = 0;
	for (size_t at = 0; res == CUDA_SUCCESS && at < bytes; at += size) {
		size = bytes - at < MANAGED_PIECE ? bytes - at : MANAGED_PIECE;
		if (bell_is_stopping())
			return CUDA_ERROR_NOT_READY;
		res = cuda_real.cuMemPrefetchAsync(block->addr + at, size, to, mover->stream);
		if (res == CUDA_SUCCESS) {
			*ret_begun += size;
			if (!was_hung)
				res = pager_mover_settle(mover);
		}
	}
	return res;
}

static bool block_is_gone(const struct managed_block *block)
{
	bool gone;

	hook_lock(&managed.lock);
	gone = block->is_gone;
	hook_unlock(&managed.lock);
	return gone;
}

/*
 * The GPU would use bytes in host memory over the bus for as long as the advice holds. A process
 * that exits uses none. false: the next restore brings them back.
 */
static bool block_call_back(const struct managed_block *block, struct pager_mover *mover,
			    size_t begun)
{
	if (bell_is_stopping() || block_is_gone(block))
		return true;
	if (block_advise(block, false) != CUDA_SUCCESS)
		return false;
	return !begun || block_prefetch(block, block->dev, mover, &begun) == CUDA_SUCCESS;
}

/* A block that is claimed. */
static int block_evict(struct managed_block *block, struct pager_mover *mover,
		       struct pager_move *move)
{
	int outcome = NVSHARE_OUTCOME_SUCCESS;
	size_t begun = 0;
	bool is_out = false;
	CUresult res;

	if (mover->is_hung)
		return block_unclaim(block, false) ? NVSHARE_OUTCOME_GPU_HUNG
						   : NVSHARE_OUTCOME_SUCCESS;
	res = block_advise(block, true);
	if (res == CUDA_SUCCESS) {
		res = block_prefetch(block, CU_DEVICE_CPU, mover, &begun);
		is_out = res == CUDA_SUCCESS || !block_call_back(block, mover, begun);
	}
	if (res == CUDA_SUCCESS)
		move->bytes += block->charged;
	else if (mover->is_hung)
		outcome = NVSHARE_OUTCOME_GPU_HUNG;
	else if (res == CUDA_ERROR_NOT_READY)
		outcome = NVSHARE_OUTCOME_INVALID_STATE;
	else
		outcome = NVSHARE_OUTCOME_SAVE_FAILED;
	if (is_out)
		budget_swapped_out(block->dev, block->charged);
	return block_unclaim(block, is_out) ? outcome : NVSHARE_OUTCOME_SUCCESS;
}

int managed_evict(CUdevice dev, uint64_t bytes, struct pager_move *ret_move)
{
	uint64_t start = clock_now_ns();
	int outcome = NVSHARE_OUTCOME_SUCCESS;
	struct managed_block *block;
	struct pager_mover *mover;
	struct nvshare_mem mem;
	CUdeviceptr addr = 0;

	*ret_move = (struct pager_move){0};
	budget_read(dev, &mem);
	if (bytes > mem.resident)
		bytes = mem.resident;
	if (!bytes)
		return outcome;
	if (bytes > hostmem_available(mem.swapped + oversub_bytes(dev)))
		return NVSHARE_OUTCOME_NO_HOST_MEMORY;
	mover = pager_mover();
	if (!mover)
		return NVSHARE_OUTCOME_SAVE_FAILED;
	while (outcome == NVSHARE_OUTCOME_SUCCESS && ret_move->bytes < bytes &&
	       (block = block_claim(dev, addr, false))) {
		addr = block->addr + 1;
		outcome = block_evict(block, mover, ret_move);
		if (outcome == NVSHARE_OUTCOME_SUCCESS)
			pager_agent()->moved_out(dev, ret_move->bytes);
	}
	ret_move->copied = ret_move->bytes;
	ret_move->ns = clock_now_ns() - start;
	return outcome;
}

static int block_bring_in(const struct managed_block *block, struct pager_mover *mover)
{
	size_t begun;
	CUresult res;

	res = block_advise(block, false);
	if (res == CUDA_SUCCESS)
		res = block_prefetch(block, block->dev, mover, &begun);
	if (res == CUDA_SUCCESS)
		return NVSHARE_OUTCOME_SUCCESS;
	budget_swapped_out(block->dev, block->charged);
	return mover->is_hung ? NVSHARE_OUTCOME_GPU_HUNG : NVSHARE_OUTCOME_INVALID_STATE;
}

/* A block that is claimed. */
static int block_restore(struct managed_block *block, struct pager_mover *mover,
			 struct pager_move *move)
{
	int outcome;

	if (!mover)
		outcome = NVSHARE_OUTCOME_INVALID_STATE;
	else if (mover->is_hung)
		outcome = NVSHARE_OUTCOME_GPU_HUNG;
	else if (!budget_swapped_in(block->dev, block->charged))
		outcome = NVSHARE_OUTCOME_PARTIAL;
	else
		outcome = block_bring_in(block, mover);
	if (outcome == NVSHARE_OUTCOME_SUCCESS)
		move->bytes += block->charged;
	return block_unclaim(block, outcome != NVSHARE_OUTCOME_SUCCESS) ? outcome
									: NVSHARE_OUTCOME_SUCCESS;
}

int managed_restore(CUdevice dev, struct pager_move *ret_move)
{
	uint64_t start = clock_now_ns();
	int outcome = NVSHARE_OUTCOME_SUCCESS;
	struct pager_mover *mover = NULL;
	struct managed_block *block;
	CUdeviceptr addr = 0;

	*ret_move = (struct pager_move){0};
	while (outcome == NVSHARE_OUTCOME_SUCCESS && (block = block_claim(dev, addr, true))) {
		addr = block->addr + 1;
		if (!mover)
			mover = pager_mover();
		outcome = block_restore(block, mover, ret_move);
	}
	ret_move->ns = ret_move->bytes ? clock_now_ns() - start : 0;
	return outcome;
}

void managed_context_gone(CUcontext ctx)
{
	struct managed_block *block, *next, *gone = NULL;

	hook_lock(&managed.lock);
	RB_FOREACH_SAFE(block, managed_tree, &managed.blocks, next)
	{
		if (block->ctx == ctx)
			block_forget(block, &gone);
	}
	hook_unlock(&managed.lock);
	managed_give_back_all(gone);
}

void managed_after_fork_child(void)
{
	hook_mutex_renew(&managed.lock, HOOK_LOCK_MANAGED);
	pthread_cond_init(&managed.changed, NULL);
	RB_INIT(&managed.blocks);
	oversub_after_fork_child();
}
