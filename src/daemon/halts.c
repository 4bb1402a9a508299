/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/halts.h"

#include "daemon/server.h"
#include "daemon/tickets/ticket_work.h"
#include "util/log.h"

/* One word for why the client is not frozen. The status tells more. */
static const char *halts_drain_reason(uint32_t halt)
{
	static const char *const names[NVSHARE_HALT_COUNT] = {
		[NVSHARE_HALT_OFF] = "off",           [NVSHARE_HALT_INJECTED] = "injected",
		[NVSHARE_HALT_TRACED] = "traced",     [NVSHARE_HALT_MPS] = "mps",
		[NVSHARE_HALT_COHERENT] = "coherent", [NVSHARE_HALT_CONFIDENTIAL] = "confidential",
		[NVSHARE_HALT_DRIVER] = "driver",     [NVSHARE_HALT_UNPROVEN] = "unproven",
		[NVSHARE_HALT_CHANNELS] = "channels", [NVSHARE_HALT_FAILED] = "failed",
		[NVSHARE_HALT_MANAGED] = "managed",   [NVSHARE_HALT_NO_ROOM] = "no-room",
		[NVSHARE_HALT_CONTEXTS] = "contexts",
	};

	return halt < NVSHARE_HALT_COUNT && names[halt] ? names[halt] : "unknown";
}

static const char *halts_stay_reason(uint32_t flags)
{
	if (flags & NVSHARE_REPORT_BYPASS)
		return "bypass";
	return flags & NVSHARE_REPORT_RDMA ? "rdma" : "no-proc";
}

void halts_note(struct server *server, struct peer *peer, uint32_t halt, uint32_t flags)
{
	uint32_t stays = flags & ~(peer->report_flags | NVSHARE_REPORT_RESTS);
	bool is_news;

	if (halt == NVSHARE_HALT_NO_ROOM && peer->is_second_limited)
		halt = NVSHARE_HALT_CONTEXTS;
	is_news = halt != peer->halt && halt != NVSHARE_HALT_UNKNOWN;

	peer->halt = halt;
	peer->report_flags = flags;
	ticket_work_changed(server, peer);
	if (stays)
		server_log(server, peer->pod.owner, LOG_LEVEL_INFO,
			   "stays client=%u gpu=%u reason=%s", peer->id, peer->gpu,
			   halts_stay_reason(stays));
	if (!is_news || !server_may_log(server, peer->pod.owner, LOG_LEVEL_INFO))
		return;
	if (halt == NVSHARE_HALT_FREEZE)
		log_info("stops client=%u gpu=%u by=freezing", peer->id, peer->gpu);
	else
		log_info("stops client=%u gpu=%u by=draining reason=%s", peer->id, peer->gpu,
			 halts_drain_reason(halt));
}

enum sched_stops halts_stops(uint32_t halt)
{
	if (halt == NVSHARE_HALT_UNKNOWN)
		return SCHED_STOPS_AS_BEFORE;
	return halt == NVSHARE_HALT_FREEZE ? SCHED_STOPS_FREEZING : SCHED_STOPS_DRAINING;
}
