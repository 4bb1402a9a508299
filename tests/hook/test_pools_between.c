/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Pools hold no lock over a call of the driver: what other threads do while one of them is
 * in there. A test says what that is, and it happens in the next such call.
 */

#include "fake_pools.h"

#include "hook/gate/device.h"

#include <sched.h>

static struct fake_stream other = {.ctx = FAKE_CTX2};

static void end_second_context(void)
{
	pager_context_gone(FAKE_CTX2);
}

static CUdeviceptr take_plain(CUcontext ctx, size_t size)
{
	CUdeviceptr p = 0;

	fake_current = ctx;
	assert_int_equal(cuMemAlloc_v2(&p, size), CUDA_SUCCESS);
	fake_current = FAKE_CTX;
	return p;
}

static void end_second_context_later(void)
{
	on_queried = end_second_context;
}

/* The stream of the later free is looked at first: its memory waits for the other's answer. */
static void plain_memory_may_be_on_its_way_back_as_its_context_ends(void **state)
{
	CUdeviceptr p = take(&s1, 4 * MIB), q = take_plain(FAKE_CTX2, 700);

	(void)state;
	drop(p, &s1);
	drop(q, &other);
	finish(&other);
	on_queried = end_second_context_later;
	(void)pools_release(0);
	assert_null(on_queried);
	finish(&s1);
	(void)pools_release(0);
	assert_int_equal(counts().resident, 0);
}

static void take_and_end_second_context(void)
{
	(void)take(&other, 4 * MIB);
	end_second_context();
}

/* A new one may have the same handle. */
static void an_event_that_is_looked_at_as_its_context_ends_is_not_used_again(void **state)
{
	int n_made;

	(void)state;
	drop(take(&other, 4 * MIB), &other);
	on_queried = take_and_end_second_context;
	(void)pools_release(0);
	assert_null(on_queried);
	n_made = n_events;
	drop(take(&other, 4 * MIB), &other);
	assert_int_equal(n_events, n_made + 1);
	end_second_context();
}

static void *release_all(void *data)
{
	(void)pools_release(0);
	return data;
}

static void no_context_is_entered_that_another_thread_is_ending(void **state)
{
	pthread_t thread;

	(void)state;
	assert_true(device_context_add(FAKE_CTX2, 0, 0));
	drop(take(&other, 4 * MIB), &other);
	device_turn_begin();
	(void)device_context_forget(FAKE_CTX2);
	assert_int_equal(pthread_create(&thread, NULL, release_all, NULL), 0);
	pthread_join(thread, NULL);
	assert_int_equal(n_queries, 0);
	assert_int_equal(counts().resident, 4 * MIB);
	end_second_context();
	device_turn_end();
	assert_int_equal(counts().resident, 0);
}

static pthread_t ender;

static void *forget_second_context(void *data)
{
	device_turn_begin();
	(void)device_context_forget(FAKE_CTX2);
	device_turn_end();
	return data;
}

static void begin_to_end_second_context(void)
{
	assert_int_equal(pthread_create(&ender, NULL, forget_second_context, NULL), 0);
	while (device_of(FAKE_CTX2) != DEVICE_ANY)
		sched_yield();
	assert_true(device_has_context(0)); /* who ends it waits */
}

static void no_context_ends_that_another_thread_is_in(void **state)
{
	(void)state;
	assert_true(device_context_add(FAKE_CTX2, 0, 0));
	drop(take(&other, 4 * MIB), &other);
	on_queried = begin_to_end_second_context;
	(void)pools_release(0);
	assert_null(on_queried);
	pthread_join(ender, NULL);
	assert_false(device_has_context(0));
	end_second_context();
}

static CUmemoryPool limited;
static CUdeviceptr taken;

static CUresult take_and_reserve(CUdeviceptr *ptr, size_t size, size_t alignment, CUdeviceptr addr,
				 unsigned long long flags)
{
	cuda_real.cuMemAddressReserve = fake_reserve;
	assert_int_equal(cuMemAllocFromPoolAsync(&taken, 4 * MIB, limited, on(&s2)), CUDA_SUCCESS);
	return fake_reserve(ptr, size, alignment, addr, flags);
}

static void two_that_grow_a_pool_at_once_keep_its_limit(void **state)
{
	CUmemPoolProps props = {
		.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0},
		.maxSize = 6 * MIB,
	};
	CUdeviceptr p;

	(void)state;
	assert_int_equal(cuMemPoolCreate(&limited, &props), CUDA_SUCCESS);
	cuda_real.cuMemAddressReserve = take_and_reserve;
	assert_int_equal(cuMemAllocFromPoolAsync(&p, 4 * MIB, limited, on(&s1)),
			 CUDA_ERROR_OUT_OF_MEMORY);
	assert_int_equal(attribute(limited, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 4 * MIB);
	assert_int_equal(counts().resident, 4 * MIB);
	drop(taken, &s2);
	finish(&s2);
	assert_int_equal(cuMemPoolDestroy(limited), CUDA_SUCCESS);
}

int main(void)
{
#define BETWEEN_TEST(name) cmocka_unit_test_setup_teardown(name, setup_pools, teardown_pools)
	const struct CMUnitTest tests[] = {
		BETWEEN_TEST(plain_memory_may_be_on_its_way_back_as_its_context_ends),
		BETWEEN_TEST(an_event_that_is_looked_at_as_its_context_ends_is_not_used_again),
		BETWEEN_TEST(no_context_is_entered_that_another_thread_is_ending),
		BETWEEN_TEST(no_context_ends_that_another_thread_is_in),
		BETWEEN_TEST(two_that_grow_a_pool_at_once_keep_its_limit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
