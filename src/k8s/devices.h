/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_K8S_DEVICES_H
#define NVS_K8S_DEVICES_H

/*
 * The devices that the kubelet sees: a number of replicas of each GPU, with an ID of GPU and
 * replica, as "GPU-8d0a...-3". A device is healthy while its GPU is.
 *
 * A GPU that the scheduler has told once stays in the table, because pods may have its devices. A
 * GPU that the scheduler does not list any more is unhealthy.
 *
 * Pure. Threading: none.
 */

#include "k8s/gpu_load.h"

#include <stddef.h>

#define DEVICES_REPLICAS_MAX 1000
#define DEVICES_ID_LEN       64 /* with its NUL; the kubelet takes 63 characters */
#define DEVICES_NO_NUMBER    (-1)

struct devices_gpu {
	struct gpu_load load; /* as the scheduler told last */
	bool is_listed;       /* in the last status */
	int numa;             /* node; DEVICES_NO_NUMBER: unknown */
	int minor;            /* of /dev/nvidiaN; DEVICES_NO_NUMBER: unknown */
};

struct devices {
	uint32_t n, n_replicas;
	bool is_known; /* the scheduler has told its GPUs once */
	bool is_live;  /* the loads are those of now */
	bool is_lost;  /* the scheduler has been away for too long: no device is healthy */
	struct devices_gpu gpus[GPU_LOAD_MAX];
};

/* One device. */
struct devices_at {
	uint32_t gpu;     /* of devices::gpus */
	uint32_t replica; /* below devices::n_replicas */
};

/*
 * Takes a whole status. Returns whether the kubelet's view changes: a GPU, or its health. New GPUs
 * stand at the end, with numa and minor unknown.
 */
bool devices_update(struct devices *devices, const struct gpu_loads *loads);

bool devices_is_healthy(const struct devices *devices, uint32_t gpu);

/* Why the GPU is not healthy, for people; NULL: it is healthy. */
const char *devices_fault(const struct devices *devices, uint32_t gpu);

void devices_print_id(const struct devices *devices, struct devices_at at,
		      char buf[DEVICES_ID_LEN]);

/* 0, or -ENOENT: no device has this ID. */
int devices_find(const struct devices *devices, const char *id, struct devices_at *ret);

/* Zeroed: empty. */
struct devices_set {
	uint64_t words[(GPU_LOAD_MAX * DEVICES_REPLICAS_MAX + 63) / 64];
};

/* Adds a device. false: it was there already. */
bool devices_set_add(struct devices_set *set, struct devices_at at);
bool devices_set_has(const struct devices_set *set, struct devices_at at);

#endif
