/* SPDX-License-Identifier: Apache-2.0 */

#include "hook/base/lifecycle.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

static pthread_once_t start_once = PTHREAD_ONCE_INIT;
static pthread_once_t renew_once = PTHREAD_ONCE_INIT;

static void on_fork_child(void)
{
	int saved_errno = errno;

	for (size_t i = 0; lifecycle_on_fork_child[i]; i++)
		lifecycle_on_fork_child[i]();
	errno = saved_errno;
}

static void on_exit_or_unload(void)
{
	for (size_t i = 0; lifecycle_on_exit[i]; i++)
		lifecycle_on_exit[i]();
}

static void register_exit(void)
{
	(void)atexit(on_exit_or_unload);
}

static void start(void)
{
	(void)pthread_atfork(NULL, NULL, on_fork_child);
	register_exit();
}

void lifecycle_start(void)
{
	(void)pthread_once(&start_once, start);
}

void lifecycle_renew(void)
{
	(void)pthread_once(&renew_once, register_exit);
}

/* For the process that ends without exit handlers of ours: one that never got that far. */
__attribute__((destructor)) static void on_unload(void)
{
	on_exit_or_unload();
}
