/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"
#include "cli/fold.h"
#include "cli/run.h"
#include "cli/view.h"

#include "util/clock.h"
#include "util/fd.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define LINE_LEN 512

struct run {
	struct run_options options;
	struct job_client client;
	struct run_child child;
	bool is_terminal;     /* the standard error */
	bool has_line;        /* a line on the terminal that is to be overwritten */
	bool has_warned;      /* that nobody manages the command any more */
	bool has_said_near;   /* that its time limit is */
	char said[LINE_LEN];  /* last */
	uint32_t signal_sent; /* that the scheduler wanted, last */
};

/* ---- what people see ----------------------------------------------------------------- */

static size_t run_columns(void)
{
	struct winsize size;

	return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col - 1u
									       : 79;
}

static void run_clear_line(struct run *run)
{
	if (run->has_line)
		(void)fprintf(stderr, "\r\033[K");
	run->has_line = false;
}

/* One line that changes; where it goes to a file or --follow asks for it, one line a change. */
static void run_say(struct run *run, const char *line)
{
	if (!strcmp(run->said, line))
		return;
	(void)snprintf(run->said, sizeof(run->said), "%s", line);
	if (run->options.follows) {
		(void)fprintf(stderr, "%s\n", line);
		return;
	}
	if (!run->is_terminal)
		return;
	(void)fprintf(stderr, "\r\033[K%.*s", (int)fold_fit(line, run_columns()), line);
	(void)fflush(stderr);
	run->has_line = true;
}

static void run_say_wait(struct run *run, bool is_away)
{
	const struct nvshare_job *job = &run->client.job;
	char line[LINE_LEN];

	if (is_away)
		(void)snprintf(line, sizeof(line),
			       "nvsharectl: job %u waits for the scheduler to come back", job->job);
	else if (job->position)
		(void)snprintf(line, sizeof(line), "nvsharectl: job %u is number %u of %u: %s",
			       job->job, job->position, job->n_queued, job->text);
	else
		(void)snprintf(line, sizeof(line), "nvsharectl: job %u waits: %s", job->job,
			       job->text);
	run_say(run, line);
}

static void run_say_limit(const struct nvshare_job *job)
{
	char limit[VIEW_DURATION_LEN];

	if (job->limit_ns)
		(void)fprintf(stderr,
			      "nvsharectl: job %u may run for %s; waits for turns do not count\n",
			      job->job, view_duration(job->limit_ns, limit));
}

static void run_say_near(struct run *run)
{
	const struct nvshare_job *job = &run->client.job;
	char left[VIEW_DURATION_LEN];
	uint64_t left_ns = 0;

	if (run->has_said_near || job->state != NVSHARE_JOB_RUNNING ||
	    job->counted_ns < job_client_near_ns(job))
		return;
	run->has_said_near = true;
	if (job->counted_ns < job->limit_ns)
		left_ns = job->limit_ns - job->counted_ns;
	(void)fprintf(stderr,
		      "nvsharectl: job %u has used nine tenths of its time limit: %s left\n",
		      job->job, view_duration(left_ns, left));
}

/* ---- waiting ------------------------------------------------------------------------- */

static void run_sleep(struct run *run)
{
	struct pollfd fds[] = {
		{.fd = run->child.signal_fd, .events = POLLIN},
		{.fd = run->client.fd, .events = POLLIN},
	};

	(void)clock_poll(fds, 2, run->client.due_ns);
}

static int run_fail(struct run *run, const char *text)
{
	run_clear_line(run);
	(void)fprintf(stderr, "nvsharectl: %s\n", text);
	return RUN_EXIT_NOT_RUN;
}

/* Until the job has its GPU: 0. Else an exit code, or this process ends by a signal. */
static int run_await(struct run *run)
{
	struct job_client *client = &run->client;
	bool is_news;

	client->is_asking_position = run->options.follows || run->is_terminal;
	client->due_ns = clock_now_ns();
	run->said[0] = '\0';
	for (;;) {
		int number = run_child_await_signals(&run->child);
		int r = number ? 0 : job_client_step(client, &is_news);

		if (number) {
			run_clear_line(run);
			(void)job_client_ended(client, 0, 0, NVSHARE_ENDED_FINAL);
			run_child_die(number);
		}
		if (client->has_lost_place) {
			run_clear_line(run);
			(void)fprintf(stderr, "nvsharectl: the scheduler has lost this job's place,"
					      " and gave it a new one at the end\n");
			client->has_lost_place = false;
		}
		if (r && r != JOB_CLIENT_E_AWAY)
			return run_fail(run, client->text);
		if (client->job.state == NVSHARE_JOB_DONE)
			return run_fail(run, client->job.text);
		if (client->job.job && client->job.state != NVSHARE_JOB_WAITING)
			break;
		run_say_wait(run, r == JOB_CLIENT_E_AWAY);
		run_sleep(run);
	}
	client->is_asking_position = false;
	client->due_ns = client->fd < 0 ? clock_now_ns() : UINT64_MAX;
	if (run->options.follows)
		(void)fprintf(stderr, "nvsharectl: job %u starts on GPU %u, after %llu s\n",
			      client->job.job, client->job.gpu,
			      (unsigned long long)(client->job.waited_ns / CLOCK_NS_PER_SEC));
	run_clear_line(run);
	run_say_limit(&client->job);
	return 0;
}

/* ---- running ------------------------------------------------------------------------- */

