/* SPDX-License-Identifier: Apache-2.0 */

/* Evictions of a frozen program: the freeze has an end, and what takes its time is in time. */

#include "hook/pager/pager.h"

#include "fake_memory.h"
#include "hook/host/hostmem.h"
#include "hook/pager/pager_private.h"
#include "pager_rig.h"

#include "lib/fake_rm.h"

#define MIB (1ull << 20)

enum { N_BIG = 4 };

static CUdeviceptr big[N_BIG];
static uint64_t slow_ns;          /* that long a registration takes, but the first */
static uint64_t copies_end_ns;    /* no copy ends before, */
static int copies_end_registered; /* nor with less host memory registered than that */

static CUresult query_slowly(CUevent event)
{
	if (clock_now_ns() < copies_end_ns || fake.n_registered < copies_end_registered)
		return CUDA_ERROR_NOT_READY;
	return fake_event_query(event);
}

static CUresult register_slowly(void *p, size_t size, unsigned int flags)
{
	uint64_t end_ns = clock_now_ns() + slow_ns;

	while (fake.n_registered && clock_now_ns() < end_ns)
		clock_nap(CLOCK_NS_PER_MS);
	return fake_register(p, size, flags);
}

static int set_up(void **state)
{
	fake_setup();
	fake.options.freeze = true;
	slow_ns = 0;
	copies_end_ns = 0;
	copies_end_registered = 0;
	cuda_real.cuEventQuery = query_slowly;
	cuda_real.cuMemHostRegister_v2 = register_slowly;
	assert_true(pager_supported(0));
	(void)fake_rm_setup(state);
	fake_rm_make_channels(GROUP, 4);
	for (size_t i = 0; i < N_BIG; i++) {
		assert_int_equal(allocate(64 * MIB, &big[i]), CUDA_SUCCESS);
		words(big[i])[i] = 0x1234 + (uint32_t)i;
	}
	return 0;
}

static int tear_down(void **state)
{
	(void)fake_rm_teardown(state);
	for (size_t i = 0; i < N_BIG; i++)
		assert_contents(words(big[i])[i], 0x1234 + i);
	pager_context_gone(FAKE_CTX);
	assert_int_equal(fake.used, 0);
	fake_give_back_host_memory();
	return 0;
}

/* Everything goes, from a freeze that would end after limit_ns. */
static void evict_within(uint64_t limit_ns)
{
	struct pager_move move;

	hostpool_trim();
	assert_int_equal(freeze_begin(limit_ns), 0);
	assert_int_equal(pager_evict(0, UINT64_MAX, true, &move), NVSHARE_OUTCOME_SUCCESS);
	assert_int_equal(move.bytes, N_BIG * 64 * MIB);
	assert_int_equal(fake_rm_n_off(), 4);
	assert_true(freeze_commit());
	assert_int_equal(pager_restore(0, &move), NVSHARE_OUTCOME_SUCCESS);
	assert_int_equal(freeze_end(), 0);
}

static void a_copy_that_takes_longer_than_the_freeze_extends_it(void **state)
{
	uint64_t limit_ns = 100 * CLOCK_NS_PER_MS;

	(void)state;
	copies_end_ns = clock_now_ns() + 2 * limit_ns + PAGER_FREEZE_NS;
	evict_within(limit_ns);
}

static void host_memory_that_comes_slowly_extends_the_freeze(void **state)
{
	(void)state;
	copies_end_registered = N_BIG;
	slow_ns = PAGER_FREEZE_NS * 2 / 5; /* three times: longer than one extension */
	evict_within(PAGER_FREEZE_NS);
}

/* The first chunk's, when the second is yet to be begun: by then it commits the freeze. */
static int n_gone_at_last;

static CUresult note_and_register(void *p, size_t size, unsigned int flags)
{
	struct nvshare_mem mem;

	budget_read(0, &mem);
	n_gone_at_last = (int)(mem.swapped / (64 * MIB));
	return fake_register(p, size, flags);
}

