/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_TESTS_HOOK_AGENT_RIG_H
#define NVS_TESTS_HOOK_AGENT_RIG_H

/*
 * The agent between a scheduler and a driver that do what the test says. Each test runs in
 * a process of its own, and in virtual time.
 */

#include "fake_driver.h"
#include "fake_scheduler.h"
#include "hook/agent/agent_private.h"
#include "hook/base/hook_log.h"
#include "hook/gate/bell.h"
#include "hook/gate/gate.h"
#include "hook/memory/budget.h"
#include "hook/memory/context_cost.h"
#include "util/clock.h"
#include "virtual_clock.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <cmocka.h>

#define CONTEXT ((CUcontext)0x1000)
#define OTHER   ((CUcontext)0x2000)
#define MIB     (1ull << 20)

extern char rig_dir[64]; /* of the scheduler's socket */

void rig_nap(void); /* a millisecond */

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
			rig_nap();                                                  \
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

/* What it may do. */
void *rig_use_device(void *arg);
void *rig_pass_gate(void *arg);
void *rig_take_memory(void *arg);
void *rig_take_a_little(void *arg);

void user_start(struct user *user, void *(*body)(void *arg));
bool user_is_done(struct user *user);
CUresult user_finish(struct user *user);

/* Registers on device 0 and makes a context there; returns the scheduler's end. */
int rig_begin(struct nvshare_register *ret_register);

/* The same, and runs: with 100 MiB pageable on the card, and a budget of 200. */
int rig_begin_running(void);

/* Ran, has given 60 of its 100 MiB as it was told, and user waits to run again. */
int rig_begin_waiting(struct user *user);

/* ---- each in a process of its own --------------------------------------------- */

/* 0: it came to its end. The directory is the parent's: it goes however the child ends. */
int rig_run_child(void (*body)(void));
void rig_in_child(void **state);

#define child_test(body)                                                   \
	{                                                                  \
#body, rig_in_child, NULL, NULL, (void *)(uintptr_t)(body) \
	}

#endif
