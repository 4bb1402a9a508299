/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_GPUS_H
#define NVS_DAEMON_GPUS_H

/*
 * The node's GPUs: which index stands for which UUID, how large each is, and how much of it
 * others than our clients use. NVML is the truth for the GPUs that it lists. Of other GPUs
 * clients tell the size (daemon/gpu/hearsay.h), and such a GPU is forgotten with its last client.
 *
 * Ownership: struct gpus is the caller's. Threading: one thread. Calls into NVML may block.
 */

#include "core/sched.h"
#include "daemon/gpu/nvml.h"
#include "nvshare/protocol.h"

#include <stdbool.h>
#include <stdint.h>

struct gpu {
	uint8_t uuid[16];
	char name[NVSHARE_NAME_LEN];
	struct nvml_device_st *device; /* NULL: not of NVML */
	uint64_t link_bandwidth;       /* bytes a second, as NVML describes the link; 0: unknown */
	uint64_t total;                /* bytes; 0: the entry is free */
	uint64_t reported;             /* on the card, by our clients' reports */
	uint64_t footprint;            /* reported, and bytes in host memory */
	uint64_t critical;             /* the part of footprint of critical clients */
	uint64_t footprint_low[2];     /* the least footprint of this period, and of the last one */
	uint64_t period_ns;            /* when this period began */
	uint64_t allowed;              /* by budgets, or reports if they are more; and kept bytes */
	uint64_t seconds;              /* of pager contexts */
	uint64_t contexts;             /* of all contexts, second ones too */
	uint64_t contexts_max;         /* the most that has been */
	uint32_t n_contexts;           /* programs that have some, and second ones */
	uint64_t promised; /* of pager contexts that may be made, and are not reported yet */
	uint32_t n_promised;
	uint64_t on_way;     /* at most so much is on its way from client to client: used, and in no
				report */
	uint64_t outside;    /* of processes that are no clients, as NVML lists them */
	uint64_t gone;       /* of clients that have left; may not be free yet */
	uint64_t gone_ns;    /* when the last of these left */
	uint64_t rise;       /* the least that external would be, since rise_ns */
	uint64_t rise_ns;    /* 0: none is under way */
	uint64_t external;   /* used by others, as the core was told last */
	uint64_t sample;     /* the same, as measured last */
	uint64_t sampled_ns; /* 0: never */
	uint64_t energy_mj;  /* as last read */
	uint64_t energy_ns;  /* when; 0: never */
	uint64_t power_mw;   /* as last found; 0: not known */
	uint32_t n_clients;
	uint32_t taker;  /* 1 + slot of the client that others hand memory to; 0: none */
	bool is_left;    /* a client has left; measure when its memory may be free */
	bool is_out;     /* it has an error: states.c */
	bool is_told;    /* the core knows it */
	bool is_resized; /* its total is another one now */
};

struct gpus {
	struct nvml nvml;
	uint32_t n;
	uint64_t listed_ns; /* when NVML was last asked for the list */
	struct gpu at[SCHED_GPUS_MAX];
};

enum {
	GPUS_E_SUCCESS_,
	GPUS_E_UNKNOWN, /* the size is not known */
	GPUS_E_FULL,    /* no index is free */
};

void gpus_init(struct gpus *gpus, uint64_t now_ns);
void gpus_deinit(struct gpus *gpus);

/*
 * Finds the GPU of a client that registers; total: as the client says. May add entries, or give
 * an unused entry to another GPU: is_told is false then. 0 or GPUS_E_*.
 */
int gpus_find(struct gpus *gpus, const uint8_t uuid[16], uint64_t total, uint64_t now_ns,
	      uint32_t *ret_index);

/* Frees the entry of a GPU that NVML does not list: its last client is gone, or did not come. */
void gpus_forget(struct gpu *gpu);

/* "GPU-..." or "MIG-...", as the driver and CUDA_VISIBLE_DEVICES write it. */
void gpus_print_uuid(const struct gpu *gpu, char ret[NVSHARE_UUID_LEN]);

/* total, if a card may have so much; else 0. */
uint64_t gpus_possible_total(uint64_t total);

/*
 * Measures a GPU. true: total or external has changed, and the core must hear of it. came: bytes
 * of a client that registers, which were taken for others' or are out; 0: no client comes, and
 * the call does nothing if the last sample is fresh.
 */
bool gpus_sample(struct gpus *gpus, uint32_t index, uint64_t now_ns, uint64_t came);

/*
 * mW: the mean since the last call if that was within a minute; else the power now. 0: NVML does
 * not tell. Calls in close succession return the last value.
 */
uint64_t gpus_power(struct gpus *gpus, uint32_t index, uint64_t now_ns);

/*
 * After a restart the used bytes belong to clients that come back. So nothing counts as others'
 * until the next sample.
 */
void gpus_await_clients(struct gpus *gpus);

/*
 * One client's bytes. The driver keeps the place of managed memory that is out (kept) until
 * others need it, and NVML may count that place as used. So as many bytes of others may go unseen.
 */
struct memory_account {
	uint64_t on_card; /* by its last report */
	uint64_t swapped; /* in host memory, by its last report */
	uint64_t budget;
	uint64_t second; /* of its pager context: in none of the above */
	uint64_t kept;
	uint64_t doubted; /* of its report or budget, bytes that are not there: in no sum */
	uint64_t contexts;
	uint64_t promised; /* bytes of a pager context that it may make */
	bool is_critical;  /* it keeps its memory */
};

/*
 * gpus_sample() for a client that found the card full although its budget allows more than it has.
 * external only rises, and at once.
 */
bool gpus_sample_full(struct gpus *gpus, uint32_t index, uint64_t now_ns,
		      const struct memory_account *account);

uint64_t gpus_footprint(const struct memory_account *account); /* on the card and in host memory */
/*
 * The client of account leaves. Its memory stays in use until its process has ended. Call
 * gpus_account() next.
 */
void gpus_leave(struct gpu *gpu, const struct memory_account *account, uint64_t now_ns);

/* A client's account was before, and is after; the GPU's sums follow. */
void gpus_account(struct gpu *gpu, const struct memory_account *before,
		  const struct memory_account *after, uint64_t now_ns);

/* Limits of pager contexts, which live in reserve, and of all contexts together; 0: no limit. */
struct gpu_limits {
	uint64_t reserve;
	uint64_t bytes;
	uint32_t n;
};

/*
 * The bytes that a pager context of account's client may cost, beside those that others have or
 * were promised. *ret_is_limited: the limits of all contexts made it less.
 */
uint64_t gpus_second_max(const struct gpu *gpu, const struct memory_account *account,
			 const struct gpu_limits *limits, bool *ret_is_limited);

#endif
