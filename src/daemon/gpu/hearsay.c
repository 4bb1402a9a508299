/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/gpu/hearsay.h"

#include "core/u64.h"
#include "daemon/gpu/votes.h"
#include "daemon/server.h"

#include <string.h>
#include <unistd.h>

/*
 * A cost that NVML does not confirm is at most this part of a card, and at most CONTEXT_MAX bytes,
 * if the client was not told more. A library that knows no cost assumes half of it
 * (hook/memory/context_cost.c).
 */
#define CONTEXT_PART 16
#define CONTEXT_MAX  (1ull << 30)

/* newcomer registers on the GPU, and is no client yet; NULL: there is none. */
static bool hearsay_concerns(const struct peer *peer, const struct peer *newcomer, uint32_t gpu)
{
	if (peer->is_closing || peer->gpu != gpu)
		return false;
	return peer->state == PEER_STATE_CLIENT || peer == newcomer;
}

/* true: the GPU has another total now. */
static bool count_total(struct server *server, uint32_t index, const struct peer *newcomer)
{
	struct gpu *gpu = &server->gpus.at[index];
	struct votes roots = {.n = 0}, all = {.n = 0};
	uint64_t total;

	if (gpu->device || server->settings.sizes.n)
		return false;
	for (uint32_t i = 0; i < server->slots_used; i++) {
		const struct peer *peer = &server->peers[i];

		if (!hearsay_concerns(peer, newcomer, index))
			continue;
		votes_most(&all, peer->pod.owner, peer->gpu_total);
		if (users_is_trusted(peer->pod.owner))
			votes_most(&roots, peer->pod.owner, peer->gpu_total);
	}
	total = votes_majority(roots.n ? &roots : &all);
	if (total == 0 || total == gpu->total)
		return false;
	gpu->total = total;
	return true;
}

/* GPUs that NVML lists, or that other users than owner have clients on. */
static void hearsay_find_others(const struct server *server, uint32_t owner,
				bool ret_is_others[SCHED_GPUS_MAX])
{
	memset(ret_is_others, 0, SCHED_GPUS_MAX * sizeof(*ret_is_others));
	for (uint32_t i = 0; i < server->gpus.n; i++)
		ret_is_others[i] = server->gpus.at[i].device != NULL;
	for (uint32_t i = 0; i < server->slots_used; i++) {
		const struct peer *peer = &server->peers[i];

		if (hearsay_concerns(peer, NULL, peer->gpu) && peer->pod.owner != owner)
			ret_is_others[peer->gpu] = true;
	}
}

/* Whether newcomer may bring a GPU that is not listed. One user must not take the places of all. */
static bool hearsay_may_bring(const struct server *server, const struct peer *newcomer,
			      uint32_t index)
{
	const struct gpu *gpu = &server->gpus.at[index];
	bool is_others[SCHED_GPUS_MAX];
	uint32_t n_own = 0, n_others = 0;

	if (gpu->device || gpu->n_clients > 0 || users_is_trusted(newcomer->pod.owner) ||
	    server->settings.sizes.n)
		return true;
	hearsay_find_others(server, newcomer->pod.owner, is_others);
	for (uint32_t i = 0; i < server->gpus.n; i++) {
		n_others += is_others[i];
		n_own += !is_others[i] && server->gpus.at[i].n_clients > 0;
	}
	return n_own < (SCHED_GPUS_MAX - n_others) / 2;
}

bool hearsay_find(struct server *server, struct peer *newcomer, const struct nvshare_register *reg)
{
	uint64_t total = gpus_possible_total(reg->gpu_total_bytes);
	uint32_t index;

	newcomer->gpu_total = total;
	if (server->settings.sizes.n)
		total = sizes_of(&server->settings.sizes, reg->gpu_uuid);
	if (gpus_find(&server->gpus, reg->gpu_uuid, total, server->now_ns, &index))
		return false;
	if (!hearsay_may_bring(server, newcomer, index)) {
		gpus_forget(&server->gpus.at[index]);
		return false;
	}
	newcomer->gpu = index;
	if (count_total(server, index, newcomer))
		server->gpus.at[index].is_resized = true;
	return true;
}

bool hearsay_left(struct server *server, uint32_t index)
{
	struct gpu *gpu = &server->gpus.at[index];

	if (gpu->n_clients > 0)
		return count_total(server, index, NULL);
	if (!gpu->device)
		gpus_forget(gpu);
	return false;
}

static uint64_t hearsay_plausible(const struct gpu *gpu, uint64_t told, uint64_t context_bytes)
{
	uint64_t most = u64_min(gpu->total / CONTEXT_PART, CONTEXT_MAX);

	return u64_min(context_bytes, told > most ? told : most);
}

void hearsay_note_context(const struct server *server, struct peer *peer, uint64_t bytes)
{
	bool is_first = !peer->mem.pinned[NVSHARE_PINNED_CONTEXT];

	/*
	 * Only the first context counts: the cost of several would be taken for the cost of one.
	 * The first report may be what the client expects, so a smaller one takes its place.
	 */
	if (bytes && peer->state == PEER_STATE_CLIENT && (is_first || bytes < peer->context_bytes))
		peer->context_bytes =
			hearsay_plausible(&server->gpus.at[peer->gpu], peer->context_told, bytes);
}

void hearsay_confirm(struct peer *peer, uint64_t most)
{
	peer->context_bytes = u64_min(peer->mem.pinned[NVSHARE_PINNED_CONTEXT], most);
}

uint64_t hearsay_context(const struct server *server, const struct peer *client)
{
	struct votes votes = {.n = 0};
	uint64_t own;

	if (client->context_bytes)
		return client->context_bytes;
	for (uint32_t i = 0; i < server->slots_used; i++) {
		const struct peer *peer = &server->peers[i];

		if (hearsay_concerns(peer, NULL, client->gpu))
			votes_least(&votes, peer->pod.owner, peer->context_bytes);
	}
	own = votes_of(&votes, client->pod.owner);
	return own ? own : votes_median(&votes);
}
