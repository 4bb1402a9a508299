/* SPDX-License-Identifier: Apache-2.0 */

#include "simgpu/cuda/managed.h"

#include <stdlib.h>

#include "simgpu/cuda/api.h"
#include "simgpu/cuda/context.h"
#include "simgpu/cuda/run.h"
#include "util/clock.h"

enum { PREFETCH_PAGES_A_STEP = 4 };

/* A bit of managed_page::where: the bytes are on the host, and their room on the GPU is kept. */
#define KEPT 0x80

struct managed_page {
	uint8_t where;    /* ordinal + 1; 0: the host; see KEPT */
	int8_t preferred; /* ordinal; -1: the host; -2: none */
};

struct managed {
	size_t n_pages;
	bool is_read_mostly;
	int last_prefetch;
	uint64_t accessed_by;
	struct managed_page page[];
};

static void move_out(struct range *range, size_t page)
{
	struct managed *managed = range->managed;
	int device = (managed->page[page].where & ~KEPT) - 1;
	bool is_kept = managed->page[page].where & KEPT;

	if (device < 0)
		return;
	__atomic_store_n(&managed->page[page].where, 0, __ATOMIC_RELAXED);
	if (!is_kept || node_unkeep(device_node(device), SPACE_GRANULARITY))
		node_uncharge(device_node(device), SPACE_GRANULARITY);
}

/* Like the driver, gives the page's room on the GPU up only when others need it. */
static void move_to_host(struct range *range, size_t page)
{
	uint8_t *where = &range->managed->page[page].where;

	node_keep(device_node(*where - 1), SPACE_GRANULARITY);
	__atomic_store_n(where, *where | KEPT, __ATOMIC_RELAXED);
}

/* true: the page's room on this GPU is still kept. Takes it. */
static bool has_room_kept(const struct range *range, size_t page, int device)
{
	return range->managed->page[page].where == (KEPT | (device + 1)) &&
	       node_unkeep(device_node(device), SPACE_GRANULARITY);
}

static bool is_resident(const struct range *range, size_t page)
{
	uint8_t where = __atomic_load_n(&range->managed->page[page].where, __ATOMIC_RELAXED);

	return where && !(where & KEPT);
}

/* Makes room for a page: evicts a page of another range, or a later page of this one. */
static bool evict_one(int device, const struct range *keep, size_t keep_page)
{
	struct range *range;
	size_t page;

	for (range = space_next(0); range; range = space_next(range->addr + range->size)) {
		if (!range->managed)
			continue;
		for (page = 0; page < range->managed->n_pages; page++) {
			if (range->managed->page[page].where != device + 1 ||
			    (range == keep && page == keep_page))
				continue;
			move_out(range, page);
			node_copy_book(device_node(device), NODE_TO_HOST, SPACE_GRANULARITY);
			node_count(NODE_COUNTER_MIGRATED_TO_HOST, SPACE_GRANULARITY);
			return true;
		}
	}
	return false;
}

static void move_in(struct range *range, size_t page, int device, struct progress *progress)
{
	uint64_t end;

	if (range->managed->page[page].where == device + 1)
		return;
	if (!has_room_kept(range, page, device)) {
		move_out(range, page);
		while (node_charge(device_node(device), SPACE_GRANULARITY) < 0)
			if (!evict_one(device, range, page))
				return; /* the page stays on the host, and the GPU uses the bus */
	}
	__atomic_store_n(&range->managed->page[page].where, (uint8_t)(device + 1),
			 __ATOMIC_RELAXED);
	node_count(NODE_COUNTER_MIGRATED_TO_DEVICE, SPACE_GRANULARITY);
	end = node_copy_book(device_node(device), NODE_TO_DEVICE, SPACE_GRANULARITY);
	if (end > progress->ready_ns)
		progress->ready_ns = end;
}

void managed_touch(struct CUctx_st *ctx, uint64_t addr, uint64_t size, struct progress *progress)
{
	struct range *range;
	uint64_t page, last;

	if (!size)
		return;
	range = space_find(addr);
	if (!range || !range->managed)
		return;
	page = (addr - range->addr) / SPACE_GRANULARITY;
	last = (addr + size - 1 - range->addr) / SPACE_GRANULARITY;
	for (; page <= last && page < range->managed->n_pages; page++)
		if (range->managed->page[page].preferred != -1)
			move_in(range, page, ctx->device, progress);
}

enum work_step managed_prefetch_step(const struct work_memory *memory, struct progress *progress)
{
	struct range *range = space_find(memory->addr);
	uint64_t first, last, page, i;

