/* SPDX-License-Identifier: Apache-2.0 */

/* The pager against a driver that loses what is given up too early. */

#include "hook/pager/pager.h"

#include "fake_memory.h"
#include "hook/gate/gate.h"
#include "hook/host/hostmem.h"
#include "hook/host/hostpool.h"
#include "hook/pager/pager_private.h"

#define KIB (1ull << 10)
#define MIB (1ull << 20)

static void *bytes_at(CUdeviceptr ptr)
{
	return (void *)(uintptr_t)ptr;
}

/* Of large ones not every byte, or the thread sanitizer takes minutes. */
static size_t step_of(size_t size)
{
	return size > 4 * MIB ? 61 : 1;
}

static void fill(CUdeviceptr ptr, size_t size, uint32_t seed)
{
	unsigned char *p = bytes_at(ptr);

	for (size_t i = 0; i < size; i += step_of(size))
		p[i] = (unsigned char)((seed + i) * 2654435761u >> 24 | 1);
}

static void verify(CUdeviceptr ptr, size_t size, uint32_t seed)
{
	const unsigned char *p = bytes_at(ptr);
	size_t n_wrong = 0;

	for (size_t i = 0; i < size; i += step_of(size))
		n_wrong += p[i] != (unsigned char)((seed + i) * 2654435761u >> 24 | 1);
	assert_contents(n_wrong, 0);
}

static CUdeviceptr allocate(size_t size)
{
	CUdeviceptr ptr = 0;

	gate_enter();
	assert_int_equal(pager_alloc(0, FAKE_CTX, size, &ptr), CUDA_SUCCESS);
	gate_leave();
	assert_int_equal(ptr % EXTENT_ALIGN, 0);
	return ptr;
}

