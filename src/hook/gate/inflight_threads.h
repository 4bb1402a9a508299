/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_INFLIGHT_THREADS_H
#define NVS_HOOK_INFLIGHT_THREADS_H

/*
 * Waits until the threads between gate and driver are harmless to an eviction.
 *
 * A preempted thread may be about to pass an address to the driver. If an eviction unmapped the
 * memory first, the program would get an error. So nothing is unmapped until each thread inside
 * has settled. A thread has settled when it
 *
 * - has left the gate, or
 * - has had more CPU time than a call needs until the driver knows its addresses, or
 * - sleeps: in the driver, then, waiting for work that is frozen.
 *
 * A thread that walks through a graph has to leave, because the driver looks addresses up until the
 * call returns. The rules hold for marked threads, too (gate_mark()): one that sleeps has the
 * driver's lock already, and the pager's probe finds that.
 *
 * Threading: the agent's thread alone.
 */

#include "hook/gate/gate.h"

#define INFLIGHT_MAX 512

/* After so much CPU time a call has passed its arguments. */
#define INFLIGHT_CPU_NS 200000u

/* A thread that is blocked in the kernel for so long does not wait for a page of the driver's code.
 */
#define INFLIGHT_BLOCKED_NS 100000000u

enum inflight_state { INFLIGHT_RUNNABLE, INFLIGHT_ASLEEP, INFLIGHT_BLOCKED };

struct inflight_sight {
	struct gate_guest guest;
	uint64_t at_ns;
	uint64_t cpu_ns; /* CPU time of the thread so far */
	enum inflight_state state;
};

struct inflight_threads {
	size_t n;
	struct inflight_sight first[INFLIGHT_MAX]; /* how each was seen first */
	struct inflight_sight last[INFLIGHT_MAX];  /* how each was seen last */
};

/*
 * sights: the n threads inside now. threads: all zero before the first look. true: all have
 * settled, and since the look before no thread came or left.
 */
bool inflight_look(struct inflight_threads *threads, const struct inflight_sight *sights, size_t n);

/* Call it with the gate closed and the program frozen. false: not within limit_ns. Keeps errno. */
bool inflight_wait(uint64_t limit_ns);

#endif
