/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Every driver call of every step fails once: nothing is lost, nothing leaks, and the
 * same step succeeds when it is tried again.
 */

#include "hook/pager/pager.h"

#include "fake_memory.h"
#include "hook/gate/gate.h"
#include "hook/host/hostmem.h"
#include "hook/host/hostpool.h"
#include "hook/pager/pager_private.h"
#include "pager_rig.h"

#define MIB     (1ull << 20)
#define N_BIG   8
#define N_SMALL 40
#define STRIDE  509 /* words: every page, at another place in each */

static CUdeviceptr big[N_BIG], small[N_SMALL];

static size_t big_size(size_t i)
{
	return (i % 3 + 1) * MIB + i * 77;
}

static void write_all(uint32_t round)
{
	for (size_t i = 0; i < N_BIG; i++) {
		for (size_t j = 0; j < big_size(i) / 4; j += STRIDE)
			words(big[i])[j] = (uint32_t)(round + i * 131 + j);
	}
	for (size_t i = 0; i < N_SMALL; i++)
		words(small[i])[0] = round + (uint32_t)i;
}

static void check_all(uint32_t round)
{
	size_t n_wrong = 0;

	for (size_t i = 0; i < N_BIG; i++) {
		for (size_t j = 0; j < big_size(i) / 4; j += STRIDE)
			n_wrong += words(big[i])[j] != (uint32_t)(round + i * 131 + j);
	}
	for (size_t i = 0; i < N_SMALL; i++)
		n_wrong += words(small[i])[0] != round + (uint32_t)i;
	assert_contents(n_wrong, 0);
}

static void make_all(void)
{
	for (size_t i = 0; i < N_BIG; i++)
		assert_int_equal(allocate(big_size(i), &big[i]), CUDA_SUCCESS);
	for (size_t i = 0; i < N_SMALL; i++)
		assert_int_equal(allocate(100 * 1024, &small[i]), CUDA_SUCCESS);
}

static struct nvshare_mem counts(void)
{
	struct nvshare_mem mem;

	budget_read(0, &mem);
	return mem;
}

static int setup(void **state)
{
	(void)state;
	fake_setup();
	assert_true(pager_supported(0));
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	fake_fault.fail_at = 0;
	pager_context_gone(FAKE_CTX);
	assert_int_equal(fake.used, 0);
	assert_int_equal(fake.reserved, 0);
	assert_int_equal(counts().resident, 0);
	assert_int_equal(counts().swapped, 0);
	fake_give_back_host_memory();
	return 0;
}

static void an_eviction_that_fails_anywhere_loses_nothing(void **state)
{
	struct pager_move move;
	uint64_t all;
	int n, n_failed = 0;

	(void)state;
	make_all();
	all = counts().resident;
	for (n = 1;; n++) {
		int outcome;

		write_all((uint32_t)n);
		hostpool_trim(); /* registration is among the calls that fail */
		fake_arm(n, CUDA_ERROR_UNKNOWN);
		outcome = pager_evict(0, UINT64_MAX, false, &move);
		assert_int_equal(fake.n_copies, 0); /* none is on its way any more */
		if (!fake_disarm()) {
			assert_int_equal(outcome, NVSHARE_OUTCOME_SUCCESS);
			break;
		}
		n_failed += outcome != NVSHARE_OUTCOME_SUCCESS;
		assert_int_equal(counts().resident + counts().swapped, all);
		assert_int_equal(move.bytes, counts().swapped);
		assert_int_equal(pager_restore(0, &move), NVSHARE_OUTCOME_SUCCESS);
		assert_int_equal(counts().swapped, 0);
		check_all((uint32_t)n);
	}
	assert_true(n > 40);
	assert_true(n_failed > 30);
	assert_int_equal(pager_restore(0, &move), NVSHARE_OUTCOME_SUCCESS);
	check_all((uint32_t)n);
}

static void a_restore_that_fails_anywhere_goes_on_later(void **state)
{
	struct pager_move move;
	uint64_t all;
	int n;

	(void)state;
	make_all();
	all = counts().resident;
	for (n = 1;; n++) {
		int outcome;

		write_all((uint32_t)n);
		assert_int_equal(pager_evict(0, UINT64_MAX, false, &move), NVSHARE_OUTCOME_SUCCESS);
		assert_int_equal(fake.used, 0);
		fake_arm(n, n % 2 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_UNKNOWN);
		outcome = pager_restore(0, &move);
		assert_int_equal(fake.n_copies, 0);
		if (!fake_disarm()) {
			assert_int_equal(outcome, NVSHARE_OUTCOME_SUCCESS);
			break;
		}
		assert_int_equal(counts().resident + counts().swapped, all);
		assert_int_equal(counts().resident, fake.used);
		if (outcome != NVSHARE_OUTCOME_SUCCESS) {
			assert_int_equal(outcome, n % 2 ? NVSHARE_OUTCOME_NO_CARD_MEMORY
							: NVSHARE_OUTCOME_INVALID_STATE);
			assert_int_equal(pager_restore(0, &move), NVSHARE_OUTCOME_SUCCESS);
		}
		check_all((uint32_t)n);
	}
	assert_true(n > 40);
	check_all((uint32_t)n);
}

