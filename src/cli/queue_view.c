/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/queue_view.h"

#include "cli/json.h"
#include "cli/table.h"
#include "cli/view_private.h"

#include "ipc/names.h"

#include <inttypes.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>

/* ---- jobs for people ----------------------------------------------------------------- */

static const struct table_column on_columns[] = {
	{"JOB", TABLE_ALIGN_RIGHT, 0},  {"PID", TABLE_ALIGN_RIGHT, 5},
	{"USER", TABLE_ALIGN_LEFT, 2},  {"NAME", TABLE_ALIGN_NAME, 0},
	{"GANG", TABLE_ALIGN_LEFT, 6},  {"GPU", TABLE_ALIGN_RIGHT, 0},
	{"STATE", TABLE_ALIGN_LEFT, 0}, {"RAN", TABLE_ALIGN_RIGHT, 0},
	{"LEFT", TABLE_ALIGN_RIGHT, 1}, {"MEMORY", TABLE_ALIGN_RIGHT, 0},
	{"PEAK", TABLE_ALIGN_RIGHT, 3}, {"PROGRAMS", TABLE_ALIGN_RIGHT, 4},
	{"NOTE", TABLE_ALIGN_NOTE, 0},
};

static const struct table_column waiting_columns[] = {
	{"PLACE", TABLE_ALIGN_RIGHT, 0},   {"JOB", TABLE_ALIGN_RIGHT, 0},
	{"PID", TABLE_ALIGN_RIGHT, 5},     {"USER", TABLE_ALIGN_LEFT, 2},
	{"NAME", TABLE_ALIGN_NAME, 0},     {"GANG", TABLE_ALIGN_LEFT, 4},
	{"PRIORITY", TABLE_ALIGN_LEFT, 1}, {"MEMORY", TABLE_ALIGN_RIGHT, 0},
	{"WAITS", TABLE_ALIGN_RIGHT, 0},   {"NOTE", TABLE_ALIGN_NOTE, 0},
};

#define N_OF(array) (sizeof(array) / sizeof((array)[0]))

static void add_user(struct table *table, uint32_t uid)
{
	const struct passwd *user = getpwuid((uid_t)uid);

	if (user)
		table_add(table, NULL, "%s", user->pw_name);
	else
		table_add(table, NULL, "%u", uid);
}

static const char *priority_cell(uint32_t priority)
{
	return priority == NVSHARE_PRIORITY_NORMAL ? "" : names_priority[priority];
}

/* The rest of the time limit. */
static const char *left_cell(const struct nvshare_job *job, struct view_text *text)
{
	uint64_t left_ns = job->limit_ns > job->counted_ns ? job->limit_ns - job->counted_ns : 0;

	if (!job->limit_ns || job->state == NVSHARE_JOB_DONE)
		return "";
	*text = view_lasting(left_ns);
	return text->s;
}

/* "train 2/4": so many of its jobs are there. */
static void add_gang(struct table *table, const struct nvshare_job_gang *gang)
{
	if (gang->size)
		table_add(table, NULL, "%s %u/%u", gang->name, gang->n_members, gang->size);
	else
		table_add(table, NULL, "%s", "");
}

static void add_on(struct table *table, const struct queue_job *queued)
{
	const struct nvshare_job *job = &queued->job;
	struct view_text left;
	bool is_done = job->state == NVSHARE_JOB_DONE;

	table_add(table, NULL, "%u", job->job);
	table_add(table, NULL, "%u", job->pid);
	add_user(table, job->uid);
	table_add(table, NULL, "%s", job->name);
	add_gang(table, &queued->gang);
	if (job->gpu == NVSHARE_JOB_NO_GPU)
		table_add(table, NULL, "-");
	else
		table_add(table, NULL, "%u", job->gpu);
	table_add(table, is_done ? VIEW_DIM : VIEW_GREEN, "%s", names_job_state[job->state]);
	table_add(table, NULL, "%s", view_lasting(job->ran_ns).s);
	table_add(table, NULL, "%s", left_cell(job, &left));
	table_add(table, NULL, "%s%s", view_size(job->memory).s,
		  job->flags & NVSHARE_JOB_RESERVES ? " kept" : "");
	table_add(table, NULL, "%s", job->peak ? view_size(job->peak).s : "-");
	table_add(table, NULL, "%u", job->n_programs);
	table_add(table, NULL, "%s", job->text);
}

