/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/status.h"

#include "cli/cli.h"
#include "ipc/names.h"
#include "util/fd.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

const char *const status_state_names[] = {"idle", "waiting", "incoming", "running", "stopping"};
const char *const status_gpu_state_names[] = {"unknown", "good", "error", "lost"};
const char *const status_backend_names[] = {"none", "vmm", "managed"};
const char *const status_outcome_names[] = {"success",        "timeout",  "save-failed",
					    "no-host-memory", "gpu-hung", "invalid-state",
					    "unsupported",    "partial",  "no-card-memory"};

static const char *const drain_reasons[NVSHARE_HALT_COUNT] = {
	[NVSHARE_HALT_OFF] = "NVSHARE_FREEZE=0",
	[NVSHARE_HALT_INJECTED] = "a profiler or debugger is injected",
	[NVSHARE_HALT_TRACED] = "a debugger is attached",
	[NVSHARE_HALT_MPS] = "MPS",
	[NVSHARE_HALT_COHERENT] = "a coherent platform",
	[NVSHARE_HALT_CONFIDENTIAL] = "confidential computing",
	[NVSHARE_HALT_DRIVER] = "the driver",
	[NVSHARE_HALT_UNPROVEN] = "a trial showed nothing",
	[NVSHARE_HALT_CHANNELS] = "its channels are not all known",
	[NVSHARE_HALT_FAILED] = "the last freezes were called off",
	[NVSHARE_HALT_MANAGED] = "managed memory",
	[NVSHARE_HALT_NO_ROOM] = "no room for a second context",
	[NVSHARE_HALT_CONTEXTS] = "the limits of contexts leave no second one",
};

void status_deinit(struct status *status)
{
	free(status->gpus);
	free(status->states);
	free(status->outsiders);
	free(status->clients);
	free(status->orions);
	free(status->cleans);
	free(status->gangs);
	free(status->waits);
}

const char *status_uuid(const struct nvshare_status_gpu *gpu, char buf[NVSHARE_UUID_LEN])
{
	names_uuid(gpu->name, gpu->uuid, buf);
	return buf;
}

const char *status_pod_mark(const struct nvshare_status_client *client)
{
	return client->pod[0] && !(client->flags & NVSHARE_CLIENT_POD) ? "?" : "";
}

const char *status_stops_by(const struct nvshare_status_client *client)
{
	if (client->halt == NVSHARE_HALT_UNKNOWN)
		return "-";
	return client->halt == NVSHARE_HALT_FREEZE ? "freeze" : "drain";
}

const char *status_stopped(const struct nvshare_status_client *client)
{
	if (client->flags & NVSHARE_CLIENT_STOPPED)
		return "Ctrl-Z or a debugger";
	return client->flags & NVSHARE_CLIENT_FROZEN ? "frozen control group" : NULL;
}

const char *status_drain_reason(const struct nvshare_status_client *client)
{
	return drain_reasons[client->halt];
}

const struct nvshare_status_state *status_state(const struct status *status, uint32_t gpu)
{
	for (size_t i = 0; i < status->n_states; i++) {
		if (status->states[i].gpu == gpu)
			return &status->states[i];
	}
	return NULL;
}

const struct nvshare_orion *status_orion(const struct status *status, uint32_t client)
{
	for (size_t i = 0; i < status->n_orions; i++) {
		if (status->orions[i].client == client)
			return &status->orions[i].orion;
	}
	return NULL;
}

const struct nvshare_clean *status_clean(const struct status *status, uint32_t client)
{
	for (size_t i = 0; i < status->n_cleans; i++) {
		if (status->cleans[i].client == client)
			return &status->cleans[i].clean;
	}
	return NULL;
}

static int compare_member(const void *key, const void *element)
{
	const uint32_t *client = key;
	const struct nvshare_status_gang *gang = element;

	return (*client > gang->client) - (*client < gang->client);
}

const struct nvshare_status_gang *status_gang(const struct status *status, uint32_t client)
{
	if (!status->n_gangs)
		return NULL;
	return bsearch(&client, status->gangs, status->n_gangs, sizeof(*status->gangs),
		       compare_member);
}

