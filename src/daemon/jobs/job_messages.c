/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/jobs/job_messages.h"

#include "daemon/jobs/job_ends.h"
#include "daemon/jobs/job_fill.h"
#include "daemon/jobs/job_submit.h"
#include "daemon/peers/claims.h"
#include "daemon/server.h"
#include "util/fd.h"

#define SLOTS_A_TURN 1024

/* A cancelled job is told to end, and that is logged. */
#define CANCEL_COST 5

bool job_messages_has(uint16_t type)
{
	return type == NVSHARE_MSG_SUBMIT || type == NVSHARE_MSG_SUBMIT_GANG ||
	       type == NVSHARE_MSG_ATTACH_JOB || type == NVSHARE_MSG_JOB_ENDED ||
	       type == NVSHARE_MSG_CANCEL_JOB || type == NVSHARE_MSG_GET_JOBS ||
	       type == NVSHARE_MSG_PLACE;
}

static void messages_unknown(struct server *server, struct peer *peer, uint32_t seq, uint32_t job)
{
	tools_answer(server, peer, seq, NVSHARE_RESULT_INVALID, "there is no job %u", job);
}

/* Whether there is such a job, or was one that is kept. */
static bool messages_find(struct server *server, uint64_t id, struct job_record_ended *ret)
{
	const struct job_entry *entry = job_queue_find(server, id);
	const struct job_record_ended *ended = entry ? NULL : job_ends_find(server, id);

	if (entry)
		job_fill_all(server, entry, ret);
	else if (ended)
		*ret = *ended;
	return entry || ended;
}

/* Its process is known by the kernel's word alone, so no other one can take its place. */
static void messages_attach(struct server *server, struct peer *peer, uint32_t seq, uint32_t job)
{
	struct job_entry *entry = job_queue_find(server, job);
	struct job_process process = {.pid = 0};
	int pidfd = -1;

	if (entry)
		pidfd = job_process_of(peer, &process);
	(void)fd_close(pidfd);
	if (pidfd < 0 || process.pid != entry->process.pid ||
	    process.ticks != entry->process.ticks) {
		tools_answer(server, peer, seq, NVSHARE_RESULT_INVALID,
			     "this process has no job %u", job);
		return;
	}
	job_queue_own(server, entry, peer);
	job_queue_attach(server, peer, entry);
	job_fill_send(server, peer, seq, entry);
}

static void messages_ended(struct server *server, struct peer *peer, uint32_t seq,
			   const struct nvshare_job_ended *ended)
{
	struct job_entry *entry = peer->job;
	struct job_record_ended found;

	if (!entry || entry->id != ended->job) {
		tools_answer(server, peer, seq, NVSHARE_RESULT_INVALID,
			     "this connection has no job %u", ended->job);
		return;
	}
	if (job_ends_report(server, entry, ended)) {
		tools_answer(server, peer, seq, NVSHARE_RESULT_INVALID, "job %u has ended before",
			     ended->job);
		return;
	}
	if (messages_find(server, ended->job, &found)) /* it may be tried again */
		server_send_body(server, peer, NVSHARE_MSG_JOB, seq, &found.job);
}

static void messages_cancel(struct server *server, struct peer *peer, uint32_t seq, uint32_t job)
{
	struct job_entry *entry = job_queue_find(server, job);
	bool is_started = entry && entry->is_started;

	flow_charge(server, peer, CANCEL_COST);
	if (!entry) {
		messages_unknown(server, peer, seq, job);
		return;
	}
	if ((entry->owner != job_queue_owner(peer) || entry->owner == QUOTA_NOBODY) &&
	    !claims_may_steer(server, peer)) {
		tools_answer(server, peer, seq, NVSHARE_RESULT_DENIED,
			     "not permitted: job %u is another user's", job);
		return;
	}
	if (entry->submit.flags & NVSHARE_SUBMIT_SELF && is_started) {
		tools_answer(
			server, peer, seq, NVSHARE_RESULT_INVALID,
			"job %u has no process that would hear of it: end process %d, or use the"
			" tool that started it",
			job, (int)entry->process.pid);
		return;
	}
	entry->is_cancelled = true;
	if (is_started)
		job_queue_record(server, entry, JOB_RECORD_CANCEL);
	(void)job_queue_step(server, entry, &(struct jobs_event){.type = JOBS_EVENT_CANCEL});
	tools_answer(server, peer, seq, NVSHARE_RESULT_OK, "job %u %s", job,
		     is_started ? "is told to end" : "has left the queue");
}

/* ---- lists ----------------------------------------------------------------------- */

static void messages_list(struct server *server, struct peer *peer, uint32_t seq,
			  const struct nvshare_get_jobs *get)
{
	struct job_record_ended found;
	struct job_entry *entry;

	if (!get->job) {
		peer->cursor = (struct peer_cursor){
			.stage = PEER_STAGE_JOBS,
			.seq = seq,
			.flags = get->flags,
			.first = get->first ? get->first - 1 : 0,
			.last = get->last ? get->last : UINT32_MAX,
		};
		return;
	}
	entry = job_queue_find(server, get->job);
	if (entry && get->flags & NVSHARE_GET_JOBS_AWAIT_END)
		job_ends_await(peer, seq, get->flags, entry);
	else if (messages_find(server, get->job, &found))
		job_fill_answer(server, peer, seq, get->flags, &found);
	else
		messages_unknown(server, peer, seq, get->job);
}

