/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_EVENTS_H
#define NVS_DAEMON_EVENTS_H

/*
 * The last events of GPUs and clients that an operator should know: for tools that ask, tools that
 * wait, and the alert command (daemon/tools/alerts.h).
 *
 * A tool asks for the first event behind a number that it has seen. So a tool that does not read
 * costs nothing, and one that is too slow hears how many events it has missed. Tools that wait are
 * answered a few a round.
 *
 * A user's clients, and the programs of all users together, have a rate (QUOTA_EVENTS). So they
 * cannot push the events of others out of the ring.
 *
 * Threading: the loop's.
 */

#include "daemon/deadlines.h"
#include "nvshare/protocol.h"

#include <stdint.h>

struct server;
struct peer;

#define EVENTS_MAX  256 /* older ones are forgotten */
#define EVENTS_NONE UINT32_MAX

struct events {
	uint64_t last_id;
	uint64_t n[NVSHARE_EVENT_COUNT];     /* so far, by type */
	struct nvshare_event at[EVENTS_MAX]; /* by id, a ring */
	struct peer *waiting; /* utlist, peer::event_prev/next; who has seen most is last */
	struct deadline due;  /* one that waits can be answered */
};

void events_init(struct server *server);

/* Of GPU index, or EVENTS_NONE. xid: 0: none. A GPU_XID is dropped beyond its rate. */
__attribute__((format(printf, 6, 7))) void events_add_gpu(struct server *server,
							  enum nvshare_event_type type,
							  enum nvshare_event_level level,
							  uint32_t index, uint32_t xid,
							  const char *format, ...);

/* Of a client. Dropped beyond its user's rate. */
__attribute__((format(printf, 5, 6))) void events_add_client(struct server *server,
							     enum nvshare_event_type type,
							     enum nvshare_event_level level,
							     const struct peer *peer,
							     const char *format, ...);

/* A request of peer, a tool. It is answered at once, or by the next event. */
void events_ask(struct server *server, struct peer *peer, uint32_t seq,
		const struct nvshare_get_events *request);

/* peer ends. */
void events_forget(struct server *server, struct peer *peer);

#endif
