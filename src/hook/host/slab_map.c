/* SPDX-License-Identifier: Apache-2.0 */

#include "hook/host/slab_map.h"

#include "hook/base/hook_options.h"
#include "hook/base/own_fd.h"
#include "hook/table/cuda_real.h"
#include "util/fd.h"

#include <fcntl.h>
#include <string.h>

/* Kept empty on both sides of the slabs: a wrong index goes astray by little, mostly. */
#define SLOTS_APART 1
#define SLOTS_ALL   (SLAB_MAP_MAX + 2 * SLOTS_APART)
#define PROBE_BYTES (2ull << 20) /* the granularity of host memory */
#define DEVICES_MAX 64

static struct {
	CUdeviceptr base; /* 0: nothing is reserved */
	uint64_t size;    /* of a slot */
	bool is_used[SLAB_MAP_MAX];
} slots;

static bool driver_has_calls(void)
{
	return cuda_real.cuMemCreate && cuda_real.cuMemRelease && cuda_real.cuMemAddressReserve &&
	       cuda_real.cuMemAddressFree && cuda_real.cuMemMap && cuda_real.cuMemUnmap &&
	       cuda_real.cuMemSetAccess && cuda_real.cuMemExportToShareableHandle &&
	       cuda_real.cuMemImportFromShareableHandle && cuda_real.cuMemcpyAsync &&
	       cuda_real.cuCtxGetDevice && cuda_real.cuDeviceGetAttribute;
}

static int device_attribute(CUdevice dev, CUdevice_attribute attribute, int otherwise)
{
	int value = 0;

	if (cuda_real.cuDeviceGetAttribute(&value, attribute, dev) != CUDA_SUCCESS)
		return otherwise;
	return value;
}

bool slab_map_supported(CUdevice dev, uint32_t *ret_node)
{
	int node;

	if (!hook_options()->host_slabs || !driver_has_calls() ||
	    !device_attribute(
		    dev, CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0) ||
	    !device_attribute(dev, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
			      0))
		return false;
	/* Where the machine has no NUMA nodes, the driver says -1, and node 0 has all memory. */
	node = device_attribute(dev, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, 0);
	*ret_node = node > 0 ? (uint32_t)node : 0;
	return true;
}

/* A free slot's address; 0: none. */
static CUdeviceptr slot_take(uint64_t size)
{
	if (!slots.base) {
		if (cuda_real.cuMemAddressReserve(&slots.base, SLOTS_ALL * size, 0, 0, 0) !=
		    CUDA_SUCCESS) {
			slots.base = 0;
			return 0;
		}
		slots.size = size;
	}
	for (size_t i = 0; i < SLAB_MAP_MAX && size == slots.size; i++) {
		if (slots.is_used[i])
			continue;
		slots.is_used[i] = true;
		return slots.base + (SLOTS_APART + i) * size;
	}
	return 0;
}

static void slot_give(CUdeviceptr addr)
{
	slots.is_used[(addr - slots.base) / slots.size - SLOTS_APART] = false;
}

void slab_map_end(void)
{
	if (slots.base &&
	    cuda_real.cuMemAddressFree(slots.base, SLOTS_ALL * slots.size) == CUDA_SUCCESS)
		slots.base = 0;
}

CUresult slab_map_reach(struct slab_place *place, uint64_t size, CUdevice dev)
{
	CUmemAccessDesc access = {
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = dev},
		.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
	};
	CUresult res = CUDA_SUCCESS;

	if (dev < 0 || dev >= DEVICES_MAX)
		return CUDA_ERROR_INVALID_DEVICE;
	if (!(place->devices >> dev & 1))
		res = cuda_real.cuMemSetAccess(place->addr, size, &access, 1);
	if (res == CUDA_SUCCESS)
		place->devices |= 1ull << dev;
	return res;
}

/* The device of the current context copies it first. */
static CUresult place_map(struct slab_place *place, uint64_t size)
{
	CUdevice dev = -1;
	CUresult res = cuda_real.cuCtxGetDevice(&dev);

	if (res == CUDA_SUCCESS)
		res = cuda_real.cuMemMap(place->addr, size, 0, place->handle, 0);
	if (res != CUDA_SUCCESS)
		return res;
	res = slab_map_reach(place, size, dev);
	if (res != CUDA_SUCCESS)
		(void)cuda_real.cuMemUnmap(place->addr, size);
	return res;
}

