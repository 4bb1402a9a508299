/* SPDX-License-Identifier: Apache-2.0 */

/* Budgets: who waits, who is refused, and what the numbers say. */

#include "hook/memory/budget.h"

#include "fake_memory.h"
#include "hook/gate/gate.h"

#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define MIB (1ull << 20)

static int setup(void **state)
{
	(void)state;
	fake_setup();
	fake.capacity = 16ull << 30;
	return 0;
}

static CUresult take(uint64_t bytes, int kind)
{
	CUresult res;

	gate_enter();
	res = budget_take(0, bytes, kind);
	gate_leave();
	return res;
}

static struct nvshare_mem counts(void)
{
	struct nvshare_mem mem;

	budget_read(0, &mem);
	return mem;
}

static void without_a_budget_nothing_is_bounded(void **state)
{
	(void)state;
	assert_int_equal(take(1ull << 50, BUDGET_PAGEABLE), CUDA_SUCCESS);
	assert_int_equal(budget_get(0), BUDGET_UNLIMITED);
	assert_int_equal(take(5, NVSHARE_PINNED_ARRAY), CUDA_SUCCESS);
	assert_int_equal(counts().resident, 1ull << 50);
	assert_int_equal(counts().pinned[NVSHARE_PINNED_ARRAY], 5);
	budget_give(0, 1ull << 50, BUDGET_PAGEABLE);
	budget_give(0, 100, NVSHARE_PINNED_ARRAY); /* never below zero */
	assert_int_equal(counts().pinned[NVSHARE_PINNED_ARRAY], 0);
	assert_int_equal(fake.n_wants, 0);
	assert_int_equal(budget_take(BUDGET_DEVICES, 5, 0), CUDA_SUCCESS);
}

static uint64_t seen_wanted, seen_wanted_pinned;

static void grant_what_is_wanted(CUdevice dev)
{
	struct nvshare_mem mem;

	budget_read(dev, &mem);
	seen_wanted = mem.wanted;
	seen_wanted_pinned = mem.wanted_pinned;
	assert_true(budget_wanting(dev));
	budget_set(dev, budget_get(dev) + mem.wanted + mem.wanted_pinned);
}

static void a_short_budget_is_asked_for_with_slack_when_pageable(void **state)
{
	(void)state;
	fake.on_want = grant_what_is_wanted;
	budget_set(0, 0);
	assert_int_equal(take(2 * MIB, BUDGET_PAGEABLE), CUDA_SUCCESS);
	assert_int_equal(seen_wanted, 64 * MIB);
	assert_int_equal(seen_wanted_pinned, 0);
	assert_int_equal(take(62 * MIB, BUDGET_PAGEABLE), CUDA_SUCCESS);
	assert_int_equal(fake.n_wants, 1);
	assert_int_equal(take(300 * MIB, BUDGET_PAGEABLE), CUDA_SUCCESS);
	assert_int_equal(seen_wanted, 300 * MIB);
	assert_int_equal(take(7, NVSHARE_PINNED_ASYNC), CUDA_SUCCESS);
	assert_int_equal(seen_wanted, 0);
	assert_int_equal(seen_wanted_pinned, 7);
	assert_false(budget_wanting(0));
	assert_int_equal(counts().wanted, 0);
}

/* Others hold what it would get on top: then what it lacks may still be there. */
static void wait_first(CUdevice dev)
{
	struct nvshare_mem mem;

	assert_true(budget_drop_slack(dev));
	assert_false(budget_drop_slack(dev));
	budget_read(dev, &mem);
	seen_wanted = mem.wanted;
	budget_set(dev, budget_get(dev) + mem.wanted);
}

static void a_wait_is_for_what_is_missing_alone(void **state)
{
	(void)state;
	assert_false(budget_drop_slack(0)); /* nobody waits */
	fake.on_want = wait_first;
	budget_set(0, MIB);
	assert_int_equal(take(3 * MIB, BUDGET_PAGEABLE), CUDA_SUCCESS);
	assert_int_equal(seen_wanted, 2 * MIB);
	fake.on_want = grant_what_is_wanted;
	assert_int_equal(take(3 * MIB, BUDGET_PAGEABLE), CUDA_SUCCESS);
	assert_int_equal(seen_wanted, 64 * MIB); /* the next one asks for more again */
}