static void release(CUdeviceptr ptr)
{
	CUresult res = CUDA_ERROR_UNKNOWN;

	assert_true(pager_free(ptr, &res));
	assert_int_equal(res, CUDA_SUCCESS);
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

/* Whatever a test did, nothing is left: of addresses, memory, counts, host memory in use. */
static int teardown(void **state)
{
	struct nvshare_mem mem;

	(void)state;
	pager_context_gone(FAKE_CTX);
	pager_context_gone(FAKE_CTX2);
	mem = counts();
	assert_int_equal(fake.used, 0);
	assert_int_equal(fake.reserved, 0);
	assert_int_equal(mem.allocated, 0);
	assert_int_equal(mem.resident, 0);
	assert_int_equal(mem.swapped, 0);
	assert_int_equal(mem.pinned[NVSHARE_PINNED_PLAIN], 0);
	fake_give_back_host_memory();
	return 0;
}

static const size_t sizes[] = {
	1,        511,           512,       513,     4096,        100 * KIB,
	MIB - 1,  MIB,           MIB + 1,   2 * MIB, 2 * MIB + 1, 3 * MIB,
	31 * MIB, 256 * MIB - 1, 257 * MIB, 512,     64 * KIB,    700 * KIB,
};
#define N_SIZES (sizeof(sizes) / sizeof(sizes[0]))

static void every_byte_survives_going_out_and_coming_back(void **state)
{
	CUdeviceptr ptrs[N_SIZES];
	struct pager_move move;
	uint64_t resident;

	(void)state;
	for (size_t i = 0; i < N_SIZES; i++) {
		ptrs[i] = allocate(sizes[i]);
		fill(ptrs[i], sizes[i], (uint32_t)i);
	}
	resident = counts().resident;
	assert_int_equal(resident, fake.used);
	for (int round = 0; round < 3; round++) {
		assert_int_equal(pager_evict(0, UINT64_MAX, false, &move), NVSHARE_OUTCOME_SUCCESS);
		assert_int_equal(move.bytes, resident);
		assert_int_equal(fake.used, 0);
		assert_int_equal(counts().resident, 0);
		assert_int_equal(counts().swapped, resident);
		assert_int_equal(pager_restore(0, &move), NVSHARE_OUTCOME_SUCCESS);
		assert_int_equal(move.bytes, resident);
		assert_int_equal(counts().resident, resident);
		assert_int_equal(counts().swapped, 0);
		for (size_t i = 0; i < N_SIZES; i++) {
			verify(ptrs[i], sizes[i], (uint32_t)i + (uint32_t)round);
			fill(ptrs[i], sizes[i], (uint32_t)i + (uint32_t)round + 1);
		}
	}
	for (size_t i = 0; i < N_SIZES; i++)
		release(ptrs[i]);
}

static void evicts_no_more_than_the_chunks_that_cover_what_is_asked(void **state)
{
	CUdeviceptr big = allocate(20 * MIB), mid = allocate(6 * MIB), low = allocate(2 * MIB);
	struct pager_move move;

	(void)state;
	fill(mid, 6 * MIB, 7);
	assert_int_equal(pager_evict(0, 5 * MIB, false, &move), NVSHARE_OUTCOME_SUCCESS);
	assert_int_equal(move.bytes, 6 * MIB); /* neither 20 nor 2 */
	assert_int_equal(pager_evict(0, 21 * MIB, false, &move), NVSHARE_OUTCOME_SUCCESS);
	assert_int_equal(move.bytes, 22 * MIB);
	assert_int_equal(pager_evict(0, MIB, false, &move), NVSHARE_OUTCOME_SUCCESS);
	assert_int_equal(move.bytes, 0);
	assert_int_equal(pager_restore(0, &move), NVSHARE_OUTCOME_SUCCESS);
	verify(mid, 6 * MIB, 7);
	release(big);
	release(mid);
	release(low);
}

static void an_eviction_tells_how_far_it_is(void **state)
{
	CUdeviceptr ptrs[12];
	struct pager_move move;

	(void)state;
	for (int i = 0; i < 12; i++)
		ptrs[i] = allocate(4 * MIB);
	fake.n_moved_out = 0;
	assert_int_equal(pager_evict(0, 40 * MIB, false, &move), NVSHARE_OUTCOME_SUCCESS);
	assert_true(fake.n_moved_out >= 10); /* not only at the end */
	assert_int_equal(fake.moved_out, 40 * MIB);
	for (int i = 0; i < 12; i++)
		release(ptrs[i]);
}

static void a_small_allocation_costs_no_chunk_of_its_own(void **state)
{
	CUdeviceptr first = allocate(512), last;

	(void)state;
	for (int i = 0; i < 4095; i++)
		last = allocate(512);
	assert_int_equal(fake.used, FAKE_GRANULE);
	assert_int_equal(counts().allocated, FAKE_GRANULE);
	assert_true(last != first);
}

static void fifty_thousand_small_ones_live_and_die(void **state)
{
	enum { N = 50000 };
	CUdeviceptr *ptrs = calloc(N, sizeof(*ptrs));
	struct pager_move move;

	(void)state;
	assert_non_null(ptrs);
	for (size_t i = 0; i < N; i++) {
		ptrs[i] = allocate(1 + i * 37 % 4096);
		*(uint32_t *)bytes_at(ptrs[i] & ~3ull) = (uint32_t)i;
	}
	assert_int_equal(pager_evict(0, UINT64_MAX, false, &move), NVSHARE_OUTCOME_SUCCESS);
	assert_int_equal(pager_restore(0, &move), NVSHARE_OUTCOME_SUCCESS);
	for (size_t i = 0; i < N; i++)
		assert_contents(*(uint32_t *)bytes_at(ptrs[i]), i);
	for (size_t i = 0; i < N; i++)
		release(ptrs[i * 7919 % N]);
	assert_true(fake.used <= FAKE_GRANULE); /* one spare chunk */
	free(ptrs);
}

static void a_chunk_that_is_out_can_be_freed(void **state)
{
	CUdeviceptr a = allocate(4 * MIB), b = allocate(8 * MIB), c = allocate(1000);
	struct pager_move move;

	(void)state;
	fill(b, 8 * MIB, 3);
	fill(c, 1000, 4);
	assert_int_equal(pager_evict(0, UINT64_MAX, false, &move), NVSHARE_OUTCOME_SUCCESS);
	release(a);
	assert_int_equal(counts().swapped, 8 * MIB + FAKE_GRANULE);
	assert_int_equal(pager_restore(0, &move), NVSHARE_OUTCOME_SUCCESS);
	assert_int_equal(move.bytes, 8 * MIB + FAKE_GRANULE);
	verify(b, 8 * MIB, 3);
	verify(c, 1000, 4);
	release(b);
	release(c);
}

static void nothing_moves_when_the_host_has_no_room(void **state)
{
	CUdeviceptr a = allocate(8 * MIB), b = allocate(2 * MIB);
	struct pager_move move;

	(void)state;
	fill(a, 8 * MIB, 9);
	fill(b, 2 * MIB, 8);
	hostmem_set_limit("8MiB"); /* enough for the one, not for both */
	assert_int_equal(pager_evict(0, UINT64_MAX, false, &move), NVSHARE_OUTCOME_NO_HOST_MEMORY);
	hostmem_set_limit("");
	assert_int_equal(move.bytes, 0);
	assert_int_equal(counts().resident, 10 * MIB);
	verify(a, 8 * MIB, 9);
}

static void memory_prepared_is_used_and_given_back(void **state)
{
	CUdeviceptr a = allocate(8 * MIB);
	struct pager_move move;

	(void)state;
	pager_prepare(0, 64 * MIB, false); /* no more than it has */
	assert_int_equal(hostpool_unused(), 0);
	while (hostpool_unused() < 8 * MIB) /* by another thread, and then by this one */
		hostpool_add_one(true);
	assert_int_equal(fake.n_registered, 1);
	assert_int_equal(pager_evict(0, UINT64_MAX, false, &move), NVSHARE_OUTCOME_SUCCESS);
	assert_int_equal(hostpool_bytes(), 8 * MIB);
	pager_prepare(0, 0, false);
	assert_int_equal(hostpool_bytes(), 8 * MIB); /* in use */
	assert_int_equal(pager_restore(0, &move), NVSHARE_OUTCOME_SUCCESS);
	pager_prepare(0, 0, false);
	assert_int_equal(hostpool_bytes(), 0);
	assert_int_equal(fake.n_registered, 0);
	release(a);
}

static void a_pinned_chunk_stays(void **state)
{
	CUdeviceptr a = allocate(8 * MIB), b = allocate(4 * MIB);
	struct pager_hold hold;
	struct pager_move move;

	(void)state;
	assert_false(pager_hold(1, 10, &hold));
	assert_true(pager_hold(a + 4096, 10, &hold));
	pager_unhold(&hold, true);
	assert_int_equal(counts().pinned[NVSHARE_PINNED_PLAIN], 8 * MIB);
	assert_int_equal(counts().resident, 4 * MIB);
	assert_int_equal(pager_evict(0, UINT64_MAX, false, &move), NVSHARE_OUTCOME_SUCCESS);
	assert_int_equal(move.bytes, 4 * MIB);
	fill(a, 8 * MIB, 1);
	assert_int_equal(pager_restore(0, &move), NVSHARE_OUTCOME_SUCCESS);
	release(a);
	release(b);
	assert_int_equal(counts().pinned[NVSHARE_PINNED_PLAIN], 0);
}

/* A thread that was frozen between asking for a handle and having it goes on meanwhile. */
static void a_held_chunk_stays_until_it_is_let_go(void **state)
{
	CUdeviceptr a = allocate(300 * MIB); /* in two chunks */
	struct pager_hold hold;
	struct pager_move move;

	(void)state;
	assert_true(pager_hold(a + 260 * MIB, UINT64_MAX, &hold));
	assert_int_equal(pager_evict(0, UINT64_MAX, false, &move), NVSHARE_OUTCOME_SUCCESS);
	assert_int_equal(move.bytes, 256 * MIB);
	pager_unhold(&hold, false);
	assert_int_equal(counts().pinned[NVSHARE_PINNED_PLAIN], 0);
	assert_int_equal(pager_evict(0, UINT64_MAX, false, &move), NVSHARE_OUTCOME_SUCCESS);
	assert_int_equal(move.bytes, 44 * MIB);
	assert_int_equal(pager_restore(0, &move), NVSHARE_OUTCOME_SUCCESS);
	release(a);
}

static void *hold_and_pin(void *arg)
{
	struct pager_hold hold;

	gate_enter();
	if (!pager_hold(*(CUdeviceptr *)arg, 8 * MIB, &hold))
		return NULL;
	pager_unhold(&hold, true);
	gate_leave();
	return arg;
}

static void what_is_out_is_held_when_it_is_back(void **state)
{
	CUdeviceptr a = allocate(8 * MIB);
	uint64_t n_entered = gate_activity();
	struct pager_move move;
	pthread_t thread;
	void *held;

	(void)state;
	assert_int_equal(pager_evict(0, UINT64_MAX, false, &move), NVSHARE_OUTCOME_SUCCESS);
	assert_int_equal(pthread_create(&thread, NULL, hold_and_pin, &a), 0);
	while (gate_activity() < n_entered + 2) /* it has looked, and come again */
		sched_yield();
	assert_int_equal(counts().pinned[NVSHARE_PINNED_PLAIN], 0);
	assert_int_equal(pager_restore(0, &move), NVSHARE_OUTCOME_SUCCESS);
	pthread_join(thread, &held);
	assert_ptr_equal(held, &a);
	assert_int_equal(counts().pinned[NVSHARE_PINNED_PLAIN], 8 * MIB);
	release(a);
}

static void a_free_waits_for_the_work_of_its_context(void **state)
{
	CUdeviceptr a = allocate(MIB), b = allocate(1000);

	(void)state;
	fake_current = FAKE_CTX2;
	release(a);
	assert_int_equal(fake.n_syncs, 1);
	assert_ptr_equal(fake_current, FAKE_CTX2);
	release(b);
	assert_int_equal(fake.n_syncs, 2);
	fake_current = FAKE_CTX;
}

static CUdeviceptr freed_meanwhile;
static pthread_t freer;
static int is_freed;

static void *free_it(void *arg)
{
	CUresult res = CUDA_ERROR_UNKNOWN;

	fake_current = FAKE_CTX;
	arg = pager_free(freed_meanwhile, &res) && res == CUDA_SUCCESS ? NULL : &freer;
	__atomic_store_n(&is_freed, 1, __ATOMIC_SEQ_CST);
	return arg;
}

/* In the middle of an eviction: gives a free that does not wait every chance to show. */
static void start_a_free(void)
{
	if (fake.n_copies < 2) { /* it is not begun yet */
		fake.on_event_wait = start_a_free;
		return;
	}
	assert_int_equal(pthread_create(&freer, NULL, free_it, NULL), 0);
	while (__atomic_load_n(&fake.n_syncs, __ATOMIC_SEQ_CST) == 0)
		sched_yield();
	for (int i = 0; i < 20000 && !__atomic_load_n(&is_freed, __ATOMIC_SEQ_CST); i++)
		sched_yield();
	assert_int_equal(__atomic_load_n(&is_freed, __ATOMIC_SEQ_CST), 0);
}

static void a_free_waits_for_a_chunk_that_is_on_its_way(void **state)
{
	CUdeviceptr other = allocate(4 * MIB);
	struct pager_move move;
	void *failed;

	(void)state;
	freed_meanwhile = allocate(8 * MIB);
	fill(other, 4 * MIB, 3);
	fake.on_event_wait = start_a_free;
	assert_int_equal(pager_evict(0, UINT64_MAX, false, &move), NVSHARE_OUTCOME_SUCCESS);
	assert_int_equal(move.bytes, 12 * MIB);
	pthread_join(freer, &failed);
	assert_null(failed);
	assert_int_equal(counts().swapped, 4 * MIB);
	assert_int_equal(pager_restore(0, &move), NVSHARE_OUTCOME_SUCCESS);
	verify(other, 4 * MIB, 3);
	assert_int_equal(fake.used, 4 * MIB);
}

static void a_free_during_a_capture_is_put_off(void **state)
{
	CUdeviceptr a = allocate(MIB), b;
	int stream;

	(void)state;
	gate_enter_capture();
	gate_leave_capture(&stream, FAKE_CTX, true);
	release(a);
	assert_int_equal(fake.n_syncs, 0);
	assert_int_equal(fake.used, FAKE_GRANULE);
	assert_int_equal(counts().allocated, 0);
	assert_false(pager_find(a, NULL, NULL, NULL, NULL, NULL));
	pager_flush_frees();
	assert_int_equal(fake.used, FAKE_GRANULE);
	gate_end_capture(gate_find_capture(&stream));
	pager_flush_frees();
	assert_int_equal(fake.n_syncs, 1);
	assert_int_equal(fake.used, 0);

	/* One that begins between our look and the synchronise: the driver tells. */
	b = allocate(MIB);
	fake.sync_error = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	release(b);
	assert_int_equal(fake.used, FAKE_GRANULE);
	fake.sync_error = CUDA_SUCCESS;
	pager_flush_frees();
	assert_int_equal(fake.used, 0);
}

static void wrong_frees_are_refused_like_the_drivers(void **state)
{
	CUdeviceptr a = allocate(3 * MIB);
	CUresult res = CUDA_SUCCESS;

	(void)state;
	assert_true(pager_free(a + 512, &res));
	assert_int_equal(res, CUDA_ERROR_INVALID_VALUE);
	release(a);
	assert_false(pager_free(a, &res)); /* the driver's turn to refuse */
	assert_false(pager_free(0, &res));
}

static void an_allocation_dies_with_its_context(void **state)
{
	CUdeviceptr a = allocate(4 * MIB), b = allocate(600), c = 0;
	struct pager_move move;

	(void)state;
	gate_enter();
	assert_int_equal(pager_alloc(0, FAKE_CTX2, 5 * MIB, &c), CUDA_SUCCESS);
	gate_leave();
	fill(c, 5 * MIB, 6);
	assert_int_equal(pager_evict(0, UINT64_MAX, false, &move), NVSHARE_OUTCOME_SUCCESS);
	pager_context_gone(FAKE_CTX);
	fake_current = FAKE_CTX2;
	assert_false(pager_find(a, NULL, NULL, NULL, NULL, NULL));
	assert_false(pager_find(b, NULL, NULL, NULL, NULL, NULL));
	assert_int_equal(counts().allocated, 5 * MIB);
	assert_int_equal(counts().swapped, 6 * MIB);
	assert_int_equal(pager_restore(0, &move), NVSHARE_OUTCOME_SUCCESS);
	verify(c, 5 * MIB, 6);
}

static void an_address_is_found_with_what_was_asked_for(void **state)
{
	CUdeviceptr a = allocate(3 * MIB + 5), b = allocate(700), base;
	uint64_t id_a, id_b;
	CUcontext ctx;
	CUdevice dev;
	size_t size;

	(void)state;
	assert_true(pager_find(a + 3 * MIB, &base, &size, &ctx, &dev, &id_a));
	assert_int_equal(base, a);
	assert_int_equal(size, 3 * MIB + 5);
	assert_ptr_equal(ctx, FAKE_CTX);
	assert_int_equal(dev, 0);
	assert_true(pager_find(b + 699, NULL, &size, NULL, NULL, &id_b));
	assert_int_equal(size, 700);
	assert_true(id_a != id_b);
	assert_false(pager_find(b + 700, NULL, NULL, NULL, NULL, NULL));
	assert_false(pager_find(a + 3 * MIB + 5, NULL, NULL, NULL, NULL, NULL));
}

static unsigned int peers_of(CUdeviceptr ptr)
{
	return fake_find_map(ptr)->peers;
}

static void a_peer_reaches_present_and_future_memory_also_after_a_restore(void **state)
{
	CUdeviceptr a = allocate(300 * MIB), b;
	struct pager_move move;

	(void)state;
	assert_int_equal(peers_of(a), 1);
	assert_int_equal(pager_peer(0, 1, true), CUDA_SUCCESS);
	assert_int_equal(pager_peer(0, 1, true), CUDA_SUCCESS);
	b = allocate(512);
	assert_int_equal(peers_of(a), 3);
	assert_int_equal(peers_of(a + 299 * MIB), 3);
	assert_int_equal(peers_of(b), 3);
	assert_int_equal(pager_evict(0, UINT64_MAX, false, &move), NVSHARE_OUTCOME_SUCCESS);
	assert_int_equal(pager_restore(0, &move), NVSHARE_OUTCOME_SUCCESS);
	assert_int_equal(peers_of(a), 3);
	assert_int_equal(pager_peer(0, 1, false), CUDA_SUCCESS);
	assert_int_equal(peers_of(a), 3); /* another context still asks for it */
	assert_int_equal(pager_peer(0, 1, false), CUDA_SUCCESS);
	assert_int_equal(peers_of(a), 1);
	assert_int_equal(peers_of(b), 1);
}

static void a_full_card_is_out_of_memory_and_leaves_nothing(void **state)
{
	CUdeviceptr ptr = 77;

	(void)state;
	fake.capacity = 100 * MIB;
	gate_enter();
	assert_int_equal(pager_alloc(0, FAKE_CTX, 300 * MIB, &ptr), CUDA_ERROR_OUT_OF_MEMORY);
	assert_int_equal(pager_alloc(0, FAKE_CTX, SIZE_MAX - 5, &ptr), CUDA_ERROR_OUT_OF_MEMORY);
	gate_leave();
	assert_int_equal(ptr, 77);
	assert_int_equal(counts().allocated, 0);
	assert_int_equal(fake.reserved, 0);
}

int main(void)
{
#define PAGER_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		PAGER_TEST(every_byte_survives_going_out_and_coming_back),
		PAGER_TEST(evicts_no_more_than_the_chunks_that_cover_what_is_asked),
		PAGER_TEST(an_eviction_tells_how_far_it_is),
		PAGER_TEST(a_small_allocation_costs_no_chunk_of_its_own),
		PAGER_TEST(fifty_thousand_small_ones_live_and_die),
		PAGER_TEST(a_chunk_that_is_out_can_be_freed),
		PAGER_TEST(nothing_moves_when_the_host_has_no_room),
		PAGER_TEST(memory_prepared_is_used_and_given_back),
		PAGER_TEST(a_pinned_chunk_stays),
		PAGER_TEST(a_held_chunk_stays_until_it_is_let_go),
		PAGER_TEST(what_is_out_is_held_when_it_is_back),
		PAGER_TEST(a_free_waits_for_the_work_of_its_context),
		PAGER_TEST(a_free_waits_for_a_chunk_that_is_on_its_way),
		PAGER_TEST(a_free_during_a_capture_is_put_off),
		PAGER_TEST(wrong_frees_are_refused_like_the_drivers),
		PAGER_TEST(an_allocation_dies_with_its_context),
		PAGER_TEST(an_address_is_found_with_what_was_asked_for),
		PAGER_TEST(a_peer_reaches_present_and_future_memory_also_after_a_restore),
		PAGER_TEST(a_full_card_is_out_of_memory_and_leaves_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
