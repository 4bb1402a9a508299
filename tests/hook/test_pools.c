/* SPDX-License-Identifier: Apache-2.0 */

/* Stream-ordered memory of our own: who gets what again, and when. */

#include "fake_pools.h"

#include "hook/gate/green.h"

/* ---- order ------------------------------------------------------------------ */

static void it_is_pageable(void **state)
{
	CUdeviceptr p = take(&s1, 10 * MIB);

	(void)state;
	assert_int_equal(counts().resident, 10 * MIB);
	assert_int_equal(counts().pinned[NVSHARE_PINNED_ASYNC], 0);
	assert_int_equal(counts().allocated, 10 * MIB);
	drop(p, &s1);
	assert_int_equal(counts().allocated, 0);
}

static void freed_memory_is_not_known(void **state)
{
	CUdeviceptr p = take(&s1, 1000);

	(void)state;
	assert_false(pager_is_gap(p, 1000));
	drop(p, &s1);
	assert_true(pager_is_gap(p, 1));
	finish(&s1);
	assert_true(pager_is_gap(p, 1));
	assert_int_equal(take(&s1, 1000), p);
	assert_false(pager_is_gap(p, 1000));
}

static void its_own_stream_has_it_again_at_once(void **state)
{
	CUdeviceptr p = take(&s1, 10 * MIB);

	(void)state;
	drop(p, &s1);
	n_queries = 0;
	assert_int_equal(take(&s1, 10 * MIB), p);
	assert_int_equal(n_queries, 0);
	for (int i = 0; i < 100; i++) {
		drop(p, &s1);
		assert_int_equal(take(&s1, 10 * MIB), p);
	}
	assert_int_equal(n_events, 1);
	assert_int_equal(counts().resident, 10 * MIB);
}

static void another_stream_has_it_when_the_free_is_done(void **state)
{
	CUdeviceptr p = take(&s1, 10 * MIB), other;

	(void)state;
	drop(p, &s1);
	other = take(&s2, 10 * MIB);
	assert_int_not_equal(other, p);
	finish(&s1);
	assert_int_equal(take(&s2, 10 * MIB), p);
	assert_int_equal(n_stream_waits + n_waits, 0);
}

static void a_default_stream_of_another_thread_is_another_stream(void **state)
{
	CUdeviceptr p, q;

	(void)state;
	assert_int_equal(cuMemAllocAsync(&p, 4 * MIB, CU_STREAM_PER_THREAD), CUDA_SUCCESS);
	assert_int_equal(cuMemFreeAsync(p, CU_STREAM_PER_THREAD), CUDA_SUCCESS);
	assert_int_equal(cuMemAllocAsync(&q, 4 * MIB, NULL), CUDA_SUCCESS);
	assert_int_not_equal(p, q);
	assert_int_equal(cuMemAllocAsync(&q, 4 * MIB, CU_STREAM_PER_THREAD), CUDA_SUCCESS);
	assert_int_equal(p, q);
}

static void a_large_block_is_cut_and_grown_together(void **state)
{
	CUdeviceptr p = take(&s1, 8 * MIB), parts[4];

	(void)state;
	drop(p, &s1);
	for (int i = 0; i < 4; i++) {
		parts[i] = take(&s1, 2 * MIB);
		assert_int_equal(parts[i], p + (CUdeviceptr)i * 2 * MIB);
	}
	for (int i = 0; i < 4; i++)
		drop(parts[i], i % 2 ? &s1 : &s2);
	finish(&s1);
	finish(&s2);
	assert_int_equal(take(&s3, 8 * MIB), p);
	assert_int_equal(counts().resident, 8 * MIB);
}

static void a_destroyed_stream_says_nothing_of_the_next_one(void **state)
{
	CUdeviceptr p = take(&s1, 4 * MIB);

	(void)state;
	drop(p, &s1);
	fake.n_streams++;
	assert_int_equal(cuStreamDestroy_v2(on(&s1)), CUDA_SUCCESS);
	/* The same handle, and another stream. */
	assert_int_not_equal(take(&s1, 4 * MIB), p);
	finish(&s1);
	assert_int_equal(take(&s1, 4 * MIB), p);
}

static CUdeviceptr overtaking;

