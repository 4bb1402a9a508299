/* SPDX-License-Identifier: Apache-2.0 */

#include "hook/host/hostpool.h"

#include "fake_memory.h"
#include "hook/host/hostmem.h"

#include <sched.h>
#include <semaphore.h>
#include <stdio.h>
#include <sys/wait.h>

#define MIB (1ull << 20)

static int setup(void **state)
{
	(void)state;
	fake_setup();
	hostmem_set_limit("");
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	hostmem_set_limit("");
	fake_give_back_host_memory();
	assert_int_equal(fake.n_registered, 0);
	return 0;
}

/* So many bytes are unused then, or as many as can be had. */
static bool prepare(uint64_t bytes)
{
	struct hostpool_part *parts;

	hostpool_begin(bytes, true, NULL);
	parts = hostpool_get(bytes);
	hostpool_put(parts);
	return parts != NULL;
}

static uint64_t sum(const struct hostpool_part *parts)
{
	uint64_t bytes = 0;

	for (; parts; parts = parts->next) {
		memset(parts->addr, 0x5a, parts->size);
		bytes += parts->size;
	}
	return bytes;
}

static void grows_when_it_must_and_keeps_what_it_has(void **state)
{
	struct hostpool_part *a = hostpool_get(3 * MIB), *b;

	(void)state;
	assert_int_equal(sum(a), 3 * MIB);
	assert_int_equal(hostpool_bytes(), 4 * MIB); /* huge pages */
	assert_int_equal((uintptr_t)a->addr % HOSTPOOL_ALIGN, 0);
	assert_null(hostpool_put(a));
	b = hostpool_get(4 * MIB);
	assert_int_equal(hostpool_bytes(), 4 * MIB);
	assert_int_equal(fake.n_registered, 1);
	hostpool_trim(); /* nothing to give: it is in use */
	assert_int_equal(sum(b), 4 * MIB);
	hostpool_put(b);
	assert_null(hostpool_put(NULL));
}

static void need_not_be_in_one_piece(void **state)
{
	struct hostpool_part *parts[8], *whole;

	(void)state;
	assert_true(prepare(16 * MIB));
	for (size_t i = 0; i < 8; i++)
		parts[i] = hostpool_get(2 * MIB);
	for (size_t i = 0; i < 8; i += 2)
		parts[i] = hostpool_put(parts[i]);
	whole = hostpool_get(8 * MIB); /* four holes */
	assert_int_equal(sum(whole), 8 * MIB);
	assert_non_null(whole->next);
	assert_int_equal(hostpool_bytes(), 16 * MIB);
	hostpool_put(whole);
	for (size_t i = 1; i < 8; i += 2)
		hostpool_put(parts[i]);
}

static void respects_the_limit(void **state)
{
	struct hostpool_part *a;

	(void)state;
	hostmem_set_limit("8MiB");
	assert_true(hostpool_has(8 * MIB));
	assert_false(hostpool_has(8 * MIB + 1));
	a = hostpool_get(6 * MIB);
	assert_non_null(a);
	assert_true(hostpool_has(2 * MIB));
	assert_false(hostpool_has(3 * MIB));
	assert_null(hostpool_get(4 * MIB));
	assert_false(prepare(4 * MIB));
	hostpool_put(a);
	assert_true(hostpool_has(8 * MIB)); /* 6 unused and 2 more */
}

/* What it says beforehand is what happens then, whatever the sizes. */
static void knows_exactly_what_it_could_give(void **state)
{
	static const uint64_t sizes[] = {512,         2 * MIB - 512, 2 * MIB,
					 2 * MIB + 1, 3 * MIB,       5 * MIB};
	struct hostpool_part *held, *got;
	char text[32];

	(void)state;
	for (uint64_t limit = 4 * MIB; limit <= 9 * MIB; limit += MIB / 2) {
		hostmem_set_limit("4MiB");
		held = hostpool_get(3 * MIB + 1); /* of 4 MiB; the rest is in one piece */
		assert_non_null(held);
		(void)snprintf(text, sizeof(text), "%llu", (unsigned long long)limit);
		hostmem_set_limit(text);
		for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
			bool has = hostpool_has(sizes[i]);

			got = hostpool_get(sizes[i]);
			assert_int_equal(got != NULL, has);
			hostpool_put(got);
			hostpool_trim();
		}
		hostpool_put(held);
		hostpool_trim();
	}
}

static void works_with_memory_that_can_not_be_registered(void **state)
{
	struct hostpool_part *a;

	(void)state;
	fake_arm(1, CUDA_ERROR_OUT_OF_MEMORY);
	a = hostpool_get(2 * MIB);
	assert_true(fake_disarm());
	assert_int_equal(sum(a), 2 * MIB);
	assert_int_equal(fake.n_registered, 0);
	hostpool_put(a);
}

