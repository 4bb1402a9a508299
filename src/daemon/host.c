/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/host.h"

#include "core/u64.h"
#include "daemon/server.h"
#include "util/log.h"

/* Clients alone have host memory, and hear of it. */
static bool host_has(const struct peer *peer)
{
	return peer->state == PEER_STATE_CLIENT && !peer->is_closing;
}

/* Its queue is kept for other messages: one that does not read at the moment is told later. */
static void host_tell_peer(struct server *server, struct peer *peer)
{
	const struct nvshare_host_memory now = {
		.others = server->host.bytes - peer->mem.host + lending_bytes(server),
		.wanted = server->host.wanted - peer->mem.host_wanted,
	};
	bool counts_others = peer->is_host_taker || peer->mem.host_wanted;
	bool is_news = now.wanted != peer->host.wanted ||
		       (counts_others && now.others != peer->host.others);

	if (!is_news)
		return;
	peer->is_host_late = peer->queue_len;
	if (peer->is_host_late)
		return;
	peer->host = now;
	server_send_body(server, peer, NVSHARE_MSG_HOST_MEMORY, 0, &now);
	log_debug("host-memory client=%u others=%llu wanted=%llu", peer->id,
		  (unsigned long long)now.others, (unsigned long long)now.wanted);
}

void host_in(struct server *server, struct peer *peer)
{
	uint64_t total = server->gpus.at[peer->gpu].total;

	/*
	 * Not more than a card can have gone to host memory. Numbers from strangers must not add
	 * up beyond that.
	 */
	peer->mem.host = u64_min(peer->mem.host, total);
	peer->mem.host_wanted = u64_min(peer->mem.host_wanted, total);
	peer->mem.pager_context = u64_min(peer->mem.pager_context, total);
	server->host.bytes += peer->mem.host;
	server->host.wanted += peer->mem.host_wanted;
	if (server->host.bytes != server->host.bytes_before ||
	    server->host.wanted != server->host.wanted_before)
		server->host.is_news = true;
}

void host_reads(struct server *server, struct peer *peer)
{
	peer->is_host_late = false;
	peer->host_next = server->host.ready;
	server->host.ready = peer;
}

/* No slot is used again between host_reads() and this, so a peer that has left is still there. */
void host_tell(struct server *server)
{
	struct peer *ready = server->host.ready;

	server->host.ready = NULL;
	for (; ready; ready = ready->host_next) {
		if (host_has(ready))
			host_tell_peer(server, ready);
	}
	if (!server->host.is_news)
		return;
	lending_update(server);
	server->host.is_news = false;
	for (uint32_t i = 0; i < server->slots_used; i++) {
		if (host_has(&server->peers[i]))
			host_tell_peer(server, &server->peers[i]);
	}
}

uint64_t host_others(const struct server *server, struct peer *peer, bool is_taker)
{
	peer->is_host_taker = is_taker;
	peer->host.others = server->host.bytes - peer->mem.host + lending_bytes(server);
	return peer->host.others;
}

void host_out(struct server *server, const struct peer *peer)
{
	server->host.bytes_before = server->host.bytes;
	server->host.wanted_before = server->host.wanted;
	server->host.bytes -= peer->mem.host;
	server->host.wanted -= peer->mem.host_wanted;
}

/* Managed memory lies in host memory itself. The part that is not evicted stays there. */
static uint64_t host_staying(const struct peer *peer)
{
	if (peer->backend != NVSHARE_BACKEND_MANAGED)
		return 0;
	return peer->mem.host - u64_min(peer->mem.host, peer->mem.swapped);
}

/*
 * Counts host memory that is not in use, less what others lack already. All host memory of the
 * incoming client counts, because its evicted bytes come in meanwhile.
 */
uint64_t host_coming(const struct server *server, const struct peer *from, uint32_t to)
{
	uint64_t lacked = server->host.wanted - from->mem.host_wanted;
	uint64_t bytes = lending_coming_bytes(server, from->slot, to);

	for (uint32_t i = 0; i < server->slots_used; i++) {
		const struct peer *peer = &server->peers[i];

		if (peer == from || !host_has(peer))
			continue;
		bytes += peer->mem.host - host_staying(peer);
		if (i != to)
			bytes -= u64_min(peer->mem.host, peer->mem.swapped);
	}
	return bytes - u64_min(bytes, lacked);
}
