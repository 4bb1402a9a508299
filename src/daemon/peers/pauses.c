/* SPDX-License-Identifier: Apache-2.0 */

#include "daemon/peers/pauses.h"

#include "daemon/dispatch.h"
#include "daemon/peers/peer.h"
#include "daemon/server.h"

int pauses_set(struct server *server, struct peer *peer, enum pause who, bool is_on)
{
	uint32_t pauses = is_on ? peer->pauses | who : peer->pauses & ~(uint32_t)who;
	struct sched_event event = {
		.type = SCHED_EVENT_PAUSE,
		.client = peer->slot,
		.is_paused = pauses != 0,
	};
	int r = dispatch_event(server, &event);

	if (!r)
		peer->pauses = pauses;
	return r;
}
