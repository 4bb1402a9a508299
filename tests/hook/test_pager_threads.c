/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Threads that allocate, write, check and free, while another closes the gate, takes
 * their memory out and brings it back: no byte is lost, nothing is left. Meant for the
 * thread sanitizer; the number of rounds is the bound, not the clock.
 */

#include "hook/pager/pager.h"

#include "fake_memory.h"
#include "hook/gate/gate.h"
#include "hook/host/hostpool.h"
#include "util/prng.h"

#define MIB        (1ull << 20)
#define N_THREADS  4
#define N_SLOTS    16
#define N_ROUNDS   150
#define N_SWITCHES 30
#define N_PINNED   1000
#define N_BETWEEN  10 /* entries into the gate, of all threads */

struct block {
	CUdeviceptr ptr;
	size_t size;
	uint32_t mark;
};

static int n_failed;
static int n_running;

static uint32_t *word(const struct block *block, size_t which)
{
	return (uint32_t *)(uintptr_t)(block->ptr + (which ? block->size / 4 * 4 - 4 : 0));
}

/* As the program's kernels do: only between gate_enter() and gate_leave(). */
static void write_block(const struct block *block)
{
	gate_enter();
	*word(block, 0) = block->mark;
	*word(block, 1) = block->mark;
	gate_leave();
}

static void check_block(const struct block *block)
{
	gate_enter();
	if (*word(block, 0) != block->mark || *word(block, 1) != block->mark)
		__atomic_add_fetch(&n_failed, 1, __ATOMIC_SEQ_CST);
	gate_leave();
}

static void make_block(struct block *block, uint64_t *rng)
{
	static const size_t sizes[] = {512, 4000, 100000, MIB, 3 * MIB, 9 * MIB};
	CUresult res;

	block->size = sizes[prng_below(rng, 6)];
	block->mark = (uint32_t)prng_next(rng);
	gate_enter();
	res = pager_alloc(0, FAKE_CTX, block->size, &block->ptr);
	gate_leave();
	if (res != CUDA_SUCCESS)
		__atomic_add_fetch(&n_failed, 1, __ATOMIC_SEQ_CST);
	else
		write_block(block);
}

static void drop_block(struct block *block)
{
	CUresult res = CUDA_ERROR_UNKNOWN;

	if (!pager_free(block->ptr, &res) || res != CUDA_SUCCESS)
		__atomic_add_fetch(&n_failed, 1, __ATOMIC_SEQ_CST);
	block->ptr = 0;
}

static void *use_memory(void *arg)
{
	struct block blocks[N_SLOTS] = {0};
	uint64_t rng = (uint64_t)(uintptr_t)arg;

	for (int round = 0; round < N_ROUNDS; round++) {
		struct block *block = &blocks[prng_below(&rng, N_SLOTS)];

		if (!block->ptr) {
			make_block(block, &rng);
		} else {
			/* A free does not pass the gate: it meets every state of a chunk. */
			if (prng_below(&rng, 2))
				check_block(block);
			drop_block(block);
		}
		if (pager_find(block->ptr + 1, NULL, NULL, NULL, NULL, NULL) != (block->ptr != 0))
			__atomic_add_fetch(&n_failed, 1, __ATOMIC_SEQ_CST);
	}
	for (size_t i = 0; i < N_SLOTS; i++) {
		if (!blocks[i].ptr)
			continue;
		check_block(&blocks[i]);
		drop_block(&blocks[i]);
	}
	__atomic_sub_fetch(&n_running, 1, __ATOMIC_SEQ_CST);
	return NULL;
}

static void switch_once(uint64_t *rng)
{
	struct pager_move move;
	int outcome;

	gate_set(GATE_CLOSED);
	while (!gate_quiet())
		sched_yield();
	if (prng_below(rng, 4) == 0)
		fake_arm((int)prng_below(rng, 40) + 1, CUDA_ERROR_UNKNOWN);
	(void)pager_evict(0, prng_below(rng, 2) ? UINT64_MAX : prng_below(rng, 40) * MIB, false,
			  &move);
	fake_disarm();
	do
		outcome = pager_restore(0, &move);
	while (outcome != NVSHARE_OUTCOME_SUCCESS);
	gate_set(GATE_OPEN);
}

/* So much work between two switches, else the threads would hardly ever find it open. */
static void let_them_work(void)
{
	uint64_t n_entered = gate_activity();

	while (gate_activity() - n_entered < N_BETWEEN &&
	       __atomic_load_n(&n_running, __ATOMIC_SEQ_CST))
		sched_yield();
}

static void memory_is_switched_under_running_threads(void **state)
{
	pthread_t threads[N_THREADS];
	struct nvshare_mem mem;
	uint64_t rng = 42;

	(void)state;
	fake_setup();
	assert_true(pager_supported(0));
	n_running = N_THREADS;
	for (uintptr_t i = 0; i < N_THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, use_memory, (void *)(i + 1)), 0);
	for (int i = 0; i < N_SWITCHES || __atomic_load_n(&n_running, __ATOMIC_SEQ_CST); i++) {
		switch_once(&rng);
		let_them_work();
	}
	for (size_t i = 0; i < N_THREADS; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(n_failed, 0);
	pager_context_gone(FAKE_CTX);
	budget_read(0, &mem);
	assert_int_equal(mem.allocated, 0);
	assert_int_equal(mem.resident, 0);
	assert_int_equal(mem.swapped, 0);
	assert_int_equal(fake.used, 0);
	assert_int_equal(fake.reserved, 0);
	fake_give_back_host_memory();
}

static void *make_and_drop(void *arg)
{
	struct block block = {0};
	uint64_t rng = (uint64_t)(uintptr_t)arg;

	for (int round = 0; round < N_PINNED; round++) {
		make_block(&block, &rng);
		drop_block(&block);
	}
	__atomic_sub_fetch(&n_running, 1, __ATOMIC_SEQ_CST);
	return NULL;
}

/* As when a network card has been opened: what is just being freed is counted as nothing. */
static void what_is_freed_while_all_is_pinned_is_not_counted(void **state)
{
	pthread_t threads[N_THREADS];
	struct nvshare_mem mem;

	(void)state;
	fake_setup();
	assert_true(pager_supported(0));
	n_failed = 0;
	n_running = N_THREADS;
	for (uintptr_t i = 0; i < N_THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, make_and_drop, (void *)(i + 1)),
				 0);
	while (__atomic_load_n(&n_running, __ATOMIC_SEQ_CST))
		pager_pin_all(0);
	for (size_t i = 0; i < N_THREADS; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(n_failed, 0);
	pager_context_gone(FAKE_CTX);
	budget_read(0, &mem);
	assert_int_equal(mem.resident, 0);
	for (size_t i = 0; i < NVSHARE_PINNED_COUNT; i++)
		assert_int_equal(i == NVSHARE_PINNED_CONTEXT ? 0 : mem.pinned[i], 0);
	assert_int_equal(fake.used, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(memory_is_switched_under_running_threads),
		cmocka_unit_test(what_is_freed_while_all_is_pinned_is_not_counted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
