/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_GRACE_H
#define NVS_DAEMON_GRACE_H

/*
 * After a restart, running programs come back first. Until the grace ends nobody else is let in,
 * and nobody grows: requests are held. All memory in use until then counts as theirs.
 *
 * Threading: the loop's.
 */

#include "daemon/deadlines.h"

#include <stdbool.h>

struct server;
struct peer;

struct grace {
	struct deadline end; /* not set: there is no grace */
	struct peer *held; /* utlist, peer::prev/next: requests, in the order in which they came */
};

/* The grace begins if another scheduler has left clients behind, and the options want one. */
void grace_init(struct server *server);
bool grace_is_on(const struct server *server);

/* peer asks to run; or it asks to grow, with the report of peer::held_epoch. */
void grace_hold(struct server *server, struct peer *peer, bool is_growing);

/* peer ends. */
void grace_forget(struct server *server, struct peer *peer);

#endif
