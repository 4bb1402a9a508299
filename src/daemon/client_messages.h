/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_CLIENT_MESSAGES_H
#define NVS_DAEMON_CLIENT_MESSAGES_H

/*
 * A message of a peer becomes an event of the core.
 *
 * Threading: the loop's.
 */

#include "ipc/msg.h"
#include "nvshare/protocol.h"

struct server;
struct peer;

/* msg is decoded, and peer is not closing. A message out of order marks peer as closing. */
void client_messages_handle(struct server *server, struct peer *peer, const struct msg *msg);

/* A request to run that was held, and a request to grow; mem: the client's last report. */
void client_messages_request(struct server *server, struct peer *peer,
			     const struct nvshare_mem *mem);
void client_messages_grow(struct server *server, struct peer *peer, const struct nvshare_mem *mem);

/* Of its contexts, so many bytes are in none of peer's reports: they count from now on. */
void client_messages_contexts(struct server *server, struct peer *peer, uint64_t beyond);

#endif
