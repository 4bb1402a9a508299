/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_K8S_GPU_LOAD_H
#define NVS_K8S_GPU_LOAD_H

/*
 * The scheduler's status tells the state of each GPU, and how much it is used. The messages of one
 * status come one by one. Pure. Threading: none.
 */

#include "ipc/msg.h"

#include <stdbool.h>
#include <stdint.h>

#define GPU_LOAD_MAX 32 /* GPUs of a node; more are left out, and counted */

struct gpu_load {
	char uuid[NVSHARE_UUID_LEN]; /* "GPU-..." or "MIG-..." */
	uint32_t index;              /* the scheduler's number */
	uint32_t state;              /* enum nvshare_state */
	uint32_t xid;                /* of its last serious error; 0: none */
	uint32_t n_clients;
	uint32_t n_waiting;
	uint32_t busy_permille; /* GPU time of the last ten seconds */
	uint64_t total;         /* bytes, of the card */
	uint64_t usable;        /* bytes, without the reserve */
	uint64_t demand; /* bytes that clients have, on the card or not, and what others use */
};

struct gpu_loads {
	uint32_t n, n_left_out;
	bool is_whole; /* the last message has come */
	struct gpu_load at[GPU_LOAD_MAX];
};

/* Takes the next message of the answer to GET_STATUS. loads: zeroed before the first. */
void gpu_loads_take(struct gpu_loads *loads, const struct msg *msg);

/* The GPU's memory that no client has asked for, bytes. */
uint64_t gpu_load_free(const struct gpu_load *load);

/* The parts of the GPU's load, each in thousandths of what the GPU has. */
uint64_t gpu_load_permille(const struct gpu_load *load);

#endif
