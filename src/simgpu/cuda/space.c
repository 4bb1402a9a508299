/* SPDX-License-Identifier: Apache-2.0 */

/* An array sorted by address, because each step searches it and only allocations change it. */

#include "simgpu/cuda/space.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "simgpu/cuda/graph.h"
#include "simgpu/cuda/ipc.h"
#include "simgpu/cuda/managed.h"
#include "simgpu/cuda/pool.h"
#include "simgpu/cuda/state.h"
#include "simgpu/cuda/vmm.h"

/* A larger plain allocation gets its own pages, in 2 MiB pieces. */
enum { SMALL_MAX = 1 << 20 };

static pthread_rwlock_t lock = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
static struct range **ranges;
static size_t n_ranges, n_allocated;

void space_read_lock(void)
{
	pthread_rwlock_rdlock(&lock);
}

void space_write_lock(void)
{
	pthread_rwlock_wrlock(&lock);
}

void space_unlock(void)
{
	pthread_rwlock_unlock(&lock);
}

/* Index of the first range that begins above addr. */
static size_t index_above(uint64_t addr)
{
	size_t low = 0, high = n_ranges, mid;

	while (low < high) {
		mid = low + (high - low) / 2;
		if (ranges[mid]->addr > addr)
			high = mid;
		else
			low = mid + 1;
	}
	return low;
}

struct range *space_find(uint64_t addr)
{
	size_t i = index_above(addr);

	if (i == 0 || addr - ranges[i - 1]->addr >= ranges[i - 1]->size)
		return NULL;
	return ranges[i - 1];
}

struct range *space_next(uint64_t addr)
{
	size_t i = addr ? index_above(addr - 1) : 0;

	return i < n_ranges ? ranges[i] : NULL;
}

int space_insert(struct range *range)
{
	struct range **grown;
	size_t i;

	if (n_ranges == n_allocated) {
		n_allocated = n_allocated ? 2 * n_allocated : 64;
		grown = realloc(ranges, n_allocated * sizeof(struct range *));
		if (!grown) {
			n_allocated = n_ranges;
			return -ENOMEM;
		}
		ranges = grown;
	}
	i = index_above(range->addr);
	memmove(&ranges[i + 1], &ranges[i], (n_ranges - i) * sizeof(struct range *));
	ranges[i] = range;
	n_ranges++;
	return 0;
}

void space_remove(struct range *range)
{
	size_t i = index_above(range->addr);

	n_ranges--;
	memmove(&ranges[i - 1], &ranges[i], (n_ranges - i + 1) * sizeof(struct range *));
}

static bool range_allows(const struct range *range, const struct CUctx_st *ctx, bool write)
{
	uint64_t mask = write ? range->write_mask : range->read_mask;

	if (range->kind == RANGE_MAPPED)
		return ctx ? mask >> ctx->device & 1 : mask != 0;
	if (range->device < 0 || range->kind == RANGE_MANAGED)
		return true;
	/* The opener's device reaches it without more ado. */
	if (range->kind == RANGE_OPENED && ctx && range->ctx->device == ctx->device)
		return true;
	return !ctx || range->device == ctx->device || (ctx->peers >> range->device & 1);
}

bool space_is_accessible(const struct CUctx_st *ctx, uint64_t addr, uint64_t size, bool write)
{
	const struct range *range;
	uint64_t rest;

	while (size > 0) {
		range = space_find(addr);
		if (!range || !range_allows(range, ctx, write))
			return false;
		rest = range->addr + range->size - addr;
		if (rest >= size)
			return true;
		addr += rest;
		size -= rest;
	}
	return true;
}

bool space_is_allocation(uint64_t addr, uint64_t size, bool write)
{
	const struct range *range;

	if (!space_is_accessible(NULL, addr, size, write))
		return false;
	for (range = space_find(addr); range->addr + range->size < addr + size;
	     range = space_find(range->addr + range->size))
		if (range->kind != RANGE_MAPPED)
			return false;
	return range->kind == RANGE_MAPPED || range->addr <= addr;
}