static int n_refusals;

static void refuse(CUdevice dev)
{
	struct nvshare_mem mem;

	budget_read(dev, &mem);
	seen_wanted = mem.wanted;
	n_refusals++;
	budget_refuse(dev);
}

static void a_refusal_is_out_of_memory_after_a_try_without_slack(void **state)
{
	(void)state;
	n_refusals = 0;
	fake.on_want = refuse;
	budget_set(0, 5 * MIB);
	assert_int_equal(take(8 * MIB, BUDGET_PAGEABLE), CUDA_ERROR_OUT_OF_MEMORY);
	assert_int_equal(n_refusals, 2);
	assert_int_equal(seen_wanted, 3 * MIB);
	assert_int_equal(counts().resident, 0);
	assert_false(budget_wanting(0));
	assert_int_equal(take(5 * MIB, BUDGET_PAGEABLE), CUDA_SUCCESS);
	assert_true(gate_quiet());
}

static void *take_thread(void *arg)
{
	*(CUresult *)arg = take(6 * MIB, BUDGET_PAGEABLE);
	return NULL;
}

/* It could not be switched out, so that it must not wait for ever. */
static void a_wait_in_its_own_capture_has_an_end(void **state)
{
	struct budget_tries tries = {0};
	CUresult res = CUDA_ERROR_UNKNOWN;
	pthread_t thread;
	int stream;

	(void)state;
	budget_set(0, 5 * MIB);
	gate_enter_capture();
	gate_leave_capture(&stream, FAKE_CTX, true);
	assert_int_equal(take(6 * MIB, BUDGET_PAGEABLE), CUDA_ERROR_OUT_OF_MEMORY);
	assert_int_equal(fake.n_wants, 1);
	assert_false(budget_wanting(0));
	assert_int_equal(take(5 * MIB, BUDGET_PAGEABLE), CUDA_SUCCESS);
	gate_enter();
	assert_int_equal(budget_retry(0, 1, BUDGET_PAGEABLE, &tries), CUDA_ERROR_OUT_OF_MEMORY);
	gate_leave();
	assert_int_equal(fake.n_wants, 1);
	fake.on_want = grant_what_is_wanted;
	assert_int_equal(take(7 * MIB, BUDGET_PAGEABLE), CUDA_SUCCESS);
	assert_int_equal(seen_wanted, 7 * MIB);
	assert_int_equal(pthread_create(&thread, NULL, take_thread, &res), 0);
	pthread_join(thread, NULL); /* another thread's capture is no matter */
	assert_int_equal(res, CUDA_SUCCESS);
	assert_int_equal(fake.n_wants, 3);
	gate_end_capture(gate_find_capture(&stream));
}

/* bytes, in a capture, after another thread has begun to wait for memory by f; that one's result.
 */
static CUresult capture_beside(void *(*f)(void *), uint64_t bytes, CUresult expected)
{
	CUresult res = CUDA_ERROR_UNKNOWN;
	pthread_t thread;
	int stream;

	fake.options.drain_max_ns = 10 * CLOCK_NS_PER_SEC; /* it has to wait for the other one */
	budget_set(0, 0);
	assert_int_equal(pthread_create(&thread, NULL, f, &res), 0);
	while (__atomic_load_n(&fake.n_wants, __ATOMIC_SEQ_CST) < 1)
		sched_yield();
	gate_enter_capture();
	gate_leave_capture(&stream, FAKE_CTX, true);
	assert_int_equal(take(bytes, BUDGET_PAGEABLE), expected);
	gate_end_capture(gate_find_capture(&stream));
	pthread_join(thread, NULL);
	assert_false(budget_wanting(0));
	return res;
}

static void *take_too_much(void *arg)
{
	*(CUresult *)arg = take(17ull << 30, BUDGET_PAGEABLE);
	return NULL;
}

