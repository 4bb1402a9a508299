/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_EVIDENCE_H
#define NVS_DAEMON_EVIDENCE_H

/*
 * Compares clients' reports with what NVML shows of the GPU and of each process.
 *
 * All reports together cannot exceed the used bytes, so used bytes explain reports. First the
 * bytes of each process explain the reports of its clients. Then bytes that no such report has
 * taken explain the rest. The second step is needed, because NVML counts some memory for no
 * process: managed memory, and memory that one process has from another (seen on an H100). Bytes
 * that remain are lacking. A report may be ahead of the driver, so bytes are doubted when they
 * have lacked for long.
 *
 * Bytes of a process beyond its report are the driver's own, of its contexts: no client can measure
 * its first context. They count when two comparisons find the same.
 *
 * Pure. Threading: none.
 */

#include "daemon/gpu/nvml.h"

#include <stdbool.h>
#include <stdint.h>

/* A client's report, for one comparison. */
struct evidence_report {
	uint32_t slot;    /* the caller's */
	uint32_t pid;     /* 0: not known */
	uint64_t bytes;   /* on the card */
	uint64_t managed; /* of these; counts as used if NVML lists the process */
	bool is_trusted;  /* explained before others */
	bool is_stopped;  /* takes nothing more now: it gets no slack */
	bool is_listed;   /* returned: NVML lists its process */
	uint64_t lacking; /* returned: bytes that nothing explains */
	uint64_t shown;   /* returned: of its process, by NVML; 0: it does not tell */
	uint64_t beyond;  /* returned: of these, bytes that no report explains */
	bool is_sure;     /* returned: no report of another process can have some of them, too */
};

/*
 * Sorts reports and processes. used: bytes of the GPU that anybody uses; slack: reports may
 * exceed used by so many bytes.
 */
void evidence_compare(struct evidence_report *reports, uint32_t n, struct nvml_process *processes,
		      uint32_t n_processes, uint64_t used, uint64_t slack);

#define EVIDENCE_REST_NS 1000000000ull

/* The findings about one client; zeroed: none. */
struct evidence {
	bool is_suspect;
	uint64_t since_ns; /* of the suspicion */
	uint64_t low;      /* the least that was lacking since */
	uint64_t before;   /* lacking in the last comparison */
	uint64_t there; /* bytes beyond its budget: the driver must have allocated them already */
	uint64_t doubted;
	uint64_t beyond;      /* of its process, counted for its contexts; no report has them */
	uint64_t seen_beyond; /* what its process had beyond its report in the last comparison */
	uint64_t seen_ns;     /* since when that is so; 0: NVML showed no such process */
	uint64_t shown;       /* of its process, when it was first known what contexts cost */
	uint64_t changed_ns;  /* when its contexts changed; 0: what they cost is known */
};

/* The client reports bytes; its budget was budget before that. */
void evidence_report(struct evidence *evidence, uint64_t bytes, uint64_t budget);

/*
 * A comparison found lacking bytes. They are doubted when they have lacked for grace_ns, and
 * believed when two comparisons have found them: bytes of another client, of which the report is
 * on its way, may be taken for them in one.
 */
void evidence_weigh(struct evidence *evidence, uint64_t lacking, uint64_t now_ns,
		    uint64_t grace_ns);

/*
 * listed_ns: when NVML was asked. true: report->beyond is as it was EVIDENCE_REST_NS before, and in
 * all comparisons since, so it is what the contexts cost more. A report and a list of NVML may be
 * of different moments.
 */
bool evidence_settle(struct evidence *evidence, const struct evidence_report *report,
		     uint64_t listed_ns);

#endif
