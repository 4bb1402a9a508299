/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_SIM_GPU_H
#define NVS_SIM_GPU_H

/*
 * The hardware's side: clients with work have the GPU in turn, each for its slice. Who is
 * frozen has no turn. Going from one to another takes switch_ns; nothing when the one
 * before was just frozen, since that has taken it off.
 *
 * The caller passes the time, then changes what has changed, then lets it choose.
 */

#include <stdbool.h>
#include <stdint.h>

#define GPU_CLIENTS_MAX 16
#define GPU_NONE        UINT32_MAX

struct gpu_client {
	bool has_work;
	bool is_frozen;
	uint64_t left_ns; /* of its work */
	uint64_t slice_ns;
	uint64_t got_ns; /* GPU time in all */
};

struct gpu {
	struct gpu_client clients[GPU_CLIENTS_MAX];
	uint32_t n_clients;
	uint32_t owner; /* GPU_NONE: nobody */
	uint32_t last;  /* owner, or the last one */
	bool is_clean;  /* the last one was taken off: going on costs nothing */
	uint64_t now_ns;
	uint64_t ready_ns;     /* the owner computes from then on */
	uint64_t slice_end_ns; /* UINT64_MAX: nobody else wants the GPU */
	uint64_t switch_ns;
};

void gpu_init(struct gpu *gpu, uint32_t n_clients, uint64_t slice_ns, uint64_t switch_ns);

/* client, which has no work, gets some. */
void gpu_give(struct gpu *gpu, uint64_t now_ns, uint32_t client, uint64_t ns);

void gpu_set_frozen(struct gpu *gpu, uint64_t now_ns, uint32_t client, bool is_frozen);

/* Whether the work of client is done; it has none from then on. */
bool gpu_has_ended(struct gpu *gpu, uint32_t client);

/* The owner computes from from_ns to to_ns, which is no later than gpu_next(). */
void gpu_pass(struct gpu *gpu, uint64_t from_ns, uint64_t to_ns);

/* Who computes from now on. */
void gpu_choose(struct gpu *gpu, uint64_t now_ns);

/* When work or a slice that matters ends; UINT64_MAX: neither does. */
uint64_t gpu_next(const struct gpu *gpu);

#endif
