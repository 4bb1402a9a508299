/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CLI_QUEUE_VIEW_H
#define NVS_CLI_QUEUE_VIEW_H

/* Jobs and placements, for people and for programs. Single-threaded. */

#include "nvshare/protocol.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct queue_job {
	struct nvshare_job job;
	struct nvshare_job_gang gang; /* size 0: it has none */
};

/* Jobs in the order of the answer; end: the last packet of it. */
void queue_view_print(FILE *out, struct queue_job *jobs, size_t n,
		      const struct nvshare_jobs_end *end, size_t width, bool has_colours);
void queue_view_print_json(FILE *out, struct queue_job *jobs, size_t n,
			   const struct nvshare_jobs_end *end);

void queue_view_job_json(FILE *out, const struct queue_job *queued);

void placement_print(FILE *out, const struct nvshare_placement *placement, size_t width,
		     bool has_colours);
void placement_print_json(FILE *out, const struct nvshare_placement *placement);

#endif