static CUresult end_at_once(CUevent event)
{
	(void)fake_event_query(event);
	return fake_event_query(event);
}

static void what_has_been_copied_goes_before_more_is_begun(void **state)
{
	(void)state;
	cuda_real.cuMemHostRegister_v2 = note_and_register;
	cuda_real.cuEventQuery = end_at_once;
	evict_within(PAGER_FREEZE_NS);
	assert_int_equal(n_gone_at_last, N_BIG - 1);
}

static uint64_t given_ns; /* when there is host memory again */

/* The probe's page is the last thing before the first chunk, whose memory others take then. */
static CUresult take_behind_the_probe(void *p, size_t size, unsigned int flags)
{
	if (size == (size_t)sysconf(_SC_PAGESIZE)) {
		hostpool_trim();
		hostmem_set_limit("1MiB");
		given_ns = clock_now_ns() + PAGER_FREEZE_NS * 6 / 5;
	}
	return fake_register(p, size, flags);
}

static bool give_in_time(uint64_t bytes)
{
	(void)bytes;
	if (clock_now_ns() >= given_ns)
		hostmem_set_limit("");
	clock_nap(CLOCK_NS_PER_MS);
	return true;
}

static void host_memory_that_is_waited_for_extends_the_freeze(void **state)
{
	(void)state;
	cuda_real.cuMemHostRegister_v2 = take_behind_the_probe;
	fake.on_await_host = give_in_time;
	evict_within(PAGER_FREEZE_NS);
	assert_true(given_ns > 0);
}

static int n_in_the_way;

static void wait_for_the_thaw(void)
{
	n_in_the_way++;
	while (freeze_is_on())
		clock_nap(CLOCK_NS_PER_MS);
}

/* A frozen thread has the lock that these need. */
static CUresult register_when_thawed(void *p, size_t size, unsigned int flags)
{
	wait_for_the_thaw();
	return fake_register(p, size, flags);
}

static CUresult unregister_when_thawed(void *p)
{
	wait_for_the_thaw();
	return fake_unregister(p);
}

/* When memory is out nothing would thaw it any more, and it would hang for good. */
static void a_lock_that_host_memory_needs_is_found_before_anything_goes(void **state)
{
	struct pager_move move;
	int r;

	(void)state;
	for (int i = 0; i < 2; i++) {
		cuda_real.cuMemHostRegister_v2 = fake_register;
		hostpool_put(hostpool_get(N_BIG * 64 * MIB)); /* no more is needed for now */
		do
			r = freeze_begin(100 * CLOCK_NS_PER_MS);
		while (r == FREEZE_E_BUSY);
		assert_int_equal(r, 0);
		n_in_the_way = 0;
		if (i == 0)
			cuda_real.cuMemHostRegister_v2 = register_when_thawed;
		else
			cuda_real.cuMemHostUnregister = unregister_when_thawed;
		assert_int_equal(pager_evict(0, UINT64_MAX, true, &move), NVSHARE_OUTCOME_TIMEOUT);
		assert_int_equal(n_in_the_way, 1);
		assert_int_equal(move.bytes, 0);
		assert_int_equal(freeze_end(), 0);
		hostpool_trim();
		cuda_real.cuMemHostUnregister = fake_unregister;
	}
	assert_int_equal(fake.n_registered, 0);
}

int main(void)
{
#define FROZEN_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		FROZEN_TEST(a_copy_that_takes_longer_than_the_freeze_extends_it),
		FROZEN_TEST(host_memory_that_comes_slowly_extends_the_freeze),
		FROZEN_TEST(host_memory_that_is_waited_for_extends_the_freeze),
		FROZEN_TEST(what_has_been_copied_goes_before_more_is_begun),
		FROZEN_TEST(a_lock_that_host_memory_needs_is_found_before_anything_goes),
	};

	return fake_rm_run_all_apart(tests, sizeof(tests) / sizeof(tests[0]));
}
