/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/jobs/job_programs.h"

#include "core/u64.h"
#include "daemon/server.h"

#include <utlist.h>

/* A longer line of ancestors is none of a shell's. */
#define ANCESTORS_MAX 64

static struct job_entry *programs_job_of(struct server *server, const struct job_process *process,
					 uint32_t gpu)
{
	struct job_entry *entry;

	DL_FOREACH (server->jobs.started, entry) {
		if (entry->process.pid == process->pid && entry->process.ticks == process->ticks &&
		    entry->gpu == gpu)
			return entry;
	}
	return NULL;
}

/*
 * The nearest ancestor with a job counts. A number that the kernel gave to another process
 * meanwhile shows by a later start than its child's.
 */
static struct job_entry *programs_find_job(struct server *server, const struct peer *peer)
{
	pid_t pid = peer->cred.pid, parent;
	uint64_t ticks_max = UINT64_MAX;

	for (unsigned int i = 0; i < ANCESTORS_MAX && pid > 1; i++) {
		struct job_process process;
		struct job_entry *entry;

		if (job_process_read(pid, &process, &parent) || process.ticks > ticks_max)
			return NULL;
		entry = programs_job_of(server, &process, peer->gpu);
		if (entry)
			return entry;
		ticks_max = process.ticks;
		pid = parent;
	}
	return NULL;
}

static void programs_move(struct server *server, struct job_entry *entry, uint64_t before,
			  uint64_t after)
{
	entry->footprint += after - before;
	server->jobs.footprints[entry->gpu] += after - before;
	if (entry->footprint > entry->peak)
		entry->peak = entry->footprint;
	entry->is_changed = true;
	job_queue_touch(server);
}

void job_programs_join(struct server *server, struct peer *peer)
{
	struct job_entry *entry;

	job_queue_touch(server);
	if (!server->jobs.started)
		return;
	entry = programs_find_job(server, peer);
	if (!entry)
		return;
	peer->program_of = entry;
	DL_APPEND2(entry->programs, peer, program_prev, program_next);
	entry->n_programs++;
	server->jobs.n_programs[entry->gpu]++;
	programs_move(server, entry, 0, gpus_footprint(&peer->account));
	server_log(server, peer->pod.owner, LOG_LEVEL_INFO, "job-program job=%llu client=%u pid=%d",
		   (unsigned long long)entry->id, peer->id, (int)peer->cred.pid);
}

void job_programs_leave(struct server *server, struct peer *peer)
{
	struct job_entry *entry = peer->program_of;

	job_queue_touch(server);
	if (!entry)
		return;
	programs_move(server, entry, gpus_footprint(&peer->account), 0);
	entry->n_programs--;
	server->jobs.n_programs[entry->gpu]--;
	DL_DELETE2(entry->programs, peer, program_prev, program_next);
	peer->program_of = NULL;
}

void job_programs_release(struct server *server, struct job_entry *entry)
{
	while (entry->programs)
		job_programs_leave(server, entry->programs);
}

void job_programs_account(struct server *server, struct peer *peer,
			  const struct memory_account *before, const struct memory_account *after)
{
	if (peer->program_of)
		programs_move(server, peer->program_of, gpus_footprint(before),
			      gpus_footprint(after));
	else
		job_queue_touch(server);
}

/*
 * Others, an operator or its limit keep it off the GPU; or it waits for memory, and none of its
 * threads has work there.
 */
static bool program_is_stopped(const struct server *server, const struct peer *peer)
{
	struct sched_client_status status;
	struct timeshare_client_status share;

	sched_client_status(&server->sched, peer->slot, server->now_ns, &status);
	timeshare_client_status(&server->shares.timeshare, peer->slot, &share);
	switch (status.state) {
	case SCHED_CLIENT_WAITING:
		/* Others keep it off the GPU, unless it waits for members that need not come. */
		return status.why != SCHED_WAIT_GANG || status.gang_gpu != SCHED_NONE;
	case SCHED_CLIENT_INCOMING:
		return true;
	case SCHED_CLIENT_RUNNING:
	case SCHED_CLIENT_STOPPING:
		return peer->is_frozen || ((status.growing || peer->is_held) && !share.is_busy);
	case SCHED_CLIENT_IDLE:
		return status.paused || peer->is_held;
	case SCHED_CLIENT_FREE:
	case SCHED_CLIENT_STATE_COUNT_:
		break;
	}
	return false;
}

static bool programs_are_stopped(const struct server *server, const struct job_entry *entry)
{
	const struct peer *peer;

	DL_FOREACH2(entry->programs, peer, program_next)
	{
		if (!program_is_stopped(server, peer))
			return false;
	}
	return entry->programs != NULL;
}

/* Members of a gang wait for each other, but not for those whose job has ended. */
static void programs_look_at_gangs(struct server *server)
{
	struct job_entry *entry;
	struct peer *peer;

	if (!server->jobs.has_gang_shrunk)
		return;
	server->jobs.has_gang_shrunk = false;
	DL_FOREACH (server->jobs.started, entry) {
		DL_FOREACH2(entry->programs, peer, program_next)
		{
			if (entry->gang.size)
				gangs_look(server, peer);
		}
	}
}

void job_programs_look(struct server *server)
{
	struct job_entry *entry, *next;

	programs_look_at_gangs(server);
	DL_FOREACH_SAFE (server->jobs.started, entry, next) {
		bool is_stopped = programs_are_stopped(server, entry);
		bool is_other = is_stopped != entry->is_stopped;
		struct jobs_event event = {
			.type = JOBS_EVENT_PROGRAMS,
			.n_programs = entry->n_programs,
			.footprint = u64_min(entry->footprint, PLACE_BYTES_MAX),
			.is_stopped = is_stopped,
		};

		if (!entry->is_changed && !is_other)
			continue;
		entry->is_changed = false;
		entry->is_stopped = is_stopped;
		(void)job_queue_step(server, entry, &event);
		if (is_other)
			job_queue_record(server, entry, JOB_RECORD_TIME);
	}
}

void job_programs_refused(struct peer *peer)
{
	if (peer->program_of)
		peer->program_of->is_oom = true;
}
