/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/jobs/job_ends.h"

#include "daemon/jobs/job_estimates.h"
#include "daemon/jobs/job_facts.h"
#include "daemon/jobs/job_fill.h"
#include "daemon/jobs/job_programs.h"
#include "daemon/server.h"
#include "ipc/names.h"

#include <string.h>
#include <utlist.h>

/* ---- from the process ------------------------------------------------------------ */

static enum jobs_end ends_kind(const struct job_entry *entry, const struct nvshare_job_ended *ended)
{
	if (!entry->is_started || !(ended->flags & NVSHARE_ENDED_BEGUN))
		return JOBS_END_LOST;
	if (!ended->exit_code && !ended->signal)
		return JOBS_END_SUCCESS;
	return entry->is_oom ? JOBS_END_OOM : JOBS_END_FAILED;
}

/* Programs that go on without their job count for themselves before its charge is gone. */
static void ends_let_programs_go(struct server *server, struct job_entry *entry)
{
	if (!entry->programs)
		return;
	job_programs_release(server, entry);
	job_facts_look(server);
}

int job_ends_report(struct server *server, struct job_entry *entry,
		    const struct nvshare_job_ended *ended)
{
	struct jobs_event event = {.type = JOBS_EVENT_ENDED, .end = ends_kind(entry, ended)};
	bool is_final; /* nobody would run it again */

	entry->exit_code = ended->exit_code;
	entry->signal = ended->signal;
	entry->is_unbegun = event.end == JOBS_END_LOST;
	if (entry->is_started)
		event.need = job_estimates_learn(server, entry, event.end);
	is_final = ended->flags & NVSHARE_ENDED_FINAL || !job_process_is_alive(entry->pidfd);
	/* The core does not try a job again that was told to stop. */
	if (is_final && event.end != JOBS_END_LOST) {
		entry->is_final = true;
		(void)job_queue_step(server, entry,
				     &(struct jobs_event){.type = JOBS_EVENT_CANCEL});
	}
	ends_let_programs_go(server, entry);
	return job_queue_step(server, entry, &event);
}

void job_ends_lost(struct server *server, struct job_entry *entry)
{
	ends_let_programs_go(server, entry);
	(void)job_queue_step(server, entry,
			     &(struct jobs_event){.type = JOBS_EVENT_ENDED, .end = JOBS_END_LOST});
}

/* ---- from the core ----------------------------------------------------------------- */

/* Its command has ended: it has no GPU any more. */
static void ends_leave_gpu(struct server *server, struct job_entry *entry)
{
	if (!entry->is_started)
		return;
	job_programs_release(server, entry);
	DL_DELETE(server->jobs.started, entry);
	entry->is_started = false;
	entry->is_stopped = false;
	entry->is_changed = false;
	entry->signal_now = 0;
}

void job_ends_retry(struct server *server, struct job_entry *entry)
{
	struct jobs_status status;

	ends_leave_gpu(server, entry);
	jobs_status(&server->jobs.core, job_queue_slot(server, entry), server->now_ns, &status);
	entry->memory = status.request.need;
	server->jobs.counts.n_retried++;
	job_queue_record(server, entry, JOB_RECORD_RETRY);
	server_log(server, entry->owner, LOG_LEVEL_INFO,
		   "job-retry job=%llu exit=%u signal=%u oom=%d memory=%llu left=%u",
		   (unsigned long long)entry->id, entry->exit_code, entry->signal, entry->is_oom,
		   (unsigned long long)entry->memory, status.n_retries);
	job_fill_tell(server, entry, 0);
}

static enum nvshare_job_end ends_of(const struct job_entry *entry, enum jobs_end end,
				    bool was_started)
{
	switch (end) {
	case JOBS_END_SUCCESS:
	case JOBS_END_FAILED:
	case JOBS_END_OOM:
		return NVSHARE_JOB_END_EXIT;
	case JOBS_END_CANCELLED:
		if (entry->end == NVSHARE_JOB_END_NEVER)
			return NVSHARE_JOB_END_NEVER;
		/* A command that its user ended is stopped in the core, so that it is not tried
		 * again. */
		return entry->is_cancelled || !entry->is_final ? NVSHARE_JOB_END_CANCEL
							       : NVSHARE_JOB_END_EXIT;
	case JOBS_END_TIMEOUT:
		return NVSHARE_JOB_END_LIMIT;
	case JOBS_END_LOST:
	case JOBS_END_NOT:
	case JOBS_END_COUNT_:
		break;
	}
	if (!was_started || entry->is_unbegun)
		return NVSHARE_JOB_END_GAVE_UP;
	return entry->submit.flags & NVSHARE_SUBMIT_SELF ? NVSHARE_JOB_END_GONE
							 : NVSHARE_JOB_END_LOST;
}

static void ends_answer(struct server *server, struct peer *peer,
			const struct job_record_ended *ended)
{
	if (peer->is_closing)
		return;
	job_fill_answer(server, peer, peer->await_seq, peer->await_flags, ended);
	flow_charge(server, peer, 2);
}

/* It is kept; the oldest one that was makes way. */
static void ends_keep(struct server *server, const struct job_entry *entry,
		      struct job_record_ended *ret)
{
	struct job_queue *queue = &server->jobs;
	struct job_record record = {.kind = JOB_RECORD_ENDED};

	job_fill_all(server, entry, &record.ended);
	queue->ended[queue->n_ended++ % JOB_RECORD_ENDED_MAX] = record.ended;
	job_journal_write(&queue->journal, &record);
	*ret = record.ended;
}

void job_ends_done(struct server *server, struct job_entry *entry, enum jobs_end end)
{
	bool was_started = entry->is_started;
	struct job_record_ended ended;
	struct peer *peer;

	ends_leave_gpu(server, entry);
	if (entry->gang.size) {
		server->jobs.has_gang_shrunk = true;
		job_queue_touch(server);
	}
	entry->end = ends_of(entry, end, was_started);
	server->jobs.counts.n_ended[entry->end]++;
	server->jobs.counts.n_failed +=
		entry->end == NVSHARE_JOB_END_EXIT && (entry->exit_code || entry->signal);
	ends_keep(server, entry, &ended);
	server_log(server, entry->owner, LOG_LEVEL_INFO,
		   "job-end job=%llu end=%s exit=%u signal=%u peak=%llu oom=%d",
		   (unsigned long long)entry->id, names_job_end[entry->end], entry->exit_code,
		   entry->signal, (unsigned long long)entry->peak, entry->is_oom);
	job_fill_tell(server, entry, 0);
	if (entry->peer)
		job_queue_attach(server, entry->peer, NULL);
	while ((peer = entry->awaiting)) {
		DL_DELETE2(entry->awaiting, peer, await_prev, await_next);
		peer->awaits = NULL;
		ends_answer(server, peer, &ended);
	}
}

const struct job_record_ended *job_ends_find(const struct server *server, uint64_t id)
{
	const struct job_queue *queue = &server->jobs;

	for (uint32_t i = 0; i < JOB_RECORD_ENDED_MAX; i++) {
		if (queue->ended[i].job.job == id)
			return &queue->ended[i];
	}
	return NULL;
}

void job_ends_await(struct peer *peer, uint32_t seq, uint32_t flags, struct job_entry *entry)
{
	if (peer->awaits)
		DL_DELETE2(peer->awaits->awaiting, peer, await_prev, await_next);
	peer->await_seq = seq;
	peer->await_flags = flags;
	peer->awaits = entry;
	DL_APPEND2(entry->awaiting, peer, await_prev, await_next);
}