	if (!range || !range->managed)
		return WORK_STEP_DONE; /* another thread has freed it */
	first = (memory->addr - range->addr) / SPACE_GRANULARITY;
	last = (memory->addr + memory->size - 1 - range->addr) / SPACE_GRANULARITY;
	if (last >= range->managed->n_pages)
		last = range->managed->n_pages - 1;
	range->managed->last_prefetch = memory->location;
	for (i = 0; i < PREFETCH_PAGES_A_STEP && first + progress->pos <= last; i++) {
		page = first + progress->pos++;
		if (memory->location >= 0) {
			move_in(range, page, memory->location, progress);
		} else if (is_resident(range, page)) {
			progress->ready_ns =
				node_copy_book(device_node(range->managed->page[page].where - 1),
					       NODE_TO_HOST, SPACE_GRANULARITY);
			move_to_host(range, page);
			node_count(NODE_COUNTER_MIGRATED_TO_HOST, SPACE_GRANULARITY);
		}
	}
	return first + progress->pos <= last ? WORK_STEP_MORE : WORK_STEP_DONE;
}

void managed_release(struct range *range)
{
	size_t page;

	for (page = 0; page < range->managed->n_pages; page++)
		move_out(range, page);
	free(range->managed);
}

API(cuMemAllocManaged, (CUdeviceptr * dptr, size_t bytesize, unsigned int flags))
{
	struct CUctx_st *ctx = context_current();
	size_t n_pages = (bytesize + SPACE_GRANULARITY - 1) / SPACE_GRANULARITY;
	struct range *range;
	void *pages;

	API_ENTER(API_CONTEXT | API_UNSAFE);
	if (!dptr || !bytesize || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST))
		return CUDA_ERROR_INVALID_VALUE;
	if (n_pages > UINT64_MAX / 2 / SPACE_GRANULARITY)
		return CUDA_ERROR_OUT_OF_MEMORY;
	range = calloc(1, sizeof(*range));
	pages = range ? space_pages_new(n_pages * SPACE_GRANULARITY) : NULL;
	if (pages)
		range->managed = calloc(1, sizeof(*range->managed) +
						   n_pages * sizeof(range->managed->page[0]));
	if (!pages || !range->managed) {
		if (pages)
			space_pages_free(pages, n_pages * SPACE_GRANULARITY);
		free(range);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	range->managed->n_pages = n_pages;
	range->managed->last_prefetch = -2;
	for (size_t i = 0; i < n_pages; i++)
		range->managed->page[i].preferred = -2;
	range->addr = (uintptr_t)pages;
	range->size = bytesize;
	range->kind = RANGE_MANAGED;
	range->flags = flags;
	range->ctx = ctx;
	range->device = ctx->device;
	range->id = state_next_id();
	space_write_lock();
	space_insert(range);
	space_unlock();
	*dptr = range->addr;
	return CUDA_SUCCESS;
}

/* *ret: ordinal; -1: the host. Error: CUDA_ERROR_INVALID_DEVICE. */
static CUresult location_ordinal(CUmemLocation location, int *ret)
{
	if (location.type == CU_MEM_LOCATION_TYPE_DEVICE && !device_check(location.id)) {
		*ret = location.id;
		return CUDA_SUCCESS;
	}
	*ret = -1;
	return location.type == CU_MEM_LOCATION_TYPE_HOST ||
			       location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA ||
			       location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT
		       ? CUDA_SUCCESS
		       : CUDA_ERROR_INVALID_DEVICE;
}

static CUmemLocation location_of(CUdevice device)
{
	CUmemLocation location = {CU_MEM_LOCATION_TYPE_DEVICE, device};

	if (device == CU_DEVICE_CPU)
		location = (CUmemLocation){CU_MEM_LOCATION_TYPE_HOST, 0};
	return location;
}

/* true: one managed allocation contains all of it. */
static bool is_managed(CUdeviceptr addr, size_t size)
{
	const struct range *range = space_find(addr);

	return size && range && range->managed && size <= range->size - (addr - range->addr);
}

/* Sets the preferred place of all pages of these bytes. */
static void set_preferred(const struct range *range, CUdeviceptr addr, size_t size, int where)
{
	size_t page = (addr - range->addr) / SPACE_GRANULARITY;
	size_t last = (addr + size - 1 - range->addr) / SPACE_GRANULARITY;

	for (; page <= last; page++)
		range->managed->page[page].preferred = (int8_t)where;
}

