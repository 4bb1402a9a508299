/* SPDX-License-Identifier: Apache-2.0 */

/* Moves of two GPUs by one thread, step by step. */

#include "vmm_rig.h"

#include "hook/host/hostmem.h"

#define GPUS   2
#define PIECES 4
#define PIECE  (4 * MIB)
#define ALL    (PIECES * PIECE)

static const CUcontext contexts[GPUS] = {FAKE_CTX, FAKE_CTX_DEV1};

static struct nvshare_mem counts_of(CUdevice dev)
{
	struct nvshare_mem mem;

	budget_read(dev, &mem);
	return mem;
}

/* ---- memory on both -------------------------------------------------------------- */

static CUdeviceptr pieces[GPUS][PIECES];

static void make_all(void)
{
	for (CUdevice dev = 0; dev < GPUS; dev++) {
		for (uint32_t i = 0; i < PIECES; i++) {
			gate_enter();
			assert_int_equal(pager_alloc(dev, contexts[dev], PIECE, &pieces[dev][i]),
					 CUDA_SUCCESS);
			gate_leave();
			fill(pieces[dev][i], PIECE, (uint32_t)dev * 100 + i);
		}
	}
}

static void verify_all(void)
{
	for (CUdevice dev = 0; dev < GPUS; dev++) {
		for (uint32_t i = 0; i < PIECES; i++)
			verify(pieces[dev][i], PIECE, (uint32_t)dev * 100 + i);
	}
}

static void release_all(void)
{
	for (CUdevice dev = 0; dev < GPUS; dev++) {
		for (size_t i = 0; i < PIECES; i++)
			release(pieces[dev][i]);
	}
}

/* ---- moves ----------------------------------------------------------------------- */

struct moves {
	struct pager_moving *of[GPUS]; /* NULL: it has ended */
	int outcomes[GPUS];
	struct pager_move moved[GPUS];
	bool is_seen_both; /* part of both was out at the same time, and part was on the card */
};

static bool is_in_part(CUdevice dev)
{
	return counts_of(dev).swapped && counts_of(dev).resident;
}

static void step(struct moves *m, CUdevice dev)
{
	uint64_t pause_ns;

	if (!m->of[dev])
		return;
	fake_current = contexts[dev];
	if (!pager_move_step(m->of[dev], &pause_ns)) {
		m->outcomes[dev] = pager_move_end(m->of[dev], &m->moved[dev]);
		m->of[dev] = NULL;
	}
	fake_current = FAKE_CTX;
	m->is_seen_both = m->is_seen_both || (is_in_part(0) && is_in_part(1));
}

static void run(struct moves *m)
{
	while (m->of[0] || m->of[1]) {
		step(m, 0);
		step(m, 1);
	}
}

static struct moves evict_both(void)
{
	struct moves m = {0};

	for (CUdevice dev = 0; dev < GPUS; dev++)
		m.of[dev] = pager_evict_begin(dev, UINT64_MAX, false);
	return m;
}

static void restore_both(void)
{
	struct moves m = {0};

	for (CUdevice dev = 0; dev < GPUS; dev++)
		m.of[dev] = pager_restore_begin(dev);
	run(&m);
	for (CUdevice dev = 0; dev < GPUS; dev++) {
		assert_int_equal(m.outcomes[dev], NVSHARE_OUTCOME_SUCCESS);
		assert_int_equal(counts_of(dev).swapped, 0);
	}
	verify_all();
}

static void both_go_out_and_come_in_at_the_same_time(void **state)
{
	struct moves m;

	(void)state;
	make_all();
	m = evict_both();
	run(&m);
	assert_true(m.is_seen_both);
	for (CUdevice dev = 0; dev < GPUS; dev++) {
		assert_int_equal(m.outcomes[dev], NVSHARE_OUTCOME_SUCCESS);
		assert_int_equal(m.moved[dev].bytes, ALL);
		assert_int_equal(counts_of(dev).swapped, ALL);
	}
	restore_both();
	release_all();
}

static void one_goes_out_while_the_other_comes_in(void **state)
{
	struct pager_move move;
	struct moves m = {0};

	(void)state;
	make_all();
	fake_current = contexts[1];
	assert_int_equal(pager_evict(1, UINT64_MAX, false, &move), NVSHARE_OUTCOME_SUCCESS);
	fake_current = FAKE_CTX;
	m.of[0] = pager_evict_begin(0, UINT64_MAX, false);
	m.of[1] = pager_restore_begin(1);
	run(&m);
	assert_int_equal(m.outcomes[0], NVSHARE_OUTCOME_SUCCESS);
	assert_int_equal(m.outcomes[1], NVSHARE_OUTCOME_SUCCESS);
	assert_int_equal(counts_of(0).swapped, ALL);
	assert_int_equal(counts_of(1).swapped, 0);
	restore_both();
	release_all();
}

/* A call of one fails, whichever it is. Nothing of either is lost, and the other is right. */
static void one_that_fails_leaves_the_other(void **state)
{
	bool has_failed = true;

	(void)state;
	make_all();
	for (int n = 1; has_failed; n++) {
		struct moves m = evict_both();

		fake_fault.n_calls = 0;
		while (m.of[0] || m.of[1]) {
			step(&m, 0);
			fake_fault.fail_at = n;
			fake_fault.fail_with = CUDA_ERROR_UNKNOWN;
			step(&m, 1);
			fake_fault.fail_at = 0;
		}
		has_failed = fake_fault.n_calls >= n;
		assert_int_equal(m.outcomes[0], NVSHARE_OUTCOME_SUCCESS);
		assert_int_equal(counts_of(0).swapped, ALL);
		restore_both();
	}
	release_all();
}

