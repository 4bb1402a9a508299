/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_TESTS_HOOK_VMM_RIG_H
#define NVS_TESTS_HOOK_VMM_RIG_H

/* The program's own virtual memory management, over a driver that does what the test says. */

#include "hook/table/hooks.h"

#include "fake_memory.h"
#include "hook/gate/gate.h"
#include "hook/host/hostpool.h"
#include "hook/pager/pager.h"
#include "hook/pager/pager_vmm.h"

#define MIB (1ull << 20)

static const CUmemAllocationProp on_card = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
					    .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
static const CUmemAccessDesc read_write = {{CU_MEM_LOCATION_TYPE_DEVICE, 0},
					   CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
static const CUmemAccessDesc read_only = {{CU_MEM_LOCATION_TYPE_DEVICE, 0},
					  CU_MEM_ACCESS_FLAGS_PROT_READ};

static inline struct nvshare_mem counts(void)
{
	struct nvshare_mem mem;

	budget_read(0, &mem);
	return mem;
}

static inline CUmemGenericAllocationHandle create(size_t size)
{
	CUmemGenericAllocationHandle handle = 0;

	assert_int_equal(cuMemCreate(&handle, size, &on_card, 0), CUDA_SUCCESS);
	return handle;
}

static inline CUdeviceptr reserve(size_t size)
{
	CUdeviceptr ptr = 0;

	assert_int_equal(fake_reserve(&ptr, size, 0, 0, 0), CUDA_SUCCESS);
	return ptr;
}

static inline void map(CUdeviceptr ptr, size_t size, CUmemGenericAllocationHandle handle)
{
	assert_int_equal(cuMemMap(ptr, size, 0, handle, 0), CUDA_SUCCESS);
	assert_int_equal(cuMemSetAccess(ptr, size, &read_write, 1), CUDA_SUCCESS);
}

static inline uint32_t *words(CUdeviceptr ptr)
{
	return fake_pointer(ptr);
}

static inline void fill(CUdeviceptr ptr, size_t size, uint32_t seed)
{
	for (size_t i = 0; i < size / 4; i += 61)
		words(ptr)[i] = (uint32_t)i * 2654435761u + seed;
}

static inline void verify(CUdeviceptr ptr, size_t size, uint32_t seed)
{
	size_t n_wrong = 0;

	for (size_t i = 0; i < size / 4; i += 61)
		n_wrong += words(ptr)[i] != (uint32_t)i * 2654435761u + seed;
	assert_contents(n_wrong, 0);
}

/* What cuMemAlloc gives and cuMemFree takes. */
static inline CUdeviceptr allocate(size_t size)
{
	CUdeviceptr ptr = 0;

	gate_enter();
	assert_int_equal(pager_alloc(0, FAKE_CTX, size, &ptr), CUDA_SUCCESS);
	gate_leave();
	return ptr;
}

static inline void release(CUdeviceptr ptr)
{
	CUresult res = CUDA_ERROR_UNKNOWN;

	assert_true(pager_free(ptr, &res));
	assert_int_equal(res, CUDA_SUCCESS);
}

static inline void evict_all(void)
{
	struct pager_move move;

	assert_int_equal(pager_evict(0, UINT64_MAX, false, &move), NVSHARE_OUTCOME_SUCCESS);
}

static inline void restore_all(void)
{
	struct pager_move move;

	assert_int_equal(pager_restore(0, &move), NVSHARE_OUTCOME_SUCCESS);
}

static inline void unmap(CUdeviceptr ptr, size_t size)
{
	assert_int_equal(cuMemUnmap(ptr, size), CUDA_SUCCESS);
	assert_int_equal(cuMemAddressFree(ptr, size), CUDA_SUCCESS);
}

static inline CUresult refuse(void *shareable, CUmemGenericAllocationHandle handle,
			      CUmemAllocationHandleType type, unsigned long long flags)
{
	(void)shareable;
	(void)handle;
	(void)type;
	(void)flags;
	return CUDA_ERROR_INVALID_VALUE;
}

static CUmemGenericAllocationHandle exported;

static inline CUresult export(void *shareable, CUmemGenericAllocationHandle handle,
			      CUmemAllocationHandleType type, unsigned long long flags)
{
	(void)shareable;
	(void)type;
	(void)flags;
	exported = handle;
	return CUDA_SUCCESS;
}

static inline CUresult bind_memory(CUmemGenericAllocationHandle mc, size_t mc_offset,
				   CUmemGenericAllocationHandle handle, size_t offset, size_t size,
				   unsigned long long flags)
{
	(void)mc_offset;
	(void)offset;
	(void)size;
	(void)flags;
	exported = handle;
	return mc ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static uint64_t driver_id;

static inline CUresult attribute(void *data, CUpointer_attribute what, CUdeviceptr ptr)
{
	assert_int_equal(what, CU_POINTER_ATTRIBUTE_BUFFER_ID);
	if (!fake_find_map(ptr))
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(data, &driver_id, sizeof(driver_id));
	return CUDA_SUCCESS;
}

/* What the driver is asked when the memory is none of ours. */
static inline CUresult no_access(unsigned long long *flags, const CUmemLocation *location,
				 CUdeviceptr ptr)
{
	(void)flags;
	(void)location;
	(void)ptr;
	return CUDA_ERROR_INVALID_VALUE;
}

static inline CUresult no_properties(CUmemAllocationProp *prop, CUmemGenericAllocationHandle handle)
{
	(void)prop;
	(void)handle;
	return CUDA_ERROR_INVALID_VALUE;
}

static inline CUresult no_handle(CUmemGenericAllocationHandle *handle, void *addr)
{
	(void)handle;
	(void)addr;
	return CUDA_ERROR_INVALID_VALUE;
}

static inline int setup(void **state)
{
	(void)state;
	fake_setup();
	cuda_real.cuMemExportToShareableHandle = export;
	cuda_real.cuMulticastBindMem = bind_memory;
	cuda_real.cuPointerGetAttribute = attribute;
	cuda_real.cuMemGetAccess = no_access;
	cuda_real.cuMemGetAllocationPropertiesFromHandle = no_properties;
	cuda_real.cuMemRetainAllocationHandle = no_handle;
	exported = 0;
	assert_true(pager_supported(0));
	return 0;
}

static inline int teardown(void **state)
{
	struct nvshare_mem mem;

	(void)state;
	pager_context_gone(FAKE_CTX);
	mem = counts();
	assert_int_equal(fake.used, 0);
	assert_int_equal(fake.reserved, 0);
	assert_int_equal(mem.allocated, 0);
	assert_int_equal(mem.resident, 0);
	assert_int_equal(mem.swapped, 0);
	assert_int_equal(mem.pinned[NVSHARE_PINNED_VMM], 0);
	fake_give_back_host_memory();
	assert_true(gate_quiet());
	return 0;
}

#define VMM_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

#endif
