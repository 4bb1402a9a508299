/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_COND_H
#define NVS_HOOK_COND_H

/*
 * Waiting on a condition in the program's own threads. pthread_cancel() may end a thread in
 * pthread_cond_wait(), with our lock held. It does not end a thread in these functions.
 */

#include "util/clock.h"

#include <pthread.h>
#include <stdint.h>

static inline void cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock)
{
	int before;

	(void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
	(void)pthread_cond_wait(cond, lock);
	(void)pthread_setcancelstate(before, NULL);
}

/* Waits until end_ns of clock_now_ns() at most. Returns ETIMEDOUT then, else 0. */
static inline int cond_wait_until(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t end_ns)
{
	int before, r;

	(void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
	r = clock_wait_cond(cond, lock, end_ns);
	(void)pthread_setcancelstate(before, NULL);
	return r;
}

#endif
