/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"
#include "cli/queue_view.h"
#include "cli/run.h"
#include "cli/terminal.h"

#include "util/fd.h"
#include "util/parse.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PEEK 20 /* jobs that wait, if nobody asks for all */

/* A scheduler that restarts is back within so long. */
#define WAIT_RETRIES  100
#define WAIT_RETRY_MS 100

/* The exit code of wait for a job that nobody knows, as that of a shell's wait. */
#define EXIT_UNKNOWN 127

struct list {
	struct queue_job *jobs;
	size_t n, size;
	struct nvshare_jobs_end end;
};

static bool list_add(struct list *list, const struct nvshare_job *job)
{
	if (list->n == list->size) {
		size_t size = list->size ? 2 * list->size : 64;
		struct queue_job *jobs = realloc(list->jobs, size * sizeof(*jobs));

		if (!jobs)
			return false;
		list->jobs = jobs;
		list->size = size;
	}
	list->jobs[list->n++] = (struct queue_job){.job = *job};
	return true;
}

/* CLI_EXIT_REFUSED: the scheduler has said why, and that is printed. */
static int list_fetch(int fd, const struct nvshare_get_jobs *get, struct list *list)
{
	bool is_awaiting = get->flags & NVSHARE_GET_JOBS_AWAIT_END;
	struct msg msg;
	int r = request_send(fd, NVSHARE_MSG_GET_JOBS, get);

	while (!r) {
		r = is_awaiting ? request_await(fd, &msg) : request_receive(fd, &msg);
		if (r)
			return r;
		switch (msg.header.type) {
		case NVSHARE_MSG_JOB:
			if (!list_add(list, &msg.body.job))
				return CLI_EXIT_UNWRITTEN;
			break;
		case NVSHARE_MSG_JOB_GANG:
			if (list->n && list->jobs[list->n - 1].job.job == msg.body.job_gang.job)
				list->jobs[list->n - 1].gang = msg.body.job_gang;
			break;
		case NVSHARE_MSG_JOBS_END:
			list->end = msg.body.jobs_end;
			return CLI_EXIT_OK;
		case NVSHARE_MSG_RESULT:
			(void)fprintf(stderr, "nvsharectl: %s\n", msg.body.result.text);
			return CLI_EXIT_REFUSED;
		default:
			request_report("nvsharectl: the scheduler gives a wrong answer: %s\n",
				       msg_name(msg.header.type));
			return CLI_EXIT_NO_SCHEDULER;
		}
	}
	return r;
}

/* A job by its number. */
static int job_parse(const char *text, uint32_t *ret)
{
	uint64_t number;

	if (parse_u64(text, 1, UINT32_MAX, &number)) {
		(void)fprintf(stderr,
			      "nvsharectl: '%.40s' is no number of a job; see nvsharectl"
			      " queue\n",
			      text);
		return CLI_EXIT_USAGE;
	}
	*ret = (uint32_t)number;
	return CLI_EXIT_OK;
}

/* "7", or "7 --json" in any order. */
static int job_options(char *const *args, const char *command, bool *ret_is_json, uint32_t *ret_job)
{
	int r = CLI_EXIT_OK;

	*ret_is_json = false;
	*ret_job = 0;
	for (; *args && !r; args++) {
		if (!strcmp(*args, "--json") && !*ret_is_json)
			*ret_is_json = true;
		else if (!*ret_job)
			r = job_parse(*args, ret_job);
		else
			r = CLI_EXIT_USAGE;
	}
	if (!r && !*ret_job)
		r = CLI_EXIT_USAGE;
	if (r && !*ret_job)
		(void)fprintf(stderr, "nvsharectl: %s needs the number of a job\n", command);
	else if (r)
		(void)fprintf(stderr, "nvsharectl: %s takes one job, and --json\n", command);
	return r;
}