/* A copy of the first is under way while those of the second hang; then the first goes on. */
static void one_that_hangs_leaves_the_other(void **state)
{
	struct moves m;

	(void)state;
	fake.options.copy_max_ns = 5 * CLOCK_NS_PER_MS;
	make_all();
	m = evict_both();
	while (!fake.n_copies)
		step(&m, 0);
	fake.is_hung = true;
	while (m.of[1])
		step(&m, 1);
	assert_non_null(m.of[0]);
	fake.is_hung = false;
	run(&m);
	assert_int_equal(m.outcomes[0], NVSHARE_OUTCOME_SUCCESS);
	assert_int_equal(counts_of(0).swapped, ALL);
	assert_int_equal(m.outcomes[1], NVSHARE_OUTCOME_GPU_HUNG);
	assert_int_equal(counts_of(1).swapped, 0);
	restore_both();
	release_all();
}

/* The thread that moves the chunk must not wait for it. */
static void a_free_that_was_put_off_waits_for_all_moves(void **state)
{
	CUstream stream = (CUstream)0x9999;
	CUresult res = CUDA_ERROR_UNKNOWN;
	struct moves m;

	(void)state;
	make_all();
	m = evict_both();
	while (!fake.n_copies)
		step(&m, 0);
	gate_enter_capture();
	gate_leave_capture(&stream, FAKE_CTX, true);
	for (size_t i = 0; i < PIECES; i++)
		assert_true(pager_free(pieces[0][i], &res));
	gate_end_capture(gate_find_capture(&stream));
	run(&m);
	assert_int_equal(counts_of(0).swapped, ALL);
	pager_flush_frees();
	assert_int_equal(counts_of(0).swapped, 0);
	for (size_t i = 0; i < PIECES; i++)
		release(pieces[1][i]);
}

/* ---- host memory ------------------------------------------------------------------ */

/* The first one has claimed it when the second begins, though it has taken none yet. */
static unsigned int n_releases;

static bool count_release(CUdevice dev)
{
	(void)dev;
	n_releases++;
	return false;
}

/* It frees memory of any GPU, and would wait for a chunk that this thread moves. */
static void pools_give_nothing_back_beside_another_move(void **state)
{
	static const struct pager_pools counting = {.release = count_release};
	const struct pager_pools *before = pager_pools();
	struct pager_move moved;
	struct moves m;

	(void)state;
	make_all();
	pager_set_pools(&counting);
	m = evict_both();
	run(&m);
	assert_int_equal(n_releases, 0);
	restore_both();
	assert_int_equal(pager_evict(0, UINT64_MAX, false, &moved), NVSHARE_OUTCOME_SUCCESS);
	assert_int_equal(n_releases, 1);
	pager_set_pools(before);
	restore_both();
	release_all();
}

static void host_memory_is_not_counted_twice(void **state)
{
	struct moves m;

	(void)state;
	fake_give_back_host_memory();
	hostmem_set_limit("24MiB");
	make_all();
	m = evict_both();
	run(&m);
	assert_int_equal(m.outcomes[0], NVSHARE_OUTCOME_SUCCESS);
	assert_int_equal(counts_of(0).swapped, ALL);
	assert_int_equal(m.outcomes[1], NVSHARE_OUTCOME_NO_HOST_MEMORY);
	assert_int_equal(counts_of(1).swapped, 0);
	hostmem_set_limit("");
	restore_both();
	release_all();
}

static uint64_t lacked[GPUS]; /* as each told it first */

static bool note_lack(uint64_t bytes)
{
	uint64_t *first = &lacked[fake_current == contexts[1]];

	if (!*first)
		*first = bytes;
	if (lacked[1])
		hostmem_set_limit("32MiB"); /* others have given it */
	return true;
}

/* Others are told of each byte that is lacking once. */
static void both_wait_for_host_memory(void **state)
{
	struct moves m;

	(void)state;
	fake_give_back_host_memory();
	hostmem_set_limit("12MiB");
	hostmem_set_coming(20 * MIB);
	fake.on_await_host = note_lack;
	make_all();
	m = evict_both();
	run(&m);
	for (CUdevice dev = 0; dev < GPUS; dev++)
		assert_int_equal(m.outcomes[dev], NVSHARE_OUTCOME_SUCCESS);
	assert_int_equal(lacked[0], 4 * MIB);
	assert_int_equal(lacked[1], 16 * MIB);
	fake.on_await_host = NULL;
	hostmem_set_limit("");
	hostmem_set_coming(0);
	restore_both();
	release_all();
}

static int setup_both(void **state)
{
	int r = setup(state);

	assert_true(pager_supported(1));
	/* The test reads what is on the second as the first may. */
	assert_int_equal(pager_peer(1, 0, true), CUDA_SUCCESS);
	return r;
}

static int teardown_both(void **state)
{
	assert_int_equal(pager_peer(1, 0, false), CUDA_SUCCESS);
	pager_context_gone(FAKE_CTX_DEV1);
	assert_int_equal(counts_of(1).allocated, 0);
	return teardown(state);
}

int main(void)
{
#define STEPS_TEST(name) cmocka_unit_test_setup_teardown(name, setup_both, teardown_both)
	const struct CMUnitTest tests[] = {
		STEPS_TEST(both_go_out_and_come_in_at_the_same_time),
		STEPS_TEST(one_goes_out_while_the_other_comes_in),
		STEPS_TEST(one_that_fails_leaves_the_other),
		STEPS_TEST(one_that_hangs_leaves_the_other),
		STEPS_TEST(a_free_that_was_put_off_waits_for_all_moves),
		STEPS_TEST(pools_give_nothing_back_beside_another_move),
		STEPS_TEST(host_memory_is_not_counted_twice),
		STEPS_TEST(both_wait_for_host_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