static void *map_aligned(uint64_t size, uint64_t alignment, int prot)
{
	uint64_t whole = size + alignment, start, aligned;
	void *p = mmap(NULL, whole, prot, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED)
		return NULL;
	start = (uintptr_t)p;
	aligned = (start + alignment - 1) / alignment * alignment;
	if (aligned > start)
		munmap(p, aligned - start);
	if (start + whole > aligned + size)
		munmap((void *)(uintptr_t)(aligned + size), start + whole - aligned - size);
	p = (void *)(uintptr_t)aligned;
	/* A forked child has no GPU memory, and core files must stay small. */
	madvise(p, size, MADV_DONTFORK);
	madvise(p, size, MADV_DONTDUMP);
	return p;
}

void *space_pages_new(uint64_t size)
{
	return map_aligned(size, SPACE_GRANULARITY, PROT_READ | PROT_WRITE);
}

void *space_pages_reserve(uint64_t size, uint64_t alignment)
{
	return map_aligned(size, alignment < SPACE_GRANULARITY ? SPACE_GRANULARITY : alignment,
			   PROT_NONE);
}

void space_pages_free(void *pages, uint64_t size)
{
	ipc_pages_gone((uintptr_t)pages);
	munmap(pages, size);
}

static CUresult alloc_large(int device, uint64_t size, struct range *range)
{
	uint64_t charge = (size + SPACE_GRANULARITY - 1) / SPACE_GRANULARITY * SPACE_GRANULARITY;
	void *pages;

	if (charge < size || node_charge(device_node(device), charge) < 0)
		return CUDA_ERROR_OUT_OF_MEMORY;
	pages = space_pages_new(charge);
	if (!pages) {
		node_uncharge(device_node(device), charge);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	range->addr = (uintptr_t)pages;
	range->charged = charge;
	return CUDA_SUCCESS;
}

CUresult space_alloc(struct CUctx_st *ctx, int device, uint64_t size, enum range_kind kind,
		     uint64_t *ret_addr)
{
	struct range *range = calloc(1, sizeof(*range));
	CUresult r;

	if (!range)
		return CUDA_ERROR_OUT_OF_MEMORY;
	range->size = size;
	range->kind = kind;
	range->ctx = ctx;
	range->device = device;
	range->id = state_next_id();
	space_write_lock();
	if (size <= SMALL_MAX && kind != RANGE_ARRAY)
		r = heap_alloc(ctx, device, size, &range->addr, &range->block);
	else
		r = alloc_large(device, size, range);
	if (r == CUDA_SUCCESS && space_insert(range) < 0) {
		if (range->block)
			heap_free(ctx, range->block, range->addr, size);
		else
			space_pages_free((void *)(uintptr_t)range->addr, range->charged),
				node_uncharge(device_node(device), range->charged);
		r = CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (r == CUDA_SUCCESS)
		*ret_addr = range->addr;
	else
		free(range);
	space_unlock();
	return r;
}

void space_free(struct range *range)
{
	void *pages = (void *)(uintptr_t)range->addr;

	pool_forget(range);
	space_remove(range);
	switch (range->kind) {
	case RANGE_PLAIN:
	case RANGE_ASYNC:
	case RANGE_ARRAY:
	case RANGE_GLOBAL:
		if (range->block) {
			heap_free(range->ctx, range->block, range->addr, range->size);
			break;
		}
		space_pages_free(pages, range->charged);
		node_uncharge(device_node(range->device), range->charged);
		break;
	case RANGE_GRAPH:
		/* The graph keeps the address. */
		madvise(pages, range->charged, MADV_DONTNEED);
		mprotect(pages, range->charged, PROT_NONE);
		graph_memory_gone(range->device, range->charged);
		break;
	case RANGE_MAPPED:
		vmm_unmap(range);
		break;
	case RANGE_MANAGED:
		managed_release(range);
		space_pages_free(pages, (range->size + SPACE_GRANULARITY - 1) / SPACE_GRANULARITY *
						SPACE_GRANULARITY);
		break;
	case RANGE_HOST:
		/* Pinned memory comes from mmap(), in whole pages. */
		munmap(pages, (range->size + 4095) / 4096 * 4096);
		break;
	case RANGE_REGISTERED:
		break; /* the program owns the pages */
	case RANGE_OPENED:
		ipc_unmap(range);
		break;
	}
	free(range);
}

void space_free_context(struct CUctx_st *ctx)
{
	size_t i = 0;

	space_write_lock();
	pool_context_gone(ctx);
	while (i < n_ranges)
		if (ranges[i]->ctx == ctx)
			space_free(ranges[i]);
		else
			i++;
	space_unlock();
}
