/* SPDX-License-Identifier: Apache-2.0 */

/* What others than our clients use of a GPU: asked of NVML, sorted by who is a client. */

#include "daemon/server.h"
#include "util/clock.h"

/* Marks the clients among n found. False: one of GPU index has a pid that nobody knows. */
static bool mark_clients(struct server *server, uint32_t index, uint32_t n)
{
	for (uint32_t i = 0; i < server->slots_used; i++) {
		const struct peer *peer = &server->peers[i];

		if (peer->state != PEER_STATE_CLIENT)
			continue;
		if (peer->cred.pid <= 0 && peer->gpu == index)
			return false;
		outsiders_ours(&server->outsiders, n, (int)peer->cred.pid);
	}
	return true;
}

/* came: of a client that may still be in the list as it was found last. */
static void look(struct server *server, uint32_t index, uint64_t came)
{
	struct gpu *gpu = &server->gpus.at[index];
	struct outsiders_gpu *outside = &server->outsiders.gpus[index];
	uint32_t n;

	if (outside->listed_ns && server->now_ns - outside->listed_ns < OUTSIDERS_PERIOD_NS) {
		gpu->outside = gpu->outside > came ? gpu->outside - came : 0;
		return;
	}
	if (outsiders_begin(&server->outsiders, &server->gpus.nvml, gpu->device, &n) &&
	    mark_clients(server, index, n))
		outsiders_end(&server->outsiders, index, n, server->now_ns);
	else
		outsiders_forget(&server->outsiders, index, server->now_ns);
	gpu->outside = outside->bytes;
}

void measure_wake(struct server *server, uint64_t at_ns)
{
	if (!deadline_is_set(&server->sample))
		deadline_set(&server->deadlines, &server->sample, at_ns);
}

bool measure_gpu(struct server *server, uint32_t index, uint64_t came)
{
	handover_note(server, index);
	if (server->gpus.at[index].device)
		look(server, index, came);
	return gpus_sample(&server->gpus, index, server->now_ns, came);
}

bool measure_is_settled(const struct server *server, uint32_t index)
{
	const struct gpu *gpu = &server->gpus.at[index];

	return !gpu->is_left && gpu->gone == 0;
}

void measure_join(struct server *server, const struct peer *peer)
{
	outsiders_note(&server->outsiders, (int)peer->cred.pid, server->now_ns);
}

/* It is gone before all of its memory is free: that is not other programs'. */
void measure_leave(struct server *server, const struct peer *peer)
{
	struct gpu *gpu = &server->gpus.at[peer->gpu];

	outsiders_note(&server->outsiders, (int)peer->cred.pid, server->now_ns);
	gpus_leave(gpu, &peer->account, server->now_ns);
	if (!gpu->device || deadline_is_set(&server->grace))
		return;
	gpu->is_left = true;
	measure_wake(server, server->now_ns + SERVER_SAMPLE_NS);
}