static void refuse_both_together(CUdevice dev)
{
	struct nvshare_mem mem;

	budget_read(dev, &mem);
	if (mem.wanted > 17ull << 30)
		budget_refuse(dev);
	else if (mem.wanted < 17ull << 30)
		budget_set(dev, budget_get(dev) + mem.wanted);
}

static void a_refusal_for_others_sake_is_none_of_a_capture(void **state)
{
	int stream;

	(void)state;
	fake.on_want = refuse_both_together;
	assert_int_equal(capture_beside(take_too_much, 300 * MIB, CUDA_SUCCESS),
			 CUDA_ERROR_OUT_OF_MEMORY);
	assert_int_equal(counts().resident, 300 * MIB);
	/* Its own it hears of at once. */
	gate_enter_capture();
	gate_leave_capture(&stream, FAKE_CTX, true);
	fake.on_want = refuse;
	n_refusals = 0;
	assert_int_equal(take(300 * MIB, BUDGET_PAGEABLE), CUDA_ERROR_OUT_OF_MEMORY);
	assert_int_equal(n_refusals, 1);
	gate_end_capture(gate_find_capture(&stream));
}

static bool has_taken_little; /* or failed to */

static void grant_up_to_100_mib(CUdevice dev)
{
	struct nvshare_mem mem;

	budget_read(dev, &mem);
	if (__atomic_load_n(&fake.n_wants, __ATOMIC_SEQ_CST) == 1)
		return; /* until the other one wants something, too */
	/* Who asks again before the other one has anything is to meet it. */
	while (mem.wanted == 300 * MIB && mem.resident == 0 &&
	       !__atomic_load_n(&has_taken_little, __ATOMIC_SEQ_CST)) {
		sched_yield();
		budget_read(dev, &mem);
	}
	if (mem.wanted <= 100 * MIB)
		budget_set(dev, budget_get(dev) + mem.wanted);
	else
		budget_refuse(dev);
}

static void *take_little(void *arg)
{
	*(CUresult *)arg = take(2 * MIB, BUDGET_PAGEABLE);
	__atomic_store_n(&has_taken_little, true, __ATOMIC_SEQ_CST);
	return NULL;
}

static void a_capture_that_is_refused_ruins_nobody_in_line(void **state)
{
	(void)state;
	fake.on_want = grant_up_to_100_mib;
	has_taken_little = false;
	assert_int_equal(capture_beside(take_little, 300 * MIB, CUDA_ERROR_OUT_OF_MEMORY),
			 CUDA_SUCCESS);
	assert_int_equal(counts().resident, 2 * MIB);
}

static CUresult retry(uint64_t bytes, struct budget_tries *tries)
{
	CUresult res;

	gate_enter();
	res = budget_retry(0, bytes, BUDGET_PAGEABLE, tries);
	gate_leave();
	return res;
}

static void *retry_thread(void *arg)
{
	struct budget_tries tries = {0};

	*(CUresult *)arg = retry(300 * MIB, &tries);
	return NULL;
}

static void without_a_scheduler_nothing_is_tried_again(void **state)
{
	struct budget_tries tries = {0};

	(void)state;
	assert_int_equal(take(MIB, BUDGET_PAGEABLE), CUDA_SUCCESS);
	assert_int_equal(retry(MIB, &tries), CUDA_ERROR_OUT_OF_MEMORY);
	assert_int_equal(counts().resident, MIB);
}

static void a_retry_asks_again_and_the_budget_does_not_grow_by_it(void **state)
{
	struct budget_tries tries = {0};

	(void)state;
	fake.on_want = grant_what_is_wanted;
	budget_set(0, 1000 * MIB);
	assert_int_equal(take(200 * MIB, NVSHARE_PINNED_VMM), CUDA_SUCCESS);
	assert_int_equal(take(300 * MIB, BUDGET_PAGEABLE), CUDA_SUCCESS);
	for (int i = 1; i <= 8; i++) {
		assert_int_equal(retry(300 * MIB, &tries), CUDA_SUCCESS);
		assert_int_equal(fake.n_wants, i);
		assert_int_equal(seen_wanted, 300 * MIB);
		assert_int_equal(budget_get(0), 500 * MIB);
		assert_int_equal(counts().resident, 300 * MIB);
	}
	assert_true(tries.paused_ns > 0);
	assert_true(gate_quiet());
}

