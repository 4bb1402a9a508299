/* SPDX-License-Identifier: Apache-2.0 */

#include "simgpu/cuda/vmm.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "simgpu/cuda/api.h"
#include "simgpu/cuda/state.h"
#include "simgpu/cuda/token.h"

/* Space's write lock guards all state of this file. */
struct phys {
	uint64_t size;
	uint64_t offset; /* in fd */
	int fd;
	int token; /* from node_pass(), once exported; -1: charged to this process */
	bool is_own_fd;
	bool is_imported; /* as on a card, it cannot be exported again */
	unsigned int n_handles, n_maps;
	uint32_t slot, generation;
	CUmemAllocationProp prop;
};

struct reservation {
	struct reservation *next;
	uint64_t addr, size;
};

/* A handle is a slot and its generation, so a released handle never names newer memory. */
static struct phys **slots;
static uint32_t *generations;
static uint32_t n_slots;
static struct reservation *reservations;
static int pool_fd = -1;
static uint64_t pool_end;

static struct phys *phys_find(CUmemGenericAllocationHandle handle)
{
	uint32_t slot = (uint32_t)handle - 1, generation = (uint32_t)(handle >> 32);

	if (slot >= n_slots || !slots[slot] || generations[slot] != generation)
		return NULL;
	return slots[slot]->n_handles ? slots[slot] : NULL;
}

static CUmemGenericAllocationHandle handle_of(const struct phys *phys)
{
	return (uint64_t)phys->generation << 32 | (phys->slot + 1);
}

static bool take_slot(struct phys *phys)
{
	struct phys **grown_slots;
	uint32_t *grown_generations, n, i;

	for (i = 0; i < n_slots && slots[i]; i++)
		;
	if (i == n_slots) {
		n = n_slots ? 2 * n_slots : 64;
		grown_slots = realloc(slots, n * sizeof(struct phys *));
		if (!grown_slots)
			return false;
		slots = grown_slots;
		grown_generations = realloc(generations, n * sizeof(*generations));
		if (!grown_generations)
			return false;
		generations = grown_generations;
		memset(slots + n_slots, 0, (n - n_slots) * sizeof(struct phys *));
		memset(generations + n_slots, 0, (n - n_slots) * sizeof(*generations));
		n_slots = n;
	}
	phys->slot = i;
	phys->generation = ++generations[i];
	slots[i] = phys;
	return true;
}

/* Frees the pages when no handle and no mapping is left. */
static void phys_put(struct phys *phys)
{
	if (phys->n_handles || phys->n_maps)
		return;
	slots[phys->slot] = NULL;
	if (phys->is_own_fd)
		close(phys->fd);
	else
		fallocate(phys->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)phys->offset,
			  (off_t)phys->size);
	if (phys->token >= 0) {
		close(phys->token);
		node_passed_hold(device_node(phys->prop.location.id), -(int64_t)phys->size);
	} else {
		node_uncharge(device_node(phys->prop.location.id), phys->size);
	}
	free(phys);
}

static int phys_pages(struct phys *phys)
{
	if (phys->prop.requestedHandleTypes) {
		phys->fd = memfd_create("nvshare-simgpu", MFD_CLOEXEC);
		if (phys->fd < 0)
			return -errno;
		phys->is_own_fd = true;
		return ftruncate(phys->fd, (off_t)phys->size) < 0 ? -errno : 0;
	}
	if (pool_fd < 0)
		pool_fd = memfd_create("nvshare-simgpu", MFD_CLOEXEC);
	if (pool_fd < 0)
		return -errno;
	phys->fd = pool_fd;
	phys->offset = pool_end;
	/* Each allocation gets a new offset; freed parts of the file are holes. */
	if (ftruncate(pool_fd, (off_t)(pool_end + phys->size)) < 0)
		return -errno;
	pool_end += phys->size;
	return 0;
}

