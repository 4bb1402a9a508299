/* SPDX-License-Identifier: Apache-2.0 */

/*
 * No lock of ours is held over a call of the driver: what others do to the pager while one
 * of its threads is in there. A test says what that is, and it happens in the next such call.
 */

#include "vmm_rig.h"

#include "hook/gate/device.h"
#include "hook/pager/pager_private.h"

static void (*meanwhile)(void); /* once */

static void let_others_go(void)
{
	void (*then)(void) = __atomic_exchange_n(&meanwhile, NULL, __ATOMIC_SEQ_CST);

	if (then)
		then();
}

static int n_closed; /* to some device */

static CUresult set_access_slowly(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc,
				  size_t count)
{
	if (desc->flags == CU_MEM_ACCESS_FLAGS_PROT_NONE)
		__atomic_add_fetch(&n_closed, 1, __ATOMIC_SEQ_CST);
	let_others_go();
	return fake_set_access(ptr, size, desc, count);
}

static CUresult unmap_slowly(CUdeviceptr ptr, size_t size)
{
	let_others_go();
	return fake_unmap(ptr, size);
}

static CUresult synchronize_slowly(void)
{
	let_others_go();
	return fake_ctx_sync();
}

static int setup_slowly(void **state)
{
	meanwhile = NULL;
	n_closed = 0;
	if (setup(state))
		return -1;
	cuda_real.cuMemSetAccess = set_access_slowly;
	cuda_real.cuMemUnmap = unmap_slowly;
	cuda_real.cuCtxSynchronize = synchronize_slowly;
	return 0;
}

static void restore_within(uint64_t budget, int outcome)
{
	struct pager_move move;

	budget_set(0, budget);
	assert_int_equal(pager_restore(0, &move), outcome);
}

/* ---- host copies ------------------------------------------------------------ */

static void bring_in_the_rest(void)
{
	restore_within(BUDGET_UNLIMITED, NVSHARE_OUTCOME_SUCCESS);
}

static void a_chunk_that_is_opened_to_a_peer_as_the_last_comes_in_is_copied_again(void **state)
{
	CUdeviceptr a = allocate(8 * MIB), b = allocate(4 * MIB);

	(void)state;
	fill(a, 8 * MIB, 1);
	evict_all();
	restore_within(9 * MIB, NVSHARE_OUTCOME_PARTIAL);
	meanwhile = bring_in_the_rest;
	assert_int_equal(pager_peer(0, 1, true), CUDA_SUCCESS);
	assert_null(meanwhile);
	fill(a, 8 * MIB, 2); /* nothing is out: the program runs */
	evict_all();
	restore_all();
	verify(a, 8 * MIB, 2);
	assert_int_equal(pager_peer(0, 1, false), CUDA_SUCCESS);
	release(a);
	release(b);
}

static void memory_that_loses_a_mapping_as_the_last_comes_in_is_copied_again(void **state)
{
	CUmemGenericAllocationHandle handle = create(8 * MIB);
	CUdeviceptr p = reserve(8 * MIB), q = reserve(8 * MIB), b = allocate(4 * MIB);

	(void)state;
	map(p, 8 * MIB, handle);
	map(q, 8 * MIB, handle);
	fill(p, 8 * MIB, 1);
	evict_all();
	restore_within(9 * MIB, NVSHARE_OUTCOME_PARTIAL);
	meanwhile = bring_in_the_rest;
	unmap(q, 8 * MIB);
	assert_null(meanwhile);
	fill(p, 8 * MIB, 2);
	evict_all();
	restore_all();
	verify(p, 8 * MIB, 2);
	unmap(p, 8 * MIB);
	assert_int_equal(cuMemRelease(handle), CUDA_SUCCESS);
	release(b);
}

static CUdeviceptr lacking;

static void free_lacking(void)
{
	release(lacking);
}

