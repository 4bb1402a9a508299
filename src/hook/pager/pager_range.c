/* SPDX-License-Identifier: Apache-2.0 */

#include "hook/pager/pager.h"
#include "hook/pager/pager_copy.h"
#include "hook/pager/pager_ops.h"
#include "hook/pager/pager_private.h"

#include "hook/gate/gate.h"
#include "hook/pager/transfer.h"
#include "hook/table/cuda_real.h"

#include <stdlib.h>

struct pager_device *pager_device(CUdevice dev)
{
	return dev >= 0 && dev < PAGER_DEVICES ? &pager.devices[dev] : NULL;
}

static CUmemAllocationProp device_properties(CUdevice dev, bool is_rdma, bool is_exportable)
{
	return (CUmemAllocationProp){
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = is_exportable ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
						      : CU_MEM_HANDLE_TYPE_NONE,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = dev},
		.allocFlags.gpuDirectRDMACapable = is_rdma,
	};
}

/* Two threads may look at once; both find the same. */
bool pager_supported(CUdevice dev)
{
	struct pager_device *device = pager_device(dev);
	CUmemAllocationProp prop;
	bool is_known, is_supported, is_exportable;
	size_t granularity = 0;
	int vmm = 0, rdma = 0;

	if (!device)
		return false;
	hook_lock(&pager.lock);
	is_known = device->is_known;
	is_supported = device->is_supported;
	hook_unlock(&pager.lock);
	if (is_known || !cuda_real.cuMemAddressReserve || !cuda_real.cuMemGetAllocationGranularity)
		return is_supported;

	if (cuda_real.cuDeviceGetAttribute(&vmm,
					   CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
					   dev) != CUDA_SUCCESS)
		return false;
	if (cuda_real.cuDeviceGetAttribute(
		    &rdma, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, dev) !=
	    CUDA_SUCCESS)
		rdma = 0;
	is_exportable = transfer_can_export(dev);
	prop = device_properties(dev, rdma, is_exportable);
	is_supported = vmm && cuda_real.cuMemGetAllocationGranularity(
				      &granularity, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM) ==
				      CUDA_SUCCESS;
	/* Host memory comes in pieces of HOSTPOOL_ALIGN, and chunks are cut at powers of two. */
	is_supported = is_supported && granularity && granularity <= PAGER_SHARED_MAX &&
		       (granularity & (granularity - 1)) == 0;
	hook_lock(&pager.lock);
	device->is_known = true;
	device->is_supported = is_supported;
	device->is_rdma = rdma != 0;
	__atomic_store_n(&device->is_exportable, is_exportable, __ATOMIC_RELAXED);
	device->granularity = granularity;
	hook_unlock(&pager.lock);
	return is_supported;
}

CUmemAllocationProp pager_properties(CUdevice dev)
{
	const struct pager_device *device = &pager.devices[dev];

	return device_properties(dev, device->is_rdma,
				 __atomic_load_n(&device->is_exportable, __ATOMIC_RELAXED));
}

CUresult pager_push(CUcontext ctx, bool *ret_pushed)
{
	CUcontext current = NULL;
	CUresult res = cuda_real.cuCtxGetCurrent(&current);

	if (res == CUDA_SUCCESS && current == ctx) {
		*ret_pushed = false;
		return CUDA_SUCCESS;
	}
	res = cuda_real.cuCtxPushCurrent_v2(ctx);
	*ret_pushed = res == CUDA_SUCCESS;
	return res;
}

void pager_pop(bool pushed)
{
	CUcontext ctx;

	if (pushed)
		(void)cuda_real.cuCtxPopCurrent_v2(&ctx);
}

void pager_range_ref(struct pager_range *range)
{
	range->n_refs++;
}

void pager_range_unref(struct pager_range *range)
{
	bool is_last;

	hook_lock(&pager.lock);
	is_last = --range->n_refs == 0;
	hook_unlock(&pager.lock);
	if (is_last)
		free(range);
}

bool pager_ranges(CUdevice dev, struct pager_range ***ret_ranges, size_t *ret_n)
{
	struct pager_device *device = pager_device(dev);
	struct pager_range **ranges = NULL, *range;
	size_t n = 0, size = 0;

	for (;;) {
		hook_lock(&pager.lock);
		n = device->n_ranges;
		if (n <= size)
			break;
		hook_unlock(&pager.lock);
		free(ranges);
		size = n + n / 4 + 16;
		ranges = malloc(size * sizeof(*ranges));
		if (!ranges)
			return false;
	}
	n = 0;
	for (range = device->ranges; range; range = range->next) {
		pager_range_ref(range);
		ranges[n++] = range;
	}
	hook_unlock(&pager.lock);
	*ret_ranges = ranges;
	*ret_n = n;
	return true;
}