/* The scheduler sends them by slot. */
static int compare_waits(const void *a, const void *b)
{
	const struct nvshare_status_wait *left = a, *right = b;

	return (left->client > right->client) - (left->client < right->client);
}

const struct nvshare_status_wait *status_wait(const struct status *status, uint32_t client)
{
	const struct nvshare_status_wait key = {.client = client};

	if (!status->n_waits)
		return NULL;
	return bsearch(&key, status->waits, status->n_waits, sizeof(*status->waits), compare_waits);
}

bool status_is_out(const struct status *status, uint32_t gpu)
{
	const struct nvshare_status_state *state = status_state(status, gpu);

	return state && (state->state == NVSHARE_STATE_ERROR || state->state == NVSHARE_STATE_LOST);
}

uint64_t status_pinned(const struct nvshare_mem *mem)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < NVSHARE_PINNED_COUNT; i++)
		sum += mem->pinned[i];
	return sum;
}

bool status_is_running(const struct nvshare_status_client *client)
{
	return client->state == NVSHARE_CLIENT_RUNNING || client->state == NVSHARE_CLIENT_STOPPING;
}

struct status_counts status_count(const struct status *status, const struct nvshare_status_gpu *gpu)
{
	struct status_counts counts = {0};

	for (size_t i = 0; i < status->n_clients; i++) {
		const struct nvshare_status_client *client = &status->clients[i];

		if (client->gpu != gpu->index)
			continue;
		if (status_is_running(client))
			counts.running++;
		else if (client->state == NVSHARE_CLIENT_IDLE)
			counts.idle++;
		else
			counts.waiting++;
	}
	return counts;
}

/* Adds an element of size bytes, and returns the array. NULL: no memory, array is unchanged. */
static void *array_append(void *array, size_t *n, size_t size, const void *element)
{
	/* The array's capacity is a power of two, so it is full when *n is one, or 0. */
	if ((*n & (*n - 1)) == 0) {
		array = realloc(array, (*n ? *n * 2 : 1) * size);
		if (!array)
			return NULL;
	}
	memcpy((char *)array + *n * size, element, size);
	(*n)++;
	return array;
}

/* Copies one answer into status. 0 or -ENOMEM. */
static int status_take(struct status *status, const struct msg *msg, bool *ret_is_last)
{
	void *array;

	switch (msg->header.type) {
	case NVSHARE_MSG_STATUS_NODE:
		status->node = msg->body.status_node;
		return 0;
	case NVSHARE_MSG_STATUS_POOL:
		status->pool = msg->body.status_pool;
		return 0;
	case NVSHARE_MSG_STATUS_GPU:
		array = array_append(status->gpus, &status->n_gpus, sizeof(*status->gpus),
				     &msg->body.status_gpu);
		status->gpus = array ? array : status->gpus;
		return array ? 0 : -ENOMEM;
	case NVSHARE_MSG_STATUS_STATE:
		array = array_append(status->states, &status->n_states, sizeof(*status->states),
				     &msg->body.status_state);
		status->states = array ? array : status->states;
		return array ? 0 : -ENOMEM;
	case NVSHARE_MSG_STATUS_OUTSIDER:
		array = array_append(status->outsiders, &status->n_outsiders,
				     sizeof(*status->outsiders), &msg->body.status_outsider);
		status->outsiders = array ? array : status->outsiders;
		return array ? 0 : -ENOMEM;
	case NVSHARE_MSG_STATUS_CLIENT:
		array = array_append(status->clients, &status->n_clients, sizeof(*status->clients),
				     &msg->body.status_client);
		status->clients = array ? array : status->clients;
		return array ? 0 : -ENOMEM;
	case NVSHARE_MSG_STATUS_ORION:
		array = array_append(status->orions, &status->n_orions, sizeof(*status->orions),
				     &msg->body.status_orion);
		status->orions = array ? array : status->orions;
		return array ? 0 : -ENOMEM;
	case NVSHARE_MSG_STATUS_CLEAN:
		array = array_append(status->cleans, &status->n_cleans, sizeof(*status->cleans),
				     &msg->body.status_clean);
		status->cleans = array ? array : status->cleans;
		return array ? 0 : -ENOMEM;
	case NVSHARE_MSG_STATUS_GANG:
		array = array_append(status->gangs, &status->n_gangs, sizeof(*status->gangs),
				     &msg->body.status_gang);
		status->gangs = array ? array : status->gangs;
		return array ? 0 : -ENOMEM;
	case NVSHARE_MSG_STATUS_WAIT:
		array = array_append(status->waits, &status->n_waits, sizeof(*status->waits),
				     &msg->body.status_wait);
		status->waits = array ? array : status->waits;
		return array ? 0 : -ENOMEM;
	default:
		*ret_is_last = true; /* STATUS_END */
		return 0;
	}
}

