/* SPDX-License-Identifier: Apache-2.0 */

#include "hook/base/lifecycle.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

static struct {
	pthread_once_t start_once;
	pthread_once_t renew_once;
} lifecycle = {PTHREAD_ONCE_INIT, PTHREAD_ONCE_INIT};

static void lifecycle_fork_child(void)
{
	int saved_errno = errno;

	for (size_t i = 0; lifecycle_on_fork_child[i]; i++)
		lifecycle_on_fork_child[i]();
	errno = saved_errno;
}

static void lifecycle_exit_or_unload(void)
{
	for (size_t i = 0; lifecycle_on_exit[i]; i++)
		lifecycle_on_exit[i]();
}

static void lifecycle_register_exit(void)
{
	(void)atexit(lifecycle_exit_or_unload);
}

static void lifecycle_register(void)
{
	(void)pthread_atfork(NULL, NULL, lifecycle_fork_child);
	lifecycle_register_exit();
}

void lifecycle_start(void)
{
	(void)pthread_once(&lifecycle.start_once, lifecycle_register);
}

void lifecycle_renew(void)
{
	(void)pthread_once(&lifecycle.renew_once, lifecycle_register_exit);
}

/* A process that never came to lifecycle_start() has no exit handler of ours. */
__attribute__((destructor)) static void on_unload(void)
{
	lifecycle_exit_or_unload();
}