static void a_copy_that_does_not_end_keeps_what_it_works_on(void **state)
{
	struct pager_move move;
	uint64_t all;

	(void)state;
	make_all();
	write_all(7);
	all = counts().resident;
	fake.options.copy_max_ns = CLOCK_NS_PER_MS;
	fake.is_hung = true;
	for (int i = 0; i < 2; i++) { /* the second time nothing is waited for */
		assert_int_equal(pager_evict(0, UINT64_MAX, false, &move),
				 NVSHARE_OUTCOME_GPU_HUNG);
		assert_int_equal(move.bytes, 0);
		assert_int_equal(counts().resident, all);
		assert_int_equal(pager_restore(0, &move), NVSHARE_OUTCOME_SUCCESS);
		hostpool_trim();
		assert_true(hostpool_bytes() > 0); /* a copy may still come there */
	}
	check_all(7);
	fake.is_hung = false;
	assert_int_equal(pager_evict(0, UINT64_MAX, false, &move), NVSHARE_OUTCOME_SUCCESS);
	assert_int_equal(move.bytes, all);
	fake.is_hung = true;
	for (int i = 0; i < 2; i++) {
		assert_int_equal(pager_restore(0, &move), NVSHARE_OUTCOME_GPU_HUNG);
		assert_true(fake.used > 0); /* what is being copied is still mapped, */
		assert_int_equal(counts().pinned[NVSHARE_PINNED_VMM], fake.used);
		assert_int_equal(counts().swapped, all > fake.used ? all - fake.used : 1);
	}
	fake.is_hung = false;
	assert_int_equal(pager_restore(0, &move), NVSHARE_OUTCOME_SUCCESS);
	assert_int_equal(counts().resident, all);
	assert_int_equal(counts().pinned[NVSHARE_PINNED_VMM], 0);
	check_all(7);
}

static void *free_it(void *ptr)
{
	CUresult res = CUDA_ERROR_UNKNOWN;

	assert_true(pager_free(*(CUdeviceptr *)ptr, &res));
	assert_int_equal(res, CUDA_SUCCESS);
	return NULL;
}

/* Evicts in one context so that the copies hang, and leaves another one current. */
static void hang_in_another_context(void)
{
	struct pager_move move;

	fake.options.copy_max_ns = CLOCK_NS_PER_MS;
	fake.is_hung = true;
	fake_current = FAKE_CTX2;
	assert_int_equal(pager_evict(0, UINT64_MAX, false, &move), NVSHARE_OUTCOME_GPU_HUNG);
	fake_current = FAKE_CTX;
}

/* The copy would read memory that is not there, which ends all work of the context. */
static void memory_is_freed_when_its_hung_copy_has_ended(void **state)
{
	struct pager_move move;
	pthread_t thread;
	CUdeviceptr ptr;
	uint64_t used;
	size_t n_copies;

	(void)state;
	for (int is_exit = 0; is_exit < 2; is_exit++) {
		assert_int_equal(allocate(big_size(1), &ptr), CUDA_SUCCESS);
		used = fake.used;
		hang_in_another_context();
		n_copies = fake.n_copies;
		assert_int_equal(pager_evict(0, UINT64_MAX, false, &move),
				 NVSHARE_OUTCOME_GPU_HUNG);
		assert_int_equal(fake.n_copies, n_copies); /* no second copy of the same memory */
		assert_int_equal(pthread_create(&thread, NULL, free_it, &ptr), 0);
		for (int i = 0; i < 20; i++) {
			assert_int_equal(pager_mover_tick(0), 10 * CLOCK_NS_PER_MS);
			assert_int_equal(fake.used, used);
			clock_nap(CLOCK_NS_PER_MS);
		}
		if (is_exit) {
			fake.n_copies = 0; /* they end with the process, unseen */
			pager_mover_stop();
		}
		fake.is_hung = false;
		if (!is_exit)
			assert_int_equal(pager_mover_tick(0), CLOCK_NEVER);
		assert_int_equal(pthread_join(thread, NULL), 0);
		assert_true(fake.used < used);
		assert_int_equal(pager_mover_tick(0), CLOCK_NEVER);
	}
}

