/* SPDX-License-Identifier: Apache-2.0 */
#include "k8s/loop.h"

#include "util/clock.h"
#include "util/fd.h"

#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <utlist.h>

#define EVENTS_A_ROUND 64

int loop_open(struct loop *loop)
{
	loop->fd = epoll_create1(EPOLL_CLOEXEC);
	loop->now_ns = clock_now_ns();
	return loop->fd < 0 ? -errno : 0;
}

void loop_close(struct loop *loop)
{
	loop->fd = fd_close(loop->fd);
}

static int loop_control(struct loop *loop, struct loop_source *source, int operation,
			uint32_t events)
{
	struct epoll_event event = {.events = events, .data.ptr = source};

	return epoll_ctl(loop->fd, operation, source->fd, &event) < 0 ? -errno : 0;
}

int loop_add(struct loop *loop, struct loop_source *source, int fd, uint32_t events,
	     loop_event_fn *on_event)
{
	int r;

	source->fd = fd;
	r = loop_control(loop, source, EPOLL_CTL_ADD, events);
	if (r)
		return r;
	source->on_event = on_event;
	source->loop = loop;
	source->events = events;
	source->changed = loop->n_polls;
	return 0;
}

int loop_update(struct loop_source *source, uint32_t events)
{
	int r;

	if (events == source->events)
		return 0;
	r = loop_control(source->loop, source, EPOLL_CTL_MOD, events);
	if (!r)
		source->events = events;
	return r;
}

void loop_remove(struct loop_source *source)
{
	if (!source->loop)
		return;
	(void)loop_control(source->loop, source, EPOLL_CTL_DEL, 0);
	source->changed = source->loop->n_polls;
	source->loop = NULL;
}

void loop_timer_set(struct loop *loop, struct loop_timer *timer, uint64_t due_ns)
{
	loop_timer_clear(timer);
	if (due_ns == UINT64_MAX)
		return;
	timer->due_ns = due_ns;
	timer->loop = loop;
	DL_APPEND(loop->timers, timer);
}

void loop_timer_clear(struct loop_timer *timer)
{
	if (!timer->loop)
		return;
	DL_DELETE(timer->loop->timers, timer);
	timer->loop = NULL;
}

/* There are a few dozen timers at most, so a list needs no order. NULL: none is set. */
static struct loop_timer *loop_first_timer(const struct loop *loop)
{
	struct loop_timer *first = NULL, *timer;

	DL_FOREACH (loop->timers, timer) {
		if (!first || timer->due_ns < first->due_ns)
			first = timer;
	}
	return first;
}

/* Rounded up: a wait that ends too early would be followed by rounds that do nothing. */
static int loop_timeout_ms(const struct loop *loop)
{
	const struct loop_timer *first = loop_first_timer(loop);
	uint64_t now_ns = clock_now_ns(), ms;

	if (!first)
		return -1;
	if (first->due_ns <= now_ns)
		return 0;
	ms = (first->due_ns - now_ns + CLOCK_NS_PER_MS - 1) / CLOCK_NS_PER_MS;
	return ms < INT_MAX ? (int)ms : INT_MAX;
}

int loop_round(struct loop *loop)
{
	struct epoll_event events[EVENTS_A_ROUND];
	struct loop_timer *timer;
	int n = epoll_wait(loop->fd, events, EVENTS_A_ROUND, loop_timeout_ms(loop));

	if (n < 0 && errno != EINTR)
		return -errno;
	loop->n_polls++;
	loop->now_ns = clock_now_ns();
	for (int i = 0; i < n; i++) {
		struct loop_source *source = events[i].data.ptr;

		if (source->loop && source->changed != loop->n_polls)
			source->on_event(source, events[i].events);
	}
	/* A timer that is set anew by its callback is due in a later round. */
	while ((timer = loop_first_timer(loop)) && timer->due_ns <= loop->now_ns) {
		loop_timer_clear(timer);
		timer->on_due(timer);
	}
	return 0;
}
