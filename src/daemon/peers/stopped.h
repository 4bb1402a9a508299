/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_STOPPED_H
#define NVS_DAEMON_STOPPED_H

/*
 * Clients whose process is stopped: by a signal, a debugger, or a frozen control group. Others do
 * not wait for them (SCHED_EVENT_PROCESS).
 *
 * Processes are looked at while somebody waits, and when a tool asks. Nobody looks at a node where
 * nobody waits. A client that was found to be stopped is asked for a heartbeat. It answers as soon
 * as it goes on, so nobody looks for that.
 *
 * Threading: the loop's.
 */

#include "daemon/deadlines.h"

#include <stdint.h>

struct server;
struct peer;

struct stopped {
	struct deadline due; /* the next look; not set: nobody waits */
	uint32_t next;       /* slot where it begins */
};

void stopped_init(struct server *server);

/* Somebody waits: from now on processes are looked at each second. */
void stopped_wake(struct server *server);

/* A tool asks: those that have the GPUs are looked at. */
void stopped_look(struct server *server);

/* Clients for which others are about to be stopped, now. */
void stopped_look_ahead(struct server *server);

/* peer has answered a heartbeat. */
void stopped_heard(struct server *server, struct peer *peer);

#endif
