/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_ACTIONS_H
#define NVS_DAEMON_ACTIONS_H

/*
 * Actions of core/sched become messages to clients, and lines in the log.
 *
 * Threading: the loop's.
 */

#include "core/sched.h"
#include "daemon/deadlines.h"

struct server;

struct actions {
	/* By GPU: a GPU that is still overcommitted then is named in the log. */
	struct deadline overcommitted[SCHED_GPUS_MAX];
};

void actions_init(struct server *server);

/*
 * Carries the actions of one step out, in order. All messages have left, or wait in the queues of
 * their peers, when it returns. A peer that does not read is marked as closing.
 */
void actions_perform(struct server *server, const struct sched_actions *actions);

struct peer;

/* Unless a heartbeat of peer is unanswered. */
void actions_ask_beat(struct server *server, struct peer *peer);

/* The name of an enum nvshare_outcome, for the log. */
const char *actions_outcome(uint64_t outcome);

#endif
