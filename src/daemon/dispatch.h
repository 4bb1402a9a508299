/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_DISPATCH_H
#define NVS_DAEMON_DISPATCH_H

/*
 * Events of core/sched: each is one step of the core, and its actions are carried out.
 *
 * Threading: the loop's.
 */

#include "core/sched.h"

#include <stdint.h>

struct server;
struct peer;

void dispatch_init(struct server *server);

/*
 * Steps the core with event, whose now_ns is filled in. The messages of its actions leave before
 * dispatch_event() returns. Timeshare hears of it by the relay (daemon/relay.h).
 * 0 or SCHED_E_*: nothing has changed. Not for use in the middle of another step.
 */
int dispatch_event(struct server *server, struct sched_event *event);

/*
 * The same in two parts, for a caller with something to do in between. peer is the one that
 * caused the actions.
 */
int dispatch_step(struct server *server, struct sched_event *event,
		  struct sched_actions *ret_actions);
void dispatch_perform(struct server *server, struct peer *peer,
		      const struct sched_actions *actions);

/* peer has used the GPU for gpu_ns more. */
void dispatch_used(struct server *server, const struct peer *peer, uint64_t gpu_ns);

/* peer ends: it leaves the core, and all sums that it is in. */
void dispatch_gone(struct server *server, struct peer *peer);

#endif