static void a_retry_that_is_refused_is_out_of_memory(void **state)
{
	struct budget_tries tries = {0};

	(void)state;
	fake.on_want = refuse;
	budget_set(0, 1000 * MIB);
	assert_int_equal(take(300 * MIB, BUDGET_PAGEABLE), CUDA_SUCCESS);
	assert_int_equal(retry(300 * MIB, &tries), CUDA_ERROR_OUT_OF_MEMORY);
	assert_int_equal(counts().resident, 300 * MIB); /* the caller gives them back */
	assert_false(budget_wanting(0));
}

static void a_card_with_room_is_tried_a_few_times_only(void **state)
{
	struct budget_tries tries = {0};
	int n = 0;

	(void)state;
	fake.on_want = grant_what_is_wanted;
	budget_set(0, 1000 * MIB);
	assert_int_equal(take(300 * MIB, BUDGET_PAGEABLE), CUDA_SUCCESS);
	fake.bytes_free = 300 * MIB;
	while (n < 4 && retry(300 * MIB, &tries) == CUDA_SUCCESS)
		n++;
	assert_int_equal(n, 4);
	fake.bytes_free = 300 * MIB - 1; /* it was somebody else's after all */
	assert_int_equal(retry(300 * MIB, &tries), CUDA_SUCCESS);
	fake.bytes_free = 300 * MIB;
	while (n < 100 && retry(300 * MIB, &tries) == CUDA_SUCCESS)
		n++;
	assert_int_equal(n, 9);
	assert_int_equal(counts().resident, 300 * MIB);
}

/* The card has room, and the program no descriptor left that its driver may need. */
static void out_of_memory_for_want_of_descriptors_says_so(void **state)
{
	struct budget_tries tries = {0};
	char said[512] = "";
	struct rlimit limit;
	int fds[2], old;

	(void)state;
	fake.on_want = grant_what_is_wanted;
	budget_set(0, 1000 * MIB);
	assert_int_equal(take(300 * MIB, BUDGET_PAGEABLE), CUDA_SUCCESS);
	fake.bytes_free = 300 * MIB;
	assert_int_equal(pipe(fds), 0);
	old = dup(STDERR_FILENO);
	assert_int_equal(dup2(fds[1], STDERR_FILENO), STDERR_FILENO);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &(struct rlimit){0, limit.rlim_max}), 0);
	while (retry(300 * MIB, &tries) == CUDA_SUCCESS)
		;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	assert_int_equal(dup2(old, STDERR_FILENO), STDERR_FILENO);
	close(old);
	close(fds[1]);
	assert_true(read(fds[0], said, sizeof(said) - 1) > 0);
	close(fds[0]);
	assert_non_null(strstr(said, "descriptors are short (RLIMIT_NOFILE)"));
}

static void tries_come_to_an_end(void **state)
{
	struct budget_tries tries = {.paused_ns = 240ull * 1000000000};

	(void)state;
	fake.on_want = grant_what_is_wanted;
	budget_set(0, 1000 * MIB);
	assert_int_equal(take(300 * MIB, BUDGET_PAGEABLE), CUDA_SUCCESS);
	assert_int_equal(retry(300 * MIB, &tries), CUDA_ERROR_OUT_OF_MEMORY);
	assert_int_equal(fake.n_wants, 0);
}

/* What it has not got yet could not be evicted: so it is not counted, nor the gate held. */
static void a_retry_waits_outside_the_gate_with_nothing_taken(void **state)
{
	CUresult res = CUDA_ERROR_UNKNOWN;
	pthread_t thread;

	(void)state;
	budget_set(0, 1000 * MIB);
	assert_int_equal(take(300 * MIB, BUDGET_PAGEABLE), CUDA_SUCCESS);
	assert_int_equal(pthread_create(&thread, NULL, retry_thread, &res), 0);
	while (__atomic_load_n(&fake.n_wants, __ATOMIC_SEQ_CST) < 1)
		sched_yield();
	gate_set(GATE_CLOSED);
	/* It may be between what it wanted while it paused, and what it wants in line. */
	while (!gate_quiet() || counts().wanted != 300 * MIB)
		sched_yield();
	assert_int_equal(counts().resident, 0);
	budget_set(0, 0);
	assert_int_equal(counts().wanted, 300 * MIB);
	budget_set(0, 300 * MIB);
	gate_set(GATE_OPEN);
	pthread_join(thread, NULL);
	assert_int_equal(res, CUDA_SUCCESS);
	assert_int_equal(counts().resident, 300 * MIB);
}

