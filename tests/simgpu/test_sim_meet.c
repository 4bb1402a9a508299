/* SPDX-License-Identifier: Apache-2.0 */

/* Kernels of two GPUs that wait for each other. */

#include "node_dir.h"
#include "rm_fixture.h"

#include <string.h>

enum { WORDS = 3, MS = 1000000 };
#define LONG_NS ((uint64_t)3600 * 1000 * MS)

static CUcontext other; /* on GPU 1 */
static CUmodule other_module;
static CUdeviceptr here, there; /* the words of each GPU */

static void on_other(void)
{
	assert_cuda(cuCtxSetCurrent(other));
}

static void on_first(void)
{
	assert_cuda(cuCtxSetCurrent(sim_ctx));
}

static int setup(void **state)
{
	rm_setup(state);
	assert_cuda(cuMemAlloc_v2(&here, MIB));
	assert_cuda(cuMemsetD32_v2(here, 0, WORDS));
	assert_cuda(cuCtxCreate_v2(&other, 0, 1));
	assert_cuda(cuModuleLoadData(&other_module, sim_ptx));
	assert_cuda(cuMemAlloc_v2(&there, MIB));
	assert_cuda(cuMemsetD32_v2(there, 0, WORDS));
	assert_cuda(cuCtxSynchronize());
	assert_cuda(cuCtxEnablePeerAccess(sim_ctx, 0));
	on_first();
	assert_cuda(cuCtxEnablePeerAccess(other, 0));
	assert_cuda(cuCtxSynchronize());
	return 0;
}

static int teardown(void **state)
{
	assert_cuda(cuCtxDestroy_v2(other));
	return sim_teardown(state);
}

static void meet(CUdeviceptr own, CUdeviceptr peer, uint32_t round, uint64_t ns)
{
	assert_cuda(sim_launch("nvs_meet", NULL, own, peer, round, ns));
}

static void meet_from_other(uint32_t round)
{
	CUmodule ours = sim_module;

	on_other();
	sim_module = other_module;
	meet(there, here, round, LONG_NS);
	sim_module = ours;
	on_first();
}

static uint32_t word_of(CUdeviceptr words, size_t i)
{
	uint32_t found[WORDS];

	assert_cuda(cuMemcpyDtoH_v2(found, words, sizeof(found)));
	return found[i];
}

/* The first round's write has arrived, and the kernel waits. */
static void wait_for_write(uint32_t round)
{
	on_other();
	while (word_of(there, 0) != round)
		;
	on_first();
}

static void they_meet_round_after_round(void **state)
{
	(void)state;
	for (uint32_t round = 1; round <= 20; round++) {
		meet(here, there, round, LONG_NS);
		meet_from_other(round);
	}
	assert_cuda(cuCtxSynchronize());
	on_other();
	assert_cuda(cuCtxSynchronize());
	on_first();
	for (size_t i = 0; i < WORDS; i++) {
		assert_int_equal(word_of(here, i), i ? 0 : 20);
		assert_int_equal(word_of(there, i), i ? 0 : 20);
	}
}

static void without_a_peer_it_says_so_and_ends(void **state)
{
	(void)state;
	meet(here, there, 7, 3 * MS);
	assert_cuda(cuCtxSynchronize());
	assert_int_equal(word_of(here, 1), 7);
	assert_int_equal(word_of(here, 2), 0);
}

static void a_write_that_was_lost_is_noticed(void **state)
{
	(void)state;
	meet(here, there, 7, LONG_NS);
	wait_for_write(7);
	on_other();
	assert_cuda(cuMemsetD32_v2(there, 6, 1));
	on_first();
	assert_cuda(cuCtxSynchronize());
	assert_int_equal(word_of(here, 2), 7);
}

