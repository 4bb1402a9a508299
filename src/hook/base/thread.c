/* SPDX-License-Identifier: Apache-2.0 */

#include "hook/base/thread.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>

int thread_start(void *(*run)(void *), void *arg, size_t stack)
{
	sigset_t all, before;
	pthread_attr_t attr;
	pthread_t thread;
	int r;

	r = pthread_attr_init(&attr);
	if (r)
		return -r;
	(void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	(void)pthread_attr_setstacksize(&attr, stack);
	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &before);
	r = pthread_create(&thread, &attr, run, arg);
	if (r == EINVAL) { /* the stack cannot hold the thread-local storage */
		(void)pthread_attr_destroy(&attr);
		(void)pthread_attr_init(&attr);
		(void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
		r = pthread_create(&thread, &attr, run, arg);
	}
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	(void)pthread_attr_destroy(&attr);
	return -r;
}
