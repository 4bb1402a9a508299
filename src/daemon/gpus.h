/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_GPUS_H
#define NVS_DAEMON_GPUS_H

/*
 * The node's GPUs: which index stands for which UUID, how large they are, and how much
 * of each others than our clients use. NVML is the truth where it is; else the
 * clients say how large a GPU is (daemon/server.h, hearsay.c), and it goes with the last.
 */

#include "core/sched.h"
#include "daemon/nvml.h"
#include "nvshare/protocol.h"

#include <stdbool.h>
#include <stdint.h>

struct gpu {
	uint8_t uuid[16];
	char name[NVSHARE_NAME_LEN];
	struct nvml_device_st *device; /* NULL: not of NVML */
	uint64_t link_bandwidth;       /* bytes a second, as NVML describes the link; 0: unknown */
	uint64_t total;                /* bytes; 0: the entry is free */
	uint64_t reported;             /* on the card, by the reports of our clients */
	uint64_t footprint;            /* that, and what is in host memory */
	uint64_t footprint_low[2];     /* the least of that, in this period and the one before */
	uint64_t period_ns;            /* since when */
	uint64_t allowed;      /* by their budgets, or reports where these are more; and kept */
	uint64_t seconds;      /* of second contexts */
	uint64_t contexts;     /* of all contexts, second ones too */
	uint64_t contexts_max; /* the most that has been */
	uint32_t n_contexts;   /* programs that have some, and second ones */
	uint64_t promised;     /* of second contexts that may be made, and are not yet reported */
	uint32_t n_promised;
	uint64_t on_way;     /* from client to client at the most; in no report, but used */
	uint64_t outside;    /* of processes that are no clients, as NVML lists them */
	uint64_t gone;       /* of clients that have left: it may not be free yet */
	uint64_t gone_ns;    /* the last of these left */
	uint64_t rise;       /* of external, since rise_ns at the least */
	uint64_t rise_ns;    /* 0: none is under way */
	uint64_t external;   /* used by others, as last told to the core */
	uint64_t sample;     /* the same, as last measured */
	uint64_t sampled_ns; /* 0: never */
	uint64_t energy_mj;  /* as last read */
	uint64_t energy_ns;  /* then; 0: never */
	uint64_t power_mw;   /* as last found; 0: not known */
	uint32_t n_clients;
	uint32_t taker;  /* slot of the client that others hand memory to, and 1; 0: nobody */
	bool is_left;    /* by a client; to be measured when its memory may be free */
	bool is_told;    /* the core knows it */
	bool is_resized; /* with another total */
};

struct gpus {
	struct nvml nvml;
	uint32_t n;
	uint64_t listed_ns; /* NVML was last asked for the list */
	struct gpu at[SCHED_GPUS_MAX];
};

enum {
	GPUS_E_SUCCESS_,
	GPUS_E_UNKNOWN, /* no size known for it */
	GPUS_E_FULL,    /* no index left */
};

void gpus_init(struct gpus *gpus, uint64_t now_ns);
void gpus_deinit(struct gpus *gpus);

/*
 * The GPU of a client that registers; total as the client says. Entries may be added,
 * and an unused one taken over by another GPU: then is_told is false. 0 or GPUS_E_*.
 */
int gpus_find(struct gpus *gpus, const uint8_t uuid[16], uint64_t total, uint64_t now_ns,
	      uint32_t *ret_index);

/* The last client of a GPU that NVML does not list is gone, or did not come: its entry is free. */
void gpus_forget(struct gpu *gpu);

/* total if a card may have so much, else 0. */
uint64_t gpus_possible_total(uint64_t total);

/*
 * Measures. True if total or external changed: tell the core. Not more often than it
 * makes sense, but when clients came with bytes that were taken for others', or were out;
 * 0: none did.
 */
bool gpus_sample(struct gpus *gpus, uint32_t index, uint64_t now_ns, uint64_t came);

/*
 * mW: its mean since the last call, if that was within a minute, else of now; 0: NVML does
 * not say. Not measured more often than makes sense.
 */
uint64_t gpus_power(struct gpus *gpus, uint32_t index, uint64_t now_ns);

/*
 * After a restart what is used is our own clients', who are about to come back: until
 * the next sample nothing counts as others'.
 */
void gpus_await_clients(struct gpus *gpus);

/*
 * One client's bytes: on the card, and in host memory, by its last report; by its budget; its
 * second context, which is in none of these; managed memory that is out (kept), whose place on the
 * card the driver keeps until others need it, so that NVML may count it as used: up to so much more
 * may be others' without being seen, for NVML does not tell the two apart; of what it reports or
 * may have on the card, what is not there, and so is in no sum; its contexts; and what a second
 * context may take that it has been told to make.
 */
struct memory_account {
	uint64_t on_card;
	uint64_t swapped;
	uint64_t budget;
	uint64_t second;
	uint64_t kept;
	uint64_t doubted;
	uint64_t contexts;
	uint64_t promised;
};
uint64_t gpus_footprint(const struct memory_account *account); /* wherever it is */
/* Its client leaves. What it had stays in use until its process has ended. Account for it next. */
void gpus_leave(struct gpu *gpu, const struct memory_account *account, uint64_t now_ns);

void gpus_account(struct gpu *gpu, const struct memory_account *before,
		  const struct memory_account *after, uint64_t now_ns);

/* Of second contexts, which live in reserve; of all contexts together, 0: none. */
struct gpu_limits {
	uint64_t reserve;
	uint64_t bytes;
	uint32_t n;
};

/*
 * Bytes that a second context may cost account's client, beside those that others have and were
 * promised. is_limited: it would be more without the
 * limits of all contexts.
 */
uint64_t gpus_second_max(const struct gpu *gpu, const struct memory_account *account,
			 const struct gpu_limits *limits, bool *ret_is_limited);

#endif
