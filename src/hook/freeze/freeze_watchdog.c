/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A thread that sleeps until a freeze has lasted too long. Of its own, because the agent's
 * may be waiting in the driver for a lock which a frozen thread holds.
 */

#include "hook/cond.h"
#include "hook/freeze/freeze_private.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>

#define WATCHDOG_STACK_SIZE (128u << 10)

static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	uint64_t at_ns; /* UINT64_MAX: no freeze is to be watched */
	uint64_t epoch;
	bool is_started;
} watchdog = {
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.changed = PTHREAD_COND_INITIALIZER,
	.at_ns = UINT64_MAX,
};

static void *watch(void *arg)
{
	uint64_t epoch;

	(void)arg;
	pthread_mutex_lock(&watchdog.lock);
	for (;;) {
		if (watchdog.at_ns == UINT64_MAX) {
			cond_wait(&watchdog.changed, &watchdog.lock);
		} else if (clock_now_ns() < watchdog.at_ns) {
			(void)cond_wait_until(&watchdog.changed, &watchdog.lock, watchdog.at_ns);
		} else {
			watchdog.at_ns = UINT64_MAX;
			epoch = watchdog.epoch;
			pthread_mutex_unlock(&watchdog.lock);
			freeze_expire(epoch);
			pthread_mutex_lock(&watchdog.lock);
		}
	}
	return NULL;
}

static int create_thread(void)
{
	sigset_t all, before;
	pthread_attr_t attr;
	pthread_t thread;
	int r;

	r = pthread_attr_init(&attr);
	if (r)
		return -r;
	(void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	(void)pthread_attr_setstacksize(&attr, WATCHDOG_STACK_SIZE);
	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &before);
	r = pthread_create(&thread, &attr, watch, NULL);
	if (r == EINVAL) { /* more thread-local storage than stack */
		(void)pthread_attr_destroy(&attr);
		(void)pthread_attr_init(&attr);
		(void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
		r = pthread_create(&thread, &attr, watch, NULL);
	}
	if (r == 0)
		(void)pthread_setname_np(thread, "nvshare-watch");
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	(void)pthread_attr_destroy(&attr);
	return -r;
}

int freeze_watchdog_start(void)
{
	int r = 0;

	pthread_mutex_lock(&watchdog.lock);
	if (!watchdog.is_started)
		r = create_thread();
	watchdog.is_started = r == 0;
	pthread_mutex_unlock(&watchdog.lock);
	return r;
}

void freeze_watchdog_arm(uint64_t at_ns, uint64_t epoch)
{
	pthread_mutex_lock(&watchdog.lock);
	watchdog.at_ns = at_ns;
	watchdog.epoch = epoch;
	pthread_cond_signal(&watchdog.changed);
	pthread_mutex_unlock(&watchdog.lock);
}

void freeze_watchdog_after_fork_child(void)
{
	pthread_mutex_init(&watchdog.lock, NULL);
	pthread_cond_init(&watchdog.changed, NULL);
	watchdog.at_ns = UINT64_MAX;
	watchdog.is_started = false;
}
