/* SPDX-License-Identifier: Apache-2.0 */

#include "node_dir.h"
#include "sim_fixture.h"

#include <string.h>
#include <unistd.h>

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
	assert_int_equal(cuMemMap(p, 4 * PAGE, 0, h, 0), CUDA_ERROR_NOT_SUPPORTED);
	assert_int_equal(cuMemMap(p, PAGE, 0, h, 0), CUDA_ERROR_NOT_SUPPORTED);
	assert_int_equal(cuMemMap(p + 3 * PAGE, 2 * PAGE, 0, h, 0), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuMemMap(p + 64 * MIB, 2 * PAGE, 0, h, 0), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuMemSetAccess(p, 2 * PAGE, &read_write, 1), CUDA_ERROR_INVALID_VALUE);
	assert_cuda(cuMemMap(p, 2 * PAGE, 0, h, 0));
	assert_int_equal(cuMemMap(p + PAGE, 2 * PAGE, 0, h, 0), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuMemSetAccess(p, PAGE, &read_write, 1), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuMemUnmap(p, PAGE), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuMemAddressFree(p, 4 * PAGE), CUDA_ERROR_INVALID_VALUE);
	unmap_at(p, 4 * PAGE, h); /* what is empty there does not matter */
	assert_int_equal(cuMemRelease(h), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuMemRelease(0), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuMemRetainAllocationHandle(&unused, (void *)(uintptr_t)p),
			 CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuMemAddressFree(p, PAGE), CUDA_ERROR_INVALID_VALUE);
	assert_cuda(cuMemAddressFree(p, 4 * PAGE));
}

static void moves_bytes_out_and_in_at_one_address(void **state)
{
	uint64_t before = sim_memory_used(), n = 4 * PAGE / 4;
	static uint32_t host[4 * PAGE / 4];
	CUmemGenericAllocationHandle h[4];
	CUdeviceptr p;
	size_t i;

	(void)state;
	assert_cuda(cuMemAddressReserve(&p, 4 * PAGE, 0, 0, 0));
	for (i = 0; i < 4; i++)
		map_at(p + i * PAGE, PAGE, &h[i]);
	assert_int_equal(sim_memory_used(), before + 4 * PAGE);
	assert_cuda(sim_fill(NULL, p, n, 17));
	assert_cuda(cuMemcpyDtoH_v2(host, p, sizeof(host)));
	for (i = 0; i < 4; i++)
		unmap_at(p + i * PAGE, PAGE, h[i]);
	assert_int_equal(sim_memory_used(), before);
	map_at(p, 4 * PAGE, &h[0]);
	assert_true(sim_errors_in(p, n, 17) > n / 2); /* other pages, at the same address */
	assert_cuda(cuMemcpyHtoD_v2(p, host, sizeof(host)));
	assert_int_equal(sim_errors_in(p, n, 17), 0);
	unmap_at(p, 4 * PAGE, h[0]);
	assert_cuda(cuMemAddressFree(p, 4 * PAGE));
}

static void keeps_pages_while_handle_or_mapping_lasts(void **state)
{
	uint64_t before = sim_memory_used();
	CUmemGenericAllocationHandle h, again;
	CUdeviceptr p, q;

	(void)state;
	assert_cuda(cuMemAddressReserve(&p, PAGE, 0, 0, 0));
	assert_cuda(cuMemAddressReserve(&q, PAGE, 0, 0, 0));
	map_at(p, PAGE, &h);
	assert_cuda(cuMemRelease(h));
	assert_int_equal(sim_memory_used(), before + PAGE);
	assert_cuda(sim_fill(NULL, p, 1000, 5));
	assert_cuda(cuCtxSynchronize());
	assert_cuda(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)p));
	assert_cuda(cuMemMap(q, PAGE, 0, again, 0));
	assert_cuda(cuMemSetAccess(q, PAGE, &read_only, 1));
	assert_cuda(cuMemUnmap(p, PAGE));
	assert_int_equal(sim_errors_in(q, 1000, 5), 0);
	assert_cuda(cuMemRelease(again));
	assert_cuda(cuMemUnmap(q, PAGE));
	assert_int_equal(sim_memory_used(), before);
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
	kept_function = sim_function("nvs_fill_u32");
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
	assert_cuda(sim_fill(NULL, p, 1, 1));
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
	assert_int_equal(sim_errors_in(p, 100, 1), 100); /* reading is fine */
	assert_int_equal(cuMemsetD32_v2(p, 1, 1), CUDA_ERROR_INVALID_VALUE);
	assert_cuda(sim_fill(NULL, p, 1, 1));
	assert_int_equal(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
	unmap_at(p, PAGE, h);
	assert_cuda(cuMemAddressFree(p, PAGE));
}

