/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_HOOK_OPTIONS_H
#define NVS_HOOK_HOOK_OPTIONS_H

/*
 * What the user asked of the library: its NVSHARE_* variables, and those of others that
 * matter to it, read once, at the first use. A value that is not understood is said once, with what
 * is allowed, and the default is used. NVSHARE_DEBUG is read by hook_log.h.
 *
 * Threading: any thread; the first use is in one of the program's, as all getenv() is,
 * since a setenv() of the program at the same time may move what another thread reads.
 */

#include "nvshare/protocol.h"

#include <stdbool.h>
#include <stdint.h>

enum hook_options_backend {
	HOOK_OPTIONS_BACKEND_AUTO,
	HOOK_OPTIONS_BACKEND_VMM,
	HOOK_OPTIONS_BACKEND_MANAGED,
	HOOK_OPTIONS_BACKEND_NONE,
};

struct hook_options {
	enum hook_options_backend backend; /* NVSHARE_MEMORY_BACKEND */
	bool require_scheduler;            /* NVSHARE_REQUIRE_SCHEDULER */
	bool ipc;                          /* NVSHARE_IPC */
	bool single_oversub;               /* NVSHARE_ENABLE_SINGLE_OVERSUB */
	bool freeze;                       /* NVSHARE_FREEZE; 1 */
	bool transfer;                     /* NVSHARE_TRANSFER; 1 */
	bool ignores_rdma;                 /* NVSHARE_RDMA=ignore; else stay */
	uint64_t orphan_ns;                /* NVSHARE_ORPHAN_TIMEOUT_SEC, 0 to 86400; 30 */
	uint64_t drain_ns;                 /* NVSHARE_DRAIN_MS, 0 to 600000; 10 */
	uint64_t drain_max_ns;             /* NVSHARE_DRAIN_MAX_MS, 1 to 600000; 2000 */
	uint64_t copy_max_ns;              /* NVSHARE_COPY_MAX_MS, 1 to 600000; 10000 */
	uint64_t idle_ns;                  /* NVSHARE_IDLE_MS, 1 to 3600000; 1000 */
	uint64_t burst_idle_ns;            /* NVSHARE_BURST_IDLE_US, 100 to 1000000; 500 */
	/* NVSHARE_PRIORITY or NVSHARE_LATENCY_CRITICAL, _WEIGHT, _SLO_MS, _COMPUTE_LIMIT */
	struct nvshare_claim claim;
	char memory_limit[32];       /* NVSHARE_GPU_MEMORY_LIMIT, valid; "": none */
	char host_memory_limit[32];  /* NVSHARE_HOST_MEMORY_LIMIT, valid; "": none */
	char sock_dir[128];          /* NVSHARE_SOCK_DIR, absolute, short enough for a socket */
	bool is_injected;            /* CUDA_INJECTION64_PATH or NVTX_INJECTION64_PATH */
	bool is_mps_part;            /* CUDA_MPS_ACTIVE_THREAD_PERCENTAGE */
	char mps_dir[128];           /* CUDA_MPS_PIPE_DIRECTORY, the same; "": none */
	char name[NVSHARE_NAME_LEN]; /* NVSHARE_NAME; "": the command's */
	char pod[NVSHARE_POD_LEN];   /* NVSHARE_POD, else POD_NAMESPACE/POD_NAME; "": none */
};

const struct hook_options *hook_options(void);

/* As NVSHARE_PRIORITY has it; "?" for what is none. */
const char *hook_options_priority(uint32_t priority);

/* What getenv() says, in place of the process's environment: for tests. */
void hook_options_parse(char *(*get)(const char *name), struct hook_options *ret);

#endif