/* place has a handle, which goes if this fails. */
static CUresult place_find_and_map(struct slab_place *place, uint64_t size)
{
	CUresult res = CUDA_ERROR_OUT_OF_MEMORY;

	place->devices = 0;
	place->addr = slot_take(size);
	if (place->addr)
		res = place_map(place, size);
	if (res == CUDA_SUCCESS)
		return res;
	if (place->addr)
		slot_give(place->addr);
	(void)cuda_real.cuMemRelease(place->handle);
	place->addr = 0;
	return res;
}

static CUresult host_create(uint64_t size, uint32_t node, CUmemGenericAllocationHandle *ret)
{
	CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA, .id = (int)node},
		.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
	};

	return cuda_real.cuMemCreate(ret, size, &prop, 0);
}

static CUresult host_export(CUmemGenericAllocationHandle handle, int *ret_fd)
{
	CUresult res = cuda_real.cuMemExportToShareableHandle(
		ret_fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);

	if (res == CUDA_SUCCESS)
		(void)fcntl(*ret_fd, F_SETFD, FD_CLOEXEC);
	return res;
}

static CUresult host_import(int fd, CUmemGenericAllocationHandle *ret)
{
	return cuda_real.cuMemImportFromShareableHandle(ret, (void *)(intptr_t)fd,
							CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
}

CUresult slab_map_make(uint64_t size, uint32_t node, struct slab_place *ret, int *ret_fd)
{
	CUresult res = host_create(size, node, &ret->handle);
	int fd = -1;

	if (res != CUDA_SUCCESS)
		return res;
	res = host_export(ret->handle, &fd);
	if (res != CUDA_SUCCESS) {
		(void)cuda_real.cuMemRelease(ret->handle);
		return res;
	}
	res = place_find_and_map(ret, size);
	if (res == CUDA_SUCCESS)
		*ret_fd = own_fd_take(fd);
	else
		(void)fd_close(fd);
	return res;
}

CUresult slab_map_open(int fd, uint64_t size, struct slab_place *ret)
{
	CUresult res = host_import(own_fd_of(fd), &ret->handle);

	return res == CUDA_SUCCESS ? place_find_and_map(ret, size) : res;
}

bool slab_map_close(struct slab_place *place, uint64_t size)
{
	if (cuda_real.cuMemUnmap(place->addr, size) != CUDA_SUCCESS)
		return false;
	slot_give(place->addr);
	place->addr = 0;
	return cuda_real.cuMemRelease(place->handle) == CUDA_SUCCESS;
}

/* false: it is mapped still. */
static bool probe_map(CUdeviceptr addr, CUmemGenericAllocationHandle handle)
{
	struct slab_place place = {.addr = addr, .handle = handle};

	return place_map(&place, PROBE_BYTES) != CUDA_SUCCESS ||
	       cuda_real.cuMemUnmap(addr, PROBE_BYTES) == CUDA_SUCCESS;
}

/* The results do not matter, so these calls may fail. They must not wait for a lock. */
void slab_map_probe(uint32_t node)
{
	CUmemGenericAllocationHandle handle, again;
	CUdeviceptr addr;
	int fd;

	if (host_create(PROBE_BYTES, node, &handle) != CUDA_SUCCESS)
		return;
	if (cuda_real.cuMemAddressReserve(&addr, PROBE_BYTES, 0, 0, 0) == CUDA_SUCCESS &&
	    probe_map(addr, handle))
		(void)cuda_real.cuMemAddressFree(addr, PROBE_BYTES);
	if (host_export(handle, &fd) == CUDA_SUCCESS) {
		if (host_import(fd, &again) == CUDA_SUCCESS)
			(void)cuda_real.cuMemRelease(again);
		(void)fd_close(fd);
	}
	(void)cuda_real.cuMemRelease(handle);
}

/* The mappings were not inherited. */
void slab_map_after_fork_child(void)
{
	memset(&slots, 0, sizeof(slots));
}