static int position_command(char *const *args)
{
	struct nvshare_get_jobs get = {.flags = NVSHARE_GET_JOBS_GANGS};
	struct list list = {.n = 0};
	FD_CLEANUP int fd = -1;
	bool is_json;
	int r = job_options(args, "queue position", &is_json, &get.job);

	if (!r)
		r = request_open(&fd);
	if (!r)
		r = list_fetch(fd, &get, &list);
	if (!r && list.n == 1 && is_json) {
		queue_view_job_json(stdout, &list.jobs[0]);
		(void)puts("");
	} else if (!r && list.n == 1) {
		const struct nvshare_job *job = &list.jobs[0].job;

		if (job->position)
			(void)printf("%u of %u: %s\n", job->position, job->n_queued, job->text);
		else if (job->state == NVSHARE_JOB_RUNNING)
			(void)printf("0: it has GPU %u\n", job->gpu);
		else
			(void)printf("0: %s\n", job->text);
	}
	free(list.jobs);
	return r;
}

static int queue_options(char *const *args, bool *ret_is_json, struct nvshare_get_jobs *ret_get)
{
	*ret_is_json = false;
	*ret_get = (struct nvshare_get_jobs){.last = PEEK, .flags = NVSHARE_GET_JOBS_GANGS};
	for (; *args; args++) {
		if (!strcmp(*args, "--json"))
			*ret_is_json = true;
		else if (!strcmp(*args, "--all"))
			ret_get->last = 0;
		else if (!strcmp(*args, "--ended"))
			ret_get->flags |= NVSHARE_GET_JOBS_ENDED;
		else {
			(void)fprintf(stderr,
				      "nvsharectl: queue takes --all, --ended, --json, or"
				      " position JOB, and not '%.40s'\n",
				      *args);
			return CLI_EXIT_USAGE;
		}
	}
	return CLI_EXIT_OK;
}

int queue_command(char *const *args)
{
	struct nvshare_get_jobs get;
	struct list list = {.n = 0};
	FD_CLEANUP int fd = -1;
	bool is_json;
	int r;

	if (*args && !strcmp(*args, "position"))
		return position_command(args + 1);
	r = queue_options(args, &is_json, &get);
	if (!r)
		r = request_open(&fd);
	if (!r)
		r = list_fetch(fd, &get, &list);
	if (!r && is_json)
		queue_view_print_json(stdout, list.jobs, list.n, &list.end);
	else if (!r)
		queue_view_print(stdout, list.jobs, list.n, &list.end, terminal_width(),
				 terminal_has_colours());
	free(list.jobs);
	return r;
}

int cancel_command(char *const *args)
{
	FD_CLEANUP int fd = -1;
	int r = CLI_EXIT_OK, worst = CLI_EXIT_OK;

	if (!*args) {
		(void)fprintf(stderr, "nvsharectl: cancel needs the numbers of jobs\n");
		return CLI_EXIT_USAGE;
	}
	for (char *const *at = args; *at && !r; at++) {
		uint32_t job;

		r = job_parse(*at, &job);
	}
	if (!r)
		r = request_open(&fd);
	for (; *args && !r; args++) {
		struct nvshare_job_ref ref = {.job = 0};
		struct nvshare_result_msg result;

		(void)job_parse(*args, &ref.job);
		r = request_set(fd, NVSHARE_MSG_CANCEL_JOB, &ref, &result);
		if (!r && result.code != NVSHARE_RESULT_OK) {
			(void)fprintf(stderr, "nvsharectl: %s\n", result.text);
			worst = CLI_EXIT_REFUSED;
		} else if (!r) {
			(void)printf("%s\n", result.text);
		}
	}
	return r ? r : worst;
}

