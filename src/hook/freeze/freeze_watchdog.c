/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A thread that sleeps until a freeze has lasted too long. The agent cannot do that, because it may
 * wait in the driver for a lock that a frozen thread holds.
 */

#include "hook/base/hook_mutex.h"
#include "hook/base/thread.h"
#include "hook/freeze/freeze_private.h"
#include "util/clock.h"
#include "util/thread_name.h"

#include <limits.h>
#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

#define WATCHDOG_STACK_SIZE (128u << 10)

static struct {
	struct hook_mutex lock;
	uint32_t n_changes; /* lock to write; a futex, because that outlives its waiter in a fork */
	uint64_t at_ns;     /* lock; CLOCK_NEVER: there is no freeze to watch */
	uint64_t epoch;     /* lock */
	bool is_started;    /* lock */
} watchdog = {
	.lock = HOOK_MUTEX(HOOK_LOCK_FREEZE_WATCHDOG),
	.at_ns = CLOCK_NEVER,
};

static void *watchdog_main(void *arg)
{
	(void)arg;
	thread_name("nvshare-watch");
	for (;;) {
		uint64_t at_ns, epoch;
		uint32_t n_changes;
		bool is_due;

		hook_lock(&watchdog.lock);
		at_ns = watchdog.at_ns;
		epoch = watchdog.epoch;
		n_changes = watchdog.n_changes;
		is_due = at_ns != CLOCK_NEVER && clock_now_ns() >= at_ns;
		if (is_due)
			watchdog.at_ns = CLOCK_NEVER;
		hook_unlock(&watchdog.lock);
		if (is_due)
			freeze_expire(epoch);
		else
			clock_wait_futex(&watchdog.n_changes, n_changes, at_ns);
	}
	return NULL;
}

int freeze_watchdog_start(void)
{
	int r = 0;

	hook_lock(&watchdog.lock);
	if (!watchdog.is_started)
		r = thread_start(watchdog_main, NULL, WATCHDOG_STACK_SIZE);
	watchdog.is_started = r == 0;
	hook_unlock(&watchdog.lock);
	return r;
}

void freeze_watchdog_arm(uint64_t at_ns, uint64_t epoch)
{
	hook_lock(&watchdog.lock);
	watchdog.at_ns = at_ns;
	watchdog.epoch = epoch;
	__atomic_add_fetch(&watchdog.n_changes, 1, __ATOMIC_RELEASE);
	hook_unlock(&watchdog.lock);
	(void)syscall(SYS_futex, &watchdog.n_changes, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

void freeze_watchdog_after_fork_child(void)
{
	hook_mutex_renew(&watchdog.lock, HOOK_LOCK_FREEZE_WATCHDOG);
	watchdog.at_ns = CLOCK_NEVER;
	watchdog.is_started = false;
}
