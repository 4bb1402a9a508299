/* SPDX-License-Identifier: Apache-2.0 */
#include "slurm/task_place.h"

#include "ipc/job_client.h"
#include "util/clock.h"
#include "util/thread_name.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

/* A scheduler that restarts is back within seconds. */
#define AWAY_NS_MAX (60 * (uint64_t)CLOCK_NS_PER_SEC)

/*
 * Slurm starts all tasks of a step on a node at once, so they come within moments, and nobody hears
 * of that. One that has not come by then comes no more: it has failed, or takes no place.
 */
#define LACK_NS_SAID (2 * (uint64_t)CLOCK_NS_PER_SEC)
#define LACK_NS_MAX  (60 * (uint64_t)CLOCK_NS_PER_SEC)

struct wait {
	const struct task_place_request *request;
	uint32_t position; /* as said last; 0: nothing was said yet */
	uint32_t why;
	uint64_t away_ns; /* since when the scheduler is away; 0: it is there */
	uint64_t lack_ns; /* since when its gang lacks tasks; 0: it does not */
	bool is_alone;    /* it has given up for that */
};

bool task_place_is_news(uint32_t said_position, uint32_t said_why, uint32_t position, uint32_t why)
{
	return position && (!said_position || why != said_why || position <= said_position / 2);
}

/* Since when its gang lacks tasks, in nanoseconds; 0: it does not. */
static uint64_t wait_lacking_ns(struct wait *wait, const struct nvshare_job *job, uint64_t now_ns)
{
	if (job->why != NVSHARE_JOB_WHY_MEMBERS) {
		wait->lack_ns = 0;
		return 0;
	}
	if (!wait->lack_ns)
		wait->lack_ns = now_ns;
	return now_ns - wait->lack_ns;
}

/* The callback of job_client_await_start(). */
static bool wait_on_news(const struct nvshare_job *job, bool is_away, void *arg)
{
	struct wait *wait = arg;
	uint64_t now_ns = clock_now_ns(), lacking_ns;
	char line[NVSHARE_TEXT_LEN + 128];

	if (is_away) {
		wait->lack_ns = 0;
		if (!wait->away_ns) {
			wait->away_ns = now_ns;
			wait->request->say("the node's scheduler is away, and the task keeps its "
					   "place for 60 s",
					   wait->request->arg);
		}
		return now_ns - wait->away_ns < AWAY_NS_MAX;
	}
	wait->away_ns = 0;
	lacking_ns = wait_lacking_ns(wait, job, now_ns);
	wait->is_alone = lacking_ns >= LACK_NS_MAX;
	if (wait->is_alone)
		return false;
	if (wait->lack_ns && lacking_ns < LACK_NS_SAID)
		return true;
	if (task_place_is_news(wait->position, wait->why, job->position, job->why)) {
		wait->position = job->position;
		wait->why = job->why;
		(void)snprintf(line, sizeof(line), "job %u waits for a GPU, place %u of %u: %s",
			       job->job, job->position, job->n_queued, job->text);
		wait->request->say(line, wait->request->arg);
	}
	return true;
}

static void wait_say_start(const struct wait *wait, const struct nvshare_job *job)
{
	char line[NVSHARE_TEXT_LEN + 128];

	if (!wait->position)
		return;
	(void)snprintf(line, sizeof(line), "job %u starts on GPU %u after %.1f s", job->job,
		       job->gpu, (double)job->waited_ns / (double)CLOCK_NS_PER_SEC);
	wait->request->say(line, wait->request->arg);
}

static int wait_for_start(struct job_client *client, struct wait *wait,
			  struct task_place *ret_place)
{
	const struct submit_options *options = wait->request->options;
	struct nvshare_submit submit = {
		.memory = options->memory,
		.priority = options->priority < NVSHARE_PRIORITY_COUNT ? options->priority
								       : NVSHARE_PRIORITY_NORMAL,
		.flags = NVSHARE_SUBMIT_SELF,
	};
	char line[NVSHARE_TEXT_LEN];
	int r;

	(void)snprintf(submit.name, sizeof(submit.name), "%s", wait->request->name);
	(void)snprintf(submit.model, sizeof(submit.model), "%s", options->model);
	(void)snprintf(submit.gpus, sizeof(submit.gpus), "%s", wait->request->gpu);
	r = job_client_submit_gang(client, &submit, &wait->request->gang);
	if (!r && submit.priority == options->priority &&
	    job_client_cut(client, line, sizeof(line)))
		wait->request->say(line, wait->request->arg);
	if (!r)
		r = job_client_await_start(client, wait_on_news, wait);
	if (r)
		return r;
	wait_say_start(wait, &client->job);
	ret_place->job = client->job.job;
	ret_place->priority = client->job.priority;
	(void)snprintf(ret_place->uuid, sizeof(ret_place->uuid), "%s", client->job.gpu_uuid);
	return 0;
}

/*
 * Slurm watches programs, and the process is none yet. So the end of its parent ends it, as
 * nobody would watch over the program; the kernel acts at the end of the thread that has forked,
 * which is Slurm's main thread. And another name than slurmstepd's lets proctrack/linuxproc signal
 * it, so that scancel ends a wait.
 */
static void wait_guard(pid_t parent)
{
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		(void)raise(SIGKILL);
	thread_name("nvshare-wait");
}

int task_place_wait(const struct task_place_request *request, struct task_place *ret_place,
		    char *text, size_t size)
{
	struct wait wait = {.request = request};
	struct job_client client;
	char name[16]; /* the kernel's length */
	int r;

	(void)prctl(PR_GET_NAME, name);
	wait_guard(getppid());
	job_client_init(&client, request->dir);
	r = wait_for_start(&client, &wait, ret_place);
	(void)snprintf(text, size, "%s",
		       wait.is_alone
			       ? "other tasks of its step have not come in 60 s, or have ended"
			       : client.text);
	job_client_deinit(&client);
	(void)prctl(PR_SET_NAME, name);
	(void)prctl(PR_SET_PDEATHSIG, 0);
	if (!r)
		return 0;
	return r == JOB_CLIENT_E_REFUSED || wait.is_alone ? TASK_PLACE_E_REFUSED
							  : TASK_PLACE_E_AWAY;
}