static void copies_to_what_is_not_there_are_refused(void **state)
{
	CUmemGenericAllocationHandle h;
	char bytes[64] = "";
	CUdeviceptr p, plain;

	(void)state;
	assert_cuda(cuMemAddressReserve(&p, 2 * PAGE, 0, 0, 0));
	assert_int_equal(cuMemcpyHtoD_v2(p, bytes, 1), CUDA_ERROR_INVALID_VALUE);
	assert_cuda(cuMemCreate(&h, PAGE, &prop, 0));
	assert_cuda(cuMemMap(p, PAGE, 0, h, 0));
	assert_int_equal(cuMemcpyHtoDAsync_v2(p, bytes, 1, NULL), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuMemsetD8_v2(p, 0, 1), CUDA_ERROR_INVALID_VALUE);
	assert_cuda(cuMemSetAccess(p, PAGE, &read_write, 1));
	assert_cuda(cuMemcpyHtoD_v2(p, bytes, 1));
	assert_int_equal(cuMemcpyHtoD_v2(p + PAGE - 32, bytes, 64), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuMemcpyDtoH_v2(bytes, p + PAGE, 64), CUDA_ERROR_INVALID_VALUE);
	unmap_at(p, PAGE, h);
	assert_int_equal(cuMemcpyHtoD_v2(p, bytes, 1), CUDA_ERROR_INVALID_VALUE);
	/* Nor may a copy run from one allocation into the next. */
	assert_cuda(cuMemAlloc_v2(&plain, 512));
	assert_cuda(cuMemAlloc_v2(&plain, 512));
	assert_int_equal(cuMemcpyHtoD_v2(plain - 32, bytes, 64), CUDA_ERROR_INVALID_VALUE);
	assert_cuda(cuCtxSynchronize()); /* nothing of this is for ever */
	assert_cuda(cuMemAddressFree(p, 2 * PAGE));
}

static void copy_to_memory_evicted_meanwhile_is_fatal(void **state)
{
	CUmemGenericAllocationHandle h;
	CUdeviceptr p;
	void *host;

	(void)state;
	assert_cuda(cuMemHostAlloc(&host, 4096, 0));
	assert_cuda(cuMemAddressReserve(&p, PAGE, 0, 0, 0));
	map_at(p, PAGE, &h);
	*(uint32_t *)host = 0;
	assert_cuda(cuStreamWaitValue32_v2(NULL, (uintptr_t)host, 1, 0));
	assert_cuda(cuMemcpyHtoDAsync_v2(p, (char *)host + 64, 1, NULL));
	unmap_at(p, PAGE, h);
	__atomic_store_n((uint32_t *)host, 1, __ATOMIC_RELEASE);
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
	assert_cuda(sim_launch("nvs_lcg_u32", NULL, p, PAGE / 4, UINT32_MAX, 0));
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
	kept_function = sim_function("nvs_fill_u32");
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
	assert_cuda(sim_fill(NULL, p + 1, 10, 1));
	assert_int_equal(cuCtxSynchronize(), CUDA_ERROR_MISALIGNED_ADDRESS);
}

static void an_error_is_for_ever(void **state)
{
	CUmemGenericAllocationHandle h;
	CUfunction empty = sim_function("nvs_empty");
	CUdeviceptr p;

	(void)state;
	assert_cuda(cuMemAddressReserve(&p, PAGE, 0, 0, 0));
	assert_cuda(sim_fill(NULL, p, 1, 1));
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
	assert_cuda(sim_fill(NULL, p, 100, 1234));
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
	assert_cuda(sim_fill(NULL, p, PAGE / 4, 3));
	assert_int_equal(sim_errors_in(q, PAGE / 4, 3), 0);
	assert_cuda(cuMemUnmap(p, 2 * PAGE));
	assert_cuda(cuMemRelease(h));
	assert_cuda(cuMemRelease(imported));
	assert_cuda(cuMemAddressFree(p, 2 * PAGE));
}

