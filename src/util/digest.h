/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_UTIL_DIGEST_H
#define NVS_UTIL_DIGEST_H

/*
 * A keyed digest of a piece of memory, in plain C. A GPU computes the same, faster
 * (hook/clean/hash_ptx.c). src/hook/clean/README.md has the construction and the proof of its
 * bound: for a random key, two different pieces have the same digest with a probability of at most
 * 2^-127. The bound holds for pieces that were chosen without knowledge of the key and of digests.
 *
 * Bytes are read as little-endian 32-bit words.
 *
 * Threading: no state; any thread.
 */

#include <stddef.h>
#include <stdint.h>

#define DIGEST_PIECE ((size_t)2 << 20) /* bytes of a piece, at most */
#define DIGEST_UNIT  16                /* a piece is a multiple of it */

enum {
	DIGEST_LANES = 256, /* vectors of DIGEST_UNIT bytes in a row */
	DIGEST_ROWS = 8,    /* in a block */
	DIGEST_PASSES = 4,  /* over a block, each with the key one row further */
	DIGEST_SUMS = 3,    /* over a piece */
	DIGEST_BLOCK = DIGEST_LANES * DIGEST_ROWS * DIGEST_UNIT,
	DIGEST_BLOCKS = (2 << 20) / DIGEST_BLOCK, /* in a piece, at most */
	/* Factors of a sum: two for each pass of each block, and one for the length. */
	DIGEST_LENGTH_FACTOR = 2 * DIGEST_PASSES * DIGEST_BLOCKS,
};

/* Below 2^61 - 1 each. */
struct digest {
	uint64_t word[DIGEST_SUMS];
};

/* Any random bytes make a key: digest_key_trim(). Its layout is the kernel's, too. */
struct digest_key {
	uint32_t rows[DIGEST_ROWS + DIGEST_PASSES - 1][DIGEST_LANES][4];
	uint64_t factors[DIGEST_SUMS][DIGEST_LENGTH_FACTOR + 2]; /* the last one is not used */
};

/* Makes a key of random bytes: factors have 61 bits. */
void digest_key_trim(struct digest_key *key);

/* bytes: a multiple of DIGEST_UNIT, at most DIGEST_PIECE. */
void digest_of(const struct digest_key *key, const void *piece, size_t bytes, struct digest *ret);

#endif
