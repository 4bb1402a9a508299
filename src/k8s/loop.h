/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_K8S_LOOP_H
#define NVS_K8S_LOOP_H

/*
 * The plugin's one loop: sources of util/event_source.h, and timers. A timer is a struct embedded
 * in its owner, and the callback finds the owner by container_of(). A loop without timers sleeps
 * until a descriptor is ready.
 *
 * A callback may add and remove any source or timer. Sources are dispatched without a context.
 *
 * Threading: none.
 */

#include "util/event_source.h"

#include <stdint.h>

struct loop_timer;

struct loop {
	struct poller poller;
	uint64_t now_ns; /* of the round */
	struct loop_timer *timers;
};

typedef void loop_due_fn(struct loop_timer *timer);

/* Zeroed, but for on_due: not set. */
struct loop_timer {
	loop_due_fn *on_due;
	struct loop *loop; /* NULL: not set */
	uint64_t due_ns;
	struct loop_timer *prev, *next; /* loop::timers */
};

/* 0 or -errno. loop: zeroed. */
int loop_open(struct loop *loop);
void loop_close(struct loop *loop);

/* Waits for events or the next timer, and calls them. 0 or -errno. */
int loop_round(struct loop *loop);

/* Sets the timer, or sets it anew. UINT64_MAX: the same as loop_timer_clear(). */
void loop_timer_set(struct loop *loop, struct loop_timer *timer, uint64_t due_ns);
void loop_timer_clear(struct loop_timer *timer);

#endif
