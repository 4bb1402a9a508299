/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CORE_U64_H
#define NVS_CORE_U64_H

/* Arithmetic of bytes and of nanoseconds. */

#include <stdbool.h>
#include <stdint.h>

static inline uint64_t u64_min(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static inline uint64_t u64_max(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* By how much a is above b: a - b, or 0. */
static inline uint64_t u64_excess(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

static inline bool u64_is_within(uint64_t value, uint64_t min, uint64_t max)
{
	return value >= min && value <= max;
}

#endif