static void *free_overtaking(void *data)
{
	fake_current = s1.ctx;
	drop(overtaking, &s1);
	return data;
}

static void overtake(void)
{
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, free_overtaking, NULL), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
}

/* Recorded later, and pending earlier: another thread was stopped in between. */
static void a_free_that_overtook_another_is_not_done_with_it(void **state)
{
	CUdeviceptr p = take(&s1, 4 * MIB), q;
	uint64_t before;

	(void)state;
	overtaking = take(&s1, 6 * MIB);
	on_recorded = overtake;
	drop(p, &s1);
	s1.n_done = s1.n_recorded - 1;
	assert_int_equal(take(&s2, 4 * MIB), p);
	q = take(&s2, 6 * MIB);
	assert_true(q + 6 * MIB <= overtaking || q >= overtaking + 6 * MIB);
	assert_int_equal(cuMemPoolTrimTo(handle_of(0), 0), CUDA_SUCCESS);
	before = counts().resident;
	finish(&s1);
	assert_int_equal(cuMemPoolTrimTo(handle_of(0), 0), CUDA_SUCCESS);
	assert_int_equal(before - counts().resident, 6 * MIB);
}

static void who_waits_for_all_waits_for_what_overtook_too(void **state)
{
	CUdeviceptr p = take(&s1, 4 * MIB);

	(void)state;
	set(handle_of(0), CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, 0);
	overtaking = take(&s1, 6 * MIB);
	on_recorded = overtake;
	drop(p, &s1);
	s1.n_done = s1.n_recorded - 1;
	budget_set(0, 10 * MIB);
	assert_int_equal(take(&s2, 6 * MIB), overtaking);
	assert_int_equal(n_waits, 1);
}

static void what_chance_may_not_decide_it_does_not(void **state)
{
	CUdeviceptr p;

	(void)state;
	set(handle_of(0), CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, 0);
	p = take(&s1, 4 * MIB);
	drop(p, &s1);
	finish(&s1);
	assert_int_not_equal(take(&s2, 4 * MIB), p);
	set(handle_of(0), CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, 1);
	assert_int_equal(take(&s2, 4 * MIB), p);
}

/* ---- when memory is short --------------------------------------------------- */

static void a_short_budget_makes_one_stream_wait_for_another(void **state)
{
	CUdeviceptr p = take(&s1, 10 * MIB);

	(void)state;
	drop(p, &s1);
	budget_set(0, 12 * MIB);
	assert_int_equal(take(&s2, 10 * MIB), p);
	assert_int_equal(n_stream_waits * 10 + n_waits, 10);
}

static void without_dependencies_the_caller_waits(void **state)
{
	CUdeviceptr p;

	(void)state;
	set(handle_of(0), CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, 0);
	p = take(&s1, 10 * MIB);
	drop(p, &s1);
	budget_set(0, 12 * MIB);
	assert_int_equal(take(&s2, 10 * MIB), p);
	assert_int_equal(n_stream_waits, 0);
	assert_int_equal(n_waits, 1);
	assert_true(gate_quiet());
}

static void a_full_card_without_a_scheduler_does_the_same(void **state)
{
	CUdeviceptr p, q;

	(void)state;
	fake.capacity = 16 * MIB;
	p = take(&s1, 10 * MIB);
	drop(p, &s1);
	assert_int_equal(take(&s2, 10 * MIB), p);
	drop(p, &s2);
	finish(&s2);
	/* Of another shape: what is free goes back first. */
	q = take(&s1, 14 * MIB);
	assert_int_equal(cuMemAllocAsync(&p, 4 * MIB, on(&s1)), CUDA_ERROR_OUT_OF_MEMORY);
	assert_int_equal(counts().allocated, 14 * MIB);
	drop(q, &s1);
	finish(&s1);
	assert_int_equal(cuMemAlloc_v2(&p, 14 * MIB), CUDA_SUCCESS);
	assert_int_equal(cuMemFree_v2(p), CUDA_SUCCESS);
}

