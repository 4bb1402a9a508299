/* SPDX-License-Identifier: Apache-2.0 */

#include "sim_fixture.h"

static const CUmemAllocationProp prop = {
	.type = CU_MEM_ALLOCATION_TYPE_PINNED,
	.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0},
};
static const CUmemAccessDesc read_write = {{CU_MEM_LOCATION_TYPE_DEVICE, 0},
					   CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
static const CUmemAccessDesc read_only = {{CU_MEM_LOCATION_TYPE_DEVICE, 0},
					  CU_MEM_ACCESS_FLAGS_PROT_READ};

static void map_at(CUdeviceptr p, size_t size, CUmemGenericAllocationHandle *ret)
{
	assert_cuda(cuMemCreate(ret, size, &prop, 0));
	assert_cuda(cuMemMap(p, size, 0, *ret, 0));
	assert_cuda(cuMemSetAccess(p, size, &read_write, 1));
}

static void unmap_at(CUdeviceptr p, size_t size, CUmemGenericAllocationHandle handle)
{
	assert_cuda(cuMemUnmap(p, size));
	assert_cuda(cuMemRelease(handle));
}

static void checks_arguments(void **state)
{
	CUmemAllocationProp wrong = prop;
	CUmemGenericAllocationHandle h, unused;
	CUdeviceptr p;
	size_t granularity;

	(void)state;
	assert_cuda(cuMemGetAllocationGranularity(&granularity, &prop,
						  CU_MEM_ALLOC_GRANULARITY_MINIMUM));
	assert_int_equal(granularity, PAGE);
	assert_int_equal(cuMemCreate(&h, PAGE + 4096, &prop, 0), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuMemCreate(&h, 0, &prop, 0), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuMemCreate(&h, 1024 * MIB, &prop, 0), CUDA_ERROR_OUT_OF_MEMORY);
	wrong.location.id = 7;
	assert_int_equal(cuMemCreate(&h, PAGE, &wrong, 0), CUDA_ERROR_INVALID_DEVICE);
	assert_int_equal(cuMemAddressReserve(&p, 4096, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuMemAddressReserve(&p, PAGE, 3 * MIB, 0, 0), CUDA_ERROR_INVALID_VALUE);
	assert_cuda(cuMemAddressReserve(&p, 4 * PAGE, 64 * MIB, 0, 0));
	assert_int_equal(p % (64 * MIB), 0);
	assert_cuda(cuMemCreate(&h, 2 * PAGE, &prop, 0));
	assert_int_equal(cuMemMap(p + 4096, PAGE, 0, h, 0), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuMemMap(p, PAGE, PAGE, h, 0), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuMemMap(p, 4 * PAGE, 0, h, 0), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuMemMap(p + 3 * PAGE, 2 * PAGE, 0, h, 0), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuMemMap(p + 64 * MIB, PAGE, 0, h, 0), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuMemSetAccess(p, 2 * PAGE, &read_write, 1), CUDA_ERROR_INVALID_VALUE);
	assert_cuda(cuMemMap(p, 2 * PAGE, 0, h, 0));
	assert_int_equal(cuMemMap(p + PAGE, PAGE, 0, h, 0), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuMemSetAccess(p, PAGE, &read_write, 1), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuMemUnmap(p, PAGE), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuMemUnmap(p, 3 * PAGE), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuMemAddressFree(p, 4 * PAGE), CUDA_ERROR_INVALID_VALUE);
	unmap_at(p, 2 * PAGE, h);
	assert_int_equal(cuMemRelease(h), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuMemRelease(0), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuMemRetainAllocationHandle(&unused, (void *)(uintptr_t)p),
			 CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuMemAddressFree(p, PAGE), CUDA_ERROR_INVALID_VALUE);
	assert_cuda(cuMemAddressFree(p, 4 * PAGE));
}

static void moves_bytes_out_and_in_at_one_address(void **state)
{
	uint64_t before = memory_used(), n = 4 * PAGE / 4;
	static uint32_t host[4 * PAGE / 4];
	CUmemGenericAllocationHandle h[4];
	CUdeviceptr p;
	size_t i;

	(void)state;
	assert_cuda(cuMemAddressReserve(&p, 4 * PAGE, 0, 0, 0));
	for (i = 0; i < 4; i++)
		map_at(p + i * PAGE, PAGE, &h[i]);
	assert_int_equal(memory_used(), before + 4 * PAGE);
	assert_cuda(fill(NULL, p, n, 17));
	assert_cuda(cuMemcpyDtoH_v2(host, p, sizeof(host)));
	for (i = 0; i < 4; i++)
		unmap_at(p + i * PAGE, PAGE, h[i]);
	assert_int_equal(memory_used(), before);
	map_at(p, 4 * PAGE, &h[0]);
	assert_true(errors_in(p, n, 17) > n / 2); /* other pages, at the same address */
	assert_cuda(cuMemcpyHtoD_v2(p, host, sizeof(host)));
	assert_int_equal(errors_in(p, n, 17), 0);
	unmap_at(p, 4 * PAGE, h[0]);
	assert_cuda(cuMemAddressFree(p, 4 * PAGE));
}

static void keeps_pages_while_handle_or_mapping_lasts(void **state)
{
	uint64_t before = memory_used();
	CUmemGenericAllocationHandle h, again;
	CUdeviceptr p, q;

	(void)state;
	assert_cuda(cuMemAddressReserve(&p, PAGE, 0, 0, 0));
	assert_cuda(cuMemAddressReserve(&q, PAGE, 0, 0, 0));
	map_at(p, PAGE, &h);
	assert_cuda(cuMemRelease(h));
	assert_int_equal(memory_used(), before + PAGE);
	assert_cuda(fill(NULL, p, 1000, 5));
	assert_cuda(cuCtxSynchronize());
	assert_cuda(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)p));
	assert_cuda(cuMemMap(q, PAGE, 0, again, 0));
	assert_cuda(cuMemSetAccess(q, PAGE, &read_only, 1));
	assert_cuda(cuMemUnmap(p, PAGE));
	assert_int_equal(errors_in(q, 1000, 5), 0);
	assert_cuda(cuMemRelease(again));
	assert_cuda(cuMemUnmap(q, PAGE));
	assert_int_equal(memory_used(), before);
	assert_cuda(cuMemAddressFree(p, PAGE));
	assert_cuda(cuMemAddressFree(q, PAGE));
}