/* The scheduler wants the command to end, or knows it no more. */
static void run_obey(struct run *run)
{
	const struct nvshare_job *job = &run->client.job;

	if (run->client.is_unknown && !run->has_warned) {
		run->has_warned = true;
		(void)fprintf(stderr, "nvsharectl: %s: the command goes on without a place\n",
			      run->client.text);
	}
	if (job->state != NVSHARE_JOB_STOPPING || job->signal_now == run->signal_sent)
		return;
	run->signal_sent = job->signal_now;
	if (job->signal_now == SIGKILL)
		(void)fprintf(stderr,
			      "nvsharectl: job %u: it has not ended in time, and is killed\n",
			      job->job);
	else if (job->end != NVSHARE_JOB_END_LIMIT) /* else the last line says so */
		(void)fprintf(stderr, "nvsharectl: job %u: %s\n", job->job, job->text);
	run_child_end(&run->child, (int)job->signal_now);
}

static void run_supervise(struct run *run)
{
	run->signal_sent = 0;
	run->has_warned = false;
	run->has_said_near = false;
	while (run->child.pid > 0) {
		bool is_news;

		run_child_signals(&run->child);
		if (run->child.pid == 0)
			break;
		(void)job_client_step(&run->client, &is_news);
		run_obey(run);
		run_say_near(run);
		run_sleep(run);
	}
}

static int run_report_exec(struct run *run)
{
	int error = run->child.exec_error;

	(void)fprintf(stderr, "nvsharectl: cannot run '%s': %s\n", run->options.command[0],
		      strerror(error));
	(void)job_client_ended(&run->client, 0, 0, NVSHARE_ENDED_FINAL);
	return error == ENOENT || error == ENOTDIR ? RUN_EXIT_NO_SUCH : RUN_EXIT_NO_EXEC;
}

/* The exit code; a signal that ended the command ends this process, too. */
static int run_exit(struct run *run)
{
	const struct nvshare_job *job = &run->client.job;
	int status = run->child.status;
	char limit[VIEW_DURATION_LEN];

	if (job->end == NVSHARE_JOB_END_LIMIT && run->signal_sent) {
		(void)fprintf(stderr,
			      "nvsharectl: job %u: its time limit of %s is over; --time-limit sets"
			      " another one\n",
			      job->job, view_duration(job->limit_ns, limit));
		return RUN_EXIT_LIMIT;
	}
	if (WIFSIGNALED(status))
		run_child_die(WTERMSIG(status));
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* Waits, runs the command, and reports its end. *ret_again: it is to be tried again. */
static int run_once(struct run *run, bool *ret_again)
{
	uint32_t flags = NVSHARE_ENDED_BEGUN;
	int status, r = run_await(run);

	*ret_again = false;
	if (r)
		return r;
	if (!run_env_set(&run->options, &run->client.job)) {
		(void)job_client_ended(&run->client, 0, 0, NVSHARE_ENDED_FINAL);
		return RUN_EXIT_NOT_RUN;
	}
	r = run_child_start(&run->child, run->options.command);
	if (r)
		return run_fail(run, strerror(-r));
	if (run->child.exec_error)
		return run_report_exec(run);
	run_supervise(run);
	status = run->child.status;
	if (run->child.is_interrupted)
		flags |= NVSHARE_ENDED_FINAL;
	r = job_client_ended(&run->client, WIFEXITED(status) ? (uint32_t)WEXITSTATUS(status) : 0,
			     WIFSIGNALED(status) ? (uint32_t)WTERMSIG(status) : 0, flags);
	*ret_again = !r && run->client.job.state != NVSHARE_JOB_DONE;
	return 0;
}

/* It runs all the same: it may be no program for a GPU, or one that starts those. */
static void run_warn_unmanaged(const struct run *run)
{
	static const char *const texts[] = {
		[RUN_PRELOAD_STATIC] = "is linked statically, so it runs unmanaged; dynamic "
				       "programs that it starts are managed",
		[RUN_PRELOAD_OTHER_LIBC] = "is not linked with glibc, so it runs unmanaged; "
					   "programs of glibc that it starts are managed",
		[RUN_PRELOAD_OWN_RIGHTS] = "runs with other rights than yours, so it and programs "
					   "that it starts run unmanaged",
	};
	char path[PATH_MAX];
	enum run_preload found = run_preload_look(run->options.command[0], path);

	if (found != RUN_PRELOAD_WORKS)
		(void)fprintf(stderr, "nvsharectl: '%s' %s\n", path, texts[found]);
}

/* The queue handles gangs that have a name and a size above 1. Others concern only programs. */
static int run_submit(struct run *run)
{
	const struct run_options *options = &run->options;
	struct nvshare_gang gang = {.size = options->gang_size};

	if (!options->gang[0] || options->gang_size < 2)
		return job_client_submit(&run->client, &options->submit);
	memcpy(gang.name, options->gang, sizeof(gang.name));
	return job_client_submit_gang(&run->client, &options->submit, &gang);
}

int run_command(char *const *args)
{
	static struct run run;
	char line[LINE_LEN];
	bool is_again = false;
	int r;

	r = run_options_parse(args, true, getenv("CUDA_VISIBLE_DEVICES"), &run.options);
	if (r)
		return RUN_EXIT_NOT_RUN;
	run.is_terminal = isatty(STDERR_FILENO);
	job_client_init(&run.client, NULL);
	r = run_child_open(&run.child);
	if (r)
		return run_fail(&run, strerror(-r));
	if (run_submit(&run)) {
		job_client_deinit(&run.client);
		return run_fail(&run, run.client.text);
	}
	run_warn_unmanaged(&run);
	if (run.options.has_priority && job_client_cut(&run.client, line, sizeof(line)))
		(void)fprintf(stderr, "nvsharectl: %s\n", line);
	do {
		r = run_once(&run, &is_again);
	} while (is_again);
	job_client_deinit(&run.client);
	return r ? r : run_exit(&run);
}
