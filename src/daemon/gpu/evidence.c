/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/gpu/evidence.h"
#include "core/u64.h"

#include <stdlib.h>

static int by_pid(const void *a, const void *b)
{
	const struct nvml_process *x = a, *y = b;

	return (x->pid > y->pid) - (x->pid < y->pid);
}

static int report_rank(const struct evidence_report *report)
{
	return (report->is_listed ? 0 : 2) + (report->is_trusted ? 0 : 1);
}

/*
 * Reports of clients with a process on the card are explained first, and small ones before large
 * ones.
 */
static int by_rank(const void *a, const void *b)
{
	const struct evidence_report *x = a, *y = b;

	if (report_rank(x) != report_rank(y))
		return report_rank(x) - report_rank(y);
	return (x->lacking > y->lacking) - (x->lacking < y->lacking);
}

/* NULL: NVML does not list it. */
static struct nvml_process *process_of(const struct evidence_report *report,
				       struct nvml_process *processes, uint32_t n)
{
	const struct nvml_process key = {.pid = report->pid};

	return report->pid && n ? bsearch(&key, processes, n, sizeof(*processes), by_pid) : NULL;
}

/* The bytes of a process explain its client's report. Several clients of one process share them. */
static uint64_t explain_by_process(struct evidence_report *report, struct nvml_process *processes,
				   uint32_t n)
{
	struct nvml_process *process = process_of(report, processes, n);
	uint64_t bytes;

	report->is_listed = process != NULL;
	report->lacking = report->bytes;
	if (!process)
		return 0;
	report->lacking = u64_excess(report->bytes, report->managed);
	if (process->bytes == UINT64_MAX)
		return 0; /* not told */
	report->shown = process->bytes;
	bytes = u64_min(report->lacking, process->bytes);
	report->lacking -= bytes;
	process->bytes -= bytes;
	return bytes;
}

/* Bytes that reports of others have, elsewhere, may all be of this one process. */
static uint64_t beyond_of(const struct evidence_report *report, struct nvml_process *processes,
			  uint32_t n, uint64_t elsewhere)
{
	struct nvml_process *process = process_of(report, processes, n);
	uint64_t bytes = report->shown ? process->bytes : 0;

	if (bytes)
		process->bytes = 0; /* another client of the process shall not have them, too */
	return u64_excess(bytes, elsewhere);
}

void evidence_compare(struct evidence_report *reports, uint32_t n, struct nvml_process *processes,
		      uint32_t n_processes, uint64_t used, uint64_t slack)
{
	uint64_t rest = used, elsewhere = 0;

	qsort(processes, n_processes, sizeof(*processes), by_pid);
	for (uint32_t i = 0; i < n; i++)
		rest = u64_excess(rest, explain_by_process(&reports[i], processes, n_processes));
	rest += slack;
	qsort(reports, n, sizeof(*reports), by_rank);
	for (uint32_t i = 0; i < n; i++) {
		uint64_t may_be = reports[i].is_stopped ? u64_excess(rest, slack) : rest;
		uint64_t bytes = u64_min(reports[i].lacking, may_be);

		reports[i].lacking -= bytes;
		rest -= bytes;
		elsewhere += bytes;
		reports[i].beyond = bytes; /* its own part of elsewhere, for the loop below */
	}
	for (uint32_t i = 0; i < n; i++) {
		uint64_t others = elsewhere - reports[i].beyond;

		reports[i].beyond = beyond_of(&reports[i], processes, n_processes, others);
		reports[i].is_sure = others == 0;
	}
}

void evidence_report(struct evidence *evidence, uint64_t bytes, uint64_t budget)
{
	evidence->there = u64_min(evidence->there, bytes);
	evidence->before = u64_min(evidence->before, bytes);
	if (u64_excess(bytes, budget) > evidence->there)
		evidence->there = bytes - budget;
}

void evidence_weigh(struct evidence *evidence, uint64_t lacking, uint64_t now_ns, uint64_t grace_ns)
{
	uint64_t at_once = u64_min(lacking, evidence->there);
	uint64_t surely = lacking > evidence->before ? lacking : evidence->before;

	evidence->before = lacking;
	if (surely < evidence->doubted)
		evidence->doubted = surely;
	if (at_once > evidence->doubted)
		evidence->doubted = at_once;
	if (lacking <= evidence->doubted) {
		evidence->is_suspect = false;
		return;
	}
	if (!evidence->is_suspect) {
		evidence->is_suspect = true;
		evidence->since_ns = now_ns;
		evidence->low = lacking;
	}
	evidence->low = u64_min(evidence->low, lacking);
	if (now_ns - evidence->since_ns < grace_ns)
		return;
	if (evidence->low > evidence->doubted)
		evidence->doubted = evidence->low;
	evidence->is_suspect = false; /* bytes beyond that get their own time */
}

bool evidence_settle(struct evidence *evidence, const struct evidence_report *report,
		     uint64_t listed_ns)
{
	if (report->shown && evidence->seen_ns && report->beyond == evidence->seen_beyond)
		return listed_ns - evidence->seen_ns >= EVIDENCE_REST_NS;
	evidence->seen_beyond = report->beyond;
	evidence->seen_ns = report->shown ? listed_ns : 0;
	return false;
}
