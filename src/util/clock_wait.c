/* SPDX-License-Identifier: Apache-2.0 */

#include "util/clock.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static struct timespec clock_timespec(uint64_t ns)
{
	return (struct timespec){.tv_sec = (time_t)(ns / CLOCK_NS_PER_SEC),
				 .tv_nsec = (long)(ns % CLOCK_NS_PER_SEC)};
}

/* glibc before 2.30 lacks it, and the library runs there, too. */
extern __typeof__(pthread_cond_clockwait) pthread_cond_clockwait __attribute__((weak));

/* By the clock of the day: if somebody sets that clock back, the wait takes so much longer. */
static int clock_wait_by_day(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t end_ns)
{
	uint64_t now = clock_now_ns();
	uint64_t left = end_ns > now ? end_ns - now : 0;
	struct timespec day, end;

	(void)clock_gettime(CLOCK_REALTIME, &day);
	end = clock_timespec((uint64_t)day.tv_sec * CLOCK_NS_PER_SEC + (uint64_t)day.tv_nsec +
			     left);
	return pthread_cond_timedwait(cond, lock, &end);
}

int clock_wait_cond(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t end_ns)
{
	const struct timespec end = clock_timespec(end_ns);

	if (end_ns == CLOCK_NEVER)
		return pthread_cond_wait(cond, lock);
	if (!pthread_cond_clockwait)
		return clock_wait_by_day(cond, lock, end_ns);
	return pthread_cond_clockwait(cond, lock, CLOCK_MONOTONIC, &end);
}

void clock_wait_futex(uint32_t *word, uint32_t value, uint64_t end_ns)
{
	const struct timespec end = clock_timespec(end_ns);

	(void)syscall(SYS_futex, word, FUTEX_WAIT_BITSET_PRIVATE, value,
		      end_ns == CLOCK_NEVER ? NULL : &end, NULL, FUTEX_BITSET_MATCH_ANY);
}

int clock_poll(struct pollfd *fds, nfds_t n, uint64_t end_ns)
{
	uint64_t now = end_ns == CLOCK_NEVER ? 0 : clock_now_ns();
	const struct timespec left = clock_timespec(end_ns > now ? end_ns - now : 0);

	return ppoll(fds, n, end_ns == CLOCK_NEVER ? NULL : &left, NULL);
}