static void any_call_may_fail_while_a_pool_grows(void **state)
{
	CUdeviceptr held = take(&s1, 4 * MIB), p;
	bool has_failed = true;

	(void)state;
	for (int n = 1; has_failed; n++) {
		fake_arm(n, n % 2 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_UNKNOWN);
		if (cuMemAllocAsync(&p, 6 * MIB, on(&s1)) == CUDA_SUCCESS)
			assert_int_equal(cuMemFree_v2(p), CUDA_SUCCESS);
		has_failed = fake_disarm();
		pools_release(0);
		assert_int_equal(counts().allocated, 4 * MIB);
		assert_int_equal(counts().resident, 4 * MIB);
		assert_int_equal(fake.used, 4 * MIB);
		assert_true(gate_quiet());
	}
	drop(held, &s1);
}

static void an_allocation_larger_than_the_card_is_refused(void **state)
{
	CUdeviceptr p;

	(void)state;
	assert_int_equal(cuMemAllocAsync(&p, fake.capacity + 1, on(&s1)), CUDA_ERROR_OUT_OF_MEMORY);
	assert_int_equal(counts().allocated, 0);
}

/* ---- thresholds and counts -------------------------------------------------- */

static void memory_above_the_threshold_goes_back_once_done(void **state)
{
	CUmemoryPool pool = handle_of(0);
	CUdeviceptr p = take(&s1, 32 * MIB);

	(void)state;
	drop(p, &s1);
	assert_int_equal(attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 32 * MIB);
	finish(&s1);
	assert_int_equal(attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0);
	assert_int_equal(fake.used, 0);
	set(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, UINT64_MAX);
	p = take(&s1, 32 * MIB);
	drop(p, &s1);
	finish(&s1);
	assert_int_equal(attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 32 * MIB);
	assert_int_equal(cuMemPoolTrimTo(pool, 32 * MIB), CUDA_SUCCESS);
	assert_int_equal(fake.used, 32 * MIB);
	assert_int_equal(cuMemPoolTrimTo(pool, 31 * MIB), CUDA_SUCCESS);
	assert_int_equal(fake.used, 0);
}

static void frees_alone_give_back_after_a_while(void **state)
{
	CUdeviceptr big = take(&s1, 64 * MIB), p;

	(void)state;
	drop(big, &s1);
	finish(&s1);
	for (int i = 0; i < 128; i++) {
		p = take(&s2, 4096);
		drop(p, &s2);
	}
	assert_true(counts().resident < 64 * MIB);
}

static void use_is_counted(void **state)
{
	CUmemoryPool pool = handle_of(0);
	CUdeviceptr p, q;

	(void)state;
	p = take(&s1, 4 * MIB);
	q = take(&s1, 2 * MIB);
	assert_int_equal(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 6 * MIB);
	drop(q, &s1);
	assert_int_equal(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 4 * MIB);
	assert_int_equal(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), 6 * MIB);
	set(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, 0);
	assert_int_equal(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), 4 * MIB);
	assert_true(attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) >= 6 * MIB);
	drop(p, &s1);
	assert_int_equal(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0);
}

/* ---- other ways to free ----------------------------------------------------- */

static void cuMemFree_takes_it_with_a_synchronise(void **state)
{
	CUdeviceptr p = take(&s1, 4 * MIB);

	(void)state;
	assert_int_equal(cuMemFree_v2(p), CUDA_SUCCESS);
	assert_int_equal(fake.n_syncs, 1);
	assert_int_equal(take(&s2, 4 * MIB), p);
	assert_int_equal(cuMemFree_v2(p + 512), CUDA_ERROR_INVALID_VALUE);
}

static void plain_memory_is_freed_in_stream_order(void **state)
{
	CUdeviceptr p;

	(void)state;
	assert_int_equal(cuMemAlloc_v2(&p, 2 * MIB), CUDA_SUCCESS);
	drop(p, &s1);
	assert_int_equal(counts().allocated, 0);
	assert_int_equal(fake.n_syncs, 0);
	assert_int_equal(fake.used, 2 * MIB); /* the stream may still use it */
	pools_release(0);
	assert_int_equal(fake.used, 2 * MIB);
	finish(&s1);
	pools_release(0);
	assert_int_equal(fake.used, 0);
}

