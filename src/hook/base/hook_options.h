/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_HOOK_OPTIONS_H
#define NVS_HOOK_HOOK_OPTIONS_H

/*
 * The library's settings: its NVSHARE_* variables, read once, at the first use. One table names
 * them all (hook_options_table.c). For a value that is not allowed the default is used, and one
 * line says so, with the values that are allowed. The library also reads variables of others.
 *
 * A program with more rights than its caller reads none: secure_getenv() finds nothing in a
 * set-uid program, so its caller cannot name the scheduler that it obeys.
 *
 * Threading: any thread. The first use is in a thread of the program, as each getenv() is: a
 * setenv() of the program at the same time may move the value that another thread reads.
 */

#include "nvshare/protocol.h"
#include "util/setting.h"

#include <stdbool.h>
#include <stdint.h>

enum hook_options_backend {
	HOOK_OPTIONS_BACKEND_AUTO,
	HOOK_OPTIONS_BACKEND_VMM,
	HOOK_OPTIONS_BACKEND_MANAGED,
	HOOK_OPTIONS_BACKEND_NONE,
};

enum hook_options_rdma {
	HOOK_OPTIONS_RDMA_STAY,   /* memory that may be registered stays */
	HOOK_OPTIONS_RDMA_IGNORE, /* none is registered */
};

struct hook_options {
	enum hook_options_backend backend;
	enum hook_options_rdma rdma;
	bool require_scheduler;
	bool ipc;
	bool single_oversub;
	bool freeze;
	bool transfer;
	bool clean;
	bool ipc_moves;
	bool host_slabs;
	bool debug; /* hook_log.h reads it for itself */
	bool latency_critical;
	uint64_t orphan_ns;
	uint64_t drain_ns;
	uint64_t drain_max_ns;
	uint64_t copy_max_ns;
	uint64_t idle_ns;
	uint64_t burst_idle_ns;
	uint32_t orion_sm_ppm;  /* orion.h: sm_threshold_ratio */
	uint32_t orion_dur_ppm; /* dur_threshold_ratio */
	uint32_t orion_latency_us;
	uint32_t orion_device;
	uint64_t orion_poll_ns;
	bool orion_interference_aware;
	struct nvshare_claim claim;  /* with latency_critical its class is critical */
	char memory_limit[32];       /* valid for parse_size_or_percent(); "": none */
	char host_memory_limit[32];  /* the same */
	char sock_dir[128];          /* absolute, short enough for a socket */
	char name[NVSHARE_NAME_LEN]; /* "": the command's */
	char pod[NVSHARE_POD_LEN];   /* else POD_NAMESPACE/POD_NAME; "": none */
	char gang[NVSHARE_GANG_LEN]; /* with gang_auto as gang_name.h finds it; "": none */
	uint32_t gang_size;
	bool gang_auto;
	bool is_gang_found; /* gang comes from gang_name.h */
	bool is_injected;   /* CUDA_INJECTION64_PATH or NVTX_INJECTION64_PATH */
	bool is_mps_part;   /* CUDA_MPS_ACTIVE_THREAD_PERCENTAGE */
	char mps_dir[128];  /* CUDA_MPS_PIPE_DIRECTORY; "": none */
};

const struct hook_options *hook_options(void);

/* The word of NVSHARE_PRIORITY for it; "?": it is no priority. */
const char *hook_options_priority(uint32_t priority);

/* get: secure_getenv(), or a test's function. */
void hook_options_parse(char *(*get)(const char *name), struct hook_options *ret);

/* For the manual and for tests. */
extern const struct setting hook_options_table[];
extern const size_t hook_options_table_len;
void hook_options_default(struct hook_options *ret);

#endif