static void add_waiting(struct table *table, const struct queue_job *queued)
{
	const struct nvshare_job *job = &queued->job;

	if (job->position)
		table_add(table, NULL, "%u", job->position);
	else
		table_add(table, NULL, "-");
	table_add(table, NULL, "%u", job->job);
	table_add(table, NULL, "%u", job->pid);
	add_user(table, job->uid);
	table_add(table, NULL, "%s", job->name);
	add_gang(table, &queued->gang);
	table_add(table, NULL, "%s", priority_cell(job->priority));
	table_add(table, NULL, "%s", view_size(job->memory).s);
	table_add(table, NULL, "%s", view_lasting(job->waited_ns).s);
	table_add(table, NULL, "%s", job->text);
}

/* Those that wait in the queue's order, behind all others in the order of their numbers. */
static int compare_jobs(const void *a, const void *b)
{
	const struct nvshare_job *x = &((const struct queue_job *)a)->job;
	const struct nvshare_job *y = &((const struct queue_job *)b)->job;
	bool is_x_queued = x->position > 0, is_y_queued = y->position > 0;

	if (is_x_queued != is_y_queued)
		return is_x_queued - is_y_queued;
	if (is_x_queued && x->position != y->position)
		return x->position < y->position ? -1 : 1;
	return (x->job > y->job) - (x->job < y->job);
}

/* A job that changed its place while the answer came may be there twice. */
static size_t tidy_jobs(struct queue_job *jobs, size_t n)
{
	size_t n_kept = 0;

	for (size_t i = 0; i < n; i++) {
		bool is_new = true;

		for (size_t k = 0; k < n_kept && is_new && n <= 4096; k++)
			is_new = jobs[k].job.job != jobs[i].job.job;
		if (is_new)
			jobs[n_kept++] = jobs[i];
	}
	qsort(jobs, n_kept, sizeof(*jobs), compare_jobs);
	return n_kept;
}

void queue_view_print(FILE *out, struct queue_job *jobs, size_t n,
		      const struct nvshare_jobs_end *end, size_t width, bool has_colours)
{
	struct table on, waiting;
	size_t n_on = 0, n_waiting = 0;

	table_init(&on, on_columns, N_OF(on_columns));
	table_init(&waiting, waiting_columns, N_OF(waiting_columns));
	n = tidy_jobs(jobs, n);
	for (size_t i = 0; i < n; i++) {
		bool is_waiting = jobs[i].job.state == NVSHARE_JOB_WAITING;

		if (is_waiting)
			add_waiting(&waiting, &jobs[i]);
		else
			add_on(&on, &jobs[i]);
		n_waiting += is_waiting;
		n_on += !is_waiting;
	}
	(void)fprintf(out, "Jobs with a GPU: %u; waiting: %u\n", end->n_running, end->n_queued);
	if (n_on) {
		(void)fputs("\n", out);
		table_print(&on, out, "  ", width, has_colours);
	}
	if (n_waiting) {
		(void)fputs("\n", out);
		table_print(&waiting, out, "  ", width, has_colours);
	}
	if (end->n_queued > n_waiting && n_waiting)
		(void)fprintf(out, "  and %zu more: nvsharectl queue --all\n",
			      end->n_queued - n_waiting);
	table_deinit(&on);
	table_deinit(&waiting);
}

/* ---- jobs for programs --------------------------------------------------------------- */

static void json_text(FILE *out, const char *key, const char *value)
{
	(void)fprintf(out, ", \"%s\": ", key);
	if (value && *value)
		json_print_string(out, value);
	else
		(void)fputs("null", out);
}

static void json_seconds(FILE *out, const char *key, uint64_t ns)
{
	(void)fprintf(out, ", \"%s\": %.3f", key, (double)ns / 1e9);
}

static void json_gang(FILE *out, const struct nvshare_job_gang *gang)
{
	if (!gang->size) {
		(void)fputs(", \"gang\": null", out);
		return;
	}
	(void)fputs(", \"gang\": {\"name\": ", out);
	json_print_string(out, gang->name);
	(void)fprintf(out, ", \"size\": %u, \"members\": %u, \"with_gpu\": %u}", gang->size,
		      gang->n_members, gang->n_on);
}

