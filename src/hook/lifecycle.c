/* SPDX-License-Identifier: Apache-2.0 */

#include "hook/lifecycle.h"

#include "hook/agent/agent.h"
#include "hook/device.h"
#include "hook/freeze/freeze.h"
#include "hook/gate/gate.h"
#include "hook/memory/budget.h"
#include "hook/memory/rdma.h"
#include "hook/pager/pager.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

static pthread_once_t start_once = PTHREAD_ONCE_INIT;
static pthread_once_t renew_once = PTHREAD_ONCE_INIT;

static void on_fork_child(void)
{
	int saved_errno = errno;

	agent_after_fork_child();
	gate_after_fork_child();
	device_after_fork_child();
	budget_after_fork_child();
	pager_after_fork_child();
	rdma_after_fork_child();
	freeze_after_fork_child();
	errno = saved_errno;
}

/* The agent first: it may be about to freeze, or to thaw. */
static void on_exit_or_unload(void)
{
	agent_stop();
	freeze_stop();
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
