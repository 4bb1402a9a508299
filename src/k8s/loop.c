/* SPDX-License-Identifier: Apache-2.0 */
#include "k8s/loop.h"

#include "util/clock.h"

#include <limits.h>
#include <stddef.h>
#include <utlist.h>

#define EVENTS_A_ROUND 64

int loop_open(struct loop *loop)
{
	loop->now_ns = clock_now_ns();
	return poller_open(&loop->poller);
}

void loop_close(struct loop *loop)
{
	poller_close(&loop->poller);
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
	int n = poller_wait(&loop->poller, events, EVENTS_A_ROUND, loop_timeout_ms(loop));

	if (n < 0)
		return n;
	loop->now_ns = clock_now_ns();
	for (int i = 0; i < n; i++)
		poller_dispatch(&loop->poller, NULL, &events[i]);
	/* A timer that is set anew by its callback is due in a later round. */
	while ((timer = loop_first_timer(loop)) && timer->due_ns <= loop->now_ns) {
		loop_timer_clear(timer);
		timer->on_due(timer);
	}
	return 0;
}