static CUfunction kept_function;

static CUresult launch_kept(CUdeviceptr p, uint64_t n)
{
	uint32_t seed = 1;
	void *params[] = {&p, &n, &seed};

	return cuLaunchKernel(kept_function, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL);
}

static void kernel_on_evicted_memory_is_fatal(void **state)
{
	CUmemGenericAllocationHandle h;
	CUdeviceptr p;

	(void)state;
	kept_function = function("nvs_fill_u32");
	assert_cuda(cuMemAddressReserve(&p, 2 * PAGE, 0, 0, 0));
	map_at(p, PAGE, &h);
	assert_cuda(launch_kept(p, PAGE / 4));
	assert_cuda(cuCtxSynchronize());
	assert_cuda(launch_kept(p, PAGE / 4 + 1)); /* one word too far */
	assert_int_equal(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
	assert_int_equal(launch_kept(p, 1), CUDA_ERROR_ILLEGAL_ADDRESS);
	/* The VMM goes on: the program can still clean up. */
	unmap_at(p, PAGE, h);
	assert_cuda(cuMemAddressFree(p, 2 * PAGE));
}

static void unset_access_is_fatal(void **state)
{
	CUmemGenericAllocationHandle h;
	CUdeviceptr p;

	(void)state;
	assert_cuda(cuMemAddressReserve(&p, PAGE, 0, 0, 0));
	assert_cuda(cuMemCreate(&h, PAGE, &prop, 0));
	assert_cuda(cuMemMap(p, PAGE, 0, h, 0));
	assert_cuda(fill(NULL, p, 1, 1));
	assert_int_equal(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
	unmap_at(p, PAGE, h);
	assert_cuda(cuMemAddressFree(p, PAGE));
}

static void write_to_read_only_is_fatal(void **state)
{
	unsigned long long flags;
	CUmemGenericAllocationHandle h;
	CUdeviceptr p;

	(void)state;
	assert_cuda(cuMemAddressReserve(&p, PAGE, 0, 0, 0));
	map_at(p, PAGE, &h);
	assert_cuda(cuMemSetAccess(p, PAGE, &read_only, 1));
	assert_cuda(cuMemGetAccess(&flags, &prop.location, p));
	assert_int_equal(flags, CU_MEM_ACCESS_FLAGS_PROT_READ);
	assert_int_equal(errors_in(p, 100, 1), 100); /* reading is fine */
	assert_cuda(cuMemsetD32_v2(p, 1, 1));
	assert_int_equal(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
	unmap_at(p, PAGE, h);
	assert_cuda(cuMemAddressFree(p, PAGE));
}

static void copy_to_evicted_memory_is_fatal(void **state)
{
	CUmemGenericAllocationHandle h;
	CUdeviceptr p;
	char byte = 1;

	(void)state;
	assert_cuda(cuMemAddressReserve(&p, PAGE, 0, 0, 0));
	map_at(p, PAGE, &h);
	assert_cuda(cuMemcpyHtoD_v2(p, &byte, 1));
	unmap_at(p, PAGE, h);
	assert_int_equal(cuMemcpyHtoD_v2(p, &byte, 1), CUDA_ERROR_ILLEGAL_ADDRESS);
	assert_int_equal(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
	assert_cuda(cuMemAddressFree(p, PAGE));
}

static void eviction_under_a_running_kernel_is_fatal(void **state)
{
	CUmemGenericAllocationHandle h;
	uint64_t steps, now;
	CUdeviceptr p;

	(void)state;
	assert_cuda(cuMemAddressReserve(&p, PAGE, 0, 0, 0));
	map_at(p, PAGE, &h);
	assert_cuda(nvshare_sim_counter(NODE_COUNTER_STEPS, &steps));
	assert_cuda(launch4("nvs_lcg_u32", NULL, p, PAGE / 4, UINT32_MAX, 0));
	do
		assert_cuda(nvshare_sim_counter(NODE_COUNTER_STEPS, &now));
	while (now < steps + 3);
	unmap_at(p, PAGE, h);
	assert_int_equal(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
	assert_cuda(cuMemAddressFree(p, PAGE));
}

static void freed_memory_is_fatal(void **state)
{
	CUdeviceptr p;

	(void)state;
	assert_cuda(cuMemAlloc_v2(&p, 4096));
	kept_function = function("nvs_fill_u32");
	assert_cuda(launch_kept(p, 1024));
	assert_cuda(cuMemFree_v2(p)); /* waits for the kernel */
	assert_cuda(launch_kept(p, 1024));
	assert_int_equal(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
}

static void misaligned_access_is_fatal(void **state)
{
	CUdeviceptr p;

	(void)state;
	assert_cuda(cuMemAlloc_v2(&p, 4096));
	assert_cuda(fill(NULL, p + 1, 10, 1));
	assert_int_equal(cuCtxSynchronize(), CUDA_ERROR_MISALIGNED_ADDRESS);
}

static void an_error_is_for_ever(void **state)
{
	CUmemGenericAllocationHandle h;
	CUfunction empty = function("nvs_empty");
	CUdeviceptr p;

	(void)state;
	assert_cuda(cuMemAddressReserve(&p, PAGE, 0, 0, 0));
	assert_cuda(fill(NULL, p, 1, 1));
	assert_int_equal(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
	map_at(p, PAGE, &h); /* too late */
	assert_int_equal(cuLaunchKernel(empty, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL),
			 CUDA_ERROR_ILLEGAL_ADDRESS);
	unmap_at(p, PAGE, h);
	assert_cuda(cuMemAddressFree(p, PAGE));
	assert_int_equal(cuStreamSynchronize(NULL), CUDA_ERROR_ILLEGAL_ADDRESS);
	assert_int_equal(cuMemAlloc_v2(&p, 1), CUDA_ERROR_ILLEGAL_ADDRESS);
}

static void second_context_reaches_the_same_memory(void **state)
{
	CUmemGenericAllocationHandle h;
	uint32_t first = 0;
	CUcontext other;
	CUdeviceptr p;

	(void)state;
	assert_cuda(cuMemAddressReserve(&p, PAGE, 0, 0, 0));
	map_at(p, PAGE, &h);
	assert_cuda(fill(NULL, p, 100, 1234));
	assert_cuda(cuCtxSynchronize());
	assert_cuda(cuCtxCreate_v2(&other, 0, 0));
	assert_cuda(cuMemcpyDtoH_v2(&first, p, 4));
	assert_int_equal(first, 1234);
	assert_cuda(cuCtxDestroy_v2(other));
	unmap_at(p, PAGE, h);
	assert_cuda(cuMemAddressFree(p, PAGE));
}

static void shares_pages_by_descriptor(void **state)
{
	CUmemAllocationProp shared = prop;
	CUmemGenericAllocationHandle h, imported;
	CUdeviceptr p, q;
	int fd;

	(void)state;
	shared.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	assert_cuda(cuMemCreate(&h, PAGE, &shared, 0));
	assert_cuda(
		cuMemExportToShareableHandle(&fd, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	assert_cuda(cuMemImportFromShareableHandle(&imported, (void *)(intptr_t)fd,
						   CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	close(fd);
	assert_cuda(cuMemAddressReserve(&p, 2 * PAGE, 0, 0, 0));
	q = p + PAGE;
	assert_cuda(cuMemMap(p, PAGE, 0, h, 0));
	assert_cuda(cuMemMap(q, PAGE, 0, imported, 0));
	assert_cuda(cuMemSetAccess(p, 2 * PAGE, &read_write, 1));
	assert_cuda(fill(NULL, p, PAGE / 4, 3));
	assert_int_equal(errors_in(q, PAGE / 4, 3), 0);
	assert_cuda(cuMemUnmap(p, 2 * PAGE));
	assert_cuda(cuMemRelease(h));
	assert_cuda(cuMemRelease(imported));
	assert_cuda(cuMemAddressFree(p, 2 * PAGE));
}

static void sticky_error_is_its_contexts_own(void **state)
{
	CUcontext other;
	CUdeviceptr p;

	(void)state;
	assert_cuda(cuMemAddressReserve(&p, PAGE, 0, 0, 0));
	assert_cuda(fill(NULL, p, 1, 1));
	assert_int_equal(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
	assert_cuda(cuMemAddressFree(p, PAGE));
	assert_cuda(cuCtxCreate_v2(&other, 0, 0));
	assert_cuda(cuMemAlloc_v2(&p, 1));
	assert_cuda(cuCtxSynchronize());
	assert_cuda(cuCtxDestroy_v2(other));
	assert_int_equal(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, sim_setup, sim_teardown)
	const struct CMUnitTest tests[] = {
		TEST(checks_arguments),
		TEST(moves_bytes_out_and_in_at_one_address),
		TEST(keeps_pages_while_handle_or_mapping_lasts),
		TEST(kernel_on_evicted_memory_is_fatal),
		TEST(unset_access_is_fatal),
		TEST(write_to_read_only_is_fatal),
		TEST(copy_to_evicted_memory_is_fatal),
		TEST(eviction_under_a_running_kernel_is_fatal),
		TEST(freed_memory_is_fatal),
		TEST(misaligned_access_is_fatal),
		TEST(an_error_is_for_ever),
		TEST(second_context_reaches_the_same_memory),
		TEST(shares_pages_by_descriptor),
		TEST(sticky_error_is_its_contexts_own),
	};
	int r;

	sim_environment("1", "64MiB");
	if (cuInit(0))
		return 1;
	r = cmocka_run_group_tests(tests, NULL, NULL);
	sim_remove();
	return r;
}
