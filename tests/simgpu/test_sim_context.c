/* SPDX-License-Identifier: Apache-2.0 */

/* What a second context costs, and what it may be made with. */

#include "node_dir.h"
#include "sim_fixture.h"

#include <stdlib.h>

enum { WHOLE = 10 * MIB, SMALL = 6 * MIB };

/* Not there to be overridden, so our library's table does not declare it. */
CUresult cuCtxGetLimit(size_t *pvalue, CUlimit limit);
CUresult cuCtxGetFlags(unsigned int *flags);
CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags);

static uint64_t before;

static int setup(void **state)
{
	(void)state;
	assert_cuda(cuCtxCreate_v2(&sim_ctx, 0, 0));
	before = sim_memory_used();
	return 0;
}

static CUcontext second(void)
{
	CUcontext other;

	assert_cuda(cuCtxCreate_v2(&other, 0, 0));
	assert_int_equal(sim_memory_used(), before + WHOLE);
	return other;
}

static void lower(size_t stack, size_t fifo, size_t heap)
{
	assert_cuda(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, stack));
	assert_cuda(cuCtxSetLimit(CU_LIMIT_PRINTF_FIFO_SIZE, fifo));
	assert_cuda(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, heap));
}

static void costs_less_with_low_limits(void **state)
{
	CUcontext other = second();
	size_t value;

	(void)state;
	assert_cuda(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 128));
	assert_in_range(sim_memory_used(), before + SMALL + 1, before + WHOLE - 1);
	lower(128, 1024, 1024);
	assert_int_equal(sim_memory_used(), before + SMALL);
	assert_cuda(cuCtxGetLimit(&value, CU_LIMIT_MALLOC_HEAP_SIZE));
	assert_int_equal(value, 1024);
	lower(1 << 16, 2 << 20, 64 << 20);
	assert_int_equal(sim_memory_used(), before + WHOLE);
	lower(128, 1024, 1024);
	assert_cuda(cuCtxDestroy_v2(other));
	assert_int_equal(sim_memory_used(), before);
}

static void costs_the_same_after_its_first_work(void **state)
{
	CUcontext other = second();
	CUdeviceptr p;

	(void)state;
	assert_cuda(cuMemAlloc_v2(&p, PAGE));
	assert_cuda(cuMemsetD8_v2(p, 0, PAGE));
	lower(128, 1024, 1024);
	assert_int_equal(sim_memory_used(), before + WHOLE + PAGE);
	assert_cuda(cuCtxDestroy_v2(other));
	assert_int_equal(sim_memory_used(), before);
}

static void raising_needs_room(void **state)
{
	CUcontext other = second();
	CUdeviceptr p;
	size_t value;

	(void)state;
	lower(128, 1024, 1024);
	assert_cuda(cuMemAlloc_v2(&p, 64 * MIB - before - SMALL));
	assert_int_equal(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 1024), CUDA_ERROR_OUT_OF_MEMORY);
	assert_cuda(cuCtxGetLimit(&value, CU_LIMIT_STACK_SIZE));
	assert_int_equal(value, 128);
	assert_int_equal(sim_memory_used(), 64 * MIB);
	assert_int_equal(cuCtxSetLimit((CUlimit)99, 1), CUDA_ERROR_UNSUPPORTED_LIMIT);
	assert_cuda(cuCtxDestroy_v2(other));
}

static void keeps_flags_that_mean_something(void **state)
{
	static const unsigned int wrong[] = {3, 5, 6, 7, 0x100, 0x80000000};
	unsigned int flags;
	CUcontext other;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
		assert_int_equal(cuCtxCreate_v2(&other, wrong[i], 0), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuDevicePrimaryCtxSetFlags_v2(0, 3), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_memory_used(), before);
	assert_cuda(cuCtxCreate_v2(&other, 0x8c, 0));
	assert_cuda(cuCtxGetFlags(&flags));
	assert_int_equal(flags, 0x8c);
	assert_cuda(cuCtxDestroy_v2(other));
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, sim_teardown)
	const struct CMUnitTest tests[] = {
		TEST(costs_less_with_low_limits),
		TEST(costs_the_same_after_its_first_work),
		TEST(raising_needs_room),
		TEST(keeps_flags_that_mean_something),
	};
	int r;

	sim_environment("1", "64MiB");
	setenv("NVSHARE_SIM_CONTEXT", "10MiB", 1);
	if (cuInit(0))
		return 1;
	r = cmocka_run_group_tests(tests, NULL, NULL);
	(void)node_dir_remove();
	return r;
}