static void *retry_patiently(void *arg)
{
	struct budget_tries tries = {.pause_ns = 3600ull * 1000000000};

	*(CUresult *)arg = retry(300 * MIB, &tries);
	return NULL;
}

/* Nothing of it goes to others while it pauses; a refusal ends that. */
static void what_is_tried_again_is_wanted_meanwhile(void **state)
{
	CUresult res = CUDA_ERROR_UNKNOWN;
	pthread_t thread;

	(void)state;
	budget_set(0, 1000 * MIB);
	assert_int_equal(take(300 * MIB, BUDGET_PAGEABLE), CUDA_SUCCESS);
	assert_int_equal(pthread_create(&thread, NULL, retry_patiently, &res), 0);
	while (__atomic_load_n(&fake.n_wants, __ATOMIC_SEQ_CST) < 1)
		sched_yield();
	assert_int_equal(counts().wanted, 300 * MIB);
	assert_int_equal(counts().resident, 0);
	budget_set(0, 300 * MIB);
	assert_int_equal(counts().wanted, 0);
	budget_set(0, 0);
	budget_refuse(0);
	pthread_join(thread, NULL);
	assert_int_equal(res, CUDA_ERROR_OUT_OF_MEMORY);
	assert_int_equal(fake.n_wants, 2); /* also when the room went */
	assert_false(budget_wanting(0));
}

static void close_gate(CUdevice dev)
{
	(void)dev;
	gate_set(GATE_CLOSED);
}

/* Stopped meanwhile, it is to come in without what is refused, and hear of that. */
static void what_is_tried_again_and_refused_is_not_wanted_at_the_gate(void **state)
{
	CUresult res = CUDA_ERROR_UNKNOWN;
	pthread_t thread;

	(void)state;
	fake.on_want = close_gate;
	budget_set(0, 1000 * MIB);
	assert_int_equal(take(300 * MIB, BUDGET_PAGEABLE), CUDA_SUCCESS);
	assert_int_equal(pthread_create(&thread, NULL, retry_thread, &res), 0);
	while (!gate_wanted())
		sched_yield();
	budget_set(0, 0);
	assert_int_equal(counts().wanted, 300 * MIB);
	budget_refuse(0);
	assert_int_equal(counts().wanted, 0);
	assert_false(budget_wanting(0));
	gate_set(GATE_OPEN);
	pthread_join(thread, NULL);
	assert_int_equal(res, CUDA_ERROR_OUT_OF_MEMORY);
	assert_int_equal(counts().wanted, 0);
}

static void refuse_more_than_a_card(CUdevice dev)
{
	struct nvshare_mem mem;

	budget_read(dev, &mem);
	if (mem.wanted > 16ull << 30)
		budget_refuse(dev);
	else if (__atomic_load_n(&fake.n_wants, __ATOMIC_SEQ_CST) > 1)
		budget_set(dev, budget_get(dev) + mem.wanted);
}

static void a_refusal_for_others_sake_is_none_of_what_is_tried_again(void **state)
{
	CUresult res = CUDA_ERROR_UNKNOWN;
	pthread_t thread;

	(void)state;
	fake.on_want = refuse_more_than_a_card;
	budget_set(0, 1000 * MIB);
	assert_int_equal(take(300 * MIB, BUDGET_PAGEABLE), CUDA_SUCCESS);
	assert_int_equal(pthread_create(&thread, NULL, retry_patiently, &res), 0);
	while (__atomic_load_n(&fake.n_wants, __ATOMIC_SEQ_CST) < 1)
		sched_yield();
	assert_int_equal(take(17ull << 30, BUDGET_PAGEABLE), CUDA_ERROR_OUT_OF_MEMORY);
	pthread_join(thread, NULL);
	assert_int_equal(res, CUDA_SUCCESS);
	assert_int_equal(counts().resident, 300 * MIB);
	assert_false(budget_wanting(0));
}

