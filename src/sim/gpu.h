/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_SIM_GPU_H
#define NVS_SIM_GPU_H

/*
 * The hardware's side: clients with work get the GPU in turn, each for its slice. A frozen
 * client gets no turn. A switch between two clients takes switch_ns. It takes no time when the
 * former client was just frozen: the freeze has taken it off.
 *
 * The caller lets the time pass (gpu_pass), changes clients (gpu_give, gpu_set_frozen), and
 * then lets the GPU choose (gpu_choose).
 */

#include <stdbool.h>
#include <stdint.h>

#define GPU_CLIENTS_MAX 16
#define GPU_NONE        UINT32_MAX

struct gpu_client {
	bool has_work;
	bool is_frozen;
	uint64_t left_ns; /* GPU time that its work still needs */
	uint64_t slice_ns;
	uint64_t got_ns; /* GPU time that it has had, in all */
};

struct gpu {
	struct gpu_client clients[GPU_CLIENTS_MAX];
	uint32_t n_clients;
	uint32_t owner; /* the client whose turn it is; GPU_NONE: none */
	uint32_t last;  /* the owner, or the last one */
	bool is_clean;  /* a freeze has taken the last one off: the next switch takes no time */
	uint64_t now_ns;
	uint64_t ready_ns;     /* end of the switch: the owner computes from then on */
	uint64_t slice_end_ns; /* UINT64_MAX: no other client wants the GPU */
	uint64_t switch_ns;
};

void gpu_init(struct gpu *gpu, uint32_t n_clients, uint64_t slice_ns, uint64_t switch_ns);

/* Gives client ns of work. It must have none. */
void gpu_give(struct gpu *gpu, uint64_t now_ns, uint32_t client, uint64_t ns);

void gpu_set_frozen(struct gpu *gpu, uint64_t now_ns, uint32_t client, bool is_frozen);

/* true once when the work of client is done; from then on it has none. */
bool gpu_has_ended(struct gpu *gpu, uint32_t client);

/* Lets the owner compute from from_ns to to_ns, at most to gpu_next(). */
void gpu_pass(struct gpu *gpu, uint64_t from_ns, uint64_t to_ns);

/* Chooses the owner from now_ns on. */
void gpu_choose(struct gpu *gpu, uint64_t now_ns);

/* The time when the owner's work or contested slice ends; UINT64_MAX: there is no owner. */
uint64_t gpu_next(const struct gpu *gpu);

#endif