static void a_chunk_on_its_way_in_as_the_last_that_is_out_is_freed_is_copied_again(void **state)
{
	CUdeviceptr a = allocate(16 * MIB);

	(void)state;
	lacking = allocate(8 * MIB);
	fill(a, 16 * MIB, 1);
	evict_all();
	fake.on_event_wait = free_lacking;
	restore_within(17 * MIB, NVSHARE_OUTCOME_SUCCESS);
	assert_int_equal(counts().swapped, 0);
	fill(a, 16 * MIB, 2);
	evict_all();
	restore_within(BUDGET_UNLIMITED, NVSHARE_OUTCOME_SUCCESS);
	verify(a, 16 * MIB, 2);
	release(a);
}

/* ---- peers ------------------------------------------------------------------ */

static pthread_t opener;

static unsigned int peers_of(CUdeviceptr ptr)
{
	unsigned int peers;

	pthread_mutex_lock(&fake.lock);
	peers = fake_find_map(ptr)->peers;
	pthread_mutex_unlock(&fake.lock);
	return peers;
}

static void *open_to_peer(void *data)
{
	assert_int_equal(pager_peer(0, 1, true), CUDA_SUCCESS);
	return data;
}

/* What is new shows that the other thread is so far that it waits for the chunk. */
static void open_again(void)
{
	unsigned int peers = 0;
	CUdeviceptr p;

	assert_int_equal(pthread_create(&opener, NULL, open_to_peer, NULL), 0);
	while (peers != 3) {
		p = allocate(MIB);
		peers = peers_of(p);
		release(p);
	}
}

static void who_closes_memory_to_a_peer_leaves_open_what_was_asked_for_again(void **state)
{
	CUdeviceptr a = allocate(2 * MIB), b = allocate(2 * MIB);

	(void)state;
	assert_int_equal(pager_peer(0, 1, true), CUDA_SUCCESS);
	meanwhile = open_again;
	assert_int_equal(pager_peer(0, 1, false), CUDA_SUCCESS);
	assert_int_equal(n_closed, 1); /* the first was on its way */
	pthread_join(opener, NULL);
	assert_int_equal(peers_of(a), 3);
	assert_int_equal(peers_of(b), 3);
	assert_int_equal(pager_peer(0, 1, false), CUDA_SUCCESS);
	assert_int_equal(peers_of(a), 1);
	assert_int_equal(peers_of(b), 1);
	release(a);
	release(b);
}

static struct pager_hold held;
static bool is_pinned;

static void *pin_held(void *data)
{
	pager_unhold(&held, true);
	__atomic_store_n(&is_pinned, true, __ATOMIC_SEQ_CST);
	return data;
}

/* Gives one that does not wait every chance to show. */
static void pin_meanwhile(void)
{
	assert_int_equal(pthread_create(&opener, NULL, pin_held, NULL), 0);
	for (int i = 0; i < 20000 && !__atomic_load_n(&is_pinned, __ATOMIC_SEQ_CST); i++)
		sched_yield();
}

static void what_is_exported_as_it_is_opened_to_a_peer_is_pinned(void **state)
{
	CUdeviceptr a = allocate(300 * MIB);

	(void)state;
	is_pinned = false;
	gate_enter();
	assert_true(pager_hold(a, 300 * MIB, &held));
	meanwhile = pin_meanwhile;
	assert_int_equal(pager_peer(0, 1, true), CUDA_SUCCESS);
	assert_null(meanwhile);
	pthread_join(opener, NULL);
	gate_leave();
	assert_int_equal(counts().pinned[NVSHARE_PINNED_PLAIN], 300 * MIB);
	assert_int_equal(counts().resident, 0);
	assert_int_equal(pager_peer(0, 1, false), CUDA_SUCCESS);
	release(a);
}

/* ---- counts ------------------------------------------------------------------- */

static uint64_t least;

static void note_the_least(CUdevice dev)
{
	struct nvshare_mem mem;
	uint64_t bytes;

	budget_read(dev, &mem);
	bytes = mem.resident + mem.pinned[NVSHARE_PINNED_VMM] + mem.pinned[NVSHARE_PINNED_PLAIN];
	least = bytes < least ? bytes : least;
}