/* For NVSHARE_ORPHAN_TIMEOUT_SEC, in which the driver is tried all the same. */
static void a_lost_scheduler_is_waited_for(void **state)
{
	struct budget_tries tries = {0};

	(void)state;
	fake.options.orphan_ns = 600ull * 1000000000;
	fake.on_want = grant_what_is_wanted;
	budget_set(0, 1000 * MIB);
	assert_int_equal(take(300 * MIB, BUDGET_PAGEABLE), CUDA_SUCCESS);
	budget_lost(0);
	budget_set(0, BUDGET_UNLIMITED);
	for (int i = 0; i < 8; i++)
		assert_int_equal(retry(300 * MIB, &tries), CUDA_SUCCESS);
	assert_int_equal(fake.n_wants, 0);
	budget_set(0, 300 * MIB);
	assert_int_equal(retry(300 * MIB, &tries), CUDA_SUCCESS);
	assert_int_equal(fake.n_wants, 1);
	fake.options.orphan_ns = 0; /* one that is not waited for */
	budget_lost(0);
	budget_set(0, BUDGET_UNLIMITED);
	assert_int_equal(retry(300 * MIB, &tries), CUDA_ERROR_OUT_OF_MEMORY);
	assert_int_equal(counts().resident, 300 * MIB);
}

static void the_limit_bounds_what_is_asked_for_and_contexts(void **state)
{
	(void)state;
	strcpy(fake.options.memory_limit, "25%");
	assert_int_equal(budget_limit(0), 4ull << 30);
	assert_int_equal(budget_limit_of(1000), 250);
	assert_int_equal(take(1ull << 30, NVSHARE_PINNED_CONTEXT), CUDA_SUCCESS);
	assert_int_equal(budget_ask(0, (3ull << 30) + 1), CUDA_ERROR_OUT_OF_MEMORY);
	assert_int_equal(budget_ask(0, UINT64_MAX), CUDA_ERROR_OUT_OF_MEMORY);
	assert_int_equal(budget_ask(0, 3ull << 30), CUDA_SUCCESS);
	assert_int_equal(budget_ask(0, 1), CUDA_ERROR_OUT_OF_MEMORY);
	assert_int_equal(take(1, NVSHARE_PINNED_CONTEXT), CUDA_ERROR_OUT_OF_MEMORY);
	budget_allocated(0, -1);
	assert_int_equal(budget_ask(0, 1), CUDA_SUCCESS);
}

static void bytes_that_are_out_are_not_on_the_card(void **state)
{
	(void)state;
	budget_set(0, 10 * MIB);
	assert_int_equal(take(10 * MIB, BUDGET_PAGEABLE), CUDA_SUCCESS);
	budget_swapped_out(0, 6 * MIB);
	assert_int_equal(counts().resident, 4 * MIB);
	assert_int_equal(counts().swapped, 6 * MIB);
	budget_set(0, 5 * MIB);
	assert_false(budget_swapped_in(0, 6 * MIB));
	assert_true(budget_swapped_in(0, MIB));
	budget_swapped_freed(0, 5 * MIB);
	assert_int_equal(counts().resident, 5 * MIB);
	assert_int_equal(counts().swapped, 0);
}

struct waiter {
	pthread_t thread;
	uint64_t bytes;
	CUresult res;
	int is_done;
};

static void *wait_for_memory(void *arg)
{
	struct waiter *waiter = arg;

	waiter->res = take(waiter->bytes, NVSHARE_PINNED_PLAIN);
	__atomic_store_n(&waiter->is_done, 1, __ATOMIC_SEQ_CST);
	return NULL;
}

static void start(struct waiter *waiter, uint64_t bytes)
{
	*waiter = (struct waiter){.bytes = bytes};
	assert_int_equal(pthread_create(&waiter->thread, NULL, wait_for_memory, waiter), 0);
}

