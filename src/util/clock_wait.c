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

int clock_wait_cond(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t end_ns)
{
	const struct timespec end = clock_timespec(end_ns);

	if (end_ns == CLOCK_NEVER)
		return pthread_cond_wait(cond, lock);
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
