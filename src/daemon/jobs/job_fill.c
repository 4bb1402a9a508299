/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/jobs/job_fill.h"

#include "core/u64.h"
#include "daemon/server.h"
#include "util/parse.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#define SIZE_LEN 32

enum nvshare_verdict job_fill_verdict(const struct place_score *score)
{
	switch (score->reason) {
	case PLACE_OK:
		return score->is_fit ? NVSHARE_VERDICT_FITS : NVSHARE_VERDICT_SHARES;
	case PLACE_NOT_IN_SET:
		return NVSHARE_VERDICT_NOT_IN_SET;
	case PLACE_RESERVED:
		return NVSHARE_VERDICT_RESERVED;
	case PLACE_TOO_SMALL:
		return NVSHARE_VERDICT_TOO_SMALL;
	case PLACE_OUT:
		return NVSHARE_VERDICT_OUT;
	case PLACE_APART:
		return NVSHARE_VERDICT_APART;
	case PLACE_FULL:
		return NVSHARE_VERDICT_DEGREE;
	case PLACE_NO_ROOM:
		return NVSHARE_VERDICT_MEMORY;
	case PLACE_BOOKED:
		return NVSHARE_VERDICT_BOOKED;
	case PLACE_NO_GPU:
	case PLACE_NOT_ASKED:
	case PLACE_REASON_COUNT_:
		break;
	}
	return NVSHARE_VERDICT_NOT_ASKED;
}

static enum nvshare_job_why fill_why(const struct server *server, enum place_reason reason)
{
	switch (reason) {
	case PLACE_OUT:
		return grace_is_on(server) ? NVSHARE_JOB_WHY_GRACE : NVSHARE_JOB_WHY_OUT;
	case PLACE_APART:
		return NVSHARE_JOB_WHY_APART;
	case PLACE_FULL:
		return NVSHARE_JOB_WHY_DEGREE;
	case PLACE_NO_ROOM:
		return NVSHARE_JOB_WHY_MEMORY;
	case PLACE_BOOKED:
		return NVSHARE_JOB_WHY_BOOKED;
	case PLACE_OK:
		return NVSHARE_JOB_WHY_BEHIND;
	case PLACE_NO_GPU:
	case PLACE_NOT_ASKED:
	case PLACE_NOT_IN_SET:
	case PLACE_RESERVED:
	case PLACE_TOO_SMALL:
	case PLACE_REASON_COUNT_:
		break;
	}
	return NVSHARE_JOB_WHY_NEVER;
}

/* The GPU with that reason that has most free bytes; for a card that is too small, most at all. */
static const struct place_score *fill_best(const struct place_score *scores,
					   enum place_reason reason)
{
	const struct place_score *best = NULL;

	for (uint32_t i = 0; i < PLACE_GPUS_MAX; i++) {
		const struct place_score *score = &scores[i];
		uint64_t bytes = reason == PLACE_TOO_SMALL ? score->total : score->free;

		if (score->reason != reason)
			continue;
		if (!best || bytes > (reason == PLACE_TOO_SMALL ? best->total : best->free))
			best = score;
	}
	return best;
}

uint64_t job_fill_reason(const struct server *server, const struct place_score *scores,
			 enum place_reason reason, uint64_t memory, char *buf, size_t size)
{
	const struct place_score *best = fill_best(scores, reason);
	char need[SIZE_LEN], margin[SIZE_LEN], has[SIZE_LEN];
	uint32_t gpu = best ? (uint32_t)(best - scores) : 0;

	buf[0] = '\0';
	if (!best) {
		(void)snprintf(buf, size, "no GPU is there that the job may use");
		return 0;
	}
	format_size(memory, need, sizeof(need));
	format_size(best->margin, margin, sizeof(margin));
	format_size(reason == PLACE_TOO_SMALL ? best->total : best->free, has, sizeof(has));
	if (reason == PLACE_TOO_SMALL)
		(void)snprintf(buf, size,
			       "it needs %s and %s of margin; the largest GPU that it may use has"
			       " %s (GPU %u)",
			       need, margin, has, gpu);
	else if (reason == PLACE_NO_ROOM)
		(void)snprintf(buf, size,
			       "it needs %s and %s of margin; GPU %u has most free: %s, beside"
			       " programs and jobs: %u",
			       need, margin, gpu, has, best->n_on);
	else if (reason == PLACE_FULL)
		(void)snprintf(buf, size,
			       "GPU %u has programs and jobs: %u; its sharing degree is %u", gpu,
			       best->n_on, best->degree);
	else if (reason == PLACE_OUT && grace_is_on(server))
		(void)snprintf(buf, size,
			       "the scheduler has restarted, and waits for running programs");
	else
		(void)snprintf(buf, size, "GPU %u: %s", gpu, place_reason_text(reason));
	return reason == PLACE_NO_ROOM ? u64_excess(memory + best->margin, best->free) : 0;
}

