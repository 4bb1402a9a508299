/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/jobs/job_queue.h"

#include "core/u64.h"
#include "daemon/jobs/job_ends.h"
#include "daemon/jobs/job_estimates.h"
#include "daemon/jobs/job_facts.h"
#include "daemon/jobs/job_fill.h"
#include "daemon/jobs/job_programs.h"
#include "daemon/jobs/job_restore.h"
#include "daemon/server.h"
#include "util/container_of.h"
#include "util/fd.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

/* A pass of the core makes at most so many steps, then the loop comes back to its events. */
#define DUE_STEPS_MAX 256

/* Pods that run as root are no users with the same number: their namespaces are told apart. */
uint32_t job_queue_owner(const struct peer *peer)
{
	return peer->pod.owner;
}

/* ---- slots --------------------------------------------------------------------- */

uint32_t job_queue_slot(const struct server *server, const struct job_entry *entry)
{
	return (uint32_t)(entry - server->jobs.entries);
}

struct job_entry *job_queue_find(struct server *server, uint64_t id)
{
	struct job_queue *queue = &server->jobs;

	for (uint32_t i = queue->buckets[id % JOB_QUEUE_BUCKETS]; i;
	     i = queue->entries[i - 1].id_next) {
		if (queue->entries[i - 1].id == id)
			return &queue->entries[i - 1];
	}
	return NULL;
}

static void queue_free_slot(struct job_queue *queue, struct job_entry *entry)
{
	uint32_t slot = (uint32_t)(entry - queue->entries);
	uint32_t *link = &queue->buckets[entry->id % JOB_QUEUE_BUCKETS];

	while (*link != slot + 1)
		link = &queue->entries[*link - 1].id_next;
	*link = entry->id_next;
	*entry = (struct job_entry){.pidfd = -1};
	queue->free[queue->n_free++] = slot;
}

struct job_entry *job_queue_add(struct server *server, uint32_t owner, uid_t uid, uint64_t id)
{
	struct job_queue *queue = &server->jobs;
	struct user *user = users_add_job(&server->users, owner);
	struct job_entry *entry;
	uint32_t *bucket = &queue->buckets[id % JOB_QUEUE_BUCKETS];
	uint32_t slot;

	if (!user)
		return NULL;
	if (!queue->n_free && queue->n_used == JOB_QUEUE_MAX) {
		users_remove_job(&server->users, user);
		return NULL;
	}
	slot = queue->n_free ? queue->free[--queue->n_free] : queue->n_used++;
	entry = &queue->entries[slot];
	*entry = (struct job_entry){
		.id = id,
		.uid = uid,
		.owner = owner,
		.words_owner = owner,
		.user = user,
		.pidfd = -1,
		.since_ns = server->now_ns,
		.id_next = *bucket,
	};
	pods_hold(&server->pods, owner);
	*bucket = slot + 1;
	queue->n_live++;
	if (id > queue->last_id)
		queue->last_id = id;
	return entry;
}

void job_queue_own(struct server *server, struct job_entry *entry, const struct peer *peer)
{
	pods_hold(&server->pods, job_queue_owner(peer));
	pods_release(&server->pods, entry->owner);
	entry->owner = job_queue_owner(peer);
}

void job_queue_drop(struct server *server, struct job_entry *entry)
{
	event_source_remove(&entry->gone);
	entry->pidfd = fd_close(entry->pidfd);
	users_remove_job(&server->users, entry->user);
	pods_release(&server->pods, entry->owner);
	server->jobs.n_live--;
	queue_free_slot(&server->jobs, entry);
}

/* ---- connections and processes --------------------------------------------------- */

void job_queue_attach(struct server *server, struct peer *peer, struct job_entry *entry)
{
	(void)server;
	if (peer->job)
		peer->job->peer = NULL;
	peer->job = entry;
	if (!entry)
		return;
	if (entry->peer)
		entry->peer->job = NULL;
	entry->peer = peer;
}

void job_queue_forget(struct server *server, struct peer *peer)
{
	job_queue_attach(server, peer, NULL);
	if (peer->awaits)
		DL_DELETE2(peer->awaits->awaiting, peer, await_prev, await_next);
	peer->awaits = NULL;
}

