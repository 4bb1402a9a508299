/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/view.h"

#include "cli/fold.h"
#include "cli/status.h"
#include "cli/view_private.h"

#include "ipc/names.h"
#include "util/clock.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static void print_node(FILE *out, const struct nvshare_status_node *node, bool has_colours)
{
	(void)fprintf(out, "%snvshare-scheduler %s%s, pid %u, up %s\n",
		      has_colours ? VIEW_BOLD : "", node->version, has_colours ? VIEW_RESET : "",
		      node->pid, view_lasting(node->uptime_ns).s);
	(void)fprintf(out, "mode %s, policy %s", names_mode[node->mode],
		      names_policy[node->policy]);
	if (node->policy == NVSHARE_POLICY_CREDIT && node->credit_round_ms)
		(void)fprintf(out, " (rounds of %s)",
			      view_seconds(node->credit_round_ms * CLOCK_NS_PER_MS).s);
	(void)fputs(", ", out);
	if (node->mode == NVSHARE_MODE_CONCURRENT)
		(void)fprintf(out, "turns of %s (tq)", view_seconds(node->tq_ns).s);
	else if (node->switch_mode == NVSHARE_SWITCH_FIXED)
		(void)fprintf(out, "switch time %s", view_seconds(node->switch_fixed_ns).s);
	else
		(void)fprintf(out, "switch time auto (%u x swap time, %s to %s)",
			      node->switch_multiplier, view_seconds(node->switch_min_ns).s,
			      view_seconds(node->switch_max_ns).s);
	if (node->sharing_degree)
		(void)fprintf(out, ", at most %u program%s at once", node->sharing_degree,
			      view_plural(node->sharing_degree));
	(void)fprintf(out, ", max runtime %s, reserve %u %%, anti-thrash %s\n",
		      view_seconds(node->max_runtime_ns).s, node->reserve_percent,
		      node->anti_thrash ? "on" : "off: nobody takes turns");
	if (node->n_jobs_running || node->n_jobs_waiting)
		(void)fprintf(out, "jobs: %u with a GPU, %u waiting (nvsharectl queue)\n",
			      node->n_jobs_running, node->n_jobs_waiting);
}

/* Nothing where no program has lent any. */
static void print_pool(FILE *out, const struct nvshare_status_pool *pool)
{
	if (!pool->lent && !pool->ready)
		return;
	(void)fprintf(out, "host memory: %s lent to %u program%s, %s ready",
		      view_size(pool->lent).s, pool->n_borrowers, view_plural(pool->n_borrowers),
		      view_size(pool->ready).s);
	if (pool->limit != UINT64_MAX)
		(void)fprintf(out, ", limit %s", view_size(pool->limit).s);
	(void)fputc('\n', out);
}

/* Collects lines, to fold and print them together. */
struct lines {
	FILE *file;
	char *text;
	size_t len;
};

static bool lines_begin(struct lines *lines)
{
	*lines = (struct lines){0};
	lines->file = open_memstream(&lines->text, &lines->len);
	return lines->file != NULL;
}

static void lines_end(struct lines *lines, FILE *out, size_t width)
{
	if (fclose(lines->file) == 0)
		fold_print(out, lines->text, width);
	free(lines->text);
}

void view_print(FILE *out, const struct status *status, size_t width, bool has_colours)
{
	struct lines lines;

	if (lines_begin(&lines)) {
		print_node(lines.file, &status->node, has_colours);
		print_pool(lines.file, &status->pool);
		lines_end(&lines, out, width);
	}
	if (status->n_gpus == 0)
		(void)fprintf(out,
			      "\nNo GPU yet: NVML lists none, and no program has registered.\n");
	for (size_t i = 0; i < status->n_gpus; i++) {
		if (lines_begin(&lines)) {
			view_gpu_print(lines.file, status, &status->gpus[i], has_colours);
			lines_end(&lines, out, width);
		}
		view_clients_print(out, status, status->gpus[i].index, width, has_colours);
	}
	if (lines_begin(&lines)) {
		view_gangs_print(lines.file, status);
		lines_end(&lines, out, width);
	}
}
