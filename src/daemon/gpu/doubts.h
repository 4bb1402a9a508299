/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_DOUBTS_H
#define NVS_DAEMON_DOUBTS_H

/*
 * Reports that NVML does not confirm (daemon/gpu/evidence.h). Doubted bytes are in no sum of the
 * GPU, and the core does not charge them. The client is not told. Nor is it told of bytes that its
 * process has beyond its report, which count for it as its contexts'.
 *
 * Threading: the loop's. Calls into NVML may block.
 */

#include "daemon/gpu/gpus.h"

#include <stdint.h>

struct server;
struct peer;
struct doubts;

/* server->doubts. 0 or -ENOMEM. */
int doubts_init(struct server *server);
void doubts_deinit(struct server *server);

/*
 * peer, whose account was before, has reported. The report is accounted, but the core does not
 * know of it yet.
 */
void doubts_hear(struct server *server, struct peer *peer, const struct memory_account *before);

/* The contexts that peer reports have changed: what they cost in truth is found out soon. */
void doubts_contexts(struct server *server, struct peer *peer);

/* Somebody waits on GPU index, or was refused: all its clients are compared soon. */
void doubts_wake(struct server *server, uint32_t index);

#endif