static void registers_again_what_died_with_its_context(void **state)
{
	(void)state;
	assert_true(prepare(2 * MIB));
	hostpool_context_gone(FAKE_CTX2);
	assert_true(prepare(2 * MIB));
	assert_int_equal(fake.n_registered, 1);
	hostpool_context_gone(FAKE_CTX);
	fake.n_registered = 0;
	fake_current = FAKE_CTX2;
	assert_true(prepare(2 * MIB));
	assert_int_equal(fake.n_registered, 1);
}

static sem_t n_ready;

static void note_ready(void)
{
	sem_post(&n_ready);
}

/* Who asks for it goes on, and adds it when it is there: 64 MiB at a time, in any order. */
static void memory_is_touched_while_others_work(void **state)
{
	struct hostpool_part *a;

	(void)state;
	assert_int_equal(sem_init(&n_ready, 0, 0), 0);
	hostpool_begin(66 * MIB, true, note_ready);
	assert_int_equal(hostpool_unused(), 0);
	sem_wait(&n_ready);
	assert_true(hostpool_may_add(true));
	assert_int_equal(fake.n_registered, 0);
	hostpool_add_one(true);
	assert_true(hostpool_unused() == 64 * MIB || hostpool_unused() == 2 * MIB);
	assert_int_equal(fake.n_registered, 1);
	a = hostpool_get(65 * MIB); /* waits for the rest */
	assert_non_null(a);
	assert_int_equal(hostpool_bytes(), 66 * MIB);
	assert_int_equal(fake.n_registered, 2);
	sem_wait(&n_ready);
	hostpool_put(a);
	assert_false(hostpool_may_add(true));
	hostpool_add_one(true);
	assert_int_equal(hostpool_bytes(), 66 * MIB);
	hostpool_begin(1024 * MIB, true, note_ready);
	hostpool_begin(66 * MIB, true, note_ready); /* so much is not needed any more */
	assert_true(prepare(66 * MIB));
	sem_destroy(&n_ready);
}

/* No context is needed, nor a driver: who begins in earnest finds it there, and registers it. */
static void what_may_be_needed_is_touched_and_not_registered(void **state)
{
	struct hostpool_part *a;

	(void)state;
	assert_int_equal(sem_init(&n_ready, 0, 0), 0);
	fake_current = NULL;
	hostpool_touch(64 * MIB, note_ready);
	sem_wait(&n_ready);
	hostpool_touch(0, note_ready); /* no more; what is there stays */
	assert_int_equal(hostpool_bytes(), 64 * MIB);
	assert_int_equal(hostpool_give_touched(), 64 * MIB);
	assert_int_equal(hostpool_bytes(), 0);
	hostpool_touch(64 * MIB, note_ready);
	sem_wait(&n_ready);
	assert_int_equal(hostpool_unused(), 0);
	assert_int_equal(fake.n_registered, 0);
	fake_current = FAKE_CTX;
	hostpool_begin(64 * MIB, false, note_ready);
	a = hostpool_get(64 * MIB);
	assert_non_null(a);
	assert_int_equal(hostpool_bytes(), 64 * MIB);
	assert_int_equal(fake.n_registered, 1);
	hostpool_put(a);
	sem_destroy(&n_ready);
}

static void those_who_touch_together_keep_the_limit(void **state)
{
	size_t size;
	void *addr;

	(void)state;
	hostmem_set_limit("100MiB");
	for (int i = 0; i < 20; i++) {
		hostpool_begin(512 * MIB, true, NULL);
		assert_true(touched_wait(&addr, &size));
		assert_int_equal(size, 64 * MIB);
		munmap(addr, size);
		assert_false(touched_wait(&addr, &size));
		hostpool_trim();
	}
	assert_int_equal(hostpool_bytes(), 0);
}

/* What is on its way first, then what is not in use, a slab at a time. */
static void gives_back_bit_by_bit(void **state)
{
	struct hostpool_part *a, *b;

	(void)state;
	a = hostpool_get(4 * MIB);
	b = hostpool_get(2 * MIB);
	hostpool_begin(6 * MIB, true, NULL);
	while (!hostpool_may_add(true))
		sched_yield();
	assert_int_equal(hostpool_give_some(), 6 * MIB);
	assert_int_equal(hostpool_give_some(), 0);
	hostpool_put(a);
	assert_int_equal(hostpool_give_some(), 4 * MIB);
	assert_int_equal(hostpool_give_some(), 0);
	hostpool_put(b);
	assert_int_equal(hostpool_give_some(), 2 * MIB);
	assert_int_equal(fake.n_registered, 0);
	assert_int_equal(hostpool_bytes(), 0);
}

/* What is still being touched can not go yet, and does not count as given. */
static void gives_only_what_it_has(void **state)
{
	uint64_t given = 0;

	(void)state;
	hostpool_begin(512 * MIB, true, NULL);
	for (int i = 0; i < 10000; i++)
		given += hostpool_give_some();
	assert_true(given <= 512 * MIB);
	hostpool_trim();
}