static void until_asked(int n_wants)
{
	while (__atomic_load_n(&fake.n_wants, __ATOMIC_SEQ_CST) < n_wants)
		sched_yield();
}

static void those_who_wait_are_served_in_turn_outside_the_gate(void **state)
{
	struct waiter first, second;

	(void)state;
	budget_set(0, 10 * MIB);
	start(&first, 20 * MIB);
	until_asked(1);
	start(&second, 5 * MIB); /* it would fit, but passes nobody */
	gate_set(GATE_CLOSED);   /* the process is switched out while it is blocked */
	while (!gate_quiet())
		sched_yield();
	assert_int_equal(counts().wanted_pinned, 10 * MIB);
	budget_set(0, 20 * MIB);
	assert_false(budget_wanting(0));
	/* Room, but the gate is closed: nothing is taken that could not be evicted. */
	assert_int_equal(counts().pinned[NVSHARE_PINNED_PLAIN], 0);
	assert_int_equal(__atomic_load_n(&first.is_done, __ATOMIC_SEQ_CST), 0);
	gate_set(GATE_OPEN);
	pthread_join(first.thread, NULL);
	assert_int_equal(first.res, CUDA_SUCCESS);
	until_asked(2);
	assert_int_equal(__atomic_load_n(&second.is_done, __ATOMIC_SEQ_CST), 0);
	budget_give(0, 20 * MIB, NVSHARE_PINNED_PLAIN); /* a free is as good as a grant */
	pthread_join(second.thread, NULL);
	assert_int_equal(second.res, CUDA_SUCCESS);
	assert_int_equal(counts().pinned[NVSHARE_PINNED_PLAIN], 5 * MIB);
}

static void a_budget_that_shrinks_before_the_gate_opens_is_asked_for_again(void **state)
{
	struct waiter waiter;

	(void)state;
	budget_set(0, 10 * MIB);
	start(&waiter, 20 * MIB);
	until_asked(1);
	gate_set(GATE_CLOSED);
	budget_set(0, 20 * MIB);
	while (!gate_wanted()) /* it saw the room and stands at the gate */
		sched_yield();
	budget_set(0, 10 * MIB);
	gate_set(GATE_OPEN);
	until_asked(3); /* once for the budget that shrinks, and the thread again */
	assert_int_equal(counts().pinned[NVSHARE_PINNED_PLAIN], 0);
	budget_refuse(0);
	pthread_join(waiter.thread, NULL);
	assert_int_equal(waiter.res, CUDA_ERROR_OUT_OF_MEMORY);
}

/* The room comes and goes before the thread that waits for it has looked. */
static void room_that_a_waiting_thread_has_missed_is_asked_for_again(void **state)
{
	struct waiter waiter;

	(void)state;
	budget_set(0, 10 * MIB);
	start(&waiter, 20 * MIB);
	until_asked(1);
	gate_set(GATE_CLOSED); /* it takes nothing, even if it has looked */
	budget_set(0, 20 * MIB);
	budget_set(0, 10 * MIB);
	until_asked(2);
	budget_refuse(0);
	gate_set(GATE_OPEN);
	pthread_join(waiter.thread, NULL);
	assert_int_equal(waiter.res, CUDA_ERROR_OUT_OF_MEMORY);
	assert_int_equal(counts().pinned[NVSHARE_PINNED_PLAIN], 0);
}

static void what_is_refused_at_a_closed_gate_is_not_wanted(void **state)
{
	struct waiter waiter;

	(void)state;
	budget_set(0, 10 * MIB);
	start(&waiter, 20 * MIB);
	until_asked(1);
	gate_set(GATE_CLOSED);
	budget_set(0, 20 * MIB);
	while (!gate_wanted()) /* it saw the room and stands at the gate */
		sched_yield();
	budget_set(0, 10 * MIB);
	assert_true(budget_wanting(0));
	budget_refuse(0);
	assert_false(budget_wanting(0)); /* what the process must have to come in is less now */
	gate_set(GATE_OPEN);
	pthread_join(waiter.thread, NULL);
	assert_int_equal(waiter.res, CUDA_ERROR_OUT_OF_MEMORY);
	assert_int_equal(fake.n_wants, 2); /* also when the room went */
}

