/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_TOOLS_H
#define NVS_DAEMON_TOOLS_H

/*
 * Requests of tools.
 *
 * Tools have an epoll of their own inside the loop's. A round of the loop handles the clients'
 * events first, then one event of one tool. So a client waits for one part of one tool's answer
 * at most.
 *
 * Threading: the loop's.
 */

#include "core/sched.h"
#include "daemon/tools/snapshot.h"
#include "ipc/msg.h"
#include "nvshare/protocol.h"
#include "util/event_source.h"

#include <stdbool.h>
#include <stdint.h>

struct server;
struct peer;

struct tools {
	struct poller poller;
	struct event_source source; /* poller */
	bool is_ready;              /* in this round */
	struct snapshot snapshot;
	uint64_t n_asked; /* snapshot's, when blockers were found */
	struct sched_blockers blockers[SCHED_GPUS_MAX];
};

/* 0 or -errno. */
int tools_open(struct server *server);

/* One event of one tool, if there is one. The others stay ready for the next rounds. */
void tools_serve(struct server *server);

/* msg is a request of peer, a tool. A status is made while it is read (daemon/tools/tool_status.h).
 */
void tools_message(struct server *server, struct peer *peer, const struct msg *msg);

/* One RESULT, and a line in the log. */
__attribute__((format(printf, 5, 6))) void tools_answer(struct server *server, struct peer *peer,
							uint32_t seq, enum nvshare_result code,
							const char *format, ...);

#endif