/* The end of a job outlives no scheduler, but its place does. */
static int wait_fetch(const struct nvshare_get_jobs *get, struct list *list)
{
	int r = CLI_EXIT_NO_SCHEDULER;
	bool is_open = true;
	FILE *quiet = fopen("/dev/null", "we");

	for (int i = 0; i < WAIT_RETRIES && r == CLI_EXIT_NO_SCHEDULER; i++) {
		FD_CLEANUP int fd = -1;
		bool was_open = is_open;

		/* Errors of the first tries are not printed: the next try may go well. */
		request_report_to(i + 1 < WAIT_RETRIES ? quiet : NULL);
		r = request_open(&fd);
		is_open = !r;
		list->n = 0; /* an answer that was cut off is asked for anew */
		if (!r)
			r = list_fetch(fd, get, list);
		/* It was away, and is back. One that answers wrongly is no restart. */
		if (is_open && !was_open)
			i = 0;
		if (r == CLI_EXIT_NO_SCHEDULER)
			(void)poll(NULL, 0, WAIT_RETRY_MS);
	}
	request_report_to(NULL);
	if (quiet)
		(void)fclose(quiet);
	return r;
}

int wait_command(char *const *args)
{
	struct nvshare_get_jobs get = {.flags =
					       NVSHARE_GET_JOBS_AWAIT_END | NVSHARE_GET_JOBS_GANGS};
	struct list list = {.n = 0};
	FD_CLEANUP int fd = -1;
	bool is_json;
	int r = job_options(args, "wait", &is_json, &get.job);

	/* A scheduler that is not there at the beginning is no restart. */
	if (!r)
		r = request_open(&fd);
	if (r)
		return r;
	fd = fd_close(fd);
	r = wait_fetch(&get, &list);
	if (r == CLI_EXIT_REFUSED)
		r = EXIT_UNKNOWN;
	if (!r && list.n == 1) {
		const struct nvshare_job *job = &list.jobs[0].job;

		if (is_json) {
			queue_view_job_json(stdout, &list.jobs[0]);
			(void)puts("");
		} else if (job->end != NVSHARE_JOB_END_EXIT) {
			(void)fprintf(stderr, "nvsharectl: job %u: %s\n", job->job, job->text);
		}
		r = job->end == NVSHARE_JOB_END_LIMIT  ? RUN_EXIT_LIMIT
		    : job->end != NVSHARE_JOB_END_EXIT ? RUN_EXIT_NOT_RUN
		    : job->signal                      ? 128 + (int)job->signal
						       : (int)job->exit_code;
	}
	free(list.jobs);
	return r;
}

int place_command(char *const *args)
{
	struct run_options options;
	struct msg msg;
	FD_CLEANUP int fd = -1;
	char *kept[64];
	bool is_json = false;
	size_t n = 0;
	int r;

	/* All placements are dry runs today; the word keeps the way open for others. */
	for (; *args && n + 1 < sizeof(kept) / sizeof(*kept); args++) {
		if (!strcmp(*args, "--json"))
			is_json = true;
		else if (strcmp(*args, "--dry-run") != 0)
			kept[n++] = *args;
	}
	kept[n] = NULL;
	r = run_options_parse(kept, false, getenv("CUDA_VISIBLE_DEVICES"), &options);
	if (!r)
		r = request_open(&fd);
	if (!r)
		r = request_send(fd, NVSHARE_MSG_PLACE, &options.submit);
	if (!r)
		r = request_receive(fd, &msg);
	if (r)
		return r;
	if (msg.header.type == NVSHARE_MSG_RESULT) {
		(void)fprintf(stderr, "nvsharectl: %s\n", msg.body.result.text);
		return CLI_EXIT_REFUSED;
	}
	if (msg.header.type != NVSHARE_MSG_PLACEMENT) {
		request_report("nvsharectl: the scheduler gives a wrong answer: %s\n",
			       msg_name(msg.header.type));
		return CLI_EXIT_NO_SCHEDULER;
	}
	if (is_json)
		placement_print_json(stdout, &msg.body.placement);
	else
		placement_print(stdout, &msg.body.placement, terminal_width(),
				terminal_has_colours());
	return CLI_EXIT_OK;
}
