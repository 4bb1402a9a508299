/* SPDX-License-Identifier: Apache-2.0 */
#include "k8s/gpu_load.h"

#include "ipc/names.h"

#include <stdio.h>
#include <string.h>

static struct gpu_load *gpu_loads_find(struct gpu_loads *loads, uint32_t index)
{
	for (uint32_t i = 0; i < loads->n; i++) {
		if (loads->at[i].index == index)
			return &loads->at[i];
	}
	return NULL;
}

static void gpu_loads_take_gpu(struct gpu_loads *loads, const struct nvshare_status_gpu *gpu)
{
	uint64_t busy_ns = gpu->recent_lc_gpu_ns + gpu->recent_be_gpu_ns;
	struct gpu_load *load;

	if (loads->n == GPU_LOAD_MAX) {
		loads->n_left_out++;
		return;
	}
	load = &loads->at[loads->n++];
	*load = (struct gpu_load){
		.index = gpu->index,
		.n_clients = gpu->n_clients,
		.n_waiting = gpu->n_waiting,
		.total = gpu->total,
		.usable = gpu->usable,
		.demand = gpu->external,
	};
	if (gpu->recent_ns)
		load->busy_permille = (uint32_t)(1000.0 * (double)busy_ns / (double)gpu->recent_ns);
	names_uuid(gpu->name, gpu->uuid, load->uuid);
}

static void gpu_loads_take_state(struct gpu_loads *loads, const struct nvshare_status_state *state)
{
	struct gpu_load *load = gpu_loads_find(loads, state->gpu);

	if (load) {
		load->state = state->state;
		load->xid = state->xid;
	}
}

static void gpu_loads_take_client(struct gpu_loads *loads,
				  const struct nvshare_status_client *client)
{
	struct gpu_load *load = gpu_loads_find(loads, client->gpu);

	if (!load)
		return;
	load->demand += client->mem.resident + client->mem.swapped + client->mem.wanted;
	for (unsigned int i = 0; i < NVSHARE_PINNED_COUNT; i++)
		load->demand += client->mem.pinned[i];
}

void gpu_loads_take(struct gpu_loads *loads, const struct msg *msg)
{
	switch (msg->header.type) {
	case NVSHARE_MSG_STATUS_GPU:
		gpu_loads_take_gpu(loads, &msg->body.status_gpu);
		break;
	case NVSHARE_MSG_STATUS_STATE:
		gpu_loads_take_state(loads, &msg->body.status_state);
		break;
	case NVSHARE_MSG_STATUS_CLIENT:
		gpu_loads_take_client(loads, &msg->body.status_client);
		break;
	case NVSHARE_MSG_STATUS_END:
		loads->is_whole = true;
		break;
	}
}

uint64_t gpu_load_free(const struct gpu_load *load)
{
	return load->usable > load->demand ? load->usable - load->demand : 0;
}

uint64_t gpu_load_permille(const struct gpu_load *load)
{
	double memory = load->usable ? 1000.0 * (double)load->demand / (double)load->usable : 0;

	return load->busy_permille + (uint64_t)memory;
}
