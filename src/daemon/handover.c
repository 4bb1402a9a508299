/* SPDX-License-Identifier: Apache-2.0 */

/* Who may hand its memory to whom, and what is on its way. */

#include "daemon/domain.h"
#include "daemon/server.h"

#include "util/log.h"

#include <string.h>

static bool has_door(const struct peer *peer)
{
	static const struct nvshare_door none;

	return memcmp(&peer->door, &none, sizeof(none)) != 0;
}

static bool read_domain(const struct peer *peer, struct domain *ret)
{
	const struct domain_process process = {peer->cred.pid, peer->pidfd, peer->cred.uid};

	return peer->is_pidfd_sure && domain_read("/proc", &process, ret);
}

/* Looked up each time: a process may have dropped privileges since it was last. */
static bool is_same_domain(const struct peer *from, const struct peer *to)
{
	struct domain a, b;

	return read_domain(from, &a) && read_domain(to, &b) && domain_is_same(&a, &b);
}

static bool may_give(const struct peer *from, const struct peer *to)
{
	return to->state == PEER_STATE_CLIENT && !to->is_closing && from != to &&
	       from->gpu == to->gpu && from->backend == NVSHARE_BACKEND_VMM &&
	       to->backend == NVSHARE_BACKEND_VMM && has_door(to);
}

void handover_order(struct server *server, const struct peer *from, uint32_t to,
		    struct nvshare_drop_lock *drop)
{
	const struct peer *taker = to == SCHED_NONE ? NULL : &server->peers[to];

	if (!taker || !drop->bytes || !may_give(from, taker) || !taker->mem.swapped)
		return;
	if (!is_same_domain(from, taker)) {
		log_debug("handover-refused client=%u to=%u gpu=%u: not of one trust domain",
			  from->id, taker->id, from->gpu);
		return;
	}
	drop->door = taker->door;
	drop->door_bytes = taker->mem.swapped;
	server->gpus.at[from->gpu].taker = to + 1;
	log_debug("handover client=%u to=%u gpu=%u bytes=%llu", from->id, taker->id, from->gpu,
		  (unsigned long long)drop->door_bytes);
}

/*
 * What has left the one is in nobody's report until the other one has it. It is no more
 * than what that one still lacks, and over when it does not come any more.
 */
void handover_note(struct server *server, uint32_t index)
{
	struct gpu *gpu = &server->gpus.at[index];
	const struct peer *taker = gpu->taker ? &server->peers[gpu->taker - 1] : NULL;

	gpu->on_way = 0;
	if (taker && taker->state == PEER_STATE_CLIENT && taker->gpu == index &&
	    sched_client_state(&server->sched, taker->slot) == SCHED_CLIENT_INCOMING)
		gpu->on_way = taker->mem.swapped < gpu->total ? taker->mem.swapped : gpu->total;
	else
		gpu->taker = 0;
}
