/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_UTIL_CLOCK_H
#define NVS_UTIL_CLOCK_H

/*
 * The monotonic clock, in nanoseconds: the only one that decisions are made by, and every wait that
 * time ends. A test that defines these functions itself has time pass as it likes
 * (tests/hook/lib/virtual_clock.h). Thread-safe.
 */

#include <poll.h>
#include <pthread.h>
#include <stdint.h>

#define CLOCK_NS_PER_SEC 1000000000ull
#define CLOCK_NS_PER_MS  1000000ull
#define CLOCK_NEVER      UINT64_MAX /* as the end of a wait: none */

uint64_t clock_now_ns(void);

/*
 * Sleeps for ns, or until a signal's handler has run. It is no cancellation point, because
 * callers hold locks, also in threads of the program. Keeps errno.
 */
void clock_nap(uint64_t ns);

/* Until end_ns; ETIMEDOUT then, else 0. A cancellation point, as pthread_cond_wait() is. */
int clock_wait_cond(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t end_ns);

/* While *word is value, until it is woken (FUTEX_WAKE_PRIVATE) or end_ns. May return early. */
void clock_wait_futex(uint32_t *word, uint32_t value, uint64_t end_ns);

/* As poll(), until end_ns. */
int clock_poll(struct pollfd *fds, nfds_t n, uint64_t end_ns);

#endif
