/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_STATUS_FILL_H
#define NVS_DAEMON_STATUS_FILL_H

/*
 * Fills in the parts of a status: the node, a GPU, a client. Tools and metrics read the same
 * numbers.
 *
 * Threading: the loop's.
 */

#include "nvshare/protocol.h"

#include <stdbool.h>
#include <stdint.h>

struct server;
struct peer;

void status_fill_node(const struct server *server, struct nvshare_status_node *ret);

/* The pool of host memory. */
void status_fill_pool(const struct server *server, struct nvshare_status_pool *ret);

/* index: of server->gpus, with a total. */
void status_fill_gpu(const struct server *server, uint32_t index, struct nvshare_status_gpu *ret);

/* peer: a client. */
void status_fill_client(const struct server *server, const struct peer *peer,
			struct nvshare_status_client *ret);

/*
 * false: peer, a client, waits for nothing but turns. All clients are looked at once for all
 * requests that have come by now. ticket: of the request (daemon/tools/snapshot.h).
 */
bool status_fill_wait(struct server *server, const struct peer *peer, uint64_t ticket,
		      struct nvshare_status_wait *ret);

#endif