/* The scheduler sends clients by slot; people expect the oldest first. */
static int compare_ids(const void *a, const void *b)
{
	const struct nvshare_status_client *left = a;
	const struct nvshare_status_client *right = b;

	return left->id < right->id ? -1 : left->id > right->id;
}

const struct nvshare_status_client *status_client(const struct status *status, uint32_t id)
{
	const struct nvshare_status_client key = {.id = id};

	if (!status->n_clients)
		return NULL;
	return bsearch(&key, status->clients, status->n_clients, sizeof(*status->clients),
		       compare_ids);
}

static int compare_members(const void *a, const void *b)
{
	const struct nvshare_status_gang *left = a;

	return compare_member(&left->client, b);
}

int status_receive(int fd, struct status *status, bool *ret_is_last)
{
	struct timespec now;
	struct msg msg;
	int r = request_receive(fd, &msg);

	if (r)
		return r;
	*ret_is_last = false;
	if (status_take(status, &msg, ret_is_last)) {
		request_report("nvsharectl: out of memory\n");
		return CLI_EXIT_REFUSED;
	}
	if (!*ret_is_last)
		return CLI_EXIT_OK;
	if (status->n_clients)
		qsort(status->clients, status->n_clients, sizeof(*status->clients), compare_ids);
	if (status->n_gangs)
		qsort(status->gangs, status->n_gangs, sizeof(*status->gangs), compare_members);
	if (status->n_waits)
		qsort(status->waits, status->n_waits, sizeof(*status->waits), compare_waits);
	(void)clock_gettime(CLOCK_REALTIME, &now);
	status->unix_seconds = (double)now.tv_sec + (double)now.tv_nsec / 1e9;
	return CLI_EXIT_OK;
}

int status_fetch(struct status *status)
{
	FD_CLEANUP int fd = -1;
	bool is_last = false;
	struct nvshare_get_status body = {
		.flags = NVSHARE_GET_STATUS_STATES | NVSHARE_GET_STATUS_ORION |
			 NVSHARE_GET_STATUS_POOL | NVSHARE_GET_STATUS_CLEAN |
			 NVSHARE_GET_STATUS_GANGS | NVSHARE_GET_STATUS_WAITS,
	};
	int r;

	r = request_open(&fd);
	if (!r)
		r = request_send(fd, NVSHARE_MSG_GET_STATUS, &body);
	while (!r && !is_last)
		r = status_receive(fd, status, &is_last);
	return r;
}

double status_utilisation(const struct nvshare_status_gpu *gpu)
{
	if (gpu->known_ns == 0)
		return 0;
	return 100.0 * (double)(gpu->lc_gpu_ns + gpu->be_gpu_ns) / (double)gpu->known_ns;
}

double status_rate(const struct nvshare_status_gpu *gpu, uint64_t amount)
{
	return gpu->recent_ns ? (double)amount * 1e9 / (double)gpu->recent_ns : 0;
}

double status_preempt_mean_ns(const struct nvshare_status_gpu *gpu)
{
	if (gpu->n_preempted == 0)
		return 0;
	return (double)gpu->preempt_ns_total / (double)gpu->n_preempted;
}