/* false: none is due. */
static bool list_next_gang(struct server *server, struct peer_cursor *cursor, struct msg *ret_msg)
{
	struct job_record_ended found;
	bool is_due = cursor->gang_job && messages_find(server, cursor->gang_job, &found);

	cursor->gang_job = 0;
	if (is_due)
		(void)msg_encode(NVSHARE_MSG_JOB_GANG, cursor->seq, &found.gang, ret_msg);
	return is_due;
}

/* The next job by slot that does not wait in the queue. NULL: none of those looked at. */
static struct job_entry *list_next_slot(struct server *server, struct peer_cursor *cursor)
{
	struct job_queue *queue = &server->jobs;

	for (uint32_t n = 0; n < SLOTS_A_TURN && cursor->at < queue->n_used; n++) {
		struct job_entry *entry = &queue->entries[cursor->at++];

		if (entry->id && jobs_state(&queue->core, cursor->at - 1) != JOBS_QUEUED)
			return entry;
	}
	return NULL;
}

static const struct job_record_ended *list_next_ended(const struct job_queue *queue,
						      struct peer_cursor *cursor)
{
	while (cursor->flags & NVSHARE_GET_JOBS_ENDED && cursor->at < JOB_RECORD_ENDED_MAX) {
		const struct job_record_ended *ended = &queue->ended[cursor->at++];

		if (ended->job.job)
			return ended;
	}
	return NULL;
}

static struct job_entry *list_next_queued(struct server *server, struct peer_cursor *cursor)
{
	uint32_t slot;

	if (cursor->at >= cursor->last)
		return NULL;
	slot = jobs_at(&server->jobs.core, cursor->at++);
	return slot == JOBS_NONE ? NULL : &server->jobs.entries[slot];
}

static void list_go_on(struct peer_cursor *cursor, enum peer_stage stage, uint32_t at)
{
	cursor->stage = stage;
	cursor->at = at;
}

/* The next job, as an answer has it. false: there is none. *ret_is_later: not in this turn. */
static bool list_next(struct server *server, struct peer_cursor *cursor,
		      struct job_record_ended *ret, bool *ret_is_later)
{
	const struct job_record_ended *ended = NULL;
	struct job_entry *entry = NULL;

	*ret_is_later = false;
	if (cursor->stage == PEER_STAGE_JOBS) {
		entry = list_next_slot(server, cursor);
		*ret_is_later = !entry && cursor->at < server->jobs.n_used;
		if (*ret_is_later)
			return false;
		if (!entry)
			list_go_on(cursor, PEER_STAGE_ENDED, 0);
	}
	if (cursor->stage == PEER_STAGE_ENDED) {
		ended = list_next_ended(&server->jobs, cursor);
		if (!ended)
			list_go_on(cursor, PEER_STAGE_QUEUE, cursor->first);
	}
	if (cursor->stage == PEER_STAGE_QUEUE)
		entry = list_next_queued(server, cursor);
	if (entry)
		job_fill_all(server, entry, ret);
	else if (ended)
		*ret = *ended;
	return entry || ended;
}

bool job_messages_next(struct server *server, struct peer_cursor *cursor, struct msg *ret_msg)
{
	struct job_queue *queue = &server->jobs;
	struct job_record_ended found;
	struct nvshare_jobs_end end;
	bool is_later;

	if (list_next_gang(server, cursor, ret_msg))
		return true;
	if (list_next(server, cursor, &found, &is_later)) {
		(void)msg_encode(NVSHARE_MSG_JOB, cursor->seq, &found.job, ret_msg);
		cursor->n_jobs++;
		if (cursor->flags & NVSHARE_GET_JOBS_GANGS && found.gang.size)
			cursor->gang_job = found.job.job;
		return true;
	}
	if (is_later)
		return false;
	end = (struct nvshare_jobs_end){
		.n = cursor->n_jobs,
		.n_queued = jobs_n_queued(&queue->core),
		.n_running = queue->n_live - jobs_n_queued(&queue->core),
	};
	(void)msg_encode(NVSHARE_MSG_JOBS_END, cursor->seq, &end, ret_msg);
	cursor->stage = PEER_STAGE_NONE;
	return true;
}

void job_messages_handle(struct server *server, struct peer *peer, const struct msg *msg)
{
	uint32_t seq = msg->header.seq;

	switch (msg->header.type) {
	case NVSHARE_MSG_SUBMIT:
		job_submit(server, peer, seq, &msg->body.submit, &(struct nvshare_gang){.size = 0});
		break;
	case NVSHARE_MSG_SUBMIT_GANG:
		job_submit(server, peer, seq, &msg->body.submit_gang.submit,
			   &msg->body.submit_gang.gang);
		break;
	case NVSHARE_MSG_PLACE:
		job_submit_place(server, peer, seq, &msg->body.place);
		break;
	case NVSHARE_MSG_ATTACH_JOB:
		messages_attach(server, peer, seq, msg->body.attach_job.job);
		break;
	case NVSHARE_MSG_JOB_ENDED:
		messages_ended(server, peer, seq, &msg->body.job_ended);
		break;
	case NVSHARE_MSG_CANCEL_JOB:
		messages_cancel(server, peer, seq, msg->body.cancel_job.job);
		break;
	case NVSHARE_MSG_GET_JOBS:
		messages_list(server, peer, seq, &msg->body.get_jobs);
		break;
	}
}