static CUresult advise_range(CUdeviceptr addr, size_t size, CUmem_advise advice,
			     CUmemLocation location)
{
	struct managed *managed;
	CUresult r = CUDA_SUCCESS;
	int where = -1;

	space_write_lock();
	if (!is_managed(addr, size)) {
		space_unlock();
		return CUDA_ERROR_INVALID_VALUE;
	}
	managed = space_find(addr)->managed;
	switch (advice) {
	case CU_MEM_ADVISE_SET_READ_MOSTLY:
	case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
		managed->is_read_mostly = advice == CU_MEM_ADVISE_SET_READ_MOSTLY;
		break;
	case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
		r = location_ordinal(location, &where);
		if (!r)
			set_preferred(space_find(addr), addr, size, where);
		break;
	case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
		set_preferred(space_find(addr), addr, size, -2);
		break;
	case CU_MEM_ADVISE_SET_ACCESSED_BY:
	case CU_MEM_ADVISE_UNSET_ACCESSED_BY:
		r = location_ordinal(location, &where);
		if (!r && where >= 0 && advice == CU_MEM_ADVISE_SET_ACCESSED_BY)
			managed->accessed_by |= 1ull << where;
		else if (!r && where >= 0)
			managed->accessed_by &= ~(1ull << where);
		break;
	default:
		r = CUDA_ERROR_INVALID_VALUE;
	}
	space_unlock();
	return r;
}

API(cuMemAdvise, (CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUdevice device))
{
	API_ENTER(API_CONTEXT | API_UNSAFE);
	return advise_range(devPtr, count, advice, location_of(device));
}

API(cuMemAdvise_v2, (CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUmemLocation location))
{
	API_ENTER(API_CONTEXT | API_UNSAFE);
	return advise_range(devPtr, count, advice, location);
}

static CUresult prefetch_range(const char *name, CUdeviceptr addr, size_t size,
			       CUmemLocation location, CUstream handle)
{
	struct work work = {.kind = WORK_PREFETCH};
	struct CUstream_st *stream;
	bool is_fine;
	CUresult r = api_enter(name, API_CONTEXT);

	if (r)
		return r;
	r = location_ordinal(location, &work.memory.location);
	if (r)
		return r;
	space_read_lock();
	is_fine = is_managed(addr, size);
	space_unlock();
	if (!is_fine)
		return CUDA_ERROR_INVALID_VALUE;
	work.memory.addr = addr;
	work.memory.size = size;
	r = stream_lock(handle, &stream);
	if (r)
		return r;
	r = run_submit(stream, &work, NULL);
	state_unlock();
	return r;
}

API_TWIN(cuMemPrefetchAsync, cuMemPrefetchAsync_ptsz,
	 (CUdeviceptr devPtr, size_t count, CUdevice dstDevice, CUstream hStream),
	 prefetch_range(__func__, devPtr, count, location_of(dstDevice), hStream ? hStream : zero))

static CUresult prefetch_v2(const char *name, CUdeviceptr addr, size_t size, CUmemLocation location,
			    unsigned int flags, CUstream stream)
{
	return flags ? CUDA_ERROR_INVALID_VALUE
		     : prefetch_range(name, addr, size, location, stream);
}

API_TWIN(cuMemPrefetchAsync_v2, cuMemPrefetchAsync_v2_ptsz,
	 (CUdeviceptr devPtr, size_t count, CUmemLocation location, unsigned int flags,
	  CUstream hStream),
	 prefetch_v2(__func__, devPtr, count, location, flags, hStream ? hStream : zero))

/* The preferred place of all pages of these bytes; -2: they differ. */
static int common_preferred(const struct range *range, CUdeviceptr addr, size_t count)
{
	const struct managed_page *pages = range->managed->page;
	size_t page = (addr - range->addr) / SPACE_GRANULARITY;
	size_t last = (addr + count - 1 - range->addr) / SPACE_GRANULARITY;
	int where = pages[page].preferred;

	while (++page <= last && where != -2)
		where = pages[page].preferred == where ? where : -2;
	return where;
}

static CUresult range_attribute(void *data, size_t size, CUmem_range_attribute attribute,
				CUdeviceptr addr, size_t count)
{
	const struct range *range = space_find(addr);
	const struct managed *managed = range->managed;
	size_t i, n = 0;
	int *out = data;

	if (size < sizeof(int))
		return CUDA_ERROR_INVALID_VALUE;
	switch (attribute) {
	case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
		*out = managed->is_read_mostly;
		break;
	case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
		*out = common_preferred(range, addr, count);
		break;
	case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
		*out = managed->last_prefetch;
		break;
	case CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY:
		for (i = 0; i < NODE_DEVICES_MAX && n < size / sizeof(int); i++)
			if (managed->accessed_by >> i & 1)
				out[n++] = (int)i;
		while (n < size / sizeof(int))
			out[n++] = CU_DEVICE_INVALID;
		break;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
	return CUDA_SUCCESS;
}

API(cuMemRangeGetAttribute, (void *data, size_t dataSize, CUmem_range_attribute attribute,
			     CUdeviceptr devPtr, size_t count))
{
	CUresult r = CUDA_ERROR_INVALID_VALUE;

	API_ENTER(API_CONTEXT);
	space_read_lock();
	if (data && is_managed(devPtr, count))
		r = range_attribute(data, dataSize, attribute, devPtr, count);
	space_unlock();
	return r;
}
