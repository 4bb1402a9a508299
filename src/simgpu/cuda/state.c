/* SPDX-License-Identifier: Apache-2.0 */

/* The driver's start and end in a process, and the checks at the begin of each call. */

#include "simgpu/cuda/state.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "simgpu/cuda/api.h"
#include "simgpu/cuda/capture.h"
#include "simgpu/cuda/device.h"
#include "simgpu/cuda/fail.h"
#include "simgpu/cuda/hold.h"
#include "simgpu/cuda/ipc.h"
#include "simgpu/cuda/phys.h"
#include "simgpu/cuda/run.h"

struct sim sim = {
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.done = PTHREAD_COND_INITIALIZER,
};

void state_lock(void)
{
	pthread_mutex_lock(&sim.lock);
}

void state_unlock(void)
{
	pthread_mutex_unlock(&sim.lock);
}

void state_wait(void)
{
	sim.n_waiting++;
	pthread_cond_wait(&sim.done, &sim.lock);
	sim.n_waiting--;
}

void state_notify(void)
{
	if (sim.n_waiting)
		pthread_cond_broadcast(&sim.done);
}

uint64_t state_next_id(void)
{
	return __atomic_add_fetch(&sim.last_id, 1, __ATOMIC_RELAXED);
}

void state_follow_stale(const char *what)
{
	sigset_t segv;

	node_debug("%s has ended, and its handle is used", what);
	(void)signal(SIGSEGV, SIG_DFL);
	(void)sigemptyset(&segv);
	(void)sigaddset(&segv, SIGSEGV);
	(void)pthread_sigmask(SIG_UNBLOCK, &segv,
			      NULL); /* the kernel's own would not stay pending */
	(void)raise(SIGSEGV);
}

uint64_t thread_id(void)
{
	static __thread uint64_t id;

	if (!id)
		id = (uint64_t)syscall(SYS_gettid);
	return id;
}

/*
 * A forked child of a process that used CUDA cannot use CUDA: it has no worker, and the memory
 * belongs to the parent. It can only exec and exit.
 */
static void after_fork_child(void)
{
	if (__atomic_load_n(&sim.phase, __ATOMIC_RELAXED) == SIM_NEW)
		return;
	__atomic_store_n(&sim.phase, SIM_FORKED, __ATOMIC_RELAXED);
	rm_forget();
	phys_forget();
	ipc_forget();
	node_forget();
}

static void at_exit(void) __attribute__((destructor));
static void at_exit(void)
{
	if (__atomic_load_n(&sim.phase, __ATOMIC_RELAXED) != SIM_UP)
		return;
	__atomic_store_n(&sim.phase, SIM_EXITING, __ATOMIC_SEQ_CST);
	/* Queued work is lost, as with the real driver, which does not wait for it. */
	run_stop();
	node_leave();
}

static CUresult init_once(void)
{
	CUresult r;

	if (node_attach() < 0)
		return CUDA_ERROR_OPERATING_SYSTEM;
	r = device_enumerate();
	if (r)
		return r;
	fail_init();
	hold_init();
	pthread_atfork(NULL, NULL, after_fork_child);
	__atomic_store_n(&sim.phase, SIM_UP, __ATOMIC_RELEASE);
	return CUDA_SUCCESS;
}

API(cuInit, (unsigned int Flags))
{
	CUresult r = CUDA_SUCCESS;

	if (Flags)
		return CUDA_ERROR_INVALID_VALUE;
	if (__atomic_load_n(&sim.phase, __ATOMIC_ACQUIRE) == SIM_NEW) {
		state_lock();
		if (sim.phase == SIM_NEW)
			r = init_once();
		state_unlock();
		if (r)
			return r;
	}
	return api_enter(__func__, API_INIT);
}

CUresult api_enter(const char *name, unsigned int need)
{
	struct CUctx_st *ctx;
	CUresult r;

	if (need == API_ANYTIME)
		return CUDA_SUCCESS;
	switch (__atomic_load_n(&sim.phase, __ATOMIC_ACQUIRE)) {
	case SIM_NEW:
	case SIM_FORKED:
		return CUDA_ERROR_NOT_INITIALIZED;
	case SIM_EXITING:
		return CUDA_ERROR_DEINITIALIZED;
	case SIM_UP:
		break;
	}
	r = fail_check(name);
	if (r)
		return r;
	hold_pass((need & API_STACK) == API_STACK ? NULL : context_current());
	if ((need & API_CONTEXT) == API_CONTEXT) {
		/* A host function must not call the driver: it could wait for itself. */
		if (host_call_is_inside())
			return CUDA_ERROR_NOT_PERMITTED;
		r = context_resolve(NULL, &ctx);
		if (r)
			return r;
	}
	if (need & API_UNSAFE)
		return capture_check_unsafe();
	return CUDA_SUCCESS;
}
