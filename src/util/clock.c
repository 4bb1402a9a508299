/* SPDX-License-Identifier: Apache-2.0 */

#include "util/clock.h"

#include <errno.h>
#include <pthread.h>
#include <time.h>

uint64_t clock_now_ns(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_MONOTONIC, &ts); /* can not fail: the clock exists */
	return (uint64_t)ts.tv_sec * CLOCK_NS_PER_SEC + (uint64_t)ts.tv_nsec;
}

void clock_nap(uint64_t ns)
{
	const struct timespec time = {.tv_sec = (time_t)(ns / CLOCK_NS_PER_SEC),
				      .tv_nsec = (long)(ns % CLOCK_NS_PER_SEC)};
	int saved_errno = errno, before;

	(void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
	(void)clock_nanosleep(CLOCK_MONOTONIC, 0, &time, NULL);
	(void)pthread_setcancelstate(before, NULL);
	errno = saved_errno;
}