/* Others of its GPU compute meanwhile, as by timeslices of a card. */
static void a_kernel_that_waits_keeps_nobody_out(void **state)
{
	CUmodule ours = sim_module;
	CUcontext second;

	(void)state;
	meet(here, there, 1, LONG_NS);
	wait_for_write(1);
	assert_cuda(cuCtxCreate_v2(&second, 0, 0));
	assert_cuda(cuModuleLoadData(&sim_module, sim_ptx));
	assert_cuda(sim_fill(NULL, here + MIB / 2, MIB / 8, 3));
	assert_int_equal(sim_errors_in(here + MIB / 2, MIB / 8, 3), 0);
	assert_cuda(cuCtxDestroy_v2(second));
	sim_module = ours;
	on_first();
	assert_int_equal(cuStreamQuery(NULL), CUDA_ERROR_NOT_READY);
	meet_from_other(1);
	assert_cuda(cuCtxSynchronize());
}

static void frozen_it_does_not_see_its_peer(void **state)
{
	(void)state;
	meet(here, there, 1, LONG_NS);
	wait_for_write(1);
	rm_disable(&rm_groups[0], true);
	meet_from_other(1); /* ends, because the first one has written */
	on_other();
	assert_cuda(cuCtxSynchronize());
	assert_int_equal(word_of(here, 0), 1);
	on_first();
	assert_int_equal(cuStreamQuery(NULL), CUDA_ERROR_NOT_READY);
	rm_disable(&rm_groups[0], false);
	assert_cuda(cuCtxSynchronize());
	assert_int_equal(word_of(here, 1), 0);
}

static void map_for_both(CUdeviceptr p, CUmemGenericAllocationHandle *ret)
{
	const CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {CU_MEM_LOCATION_TYPE_DEVICE, 1},
	};
	CUmemAccessDesc both[2] = {
		{{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
		{{CU_MEM_LOCATION_TYPE_DEVICE, 1}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
	};

	assert_cuda(cuMemCreate(ret, PAGE, &prop, 0));
	assert_cuda(cuMemMap(p, PAGE, 0, *ret, 0));
	assert_cuda(cuMemSetAccess(p, PAGE, both, 2));
}

static uint32_t mapped_word(CUdeviceptr p)
{
	uint32_t word;

	on_other();
	assert_cuda(cuMemcpyDtoH_v2(&word, p, sizeof(word)));
	on_first();
	return word;
}

/* A frozen kernel sees nothing of its peer's memory that goes, and one that runs does. */
static void peer_memory_that_is_unmapped_is_an_error_of_the_reader(void **state)
{
	CUmemGenericAllocationHandle h;
	uint32_t word = 5;
	CUdeviceptr p;

	(void)state;
	assert_cuda(cuMemAddressReserve(&p, PAGE, 0, 0, 0));
	map_for_both(p, &h);
	meet(here, p, 5, LONG_NS);
	while (mapped_word(p) != 5)
		;
	rm_disable(&rm_groups[0], true);
	assert_cuda(cuMemUnmap(p, PAGE));
	assert_cuda(cuMemRelease(h));
	map_for_both(p, &h);
	on_other();
	assert_cuda(cuMemcpyHtoD_v2(p, &word, sizeof(word)));
	on_first();
	rm_disable(&rm_groups[0], false);
	for (int i = 0; i < 3; i++)
		assert_int_equal(mapped_word(p), 5);
	assert_int_equal(cuStreamQuery(NULL), CUDA_ERROR_NOT_READY);
	assert_cuda(cuMemUnmap(p, PAGE));
	assert_int_equal(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
	on_other();
	assert_cuda(cuCtxSynchronize());
	on_first();
	assert_cuda(cuMemRelease(h));
	assert_cuda(cuMemAddressFree(p, PAGE));
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(they_meet_round_after_round),
		TEST(without_a_peer_it_says_so_and_ends),
		TEST(a_write_that_was_lost_is_noticed),
		TEST(a_kernel_that_waits_keeps_nobody_out),
		TEST(frozen_it_does_not_see_its_peer),
		/* GPU 0 is lost for the process after it. */
		TEST(peer_memory_that_is_unmapped_is_an_error_of_the_reader),
	};
	int r;

	sim_environment("2", "64MiB");
	if (cuInit(0))
		return 1;
	r = cmocka_run_group_tests(tests, NULL, NULL);
	(void)node_dir_remove();
	return r;
}
