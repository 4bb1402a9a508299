/* SPDX-License-Identifier: Apache-2.0 */

/* Evictions for which host memory is short, until others have given some back. */

#include "vmm_rig.h"

#include "hook/host/hostmem.h"

static int n_awaited;
static uint64_t lacked[8]; /* as it was told the first times */

static bool note_lack(uint64_t bytes)
{
	if (n_awaited < 8)
		lacked[n_awaited] = bytes;
	return ++n_awaited > 0;
}

static int setup_short(void **state)
{
	int r = setup(state);

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

static void an_eviction_goes_on_as_others_give(void **state)
{
	CUdeviceptr a = allocate(8 * MIB), b = allocate(4 * MIB), c = allocate(4 * MIB);
	struct pager_move move;

	(void)state;
	fill(a, 8 * MIB, 1);
	fill(b, 4 * MIB, 2);
	fill(c, 4 * MIB, 3);
	hostmem_set_coming(8 * MIB);
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

static bool nobody_hears(uint64_t bytes)
{
	(void)note_lack(bytes);
	return false;
}

static void an_eviction_ends_when_nobody_gives(void **state)
{
	CUdeviceptr a = allocate(8 * MIB), b = allocate(4 * MIB);
	struct pager_move move;

	(void)state;
	fill(a, 8 * MIB, 1);
	fill(b, 4 * MIB, 2);
	hostmem_set_coming(4 * MIB);
	for (int i = 0; i < 2; i++) {
		fake.on_await_host = i ? nobody_hears : note_lack; /* the one takes a while */
		assert_int_equal(pager_evict(0, UINT64_MAX, false, &move),
				 NVSHARE_OUTCOME_NO_HOST_MEMORY);
		assert_int_equal(move.bytes, 4 * MIB);
		assert_int_equal(counts().resident, 8 * MIB);
		assert_int_equal(pager_restore(0, &move), NVSHARE_OUTCOME_SUCCESS);
	}
	verify(a, 8 * MIB, 1);
	verify(b, 4 * MIB, 2);
	release(a);
	release(b);
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
	fill(a, 8 * MIB, 1);
	fill(b, 4 * MIB, 2);
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
	verify(a, 8 * MIB, 1);
	verify(b, 4 * MIB, 2);
	release(a);
	release(b);
}

int main(void)
{
#define SHORT_TEST(name) cmocka_unit_test_setup_teardown(name, setup_short, teardown_short)
	const struct CMUnitTest tests[] = {
		SHORT_TEST(an_eviction_goes_on_as_others_give),
		SHORT_TEST(an_eviction_ends_when_nobody_gives),
		SHORT_TEST(an_eviction_that_can_not_end_is_not_begun),
		SHORT_TEST(no_room_for_the_first_chunk_begins_nothing),
		SHORT_TEST(clean_copies_are_given_to_others),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
