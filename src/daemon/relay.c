/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/relay.h"

#include "daemon/dispatch.h"
#include "daemon/server.h"

#include <assert.h>

_Static_assert(RELAY_MAX >= 2 * (2 * SCHED_ACTIONS_MAX + 2) + 1, "two steps and a use");

void relay_push(struct relay *relay, enum relay_kind kind, uint32_t client, uint64_t gpu_ns)
{
	assert(relay->n < RELAY_MAX);
	relay->at[(relay->first + relay->n++) % RELAY_MAX] =
		(struct relay_event){kind, client, gpu_ns};
}

void relay_push_actions(struct relay *relay, uint32_t client, const struct sched_actions *actions)
{
	relay_push(relay, RELAY_STOP, client, 0);
	for (uint32_t i = 0; i < actions->n; i++)
		relay_push(relay, RELAY_STOP, actions->at[i].client, 0);
	for (uint32_t i = 0; i < actions->n; i++)
		relay_push(relay, RELAY_RUN, actions->at[i].client, 0);
	relay_push(relay, RELAY_RUN, client, 0);
}

static void relay_step(struct server *server, const struct relay_event *event)
{
	struct peer *peer = &server->peers[event->client];

	switch (event->kind) {
	case RELAY_STOP:
		shares_stop(server, peer);
		break;
	case RELAY_RUN:
		shares_follow(server, peer);
		break;
	case RELAY_USED:
		dispatch_used(server, peer, event->gpu_ns);
		break;
	}
}

void relay_drain(struct server *server)
{
	struct relay *relay = &server->relay;

	if (relay->is_draining)
		return;
	relay->is_draining = true;
	while (relay->n) {
		struct relay_event event = relay->at[relay->first];

		relay->first = (relay->first + 1) % RELAY_MAX;
		relay->n--;
		relay_step(server, &event);
	}
	relay->is_draining = false;
}
