/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_TESTS_HOOK_FAKE_ADDRESSES_H
#define NVS_TESTS_HOOK_FAKE_ADDRESSES_H

/* Of fake_memory.h: address ranges, physical memory, and which of it is mapped where. */

#include "fake_state.h"

static void *fake_pointer(CUdeviceptr ptr)
{
	return (void *)(uintptr_t)ptr;
}

static CUresult fake_granularity(size_t *granularity, const CUmemAllocationProp *prop,
				 CUmemAllocationGranularity_flags option)
{
	(void)prop;
	(void)option;
	*granularity = FAKE_GRANULE;
	return CUDA_SUCCESS;
}

static CUresult fake_reserve(CUdeviceptr *ptr, size_t size, size_t alignment, CUdeviceptr addr,
			     unsigned long long flags)
{
	char *raw, *aligned;

	(void)alignment;
	(void)addr;
	(void)flags;
	FAKE_BEGIN();
	if (size % FAKE_GRANULE)
		return fake_end(CUDA_ERROR_INVALID_VALUE);
	raw = mmap(NULL, size + FAKE_GRANULE, PROT_NONE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (raw == MAP_FAILED)
		return fake_end(CUDA_ERROR_OUT_OF_MEMORY);
	aligned = raw + (-(uintptr_t)raw & (FAKE_GRANULE - 1));
	if (aligned != raw)
		munmap(raw, (size_t)(aligned - raw));
	munmap(aligned + size, FAKE_GRANULE - (size_t)(aligned - raw));
	fake.reserved += size;
	*ptr = (uintptr_t)aligned;
	return fake_end(CUDA_SUCCESS);
}

static CUresult fake_unreserve(CUdeviceptr ptr, size_t size)
{
	pthread_mutex_lock(&fake.lock);
	for (size_t i = 0; i < FAKE_TABLE; i++) {
		if (fake.maps[i].addr)
			assert_false((uintptr_t)fake.maps[i].addr - ptr < size);
	}
	munmap(fake_pointer(ptr), size);
	fake.reserved -= size;
	return fake_end(CUDA_SUCCESS);
}

static CUresult fake_create(CUmemGenericAllocationHandle *handle, size_t size,
			    const CUmemAllocationProp *prop, unsigned long long flags)
{
	bool is_host = prop->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA;
	size_t i = 0;

	(void)flags;
	FAKE_BEGIN();
	if (size % FAKE_GRANULE || (!is_host && prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE))
		return fake_end(CUDA_ERROR_INVALID_VALUE);
	if (!is_host && size > fake.capacity - fake.used)
		return fake_end(CUDA_ERROR_OUT_OF_MEMORY);
	while (fake.phys[i].size)
		i++;
	assert_true(i < FAKE_TABLE);
	fake.phys[i].fd = memfd_create("fake", MFD_CLOEXEC);
	assert_true(fake.phys[i].fd >= 0);
	assert_int_equal(ftruncate(fake.phys[i].fd, (off_t)size), 0);
	fake.phys[i].size = size;
	fake.phys[i].n_handles = 1;
	fake.phys[i].is_host = is_host;
	fake.used += is_host ? 0 : size;
	*handle = i + 1;
	return fake_end(CUDA_SUCCESS);
}

static void fake_phys_drop(struct fake_phys *phys)
{
	if (phys->n_handles || phys->n_maps)
		return;
	close(phys->fd);
	fake.used -= phys->is_host ? 0 : phys->size;
	phys->size = 0;
}

/* Like every call that only gives back, it can not fail: what could anyone do? */
static CUresult fake_release(CUmemGenericAllocationHandle handle)
{
	pthread_mutex_lock(&fake.lock);
	assert_int_equal(fake.phys[handle - 1].n_handles, 1);
	fake.phys[handle - 1].n_handles = 0;
	fake_phys_drop(&fake.phys[handle - 1]);
	return fake_end(CUDA_SUCCESS);
}

static struct fake_map *fake_find_map(CUdeviceptr ptr)
{
	for (size_t i = 0; i < FAKE_TABLE; i++) {
		if (fake.maps[i].addr && ptr - (uintptr_t)fake.maps[i].addr < fake.maps[i].size)
			return &fake.maps[i];
	}
	return NULL;
}

static CUresult fake_map(CUdeviceptr ptr, size_t size, size_t offset,
			 CUmemGenericAllocationHandle handle, unsigned long long flags)
{
	size_t i = 0;

	(void)flags;
	FAKE_BEGIN();
	assert_int_equal(offset, 0);
	if (fake_find_map(ptr) || handle - 1 >= FAKE_TABLE || !fake.phys[handle - 1].n_handles ||
	    fake.phys[handle - 1].size != size)
		return fake_end(CUDA_ERROR_INVALID_VALUE);
	while (fake.maps[i].addr)
		i++;
	assert_true(i < FAKE_TABLE);
	assert_ptr_equal(mmap(fake_pointer(ptr), size, PROT_NONE, MAP_SHARED | MAP_FIXED,
			      fake.phys[handle - 1].fd, 0),
			 fake_pointer(ptr));
	fake.maps[i] =
		(struct fake_map){.addr = fake_pointer(ptr), .size = size, .phys = (int)handle - 1};
	fake.phys[handle - 1].n_maps++;
	return fake_end(CUDA_SUCCESS);
}

static CUresult fake_unmap(CUdeviceptr ptr, size_t size)
{
	struct fake_map *map;

	FAKE_BEGIN();
	map = fake_find_map(ptr);
	if (!map)
		return fake_end(CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(map->size, size);
	/* A copy that nobody waited for would now read or write memory that is gone. */
	for (size_t i = 0; i < fake.n_copies; i++) {
		assert_false((uintptr_t)fake.copies[i].dst - ptr < size);
		assert_false((uintptr_t)fake.copies[i].src - ptr < size);
	}
	assert_ptr_equal(mmap(map->addr, size, PROT_NONE,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0),
			 map->addr);
	map->addr = NULL;
	fake.phys[map->phys].n_maps--;
	fake_phys_drop(&fake.phys[map->phys]);
	return fake_end(CUDA_SUCCESS);
}

static void fake_open_map(struct fake_map *map, const CUmemAccessDesc *desc)
{
	bool is_writable = desc->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
	int prot = (desc->flags ? PROT_READ : PROT_NONE) | (is_writable ? PROT_WRITE : 0);

	if (is_writable)
		map->peers |= 1u << desc->location.id;
	else
		map->peers &= ~(1u << desc->location.id);
	if (desc->location.id == 0) {
		map->is_read_only = prot == PROT_READ;
		assert_int_equal(mprotect(map->addr, map->size, prot), 0);
	}
}

static CUresult fake_set_access(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc,
				size_t count)
{
	struct fake_map *map;

	FAKE_BEGIN();
	for (; size; ptr += map->size, size -= map->size) {
		map = fake_find_map(ptr);
		assert_non_null(map);
		assert_int_equal((uintptr_t)map->addr, ptr);
		assert_true(map->size <= size);
		for (size_t i = 0; i < count; i++)
			fake_open_map(map, &desc[i]);
	}
	return fake_end(CUDA_SUCCESS);
}

#endif
