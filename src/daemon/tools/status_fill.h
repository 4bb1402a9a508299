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

#endif
