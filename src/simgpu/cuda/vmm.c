/* SPDX-License-Identifier: Apache-2.0 */

#include "simgpu/cuda/vmm.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "simgpu/cuda/api.h"
#include "simgpu/cuda/phys.h"
#include "simgpu/cuda/state.h"

/* Space's write lock guards it. */
struct reservation {
	struct reservation *next;
	uint64_t addr, size;
};

static struct reservation *reservations;

static struct reservation *reservation_of(uint64_t addr)
{
	struct reservation *res;

	for (res = reservations; res; res = res->next)
		if (addr >= res->addr && addr - res->addr < res->size)
			return res;
	return NULL;
}

bool vmm_is_reserved(uint64_t addr)
{
	return reservation_of(addr) != NULL;
}

API(cuMemAddressReserve,
    (CUdeviceptr * ptr, size_t size, size_t alignment, CUdeviceptr addr, unsigned long long flags))
{
	struct reservation *res;
	void *pages;

	API_ENTER(API_INIT);
	(void)addr; /* only a hint */
	if (!ptr || !size || size % SPACE_GRANULARITY || (alignment & (alignment - 1)) || flags)
		return CUDA_ERROR_INVALID_VALUE;
	res = calloc(1, sizeof(*res));
	pages = res ? space_pages_reserve(size, alignment) : NULL;
	if (!pages) {
		free(res);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	res->addr = (uintptr_t)pages;
	res->size = size;
	space_write_lock();
	res->next = reservations;
	reservations = res;
	space_unlock();
	*ptr = res->addr;
	return CUDA_SUCCESS;
}

static bool has_mapping(uint64_t addr, uint64_t size)
{
	const struct range *range = space_next(addr);

	return space_find(addr) || (range && range->addr < addr + size);
}

API(cuMemAddressFree, (CUdeviceptr ptr, size_t size))
{
	struct reservation **link, *res;
	CUresult r = CUDA_ERROR_INVALID_VALUE;

	API_ENTER(API_INIT);
	space_write_lock();
	for (link = &reservations; *link && (*link)->addr != ptr; link = &(*link)->next)
		;
	res = *link;
	if (res && res->size == size && !has_mapping(ptr, size)) {
		*link = res->next;
		space_pages_free((void *)(uintptr_t)ptr, size);
		free(res);
		r = CUDA_SUCCESS;
	}
	space_unlock();
	return r;
}

static CUresult map_phys(CUdeviceptr ptr, size_t size, struct phys *phys)
{
	const struct reservation *res = reservation_of(ptr);
	struct range *range;
	void *pages;

	if (!res || ptr - res->addr > res->size - size || size > res->size ||
	    has_mapping(ptr, size))
		return CUDA_ERROR_INVALID_VALUE;
	range = calloc(1, sizeof(*range));
	if (!range)
		return CUDA_ERROR_OUT_OF_MEMORY;
	pages = mmap((void *)(uintptr_t)ptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
		     phys->fd, (off_t)phys->offset);
	if (pages == MAP_FAILED) {
		free(range);
		return CUDA_ERROR_MAP_FAILED;
	}
	madvise(pages, size, MADV_DONTFORK);
	madvise(pages, size, MADV_DONTDUMP);
	range->addr = ptr;
	range->size = size;
	range->kind = RANGE_MAPPED;
	range->device = phys_is_host(&phys->prop.location) ? -1 : phys->prop.location.id;
	range->id = state_next_id();
	range->phys = phys;
	phys->n_maps++;
	if (space_insert(range) < 0) {
		vmm_unmap(range);
		free(range);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	return CUDA_SUCCESS;
}

API(cuMemMap, (CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
	       unsigned long long flags))
{
	struct phys *phys;
	CUresult r = CUDA_ERROR_INVALID_VALUE;

	API_ENTER(API_INIT);
	if (!size || ptr % SPACE_GRANULARITY || offset || flags)
		return CUDA_ERROR_INVALID_VALUE;
	space_write_lock();
	phys = phys_find(handle);
	/* As on a card, only a whole handle can be mapped. */
	if (phys)
		r = size == phys->size ? map_phys(ptr, size, phys) : CUDA_ERROR_NOT_SUPPORTED;
	space_unlock();
	return r;
}

void vmm_unmap(struct range *range)
{
	/* Inaccessible pages keep the reservation. */
	void *pages = mmap((void *)(uintptr_t)range->addr, range->size, PROT_NONE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);

	if (pages != MAP_FAILED)
		madvise(pages, range->size, MADV_DONTFORK);
	range->phys->n_maps--;
	phys_put(range->phys);
}

/* true: these bytes are whole mappings without a gap. */
static bool is_whole_mappings(uint64_t addr, uint64_t size)
{
	const struct range *range;

	while (size) {
		range = space_find(addr);
		if (!range || !range->phys || range->addr != addr || range->size > size)
			return false;
		addr += range->size;
		size -= range->size;
	}
	return true;
}

/* Only whole mappings can be unmapped; gaps between them do not matter. */
static bool cuts_no_mapping(uint64_t addr, uint64_t size)
{
	const struct range *first = space_find(addr), *last = space_find(addr + size - 1);

	return has_mapping(addr, size) && (!first || first->addr == addr) &&
	       (!last || last->addr + last->size == addr + size);
}

API(cuMemUnmap, (CUdeviceptr ptr, size_t size))
{
	CUresult r = CUDA_ERROR_INVALID_VALUE;
	struct range *range;

	API_ENTER(API_INIT);
	if (!size || !ptr)
		return CUDA_ERROR_INVALID_VALUE;
	space_write_lock();
	if (reservation_of(ptr) && cuts_no_mapping(ptr, size)) {
		while ((range = space_next(ptr)) && range->addr < ptr + size)
			space_free(range);
		r = CUDA_SUCCESS;
	}
	space_unlock();
	return r;
}

static void set_access(struct range *range, const CUmemAccessDesc *desc)
{
	uint64_t bit;

	if (phys_is_host(&desc->location)) {
		range->host_access = desc->flags;
		return;
	}
	bit = 1ull << desc->location.id;
	range->read_mask &= ~bit;
	range->write_mask &= ~bit;
	if (desc->flags & CU_MEM_ACCESS_FLAGS_PROT_READ)
		range->read_mask |= bit;
	if (desc->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
		range->write_mask |= bit;
}

/* The processor reaches no memory of a card. Whole mappings only. */
static bool is_host_memory(uint64_t addr, uint64_t size)
{
	const struct range *range;

	for (uint64_t at = addr; at < addr + size; at += range->size) {
		range = space_find(at);
		if (range->device >= 0)
			return false;
	}
	return true;
}

API(cuMemSetAccess, (CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count))
{
	CUresult r = CUDA_ERROR_INVALID_VALUE;
	bool needs_host = false;
	struct range *range;
	uint64_t at;
	size_t i;

	API_ENTER(API_INIT);
	if (!desc || !count || !size)
		return CUDA_ERROR_INVALID_VALUE;
	for (i = 0; i < count; i++) {
		if (desc[i].location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT ||
		    desc[i].flags == 2 || (unsigned int)desc[i].flags > 3)
			return CUDA_ERROR_INVALID_VALUE;
		r = phys_check_location(&desc[i].location);
		if (r)
			return r;
		needs_host = needs_host || phys_is_host(&desc[i].location);
	}
	r = CUDA_ERROR_INVALID_VALUE;
	space_write_lock();
	if (is_whole_mappings(ptr, size) && (!needs_host || is_host_memory(ptr, size))) {
		for (at = ptr; at < ptr + size; at += range->size) {
			range = space_find(at);
			for (i = 0; i < count; i++)
				set_access(range, &desc[i]);
		}
		r = CUDA_SUCCESS;
	}
	space_unlock();
	return r;
}

API(cuMemGetAccess, (unsigned long long *flags, const CUmemLocation *location, CUdeviceptr ptr))
{
	const struct range *range;
	CUresult r = CUDA_ERROR_INVALID_VALUE;

	API_ENTER(API_INIT);
	if (!flags || !location || location->type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT ||
	    phys_check_location(location))
		return CUDA_ERROR_INVALID_VALUE;
	space_read_lock();
	range = space_find(ptr);
	if (range && range->phys && phys_is_host(location)) {
		*flags = range->host_access;
		r = CUDA_SUCCESS;
	} else if (range && range->phys) {
		*flags = range->read_mask >> location->id & 1 ? CU_MEM_ACCESS_FLAGS_PROT_READ : 0;
		if (range->write_mask >> location->id & 1)
			*flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
		r = CUDA_SUCCESS;
	}
	space_unlock();
	return r;
}
