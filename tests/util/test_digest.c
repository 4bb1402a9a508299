/* SPDX-License-Identifier: Apache-2.0 */

#include "util/digest.h"

#include "util/prng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define PRIME ((1ull << 61) - 1)
#define ROW   ((size_t)DIGEST_LANES * DIGEST_UNIT)

static struct digest_key key;
static unsigned char piece[DIGEST_PIECE];

static void randomize(void *data, size_t bytes, uint64_t seed)
{
	uint64_t *words = data;

	for (size_t i = 0; i < bytes / sizeof(*words); i++)
		words[i] = prng_next(&seed);
}

static int setup(void **state)
{
	(void)state;
	randomize(&key, sizeof(key), 1);
	digest_key_trim(&key);
	randomize(piece, sizeof(piece), 2);
	return 0;
}

static struct digest digest(size_t bytes)
{
	struct digest d;

	digest_of(&key, piece, bytes, &d);
	return d;
}

static void assert_same(struct digest a, struct digest b)
{
	assert_memory_equal(&a, &b, sizeof(a));
}

static void assert_other(struct digest a, struct digest b)
{
	for (size_t i = 0; i < DIGEST_SUMS; i++)
		assert_int_not_equal(a.word[i], b.word[i]);
}

/* Computed from the definition in src/hook/clean/README.md, in integers of any size. */
static void known_pieces_have_known_digests(void **state)
{
	static const struct {
		size_t bytes;
		struct digest digest;
	} known[] = {
		/* clang-format off */
		{16, {{0xe6a8def2fedc995ull, 0x1606880d06d46a2dull, 0x1677a1d1a46b4dccull}}},
		{4080, {{0x15d40564083508d2ull, 0x14da5a728e1912f0ull, 0x1ac3829c48989fb2ull}}},
		{DIGEST_BLOCK, {{0xbbf90d64625947bull, 0x1a6ddf058e75d722ull, 0x12abe2f0a9bf692cull}}},
		{57392, {{0x16c21b52654bbd9eull, 0x186192dd5abcbbd1ull, 0x1bfff5e271eb98baull}}},
		{DIGEST_PIECE, {{0xfd6c9fd50b6fc98ull, 0x148d85d539327117ull, 0xb4f812d640a1429ull}}},
		/* clang-format on */
	};

	(void)state;
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		assert_same(digest(known[i].bytes), known[i].digest);
}

/* Words of the largest value: all sums carry as far as they can. */
static void the_largest_words_stay_below_the_prime(void **state)
{
	struct digest d, again;

	(void)state;
	memset(&key, 0xff, sizeof(key));
	memset(piece, 0xff, sizeof(piece));
	digest_key_trim(&key);
	d = digest(sizeof(piece));
	for (size_t i = 0; i < DIGEST_SUMS; i++)
		assert_int_equal(d.word[i], 0); /* factors that are the prime are 0 */
	for (size_t i = 0; i < DIGEST_SUMS; i++)
		for (size_t j = 0; j < DIGEST_LENGTH_FACTOR + 2; j++)
			key.factors[i][j]--;
	d = digest(sizeof(piece));
	again = digest(sizeof(piece));
	assert_same(d, again);
	for (size_t i = 0; i < DIGEST_SUMS; i++)
		assert_true(d.word[i] && d.word[i] < PRIME);
}

static void every_bit_of_a_piece_counts(void **state)
{
	size_t bytes = 2 * ROW;
	struct digest before = digest(bytes);

	(void)state;
	for (size_t bit = 0; bit < bytes * 8; bit++) {
		piece[bit / 8] ^= (unsigned char)(1u << bit % 8);
		assert_other(digest(bytes), before);
		piece[bit / 8] ^= (unsigned char)(1u << bit % 8);
	}
	assert_same(digest(bytes), before);
}

static void every_row_of_a_whole_piece_counts(void **state)
{
	struct digest before = digest(sizeof(piece));
	uint64_t seed = 3;

	(void)state;
	for (size_t row = 0; row < sizeof(piece); row += ROW) {
		size_t at = row + prng_below(&seed, ROW);
		unsigned char bit = (unsigned char)(1u << prng_below(&seed, 8));

		piece[at] ^= bit;
		assert_other(digest(sizeof(piece)), before);
		piece[at] ^= bit;
	}
	assert_same(digest(sizeof(piece)), before);
}

static void every_word_of_the_key_counts(void **state)
{
	struct digest before = digest(DIGEST_BLOCK);
	uint32_t *words = &key.rows[0][0][0];

	(void)state;
	for (size_t i = 0; i < sizeof(key.rows) / sizeof(*words); i++) {
		words[i] ^= 1u << i % 32;
		assert_other(digest(DIGEST_BLOCK), before);
		words[i] ^= 1u << i % 32;
	}
}

static void each_factor_counts_in_its_own_sum(void **state)
{
	struct digest before = digest(sizeof(piece)), after;

	(void)state;
	for (size_t j = 0; j <= DIGEST_LENGTH_FACTOR; j++) {
		key.factors[j % DIGEST_SUMS][j] ^= 1ull << j % 60;
		after = digest(sizeof(piece));
		key.factors[j % DIGEST_SUMS][j] ^= 1ull << j % 60;
		for (size_t i = 0; i < DIGEST_SUMS; i++)
			assert_int_equal(after.word[i] != before.word[i], i == j % DIGEST_SUMS);
	}
}

