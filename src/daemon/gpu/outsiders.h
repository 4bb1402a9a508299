/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_OUTSIDERS_H
#define NVS_DAEMON_OUTSIDERS_H

/*
 * Processes that use a GPU without nvshare: NVML lists them, and they are no clients.
 *
 * NVML tells pids of the scheduler's pid namespace, or 0. Without pids, or with an unknown pid of
 * a client, no process is listed. Their memory is known all the same (daemon/gpu/gpus.h).
 */

#include "core/sched.h"
#include "daemon/gpu/nvml.h"
#include "nvshare/protocol.h"

#include <stdbool.h>
#include <stdint.h>

#define OUTSIDERS_SHOWN  8    /* of each GPU, the processes with most memory */
#define OUTSIDERS_FOUND  4096 /* more processes on one GPU are ignored */
#define OUTSIDERS_LATELY 4096

/* The least time between two questions to NVML about one device. */
#define OUTSIDERS_PERIOD_NS (100 * CLOCK_NS_PER_MS)

/* For so long a process is no outsider after it became a client, or ended as one. */
#define OUTSIDERS_LATELY_NS (5 * CLOCK_NS_PER_SEC)

struct outsiders_gpu {
	uint64_t listed_ns; /* 0: never */
	uint64_t bytes;     /* of all of them */
	uint32_t n;         /* all of them */
	uint32_t n_shown;
	struct {
		uint64_t bytes;
		uint32_t pid;
	} shown[OUTSIDERS_SHOWN]; /* most memory first; never with pid 0 */
};

struct outsiders {
	struct outsiders_gpu gpus[SCHED_GPUS_MAX];
	/* Processes that became clients, or ended as such: a ring, the next one at n_lately. */
	struct {
		uint64_t ns;
		uint32_t pid;
	} lately[OUTSIDERS_LATELY];
	uint64_t n_lately;
	/* Of the look under way. */
	struct nvml_process found[OUTSIDERS_FOUND];
	bool is_ours[OUTSIDERS_FOUND];
};

/* pid belongs to a client from now on, or did until now. Unknown pids (0 and less) are ignored. */
void outsiders_note(struct outsiders *outsiders, int pid, uint64_t now_ns);

/*
 * A look at GPU index. begin: takes NVML's list; false: NVML has none. ours: pid is a client's.
 * end: all others are outsiders.
 */
bool outsiders_begin(struct outsiders *outsiders, const struct nvml *nvml,
		     struct nvml_device_st *device, uint32_t *ret_n);
void outsiders_ours(struct outsiders *outsiders, uint32_t n, int pid);
void outsiders_end(struct outsiders *outsiders, uint32_t index, uint32_t n, uint64_t now_ns);

/* The outsiders of GPU index are unknown. */
void outsiders_forget(struct outsiders *outsiders, uint32_t index, uint64_t now_ns);

/* The name that a process gives itself, fit for a terminal; "" if /proc does not tell. */
void outsiders_name(uint32_t pid, char ret_name[NVSHARE_NAME_LEN]);

#endif
