/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_INFLIGHT_THREADS_H
#define NVS_HOOK_INFLIGHT_THREADS_H

/*
 * Who was inside the gate when the program was frozen may be kept off the processor before
 * its call has come to the driver, which then looks addresses up that an eviction has
 * unmapped, and the program gets an error. So nothing is unmapped until every thread inside
 * has left, or has had the processor for longer than a call takes to that point, or sleeps:
 * in the driver, that is, for work that does not go on. Who walks through a graph looks addresses
 * up to the end, and waits for no work: it has to leave. The same holds for who was about
 * to take a lock of the driver's and to wait for the GPU with it (gate_mark()): one that
 * sleeps has it already, and the pager's probe finds it.
 *
 * Threading: the agent's thread alone.
 */

#include "hook/gate/gate.h"

#define INFLIGHT_MAX 512

/* Of the processor: then a call is through with its arguments. */
#define INFLIGHT_CPU_NS 200000u

/* Waiting in the kernel for so long, it is not for a page of the driver's own code. */
#define INFLIGHT_BLOCKED_NS 100000000u

enum inflight_state { INFLIGHT_RUNNABLE, INFLIGHT_ASLEEP, INFLIGHT_BLOCKED };

struct inflight_sight {
	struct gate_guest guest;
	uint64_t at_ns;
	uint64_t cpu_ns; /* that the thread has had */
	enum inflight_state state;
};

struct inflight_threads {
	size_t n;
	struct inflight_sight first[INFLIGHT_MAX]; /* as each was seen first, and last */
	struct inflight_sight last[INFLIGHT_MAX];
};

/*
 * All that are inside now; the first look is of a struct of zeroes. true: since the look
 * before nobody came or left, and all have settled.
 */
bool inflight_look(struct inflight_threads *settle, const struct inflight_sight *sights, size_t n);

/* With the gate closed and the program frozen. false: not within limit_ns. Keeps errno. */
bool inflight_wait(uint64_t limit_ns);

#endif
