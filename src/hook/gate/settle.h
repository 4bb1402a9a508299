/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_SETTLE_H
#define NVS_HOOK_SETTLE_H

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

#define SETTLE_MAX 512

/* Of the processor: then a call is through with its arguments. */
#define SETTLE_CPU_NS 200000u

/* Waiting in the kernel for so long, it is not for a page of the driver's own code. */
#define SETTLE_BLOCKED_NS 100000000u

enum settle_state { SETTLE_RUNNABLE, SETTLE_ASLEEP, SETTLE_BLOCKED };

struct settle_sight {
	struct gate_guest guest;
	uint64_t at_ns;
	uint64_t cpu_ns; /* that the thread has had */
	enum settle_state state;
};

struct settle {
	size_t n;
	struct settle_sight first[SETTLE_MAX]; /* as each was seen first, and last */
	struct settle_sight last[SETTLE_MAX];
};

/*
 * All that are inside now; the first look is of a struct of zeroes. true: since the look
 * before nobody came or left, and all have settled.
 */
bool settle_look(struct settle *settle, const struct settle_sight *sights, size_t n);

/* With the gate closed and the program frozen. false: not within limit_ns. Keeps errno. */
bool settle_wait(uint64_t limit_ns);

#endif
