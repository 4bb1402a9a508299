/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_PAUSES_H
#define NVS_DAEMON_PAUSES_H

/*
 * Clients that are kept from running, and for whose sake.
 *
 * Threading: the loop's.
 */

#include <stdbool.h>
#include <stdint.h>

struct server;
struct peer;

/* Bits of peer::pauses. */
enum pause {
	PAUSE_OPERATOR = 1, /* nvsharectl */
	PAUSE_TICKETS = 2,  /* an owner evicts memory that the client has open: daemon/tickets */
};

/*
 * peer, a client, runs as long as nobody pauses it. Its end forgets that. 0, or SCHED_E_STATE: it
 * takes no turns, so nobody can stop it, and nothing has changed.
 */
int pauses_set(struct server *server, struct peer *peer, enum pause who, bool is_on);

#endif