static CUresult check_prop(const CUmemAllocationProp *prop)
{
	if (!prop || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED)
		return CUDA_ERROR_INVALID_VALUE;
	if (prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE)
		return device_check(prop->location.id);
	return CUDA_ERROR_INVALID_VALUE;
}

API(cuMemGetAllocationGranularity, (size_t * granularity, const CUmemAllocationProp *prop,
				    CUmemAllocationGranularity_flags option))
{
	CUresult r;

	API_ENTER(API_INIT);
	if (!granularity || (unsigned int)option > CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)
		return CUDA_ERROR_INVALID_VALUE;
	r = check_prop(prop);
	if (!r)
		*granularity = SPACE_GRANULARITY;
	return r;
}

API(cuMemCreate, (CUmemGenericAllocationHandle * handle, size_t size,
		  const CUmemAllocationProp *prop, unsigned long long flags))
{
	unsigned int device;
	struct phys *phys;
	CUresult r;

	API_ENTER(API_INIT);
	r = check_prop(prop);
	if (r)
		return r;
	if (!handle || !size || size % SPACE_GRANULARITY || flags)
		return CUDA_ERROR_INVALID_VALUE;
	if (prop->requestedHandleTypes & ~(unsigned int)CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return CUDA_ERROR_NOT_SUPPORTED;
	device = device_node(prop->location.id);
	phys = calloc(1, sizeof(*phys));
	if (!phys || node_charge(device, size) < 0) {
		free(phys);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	phys->size = size;
	phys->prop = *prop;
	phys->n_handles = 1;
	phys->token = -1;
	space_write_lock();
	if (phys_pages(phys) < 0 || !take_slot(phys)) {
		if (phys->is_own_fd)
			close(phys->fd);
		node_uncharge(device, size);
		free(phys);
		r = CUDA_ERROR_OUT_OF_MEMORY;
	} else {
		*handle = handle_of(phys);
	}
	space_unlock();
	return r;
}

API(cuMemRelease, (CUmemGenericAllocationHandle handle))
{
	struct phys *phys;

	API_ENTER(API_INIT);
	space_write_lock();
	phys = phys_find(handle);
	if (phys) {
		phys->n_handles--;
		phys_put(phys);
	}
	space_unlock();
	return phys ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API(cuMemRetainAllocationHandle, (CUmemGenericAllocationHandle * handle, void *addr))
{
	struct range *range;
	CUresult r = CUDA_ERROR_INVALID_VALUE;

	API_ENTER(API_INIT);
	if (!handle)
		return CUDA_ERROR_INVALID_VALUE;
	space_write_lock();
	range = space_find((uintptr_t)addr);
	if (range && range->phys) {
		range->phys->n_handles++;
		*handle = handle_of(range->phys);
		r = CUDA_SUCCESS;
	}
	space_unlock();
	return r;
}

API(cuMemGetAllocationPropertiesFromHandle,
    (CUmemAllocationProp * prop, CUmemGenericAllocationHandle handle))
{
	struct phys *phys;

	API_ENTER(API_INIT);
	if (!prop)
		return CUDA_ERROR_INVALID_VALUE;
	space_read_lock();
	phys = phys_find(handle);
	if (phys)
		*prop = phys->prop;
	space_unlock();
	return phys ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

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
	range->device = phys->prop.location.id;
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
	uint64_t bit = 1ull << desc->location.id;

	range->read_mask &= ~bit;
	range->write_mask &= ~bit;
	if (desc->flags & CU_MEM_ACCESS_FLAGS_PROT_READ)
		range->read_mask |= bit;
	if (desc->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
		range->write_mask |= bit;
}

API(cuMemSetAccess, (CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count))
{
	CUresult r = CUDA_ERROR_INVALID_VALUE;
	struct range *range;
	uint64_t at;
	size_t i;

	API_ENTER(API_INIT);
	if (!desc || !count || !size)
		return CUDA_ERROR_INVALID_VALUE;
	for (i = 0; i < count; i++) {
		if (desc[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE || desc[i].flags == 2 ||
		    (unsigned int)desc[i].flags > 3)
			return CUDA_ERROR_INVALID_VALUE;
		if (device_check(desc[i].location.id))
			return CUDA_ERROR_INVALID_DEVICE;
	}
	space_write_lock();
	if (is_whole_mappings(ptr, size)) {
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
	if (!flags || !location || location->type != CU_MEM_LOCATION_TYPE_DEVICE ||
	    device_check(location->id))
		return CUDA_ERROR_INVALID_VALUE;
	space_read_lock();
	range = space_find(ptr);
	if (range && range->phys) {
		*flags = range->read_mask >> location->id & 1 ? CU_MEM_ACCESS_FLAGS_PROT_READ : 0;
		if (range->write_mask >> location->id & 1)
			*flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
		r = CUDA_SUCCESS;
	}
	space_unlock();
	return r;
}

void vmm_forget(void)
{
	for (uint32_t i = 0; i < n_slots; i++) {
		if (!slots[i])
			continue;
		if (slots[i]->is_own_fd)
			close(slots[i]->fd);
		if (slots[i]->token >= 0)
			close(slots[i]->token);
		slots[i] = NULL;
	}
	if (pool_fd >= 0)
		close(pool_fd);
	pool_fd = -1;
}

/* From now on the memory lives as long as the token. */
static int pass_token(struct phys *phys)
{
	unsigned int device = device_node(phys->prop.location.id);
	int token = node_pass(device, phys->size);

	if (token < 0)
		return token;
	node_passed_hold(device, (int64_t)phys->size);
	phys->token = token;
	return token_fill(token, phys->fd, phys->size);
}

API(cuMemExportToShareableHandle, (void *shareableHandle, CUmemGenericAllocationHandle handle,
				   CUmemAllocationHandleType handleType, unsigned long long flags))
{
	struct phys *phys;
	CUresult r = CUDA_ERROR_INVALID_VALUE;
	int fd;

	API_ENTER(API_INIT);
	if (!shareableHandle || flags || handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return CUDA_ERROR_INVALID_VALUE;
	space_write_lock();
	phys = phys_find(handle);
	if (phys && phys->is_own_fd && !phys->is_imported) {
		fd = phys->token < 0 ? pass_token(phys) : 0;
		if (fd >= 0)
			fd = fcntl(phys->token, F_DUPFD_CLOEXEC, 0);
		if (fd >= 0)
			*(int *)shareableHandle = fd;
		r = fd < 0 ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_SUCCESS;
	}
	space_unlock();
	return r;
}

API(cuMemImportFromShareableHandle,
    (CUmemGenericAllocationHandle * handle, void *osHandle, CUmemAllocationHandleType shHandleType))
{
	struct phys *phys;
	CUresult r = CUDA_SUCCESS;

	API_ENTER(API_CONTEXT);
	if (!handle || shHandleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return CUDA_ERROR_INVALID_VALUE;
	phys = calloc(1, sizeof(*phys));
	if (!phys)
		return CUDA_ERROR_OUT_OF_MEMORY;
	phys->fd = token_look((int)(intptr_t)osHandle, &phys->size);
	phys->token = phys->fd < 0 ? -1 : fcntl((int)(intptr_t)osHandle, F_DUPFD_CLOEXEC, 0);
	if (phys->token < 0) {
		if (phys->fd >= 0)
			close(phys->fd);
		free(phys);
		return CUDA_ERROR_INVALID_VALUE;
	}
	phys->is_own_fd = true;
	phys->is_imported = true;
	phys->n_handles = 1;
	phys->prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
	phys->prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	phys->prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	phys->prop.location.id = context_current()->device;
	space_write_lock();
	if (take_slot(phys)) {
		*handle = handle_of(phys);
		node_passed_hold(device_node(phys->prop.location.id), (int64_t)phys->size);
	} else {
		close(phys->fd);
		close(phys->token);
		free(phys);
		r = CUDA_ERROR_OUT_OF_MEMORY;
	}
	space_unlock();
	return r;
}