static void queue_on_gone(void *context, struct event_source *source, uint32_t events)
{
	struct server *server = context;
	struct job_entry *entry = container_of(source, struct job_entry, gone);

	uint64_t id = entry->id;

	(void)events;
	if (entry->peer)
		connections_receive_rest(server, entry->peer);
	if (job_queue_find(server, id) == entry)
		job_ends_lost(server, entry);
}

void job_queue_watch(struct server *server, struct job_entry *entry, int pidfd)
{
	entry->pidfd = pidfd;
	/* Without it the end is seen when the scheduler restarts. There is memory for it. */
	(void)event_source_add(&server->poller, &entry->gone, pidfd, EPOLLIN, queue_on_gone);
}

/* ---- the journal ----------------------------------------------------------------- */

static void queue_record_place(const struct server *server, const struct job_entry *entry,
			       struct job_record_place *ret)
{
	struct jobs_status status;

	jobs_status(&server->jobs.core, job_queue_slot(server, entry), server->now_ns, &status);
	*ret = (struct job_record_place){
		.id = entry->id,
		.pid = entry->process.pid,
		.ticks = entry->process.ticks,
		.since_ns = entry->since_ns,
		.unix_ns = entry->submitted_unix_ns,
		.memory = entry->memory,
		.uid = entry->uid,
		.owner = entry->words_owner,
		.n_retries = status.n_retries,
		.is_estimated = entry->is_estimated,
		.submit = entry->submit,
	};
}

static void queue_record_time(const struct server *server, const struct job_entry *entry,
			      struct job_record_time *ret)
{
	struct jobs_status status;

	jobs_status(&server->jobs.core, job_queue_slot(server, entry), server->now_ns, &status);
	*ret = (struct job_record_time){
		.id = entry->id,
		.counted_ns = status.counted_ns,
		.at_ns = server->now_ns,
		.is_counting = !entry->is_stopped,
	};
}

void job_queue_record(struct server *server, const struct job_entry *entry,
		      enum job_record_kind kind)
{
	struct job_record record = {.kind = kind};

	if (kind == JOB_RECORD_SUBMIT && entry->gang.size) {
		record.kind = JOB_RECORD_SUBMIT_GANG;
		queue_record_place(server, entry, &record.member.place);
		record.member.gang = entry->gang;
	} else if (kind == JOB_RECORD_SUBMIT || kind == JOB_RECORD_RETRY) {
		queue_record_place(server, entry, &record.place);
	} else if (kind == JOB_RECORD_START) {
		record.start.id = entry->id;
		memcpy(record.start.gpu, entry->gpu_uuid, sizeof(record.start.gpu));
	} else if (kind == JOB_RECORD_TIME) {
		queue_record_time(server, entry, &record.time);
	} else {
		record.number.id = entry->id;
	}
	job_journal_write(&server->jobs.journal, &record);
}

static void queue_record_whole(struct server *server, const struct job_entry *entry)
{
	struct jobs_status status;

	job_queue_record(server, entry, JOB_RECORD_SUBMIT);
	jobs_status(&server->jobs.core, job_queue_slot(server, entry), server->now_ns, &status);
	if (status.n_starts > entry->is_started)
		job_queue_record(server, entry, JOB_RECORD_RETRY);
	if (entry->is_started) {
		job_queue_record(server, entry, JOB_RECORD_START);
		job_queue_record(server, entry, JOB_RECORD_TIME);
	}
	if (entry->is_cancelled)
		job_queue_record(server, entry, JOB_RECORD_CANCEL);
}

static int queue_compare_ids(const void *a, const void *b)
{
	const struct job_entry *const *x = a, *const *y = b;

	return ((*x)->id > (*y)->id) - ((*x)->id < (*y)->id);
}

/* The oldest first. */
static void queue_record_ended(struct job_queue *queue)
{
	struct job_record record = {.kind = JOB_RECORD_ENDED};
	uint64_t first = u64_excess(queue->n_ended, JOB_RECORD_ENDED_MAX);

	for (uint64_t i = first; i < queue->n_ended; i++) {
		record.ended = queue->ended[i % JOB_RECORD_ENDED_MAX];
		job_journal_write(&queue->journal, &record);
	}
}

