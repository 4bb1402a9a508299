/* SPDX-License-Identifier: Apache-2.0 */

/* One program that is larger than the card: what of its memory moves, and what stays. */

#include "fake_families.h"
#include "hook/host/hostmem.h"
#include "hook/pager/oversub.h"

static struct {
	CUdeviceptr at;
	size_t size;
	CUmem_advise advice;
} last_advice;

static CUresult advise_noted(CUdeviceptr ptr, size_t size, CUmem_advise advice, CUdevice dev)
{
	assert_int_equal(dev, CU_DEVICE_CPU);
	last_advice.at = ptr;
	last_advice.size = size;
	last_advice.advice = advice;
	return CUDA_SUCCESS;
}

static void one_program_may_be_larger_than_the_card(void)
{
	fake.backend = NVSHARE_BACKEND_MANAGED;
	fake.options.single_oversub = true;
	cuda_real.cuMemFree_v2 = drv_free;
	cuda_real.cuMemAdvise = advise_noted;
	memset(&last_advice, 0, sizeof(last_advice));
}

/* Seven eighths of the card move; the rest is advised once, and never moved. */
static void of_a_program_beyond_the_card_the_rest_stays_in_host_memory(void **state)
{
	size_t most = fake.capacity / 8 * 7, bytes, total;
	struct pager_move move;
	CUdeviceptr a, b;

	(void)state;
	one_program_may_be_larger_than_the_card();
	assert_int_equal(cuMemAlloc_v2(&a, fake.capacity + MIB), CUDA_SUCCESS);
	assert_int_equal(counts().resident, most);
	assert_int_equal(oversub_bytes(0), fake.capacity + MIB - most);
	assert_int_equal(last_advice.at, a + most);
	assert_int_equal(last_advice.size, fake.capacity + MIB - most);
	assert_int_equal(last_advice.advice, CU_MEM_ADVISE_SET_PREFERRED_LOCATION);
	assert_int_equal(cuMemAlloc_v2(&b, 3 * MIB), CUDA_SUCCESS); /* all of it stays */
	assert_int_equal(last_advice.at, b);
	assert_int_equal(last_advice.size, 3 * MIB);
	assert_int_equal(counts().allocated, fake.capacity + 4 * MIB);
	assert_int_equal(cuMemGetInfo_v2(&bytes, &total), CUDA_SUCCESS);
	assert_int_equal(bytes, 0);
	assert_int_equal(total, fake.capacity);

	n_prefetched = 0;
	assert_int_equal(pager_evict(0, UINT64_MAX, false, &move), NVSHARE_OUTCOME_SUCCESS);
	assert_int_equal(move.bytes, most);
	assert_int_equal(counts().swapped, most);
	assert_int_equal(last_advice.at, a);
	assert_int_equal(last_advice.size, most);
	assert_int_equal(n_prefetched, most / (256 * MIB) + 1);
	budget_set(0, most);
	assert_int_equal(pager_restore(0, &move), NVSHARE_OUTCOME_SUCCESS);
	assert_int_equal(move.bytes, most);
	assert_int_equal(counts().resident, most);
	assert_int_equal(last_advice.size, most);
	assert_int_equal(last_advice.advice, CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION);

	assert_int_equal(cuMemFree_v2(a), CUDA_SUCCESS);
	assert_int_equal(oversub_bytes(0), 3 * MIB);
	assert_int_equal(cuMemFree_v2(b), CUDA_SUCCESS);
	assert_int_equal(oversub_bytes(0), 0);
}

static unsigned int n_refusals;

/* As a scheduler does, with all but 400 MiB pinned by others; and what is asked for on top. */
static void refuse_beyond_400(CUdevice dev)
{
	struct nvshare_mem mem;

	budget_read(dev, &mem);
	if (mem.resident + mem.wanted <= 400 * MIB) {
		budget_set(dev, mem.resident + mem.wanted + 20 * MIB);
		return;
	}
	n_refusals++;
	budget_set_bound(dev, 400 * MIB);
	budget_refuse(dev);
}

static void a_program_beyond_the_card_takes_what_the_scheduler_can_give(void **state)
{
	CUdeviceptr a, b;

	(void)state;
	one_program_may_be_larger_than_the_card();
	assert_int_equal(budget_bound(0), UINT64_MAX);
	budget_set(0, 0);
	fake.on_want = refuse_beyond_400;
	n_refusals = 0;
	assert_int_equal(cuMemAlloc_v2(&a, 200 * MIB), CUDA_SUCCESS);
	assert_int_equal(counts().resident, 200 * MIB);
	assert_int_equal(oversub_bytes(0), 0);
	assert_int_equal(n_refusals, 0);
	/* 400 MiB, less a sixteenth of the card; and that is left for others in the budget, too. */
	assert_int_equal(cuMemAlloc_v2(&b, 700 * MIB), CUDA_SUCCESS);
	assert_int_equal(n_refusals, 1);
	assert_int_equal(counts().resident, 400 * MIB - fake.capacity / 16);
	assert_int_equal(oversub_bytes(0), 900 * MIB - counts().resident);
	assert_int_equal(budget_get(0), counts().resident);
	assert_int_equal(cuMemFree_v2(a), CUDA_SUCCESS);
	assert_int_equal(cuMemFree_v2(b), CUDA_SUCCESS);
	assert_int_equal(oversub_bytes(0), 0);
}

static void what_host_memory_has_no_room_for_is_out_of_memory(void **state)
{
	CUdeviceptr a;

	(void)state;
	one_program_may_be_larger_than_the_card();
	hostmem_set_limit("64MiB");
	assert_int_equal(cuMemAlloc_v2(&a, fake.capacity), CUDA_ERROR_OUT_OF_MEMORY);
	hostmem_set_limit("");
	assert_int_equal(counts().resident, 0);
	assert_int_equal(counts().allocated, 0);
	assert_int_equal(oversub_bytes(0), 0);
}

int main(void)
{
#define OVERSUB_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		OVERSUB_TEST(of_a_program_beyond_the_card_the_rest_stays_in_host_memory),
		OVERSUB_TEST(a_program_beyond_the_card_takes_what_the_scheduler_can_give),
		OVERSUB_TEST(what_host_memory_has_no_room_for_is_out_of_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
