/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CLI_STATUS_H
#define NVS_CLI_STATUS_H

/* A scheduler's status, and what follows from its numbers. Single-threaded. */

#include "nvshare/protocol.h"

#include <stdbool.h>
#include <stddef.h>

struct status {
	struct nvshare_status_node node;
	struct nvshare_status_pool pool; /* zeroed: of an older scheduler */
	struct nvshare_status_gpu *gpus;
	struct nvshare_status_state *states; /* none of an older scheduler */
	struct nvshare_status_outsider *outsiders;
	struct nvshare_status_client *clients;
	struct nvshare_status_orion *orions;
	struct nvshare_status_clean *cleans;
	struct nvshare_status_gang *gangs; /* one for each member, by its client */
	struct nvshare_status_wait *waits; /* by client; none of an older scheduler */
	size_t n_gpus;
	size_t n_states;
	size_t n_outsiders;
	size_t n_clients;
	size_t n_orions;
	size_t n_cleans;
	size_t n_gangs;
	size_t n_waits;
	double unix_seconds; /* time of the status, since 1970 */
};

/*
 * Asks the scheduler. The caller zeroes status before, and calls status_deinit() after it, also
 * after a failure. Returns CLI_EXIT_OK, or prints the error and returns its exit code.
 */
int status_fetch(struct status *status);
void status_deinit(struct status *status);

/*
 * The same step by step, for a caller that has sent GET_STATUS itself: waits for the next part of
 * the answer. *ret_is_last: the status is complete.
 */
int status_receive(int fd, struct status *status, bool *ret_is_last);

/* "GPU-8d0a...", or "MIG-..." for an instance. */
const char *status_uuid(const struct nvshare_status_gpu *gpu, char buf[NVSHARE_UUID_LEN]);

/* Clients of a GPU by what they do now, each once. A client that runs and waits for room runs. */
struct status_counts {
	uint32_t running, waiting, idle;
};

struct status_counts status_count(const struct status *status,
				  const struct nvshare_status_gpu *gpu);
/* NULL: the scheduler does not tell it. */
const struct nvshare_status_state *status_state(const struct status *status, uint32_t gpu);

/* NULL: the client has no scheduler in its process. */
const struct nvshare_orion *status_orion(const struct status *status, uint32_t client);

/* NULL: the client has told of no copies of its memory. */
const struct nvshare_clean *status_clean(const struct status *status, uint32_t client);

/* NULL: the client is in no gang. */
const struct nvshare_status_gang *status_gang(const struct status *status, uint32_t client);

/* NULL: the client waits for nothing but turns, or an older scheduler does not tell. */
const struct nvshare_status_wait *status_wait(const struct status *status, uint32_t client);

/* id: status_client::id. NULL: there is no such client. */
const struct nvshare_status_client *status_client(const struct status *status, uint32_t id);

/* No client gets a new grant there. */
bool status_is_out(const struct status *status, uint32_t gpu);

uint64_t status_pinned(const struct nvshare_mem *mem);
bool status_is_running(const struct nvshare_status_client *client);

/* "?" behind a pod that only the program's environment names; else "". */
const char *status_pod_mark(const struct nvshare_status_client *client);
/* "freeze", "drain", or "-" if the client has not reported it yet. */
const char *status_stops_by(const struct nvshare_status_client *client);

/* Why the client's process is stopped; NULL: it goes on, or the scheduler cannot see it. */
const char *status_stopped(const struct nvshare_status_client *client);

/* Why the client cannot be frozen; NULL: it can be, or it has not reported a reason. */
const char *status_drain_reason(const struct nvshare_status_client *client);

extern const char *const status_state_names[NVSHARE_CLIENT_STATE_COUNT];
extern const char *const status_gpu_state_names[NVSHARE_STATE_COUNT];
extern const char *const status_backend_names[NVSHARE_BACKEND_MANAGED + 1];
extern const char *const status_outcome_names[NVSHARE_OUTCOME_COUNT];

/* The GPU's busy part of the time since its first client, percent. */
double status_utilisation(const struct nvshare_status_gpu *gpu);

/* amount, one of gpu's recent_*, for each second. */
double status_rate(const struct nvshare_status_gpu *gpu, uint64_t amount);

double status_preempt_mean_ns(const struct nvshare_status_gpu *gpu); /* 0: no preemption yet */

#endif
