/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_TESTS_HOOK_AGENT_RIG_H
#define NVS_TESTS_HOOK_AGENT_RIG_H

/*
 * The agent between a scheduler and a driver that do what the test says. Each test runs in
 * a process of its own, and in virtual time. Included by one file a program.
 */

#include "hook/agent/agent_private.h"

#include "fake_driver.h"
#include "fake_scheduler.h"
#include "hook/base/hook_log.h"
#include "hook/gate/bell.h"
#include "hook/gate/gate.h"
#include "hook/memory/budget.h"
#include "hook/memory/context_cost.h"
#include "lib/virtual_clock.h"
#include "util/clock.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

#include <cmocka.h>

#define CONTEXT ((CUcontext)0x1000)
#define OTHER   ((CUcontext)0x2000)
#define MIB     (1ull << 20)

static char dir[64];

/*
 * In place of the C library's: no thread of the library's asks, which all block every signal,
 * since it could read what a setenv() of the program moves at that moment.
 */
char *getenv(const char *name)
{
	size_t len = strlen(name);
	sigset_t blocked;

	check(pthread_sigmask(SIG_SETMASK, NULL, &blocked) == 0);
	check(!sigismember(&blocked, SIGTERM));
	for (char **line = environ; line && *line; line++) {
		if (strncmp(*line, name, len) == 0 && (*line)[len] == '=')
			return *line + len + 1;
	}
	return NULL;
}

static inline void nap(void)
{
	clock_nap(CLOCK_NS_PER_MS);
}

/* What was seen once has been: it may be otherwise again when it is looked at next. */
#define wait_until(condition)                                                       \
	do {                                                                        \
		uint64_t end_ns_ = clock_now_ns() + FAKE_WAIT_MS * CLOCK_NS_PER_MS; \
		bool is_so_ = (condition);                                          \
                                                                                    \
		if (!is_so_) {                                                      \
			virtual_clock_settle();                                     \
			is_so_ = (condition);                                       \
		}                                                                   \
		for (; !is_so_ && clock_now_ns() < end_ns_; is_so_ = (condition))   \
			nap();                                                      \
		if (!is_so_)                                                        \
			check(condition);                                           \
	} while (0)

/* ---- a thread of the program ------------------------------------------------- */

struct user {
	pthread_t thread;
	CUdevice dev;
	int is_done;
	CUresult res;
};

static inline void *use_device(void *arg)
{
	struct user *user = arg;

	user->res = agent_use_device(user->dev);
	__atomic_store_n(&user->is_done, 1, __ATOMIC_SEQ_CST);
	return NULL;
}

static inline void *pass_gate(void *arg)
{
	struct user *user = arg;

	gate_enter();
	gate_leave();
	__atomic_store_n(&user->is_done, 1, __ATOMIC_SEQ_CST);
	return NULL;
}

static inline void *take_memory(void *arg)
{
	struct user *user = arg;

	gate_enter();
	user->res = budget_take(0, 64 * MIB, BUDGET_PAGEABLE);
	gate_leave();
	__atomic_store_n(&user->is_done, 1, __ATOMIC_SEQ_CST);
	return NULL;
}

static inline void *take_a_little(void *arg)
{
	struct user *user = arg;

	gate_enter();
	user->res = budget_take(0, 8 * MIB, BUDGET_PAGEABLE);
	gate_leave();
	return NULL;
}

static inline void start(struct user *user, void *(*body)(void *arg))
{
	user->is_done = 0;
	check(pthread_create(&user->thread, NULL, body, user) == 0);
}

static inline bool is_done(struct user *user)
{
	return __atomic_load_n(&user->is_done, __ATOMIC_SEQ_CST);
}

static inline CUresult finish(struct user *user)
{
	check(pthread_join(user->thread, NULL) == 0);
	return user->res;
}

/* Registers on device 0 and makes a context there; returns the scheduler's end. */
static inline int begin(struct nvshare_register *ret_register)
{
	struct user user = {.dev = 0};
	struct nvshare_register r;
	int fd;

	start(&user, use_device);
	r = fake_admit(&fd);
	check(finish(&user) == CUDA_SUCCESS);
	check(agent_add_context(CONTEXT, 0, 0));
	if (ret_register)
		*ret_register = r;
	return fd;
}

/* The same, and runs: with 100 MiB pageable on the card, and a budget of 200. */
static inline int begin_running(void)
{
	struct user user = {0};
	int fd = begin(NULL);

	start(&user, pass_gate);
	(void)fake_expect(fd, NVSHARE_MSG_REQ_LOCK);
	fake_grant(fd, 1, 200 * MIB, 2);
	(void)finish(&user);
	budget_force(0, 100 * MIB, BUDGET_PAGEABLE);
	return fd;
}

/* Ran, has given 60 of its 100 MiB as it was told, and user waits to run again. */
static inline int begin_waiting(struct user *user)
{
	int fd = begin_running();

	fake_drop(fd, 1, 60 * MIB, 4);
	(void)fake_expect(fd, NVSHARE_MSG_LOCK_RELEASED);
	start(user, pass_gate);
	(void)fake_expect(fd, NVSHARE_MSG_REQ_LOCK);
	return fd;
}

/* ---- each in a process of its own --------------------------------------------- */

/* 0: it came to its end. The directory is the parent's: it goes however the child ends. */
static inline int run_child(void (*body)(void))
{
	int status = -1;
	pid_t pid;

	fake_dir(dir, sizeof(dir));
	pid = fork();
	if (pid == 0) {
		(void)alarm(600);
		virtual_clock_start();
		fake_install();
		(void)hook_log_enabled(); /* as who loads the driver does */
		body();
		_exit(0);
	}
	if (pid > 0)
		(void)waitpid(pid, &status, 0);
	fake_gone(dir);
	(void)rmdir(dir);
	return status;
}

static inline void in_child(void **state)
{
	assert_int_equal(run_child((void (*)(void))(uintptr_t)*state), 0);
}

#define child_test(body)                                               \
	{                                                              \
#body, in_child, NULL, NULL, (void *)(uintptr_t)(body) \
	}

#endif
