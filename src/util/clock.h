/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_UTIL_CLOCK_H
#define NVS_UTIL_CLOCK_H

/* The monotonic clock, in nanoseconds: the only one that decisions are made by. */

#include <stdint.h>
#include <time.h>

#define CLOCK_NS_PER_SEC 1000000000ull
#define CLOCK_NS_PER_MS  1000000ull

static inline uint64_t clock_now_ns(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_MONOTONIC, &ts); /* can not fail: the clock exists */
	return (uint64_t)ts.tv_sec * CLOCK_NS_PER_SEC + (uint64_t)ts.tv_nsec;
}

#endif
