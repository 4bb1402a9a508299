/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_UTIL_CLOCK_H
#define NVS_UTIL_CLOCK_H

/*
 * The monotonic clock, in nanoseconds: the only one that decisions are made by, and the only way to
 * let time pass. A test that defines both functions itself has time pass as it likes. Thread-safe.
 */

#include <stdint.h>

#define CLOCK_NS_PER_SEC 1000000000ull
#define CLOCK_NS_PER_MS  1000000ull

uint64_t clock_now_ns(void);

/*
 * Sleeps for ns, or until a signal's handler has run. No cancellation point: it is called with
 * locks held, in threads of the program too. errno stays.
 */
void clock_nap(uint64_t ns);

#endif
