/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_HANDOVER_H
#define NVS_DAEMON_HANDOVER_H

/*
 * Which client may hand its memory to which, and what is on its way. Both must be of one trust
 * domain (daemon/peers/domain.h).
 *
 * Threading: the loop's. Reads /proc.
 */

#include "nvshare/protocol.h"

#include <stdbool.h>
#include <stdint.h>

struct server;
struct peer;

/*
 * Sends drop to from, and introduces from to the client in slot to (SCHED_NONE: there is none).
 * false: from may not hand memory to that client, or it failed; from got no message.
 */
bool handover_drop(struct server *server, struct peer *from, uint32_t to,
		   const struct nvshare_drop_lock *drop);

/*
 * Before GPU index is measured: what may be on its way there (gpu::on_way). except: a client that
 * takes nothing over any more; NULL: none.
 */
void handover_note(struct server *server, uint32_t index, const struct peer *except);

#endif
