/* SPDX-License-Identifier: Apache-2.0 */

#include "sim/gpu.h"

#include <assert.h>

static bool can_run(const struct gpu_client *c)
{
	return c->has_work && !c->is_frozen;
}

void gpu_init(struct gpu *gpu, uint32_t n_clients, uint64_t slice_ns, uint64_t switch_ns)
{
	assert(n_clients <= GPU_CLIENTS_MAX);
	*gpu = (struct gpu){
		.n_clients = n_clients,
		.owner = GPU_NONE,
		.slice_end_ns = UINT64_MAX,
		.switch_ns = switch_ns,
	};
	for (uint32_t i = 0; i < n_clients; i++)
		gpu->clients[i].slice_ns = slice_ns;
}

void gpu_give(struct gpu *gpu, uint64_t now_ns, uint32_t client, uint64_t ns)
{
	struct gpu_client *c = &gpu->clients[client];

	assert(!c->has_work && ns > 0);
	gpu->now_ns = now_ns;
	c->has_work = true;
	c->left_ns = ns;
}

void gpu_set_frozen(struct gpu *gpu, uint64_t now_ns, uint32_t client, bool is_frozen)
{
	gpu->now_ns = now_ns;
	gpu->clients[client].is_frozen = is_frozen;
	if (is_frozen && gpu->owner == client)
		gpu->is_clean = true;
}

bool gpu_has_ended(struct gpu *gpu, uint32_t client)
{
	struct gpu_client *c = &gpu->clients[client];

	if (!c->has_work || c->left_ns > 0)
		return false;
	c->has_work = false;
	return true;
}

void gpu_pass(struct gpu *gpu, uint64_t from_ns, uint64_t to_ns)
{
	struct gpu_client *c;
	uint64_t ns;

	gpu->now_ns = to_ns;
	if (gpu->owner == GPU_NONE || to_ns <= gpu->ready_ns)
		return;
	c = &gpu->clients[gpu->owner];
	ns = to_ns - (from_ns > gpu->ready_ns ? from_ns : gpu->ready_ns);
	assert(ns <= c->left_ns);
	c->left_ns -= ns;
	c->got_ns += ns;
}

/* The next client after the last one that can run; it may be the last one itself. */
static uint32_t next_client(const struct gpu *gpu)
{
	for (uint32_t i = 1; i <= gpu->n_clients; i++) {
		uint32_t client = (gpu->last + i) % gpu->n_clients;

		if (can_run(&gpu->clients[client]))
			return client;
	}
	return GPU_NONE;
}

static void switch_to(struct gpu *gpu, uint32_t client)
{
	bool is_free = client == gpu->last || gpu->is_clean;

	gpu->owner = client;
	gpu->slice_end_ns = UINT64_MAX;
	if (client == GPU_NONE)
		return;
	gpu->ready_ns = gpu->now_ns + (is_free ? 0 : gpu->switch_ns);
	gpu->last = client;
	gpu->is_clean = false;
}

static bool is_contested(const struct gpu *gpu)
{
	for (uint32_t i = 0; i < gpu->n_clients; i++) {
		if (i != gpu->owner && can_run(&gpu->clients[i]))
			return true;
	}
	return false;
}

/* The hardware counts slices also while no other client wants the GPU. */
static uint64_t slice_end(const struct gpu *gpu)
{
	uint64_t slice_ns = gpu->clients[gpu->owner].slice_ns;
	uint64_t ns = gpu->now_ns > gpu->ready_ns ? gpu->now_ns - gpu->ready_ns : 0;

	return gpu->ready_ns + (ns / slice_ns + 1) * slice_ns;
}

void gpu_choose(struct gpu *gpu, uint64_t now_ns)
{
	gpu->now_ns = now_ns;
	if (gpu->owner != GPU_NONE && !can_run(&gpu->clients[gpu->owner]))
		gpu->owner = GPU_NONE;
	if (gpu->owner == GPU_NONE || gpu->slice_end_ns <= now_ns)
		switch_to(gpu, next_client(gpu));
	if (gpu->owner == GPU_NONE || !is_contested(gpu))
		gpu->slice_end_ns = UINT64_MAX;
	else if (gpu->slice_end_ns == UINT64_MAX)
		gpu->slice_end_ns = slice_end(gpu);
}

uint64_t gpu_next(const struct gpu *gpu)
{
	uint64_t at_ns;

	if (gpu->owner == GPU_NONE)
		return UINT64_MAX;
	at_ns = gpu->now_ns > gpu->ready_ns ? gpu->now_ns : gpu->ready_ns;
	at_ns += gpu->clients[gpu->owner].left_ns;
	return at_ns < gpu->slice_end_ns ? at_ns : gpu->slice_end_ns;
}
