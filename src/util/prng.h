/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_UTIL_PRNG_H
#define NVS_UTIL_PRNG_H

/* splitmix64, for tests and jitter: one word of state, the same sequence on every machine. */

#include <stdint.h>

static inline uint64_t prng_next(uint64_t *state)
{
	uint64_t z = (*state += 0x9e3779b97f4a7c15ull);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

/* 0 .. n-1; n > 0. The bias is below n / 2^64. */
static inline uint64_t prng_below(uint64_t *state, uint64_t n)
{
	return prng_next(state) % n;
}

#endif
