/* SPDX-License-Identifier: Apache-2.0 */

/* Copies of a chunk that is on the card: their digests are those of the bytes in host memory. */

#include "vmm_rig.h"

#include "hook/pager/pager_copy.h"
#include "util/prng.h"

#include <string.h>

#define N_PIECES 20
#define STREAM   ((CUstream)0x5000)
#define PIECES   (N_PIECES * (uint64_t)HASH_PIECE)
#define HALF     (8 * (uint64_t)HASH_PIECE)

static struct pager_chunk chunk;
static struct digest now[N_PIECES];

static unsigned char *card_bytes(void)
{
	return fake_pointer(chunk.addr);
}

static int setup_chunk(void **state)
{
	int r = setup(state);

	chunk = (struct pager_chunk){.addr = allocate(PIECES), .size = PIECES};
	chunk.state = PAGER_RESIDENT;
	chunk.host = hostpool_get(PIECES);
	return r || !chunk.host ? -1 : 0;
}

static int teardown_chunk(void **state)
{
	gate_set(GATE_OPEN);
	pager_copy_forget(&chunk);
	(void)hostpool_put(chunk.host);
	release(chunk.addr);
	return teardown(state);
}

/* The program runs, and its memory is all value then. */
static void run(unsigned char value)
{
	gate_set(GATE_OPEN);
	memset(card_bytes(), value, PIECES);
	gate_set(GATE_CLOSED);
}

/* Digests that are as different as the bytes. */
static const struct digest *digests(void)
{
	for (size_t i = 0; i < N_PIECES; i++)
		now[i] = (struct digest){.word = {card_bytes()[i * HASH_PIECE]}};
	return now;
}

static uint64_t copy(const struct digest *known)
{
	uint64_t all = 0, bytes;

	pager_copy_begin(&chunk, known);
	do {
		assert_int_equal(pager_copy_some(&chunk, STREAM, UINT64_MAX, &bytes), CUDA_SUCCESS);
		all += bytes;
	} while (bytes);
	assert_int_equal(cuda_real.cuStreamSynchronize(STREAM), CUDA_SUCCESS);
	pager_copy_end(&chunk);
	return all;
}

/* Copies the first pieces ahead. Then the program wakes. */
static void copy_half(const struct digest *known)
{
	uint64_t bytes;

	pager_copy_begin(&chunk, known);
	assert_int_equal(pager_copy_some(&chunk, STREAM, HALF, &bytes), CUDA_SUCCESS);
	assert_int_equal(bytes, HALF);
	assert_int_equal(cuda_real.cuStreamSynchronize(STREAM), CUDA_SUCCESS);
	assert_false(pager_copy_is_fresh(&chunk));
}

static void expect_host_has(unsigned char value)
{
	for (const struct hostpool_part *part = chunk.host; part; part = part->next) {
		const unsigned char *bytes = part->addr;

		for (size_t i = 0; i < part->size; i += 4096)
			assert_contents(bytes[i], value);
	}
}

static void only_what_changed_is_copied(void **state)
{
	(void)state;
	run('a');
	assert_int_equal(copy(digests()), PIECES);
	run('a');
	card_bytes()[HASH_PIECE] = 'b';
	assert_int_equal(copy(digests()), HASH_PIECE);
}

static void memory_that_is_as_before_a_copy_that_was_broken_off(const struct digest *(*known)(void))
{
	run('a');
	(void)copy(digests());
	run('b');
	copy_half(known ? known() : NULL);
	run('a');
	assert_true(copy(digests()) >= HALF);
	expect_host_has('a');
	run('a');
	assert_int_equal(copy(digests()), 0);
}

static void a_copy_that_was_broken_off_is_not_taken_for_the_one_before(void **state)
{
	(void)state;
	memory_that_is_as_before_a_copy_that_was_broken_off(digests);
}

static void the_same_where_its_digests_are_unknown(void **state)
{
	(void)state;
	memory_that_is_as_before_a_copy_that_was_broken_off(NULL);
}

static void a_copy_that_was_broken_off_saves_what_it_copied(void **state)
{
	(void)state;
	run('a');
	(void)copy(digests());
	run('b');
	copy_half(digests());
	run('b');
	assert_int_equal(copy(digests()), PIECES - HALF);
	expect_host_has('b');
}

/* An eviction ends the copy of each chunk, also of one that was copied ahead. */
static void a_fresh_copy_keeps_its_digests(void **state)
{
	(void)state;
	run('a');
	(void)copy(digests());
	assert_true(pager_copy_is_fresh(&chunk));
	pager_copy_end(&chunk);
	run('a');
	assert_int_equal(copy(digests()), 0);
}

static void without_digests_all_is_copied(void **state)
{
	(void)state;
	run('a');
	(void)copy(digests());
	run('a');
	assert_int_equal(copy(NULL), PIECES);
	run('a');
	assert_int_equal(copy(digests()), PIECES);
	expect_host_has('a');
}

/* Few values, so that pieces often are as they were before. */
static void run_anyhow(uint64_t *random)
{
	gate_set(GATE_OPEN);
	for (size_t i = 0; i < N_PIECES; i++)
		card_bytes()[i * HASH_PIECE] = (unsigned char)prng_below(random, 3);
	gate_set(GATE_CLOSED);
}

static void copy_anyhow(uint64_t *random)
{
	uint64_t bytes;

	pager_copy_begin(&chunk, prng_below(random, 4) ? digests() : NULL);
	for (uint64_t n = prng_below(random, 4); n > 0; n--)
		assert_int_equal(
			pager_copy_some(&chunk, STREAM, prng_below(random, PIECES) + 1, &bytes),
			CUDA_SUCCESS);
	assert_int_equal(cuda_real.cuStreamSynchronize(STREAM), CUDA_SUCCESS);
	if (chunk.copied == PIECES)
		pager_copy_end(&chunk);
}

static void expect_host_has_all(uint64_t seed)
{
	const unsigned char *host = chunk.host->addr;

	assert_null(chunk.host->next);
	for (size_t i = 0; i < N_PIECES; i++) {
		if (host[i * HASH_PIECE] != card_bytes()[i * HASH_PIECE])
			fail_msg("seed %llu, piece %zu", (unsigned long long)seed, i);
	}
}

/* Copies that are broken off, with digests and without, and at last one that is not. */
static void whatever_came_before_a_whole_copy_has_the_bytes_of_the_card(void **state)
{
	(void)state;
	memset(card_bytes(), 0, PIECES);
	for (uint64_t seed = 1; seed <= 300; seed++) {
		uint64_t random = seed;

		for (uint64_t n = prng_below(&random, 6); n > 0; n--) {
			if (prng_below(&random, 3))
				run_anyhow(&random);
			copy_anyhow(&random);
		}
		if (prng_below(&random, 3))
			run_anyhow(&random);
		(void)copy(prng_below(&random, 4) ? digests() : NULL);
		expect_host_has_all(seed);
	}
}

int main(void)
{
#define COPY_TEST(name) cmocka_unit_test_setup_teardown(name, setup_chunk, teardown_chunk)
	const struct CMUnitTest tests[] = {
		COPY_TEST(only_what_changed_is_copied),
		COPY_TEST(a_copy_that_was_broken_off_is_not_taken_for_the_one_before),
		COPY_TEST(the_same_where_its_digests_are_unknown),
		COPY_TEST(a_copy_that_was_broken_off_saves_what_it_copied),
		COPY_TEST(a_fresh_copy_keeps_its_digests),
		COPY_TEST(without_digests_all_is_copied),
		COPY_TEST(whatever_came_before_a_whole_copy_has_the_bytes_of_the_card),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
