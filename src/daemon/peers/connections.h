/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_CONNECTIONS_H
#define NVS_DAEMON_CONNECTIONS_H

/*
 * Connections: what goes over them, and how they end.
 *
 * A peer to be closed is only marked. connections_end() frees it after the batch, so no pointer
 * to a peer becomes invalid while events are handled.
 *
 * Threading: the loop's.
 */

#include "ipc/msg.h"
#include "util/event_source.h"

#include <stdint.h>

struct server;
struct peer;

struct connections {
	struct peer *unsent; /* peer::unsent_next, in the order of their first messages */
	struct peer **unsent_end;
	struct peer *closing; /* peer::closing_next */
};

/* events of epoll have come for peer, which is not closing. */
void connections_handle(struct server *server, struct peer *peer, uint32_t events);
event_source_fn connections_on_event; /* the same, for peer::input */

/*
 * peer has a job, and its process has ended, or the connection ends. How the job has ended is the
 * last thing that a process sends: it is handled, and what else nobody has read is dropped.
 */
void connections_receive_rest(struct server *server, struct peer *peer);

/* Frees the peers that are marked, and those that are marked because of that. */
void connections_end(struct server *server);

/* epoll watches for what peer needs now. One that is late, and reads again, is told (host.h). */
void connections_update(struct server *server, struct peer *peer);

/* peer is a tool from now on. */
void connections_to_tools(struct server *server, struct peer *peer);

/* Sends a message, or queues it. A peer that cannot take it is marked as closing. */
void server_send(struct server *server, struct peer *peer, const struct msg *msg);
void server_send_body(struct server *server, struct peer *peer, uint16_t type, uint32_t seq,
		      const void *body);

/* Queues a message. All messages for one peer leave together, at server_flush(). */
void server_queue_body(struct server *server, struct peer *peer, uint16_t type, const void *body);
void server_flush(struct server *server);

/* Marks peer. reason: for the log; NULL: none. */
void server_close(struct server *server, struct peer *peer, const char *reason);

#endif
