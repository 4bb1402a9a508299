/* SPDX-License-Identifier: Apache-2.0 */

/* Evictions for which host memory is short, until others have given some back. */

#include "vmm_rig.h"

#include "hook/host/hostmem.h"
#include "hook/host/touched.h"
#include "lib/virtual_clock.h"

static int n_awaited;
static uint64_t lacked[8]; /* as it was told the first times */

static bool note_lack(uint64_t bytes)
{
	if (n_awaited < 8)
		lacked[n_awaited] = bytes;
	clock_nap(10 * CLOCK_NS_PER_MS); /* for an answer */
	return ++n_awaited > 0;
}

static int setup_short(void **state)
{
	int r;

	virtual_clock_start();
	r = setup(state);
	n_awaited = 0;
	hostmem_set_limit("8MiB");
	return r;
}

static int teardown_short(void **state)
{
	hostmem_set_limit("");
	hostmem_set_coming(0);
	return teardown(state);
}

static bool more_the_third_time(uint64_t bytes)
{
	if (n_awaited == 2) {
		/* All that could go has gone by now: others come in, and give some back. */
		assert_int_equal(counts().swapped, 8 * MIB);
		assert_int_equal(fake.n_copies, 0);
		hostmem_set_limit("16MiB");
	}
	return note_lack(bytes);
}

static void fill_two(CUdeviceptr a, CUdeviceptr b)
{
	fill(a, 8 * MIB, 1);
	fill(b, 4 * MIB, 2);
}

static void end_two(CUdeviceptr a, CUdeviceptr b)
{
	verify(a, 8 * MIB, 1);
	verify(b, 4 * MIB, 2);
	release(a);
	release(b);
}

/* Others have 8 MiB of what the last chunk needs, from the beginning or from the first copy on. */
static void expect_it_goes_on_as_others_give(void (*begin)(void))
{
	CUdeviceptr a = allocate(8 * MIB), b = allocate(4 * MIB), c = allocate(4 * MIB);
	struct pager_move move;

	fill_two(a, b);
	fill(c, 4 * MIB, 3);
	begin();
	fake.on_await_host = more_the_third_time;
	assert_int_equal(pager_evict(0, UINT64_MAX, false, &move), NVSHARE_OUTCOME_SUCCESS);
	assert_int_equal(move.bytes, 16 * MIB);
	assert_int_equal(n_awaited, 4);
	/* At once, and of what is left, with nothing that could be given for it. */
	assert_int_equal(lacked[0], 8 * MIB);
	assert_int_equal(lacked[1], 8 * MIB);
	assert_int_equal(lacked[3], 0); /* what is lacking next is news */
	assert_int_equal(pager_restore(0, &move), NVSHARE_OUTCOME_SUCCESS);
	verify(a, 8 * MIB, 1);
	verify(b, 4 * MIB, 2);
	verify(c, 4 * MIB, 3);
	release(a);
	release(b);
	release(c);
}

static void others_will_give(void)
{
	hostmem_set_coming(8 * MIB);
}

static void an_eviction_goes_on_as_others_give(void **state)
{
	(void)state;
	expect_it_goes_on_as_others_give(others_will_give);
}

static void others_take(void)
{
	hostpool_trim();
	hostmem_set_limit("8MiB");
}

/* All is there as the eviction begins, in two slabs; one is in use when the first copy runs. */
static void others_take_later(void)
{
	struct hostpool_part *slabs[2];

	hostmem_set_limit("16MiB");
	for (int i = 0; i < 2; i++) {
		slabs[i] = hostpool_get(8 * MIB);
		assert_non_null(slabs[i]);
	}
	for (int i = 0; i < 2; i++)
		hostpool_put(slabs[i]);
	fake.on_event_wait = others_take;
}

static void an_eviction_from_which_others_take_goes_on_as_they_give(void **state)
{
	(void)state;
	expect_it_goes_on_as_others_give(others_take_later);
}

static bool nobody_hears(uint64_t bytes)
{
	(void)note_lack(bytes);
	return false;
}

/* With what one of two slabs has room for, twice: nobody gives, and it is waited for or not. */
static void expect_it_ends_when_nobody_gives(void (*begin)(void))
{
	CUdeviceptr a = allocate(8 * MIB), b = allocate(4 * MIB);
	struct pager_move move;
	uint64_t begin_ns;

	fill_two(a, b);
	for (int i = 0; i < 2; i++) {
		begin();
		fake.on_await_host = i ? nobody_hears : note_lack; /* the one takes a while */
		begin_ns = clock_now_ns();
		assert_int_equal(pager_evict(0, UINT64_MAX, false, &move),
				 NVSHARE_OUTCOME_NO_HOST_MEMORY);
		assert_true(i > 0 || clock_now_ns() - begin_ns >= CLOCK_NS_PER_SEC);
		assert_int_equal(move.bytes, 4 * MIB);
		assert_int_equal(counts().resident, 8 * MIB);
		assert_int_equal(pager_restore(0, &move), NVSHARE_OUTCOME_SUCCESS);
	}
	end_two(a, b);
}

