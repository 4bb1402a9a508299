/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CLI_DOCTOR_H
#define NVS_CLI_DOCTOR_H

/*
 * `nvsharectl doctor`: facts about this machine, and what follows from them. doctor_facts.c and
 * doctor_driver.c gather the facts. doctor_findings.c judges them, and is pure. Single-threaded.
 */

#include "cli/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum doctor_child {
	DOCTOR_CHILD_ANSWERED,
	DOCTOR_CHILD_HANGS, /* no answer within its time; it was killed, and may hang on */
	DOCTOR_CHILD_DIED,
};

#define DOCTOR_NO_LIBRARY (-1)

/* The driver's answers. A child process asks for them. */
struct doctor_driver {
	enum doctor_child child;
	int nvml;         /* DOCTOR_NO_LIBRARY, or an nvmlReturn_t */
	int cuda;         /* DOCTOR_NO_LIBRARY, or the CUresult of the first call that failed */
	int cuda_version; /* 12040: CUDA 12.4 */
	uint32_t n_gpus;  /* as CUDA counts them */
	uint32_t n_vmm;   /* GPUs with virtual memory management */
	uint32_t n_users; /* processes that compute, by NVML, on all GPUs */
	uint64_t largest; /* bytes of the largest GPU */
	char version[80]; /* "550.54.15"; "": NVML does not tell */
};

enum doctor_trial {
	DOCTOR_TRIAL_PROVEN,
	DOCTOR_TRIAL_REFUSED, /* doctor_freeze::why says why */
	DOCTOR_TRIAL_NOTHING, /* it ended without a result */
	DOCTOR_TRIAL_HANGS,
	DOCTOR_TRIAL_IN_USE, /* none: programs use the GPUs */
	DOCTOR_TRIAL_NO_WAY, /* none: no driver, or no library */
};

struct doctor_freeze {
	enum doctor_trial trial;
	uint32_t client; /* not 0: no trial was needed, since this client tells it */
	char why[128];   /* "" or a reason in words */
};

struct doctor_library {
	char path[4096];  /* "": not found */
	char version[32]; /* "": the file does not tell */
};

/* The process of --pid. */
struct doctor_process {
	pid_t pid; /* 0: none was asked about */
	int error; /* of looking: ENOENT: no such process; EACCES: no right; 0: seen */
	bool has_cuda;
	bool is_named;    /* its LD_PRELOAD names the library */
	bool is_replaced; /* the loaded file is not there any more */
	struct doctor_library loaded;
};

struct doctor_facts {
	struct doctor_driver driver;
	struct doctor_freeze freeze;
	struct doctor_library library;
	struct doctor_process process;
	struct status status;
	const char *socket_dir;
	int socket;           /* 0, or the errno of connecting */
	bool has_status;      /* the scheduler has answered */
	bool has_group;       /* there is a group nvshare */
	bool is_trusted;      /* root, or a member of the group */
	uint64_t host_memory; /* bytes that the machine can spare; UINT64_MAX: unknown */
	uint64_t group_limit; /* bytes, of the control group; UINT64_MAX: none */
	uint64_t lock_limit;  /* bytes, RLIMIT_MEMLOCK; UINT64_MAX: none */
};

enum doctor_level { DOCTOR_OK, DOCTOR_WARNING, DOCTOR_PROBLEM };

struct doctor_finding {
	enum doctor_level level;
	char found[512];
	char advice[256]; /* "" where there is nothing to do */
};

/* doctor_findings.c: the rows; NULL: no such row, or it does not concern these facts. */
const char *doctor_judge(size_t row, const struct doctor_facts *facts,
			 struct doctor_finding *ret_finding);
size_t doctor_rows(void);

/* pid: 0, or a process to look at. The caller calls doctor_facts_deinit(), in any case. */
void doctor_facts_gather(struct doctor_facts *facts, pid_t pid);
void doctor_facts_deinit(struct doctor_facts *facts);

/* The version that a file of the library carries; "" where there is none. */
void doctor_library_version(const char *path, char *ret_version, size_t size);

/* doctor_driver.c. Each runs a child, and returns within some seconds even if the child hangs. */
void doctor_driver_ask(struct doctor_driver *ret_driver);
void doctor_freeze_try(const char *library, struct doctor_freeze *ret_freeze);

/* The program of the second child, which libnvshare.so is preloaded into. Returns an exit code. */
int doctor_freeze_child(void);

#endif
