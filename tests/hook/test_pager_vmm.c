/* SPDX-License-Identifier: Apache-2.0 */

/* The program's own virtual memory management over memory that moves. */

#include "hook/table/hooks.h"

#include "fake_memory.h"
#include "hook/gate/gate.h"
#include "hook/pager/hostpool.h"
#include "hook/pager/pager.h"
#include "hook/pager/pager_vmm.h"

#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (1ull << 20)

static const CUmemAllocationProp on_card = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
					    .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
static const CUmemAccessDesc read_write = {{CU_MEM_LOCATION_TYPE_DEVICE, 0},
					   CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
static const CUmemAccessDesc read_only = {{CU_MEM_LOCATION_TYPE_DEVICE, 0},
					  CU_MEM_ACCESS_FLAGS_PROT_READ};

static struct nvshare_mem counts(void)
{
	struct nvshare_mem mem;

	budget_read(0, &mem);
	return mem;
}

static CUmemGenericAllocationHandle create(size_t size)
{
	CUmemGenericAllocationHandle handle = 0;

	assert_int_equal(cuMemCreate(&handle, size, &on_card, 0), CUDA_SUCCESS);
	return handle;
}

static CUdeviceptr reserve(size_t size)
{
	CUdeviceptr ptr = 0;

	assert_int_equal(fake_reserve(&ptr, size, 0, 0, 0), CUDA_SUCCESS);
	return ptr;
}

static void map(CUdeviceptr ptr, size_t size, CUmemGenericAllocationHandle handle)
{
	assert_int_equal(cuMemMap(ptr, size, 0, handle, 0), CUDA_SUCCESS);
	assert_int_equal(cuMemSetAccess(ptr, size, &read_write, 1), CUDA_SUCCESS);
}

static uint32_t *words(CUdeviceptr ptr)
{
	return fake_pointer(ptr);
}

static void fill(CUdeviceptr ptr, size_t size, uint32_t seed)
{
	for (size_t i = 0; i < size / 4; i += 61)
		words(ptr)[i] = (uint32_t)i * 2654435761u + seed;
}

static void verify(CUdeviceptr ptr, size_t size, uint32_t seed)
{
	size_t n_wrong = 0;

	for (size_t i = 0; i < size / 4; i += 61)
		n_wrong += words(ptr)[i] != (uint32_t)i * 2654435761u + seed;
	assert_int_equal(n_wrong, 0);
}

static void evict_all(void)
{
	struct pager_move move;

	assert_int_equal(pager_evict(0, UINT64_MAX, false, &move), NVSHARE_OUTCOME_SUCCESS);
}

static void restore_all(void)
{
	struct pager_move move;

	assert_int_equal(pager_restore(0, &move), NVSHARE_OUTCOME_SUCCESS);
}

static void unmap(CUdeviceptr ptr, size_t size)
{
	assert_int_equal(cuMemUnmap(ptr, size), CUDA_SUCCESS);
	assert_int_equal(cuMemAddressFree(ptr, size), CUDA_SUCCESS);
}

static CUresult refuse(void *shareable, CUmemGenericAllocationHandle handle,
		       CUmemAllocationHandleType type, unsigned long long flags)
{
	(void)shareable;
	(void)handle;
	(void)type;
	(void)flags;
	return CUDA_ERROR_INVALID_VALUE;
}

static CUmemGenericAllocationHandle exported;

static CUresult export(void *shareable, CUmemGenericAllocationHandle handle,
		       CUmemAllocationHandleType type, unsigned long long flags)
{
	(void)shareable;
	(void)type;
	(void)flags;
	exported = handle;
	return CUDA_SUCCESS;
}

static CUresult bind_memory(CUmemGenericAllocationHandle mc, size_t mc_offset,
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

static CUresult attribute(void *data, CUpointer_attribute what, CUdeviceptr ptr)
{
	assert_int_equal(what, CU_POINTER_ATTRIBUTE_BUFFER_ID);
	if (!fake_find_map(ptr))
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(data, &driver_id, sizeof(driver_id));
	return CUDA_SUCCESS;
}

/* What the driver is asked when the memory is none of ours. */
static CUresult no_access(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr ptr)
{
	(void)flags;
	(void)location;
	(void)ptr;
	return CUDA_ERROR_INVALID_VALUE;
}

static CUresult no_properties(CUmemAllocationProp *prop, CUmemGenericAllocationHandle handle)
{
	(void)prop;
	(void)handle;
	return CUDA_ERROR_INVALID_VALUE;
}

static CUresult no_handle(CUmemGenericAllocationHandle *handle, void *addr)
{
	(void)handle;
	(void)addr;
	return CUDA_ERROR_INVALID_VALUE;
}

static int setup(void **state)
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

static int teardown(void **state)
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
	assert_int_equal(hostpool_unused(), hostpool_bytes());
	assert_true(gate_quiet());
	hostpool_trim();
	return 0;
}

/* ---- moving --------------------------------------------------------------- */

static void every_mapping_survives_going_out_and_coming_back(void **state)
{
	CUmemGenericAllocationHandle handle = create(20 * MIB);
	CUdeviceptr a = reserve(20 * MIB), b = reserve(20 * MIB);

	(void)state;
	assert_int_equal(counts().resident, 20 * MIB);
	assert_int_equal(counts().allocated, 20 * MIB);
	assert_int_equal(cuMemMap(b, 20 * MIB, 0, handle, 0), CUDA_SUCCESS);
	assert_int_equal(cuMemSetAccess(b, 20 * MIB, &read_only, 1), CUDA_SUCCESS);
	map(a, 20 * MIB, handle);
	fill(a, 20 * MIB, 1);
	for (int i = 0; i < 2; i++) {
		evict_all();
		assert_int_equal(fake.used, 0);
		assert_null(fake_find_map(a));
		assert_null(fake_find_map(b));
		assert_int_equal(counts().swapped, 20 * MIB);
		assert_int_equal(counts().resident, 0);
		restore_all();
		verify(a, 20 * MIB, 1);
		verify(b, 20 * MIB, 1);
		assert_false(fake_find_map(a)->is_read_only);
		assert_true(fake_find_map(b)->is_read_only);
		/* They are one memory still. */
		words(a)[61] = 7;
		assert_int_equal(words(b)[61], 7);
		fill(a, 20 * MIB, 1);
	}
	unmap(a, 20 * MIB);
	unmap(b, 20 * MIB);
	assert_int_equal(cuMemRelease(handle), CUDA_SUCCESS);
}

static void memory_that_was_never_mapped_goes_without_a_copy(void **state)
{
	CUmemGenericAllocationHandle handle = create(4 * MIB);
	CUdeviceptr ptr = reserve(4 * MIB);

	(void)state;
	evict_all();
	assert_int_equal(fake.used, 0);
	assert_int_equal(counts().swapped, 4 * MIB);
	restore_all();
	assert_int_equal(fake.bytes_copied, 0);
	map(ptr, 4 * MIB, handle);
	fill(ptr, 4 * MIB, 2);
	evict_all();
	restore_all();
	verify(ptr, 4 * MIB, 2);
	unmap(ptr, 4 * MIB);
	assert_int_equal(cuMemRelease(handle), CUDA_SUCCESS);
}

static void what_is_mapped_nowhere_now_keeps_its_bytes(void **state)
{
	CUmemGenericAllocationHandle handle = create(4 * MIB);
	CUdeviceptr a = reserve(4 * MIB), b = reserve(4 * MIB);

	(void)state;
	map(a, 4 * MIB, handle);
	fill(a, 4 * MIB, 3);
	unmap(a, 4 * MIB);
	for (int i = 0; i < 2; i++) {
		evict_all();
		assert_int_equal(fake.used, 0);
		restore_all();
	}
	map(b, 4 * MIB, handle);
	verify(b, 4 * MIB, 3);
	evict_all();
	assert_int_equal(fake.used, 0);
	restore_all();
	verify(b, 4 * MIB, 3);
	unmap(b, 4 * MIB);
	assert_int_equal(cuMemRelease(handle), CUDA_SUCCESS);
}

static void what_can_only_be_read_moves_too(void **state)
{
	CUmemGenericAllocationHandle handle = create(4 * MIB);
	CUdeviceptr ptr = reserve(4 * MIB);

	(void)state;
	map(ptr, 4 * MIB, handle);
	fill(ptr, 4 * MIB, 4);
	assert_int_equal(cuMemSetAccess(ptr, 4 * MIB, &read_only, 1), CUDA_SUCCESS);
	evict_all();
	assert_int_equal(fake.used, 0);
	restore_all();
	verify(ptr, 4 * MIB, 4);
	assert_true(fake_find_map(ptr)->is_read_only);
	unmap(ptr, 4 * MIB);
	assert_int_equal(cuMemRelease(handle), CUDA_SUCCESS);
}

/* As PyTorch's expandable segments do it. */
static void a_segment_grows_and_shrinks_across_evictions(void **state)
{
	enum { N = 8 };
	CUmemGenericAllocationHandle handles[N];
	CUdeviceptr base = reserve(64 * MIB);
	struct pager_move move;

	(void)state;
	for (int i = 0; i < N; i++) {
		handles[i] = create(2 * MIB);
		assert_int_equal(cuMemMap(base + 2 * MIB * i, 2 * MIB, 0, handles[i], 0), 0);
	}
	assert_int_equal(cuMemSetAccess(base, 2 * MIB * N, &read_write, 1), CUDA_SUCCESS);
	for (int i = 0; i < N; i++)
		fill(base + 2 * MIB * i, 2 * MIB, (uint32_t)i);
	assert_int_equal(pager_evict(0, 5 * MIB, false, &move), NVSHARE_OUTCOME_SUCCESS);
	assert_int_equal(move.bytes, 6 * MIB);
	/* Some are out, some are not: all of these can go. */
	for (int i = 1; i < 5; i++)
		assert_int_equal(cuMemRelease(handles[i]), CUDA_SUCCESS);
	assert_int_equal(counts().allocated, 2 * MIB * N);
	assert_int_equal(cuMemUnmap(base + 2 * MIB, 8 * MIB), CUDA_SUCCESS);
	assert_int_equal(counts().allocated, 2 * MIB * (N - 4));
	restore_all();
	assert_int_equal(counts().resident, 2 * MIB * (N - 4));
	for (int i = 0; i < N; i++) {
		if (i < 1 || i > 4)
			verify(base + 2 * MIB * i, 2 * MIB, (uint32_t)i);
	}
	handles[1] = create(2 * MIB);
	map(base + 2 * MIB, 2 * MIB, handles[1]);
	assert_int_equal(cuMemUnmap(base, 64 * MIB), CUDA_SUCCESS);
	assert_int_equal(cuMemAddressFree(base, 64 * MIB), CUDA_SUCCESS);
	for (int i = 0; i < N; i++) {
		if (i < 2 || i > 4)
			assert_int_equal(cuMemRelease(handles[i]), CUDA_SUCCESS);
	}
}

/* ---- living and dying ------------------------------------------------------- */

static void memory_lives_until_its_last_handle_and_mapping(void **state)
{
	CUmemGenericAllocationHandle handle = create(4 * MIB), again = 0;
	CUdeviceptr ptr = reserve(4 * MIB);

	(void)state;
	map(ptr, 4 * MIB, handle);
	fill(ptr, 4 * MIB, 5);
	assert_int_equal(cuMemRelease(handle), CUDA_SUCCESS);
	evict_all();
	assert_int_equal(cuMemRetainAllocationHandle(&again, fake_pointer(ptr + MIB)),
			 CUDA_SUCCESS);
	assert_int_equal(again, handle);
	restore_all();
	verify(ptr, 4 * MIB, 5);
	assert_int_equal(cuMemUnmap(ptr, 4 * MIB), CUDA_SUCCESS);
	assert_int_equal(counts().resident, 4 * MIB);
	map(ptr, 4 * MIB, again);
	verify(ptr, 4 * MIB, 5);
	assert_int_equal(cuMemRelease(again), CUDA_SUCCESS);
	assert_int_equal(counts().resident, 4 * MIB);
	unmap(ptr, 4 * MIB);
	assert_int_equal(counts().resident, 0);
}

static void memory_that_is_out_can_be_unmapped_and_released(void **state)
{
	CUmemGenericAllocationHandle a = create(4 * MIB), b = create(4 * MIB);
	CUdeviceptr at_a = reserve(4 * MIB), at_b = reserve(4 * MIB);

	(void)state;
	map(at_a, 4 * MIB, a);
	map(at_b, 4 * MIB, b);
	fill(at_b, 4 * MIB, 6);
	evict_all();
	gate_set(GATE_CLOSED);
	assert_int_equal(cuMemAddressFree(at_a, 4 * MIB), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuMemUnmap(at_a + 2 * MIB, 2 * MIB), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuMemUnmap(at_a, 2 * MIB), CUDA_ERROR_INVALID_VALUE);
	unmap(at_a, 4 * MIB);
	assert_int_equal(cuMemRelease(a), CUDA_SUCCESS);
	unmap(at_b, 4 * MIB);
	assert_int_equal(counts().swapped, 4 * MIB);
	restore_all();
	gate_set(GATE_OPEN);
	at_b = reserve(4 * MIB);
	map(at_b, 4 * MIB, b);
	verify(at_b, 4 * MIB, 6);
	unmap(at_b, 4 * MIB);
	assert_int_equal(cuMemRelease(b), CUDA_SUCCESS);
}

static void the_drivers_own_mappings_between_ours_go_too(void **state)
{
	CUmemAllocationProp compressed = on_card;
	CUmemGenericAllocationHandle ours = create(2 * MIB), other;
	CUdeviceptr base = reserve(6 * MIB);

	(void)state;
	compressed.allocFlags.compressionType = 1;
	assert_int_equal(cuMemCreate(&other, 2 * MIB, &compressed, 0), CUDA_SUCCESS);
	assert_int_equal(counts().pinned[NVSHARE_PINNED_VMM], 2 * MIB);
	map(base, 2 * MIB, ours);
	assert_int_equal(cuMemMap(base + 2 * MIB, 2 * MIB, 0, other, 0), CUDA_SUCCESS);
	map(base + 4 * MIB, 2 * MIB, ours);
	assert_int_equal(cuMemRelease(ours), CUDA_SUCCESS);
	assert_int_equal(cuMemRelease(other), CUDA_SUCCESS);
	evict_all();
	assert_int_equal(fake.used, 2 * MIB);
	unmap(base, 6 * MIB);
}

static void unknown_handles_and_addresses_are_the_drivers(void **state)
{
	CUmemGenericAllocationHandle handle = create(2 * MIB), again;
	CUmemAllocationProp prop = {0};
	unsigned long long flags;

	(void)state;
	assert_int_equal(cuMemGetAllocationPropertiesFromHandle(&prop, handle), CUDA_SUCCESS);
	assert_memory_equal(&prop, &on_card, sizeof(prop));
	assert_int_equal(cuMemRelease(handle), CUDA_SUCCESS);
	assert_int_equal(cuMemGetAllocationPropertiesFromHandle(&prop, handle),
			 CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuMemMap(0x1000, 2 * MIB, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuMemRetainAllocationHandle(&again, &prop), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuMemGetAccess(&flags, &on_card.location, 0x1000),
			 CUDA_ERROR_INVALID_VALUE);
}

/* In a child indeed: what it leaves behind of its parent's is no leak there. */
static void a_child_starts_without_any_of_it(void **state)
{
	CUmemGenericAllocationHandle handle = create(2 * MIB);
	CUmemAllocationProp prop;
	int status;
	pid_t pid;

	(void)state;
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		pager_after_fork_child();
		_exit(cuMemGetAllocationPropertiesFromHandle(&prop, handle) ==
					      CUDA_ERROR_INVALID_VALUE &&
				      counts().allocated == 0
			      ? 0
			      : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	assert_int_equal(counts().allocated, 2 * MIB);
	assert_int_equal(cuMemRelease(handle), CUDA_SUCCESS);
}

/* ---- what must stay --------------------------------------------------------- */

static void exported_memory_stays_for_ever(void **state)
{
	CUmemGenericAllocationHandle handle = create(2 * MIB), bound = create(2 * MIB);
	struct pager_move move;
	int fd;

	(void)state;
	evict_all();
	restore_all();
	cuda_real.cuMemExportToShareableHandle = refuse;
	assert_int_equal(cuMemExportToShareableHandle(&fd, handle, 1, 0), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(counts().pinned[NVSHARE_PINNED_VMM], 0);
	cuda_real.cuMemExportToShareableHandle = export;
	assert_int_equal(cuMemExportToShareableHandle(&fd, handle, 1, 0), CUDA_SUCCESS);
	assert_true(exported && exported <= FAKE_TABLE);
	assert_int_equal(cuMemExportToShareableHandle(&fd, handle, 1, 0), CUDA_SUCCESS);
	assert_int_equal(counts().pinned[NVSHARE_PINNED_VMM], 2 * MIB);
	assert_int_equal(cuMulticastBindMem(5, 0, bound, 0, 2 * MIB, 0), CUDA_SUCCESS);
	assert_true(exported && exported <= FAKE_TABLE);
	assert_int_equal(counts().pinned[NVSHARE_PINNED_VMM], 4 * MIB);
	assert_int_equal(counts().resident, 0);
	assert_int_equal(pager_evict(0, UINT64_MAX, false, &move), NVSHARE_OUTCOME_SUCCESS);
	assert_int_equal(move.bytes, 0);
	assert_int_equal(fake.used, 4 * MIB);
	assert_int_equal(cuMemRelease(handle), CUDA_SUCCESS);
	assert_int_equal(cuMemRelease(bound), CUDA_SUCCESS);
}

static void memory_with_other_properties_stays_the_drivers(void **state)
{
	CUmemAllocationProp prop = on_card;
	CUmemGenericAllocationHandle handle;

	(void)state;
	prop.allocFlags.usage = 1;
	assert_int_equal(cuMemCreate(&handle, 2 * MIB, &prop, 0), CUDA_SUCCESS);
	assert_true(handle <= FAKE_TABLE);
	assert_int_equal(counts().pinned[NVSHARE_PINNED_VMM], 2 * MIB);
	assert_int_equal(cuMemRelease(handle), CUDA_SUCCESS);
	fake.backend = NVSHARE_BACKEND_MANAGED;
	assert_int_equal(cuMemCreate(&handle, 2 * MIB, &on_card, 0), CUDA_SUCCESS);
	assert_int_equal(counts().pinned[NVSHARE_PINNED_VMM], 2 * MIB);
	assert_int_equal(cuMemRelease(handle), CUDA_SUCCESS);
	/* What could be exported or registered is not, yet. */
	fake.backend = NVSHARE_BACKEND_VMM;
	prop.allocFlags.usage = 0;
	prop.allocFlags.gpuDirectRDMACapable = 1;
	prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	assert_int_equal(cuMemCreate(&handle, 2 * MIB, &prop, 0), CUDA_SUCCESS);
	assert_int_equal(counts().resident, 2 * MIB);
	assert_int_equal(cuMemRelease(handle), CUDA_SUCCESS);
}

/* ---- answers ---------------------------------------------------------------- */

static void questions_are_answered_the_same_after_a_move(void **state)
{
	CUmemGenericAllocationHandle handle = create(2 * MIB);
	CUdeviceptr ptr = reserve(2 * MIB);
	unsigned long long flags = 9;
	uint64_t id = 0;

	(void)state;
	assert_int_equal(cuMemMap(ptr, 2 * MIB, 0, handle, 0), CUDA_SUCCESS);
	assert_int_equal(cuMemGetAccess(&flags, &on_card.location, ptr), CUDA_SUCCESS);
	assert_int_equal(flags, CU_MEM_ACCESS_FLAGS_PROT_NONE);
	assert_int_equal(cuMemSetAccess(ptr, 2 * MIB, &read_only, 1), CUDA_SUCCESS);
	assert_int_equal(cuMemGetAccess(&flags, &on_card.location, ptr + MIB), CUDA_SUCCESS);
	assert_int_equal(flags, CU_MEM_ACCESS_FLAGS_PROT_READ);
	assert_int_equal(cuMemSetAccess(ptr, 2 * MIB, &read_write, 1), CUDA_SUCCESS);
	driver_id = 11;
	assert_int_equal(cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, ptr), 0);
	assert_int_equal(id, 11);
	evict_all();
	assert_int_equal(cuMemGetAccess(&flags, &on_card.location, ptr), CUDA_SUCCESS);
	assert_int_equal(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	restore_all();
	driver_id = 12;
	assert_int_equal(cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, ptr + 4), 0);
	assert_int_equal(id, 11);
	unmap(ptr, 2 * MIB);
	assert_int_equal(cuMemRelease(handle), CUDA_SUCCESS);
}

struct late {
	CUmemGenericAllocationHandle handle;
	CUdeviceptr ptr;
	CUresult res;
};

static void *map_late(void *data)
{
	struct late *late = data;

	late->res = cuMemMap(late->ptr, 2 * MIB, 0, late->handle, 0);
	if (late->res == CUDA_SUCCESS)
		late->res = cuMemSetAccess(late->ptr, 2 * MIB, &read_write, 1);
	return NULL;
}

static void a_call_that_needs_the_memory_waits_for_it(void **state)
{
	struct late late = {.handle = create(2 * MIB), .ptr = reserve(2 * MIB)};
	CUdeviceptr first = reserve(2 * MIB);
	pthread_t thread;

	(void)state;
	map(first, 2 * MIB, late.handle);
	fill(first, 2 * MIB, 8);
	gate_set(GATE_CLOSED);
	evict_all();
	assert_int_equal(pthread_create(&thread, NULL, map_late, &late), 0);
	while (!gate_wanted())
		sched_yield();
	restore_all();
	gate_set(GATE_OPEN);
	pthread_join(thread, NULL);
	assert_int_equal(late.res, CUDA_SUCCESS);
	verify(late.ptr, 2 * MIB, 8);
	unmap(first, 2 * MIB);
	unmap(late.ptr, 2 * MIB);
	assert_int_equal(cuMemRelease(late.handle), CUDA_SUCCESS);
}

static void grant(CUdevice dev)
{
	struct nvshare_mem mem;

	budget_read(dev, &mem);
	budget_set(dev, budget_get(dev) + mem.wanted);
}

static void creating_waits_for_room(void **state)
{
	CUmemGenericAllocationHandle handle;

	(void)state;
	fake.on_want = grant;
	budget_set(0, 2 * MIB);
	handle = create(64 * MIB);
	assert_int_equal(fake.n_wants, 1);
	assert_int_equal(cuMemRelease(handle), CUDA_SUCCESS);
	fake.on_want = budget_refuse;
	budget_set(0, 2 * MIB);
	assert_int_equal(cuMemCreate(&handle, 64 * MIB, &on_card, 0), CUDA_ERROR_OUT_OF_MEMORY);
	assert_int_equal(cuMemCreate(&handle, 2 * fake.capacity, &on_card, 0),
			 CUDA_ERROR_OUT_OF_MEMORY);
	assert_int_equal(cuMemCreate(&handle, MIB, &on_card, 0), CUDA_ERROR_INVALID_VALUE);
}

/* ---- failures --------------------------------------------------------------- */

static void a_failure_half_way_leaves_all_as_it_was(void **state)
{
	CUmemGenericAllocationHandle a = create(2 * MIB), b = create(4 * MIB);
	CUdeviceptr at_a = reserve(2 * MIB), also_a = reserve(2 * MIB), at_b = reserve(4 * MIB);
	struct pager_move move;
	bool out_failed = true, in_failed = true;
	int outcome;

	(void)state;
	map(at_a, 2 * MIB, a);
	map(also_a, 2 * MIB, a);
	map(at_b, 4 * MIB, b);
	fill(at_b, 4 * MIB, 10);
	assert_int_equal(cuMemUnmap(at_b, 4 * MIB), CUDA_SUCCESS); /* moves by our own mapping */
	for (int n = 1; out_failed || in_failed; n++) {
		fill(at_a, 2 * MIB, (uint32_t)n);
		fake_arm(n, CUDA_ERROR_UNKNOWN);
		outcome = pager_evict(0, UINT64_MAX, false, &move);
		out_failed = fake_disarm();
		assert_true(out_failed || outcome == NVSHARE_OUTCOME_SUCCESS);
		assert_int_equal(counts().resident + counts().swapped, 6 * MIB);
		fake_arm(n, CUDA_ERROR_UNKNOWN);
		outcome = pager_restore(0, &move);
		in_failed = fake_disarm();
		assert_true(in_failed || outcome == NVSHARE_OUTCOME_SUCCESS);
		assert_int_equal(counts().resident + counts().swapped, 6 * MIB);
		restore_all();
		assert_int_equal(counts().resident, 6 * MIB);
		assert_int_equal(fake.used, 6 * MIB);
		verify(at_a, 2 * MIB, (uint32_t)n);
		verify(also_a, 2 * MIB, (uint32_t)n);
	}
	map(at_b, 4 * MIB, b);
	verify(at_b, 4 * MIB, 10);
	unmap(at_a, 2 * MIB);
	unmap(also_a, 2 * MIB);
	unmap(at_b, 4 * MIB);
	assert_int_equal(cuMemRelease(a), CUDA_SUCCESS);
	assert_int_equal(cuMemRelease(b), CUDA_SUCCESS);
}

static void a_call_that_the_driver_refuses_changes_nothing(void **state)
{
	CUmemGenericAllocationHandle handle = create(2 * MIB);
	CUdeviceptr ptr = reserve(2 * MIB);
	unsigned long long flags;

	(void)state;
	fake_arm(1, CUDA_ERROR_UNKNOWN);
	assert_int_equal(cuMemMap(ptr, 2 * MIB, 0, handle, 0), CUDA_ERROR_UNKNOWN);
	fake_disarm();
	assert_int_equal(cuMemMap(ptr, 2 * MIB, 0, handle, 0), CUDA_SUCCESS);
	assert_int_equal(cuMemMap(ptr, 2 * MIB, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
	fake_arm(1, CUDA_ERROR_UNKNOWN);
	assert_int_equal(cuMemSetAccess(ptr, 2 * MIB, &read_write, 1), CUDA_ERROR_UNKNOWN);
	fake_disarm();
	assert_int_equal(cuMemGetAccess(&flags, &on_card.location, ptr), CUDA_SUCCESS);
	assert_int_equal(flags, CU_MEM_ACCESS_FLAGS_PROT_NONE);
	fake_arm(1, CUDA_ERROR_UNKNOWN);
	assert_int_equal(cuMemUnmap(ptr, 2 * MIB), CUDA_ERROR_UNKNOWN);
	fake_disarm();
	evict_all();
	restore_all();
	assert_non_null(fake_find_map(ptr));
	unmap(ptr, 2 * MIB);
	assert_int_equal(cuMemRelease(handle), CUDA_SUCCESS);
}

int main(void)
{
#define VMM_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		VMM_TEST(every_mapping_survives_going_out_and_coming_back),
		VMM_TEST(memory_that_was_never_mapped_goes_without_a_copy),
		VMM_TEST(what_is_mapped_nowhere_now_keeps_its_bytes),
		VMM_TEST(what_can_only_be_read_moves_too),
		VMM_TEST(a_segment_grows_and_shrinks_across_evictions),
		VMM_TEST(memory_lives_until_its_last_handle_and_mapping),
		VMM_TEST(memory_that_is_out_can_be_unmapped_and_released),
		VMM_TEST(the_drivers_own_mappings_between_ours_go_too),
		VMM_TEST(unknown_handles_and_addresses_are_the_drivers),
		VMM_TEST(a_child_starts_without_any_of_it),
		VMM_TEST(exported_memory_stays_for_ever),
		VMM_TEST(memory_with_other_properties_stays_the_drivers),
		VMM_TEST(questions_are_answered_the_same_after_a_move),
		VMM_TEST(a_call_that_needs_the_memory_waits_for_it),
		VMM_TEST(creating_waits_for_room),
		VMM_TEST(a_failure_half_way_leaves_all_as_it_was),
		VMM_TEST(a_call_that_the_driver_refuses_changes_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
