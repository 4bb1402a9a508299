/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/jobs/job_estimates.h"

#include "core/place/estimate_record.h"
#include "daemon/server.h"
#include "daemon/settings/config_save.h"
#include "util/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_NAME "estimates"

/* A crash forgets so much of what was learned. */
#define SAVE_NS (5 * CLOCK_NS_PER_SEC)

#define RECORD_SIZE ESTIMATE_RECORD_MAX(JOB_ESTIMATES_MAX)

/* ---- the file -------------------------------------------------------------------- */

/* In the folder of saved settings. */
static void estimates_path(char buf[PATH_MAX])
{
	char *slash;

	config_save_path(getenv, buf);
	slash = strrchr(buf, '/');
	(void)snprintf(slash + 1, (size_t)(buf + PATH_MAX - slash - 1), FILE_NAME);
}

/* The bytes of the file, at most size; or -errno. */
static ssize_t estimates_load(const char *path, char *buf, size_t size)
{
	FD_CLEANUP int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	size_t n = 0;

	if (fd < 0)
		return -errno;
	while (n < size) {
		ssize_t got = read(fd, buf + n, size - n);

		if (got < 0)
			return -errno;
		if (got == 0)
			break;
		n += (size_t)got;
	}
	return (ssize_t)n;
}

static const char *estimates_error(int r)
{
	switch (r) {
	case ESTIMATE_RECORD_E_VERSION:
		return "its first line is not 'nvshare-estimates 1'";
	case ESTIMATE_RECORD_E_CUT:
		return "its last line is not 'end' with the number of the others";
	default:
		return "it has another form";
	}
}

static void estimates_read(struct server *server)
{
	char path[PATH_MAX], bad[PATH_MAX + 8];
	char *text = malloc(RECORD_SIZE + 1);
	uint32_t line = 0;
	ssize_t n;
	int r;

	estimates_path(path);
	(void)snprintf(bad, sizeof(bad), "%s.bad", path);
	n = text ? estimates_load(path, text, RECORD_SIZE + 1) : -ENOMEM;
	if (n < 0) {
		free(text);
		if (n == -ENOENT || n == -ENOTDIR)
			return;
		/* The next one that is written would replace it. */
		(void)log_errno(LOG_LEVEL_WARN, (int)n,
				"cannot read '%s': it is set aside as '%s', and estimates begin"
				" anew",
				path, bad);
		(void)rename(path, bad);
		return;
	}
	r = estimate_record_read(&server->jobs.estimate, text, (size_t)n, &line);
	free(text);
	if (!r)
		return;
	log_warn("%s:%u: %s; it is set aside as '%s', and estimates begin anew", path, line,
		 estimates_error(r), bad);
	(void)rename(path, bad);
}

/* 0 or -errno. */
static int estimates_write(const char *path, const char *text, size_t len)
{
	FD_CLEANUP int fd = fd_create(AT_FDCWD, path, 0600);
	size_t n = 0;

	if (fd < 0)
		return -errno;
	while (n < len) {
		ssize_t put = write(fd, text + n, len - n);

		if (put < 0)
			return -errno;
		n += (size_t)put;
	}
	/* Not synced: turns would wait for the disk. After a crash of the machine the last line
	 * tells. */
	return 0;
}

void job_estimates_save(struct server *server)
{
	char path[PATH_MAX], new_path[PATH_MAX + 8];
	char *text;
	int r = -ENOMEM;

	if (!server->jobs.is_estimate_unsaved)
		return;
	server->jobs.is_estimate_unsaved = false;
	estimates_path(path);
	(void)snprintf(new_path, sizeof(new_path), "%s.new", path);
	text = malloc(RECORD_SIZE);
	if (text)
		r = estimates_write(new_path, text,
				    estimate_record_write(&server->jobs.estimate,
							  PODS_OWNER_FIRST - 1, text, RECORD_SIZE));
	free(text);
	if (!r && rename(new_path, path) < 0)
		r = -errno;
	if (r && r != server->jobs.estimates_error)
		(void)log_errno(LOG_LEVEL_WARN, r,
				"cannot write '%s', so a restart forgets what jobs have needed",
				path);
	server->jobs.estimates_error = r;
}

static void estimates_on_save(struct server *server, struct deadline *deadline)
{
	(void)deadline;
	job_estimates_save(server);
}

void job_estimates_open(struct server *server)
{
	struct job_queue *queue = &server->jobs;

	queue->save.on_due = estimates_on_save;
	estimate_init(&queue->estimate, queue->estimates, JOB_ESTIMATES_MAX,
		      &server->settings.jobs.estimates);
	estimates_read(server);
}

void job_estimates_config(struct server *server)
{
	server->jobs.estimate.config = server->settings.jobs.estimates;
}

/* ---- estimates ------------------------------------------------------------------- */

/* The most that the largest GPU for jobs can give to one job. */
static uint64_t estimates_most(const struct server *server)
{
	const struct jobs_request request = {.need = 1, .gpu = PLACE_ANY};
	struct place_score scores[PLACE_GPUS_MAX];
	uint64_t most = 0;

	(void)jobs_place(&server->jobs.core, &request, server->now_ns, scores);
	for (uint32_t i = 0; i < PLACE_GPUS_MAX; i++) {
		if (scores[i].reason == PLACE_NO_GPU || scores[i].reason == PLACE_NOT_IN_SET ||
		    scores[i].reason == PLACE_RESERVED)
			continue;
		if (scores[i].total - scores[i].margin > most)
			most = scores[i].total - scores[i].margin;
	}
	return most ? most : PLACE_BYTES_MAX;
}

int job_estimates_work(const struct nvshare_submit *submit, uint32_t owner,
		       struct estimate_work *ret)
{
	int r;

	*ret = (struct estimate_work){
		.owner = owner,
		.has_units = submit->units > 0,
		.units = submit->units,
	};
	r = place_name_set(submit->model, strlen(submit->model), &ret->model);
	return r ? r : place_name_set(submit->type, strlen(submit->type), &ret->type);
}

uint64_t job_estimates_bytes(const struct server *server, const struct estimate_work *work)
{
	uint64_t bytes = estimate_bytes(&server->jobs.estimate, work, NULL);
	uint64_t most = estimates_most(server);

	return bytes < most ? bytes : most;
}

uint64_t job_estimates_learn(struct server *server, const struct job_entry *entry,
			     enum jobs_end end)
{
	struct job_queue *queue = &server->jobs;
	struct estimate_work work;
	uint64_t need = 0;

	/* A job that failed otherwise may have ended before it had its memory. */
	if (end != JOBS_END_SUCCESS && end != JOBS_END_OOM)
		return 0;
	if (job_estimates_work(&entry->submit, entry->owner, &work) ||
	    (!place_name_is_set(&work.model) && !place_name_is_set(&work.type)))
		return 0;
	if (end == JOBS_END_OOM)
		need = estimate_learn_oom(&queue->estimate, &work, entry->memory, entry->peak,
					  estimates_most(server));
	else
		estimate_learn(&queue->estimate, &work, entry->peak);
	queue->is_estimate_unsaved = true;
	if (!deadline_is_set(&queue->save))
		deadline_set(&server->deadlines, &queue->save, server->now_ns + SAVE_NS);
	return need;
}