static void fill_wait(const struct server *server, const struct job_entry *entry,
		      const struct jobs_status *status, struct nvshare_job *ret)
{
	struct place_score scores[PLACE_GPUS_MAX];

	if (status->wait == JOBS_WAIT_REST) {
		ret->why = NVSHARE_JOB_WHY_REST;
		(void)snprintf(ret->text, sizeof(ret->text),
			       "it has failed, and is tried again soon; tries left: %u",
			       status->n_retries + 1);
		return;
	}
	if (status->wait == JOBS_WAIT_MEMBERS) {
		ret->why = NVSHARE_JOB_WHY_MEMBERS;
		(void)snprintf(ret->text, sizeof(ret->text), "waits for %u more of gang %s",
			       status->n_missing, entry->gang.name);
		return;
	}
	if (status->wait == JOBS_WAIT_GANG) {
		ret->why = NVSHARE_JOB_WHY_GANG;
		(void)snprintf(ret->text, sizeof(ret->text), "waits for places for all of gang %s",
			       entry->gang.name);
		return;
	}
	if (status->wait == JOBS_WAIT_NEVER) {
		ret->why = NVSHARE_JOB_WHY_NEVER;
		(void)snprintf(ret->text, sizeof(ret->text),
			       "this node can never have places for all of gang %s",
			       entry->gang.name);
		return;
	}
	if (status->wait == JOBS_WAIT_POSITION) {
		ret->why = NVSHARE_JOB_WHY_BEHIND;
		(void)snprintf(ret->text, sizeof(ret->text), "other jobs are before it");
		return;
	}
	(void)jobs_place(&server->jobs.core, &status->request, server->now_ns, scores);
	ret->why = fill_why(server, status->reason);
	ret->missing = job_fill_reason(server, scores, status->reason, status->request.need,
				       ret->text, sizeof(ret->text));
}

static void fill_end(const struct job_entry *entry, struct nvshare_job *ret)
{
	const char *text = "";

	switch (entry->end) {
	case NVSHARE_JOB_END_NOT:
		return;
	case NVSHARE_JOB_END_EXIT:
		if (entry->signal)
			(void)snprintf(ret->text, sizeof(ret->text), "signal %s ended it",
				       sigabbrev_np((int)entry->signal)
					       ? sigabbrev_np((int)entry->signal)
					       : "?");
		else
			(void)snprintf(ret->text, sizeof(ret->text), "it ended with %u%s",
				       entry->exit_code,
				       entry->is_oom && entry->exit_code
					       ? ", and had been out of GPU memory"
					       : "");
		return;
	case NVSHARE_JOB_END_CANCEL:
		text = "it was cancelled";
		break;
	case NVSHARE_JOB_END_LIMIT:
		text = "its time limit is over";
		break;
	case NVSHARE_JOB_END_GAVE_UP:
		text = "its process gave up before the command began";
		break;
	case NVSHARE_JOB_END_LOST:
		text = "its process ended without a word";
		break;
	case NVSHARE_JOB_END_GONE:
		text = "it ended; the tool that started it knows how";
		break;
	case NVSHARE_JOB_END_NEVER:
		text = "its gang can never start: this node has no places for all of its jobs";
		break;
	case NVSHARE_JOB_END_COUNT:
		break;
	}
	(void)snprintf(ret->text, sizeof(ret->text), "%s", text);
}

static enum nvshare_job_state fill_state(enum jobs_state state)
{
	switch (state) {
	case JOBS_QUEUED:
	case JOBS_RESTING:
		return NVSHARE_JOB_WAITING;
	case JOBS_STARTED:
	case JOBS_RUNNING:
		return NVSHARE_JOB_RUNNING;
	case JOBS_STOPPING:
	case JOBS_KILLED:
		return NVSHARE_JOB_STOPPING;
	case JOBS_DONE:
	case JOBS_FREE:
	case JOBS_STATE_COUNT_:
		break;
	}
	return NVSHARE_JOB_DONE;
}