static void knows_what_it_lacks_and_what_is_coming(void **state)
{
	struct hostpool_part *a;

	(void)state;
	hostmem_set_limit("8MiB");
	a = hostpool_get(6 * MIB);
	assert_int_equal(hostpool_lacks(2 * MIB), 0);
	assert_int_equal(hostpool_lacks(5 * MIB), 4 * MIB); /* huge pages: 6 */
	assert_false(hostpool_may_have(4 * MIB));
	hostmem_set_coming(2 * MIB);
	assert_true(hostpool_may_have(4 * MIB));
	assert_false(hostpool_may_have(4 * MIB + 1));
	assert_false(hostpool_has(4 * MIB));
	hostmem_set_coming(0);
	assert_false(hostpool_may_have(UINT64_MAX));
	hostpool_put(a);
}

/* What is being touched when nobody wants it any more goes back, too. */
static void nothing_is_left_of_what_was_on_its_way(void **state)
{
	size_t size;
	void *addr;

	(void)state;
	for (int i = 0; i < 100; i++) {
		hostpool_begin(64 * MIB, true, NULL);
		for (int j = 0; j < i; j++)
			sched_yield();
		hostpool_trim();
		assert_int_equal(hostpool_unused(), 0);
	}
	assert_false(touched_wait(&addr, &size));
	assert_int_equal(hostpool_bytes(), 0);
}

static void what_is_on_its_way_counts(void **state)
{
	struct hostpool_part *a;

	(void)state;
	hostmem_set_limit("8MiB");
	hostpool_begin(6 * MIB, true, NULL);
	assert_true(hostpool_has(8 * MIB));
	assert_false(hostpool_has(8 * MIB + 1));
	a = hostpool_get(6 * MIB);
	assert_non_null(a);
	assert_int_equal(hostpool_bytes(), 6 * MIB);
	hostpool_begin(4 * MIB, true, NULL); /* more than there may be */
	assert_null(hostpool_get(4 * MIB));
	assert_int_equal(hostpool_bytes(), 6 * MIB);
	hostpool_put(a);
}

/* A slab that is begun between two looks is missing in neither, or in both. */
static void what_begins_between_two_looks_counts_once(void **state)
{
	(void)state;
	hostmem_set_limit("8MiB");
	for (int i = 0; i < 3000; i++) {
		hostpool_begin(6 * MIB, true, NULL);
		for (int j = 0; j < 20; j++)
			assert_true(hostpool_has(8 * MIB));
		hostpool_trim();
	}
}

static void a_child_has_nothing_on_its_way(void **state)
{
	struct hostpool_part *a;
	int status;
	pid_t pid;

	(void)state;
	hostpool_begin(512 * MIB, true, NULL);
	pid = fork();
	if (pid == 0) {
		size_t size;
		void *addr;

		hostpool_after_fork_child();
		if (hostpool_bytes() || touched_wait(&addr, &size))
			_exit(1);
		_exit(hostpool_bytes() != 0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	a = hostpool_get(512 * MIB);
	assert_non_null(a);
	hostpool_put(a);
}

static void a_child_does_not_have_it(void **state)
{
	struct hostpool_part *a = hostpool_get(2 * MIB);
	unsigned char seen;
	void *control;
	int status;
	pid_t pid;

	(void)state;
	control = mmap(NULL, 4 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_int_equal(madvise(control, 4 * MIB, MADV_DONTFORK), 0);
	memset(control, 1, 4 * MIB);
	pid = fork();
	if (pid == 0) {
		hostpool_after_fork_child();
		/* mincore() fails with ENOMEM where nothing is mapped. */
		if (mincore(control, 4096, &seen) == 0)
			_exit(0); /* the thread sanitizer lets children have everything */
		_exit(mincore(a->addr, 4096, &seen) == 0 || hostpool_bytes() != 0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	munmap(control, 4 * MIB);
	hostpool_put(a);
}

int main(void)
{
#define HOSTPOOL_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		HOSTPOOL_TEST(grows_when_it_must_and_keeps_what_it_has),
		HOSTPOOL_TEST(need_not_be_in_one_piece),
		HOSTPOOL_TEST(respects_the_limit),
		HOSTPOOL_TEST(knows_exactly_what_it_could_give),
		HOSTPOOL_TEST(works_with_memory_that_can_not_be_registered),
		HOSTPOOL_TEST(registers_again_what_died_with_its_context),
		HOSTPOOL_TEST(what_may_be_needed_is_touched_and_not_registered),
		HOSTPOOL_TEST(memory_is_touched_while_others_work),
		HOSTPOOL_TEST(those_who_touch_together_keep_the_limit),
		HOSTPOOL_TEST(gives_back_bit_by_bit),
		HOSTPOOL_TEST(gives_only_what_it_has),
		HOSTPOOL_TEST(knows_what_it_lacks_and_what_is_coming),
		HOSTPOOL_TEST(nothing_is_left_of_what_was_on_its_way),
		HOSTPOOL_TEST(what_is_on_its_way_counts),
		HOSTPOOL_TEST(what_begins_between_two_looks_counts_once),
		HOSTPOOL_TEST(a_child_has_nothing_on_its_way),
		HOSTPOOL_TEST(a_child_does_not_have_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