static unsigned int n_releases;

static bool count_release(CUdevice dev)
{
	(void)dev;
	n_releases++;
	return false;
}

/* It would wait for the copy, and the agent alone finds that it has ended. */
static void pools_give_nothing_back_while_a_copy_hangs(void **state)
{
	static const struct pager_pools counting = {.release = count_release};
	const struct pager_pools *before = pager_pools();
	CUdeviceptr ptr;

	(void)state;
	assert_int_equal(allocate(big_size(1), &ptr), CUDA_SUCCESS);
	hang_in_another_context();
	pager_set_pools(&counting);
	n_releases = 0;
	pager_prepare(0, MIB, false);
	assert_int_equal(n_releases, 0);
	fake.is_hung = false;
	assert_int_equal(pager_mover_tick(0), CLOCK_NEVER);
	pager_prepare(0, MIB, false);
	assert_int_equal(n_releases, 1);
	pager_set_pools(before);
	(void)free_it(&ptr);
}

static CUresult unmap_nothing(CUdeviceptr ptr, size_t size)
{
	(void)ptr;
	(void)size;
	return CUDA_ERROR_UNKNOWN;
}

/* Others would be given a place on the card that is not free. */
static void what_can_not_be_unmapped_again_counts_as_on_the_card(void **state)
{
	struct pager_move move;
	uint64_t all, stuck;

	(void)state;
	make_all();
	write_all(8);
	all = counts().resident;
	for (int n = 4; n <= 5; n++) { /* the copy of what was made, mapped and opened; its event */
		assert_int_equal(pager_evict(0, UINT64_MAX, false, &move), NVSHARE_OUTCOME_SUCCESS);
		cuda_real.cuMemUnmap = unmap_nothing;
		fake_arm(n, CUDA_ERROR_UNKNOWN);
		assert_int_equal(pager_restore(0, &move), NVSHARE_OUTCOME_INVALID_STATE);
		assert_true(fake_disarm());
		stuck = counts().pinned[NVSHARE_PINNED_VMM];
		assert_true(stuck > 0);
		assert_int_equal(counts().resident + stuck, fake.used);
		assert_int_equal(counts().resident + stuck + counts().swapped, all);
		cuda_real.cuMemUnmap = fake_unmap;
		assert_int_equal(pager_restore(0, &move), NVSHARE_OUTCOME_SUCCESS);
		assert_int_equal(counts().pinned[NVSHARE_PINNED_VMM], 0);
		assert_int_equal(counts().resident, all);
		check_all(8);
	}
}

static void an_allocation_that_fails_anywhere_leaves_nothing(void **state)
{
	const size_t sizes[] = {600 * MIB, 3 * MIB, 512};
	int n;

	(void)state;
	for (size_t i = 0; i < 3; i++) {
		for (n = 1;; n++) {
			CUdeviceptr ptr = 0;
			CUresult res;

			fake_arm(n, CUDA_ERROR_UNKNOWN);
			res = allocate(sizes[i], &ptr);
			if (!fake_disarm()) {
				assert_int_equal(res, CUDA_SUCCESS);
				break;
			}
			if (res == CUDA_SUCCESS)
				break; /* the one that failed was of no consequence */
			assert_int_equal(res, CUDA_ERROR_UNKNOWN);
			assert_int_equal(fake.used, 0);
			assert_int_equal(fake.reserved, 0);
			assert_int_equal(counts().allocated, 0);
			assert_int_equal(counts().resident, 0);
		}
		assert_true(n > 4);
		pager_context_gone(FAKE_CTX);
	}
}

/* Before an eviction that begins with the first of the large allocations. */
static int probe(bool copies)
{
	struct pager_hold hold;
	struct pager_chunk *chunk;

	assert_true(pager_hold(big[0], 1, &hold));
	chunk = &hold.range->chunks[hold.first];
	pager_unhold(&hold, false);
	return pager_probe(0, pager_mover(), chunk, copies);
}

