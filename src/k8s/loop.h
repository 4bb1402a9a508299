/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_K8S_LOOP_H
#define NVS_K8S_LOOP_H

/*
 * The plugin's one loop: descriptors and timers. A source or timer is a struct embedded in its
 * owner, and the callback finds the owner by container_of(). A loop without timers sleeps until a
 * descriptor is ready.
 *
 * A callback may add and remove any source or timer. The memory of a source outlives the round in
 * which the source is removed. An event is dropped if its source was added or removed since the
 * poll that returned it.
 *
 * Ownership: the owner keeps fd open while it is watched, and closes it after loop_remove().
 * Threading: none.
 */

#include <stdint.h>
#include <sys/epoll.h>

struct loop_source;
struct loop_timer;

struct loop {
	int fd;
	uint64_t n_polls;
	uint64_t now_ns; /* of the round */
	struct loop_timer *timers;
};

/* events: of epoll. */
typedef void loop_event_fn(struct loop_source *source, uint32_t events);
typedef void loop_due_fn(struct loop_timer *timer);

/* Zeroed: not watched. */
struct loop_source {
	loop_event_fn *on_event;
	struct loop *loop; /* NULL: not watched */
	int fd;
	uint32_t events;
	uint64_t changed; /* loop::n_polls when the source was added or removed last */
};

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

/* source: not watched. 0, or -errno: it is still not watched. */
int loop_add(struct loop *loop, struct loop_source *source, int fd, uint32_t events,
	     loop_event_fn *on_event);

/* Watches for other events from now on. 0, or -errno: nothing changes. */
int loop_update(struct loop_source *source, uint32_t events);

/* Nothing happens if source is not watched. */
void loop_remove(struct loop_source *source);

/* Sets the timer, or sets it anew. UINT64_MAX: the same as loop_timer_clear(). */
void loop_timer_set(struct loop *loop, struct loop_timer *timer, uint64_t due_ns);
void loop_timer_clear(struct loop_timer *timer);

#endif