/*
 * Mapping a chunk holds up the copies under way, so small chunks cost bandwidth: on an H200, both
 * ways at once, 45 GiB/s with 64 MiB and 47 with 128 (tests/gpu/results). Large chunks make a
 * client without a lead wait (src/core/fit.c), and move more bytes than were asked for. A program
 * with large allocations has large switches, so it gets large chunks.
 */
static size_t chunk_size_of(size_t size)
{
	if (size >= 2048ull << 20)
		return 256ull << 20;
	return size >= 256ull << 20 ? 128ull << 20 : 64ull << 20;
}

static struct pager_range *range_make(CUdevice dev, CUcontext ctx, struct pager_arena *arena,
				      size_t size)
{
	size_t chunk_size = chunk_size_of(size), n_chunks = (size + chunk_size - 1) / chunk_size;
	struct pager_range *range;

	range = calloc(1, sizeof(*range) + n_chunks * sizeof(range->chunks[0]));
	if (!range)
		return NULL;
	range->ops = &pager_chunk_ops;
	range->arena = arena;
	range->ctx = ctx;
	range->dev = dev;
	range->n_refs = 1;
	range->size = size;
	range->chunk_size = chunk_size;
	range->n_chunks = n_chunks;
	return range;
}

static int range_compare(struct pager_range *a, struct pager_range *b)
{
	return a->addr < b->addr ? -1 : a->addr > b->addr;
}

/* cppcheck-suppress unknownMacro */
RBTREE_GENERATE(pager_range_tree, pager_range, by_addr, range_compare)

void pager_range_link(struct pager_range *range)
{
	struct pager_device *device = pager_device(range->dev);

	hook_lock(&pager.lock);
	if (range->addr)
		RB_INSERT(pager_range_tree, &pager.ranges, range);
	range->next = device->ranges;
	range->link = &device->ranges;
	if (range->next)
		range->next->link = &range->next;
	device->ranges = range;
	device->n_ranges++;
	hook_unlock(&pager.lock);
}

/* Chunks are busy from the start, so a walk over the ranges waits until they are mapped. */
static void range_cut(struct pager_range *range)
{
	for (size_t i = 0; i < range->n_chunks; i++) {
		struct pager_chunk *chunk = &range->chunks[i];
		size_t offset = i * range->chunk_size, rest = range->size - offset;

		chunk->range = range;
		chunk->addr = range->addr + offset;
		chunk->size = rest < range->chunk_size ? rest : range->chunk_size;
		chunk->state = PAGER_BUSY;
	}
}

static void range_unlink(struct pager_range *range)
{
	hook_lock(&pager.lock);
	if (range->addr)
		RB_REMOVE(pager_range_tree, &pager.ranges, range);
	*range->link = range->next;
	if (range->next)
		range->next->link = range->link;
	pager_device(range->dev)->n_ranges--;
	hook_unlock(&pager.lock);
}

static CUresult range_map(struct pager_range *range)
{
	CUresult res = cuda_real.cuMemAddressReserve(&range->addr, range->size, 0, 0, 0);
	size_t n;

	if (res != CUDA_SUCCESS)
		return res;
	range_cut(range);
	pager_range_link(range);
	for (n = 0; res == CUDA_SUCCESS && n < range->n_chunks; n++)
		res = pager_chunk_map(&range->chunks[n]);
	if (res == CUDA_SUCCESS) {
		hook_lock(&pager.lock);
		for (size_t i = 0; i < range->n_chunks; i++)
			range->chunks[i].state = PAGER_RESIDENT;
		pthread_cond_broadcast(&pager.changed);
		hook_unlock(&pager.lock);
		return CUDA_SUCCESS;
	}

	for (size_t i = 0; i + 1 < n; i++)
		(void)pager_chunk_unmap(&range->chunks[i]);
	for (size_t i = 0; i < range->n_chunks; i++)
		pager_chunk_set(&range->chunks[i], PAGER_DEAD);
	range_unlink(range);
	(void)cuda_real.cuMemAddressFree(range->addr, range->size);
	return res;
}

/* A capture in global mode forbids unsafe calls. Ours touch no stream, so they are allowed. */
static void capture_mode_relax(CUstreamCaptureMode *mode, bool *ret_changed)
{
	*ret_changed = gate_capture_open() && cuda_real.cuThreadExchangeStreamCaptureMode &&
		       cuda_real.cuThreadExchangeStreamCaptureMode(mode) == CUDA_SUCCESS;
}