void queue_view_job_json(FILE *out, const struct queue_job *queued)
{
	const struct nvshare_job *job = &queued->job;

	(void)fprintf(out, "{\"job\": %u, \"state\": \"%s\"", job->job,
		      names_job_state[job->state]);
	json_text(out, "name", job->name);
	json_text(out, "model", job->model);
	json_text(out, "type", job->type);
	(void)fprintf(out, ", \"pid\": %u, \"uid\": %u, \"priority\": \"%s\"", job->pid, job->uid,
		      names_priority[job->priority]);
	(void)fprintf(out, ", \"position\": %u", job->position);
	json_text(out, "why", names_job_why[job->why]);
	json_text(out, "text", job->text);
	json_gang(out, &queued->gang);
	if (job->gpu == NVSHARE_JOB_NO_GPU)
		(void)fputs(", \"gpu\": null", out);
	else
		(void)fprintf(out, ", \"gpu\": %u", job->gpu);
	json_text(out, "gpu_uuid", job->gpu_uuid);
	(void)fprintf(out,
		      ", \"memory\": %" PRIu64 ", \"peak\": %" PRIu64 ", \"missing\": %" PRIu64,
		      job->memory, job->peak, job->missing);
	(void)fprintf(out, ", \"reserves\": %s, \"whole\": %s, \"out_of_memory\": %s",
		      job->flags & NVSHARE_JOB_RESERVES ? "true" : "false",
		      job->flags & NVSHARE_JOB_WHOLE ? "true" : "false",
		      job->flags & NVSHARE_JOB_OOM ? "true" : "false");
	(void)fprintf(out, ", \"programs\": %u, \"retries_left\": %u", job->n_programs,
		      job->n_retries);
	json_seconds(out, "submitted", job->submitted_unix_ns);
	json_seconds(out, "waited_seconds", job->waited_ns);
	json_seconds(out, "ran_seconds", job->ran_ns);
	json_seconds(out, "counted_seconds", job->counted_ns);
	json_seconds(out, "limit_seconds", job->limit_ns);
	json_text(out, "end", names_job_end[job->end]);
	(void)fprintf(out, ", \"exit_code\": %u, \"signal\": %u}", job->exit_code, job->signal);
}

void queue_view_print_json(FILE *out, struct queue_job *jobs, size_t n,
			   const struct nvshare_jobs_end *end)
{
	n = tidy_jobs(jobs, n);
	(void)fprintf(out, "{\"with_gpu\": %u, \"waiting\": %u, \"jobs\": [", end->n_running,
		      end->n_queued);
	for (size_t i = 0; i < n; i++) {
		(void)fputs(i ? ",\n  " : "\n  ", out);
		queue_view_job_json(out, &jobs[i]);
	}
	(void)fputs(n ? "\n]}\n" : "]}\n", out);
}

/* ---- placements ---------------------------------------------------------------------- */

static const struct table_column placement_columns[] = {
	{"GPU", TABLE_ALIGN_RIGHT, 0},      {"FREE", TABLE_ALIGN_RIGHT, 0},
	{"PROGRAMS", TABLE_ALIGN_RIGHT, 0}, {"MODEL", TABLE_ALIGN_RIGHT, 1},
	{"MEMORY", TABLE_ALIGN_RIGHT, 1},   {"USE", TABLE_ALIGN_RIGHT, 1},
	{"HEAT", TABLE_ALIGN_RIGHT, 1},     {"IDLE", TABLE_ALIGN_RIGHT, 1},
	{"SCORE", TABLE_ALIGN_RIGHT, 0},    {"NOTE", TABLE_ALIGN_NOTE, 0},
};