/* Ids rise in the file, so that a place is never claimed that was not given. */
static void queue_write_anew(struct server *server)
{
	struct job_queue *queue = &server->jobs;
	struct job_entry **live = malloc((queue->n_live + 1) * sizeof(struct job_entry *));
	uint32_t n = 0;

	if (!live)
		return; /* the old file goes on */
	for (uint32_t i = 0; i < queue->n_used; i++) {
		if (queue->entries[i].id)
			live[n++] = &queue->entries[i];
	}
	qsort(live, n, sizeof(struct job_entry *), queue_compare_ids);
	job_journal_begin(&queue->journal, queue->last_id);
	queue_record_ended(queue);
	for (uint32_t i = 0; i < n; i++)
		queue_record_whole(server, live[i]);
	job_journal_commit(&queue->journal);
	free(live);
}

/* ---- the core -------------------------------------------------------------------- */

static void queue_on_start(struct server *server, struct job_entry *entry,
			   const struct jobs_action *action)
{
	struct job_queue *queue = &server->jobs;
	struct jobs_status status;

	jobs_status(&queue->core, action->job, server->now_ns, &status);
	entry->is_started = true;
	entry->gpu = action->gpu;
	gpus_print_uuid(&server->gpus.at[action->gpu], entry->gpu_uuid);
	entry->peak = 0;
	entry->is_oom = false;
	entry->exit_code = entry->signal = 0; /* of the try before */
	DL_APPEND(queue->started, entry);
	queue->counts.n_started++;
	histogram_add(&queue->counts.wait, status.waited_ns);
	job_queue_record(server, entry, JOB_RECORD_START);
	job_queue_record(server, entry, JOB_RECORD_TIME);
	server_log(server, entry->owner, LOG_LEVEL_INFO,
		   "job-start job=%llu gpu=%u pid=%d uid=%u memory=%llu waited_ms=%llu turns=%d",
		   (unsigned long long)entry->id, entry->gpu, (int)entry->process.pid,
		   (unsigned int)entry->uid, (unsigned long long)entry->memory,
		   (unsigned long long)(status.waited_ns / CLOCK_NS_PER_MS), action->is_turns);
	job_fill_tell(server, entry, 0);
}

/* Its process sends the signal. A process that became the command itself hears of none. */
static void queue_on_signal(struct server *server, struct job_entry *entry, int number,
			    enum jobs_end end)
{
	if (entry->submit.flags & NVSHARE_SUBMIT_SELF)
		return; /* nobody would send it */
	entry->signal_now = (uint32_t)number;
	entry->end = end == JOBS_END_TIMEOUT ? NVSHARE_JOB_END_LIMIT : NVSHARE_JOB_END_CANCEL;
	if (entry->is_final)
		return; /* it has ended, and is about to leave the core */
	server_log(server, entry->owner, LOG_LEVEL_INFO, "job-stop job=%llu signal=%s reason=%s",
		   (unsigned long long)entry->id, sigabbrev_np(number),
		   end == JOBS_END_TIMEOUT ? "limit" : "cancel");
	job_fill_tell(server, entry, 0);
}

static void queue_perform_one(struct server *server, const struct jobs_action *action)
{
	struct job_entry *entry = &server->jobs.entries[action->job];

	switch (action->type) {
	case JOBS_ACTION_START:
		queue_on_start(server, entry, action);
		break;
	case JOBS_ACTION_TERM:
		queue_on_signal(server, entry, SIGTERM, action->end);
		break;
	case JOBS_ACTION_KILL:
		queue_on_signal(server, entry, SIGKILL, action->end);
		break;
	case JOBS_ACTION_RETRY:
		job_ends_retry(server, entry);
		break;
	case JOBS_ACTION_DONE:
		job_ends_done(server, entry, action->end);
		job_queue_drop(server, entry);
		break;
	}
}

