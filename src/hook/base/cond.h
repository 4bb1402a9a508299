/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_COND_H
#define NVS_HOOK_COND_H

/*
 * Waiting on a condition in the program's own threads. pthread_cond_wait() is a place
 * where pthread_cancel() ends a thread, which would leave with our lock held; these are not.
 */

#include "util/clock.h"

#include <pthread.h>
#include <stdint.h>
#include <time.h>

static inline void cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock)
{
	int before;

	(void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
	(void)pthread_cond_wait(cond, lock);
	(void)pthread_setcancelstate(before, NULL);
}

/* Until end_ns of CLOCK_MONOTONIC; ETIMEDOUT then, else 0. */
static inline int cond_wait_until(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t end_ns)
{
	struct timespec end = {.tv_sec = (time_t)(end_ns / CLOCK_NS_PER_SEC),
			       .tv_nsec = (long)(end_ns % CLOCK_NS_PER_SEC)};
	int before, r;

	(void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
	r = pthread_cond_clockwait(cond, lock, CLOCK_MONOTONIC, &end);
	(void)pthread_setcancelstate(before, NULL);
	return r;
}

#endif
