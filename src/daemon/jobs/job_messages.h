/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_JOB_MESSAGES_H
#define NVS_DAEMON_JOB_MESSAGES_H

/*
 * Requests of tools that concern jobs.
 *
 * Threading: the loop's.
 */

#include "ipc/msg.h"

#include <stdbool.h>
#include <stdint.h>

struct peer;
struct peer_cursor;
struct server;

/* Whether type is such a request. */
bool job_messages_has(uint16_t type);

/* peer gets its answer, now or in the turns of tools. */
void job_messages_handle(struct server *server, struct peer *peer, const struct msg *msg);

/*
 * The next packet of a list of jobs: cursor is in PEER_STAGE_JOBS to PEER_STAGE_QUEUE. false: all
 * slots of this turn are looked at.
 */
bool job_messages_next(struct server *server, struct peer_cursor *cursor, struct msg *ret_msg);

#endif
