/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Reports of the scheduler inside the process, for status and metrics.
 *
 * No tick is needed but the loop's own. Numbers change when threads submit, and then the agent is
 * awake: the gate has rung, or the meter looks at the work (share_meter.c). One look follows a
 * second after each report, so the last numbers before a pause are told, too. An idle program is
 * left alone: nothing changes there. A start or an end that rings the bell is told at once.
 */

#include "core/u64.h"
#include "hook/agent/agent_private.h"
#include "hook/orion/orion_status.h"
#include "nvshare/orion.h"
#include "util/clock.h"

#include <string.h>

#define ORION_INTERVAL_NS CLOCK_NS_PER_SEC

_Static_assert(NVSHARE_ORION_CLIENTS_MAX >= ORION_CLIENTS_MAX, "the wire takes all clients");

void agent_orion_begin(struct agent_link *link, const struct nvshare_registered *body)
{
	link->takes_orion = body->flags & NVSHARE_REGISTERED_ORION;
	link->orion = (struct nvshare_orion){.n_clients = 0};
	link->orion_ns = 0;
}

/* All zero where no scheduler is started. */
static void orion_read(struct nvshare_orion *ret)
{
	struct orion_status status;

	*ret = (struct nvshare_orion){.n_clients = 0};
	if (!orion_status_read(&status))
		return;
	ret->hp_ops = status.hp_ops;
	ret->be_ops = status.be_ops;
	ret->be_waits = status.be_waits;
	ret->wait_us = status.wait_us;
	ret->n_clients = status.n_clients;
	ret->n_waiting = status.n_waiting;
}

static void link_report_orion(struct agent_link *link, uint64_t now_ns)
{
	struct nvshare_orion body;

	orion_read(&body);
	if (!memcmp(&body, &link->orion, sizeof(body)))
		return;
	link->orion = body;
	link->orion_ns = now_ns + ORION_INTERVAL_NS;
	agent_link_send(link, NVSHARE_MSG_ORION, &body);
}

uint64_t agent_orion_tick(uint64_t now_ns)
{
	uint64_t next_ns = AGENT_NEVER;

	for (struct agent_link *l = agent_link_next(NULL); l; l = agent_link_next(l)) {
		if (l->state != AGENT_LINK_UP || !l->takes_orion)
			continue;
		if (now_ns >= l->orion_ns)
			link_report_orion(l, now_ns);
		if (now_ns < l->orion_ns)
			next_ns = u64_min(next_ns, l->orion_ns);
	}
	return next_ns;
}
