/* SPDX-License-Identifier: Apache-2.0 */

/* What of the program's own memory stays, what its calls answer, and how they fail. */

#include "vmm_rig.h"

#include <sched.h>

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

static CUdeviceptr stuck_at;

static CUresult unmap_others(CUdeviceptr ptr, size_t size)
{
	return ptr == stuck_at ? CUDA_ERROR_UNKNOWN : fake_unmap(ptr, size);
}

static CUresult map_none(CUdeviceptr ptr, size_t size, size_t offset,
			 CUmemGenericAllocationHandle handle, unsigned long long flags)
{
	(void)ptr;
	(void)size;
	(void)offset;
	(void)handle;
	(void)flags;
	return CUDA_ERROR_UNKNOWN;
}

/* Others would be given a place on the card that is not free. */
static void what_can_not_be_taken_away_whole_counts_as_pinned_until_it_is_back(void **state)
{
	CUmemGenericAllocationHandle a = create(2 * MIB), b = create(4 * MIB);
	CUdeviceptr at_a = reserve(2 * MIB), also_a = reserve(2 * MIB), at_b = reserve(4 * MIB);
	struct cuda_real driver = cuda_real;

	(void)state;
	map(at_a, 2 * MIB, a);
	map(also_a, 2 * MIB, a);
	map(at_b, 4 * MIB, b);
	fill(at_a, 2 * MIB, 3);
	stuck_at = at_a; /* after the other one */
	cuda_real.cuMemUnmap = unmap_others;
	cuda_real.cuMemMap = map_none;
	evict_all();
	cuda_real = driver;
	assert_int_equal(fake.used, 2 * MIB);
	assert_int_equal(counts().pinned[NVSHARE_PINNED_VMM], 2 * MIB);
	assert_int_equal(counts().swapped, 4 * MIB);
	unmap(at_b, 4 * MIB);
	assert_int_equal(cuMemRelease(b), CUDA_SUCCESS);
	assert_int_equal(counts().swapped, 1); /* it is not whole */
	budget_set(0, 2 * MIB);                /* its own place is enough for it */
	restore_all();
	assert_int_equal(counts().pinned[NVSHARE_PINNED_VMM], 0);
	assert_int_equal(counts().swapped, 0);
	verify(at_a, 2 * MIB, 3);
	verify(also_a, 2 * MIB, 3);
	assert_int_equal(counts().resident, 2 * MIB);
	unmap(at_a, 2 * MIB);
	unmap(also_a, 2 * MIB);
	assert_int_equal(cuMemRelease(a), CUDA_SUCCESS);
	assert_int_equal(fake.used, 0);
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
	const struct CMUnitTest tests[] = {
		VMM_TEST(exported_memory_stays_for_ever),
		VMM_TEST(memory_with_other_properties_stays_the_drivers),
		VMM_TEST(questions_are_answered_the_same_after_a_move),
		VMM_TEST(a_call_that_needs_the_memory_waits_for_it),
		VMM_TEST(creating_waits_for_room),
		VMM_TEST(a_failure_half_way_leaves_all_as_it_was),
		VMM_TEST(what_can_not_be_taken_away_whole_counts_as_pinned_until_it_is_back),
		VMM_TEST(a_call_that_the_driver_refuses_changes_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
