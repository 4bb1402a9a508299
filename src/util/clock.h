/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_UTIL_CLOCK_H
#define NVS_UTIL_CLOCK_H

/*
 * The monotonic clock, and the only sleep, in nanoseconds. All decisions use this clock. A test
 * that defines both functions itself controls the time. Thread-safe.
 */

#include <stdint.h>

#define CLOCK_NS_PER_SEC 1000000000ull
#define CLOCK_NS_PER_MS  1000000ull

uint64_t clock_now_ns(void);

/*
 * Sleeps for ns, or until a signal's handler has run. It is no cancellation point, because
 * callers hold locks, also in threads of the program. Keeps errno.
 */
void clock_nap(uint64_t ns);

#endif