void job_fill(const struct server *server, const struct job_entry *entry, struct nvshare_job *ret)
{
	struct jobs_status status;
	bool is_self = entry->submit.flags & NVSHARE_SUBMIT_SELF;

	jobs_status(&server->jobs.core, job_queue_slot(server, entry), server->now_ns, &status);
	*ret = (struct nvshare_job){
		.memory = entry->memory,
		.peak = entry->peak,
		.submitted_unix_ns = entry->submitted_unix_ns,
		.waited_ns = status.waited_ns,
		.ran_ns = status.n_starts ? status.ran_ns : 0,
		.counted_ns = status.counted_ns,
		.limit_ns = status.limit_ns == JOBS_NO_LIMIT ? 0 : status.limit_ns,
		.job = (uint32_t)entry->id,
		.pid = (uint32_t)entry->process.pid,
		.uid = entry->uid,
		.state = fill_state(status.state),
		.position = status.position,
		.n_queued = jobs_n_queued(&server->jobs.core),
		.gpu = NVSHARE_JOB_NO_GPU,
		.priority = entry->submit.priority,
		.flags = (entry->submit.flags & NVSHARE_SUBMIT_WHOLE ? NVSHARE_JOB_WHOLE : 0) |
			 (is_self ? NVSHARE_JOB_SELF : 0) |
			 (status.reserved ? NVSHARE_JOB_RESERVES : 0) |
			 (entry->is_oom ? NVSHARE_JOB_OOM : 0),
		.end = entry->end,
		.exit_code = entry->exit_code,
		.signal = entry->signal,
		.n_programs = entry->n_programs,
		.n_retries = status.n_retries,
	};
	memcpy(ret->name, entry->submit.name, sizeof(ret->name));
	memcpy(ret->model, entry->submit.model, sizeof(ret->model));
	memcpy(ret->type, entry->submit.type, sizeof(ret->type));
	if (entry->is_started || (ret->state == NVSHARE_JOB_DONE && status.n_starts)) {
		ret->gpu = entry->gpu;
		memcpy(ret->gpu_uuid, entry->gpu_uuid, sizeof(ret->gpu_uuid));
	}
	if (ret->state == NVSHARE_JOB_WAITING)
		fill_wait(server, entry, &status, ret);
	else if (ret->state == NVSHARE_JOB_STOPPING)
		ret->signal_now = entry->signal_now;
	if (ret->state == NVSHARE_JOB_STOPPING || ret->state == NVSHARE_JOB_DONE)
		fill_end(entry, ret);
}

void job_fill_send(struct server *server, struct peer *peer, uint32_t seq,
		   const struct job_entry *entry)
{
	struct nvshare_job body;

	job_fill(server, entry, &body);
	server_send_body(server, peer, NVSHARE_MSG_JOB, seq, &body);
}

static void fill_gang(const struct server *server, const struct job_entry *entry,
		      struct nvshare_job_gang *ret)
{
	*ret = (struct nvshare_job_gang){.job = (uint32_t)entry->id, .size = entry->gang.size};
	if (!entry->gang.size)
		return;
	jobs_members(&server->jobs.core, job_queue_slot(server, entry), &ret->n_members,
		     &ret->n_on);
	memcpy(ret->name, entry->gang.name, sizeof(ret->name));
}

void job_fill_all(const struct server *server, const struct job_entry *entry,
		  struct job_record_ended *ret)
{
	job_fill(server, entry, &ret->job);
	fill_gang(server, entry, &ret->gang);
}

void job_fill_answer(struct server *server, struct peer *peer, uint32_t seq, uint32_t flags,
		     const struct job_record_ended *found)
{
	const struct nvshare_jobs_end end = {
		.n = 1,
		.n_queued = jobs_n_queued(&server->jobs.core),
		.n_running = server->jobs.n_live - jobs_n_queued(&server->jobs.core),
	};

	server_send_body(server, peer, NVSHARE_MSG_JOB, seq, &found->job);
	if (flags & NVSHARE_GET_JOBS_GANGS && found->gang.size)
		server_send_body(server, peer, NVSHARE_MSG_JOB_GANG, seq, &found->gang);
	server_send_body(server, peer, NVSHARE_MSG_JOBS_END, seq, &end);
}

void job_fill_tell(struct server *server, const struct job_entry *entry, uint32_t seq)
{
	if (entry->peer && !entry->peer->is_closing)
		job_fill_send(server, entry->peer, seq, entry);
}
