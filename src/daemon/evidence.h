/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_EVIDENCE_H
#define NVS_DAEMON_EVIDENCE_H

/*
 * What clients report, compared with what NVML shows of the GPU and of each process.
 *
 * All reports together cannot exceed what is used. So used bytes explain reports: first each
 * process's own, then what no process's own reports have taken. The second step is needed: NVML
 * counts managed memory, and memory that one process has from another, for no process (seen on an
 * H100). What remains is lacking. A report may be ahead of the driver, so only what lacks for long
 * is doubted.
 */

#include "daemon/nvml.h"

#include <stdbool.h>
#include <stdint.h>

/* One client's report, for one comparison. */
struct evidence_report {
	uint32_t slot;    /* the caller's */
	uint32_t pid;     /* 0: not known */
	uint64_t bytes;   /* on the card */
	uint64_t managed; /* of these; counts for a process that is listed, used or not */
	bool is_trusted;  /* explained before others */
	bool is_listed;   /* returned: NVML lists its process */
	uint64_t lacking; /* returned: bytes that nothing explains */
};

/* Orders reports and processes anew. used: of the GPU, by all; slack: bytes more than that. */
void evidence_compare(struct evidence_report *reports, uint32_t n, struct nvml_process *processes,
		      uint32_t n_processes, uint64_t used, uint64_t slack);

/* What is known of one client; zeroed: nothing. */
struct evidence {
	bool is_suspect;
	uint64_t since_ns; /* of the suspicion */
	uint64_t low;      /* the least that was lacking since */
	uint64_t there;    /* bytes that it has been given no budget for: the driver must have made
			      them */
	uint64_t doubted;
};

/* Its report is bytes by now, and its budget before that was budget. */
void evidence_report(struct evidence *evidence, uint64_t bytes, uint64_t budget);

/* A comparison found so much lacking. Bytes lack for grace_ns before they are doubted. */
void evidence_weigh(struct evidence *evidence, uint64_t lacking, uint64_t now_ns,
		    uint64_t grace_ns);

#endif
