/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_UTIL_EVENT_SOURCE_H
#define NVS_UTIL_EVENT_SOURCE_H

/*
 * Descriptors that a daemon's loop watches. A new source is a struct embedded in its owner, and one
 * call of event_source_add(). The callback finds the owner by container_of().
 *
 * An event holds a pointer to its source. Two rules keep that pointer safe:
 *
 *  1. The memory of a source outlives the batch in which the source is removed.
 *  2. An event is dropped if its source was removed or added after the poll that returned it. So
 *     an owner that takes the place of another one gets no event of that one.
 *
 * A poller is itself a descriptor, so a source of one poller can be another poller.
 *
 * Ownership: the owner keeps fd open while it is watched, and closes it after
 * event_source_remove(). Threading: none.
 */

#include <stdint.h>
#include <sys/epoll.h>

struct event_source;

struct poller {
	int fd;
	uint64_t n_polls;
};

/* context: poller_dispatch()'s. events: of epoll. It may add and remove any source, also its own.
 */
typedef void event_source_fn(void *context, struct event_source *source, uint32_t events);

/* Zeroed: not watched. */
struct event_source {
	event_source_fn *on_event;
	struct poller *poller; /* NULL: not watched */
	int fd;
	uint32_t events;  /* of epoll, as watched for */
	uint64_t changed; /* poller::n_polls when the source was added or removed last */
};

/* 0 or -errno. poller: zeroed. */
int poller_open(struct poller *poller);
void poller_close(struct poller *poller);

/* The number of events; 0 after a signal, or -errno. timeout_ms: -1: none. */
int poller_wait(struct poller *poller, struct epoll_event *ret_events, int n_max, int timeout_ms);

/* Calls the source of an event that the last poller_wait() returned. */
void poller_dispatch(const struct poller *poller, void *context, const struct epoll_event *event);

/* source: not watched. 0, or -errno: it is still not watched. */
int event_source_add(struct poller *poller, struct event_source *source, int fd, uint32_t events,
		     event_source_fn *on_event);

/* Watches for other events from now on. 0, or -errno: nothing changes. */
int event_source_update(struct event_source *source, uint32_t events);

/* Nothing happens if source is not watched. */
void event_source_remove(struct event_source *source);

#endif
