/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/grace.h"

#include "daemon/client_messages.h"
#include "daemon/gpu/doubts.h"
#include "daemon/server.h"
#include "util/clock.h"
#include "util/log.h"

#include <utlist.h>

bool grace_is_on(const struct server *server)
{
	return deadline_is_set(&server->grace.end);
}

void grace_hold(struct server *server, struct peer *peer, bool is_growing)
{
	if (!peer->is_held)
		DL_APPEND(server->grace.held, peer);
	peer->is_held = true;
	peer->is_growing = is_growing;
}

void grace_forget(struct server *server, struct peer *peer)
{
	if (peer->is_held)
		DL_DELETE(server->grace.held, peer);
	peer->is_held = false;
}

static void grace_on_end(struct server *server, struct deadline *deadline)
{
	struct peer *peer;

	(void)deadline;
	log_info("recovered clients=%u", server->n_clients);
	for (uint32_t i = 0; i < server->gpus.n; i++) {
		measure_end_grace(server, i);
		doubts_wake(server, i);
	}
	job_queue_touch(server);
	while ((peer = server->grace.held)) {
		struct nvshare_mem mem = peer->mem;

		grace_forget(server, peer);
		if (peer->is_closing)
			continue;
		if (peer->is_growing)
			client_messages_grow(server, peer, &mem);
		else
			client_messages_request(server, peer, &mem);
	}
}

void grace_init(struct server *server)
{
	uint64_t grace_ns = server->settings.grace_ns;

	server->grace.end.on_due = grace_on_end;
	if (!server->admission.listener.is_stale || !grace_ns)
		return;
	deadline_set(&server->deadlines, &server->grace.end, server->now_ns + grace_ns);
	log_info("restarted grace_ms=%llu: waiting for clients to come back",
		 (unsigned long long)(grace_ns / CLOCK_NS_PER_MS));
}
