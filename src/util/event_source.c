/* SPDX-License-Identifier: Apache-2.0 */
#include "util/event_source.h"

#include "util/fd.h"

#include <errno.h>
#include <stddef.h>

int poller_open(struct poller *poller)
{
	poller->fd = epoll_create1(EPOLL_CLOEXEC);
	return poller->fd < 0 ? -errno : 0;
}

void poller_close(struct poller *poller)
{
	poller->fd = fd_close(poller->fd);
}

int poller_wait(struct poller *poller, struct epoll_event *ret_events, int n_max, int timeout_ms)
{
	int n = epoll_wait(poller->fd, ret_events, n_max, timeout_ms);

	poller->n_polls++;
	if (n < 0)
		return errno == EINTR ? 0 : -errno;
	return n;
}

void poller_dispatch(const struct poller *poller, void *context, const struct epoll_event *event)
{
	struct event_source *source = event->data.ptr;

	if (source->poller == poller && source->changed != poller->n_polls)
		source->on_event(context, source, event->events);
}

static int event_source_control(struct event_source *source, struct poller *poller, int operation,
				uint32_t events)
{
	struct epoll_event event = {.events = events, .data.ptr = source};

	return epoll_ctl(poller->fd, operation, source->fd, &event) < 0 ? -errno : 0;
}

int event_source_add(struct poller *poller, struct event_source *source, int fd, uint32_t events,
		     event_source_fn *on_event)
{
	int r;

	source->fd = fd;
	r = event_source_control(source, poller, EPOLL_CTL_ADD, events);
	if (r)
		return r;
	source->on_event = on_event;
	source->poller = poller;
	source->events = events;
	source->changed = poller->n_polls;
	return 0;
}

int event_source_update(struct event_source *source, uint32_t events)
{
	int r;

	if (events == source->events)
		return 0;
	r = event_source_control(source, source->poller, EPOLL_CTL_MOD, events);
	if (!r)
		source->events = events;
	return r;
}

void event_source_remove(struct event_source *source)
{
	if (!source->poller)
		return;
	(void)event_source_control(source, source->poller, EPOLL_CTL_DEL, 0);
	source->changed = source->poller->n_polls;
	source->poller = NULL;
}