static const char *verdict_text(const struct nvshare_gpu_score *score)
{
	static const char *const texts[NVSHARE_VERDICT_COUNT] = {
		[NVSHARE_VERDICT_FITS] = "fits",
		[NVSHARE_VERDICT_SHARES] = "takes turns with others",
		[NVSHARE_VERDICT_NOT_ASKED] = "is not asked for",
		[NVSHARE_VERDICT_NOT_IN_SET] = "job_gpus lacks it",
		[NVSHARE_VERDICT_RESERVED] = "is in job_gpus_reserved",
		[NVSHARE_VERDICT_TOO_SMALL] = "is too small",
		[NVSHARE_VERDICT_OUT] = "has an error",
		[NVSHARE_VERDICT_APART] = "has a job that it must be apart from",
		[NVSHARE_VERDICT_DEGREE] = "has as many programs as its sharing degree allows",
		[NVSHARE_VERDICT_MEMORY] = "has no room now",
		[NVSHARE_VERDICT_BOOKED] = "is kept for a job that has waited for long",
	};

	return texts[score->verdict];
}

static void add_points(struct table *table, uint32_t thousandths)
{
	table_add(table, NULL, "%.1f", thousandths / 1e3);
}

static void add_score(struct table *table, const struct nvshare_placement *placement,
		      const struct nvshare_gpu_score *score)
{
	bool is_chosen = score->gpu == placement->gpu;

	table_add(table, is_chosen ? VIEW_GREEN : NULL, "%u", score->gpu);
	table_add(table, NULL, "%s", view_size(score->free).s);
	table_add(table, NULL, "%u", score->n_on);
	add_points(table, score->affinity);
	add_points(table, score->memory);
	add_points(table, score->utilization);
	add_points(table, score->temperature);
	add_points(table, score->idle);
	add_points(table, score->total);
	table_add(table, is_chosen ? VIEW_GREEN : NULL, "%s%s", is_chosen ? "best; " : "",
		  verdict_text(score));
}

void placement_print(FILE *out, const struct nvshare_placement *placement, size_t width,
		     bool has_colours)
{
	struct table table;

	(void)fprintf(out, "A job of %s%s would ", view_size(placement->memory).s,
		      placement->is_estimated ? " (estimated)" : "");
	if (placement->gpu == NVSHARE_JOB_NO_GPU)
		(void)fprintf(out, "wait");
	else
		(void)fprintf(out, "start on GPU %u", placement->gpu);
	if (placement->n_queued && placement->gpu != NVSHARE_JOB_NO_GPU)
		(void)fprintf(out, ", unless %u waiting job%s first", placement->n_queued,
			      placement->n_queued == 1 ? " goes" : "s go");
	(void)fputs(placement->n ? ".\n\n" : ": no GPU is known.\n", out);
	table_init(&table, placement_columns, N_OF(placement_columns));
	for (uint32_t i = 0; i < placement->n; i++)
		add_score(&table, placement, &placement->gpus[i]);
	if (placement->n)
		table_print(&table, out, "  ", width, has_colours);
	table_deinit(&table);
}

static void score_print_json(FILE *out, const struct nvshare_gpu_score *score)
{
	const struct {
		const char *key;
		uint32_t thousandths;
	} parts[] = {
		{"model", score->affinity},
		{"memory", score->memory},
		{"utilization", score->utilization},
		{"temperature", score->temperature},
		{"idle", score->idle},
		{"total", score->total},
	};

	(void)fprintf(out,
		      "{\"gpu\": %u, \"verdict\": \"%s\", \"free\": %" PRIu64
		      ", \"programs\": %u, \"sharing_degree\": %u, \"score\": {",
		      score->gpu, names_verdict[score->verdict], score->free, score->n_on,
		      score->degree);
	for (size_t i = 0; i < N_OF(parts); i++)
		(void)fprintf(out, "%s\"%s\": %.3f", i ? ", " : "", parts[i].key,
			      parts[i].thousandths / 1e3);
	(void)fputs("}}", out);
}

void placement_print_json(FILE *out, const struct nvshare_placement *placement)
{
	(void)fprintf(
		out, "{\"memory\": %" PRIu64 ", \"estimated\": %s, \"waiting\": %u, \"gpu\": ",
		placement->memory, placement->is_estimated ? "true" : "false", placement->n_queued);
	if (placement->gpu == NVSHARE_JOB_NO_GPU)
		(void)fputs("null", out);
	else
		(void)fprintf(out, "%u", placement->gpu);
	(void)fputs(", \"gpus\": [", out);
	for (uint32_t i = 0; i < placement->n; i++) {
		(void)fputs(i ? ",\n  " : "\n  ", out);
		score_print_json(out, &placement->gpus[i]);
	}
	(void)fputs("]}\n", out);
}
