/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A task of another scheduler, such as Slurm's: it takes a place in the queue for itself, waits for
 * its start, and becomes its command.
 */
#include "ipc/job_client.h"
#include "util/parse.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TASK_E_PLACE = 1, TASK_E_USAGE, TASK_E_EXEC };

/* The position, each time it changes. A scheduler that is away is waited for. */
static bool task_on_news(const struct nvshare_job *job, bool is_away, void *arg)
{
	uint32_t *said = arg;

	if (!is_away && job->position != *said) {
		*said = job->position;
		(void)printf("position %u\n", job->position);
		(void)fflush(stdout);
	}
	return true;
}

int main(int argc, char **argv)
{
	struct nvshare_submit submit = {
		.priority = NVSHARE_PRIORITY_NORMAL,
		.flags = NVSHARE_SUBMIT_SELF | NVSHARE_SUBMIT_WHOLE,
		.name = "task",
	};
	struct job_client client;
	uint32_t said = 0;
	int r;

	if (argc < 3 || parse_size(argv[1], &submit.memory)) {
		(void)fprintf(stderr, "usage: task MEMORY COMMAND...\n");
		return TASK_E_USAGE;
	}
	job_client_init(&client, NULL);
	r = job_client_submit(&client, &submit);
	if (!r)
		r = job_client_await_start(&client, task_on_news, &said);
	if (r) {
		(void)fprintf(stderr, "task: %s\n", client.text);
		return TASK_E_PLACE;
	}
	(void)printf("starts on %s\n", client.job.gpu_uuid);
	(void)fflush(stdout);
	job_client_deinit(&client);
	(void)execvp(argv[2], argv + 2);
	return TASK_E_EXEC;
}
