/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_TOOL_STATUS_H
#define NVS_DAEMON_TOOL_STATUS_H

/*
 * The answer to GET_STATUS, packet by packet.
 *
 * Threading: the loop's.
 */

#include <stdint.h>

struct server;
struct peer;

/* A request of peer has come: its answer begins. flags: NVSHARE_GET_STATUS_*. */
void tool_status_begin(struct server *server, struct peer *peer, uint32_t seq, uint32_t flags);

/* Sends the next packets of the answer, so many a turn; nothing if there is none under way. */
void tool_status_continue(struct server *server, struct peer *peer);

#endif
