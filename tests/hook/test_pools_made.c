/* SPDX-License-Identifier: Apache-2.0 */

/* Pools that the program makes: apart from the device's own, limited, shared, destroyed. */

#include "fake_pools.h"

static CUmemPoolProps plain_props(CUdevice dev)
{
	return (CUmemPoolProps){.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				.location = {CU_MEM_LOCATION_TYPE_DEVICE, dev}};
}

static void pools_of_the_program_are_apart_and_outlive_their_end(void **state)
{
	CUmemPoolProps props = plain_props(0);
	CUmemoryPool pool, found;
	CUdeviceptr p, q;

	(void)state;
	assert_int_equal(cuMemPoolCreate(&pool, &props), CUDA_SUCCESS);
	assert_int_equal(cuMemAllocFromPoolAsync(&p, 4 * MIB, pool, on(&s1)), CUDA_SUCCESS);
	assert_int_equal(cuPointerGetAttribute(&found, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, p),
			 CUDA_SUCCESS);
	assert_ptr_equal(found, pool);
	drop(p, &s1);
	assert_int_not_equal(take(&s1, 4 * MIB), p);
	assert_int_equal(cuMemAllocFromPoolAsync(&q, 4 * MIB, pool, on(&s1)), CUDA_SUCCESS);
	assert_int_equal(q, p);
	assert_int_equal(cuMemPoolDestroy(pool), CUDA_SUCCESS);
	assert_int_equal(counts().resident, 8 * MIB);
	drop(q, &s1);
	finish(&s1);
	pools_release(0);
	assert_int_equal(counts().resident, 4 * MIB);
}

static void a_pool_that_the_driver_keeps_stays_ours(void **state)
{
	CUmemPoolProps props = plain_props(0);
	CUmemoryPool pool;
	CUdeviceptr p;

	(void)state;
	assert_int_equal(cuMemPoolCreate(&pool, &props), CUDA_SUCCESS);
	next_result[0] = CUDA_ERROR_INVALID_VALUE;
	assert_int_equal(cuMemPoolDestroy(pool), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuMemAllocFromPoolAsync(&p, 4 * MIB, pool, on(&s1)), CUDA_SUCCESS);
	assert_int_equal(counts().resident, 4 * MIB);
	assert_int_equal(cuMemPoolDestroy(pool), CUDA_SUCCESS);
}

static void a_pool_of_a_limited_size_is_kept_to_it(void **state)
{
	CUmemPoolProps props = plain_props(0);
	CUmemoryPool pool;
	CUdeviceptr p;

	(void)state;
	props.maxSize = 8 * MIB;
	assert_int_equal(cuMemPoolCreate(&pool, &props), CUDA_SUCCESS);
	assert_int_equal(cuMemAllocFromPoolAsync(&p, 6 * MIB, pool, on(&s1)), CUDA_SUCCESS);
	assert_int_equal(cuMemAllocFromPoolAsync(&p, 4 * MIB, pool, on(&s1)),
			 CUDA_ERROR_OUT_OF_MEMORY);
	assert_int_equal(cuMemAllocFromPoolAsync(&p, 2 * MIB, pool, on(&s1)), CUDA_SUCCESS);
	assert_int_equal(cuMemPoolDestroy(pool), CUDA_SUCCESS);
}

static void pools_for_export_or_the_host_are_the_drivers(void **state)
{
	CUmemPoolProps props = plain_props(0);
	CUmemoryPool pool;
	CUdeviceptr p;

	(void)state;
	props.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	assert_int_equal(cuMemPoolCreate(&pool, &props), CUDA_SUCCESS);
	assert_int_equal(cuMemAllocFromPoolAsync(&p, MIB, pool, on(&s1)), CUDA_SUCCESS);
	assert_int_equal(counts().pinned[NVSHARE_PINNED_ASYNC], MIB);
	assert_int_equal(counts().resident, 0);
	cuda_real.cuMemFreeAsync = drv_free_async;
	drop(p, &s1);
	assert_int_equal(cuMemPoolDestroy(pool), CUDA_SUCCESS);
	fake.backend = NVSHARE_BACKEND_NONE;
	props.handleTypes = 0;
	assert_int_equal(cuMemPoolCreate(&pool, &props), CUDA_SUCCESS);
	assert_int_equal(cuMemAllocFromPoolAsync(&p, MIB, pool, on(&s1)), CUDA_SUCCESS);
	assert_int_equal(counts().pinned[NVSHARE_PINNED_ASYNC], MIB);
	drop(p, &s1);
	assert_int_equal(cuMemPoolDestroy(pool), CUDA_SUCCESS);
}

static void peers_may_be_let_in(void **state)
{
	CUmemAccessDesc desc = {{CU_MEM_LOCATION_TYPE_DEVICE, 1},
				CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUmemPoolProps props = plain_props(0);
	CUmemoryPool pool;
	CUdeviceptr p, q;

	(void)state;
	assert_int_equal(cuMemPoolCreate(&pool, &props), CUDA_SUCCESS);
	assert_int_equal(cuMemAllocFromPoolAsync(&p, 4 * MIB, pool, on(&s1)), CUDA_SUCCESS);
	assert_int_equal(fake_find_map(p)->peers, 1);
	assert_int_equal(cuMemPoolSetAccess(pool, &desc, 1), CUDA_SUCCESS);
	assert_int_equal(cuMemPoolSetAccess(pool, &desc, 1), CUDA_SUCCESS);
	assert_int_equal(cuMemAllocFromPoolAsync(&q, 4 * MIB, pool, on(&s1)), CUDA_SUCCESS);
	assert_int_equal(fake_find_map(p)->peers, 3);
	assert_int_equal(fake_find_map(q)->peers, 3);
	assert_int_equal(cuMemPoolDestroy(pool), CUDA_SUCCESS);
	assert_int_equal(fake_find_map(p)->peers, 1);
}

#define POOLS_TEST(name) cmocka_unit_test_setup_teardown(name, setup_pools, teardown_pools)

int main(void)
{
	const struct CMUnitTest tests[] = {
		POOLS_TEST(pools_of_the_program_are_apart_and_outlive_their_end),
		POOLS_TEST(a_pool_that_the_driver_keeps_stays_ours),
		POOLS_TEST(a_pool_of_a_limited_size_is_kept_to_it),
		POOLS_TEST(pools_for_export_or_the_host_are_the_drivers),
		POOLS_TEST(peers_may_be_let_in),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
