/* SPDX-License-Identifier: Apache-2.0 */

/* src/hook/clean/README.md says why it is built like this. */

#include "util/digest.h"

#include <string.h>

/* A Mersenne prime: a product is reduced by an addition. */
#define PRIME ((1ull << 61) - 1)

static uint64_t reduce(uint64_t x)
{
	x = (x & PRIME) + (x >> 61);
	return x >= PRIME ? x - PRIME : x;
}

static uint64_t multiply(uint64_t factor, uint32_t x)
{
	unsigned __int128 product = (unsigned __int128)factor * x;

	return reduce((uint64_t)(product & PRIME) + (uint64_t)(product >> 61));
}

/* Of a row of which the first n vectors are there, and the others zero. */
static uint64_t pass_row(const uint32_t key[DIGEST_LANES][4], const unsigned char *row, size_t n)
{
	uint64_t sum = 0;
	uint32_t word[4];
	size_t i;

	for (i = 0; i < n; i++) {
		memcpy(word, row + i * DIGEST_UNIT, sizeof(word));
		sum += (uint64_t)(word[0] + key[i][0]) * (word[1] + key[i][1]);
		sum += (uint64_t)(word[2] + key[i][2]) * (word[3] + key[i][3]);
	}
	for (; i < DIGEST_LANES; i++) {
		sum += (uint64_t)key[i][0] * key[i][1];
		sum += (uint64_t)key[i][2] * key[i][3];
	}
	return sum;
}

static uint64_t pass_block(const struct digest_key *key, size_t pass, const unsigned char *block,
			   size_t bytes)
{
	uint64_t sum = 0;

	for (size_t row = 0; row < DIGEST_ROWS; row++) {
		size_t n = bytes / DIGEST_UNIT;

		if (n > DIGEST_LANES)
			n = DIGEST_LANES;
		sum += pass_row(key->rows[row + pass], block, n);
		block += n * DIGEST_UNIT;
		bytes -= n * DIGEST_UNIT;
	}
	return sum;
}

/* value: the number of the pass in the piece. */
static void add_value(const struct digest_key *key, size_t value, uint64_t x, struct digest *digest)
{
	for (size_t i = 0; i < DIGEST_SUMS; i++) {
		const uint64_t *factor = &key->factors[i][2 * value];

		digest->word[i] = reduce(digest->word[i] + multiply(factor[0], (uint32_t)x) +
					 multiply(factor[1], (uint32_t)(x >> 32)));
	}
}

void digest_key_trim(struct digest_key *key)
{
	for (size_t i = 0; i < DIGEST_SUMS; i++)
		for (size_t j = 0; j < sizeof(key->factors[i]) / sizeof(key->factors[i][0]); j++)
			key->factors[i][j] &= PRIME;
}

void digest_of(const struct digest_key *key, const void *piece, size_t bytes, struct digest *ret)
{
	const unsigned char *block = piece;
	size_t value = 0;

	for (size_t i = 0; i < DIGEST_SUMS; i++)
		ret->word[i] = multiply(key->factors[i][DIGEST_LENGTH_FACTOR], (uint32_t)bytes);
	while (bytes) {
		size_t part = bytes < DIGEST_BLOCK ? bytes : DIGEST_BLOCK;

		for (size_t pass = 0; pass < DIGEST_PASSES; pass++)
			add_value(key, value++, pass_block(key, pass, block, part), ret);
		block += part;
		bytes -= part;
	}
}