static void *take_and_give(void *arg)
{
	for (int i = 0; i < 2000; i++) {
		uint64_t bytes = (uint64_t)(i % 7 + 1) * 1000;
		int kind = i % 2 ? BUDGET_PAGEABLE : NVSHARE_PINNED_VMM;

		if (budget_ask(0, bytes) != CUDA_SUCCESS)
			return arg;
		if (take(bytes, kind) != CUDA_SUCCESS)
			return arg;
		budget_give(0, bytes, kind);
		budget_allocated(0, -(int64_t)bytes);
	}
	return NULL;
}

static void counts_are_exact_with_many_threads(void **state)
{
	pthread_t threads[4];
	void *failed;

	(void)state;
	budget_set(0, 1000000);
	for (size_t i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, take_and_give, state), 0);
	for (size_t i = 0; i < 4; i++) {
		pthread_join(threads[i], &failed);
		assert_null(failed);
	}
	assert_int_equal(counts().resident, 0);
	assert_int_equal(counts().allocated, 0);
	assert_int_equal(counts().pinned[NVSHARE_PINNED_VMM], 0);
}

static void unused_budget_goes_back_unless_somebody_waits(void **state)
{
	(void)state;
	budget_set(0, 100 * MIB);
	assert_int_equal(take(10 * MIB, BUDGET_PAGEABLE), CUDA_SUCCESS);
	assert_int_equal(budget_return_slack(0, 90 * MIB), 100 * MIB);
	assert_int_equal(budget_return_slack(0, 20 * MIB), 30 * MIB);
	assert_int_equal(budget_get(0), 30 * MIB);
}

int main(void)
{
#define BUDGET_TEST(name) cmocka_unit_test_setup(name, setup)
	const struct CMUnitTest tests[] = {
		BUDGET_TEST(without_a_budget_nothing_is_bounded),
		BUDGET_TEST(a_short_budget_is_asked_for_with_slack_when_pageable),
		BUDGET_TEST(a_wait_is_for_what_is_missing_alone),
		BUDGET_TEST(a_refusal_is_out_of_memory_after_a_try_without_slack),
		BUDGET_TEST(a_wait_in_its_own_capture_has_an_end),
		BUDGET_TEST(a_refusal_for_others_sake_is_none_of_a_capture),
		BUDGET_TEST(a_capture_that_is_refused_ruins_nobody_in_line),
		BUDGET_TEST(without_a_scheduler_nothing_is_tried_again),
		BUDGET_TEST(a_retry_asks_again_and_the_budget_does_not_grow_by_it),
		BUDGET_TEST(a_retry_that_is_refused_is_out_of_memory),
		BUDGET_TEST(a_card_with_room_is_tried_a_few_times_only),
		BUDGET_TEST(out_of_memory_for_want_of_descriptors_says_so),
		BUDGET_TEST(tries_come_to_an_end),
		BUDGET_TEST(a_retry_waits_outside_the_gate_with_nothing_taken),
		BUDGET_TEST(what_is_tried_again_is_wanted_meanwhile),
		BUDGET_TEST(what_is_tried_again_and_refused_is_not_wanted_at_the_gate),
		BUDGET_TEST(a_refusal_for_others_sake_is_none_of_what_is_tried_again),
		BUDGET_TEST(a_lost_scheduler_is_waited_for),
		BUDGET_TEST(the_limit_bounds_what_is_asked_for_and_contexts),
		BUDGET_TEST(bytes_that_are_out_are_not_on_the_card),
		BUDGET_TEST(those_who_wait_are_served_in_turn_outside_the_gate),
		BUDGET_TEST(a_budget_that_shrinks_before_the_gate_opens_is_asked_for_again),
		BUDGET_TEST(room_that_a_waiting_thread_has_missed_is_asked_for_again),
		BUDGET_TEST(what_is_refused_at_a_closed_gate_is_not_wanted),
		BUDGET_TEST(counts_are_exact_with_many_threads),
		BUDGET_TEST(unused_budget_goes_back_unless_somebody_waits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