static void others_seem_to_give(void)
{
	hostmem_set_coming(4 * MIB);
}

static void an_eviction_ends_when_nobody_gives(void **state)
{
	(void)state;
	expect_it_ends_when_nobody_gives(others_seem_to_give);
}

static void an_eviction_from_which_others_take_ends_when_nobody_gives(void **state)
{
	(void)state;
	expect_it_ends_when_nobody_gives(others_take_later);
}

static bool the_process_leaves(uint64_t bytes)
{
	fake.is_stopping = true;
	return note_lack(bytes);
}

static void nothing_is_waited_for_as_the_process_leaves(void **state)
{
	CUdeviceptr a = allocate(8 * MIB), b = allocate(4 * MIB);
	struct pager_move move;

	(void)state;
	fill_two(a, b);
	others_take_later();
	fake.on_await_host = the_process_leaves;
	assert_int_equal(pager_evict(0, UINT64_MAX, false, &move), NVSHARE_OUTCOME_INVALID_STATE);
	fake.is_stopping = false;
	assert_int_equal(n_awaited, 1);
	assert_int_equal(counts().resident, 8 * MIB);
	assert_int_equal(pager_restore(0, &move), NVSHARE_OUTCOME_SUCCESS);
	end_two(a, b);
}

static void others_take_and_it_hangs(void)
{
	others_take();
	fake.is_hung = true;
}

/* What is said of a copy is not lost behind it: that makes a client one that can not be stopped. */
static void a_copy_that_hangs_is_no_lack_of_host_memory(void **state)
{
	CUdeviceptr a = allocate(8 * MIB), b = allocate(4 * MIB);
	struct pager_move move;

	(void)state;
	fill_two(a, b);
	others_take_later();
	fake.on_event_wait = others_take_and_it_hangs;
	fake.on_await_host = nobody_hears;
	fake.options.copy_max_ns = CLOCK_NS_PER_MS;
	assert_int_equal(pager_evict(0, UINT64_MAX, false, &move), NVSHARE_OUTCOME_GPU_HUNG);
	assert_int_equal(counts().resident, 12 * MIB);
	fake.is_hung = false;
	hostmem_set_limit("64MiB");
	evict_all();
	restore_all();
	end_two(a, b);
}

static void an_eviction_that_can_not_end_is_not_begun(void **state)
{
	CUdeviceptr a = allocate(8 * MIB), b = allocate(4 * MIB);
	struct pager_move move;

	(void)state;
	hostmem_set_coming(4 * MIB - 1);
	fake.on_await_host = note_lack;
	assert_int_equal(pager_evict(0, UINT64_MAX, false, &move), NVSHARE_OUTCOME_NO_HOST_MEMORY);
	assert_int_equal(move.bytes, 0);
	assert_int_equal(n_awaited, 0);
	release(a);
	release(b);
}

static void no_room_for_the_first_chunk_begins_nothing(void **state)
{
	CUdeviceptr a = allocate(8 * MIB);
	struct pager_move move;

	(void)state;
	hostmem_set_limit("4MiB");
	hostmem_set_coming(64 * MIB);
	fake.on_await_host = nobody_hears;
	assert_int_equal(pager_evict(0, UINT64_MAX, false, &move), NVSHARE_OUTCOME_NO_HOST_MEMORY);
	assert_int_equal(move.bytes, 0);
	assert_int_equal(counts().resident, 8 * MIB);
	release(a);
}

/* In the middle of a restore nothing has run: the copies still hold, but others lack the room. */
static void clean_copies_are_given_to_others(void **state)
{
	CUdeviceptr a = allocate(8 * MIB), b = allocate(4 * MIB);
	struct pager_move move;
	uint64_t copied, given = 0, bytes;

	(void)state;
	hostmem_set_limit("64MiB");
	fill_two(a, b);
	assert_int_equal(pager_evict(0, UINT64_MAX, false, &move), NVSHARE_OUTCOME_SUCCESS);
	assert_int_equal(pager_give_host_memory(0), 0); /* all of it is in use */
	budget_set(0, 9 * MIB);
	assert_int_equal(pager_restore(0, &move), NVSHARE_OUTCOME_PARTIAL);
	while ((bytes = pager_give_host_memory(0)))
		given += bytes;
	assert_true(given <= 8 * MIB);
	assert_int_equal(hostpool_unused(), 8 * MIB - given); /* what shares a slab with the rest */
	copied = fake.bytes_copied;
	assert_int_equal(pager_evict(0, UINT64_MAX, false, &move), NVSHARE_OUTCOME_SUCCESS);
	assert_int_equal(fake.bytes_copied, copied + 8 * MIB);
	budget_set(0, BUDGET_UNLIMITED);
	fake.n_given_host = 0;
	assert_int_equal(pager_restore(0, &move), NVSHARE_OUTCOME_SUCCESS);
	assert_true(fake.n_given_host > 0); /* before it runs, which may be too late */
	end_two(a, b);
}