CUresult pager_range_new(CUdevice dev, CUcontext ctx, struct pager_arena *arena, size_t size,
			 struct pager_range **ret_range)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	struct budget_tries tries = {0};
	struct pager_range *range;
	bool is_relaxed;
	CUresult res;

	pager_pools()->make_room(dev, size);
	res = budget_take(dev, size, BUDGET_PAGEABLE);
	if (res != CUDA_SUCCESS)
		return res;
	capture_mode_relax(&mode, &is_relaxed);
	do {
		range = range_make(dev, ctx, arena, size);
		res = range ? range_map(range) : CUDA_ERROR_OUT_OF_MEMORY;
		if (range && res != CUDA_SUCCESS)
			pager_range_unref(range);
	} while (res == CUDA_ERROR_OUT_OF_MEMORY &&
		 (pager_pools()->release(dev) ||
		  budget_retry(dev, size, BUDGET_PAGEABLE, &tries) == CUDA_SUCCESS));
	if (is_relaxed)
		(void)cuda_real.cuThreadExchangeStreamCaptureMode(&mode);
	if (res != CUDA_SUCCESS) {
		budget_give(dev, size, BUDGET_PAGEABLE);
		return res;
	}
	*ret_range = range;
	return CUDA_SUCCESS;
}

static void chunk_free(struct pager_chunk *chunk)
{
	CUdevice dev = chunk->range->dev;
	struct hostpool_part *host;
	enum pager_state was;

	hook_lock(&pager.lock);
	while (pager_chunk_is_in_work(chunk))
		hook_wait(&pager.changed, &pager.lock);
	was = chunk->state;
	chunk->state = PAGER_DEAD;
	host = chunk->host;
	chunk->host = NULL;
	pager_copy_forget(chunk);
	hook_unlock(&pager.lock);

	hostpool_put(host);
	(void)pager_chunk_unmap(chunk);
	pager_chunk_stuck(chunk, false); /* memory that stays now shows as others' */
	if (was == PAGER_SWAPPED) {
		/* The copies must go first: once the counts say that all is in, the program may
		 * run. */
		if (pager_chunk_out(chunk, false))
			pager_copies_settle(dev);
		budget_swapped_freed(dev, chunk->size);
	} else {
		budget_give(dev, chunk->size,
			    chunk->is_pinned ? chunk->range->ops->pinned_kind : BUDGET_PAGEABLE);
	}
}

void pager_range_free(struct pager_range *range)
{
	for (size_t i = 0; i < range->n_chunks; i++)
		chunk_free(&range->chunks[i]);
	range_unlink(range);
	if (range->addr)
		(void)cuda_real.cuMemAddressFree(range->addr, range->size);
	pager_range_unref(range);
}

/*
 * Opens a chunk to peer, or closes it. One that is out gets its access as it is mapped. The count
 * of this moment decides, because a thread that opens may have overtaken one that closes.
 */
static CUresult chunk_peer(struct pager_chunk *chunk, CUdevice peer)
{
	CUmemAccessDesc desc = {
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = peer},
		.flags = CU_MEM_ACCESS_FLAGS_PROT_NONE,
	};
	bool is_mapped;
	CUresult res;

	hook_lock(&pager.lock);
	while (chunk->state == PAGER_BUSY)
		hook_wait(&pager.changed, &pager.lock);
	is_mapped = chunk->state == PAGER_RESIDENT;
	if (is_mapped)
		chunk->state = PAGER_BUSY;
	if (pager_device(chunk->range->dev)->n_peers[peer])
		desc.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
	hook_unlock(&pager.lock);
	if (!is_mapped)
		return CUDA_SUCCESS;
	res = cuda_real.cuMemSetAccess(chunk->addr, chunk->size, &desc, 1);
	pager_chunk_set(chunk, PAGER_RESIDENT);
	return res;
}

/*
 * Ranges that are made from now on are mapped for the peer already. The program itself gives access
 * to memory that it maps.
 */
static CUresult device_open_ranges(CUdevice dev, CUdevice peer)
{
	CUresult res = CUDA_SUCCESS, r;
	struct pager_range **ranges;
	size_t n;

	if (!pager_ranges(dev, &ranges, &n))
		return CUDA_ERROR_OUT_OF_MEMORY;
	for (size_t i = 0; i < n; i++) {
		for (size_t j = 0; !ranges[i]->memory && j < ranges[i]->n_chunks; j++) {
			r = chunk_peer(&ranges[i]->chunks[j], peer);
			if (res == CUDA_SUCCESS)
				res = r;
		}
		pager_range_unref(ranges[i]);
	}
	free(ranges);
	return res;
}

CUresult pager_peer(CUdevice dev, CUdevice peer, bool enable)
{
	struct pager_device *device = pager_device(dev);
	bool is_change;

	if (!device || !pager_device(peer) || dev == peer)
		return CUDA_SUCCESS;
	hook_lock(&pager.lock);
	if (enable)
		is_change = device->n_peers[peer]++ == 0;
	else
		is_change = device->n_peers[peer] && --device->n_peers[peer] == 0;
	hook_unlock(&pager.lock);
	return is_change ? device_open_ranges(dev, peer) : CUDA_SUCCESS;
}
