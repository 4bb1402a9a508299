/* SPDX-License-Identifier: Apache-2.0 */

/* The program's own virtual memory management over memory that moves. */

#include "vmm_rig.h"

#include <sys/wait.h>
#include <unistd.h>

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
		assert_contents(words(b)[61], 7);
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

/* It can be given away at once, and what must be copied takes time. */
static void of_equals_what_needs_no_copy_goes_first(void **state)
{
	CUmemGenericAllocationHandle handles[3];
	CUdeviceptr at[3] = {0};
	struct pager_move move;

	(void)state;
	for (int i = 0; i < 3; i++) {
		handles[i] = create(4 * MIB);
		if (i == 1)
			continue; /* never used, and neither the first nor the last */
		at[i] = reserve(4 * MIB);
		map(at[i], 4 * MIB, handles[i]);
		fill(at[i], 4 * MIB, (uint32_t)i);
	}
	for (uint64_t bytes = 4 * MIB; bytes; bytes -= 2 * MIB) { /* all of one, or part */
		fake.bytes_copied = 0;
		assert_int_equal(pager_evict(0, bytes, false, &move), NVSHARE_OUTCOME_SUCCESS);
		assert_int_equal(move.bytes, 4 * MIB);
		assert_int_equal(fake.bytes_copied, 0);
		restore_all();
	}
	for (int i = 0; i < 3; i++) {
		if (i != 1)
			unmap(at[i], 4 * MIB);
		assert_int_equal(cuMemRelease(handles[i]), CUDA_SUCCESS);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		VMM_TEST(every_mapping_survives_going_out_and_coming_back),
		VMM_TEST(memory_that_was_never_mapped_goes_without_a_copy),
		VMM_TEST(what_is_mapped_nowhere_now_keeps_its_bytes),
		VMM_TEST(what_can_only_be_read_moves_too),
		VMM_TEST(a_segment_grows_and_shrinks_across_evictions),
		VMM_TEST(memory_lives_until_its_last_handle_and_mapping),
		VMM_TEST(memory_that_is_out_can_be_unmapped_and_released),
		VMM_TEST(of_equals_what_needs_no_copy_goes_first),
		VMM_TEST(the_drivers_own_mappings_between_ours_go_too),
		VMM_TEST(unknown_handles_and_addresses_are_the_drivers),
		VMM_TEST(a_child_starts_without_any_of_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
