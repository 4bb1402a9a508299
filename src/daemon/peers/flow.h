/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_FLOW_H
#define NVS_DAEMON_FLOW_H

/*
 * How much peers may cause: lines in the log, and messages (daemon/peers/quota.h).
 *
 * Threading: the loop's.
 */

#include "daemon/deadlines.h"
#include "daemon/peers/quota.h"
#include "util/log.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct server;
struct peer;

struct flow {
	struct quota quota;
	struct deadline report; /* suppressed lines are told */
	struct peer *paused;    /* utlist, peer::paused_prev/next: the first is resumed first */
	uint32_t n_paused;
	struct deadline resume; /* the first of paused is read again */
};

/* Before all others: it may be asked for a line. */
void flow_init(struct server *server);

/*
 * Whether a line that a peer of uid caused (QUOTA_NOBODY: its user is not known) may be logged
 * now. Suppressed lines are counted. server_log() asks, and logs.
 */
bool server_may_log(struct server *server, uid_t uid, enum log_level level);
#define server_log(server, uid, level, ...) \
	(server_may_log((server), (uid), (level)) ? log_write((level), __VA_ARGS__) : (void)0)

/* Tells of the suppressed lines that are due; is_last: of all. */
void flow_report(struct server *server, bool is_last);

/*
 * Whether peer may be read now. false: peer is paused; it stays connected, its messages wait in
 * the socket, and the loop reads it later.
 */
bool flow_admit(struct server *server, struct peer *peer);

/* The user of peer pays for n messages (of a tool: packets) more. */
void flow_charge(struct server *server, struct peer *peer, uint32_t n);

/* peer ends. */
void flow_forget(struct server *server, struct peer *peer);

#endif
