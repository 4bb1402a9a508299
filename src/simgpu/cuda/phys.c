/* SPDX-License-Identifier: Apache-2.0 */

#include "simgpu/cuda/phys.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "simgpu/cuda/space.h"
#include "simgpu/cuda/state.h"

/* A handle is a slot and its generation, so a released handle never names newer memory. */
static struct phys **slots;
static uint32_t *generations;
static uint32_t n_slots;
static int pool_fd = -1;
static uint64_t pool_end;

struct phys *phys_find(CUmemGenericAllocationHandle handle)
{
	uint32_t slot = (uint32_t)handle - 1, generation = (uint32_t)(handle >> 32);

	if (slot >= n_slots || !slots[slot] || generations[slot] != generation)
		return NULL;
	return slots[slot]->n_handles ? slots[slot] : NULL;
}

CUmemGenericAllocationHandle phys_handle(const struct phys *phys)
{
	return (uint64_t)phys->generation << 32 | (phys->slot + 1);
}

bool phys_add(struct phys *phys)
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

bool phys_is_host(const CUmemLocation *location)
{
	return location->type == CU_MEM_LOCATION_TYPE_HOST_NUMA;
}

unsigned int phys_node(const struct phys *phys)
{
	return phys_is_host(&phys->prop.location) ? NODE_HOST : device_node(phys->prop.location.id);
}

void phys_put(struct phys *phys)
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
		node_passed_hold(phys_node(phys), -(int64_t)phys->size);
	} else if (!phys->is_imported) {
		node_uncharge(phys_node(phys), phys->size);
	}
	free(phys);
}

static int phys_pages(struct phys *phys)
{
	if (phys->prop.requestedHandleTypes) {
		phys->fd = memfd_create(phys_is_host(&phys->prop.location) ? PHYS_HOST_NAME
									   : "nvshare-simgpu",
					MFD_CLOEXEC);
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

CUresult phys_check_location(const CUmemLocation *location)
{
	if (location->type == CU_MEM_LOCATION_TYPE_DEVICE)
		return device_check(location->id);
	if (!node_view.shared->config.host_memory)
		return CUDA_ERROR_INVALID_VALUE;
	if (location->type == CU_MEM_LOCATION_TYPE_HOST_NUMA)
		return location->id == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	return location->type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT ? CUDA_SUCCESS
									: CUDA_ERROR_INVALID_VALUE;
}

static CUresult check_prop(const CUmemAllocationProp *prop)
{
	if (!prop || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED)
		return CUDA_ERROR_INVALID_VALUE;
	return phys_check_location(&prop->location);
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
	phys = calloc(1, sizeof(*phys));
	if (!phys)
		return CUDA_ERROR_OUT_OF_MEMORY;
	phys->size = size;
	phys->prop = *prop;
	if (prop->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT)
		phys->prop.location = (CUmemLocation){CU_MEM_LOCATION_TYPE_HOST_NUMA, 0};
	if (node_charge(phys_node(phys), size) < 0) {
		free(phys);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	phys->n_handles = 1;
	phys->token = -1;
	space_write_lock();
	if (phys_pages(phys) < 0 || !phys_add(phys)) {
		if (phys->is_own_fd)
			close(phys->fd);
		node_uncharge(phys_node(phys), size);
		free(phys);
		r = CUDA_ERROR_OUT_OF_MEMORY;
	} else {
		*handle = phys_handle(phys);
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
		*handle = phys_handle(range->phys);
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

void phys_forget(void)
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