static void what_is_not_there_is_not_freed(void **state)
{
	CUdeviceptr p = take(&s1, 4 * MIB);

	(void)state;
	assert_int_equal(cuMemFreeAsync(p + 512, on(&s1)), CUDA_ERROR_INVALID_VALUE);
	drop(p, &s1);
	assert_int_equal(cuMemFreeAsync(p, on(&s1)), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuMemFreeAsync(4096, on(&s1)), CUDA_ERROR_INVALID_VALUE);
}

static void a_free_that_the_stream_refuses_did_not_happen(void **state)
{
	CUdeviceptr p = take(&s1, 4 * MIB), base;

	(void)state;
	record_result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
	assert_int_equal(cuMemFreeAsync(p, on(&s1)), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
	assert_true(pager_find(p + 5, &base, NULL, NULL, NULL, NULL));
	assert_int_equal(base, p);
	assert_int_equal(counts().allocated, 4 * MIB);
	record_result = CUDA_SUCCESS;
	drop(p, &s1);
}

static void without_an_event_a_free_waits(void **state)
{
	CUdeviceptr p = take(&s1, 4 * MIB), q;

	(void)state;
	event_result = CUDA_ERROR_OUT_OF_MEMORY;
	assert_int_equal(cuMemAlloc_v2(&q, MIB), CUDA_SUCCESS);
	drop(p, &s1);
	drop(q, &s1);
	assert_int_equal(fake.n_syncs, 2);
	assert_int_equal(counts().allocated, 0);
}

static void a_capture_frees_none_of_it(void **state)
{
	CUdeviceptr p = take(&s1, 4 * MIB), node;

	(void)state;
	gate_enter_capture();
	gate_leave_capture(&s1, FAKE_CTX, true);
	capture_status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
	assert_int_equal(cuMemFreeAsync(p, on(&s1)), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuMemAllocAsync(&node, MIB, on(&s1)), CUDA_SUCCESS);
	assert_int_equal(counts().resident, 4 * MIB);
	capture_status = CU_STREAM_CAPTURE_STATUS_NONE;
	gate_end_capture(gate_find_capture(&s1));
	drop(p, &s1);
}

/* ---- green contexts ---------------------------------------------------------- */

#define GREEN ((CUgreenCtx)0x9000)

static void begin_green(void)
{
	struct green green = {.handle = GREEN, .ctx = FAKE_CTX2, .primary = FAKE_CTX, .dev = 0};

	assert_true(green_add(&green));
}

static void end_green(void)
{
	green_end(green_take(GREEN));
}

static CUresult must_not_be_asked(CUstream stream, CUcontext *ctx)
{
	(void)stream;
	(void)ctx;
	fail();
	return CUDA_ERROR_STREAM_DETACHED;
}

static void a_detached_stream_frees_without_the_driver(void **state)
{
	CUdeviceptr p;

	(void)state;
	begin_green();
	green_stream_made(on(&s1), GREEN);
	s1.ctx = FAKE_CTX2;
	p = take(&s1, 10 * MIB);
	end_green();
	cuda_real.cuStreamGetCtx = must_not_be_asked;
	drop(p, &s1);
	assert_int_equal(counts().allocated, 0);
	assert_int_equal(n_events, 0);
	cuda_real.cuStreamGetCtx = drv_stream_ctx;
	assert_int_equal(take(&s2, 10 * MIB), p);
	green_stream_gone(on(&s1));
}

/* The driver may be about to follow the handle into memory that it has freed. */
static void a_stream_is_detached_while_its_green_context_ends(void **state)
{
	struct green *green;
	CUdeviceptr p;

	(void)state;
	begin_green();
	green_stream_made(on(&s1), GREEN);
	s1.ctx = FAKE_CTX2;
	p = take(&s1, 10 * MIB);
	green = green_take(GREEN);
	cuda_real.cuStreamGetCtx = must_not_be_asked;
	drop(p, &s1);
	assert_int_equal(n_events, 0);
	cuda_real.cuStreamGetCtx = drv_stream_ctx;
	green_end(green);
	green_stream_gone(on(&s1));
}

/* A new green context may have the handle of one that another thread still ends. */
static void a_default_stream_ends_with_its_green_context(void **state)
{
	struct green *green;
	CUdeviceptr p, q;

	(void)state;
	begin_green();
	fake_current = legacy.ctx = FAKE_CTX2;
	assert_int_equal(cuMemAllocAsync(&p, 4 * MIB, NULL), CUDA_SUCCESS);
	green = green_take(GREEN);
	assert_int_equal(cuMemFreeAsync(p, NULL), CUDA_SUCCESS);
	begin_green();
	green_end(green);
	legacy.ctx = FAKE_CTX; /* events are asked for there */
	assert_int_equal(cuMemAllocAsync(&q, 4 * MIB, NULL), CUDA_SUCCESS);
	assert_int_not_equal(p, q);
	finish(&legacy);
	assert_int_equal(cuMemAllocAsync(&q, 4 * MIB, NULL), CUDA_SUCCESS);
	assert_int_equal(p, q);
	end_green();
	fake_current = FAKE_CTX;
}

/* ---- moving, and ends ------------------------------------------------------- */

static void it_goes_out_and_comes_back_and_dead_bytes_do_not(void **state)
{
	struct pager_move move;
	CUdeviceptr p, dead;

	(void)state;
	/* The pager's copies are the other fake's: it does them when an event is waited for. */
	cuda_real.cuEventRecord = fake_event_record;
	cuda_real.cuEventQuery = fake_event_query;
	dead = take(&s1, 64 * MIB);
	assert_int_equal(cuMemFree_v2(dead), CUDA_SUCCESS);
	p = take(&s1, 2 * MIB);
	if (p - dead < 64 * MIB) { /* it lies in what was freed: then only that region moves */
		assert_int_equal(cuMemFree_v2(p), CUDA_SUCCESS);
		pools_release(0);
		p = take(&s1, 2 * MIB);
	}
	memset(fake_pointer(p), 0x5a, 2 * MIB);
	assert_int_equal(pager_evict(0, UINT64_MAX, false, &move), NVSHARE_OUTCOME_SUCCESS);
	assert_int_equal(move.bytes, 2 * MIB);
	assert_int_equal(counts().resident, 0);
	assert_int_equal(counts().swapped, 2 * MIB);
	assert_int_equal(pager_restore(0, &move), NVSHARE_OUTCOME_SUCCESS);
	for (size_t i = 0; i < 2 * MIB; i += 4096)
		assert_int_equal(((unsigned char *)fake_pointer(p))[i], 0x5a);
	assert_int_equal(cuMemFree_v2(p), CUDA_SUCCESS);
}

static void a_dead_context_takes_all_with_it(void **state)
{
	CUdeviceptr plain;
	struct fake_stream other = {.ctx = FAKE_CTX2};

	(void)state;
	take(&s1, 4 * MIB);
	drop(take(&s1, 4 * MIB), &s1);
	drop(take(&s1, 4096), &other);
	assert_int_equal(cuMemAlloc_v2(&plain, 4096), CUDA_SUCCESS);
	drop(plain, &other);
	pager_context_gone(FAKE_CTX);
	assert_int_equal(counts().resident, 0);
	assert_int_equal(counts().allocated, 0);
	assert_int_equal(attribute(handle_of(0), CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0);
	finish(&other);
	pools_release(0);
	drop(take(&other, 4096), &other);
	pager_context_gone(FAKE_CTX2);
	assert_int_equal(counts().resident, 0);
}

#define THREADS 4
#define HELD    16
#define STEPS   4000

static struct fake_stream shared[3];

/* Each writes its own mark into what it has; nobody else's may ever be found there. */
static void *allocate_at_random(void *data)
{
	struct fake_stream *streams[] = {&shared[0], &shared[1], &shared[2]};
	struct {
		CUdeviceptr p;
		size_t size;
		uint64_t mark;
	} held[HELD] = {0};
	uint64_t seed = (uintptr_t)data, n_wrong = 0;

	fake_current = FAKE_CTX;
	for (int step = 0; step < STEPS; step++) {
		size_t i, s;

		seed = seed * 6364136223846793005u + 1442695040888963407u;
		i = (seed >> 33) % HELD;
		s = (seed >> 40) % 3;
		if (held[i].p) {
			uint64_t *words = fake_pointer(held[i].p);

			n_wrong += words[0] != held[i].mark;
			n_wrong += words[held[i].size / 8 - 1] != held[i].mark;
			/* Its work is done: which stream it is freed on is all the same then. */
			n_wrong += cuMemFreeAsync(held[i].p, on(streams[s])) != CUDA_SUCCESS;
			held[i].p = 0;
			if ((seed >> 50) % 4 == 0)
				finish(streams[s]);
			continue;
		}
		held[i].size = ((seed >> 45) % 3 ? 8192 : 3 * MIB) + (seed >> 54) * 8;
		held[i].mark = seed;
		n_wrong +=
			cuMemAllocAsync(&held[i].p, held[i].size, on(streams[s])) != CUDA_SUCCESS;
		if (held[i].p) {
			((uint64_t *)fake_pointer(held[i].p))[0] = seed;
			((uint64_t *)fake_pointer(held[i].p))[held[i].size / 8 - 1] = seed;
		}
	}
	for (size_t i = 0; i < HELD; i++) {
		if (held[i].p)
			n_wrong += cuMemFreeAsync(held[i].p, on(streams[0])) != CUDA_SUCCESS;
	}
	return (void *)(uintptr_t)n_wrong;
}

static void threads_never_share_a_byte(void **state)
{
	pthread_t threads[THREADS];
	void *n_wrong;

	(void)state;
	for (int i = 0; i < 3; i++)
		shared[i] = (struct fake_stream){.ctx = FAKE_CTX};
	for (uintptr_t i = 0; i < THREADS; i++)
		assert_int_equal(
			pthread_create(&threads[i], NULL, allocate_at_random, (void *)(i + 1)), 0);
	for (int i = 0; i < THREADS; i++) {
		assert_int_equal(pthread_join(threads[i], &n_wrong), 0);
		assert_null(n_wrong);
	}
	assert_int_equal(attribute(handle_of(0), CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0);
	for (int i = 0; i < 3; i++)
		finish(&shared[i]);
	pools_release(0);
	assert_int_equal(counts().resident, 0);
}

#define POOLS_TEST(name) cmocka_unit_test_setup_teardown(name, setup_pools, teardown_pools)

int main(void)
{
	const struct CMUnitTest tests[] = {
		POOLS_TEST(it_is_pageable),
		POOLS_TEST(freed_memory_is_not_known),
		POOLS_TEST(its_own_stream_has_it_again_at_once),
		POOLS_TEST(another_stream_has_it_when_the_free_is_done),
		POOLS_TEST(a_default_stream_of_another_thread_is_another_stream),
		POOLS_TEST(a_large_block_is_cut_and_grown_together),
		POOLS_TEST(a_destroyed_stream_says_nothing_of_the_next_one),
		POOLS_TEST(a_free_that_overtook_another_is_not_done_with_it),
		POOLS_TEST(who_waits_for_all_waits_for_what_overtook_too),
		POOLS_TEST(what_chance_may_not_decide_it_does_not),
		POOLS_TEST(a_short_budget_makes_one_stream_wait_for_another),
		POOLS_TEST(without_dependencies_the_caller_waits),
		POOLS_TEST(a_full_card_without_a_scheduler_does_the_same),
		POOLS_TEST(any_call_may_fail_while_a_pool_grows),
		POOLS_TEST(an_allocation_larger_than_the_card_is_refused),
		POOLS_TEST(memory_above_the_threshold_goes_back_once_done),
		POOLS_TEST(frees_alone_give_back_after_a_while),
		POOLS_TEST(use_is_counted),
		POOLS_TEST(cuMemFree_takes_it_with_a_synchronise),
		POOLS_TEST(plain_memory_is_freed_in_stream_order),
		POOLS_TEST(what_is_not_there_is_not_freed),
		POOLS_TEST(a_free_that_the_stream_refuses_did_not_happen),
		POOLS_TEST(without_an_event_a_free_waits),
		POOLS_TEST(a_capture_frees_none_of_it),
		POOLS_TEST(it_goes_out_and_comes_back_and_dead_bytes_do_not),
		POOLS_TEST(a_dead_context_takes_all_with_it),
		POOLS_TEST(a_detached_stream_frees_without_the_driver),
		POOLS_TEST(a_stream_is_detached_while_its_green_context_ends),
		POOLS_TEST(a_default_stream_ends_with_its_green_context),
		POOLS_TEST(threads_never_share_a_byte),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