static void a_probe_needs_host_memory_only_for_copies(void **state)
{
	uint64_t used;

	(void)state;
	make_all();
	used = fake.used;
	hostpool_trim();
	hostmem_set_limit("1");
	assert_int_equal(probe(true), NVSHARE_OUTCOME_NO_HOST_MEMORY);
	assert_int_equal(probe(false), NVSHARE_OUTCOME_SUCCESS);
	hostmem_set_limit("");
	assert_int_equal(probe(true), NVSHARE_OUTCOME_SUCCESS);
	for (int n = 1; n <= 6; n++) { /* create, reserve, map, set access, a copy each way */
		fake_arm(n, CUDA_ERROR_UNKNOWN);
		assert_int_equal(probe(true), NVSHARE_OUTCOME_TIMEOUT);
		assert_true(fake_disarm());
		assert_int_equal(fake.used, used);
	}
}

static void a_full_card_is_probed_with_what_is_to_go(void **state)
{
	uint64_t reserved, n_copied;

	(void)state;
	make_all();
	write_all(3);
	fake.capacity = fake.used;
	reserved = fake.reserved;
	n_copied = fake.bytes_copied;
	assert_int_equal(probe(true), NVSHARE_OUTCOME_SUCCESS);
	assert_true(fake.bytes_copied > n_copied);
	for (int n = 2; n <= 5; n++) { /* not create; reserve, map, set access, one copy */
		fake_arm(n, CUDA_ERROR_UNKNOWN);
		assert_int_equal(probe(true), NVSHARE_OUTCOME_TIMEOUT);
		assert_true(fake_disarm());
	}
	assert_int_equal(fake.reserved, reserved);
	check_all(3);
}

/* On a card that has room, and on one that has none. */
static void a_copy_of_a_probe_that_does_not_end_keeps_what_it_works_on(void **state)
{
	uint64_t all, used, reserved;
	struct pager_move move;

	(void)state;
	make_all();
	write_all(9);
	all = counts().resident;
	used = fake.used;
	reserved = fake.reserved;
	fake.options.copy_max_ns = CLOCK_NS_PER_MS;
	for (int i = 0; i < 2; i++) {
		fake.is_hung = true;
		assert_int_equal(pager_evict(0, UINT64_MAX, true, &move), NVSHARE_OUTCOME_GPU_HUNG);
		assert_int_equal(fake.n_copies, 2 - i);
		assert_true(fake.reserved > reserved);
		assert_true(pager_mover_is_hung());
		hostpool_trim();
		assert_true(hostpool_bytes() > 0);
		fake.is_hung = false;
		assert_false(pager_mover_is_hung());
		assert_int_equal(fake.used, used);
		assert_int_equal(fake.reserved, reserved);
		fake.capacity = fake.used;
	}
	check_all(9);
	assert_int_equal(pager_evict(0, UINT64_MAX, false, &move), NVSHARE_OUTCOME_SUCCESS);
	assert_int_equal(move.bytes, all);
	assert_int_equal(pager_restore(0, &move), NVSHARE_OUTCOME_SUCCESS);
	check_all(9);
}

static void a_card_that_is_full_at_the_restore_keeps_the_rest_for_later(void **state)
{
	struct pager_move move;
	uint64_t all;

	(void)state;
	make_all();
	write_all(5);
	all = counts().resident;
	assert_int_equal(pager_evict(0, UINT64_MAX, false, &move), NVSHARE_OUTCOME_SUCCESS);
	for (uint64_t room = 4 * MIB; room < all; room += 4 * MIB) {
		fake.capacity = room;
		assert_int_equal(pager_restore(0, &move), NVSHARE_OUTCOME_NO_CARD_MEMORY);
		assert_int_equal(counts().resident, fake.used);
		assert_int_equal(counts().resident + counts().swapped, all);
	}
	fake.capacity = all;
	assert_int_equal(pager_restore(0, &move), NVSHARE_OUTCOME_SUCCESS);
	check_all(5);
}

int main(void)
{
#define FAULT_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		FAULT_TEST(an_eviction_that_fails_anywhere_loses_nothing),
		FAULT_TEST(a_restore_that_fails_anywhere_goes_on_later),
		FAULT_TEST(a_copy_that_does_not_end_keeps_what_it_works_on),
		FAULT_TEST(memory_is_freed_when_its_hung_copy_has_ended),
		FAULT_TEST(pools_give_nothing_back_while_a_copy_hangs),
		FAULT_TEST(what_can_not_be_unmapped_again_counts_as_on_the_card),
		FAULT_TEST(an_allocation_that_fails_anywhere_leaves_nothing),
		FAULT_TEST(a_probe_needs_host_memory_only_for_copies),
		FAULT_TEST(a_full_card_is_probed_with_what_is_to_go),
		FAULT_TEST(a_copy_of_a_probe_that_does_not_end_keeps_what_it_works_on),
		FAULT_TEST(a_card_that_is_full_at_the_restore_keeps_the_rest_for_later),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
