/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/jobs/job_restore.h"

#include "core/u64.h"
#include "daemon/jobs/job_ends.h"
#include "daemon/jobs/job_gpus.h"
#include "daemon/jobs/job_submit.h"
#include "daemon/server.h"
#include "util/fd.h"
#include "util/log.h"

#include <string.h>
#include <utlist.h>

/* The GPU of a job that runs. SCHED_GPUS_MAX: it is not there. */
static uint32_t restore_gpu(const struct server *server, const char *name)
{
	uint32_t mask;

	if (job_gpus_mask(server, name, &mask) || !mask)
		return SCHED_GPUS_MAX;
	return (uint32_t)__builtin_ctz(mask);
}

static bool restore_core(struct server *server, struct job_entry *entry,
			 const struct job_replay_job *job)
{
	struct jobs_event event;
	struct jobs_actions actions;

	if (job_submit_event(server, entry, &event, NULL))
		return false;
	event.type = job->is_started ? JOBS_EVENT_ADOPT : JOBS_EVENT_SUBMIT;
	event.is_restored = true;
	event.since_ns = u64_min(job->place.since_ns, server->now_ns);
	event.n_retries = job->place.n_retries;
	event.counted_ns = job_replay_counted_ns(job, server->now_ns);
	if (job->is_started)
		event.gpu = entry->gpu;
	/* No GPU is free for jobs while they are restored, so none starts. */
	return !job_queue_try(server, entry, &event, &actions) &&
	       (job_queue_perform(server, &actions), true);
}

/*
 * Numbers of namespaces are given anew, so the pod of the process tells the number. Where that
 * cannot be seen, the job gets its owner when its process is back, and is of no gang with jobs that
 * come later. pods_leave() ends the look.
 */
static uint32_t restore_owner(struct server *server, const struct job_record_place *place,
			      int pidfd, struct pod *ret_pod)
{
	ret_pod->kind = POD_KIND_NONE;
	if (place->owner < PODS_OWNER_FIRST)
		return place->owner;
	if (place->owner != QUOTA_NOBODY &&
	    pods_join_process(&server->pods, server->settings.pods_dir, (pid_t)place->pid, pidfd,
			      ret_pod))
		return ret_pod->owner;
	return QUOTA_NOBODY;
}

static void restore_one(struct server *server, const struct job_replay_job *job)
{
	const struct job_record_place *place = &job->place;
	const struct job_process process = {.pid = (pid_t)place->pid, .ticks = place->ticks};
	uint32_t gpu = job->is_started ? restore_gpu(server, job->gpu) : 0;
	struct job_entry *entry;
	struct pod pod;
	uint32_t owner;
	FD_CLEANUP int pidfd = job_process_open(&process);

	if (pidfd < 0 && pidfd != -ESRCH)
		(void)log_errno(LOG_LEVEL_WARN, pidfd,
				"cannot look at process %d, so the place of job %llu is lost",
				(int)place->pid, (unsigned long long)place->id);
	if (gpu == SCHED_GPUS_MAX)
		return;
	owner = restore_owner(server, place, pidfd, &pod);
	entry = job_queue_add(server, owner, place->uid, place->id);
	pods_leave(&server->pods, &pod); /* entry holds the number */
	if (!entry)
		return;
	entry->submit = place->submit;
	entry->gang = job->gang;
	entry->process = process;
	entry->memory = place->memory;
	entry->is_estimated = place->is_estimated;
	entry->is_restored = true;
	if (owner == QUOTA_NOBODY)
		entry->words_owner = job_record_owner_before(place->owner);
	entry->since_ns = place->since_ns;
	entry->submitted_unix_ns = place->unix_ns;
	entry->gpu = gpu;
	if (!restore_core(server, entry, job)) {
		job_queue_drop(server, entry);
		return;
	}
	if (job->is_started) {
		entry->is_started = true;
		memcpy(entry->gpu_uuid, job->gpu, sizeof(entry->gpu_uuid));
		DL_APPEND(server->jobs.started, entry);
	}
	if (pidfd >= 0)
		job_queue_watch(server, entry, pidfd);
	pidfd = -1; /* taken by entry */
	if (job->is_cancelled) {
		entry->is_cancelled = true;
		(void)job_queue_step(server, entry,
				     &(struct jobs_event){.type = JOBS_EVENT_CANCEL});
	}
}

/* It has ended while no scheduler was there. */
static void restore_gone(struct server *server, const struct job_replay_job *job)
{
	struct job_entry *entry = job_queue_find(server, job->place.id);

	if (entry && entry->pidfd < 0)
		job_ends_lost(server, entry);
}

/* All are there again, so it shows which gangs are over. */
static void restore_tried(struct server *server, const struct job_replay_job *job)
{
	struct job_entry *entry = job_queue_find(server, job->place.id);

	if (entry && job->was_started && !job->is_started)
		(void)job_queue_step(server, entry, &(struct jobs_event){.type = JOBS_EVENT_TRIED});
}

void job_restore(struct server *server)
{
	struct job_queue *queue = &server->jobs;
	struct job_replay replay = {.n = 0};

	job_journal_read(&queue->journal, server->admission.listener.dir_fd, &replay);
	queue->last_id = replay.open.last_id;
	queue->n_ended = replay.n_ended;
	if (replay.ended)
		memcpy(queue->ended, replay.ended, JOB_RECORD_ENDED_MAX * sizeof(*queue->ended));
	for (size_t i = 0; i < replay.n; i++)
		restore_one(server, &replay.jobs[i]);
	for (size_t i = 0; i < replay.n; i++)
		restore_gone(server, &replay.jobs[i]);
	for (size_t i = 0; i < replay.n; i++)
		restore_tried(server, &replay.jobs[i]);
	queue->n_restored = queue->n_live;
	if (replay.n)
		log_info("jobs-restored jobs=%u waiting=%u gone=%zu", queue->n_live,
			 jobs_n_queued(&queue->core), replay.n - queue->n_live);
	job_replay_deinit(&replay);
}