static void the_address_does_not_count(void **state)
{
	static unsigned char moved[4 * DIGEST_BLOCK + 64];
	size_t bytes = 3 * DIGEST_BLOCK + 5 * DIGEST_UNIT;
	struct digest before = digest(bytes), d;

	(void)state;
	for (size_t shift = 0; shift < 64; shift++) {
		memcpy(moved + shift, piece, bytes);
		digest_of(&key, moved + shift, bytes, &d);
		assert_same(d, before);
	}
}

static void other_keys_give_other_digests(void **state)
{
	struct digest before = digest(DIGEST_BLOCK), d;

	(void)state;
	for (uint64_t seed = 100; seed < 200; seed++) {
		randomize(&key, sizeof(key), seed);
		digest_key_trim(&key);
		d = digest(DIGEST_BLOCK);
		assert_other(d, before);
		before = d;
	}
}

static void swap(size_t a, size_t b, size_t bytes)
{
	unsigned char kept[DIGEST_BLOCK];

	memcpy(kept, piece + a, bytes);
	memcpy(piece + a, piece + b, bytes);
	memcpy(piece + b, kept, bytes);
}

static void the_order_of_parts_counts(void **state)
{
	static const size_t parts[] = {4, 8, DIGEST_UNIT, ROW, DIGEST_BLOCK};
	struct digest before = digest(sizeof(piece));
	uint64_t seed = 4;

	(void)state;
	for (size_t i = 0; i < 400; i++) {
		size_t part = parts[i % 5], n = sizeof(piece) / part;
		size_t a = prng_below(&seed, n), b = i % 2 ? (a + 1) % n : prng_below(&seed, n);

		if (a == b)
			continue;
		swap(a * part, b * part, part);
		assert_other(digest(sizeof(piece)), before);
		swap(a * part, b * part, part);
	}
}

static int by_word(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/* Zeros are what fills up the last block, and what freshly made memory has. */
static void zeros_of_different_lengths_differ(void **state)
{
	enum { N = 2 * DIGEST_BLOCK / DIGEST_UNIT + DIGEST_BLOCKS };
	static uint64_t words[DIGEST_SUMS][N];
	size_t n = 0;

	(void)state;
	memset(piece, 0, sizeof(piece));
	for (size_t bytes = DIGEST_UNIT; bytes <= sizeof(piece); n++) {
		struct digest d = digest(bytes);

		for (size_t i = 0; i < DIGEST_SUMS; i++)
			words[i][n] = d.word[i];
		bytes += bytes < 2 * DIGEST_BLOCK ? DIGEST_UNIT : DIGEST_BLOCK;
	}
	for (size_t i = 0; i < DIGEST_SUMS; i++) {
		qsort(words[i], n, sizeof(words[i][0]), by_word);
		for (size_t j = 1; j < n; j++)
			assert_true(words[i][j - 1] < words[i][j]);
	}
}

static void a_tail_of_zeros_counts(void **state)
{
	uint64_t seed = 5;

	(void)state;
	for (size_t i = 0; i < 300; i++) {
		size_t bytes =
			DIGEST_UNIT * (1 + prng_below(&seed, 3 * DIGEST_BLOCK / DIGEST_UNIT));
		size_t tail = DIGEST_UNIT * (1 + prng_below(&seed, DIGEST_BLOCK / DIGEST_UNIT));

		memset(piece + bytes, 0, tail);
		assert_other(digest(bytes), digest(bytes + tail));
	}
}

/* A bit of the digest is 1 for half of all pieces, to six standard deviations. */
static void all_bits_of_a_digest_are_used(void **state)
{
	enum { N = 20000, SIX_SIGMA = 3 * 142 };
	static unsigned int ones[DIGEST_SUMS][64];

	(void)state;
	memset(piece, 0, sizeof(piece));
	for (uint32_t i = 0; i < N; i++) {
		struct digest d;

		memcpy(piece, &i, sizeof(i));
		d = digest(DIGEST_UNIT);
		for (size_t sum = 0; sum < DIGEST_SUMS; sum++)
			for (size_t bit = 0; bit < 64; bit++)
				ones[sum][bit] += d.word[sum] >> bit & 1;
	}
	for (size_t sum = 0; sum < DIGEST_SUMS; sum++)
		for (size_t bit = 0; bit < 64; bit++)
			if (bit < 61)
				assert_in_range(ones[sum][bit], N / 2 - SIX_SIGMA,
						N / 2 + SIX_SIGMA);
			else
				assert_int_equal(ones[sum][bit], 0);
}

#define TEST(name) cmocka_unit_test_setup(name, setup)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(known_pieces_have_known_digests), TEST(the_largest_words_stay_below_the_prime),
		TEST(every_bit_of_a_piece_counts),     TEST(every_row_of_a_whole_piece_counts),
		TEST(every_word_of_the_key_counts),    TEST(each_factor_counts_in_its_own_sum),
		TEST(the_address_does_not_count),      TEST(other_keys_give_other_digests),
		TEST(the_order_of_parts_counts),       TEST(zeros_of_different_lengths_differ),
		TEST(a_tail_of_zeros_counts),          TEST(all_bits_of_a_digest_are_used),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
