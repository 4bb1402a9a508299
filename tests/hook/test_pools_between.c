/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Pools hold no lock over a call of the driver: what other threads do while one of them is
 * in there. A test says what that is, and it happens in the next such call.
 */

#include "fake_pools.h"

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

int main(void)
{
#define BETWEEN_TEST(name) cmocka_unit_test_setup_teardown(name, setup_pools, teardown_pools)
	const struct CMUnitTest tests[] = {
		BETWEEN_TEST(plain_memory_may_be_on_its_way_back_as_its_context_ends),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