/* Another thread would take what is not counted, beyond the budget. */
static void memory_that_has_to_stay_is_counted_all_the_while(void **state)
{
	CUmemGenericAllocationHandle handle = create(4 * MIB);
	CUdeviceptr p = reserve(4 * MIB), a = allocate(2 * MIB);
	struct pager_hold hold;

	(void)state;
	map(p, 4 * MIB, handle);
	least = UINT64_MAX;
	fake.on_changed = note_the_least;
	assert_true(pager_vmm_pin(p, 4 * MIB));
	gate_enter();
	assert_true(pager_hold(a, 2 * MIB, &hold));
	pager_unhold(&hold, true);
	gate_leave();
	fake.on_changed = NULL;
	assert_int_equal(least, 6 * MIB);
	assert_int_equal(counts().resident, 0);
	unmap(p, 4 * MIB);
	assert_int_equal(cuMemRelease(handle), CUDA_SUCCESS);
	release(a);
}

/* ---- contexts ----------------------------------------------------------------- */

static void end_second_context(void)
{
	pager_context_gone(FAKE_CTX2);
}

/* By any thread that allocates, while the context's own may well end it. */
static void a_free_that_was_put_off_may_be_under_way_as_its_context_ends(void **state)
{
	CUdeviceptr ptrs[2];
	int stream;

	(void)state;
	gate_enter();
	for (int i = 0; i < 2; i++)
		assert_int_equal(pager_alloc(0, FAKE_CTX2, 700, &ptrs[i]), CUDA_SUCCESS);
	gate_leave();
	gate_enter_capture();
	gate_leave_capture(&stream, FAKE_CTX, true);
	release(ptrs[0]);
	release(ptrs[1]);
	gate_end_capture(gate_find_capture(&stream));
	meanwhile = end_second_context;
	pager_flush_frees();
	assert_null(meanwhile);
	assert_int_equal(counts().resident, 0);
	assert_int_equal(fake.reserved, 0);
}

static void *flush(void *data)
{
	pager_flush_frees();
	return data;
}

static void a_free_that_was_put_off_waits_while_its_context_is_being_ended(void **state)
{
	pthread_t thread;
	CUdeviceptr p;
	int stream;

	(void)state;
	assert_true(device_context_add(FAKE_CTX2, 0, 0));
	gate_enter();
	assert_int_equal(pager_alloc(0, FAKE_CTX2, 2 * MIB, &p), CUDA_SUCCESS);
	gate_leave();
	gate_enter_capture();
	gate_leave_capture(&stream, FAKE_CTX, true);
	release(p);
	gate_end_capture(gate_find_capture(&stream));
	device_turn_begin();
	(void)device_context_forget(FAKE_CTX2);
	assert_int_equal(pthread_create(&thread, NULL, flush, NULL), 0);
	pthread_join(thread, NULL);
	assert_int_equal(fake.n_syncs, 0);
	assert_int_equal(counts().resident, 2 * MIB);
	device_turn_end();
	pager_flush_frees();
	assert_int_equal(counts().resident, 0);
}

int main(void)
{
#define BETWEEN_TEST(name) cmocka_unit_test_setup_teardown(name, setup_slowly, teardown)
	const struct CMUnitTest tests[] = {
		BETWEEN_TEST(a_chunk_that_is_opened_to_a_peer_as_the_last_comes_in_is_copied_again),
		BETWEEN_TEST(memory_that_loses_a_mapping_as_the_last_comes_in_is_copied_again),
		BETWEEN_TEST(who_closes_memory_to_a_peer_leaves_open_what_was_asked_for_again),
		BETWEEN_TEST(what_is_exported_as_it_is_opened_to_a_peer_is_pinned),
		BETWEEN_TEST(a_free_that_was_put_off_may_be_under_way_as_its_context_ends),
		BETWEEN_TEST(a_free_that_was_put_off_waits_while_its_context_is_being_ended),
		BETWEEN_TEST(memory_that_has_to_stay_is_counted_all_the_while),
		BETWEEN_TEST(
			a_chunk_on_its_way_in_as_the_last_that_is_out_is_freed_is_copied_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