void job_queue_perform(struct server *server, const struct jobs_actions *actions)
{
	struct job_queue *queue = &server->jobs;

	for (uint32_t i = 0; i < actions->n; i++)
		queue_perform_one(server, &actions->at[i]);
	for (uint32_t i = 0; i < actions->n; i++) {
		if (actions->at[i].type == JOBS_ACTION_DONE)
			(void)job_queue_step(server, NULL,
					     &(struct jobs_event){.type = JOBS_EVENT_FORGET,
								  .job = actions->at[i].job});
	}
	if (job_journal_is_long(&queue->journal, queue->n_live))
		queue_write_anew(server);
}

int job_queue_try(struct server *server, struct job_entry *entry, struct jobs_event *event,
		  struct jobs_actions *ret_actions)
{
	event->now_ns = server->now_ns;
	if (entry)
		event->job = job_queue_slot(server, entry);
	ret_actions->n = 0;
	return jobs_step(&server->jobs.core, event, ret_actions);
}

int job_queue_step(struct server *server, struct job_entry *entry, struct jobs_event *event)
{
	struct jobs_actions actions;
	int r = job_queue_try(server, entry, event, &actions);

	if (!r)
		job_queue_perform(server, &actions);
	return r;
}

static void queue_on_due(struct server *server, struct deadline *deadline)
{
	(void)deadline;
	for (unsigned int i = 0; i < DUE_STEPS_MAX; i++) {
		struct jobs_event event = {.type = JOBS_EVENT_TIME};

		if (jobs_deadline(&server->jobs.core) > server->now_ns)
			break;
		(void)job_queue_step(server, NULL, &event);
	}
}

static void queue_on_look(struct server *server, struct deadline *deadline)
{
	(void)deadline;
	server->jobs.looked_ns = server->now_ns;
	server->jobs.is_changed = false;
	job_facts_look(server);
	job_programs_look(server);
}

void job_queue_touch(struct server *server)
{
	server->jobs.is_changed = true;
}

/* A node without jobs has nothing to look at. */
void job_queue_settle(struct server *server)
{
	struct job_queue *queue = &server->jobs;
	uint64_t look_ns = queue->looked_ns + JOB_LOOK_NS;

	if (queue->is_changed && queue->n_live && !deadline_is_set(&queue->look))
		deadline_set(&server->deadlines, &queue->look,
			     look_ns > server->now_ns ? look_ns : server->now_ns);
	deadline_set(&server->deadlines, &queue->due, jobs_deadline(&queue->core));
}

bool job_queue_is_waiting(const struct server *server)
{
	return jobs_n_queued(&server->jobs.core) > 0;
}

void job_queue_config(struct server *server)
{
	job_facts_config(server);
	job_estimates_config(server);
	job_queue_touch(server);
}

/* ---- begin and end ----------------------------------------------------------------- */

int job_queue_open(struct server *server)
{
	struct job_queue *queue = &server->jobs;

	queue->slots = calloc(JOB_QUEUE_MAX, sizeof(*queue->slots));
	queue->entries = calloc(JOB_QUEUE_MAX, sizeof(*queue->entries));
	queue->free = calloc(JOB_QUEUE_MAX, sizeof(*queue->free));
	queue->ended = calloc(JOB_RECORD_ENDED_MAX, sizeof(*queue->ended));
	queue->estimates = calloc(JOB_ESTIMATES_MAX, sizeof(*queue->estimates));
	queue->journal = (struct job_journal){.fd = -1, .new_fd = -1};
	if (!queue->slots || !queue->entries || !queue->free || !queue->ended || !queue->estimates)
		return -ENOMEM;
	queue->due.on_due = queue_on_due;
	queue->look.on_due = queue_on_look;
	jobs_init(&queue->core, queue->slots, JOB_QUEUE_MAX, &server->settings.jobs.config);
	job_estimates_open(server);
	job_facts_config(server);
	queue->is_restoring = true;
	job_facts_look(server);
	job_restore(server);
	queue->is_restoring = false;
	queue_write_anew(server);
	job_queue_touch(server);
	return 0;
}

void job_queue_close(struct server *server)
{
	struct job_queue *queue = &server->jobs;

	if (!queue->entries)
		return;
	job_estimates_save(server);
	job_journal_close(&queue->journal);
	free(queue->estimates);
	free(queue->ended);
	free(queue->free);
	free(queue->entries);
	free(queue->slots);
}