static void an_error_is_the_whole_process_s(void **state)
{
	CUcontext other;
	CUdeviceptr p, q;

	(void)state;
	assert_cuda(cuCtxCreate_v2(&other, 0, 0));
	assert_cuda(cuCtxPopCurrent_v2(NULL));
	assert_cuda(cuMemAddressReserve(&p, PAGE, 0, 0, 0));
	assert_cuda(sim_fill(NULL, p, 1, 1));
	assert_int_equal(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
	assert_cuda(cuMemAddressFree(p, PAGE));
	assert_cuda(cuCtxPushCurrent_v2(other));
	assert_int_equal(cuMemAlloc_v2(&q, 1), CUDA_ERROR_ILLEGAL_ADDRESS);
	assert_cuda(cuCtxDestroy_v2(other));
	assert_cuda(cuCtxDestroy_v2(sim_ctx));
	assert_int_equal(cuCtxCreate_v2(&other, 0, 0), CUDA_ERROR_ILLEGAL_ADDRESS);
}

/* What is for ever for a process needs a process of its own. */
static const struct fatal {
	const char *name;
	void (*run)(void **state);
} fatals[] = {
	{"kernel_on_evicted_memory_is_fatal", kernel_on_evicted_memory_is_fatal},
	{"unset_access_is_fatal", unset_access_is_fatal},
	{"write_to_read_only_is_fatal", write_to_read_only_is_fatal},
	{"eviction_under_a_running_kernel_is_fatal", eviction_under_a_running_kernel_is_fatal},
	{"freed_memory_is_fatal", freed_memory_is_fatal},
	{"misaligned_access_is_fatal", misaligned_access_is_fatal},
	{"an_error_is_for_ever", an_error_is_for_ever},
	{"an_error_is_the_whole_process_s", an_error_is_the_whole_process_s},
	{"copy_to_memory_evicted_meanwhile_is_fatal", copy_to_memory_evicted_meanwhile_is_fatal},
};

static void in_its_own_process(void **state)
{
	struct sim_peer peer = sim_peer_start(*state);

	assert_int_equal(sim_peer_end(&peer), 0);
}

static int run_fatal(const char *name)
{
	size_t i;

	for (i = 0; i < sizeof(fatals) / sizeof(*fatals); i++)
		if (strcmp(fatals[i].name, name) == 0) {
			if (cuInit(0) || sim_setup(NULL))
				return 1;
			fatals[i].run(NULL);
			return 0;
		}
	return 127;
}

int main(int argc, char **argv)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, sim_setup, sim_teardown)
#define FATAL(f)                                                           \
	{                                                                  \
#f, in_its_own_process, NULL, NULL, (void *)(uintptr_t) #f \
	}
	const struct CMUnitTest tests[] = {
		TEST(checks_arguments),
		TEST(moves_bytes_out_and_in_at_one_address),
		TEST(keeps_pages_while_handle_or_mapping_lasts),
		TEST(copies_to_what_is_not_there_are_refused),
		TEST(second_context_reaches_the_same_memory),
		TEST(shares_pages_by_descriptor),
		FATAL(kernel_on_evicted_memory_is_fatal),
		FATAL(unset_access_is_fatal),
		FATAL(write_to_read_only_is_fatal),
		FATAL(eviction_under_a_running_kernel_is_fatal),
		FATAL(freed_memory_is_fatal),
		FATAL(misaligned_access_is_fatal),
		FATAL(an_error_is_for_ever),
		FATAL(an_error_is_the_whole_process_s),
		FATAL(copy_to_memory_evicted_meanwhile_is_fatal),
	};
	int r;

	if (argc == 2)
		return run_fatal(argv[1]);
	sim_environment("1", "64MiB");
	if (cuInit(0))
		return 1;
	r = cmocka_run_group_tests(tests, NULL, NULL);
	(void)node_dir_remove();
	return r;
}