/* The larger one comes back, with the host memory of its copy. */
static void bring_back_one_of(CUdeviceptr a, CUdeviceptr b)
{
	struct pager_move move;

	hostmem_set_limit("64MiB");
	fill_two(a, b);
	assert_int_equal(pager_evict(0, UINT64_MAX, false, &move), NVSHARE_OUTCOME_SUCCESS);
	budget_set(0, 9 * MIB);
	assert_int_equal(pager_restore(0, &move), NVSHARE_OUTCOME_PARTIAL);
}

/* In the middle of a restore nothing has run, so what came in goes out again without a copy. */
static void memory_that_goes_without_a_copy_is_told_of(void **state)
{
	CUdeviceptr a = allocate(8 * MIB), b = allocate(4 * MIB);
	struct pager_move move;

	(void)state;
	bring_back_one_of(a, b);
	fake.moved_out = 0;
	fake.bytes_copied = 0;
	assert_int_equal(pager_evict(0, UINT64_MAX, false, &move), NVSHARE_OUTCOME_SUCCESS);
	assert_int_equal(fake.bytes_copied, 0);
	assert_int_equal(fake.moved_out, 8 * MIB);
	budget_set(0, BUDGET_UNLIMITED);
	assert_int_equal(pager_restore(0, &move), NVSHARE_OUTCOME_SUCCESS);
	end_two(a, b);
}

/* Waits for what is being made ready. */
static void expect_nothing_comes(void)
{
	size_t size;
	void *addr;

	assert_false(touched_wait(&addr, &size));
}

/* A program that has come back goes out again into the host memory that its copies still have. */
static void host_memory_of_copies_is_not_made_ready_twice(void **state)
{
	CUdeviceptr a = allocate(8 * MIB), b = allocate(4 * MIB);
	struct pager_move move;

	(void)state;
	bring_back_one_of(a, b);
	assert_int_equal(counts().resident, 8 * MIB);
	pager_prepare(0, 8 * MIB, true);
	expect_nothing_comes();
	pager_touch(0, 8 * MIB);
	expect_nothing_comes();
	budget_set(0, BUDGET_UNLIMITED);
	assert_int_equal(pager_restore(0, &move), NVSHARE_OUTCOME_SUCCESS);
	pager_prepare(0, 12 * MIB, true); /* without digests the pool has the memory again */
	expect_nothing_comes();
	end_two(a, b);
}

/* It does not go out, so it needs none. */
static void no_host_memory_is_made_ready_for_pinned_memory(void **state)
{
	CUdeviceptr a = allocate(8 * MIB), p = allocate(8 * MIB), b = allocate(4 * MIB);
	struct pager_hold hold;
	struct pager_move move;

	(void)state;
	hostmem_set_limit("64MiB");
	assert_true(pager_hold(p, 8 * MIB, &hold));
	pager_unhold(&hold, true);
	fill_two(a, b);
	assert_int_equal(pager_evict(0, UINT64_MAX, false, &move), NVSHARE_OUTCOME_SUCCESS);
	budget_set(0, 17 * MIB);
	assert_int_equal(pager_restore(0, &move), NVSHARE_OUTCOME_PARTIAL);
	assert_int_equal(counts().resident, 8 * MIB);
	pager_prepare(0, 8 * MIB, true);
	expect_nothing_comes();
	budget_set(0, BUDGET_UNLIMITED);
	assert_int_equal(pager_restore(0, &move), NVSHARE_OUTCOME_SUCCESS);
	end_two(a, b);
	release(p);
}

int main(void)
{
#define SHORT_TEST(name) cmocka_unit_test_setup_teardown(name, setup_short, teardown_short)
	const struct CMUnitTest tests[] = {
		SHORT_TEST(an_eviction_goes_on_as_others_give),
		SHORT_TEST(an_eviction_from_which_others_take_goes_on_as_they_give),
		SHORT_TEST(an_eviction_ends_when_nobody_gives),
		SHORT_TEST(an_eviction_from_which_others_take_ends_when_nobody_gives),
		SHORT_TEST(nothing_is_waited_for_as_the_process_leaves),
		SHORT_TEST(a_copy_that_hangs_is_no_lack_of_host_memory),
		SHORT_TEST(an_eviction_that_can_not_end_is_not_begun),
		SHORT_TEST(no_room_for_the_first_chunk_begins_nothing),
		SHORT_TEST(clean_copies_are_given_to_others),
		SHORT_TEST(memory_that_goes_without_a_copy_is_told_of),
		SHORT_TEST(host_memory_of_copies_is_not_made_ready_twice),
		SHORT_TEST(no_host_memory_is_made_ready_for_pinned_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
