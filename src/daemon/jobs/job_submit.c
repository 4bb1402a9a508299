/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/jobs/job_submit.h"

#include "daemon/jobs/job_ends.h"
#include "daemon/jobs/job_estimates.h"
#include "daemon/jobs/job_facts.h"
#include "daemon/jobs/job_fill.h"
#include "daemon/jobs/job_gpus.h"
#include "daemon/peers/claims.h"
#include "daemon/server.h"
#include "util/clock.h"
#include "util/fd.h"
#include "util/parse.h"
#include "util/text.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* A submission looks into /proc, and writes to the journal. */
#define SUBMIT_COST 5

/* Of the core's priorities, each class has one. */
#define PRIORITY_STEP (JOBS_PRIORITY_MAX / NVSHARE_PRIORITY_COUNT)
_Static_assert(NVSHARE_PRIORITY_NORMAL *PRIORITY_STEP + PRIORITY_STEP == JOBS_PRIORITY_DEFAULT,
	       "normal is the default");

__attribute__((format(printf, 2, 3))) static int submit_refuse(char *ret_text, const char *format,
							       ...)
{
	va_list args;

	if (!ret_text)
		return -EINVAL;
	va_start(args, format);
	(void)vsnprintf(ret_text, NVSHARE_TEXT_LEN, format, args);
	va_end(args);
	return -EINVAL;
}

/* ---- which GPU ------------------------------------------------------------------- */

/* How long the job may have to wait for such a GPU. */
enum score_wait { SCORE_WAIT_NOT, SCORE_WAIT_JOBS, SCORE_WAIT_REPAIR, SCORE_WAIT_EVER };

static enum score_wait score_wait(const struct place_score *score)
{
	switch (score->reason) {
	case PLACE_OK:
		return SCORE_WAIT_NOT;
	case PLACE_APART:
	case PLACE_FULL:
	case PLACE_NO_ROOM:
	case PLACE_BOOKED:
		return SCORE_WAIT_JOBS;
	case PLACE_OUT:
		return SCORE_WAIT_REPAIR;
	case PLACE_NO_GPU:
	case PLACE_NOT_ASKED:
	case PLACE_NOT_IN_SET:
	case PLACE_RESERVED:
	case PLACE_TOO_SMALL:
	case PLACE_REASON_COUNT_:
		break;
	}
	return SCORE_WAIT_EVER;
}

/* Whether a job would be better off with a than with b, if each was its only GPU. */
static bool score_is_better(const struct place_score *a, const struct place_score *b)
{
	enum score_wait wait_a = score_wait(a), wait_b = score_wait(b);

	if (wait_a != wait_b)
		return wait_a < wait_b;
	if (a->is_fit != b->is_fit)
		return a->is_fit;
	if (!a->is_fit && a->n_on != b->n_on)
		return a->n_on < b->n_on;
	return a->sum > b->sum;
}

/*
 * The core lets a job wait for one GPU or for any. Of several that are named, but are not all, the
 * best one at the moment is the one.
 */
static uint32_t submit_choose(const struct server *server, const struct jobs_request *request,
			      uint32_t mask)
{
	struct place_score best = {.reason = PLACE_TOO_SMALL};
	uint32_t n_known = 0, found = PLACE_ANY;

	for (uint32_t i = 0; i < server->gpus.n; i++)
		n_known += server->gpus.at[i].total > 0;
	if (!mask || (uint32_t)__builtin_popcount(mask) == n_known)
		return PLACE_ANY;
	for (uint32_t i = 0; i < PLACE_GPUS_MAX; i++) {
		struct jobs_request one = *request;
		struct place_score scores[PLACE_GPUS_MAX];

		if (!(mask & 1u << i))
			continue;
		one.gpu = i;
		(void)jobs_place(&server->jobs.core, &one, server->now_ns, scores);
		if (found == PLACE_ANY || score_is_better(&scores[i], &best)) {
			best = scores[i];
			found = i;
		}
	}
	return found;
}

/* Words of other users are other words, whatever these are: half of the number is the owner. */
static uint64_t submit_number(const char *word, uint32_t owner)
{
	uint32_t hash = 2166136261u; /* FNV-1a */

	if (!*word)
		return 0;
	for (; *word; word++)
		hash = (hash ^ (uint8_t)*word) * 16777619u;
	return (uint64_t)owner << 32 | (hash ? hash : 1);
}

static int submit_request(const struct server *server, const struct nvshare_submit *submit,
			  uint32_t owner, uint64_t memory, struct jobs_request *ret, char *ret_text)
{
	bool is_critical = submit->priority == NVSHARE_PRIORITY_CRITICAL;
	struct estimate_work work;
	uint32_t mask;
	int r;

	if (job_estimates_work(submit, owner, &work))
		return submit_refuse(
			ret_text, "a model or type has letters, digits and signs, and no blanks");
	r = job_gpus_mask(server, submit->gpus, &mask);
	if (r == JOB_GPUS_E_FORM)
		return submit_refuse(
			ret_text, "GPUs are '%.100s'; allowed are numbers and UUIDs, with commas",
			submit->gpus);
	if (r)
		return submit_refuse(ret_text, "this node has no GPU '%.100s', or several of them",
				     submit->gpus);
	*ret = (struct jobs_request){
		.need = memory,
		.model = work.model,
		.gpu = PLACE_ANY,
		.is_whole = is_critical || submit->flags & NVSHARE_SUBMIT_WHOLE,
		.is_critical = is_critical,
		.apart = submit_number(submit->apart, owner),
	};
	ret->gpu = submit_choose(server, ret, mask);
	return 0;
}

/* Nothing is sent to a process that became the command, so no limit can end it. */
static uint64_t submit_limit_ns(const struct nvshare_submit *submit)
{
	if (submit->flags & NVSHARE_SUBMIT_SELF || submit->limit_sec == NVSHARE_JOB_NO_LIMIT)
		return JOBS_NO_LIMIT;
	return submit->limit_sec * CLOCK_NS_PER_SEC;
}

int job_submit_event(const struct server *server, const struct job_entry *entry,
		     struct jobs_event *ret_event, char ret_text[NVSHARE_TEXT_LEN])
{
	const struct nvshare_submit *submit = &entry->submit;

	*ret_event = (struct jobs_event){
		.type = JOBS_EVENT_SUBMIT,
		.id = entry->id,
		.since_ns = entry->since_ns,
		.owner = entry->owner,
		.priority = submit->priority * PRIORITY_STEP + PRIORITY_STEP,
		.n_retries = submit->n_retries,
		.limit_ns = submit_limit_ns(submit),
	};
	if (submit_request(server, submit, entry->owner, entry->memory, &ret_event->request,
			   ret_text))
		return -EINVAL;
	if (entry->gang.size > JOBS_GANG_MAX)
		return submit_refuse(ret_text,
				     "gang '%.100s' has %u jobs; %d at most can start together",
				     entry->gang.name, entry->gang.size, JOBS_GANG_MAX);
	ret_event->request.apart = submit_number(submit->apart, entry->words_owner);
	ret_event->request.gang = submit_number(entry->gang.name, entry->words_owner);
	ret_event->request.gang_size = entry->gang.size;
	return 0;
}

/* ---- submissions ----------------------------------------------------------------- */

static uint64_t submit_unix_ns(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * CLOCK_NS_PER_SEC + (uint64_t)now.tv_nsec;
}

static uint64_t submit_memory(const struct server *server, const struct nvshare_submit *submit,
			      uint32_t owner)
{
	struct estimate_work work;

	if (submit->memory)
		return submit->memory;
	if (job_estimates_work(submit, owner, &work))
		return 1; /* it is refused for its names */
	return job_estimates_bytes(server, &work);
}

static uint64_t submit_limit_max_ns(const struct server *server)
{
	struct jobs_config config;

	settings_jobs_config(&server->settings.jobs, &config);
	return config.limit_max_ns;
}

/* Whether it asks for none where an administrator wants one. */
static bool submit_lacks_limit(const struct server *server, const struct nvshare_submit *submit)
{
	return submit->limit_sec == NVSHARE_JOB_NO_LIMIT &&
	       server->settings.jobs.limit_max_ns != JOBS_NO_LIMIT;
}

/* Why the core refuses it. */
static void submit_error(const struct server *server, const struct jobs_request *request,
			 const char *gang, int r, char ret_text[NVSHARE_TEXT_LEN])
{
	struct place_score scores[PLACE_GPUS_MAX];

	(void)jobs_place(&server->jobs.core, request, server->now_ns, scores);
	if (r == JOBS_E_NEVER)
		(void)job_fill_reason(server, scores, PLACE_TOO_SMALL, request->need, ret_text,
				      NVSHARE_TEXT_LEN);
	else if (r == JOBS_E_LIMIT)
		(void)submit_refuse(
			ret_text, "the time limit is %llu s at most",
			(unsigned long long)(submit_limit_max_ns(server) / CLOCK_NS_PER_SEC));
	else if (r == JOBS_E_GPU && request->gpu != PLACE_ANY)
		(void)submit_refuse(ret_text, "GPU %u is not for jobs: %s", request->gpu,
				    place_reason_text(scores[request->gpu].reason));
	else if (r == JOBS_E_GPU)
		(void)submit_refuse(ret_text, "no GPU of this node is for jobs: see job_gpus and"
					      " job_gpus_reserved in nvsharectl config");
	else if (r == JOBS_E_GANG_NEVER)
		(void)submit_refuse(ret_text,
				    "gang '%.100s' can never start: this node has no places for %u"
				    " such jobs together",
				    gang, request->gang_size);
	else if (r == JOBS_E_GANG_SIZE)
		(void)submit_refuse(ret_text, "gang '%.100s' has another size than %u", gang,
				    request->gang_size);
	else if (r == JOBS_E_GANG_FULL)
		(void)submit_refuse(ret_text, "gang '%.100s' has %d jobs that have not ended", gang,
				    JOBS_GANG_OPEN_MAX);
	else
		(void)submit_refuse(ret_text, "a value is out of its range");
}

/* The same process has asked before, but the scheduler ended before it could answer. */
static struct job_entry *submit_find_orphan(struct server *server,
					    const struct job_process *process,
					    const struct nvshare_submit *submit,
					    const struct nvshare_gang *gang)
{
	struct job_queue *queue = &server->jobs;

	if (queue->n_live == 0 || !queue->n_restored)
		return NULL;
	for (uint32_t i = 0; i < queue->n_used; i++) {
		struct job_entry *entry = &queue->entries[i];

		if (entry->id && entry->is_restored && !entry->peer &&
		    entry->process.pid == process->pid && entry->process.ticks == process->ticks &&
		    !memcmp(&entry->submit, submit, sizeof(*submit)) &&
		    !memcmp(&entry->gang, gang, sizeof(*gang)))
			return entry;
	}
	return NULL;
}

/* A gang starts all or not at all, so those that wait for the newcomer are refused with it. */
static void submit_refuse_gang(struct server *server, const struct job_entry *newcomer)
{
	struct job_queue *queue = &server->jobs;

	for (uint32_t i = 0; i < queue->n_used; i++) {
		struct job_entry *entry = &queue->entries[i];
		struct jobs_status status;

		if (!entry->user || entry == newcomer ||
		    entry->words_owner != newcomer->words_owner ||
		    strcmp(entry->gang.name, newcomer->gang.name) != 0)
			continue;
		jobs_status(&queue->core, i, server->now_ns, &status);
		if (status.wait != JOBS_WAIT_MEMBERS)
			continue;
		entry->end = NVSHARE_JOB_END_NEVER;
		(void)job_queue_step(server, entry,
				     &(struct jobs_event){.type = JOBS_EVENT_CANCEL});
	}
}

/* entry is new, and its values are set. 0, or -EINVAL with the reason: it is dropped. */
static int submit_enter(struct server *server, struct job_entry *entry,
			char ret_text[NVSHARE_TEXT_LEN])
{
	struct jobs_actions actions;
	struct jobs_event event;
	int r = job_submit_event(server, entry, &event, ret_text);

	if (r)
		return r;
	r = submit_lacks_limit(server, &entry->submit)
		    ? JOBS_E_LIMIT
		    : job_queue_try(server, entry, &event, &actions);
	if (r) {
		submit_error(server, &event.request, entry->gang.name, r, ret_text);
		if (r == JOBS_E_GANG_NEVER)
			submit_refuse_gang(server, entry);
		return -EINVAL;
	}
	server->jobs.counts.n_submitted++;
	job_queue_record(server, entry, JOB_RECORD_SUBMIT);
	server_log(server, entry->owner, LOG_LEVEL_INFO,
		   "job-submit job=%llu pid=%d uid=%u memory=%llu estimated=%d name=%s",
		   (unsigned long long)entry->id, (int)entry->process.pid, (unsigned int)entry->uid,
		   (unsigned long long)entry->memory, entry->is_estimated,
		   TEXT_QUOTED(entry->submit.name));
	job_queue_perform(server, &actions);
	return 0;
}

static void submit_answer(struct server *server, struct peer *peer, uint32_t seq,
			  struct job_entry *entry)
{
	struct nvshare_job job;

	job_fill(server, entry, &job);
	if (entry->submit.flags & NVSHARE_SUBMIT_NO_WAIT && job.state == NVSHARE_JOB_WAITING) {
		job_ends_lost(server, entry);
		tools_answer(server, peer, seq, NVSHARE_RESULT_INVALID,
			     "the job would have to wait: %s", job.text);
		return;
	}
	job_queue_attach(server, peer, entry);
	server_send_body(server, peer, NVSHARE_MSG_JOB, seq, &job);
}

static void submit_new(struct server *server, struct peer *peer, uint32_t seq,
		       const struct nvshare_submit_gang *submit, const struct job_process *process,
		       int *pidfd)
{
	struct job_entry *entry = job_queue_add(server, job_queue_owner(peer), peer->cred.uid,
						server->jobs.last_id + 1);
	char text[NVSHARE_TEXT_LEN];

	if (!entry) {
		tools_answer(server, peer, seq, NVSHARE_RESULT_BUSY,
			     "this user has no room for another job; jobs of the node: %u",
			     server->jobs.n_live);
		return;
	}
	entry->submit = submit->submit;
	entry->gang = submit->gang;
	entry->process = *process;
	entry->submitted_unix_ns = submit_unix_ns();
	entry->memory = submit_memory(server, &submit->submit, entry->owner);
	entry->is_estimated = submit->submit.memory == 0;
	if (submit_enter(server, entry, text)) {
		job_queue_drop(server, entry);
		server->jobs.counts.n_refused++;
		tools_answer(server, peer, seq, NVSHARE_RESULT_INVALID, "%s", text);
		return;
	}
	job_queue_watch(server, entry, *pidfd);
	*pidfd = -1; /* taken by entry */
	submit_answer(server, peer, seq, entry);
}

/* The name must be fit for other users' terminals, and the class may be too high. */
static void submit_tidy(struct server *server, struct peer *peer, struct nvshare_submit *submit)
{
	text_sanitize(submit->name);
	submit->priority = claims_priority(server, peer, submit->priority);
}

void job_submit(struct server *server, struct peer *peer, uint32_t seq,
		const struct nvshare_submit *submit, const struct nvshare_gang *gang)
{
	struct nvshare_submit_gang tidy = {*submit, *gang};
	struct job_process process;
	struct job_entry *orphan;
	FD_CLEANUP int pidfd = -1;

	flow_charge(server, peer, SUBMIT_COST);
	if (peer->job) {
		tools_answer(server, peer, seq, NVSHARE_RESULT_INVALID,
			     "this connection has a job already, with the number %llu",
			     (unsigned long long)peer->job->id);
		return;
	}
	pidfd = job_process_of(peer, &process);
	if (pidfd < 0) {
		tools_answer(server, peer, seq, NVSHARE_RESULT_INVALID,
			     "the scheduler cannot see the process that asks: run the scheduler in"
			     " the machine's pid namespace");
		return;
	}
	submit_tidy(server, peer, &tidy.submit);
	text_sanitize(tidy.gang.name);
	orphan = submit_find_orphan(server, &process, &tidy.submit, &tidy.gang);
	if (orphan) {
		job_queue_own(server, orphan, peer);
		submit_answer(server, peer, seq, orphan);
		return;
	}
	states_wake(server);
	measure_wake(server);
	job_facts_look(server);
	submit_new(server, peer, seq, &tidy, &process, &pidfd);
}

/* ---- questions ------------------------------------------------------------------- */

static uint32_t place_points(uint64_t thousandths)
{
	return thousandths < UINT32_MAX ? (uint32_t)thousandths : UINT32_MAX;
}

static void place_fill(const struct server *server, uint32_t index, const struct place_score *score,
		       struct nvshare_gpu_score *ret)
{
	*ret = (struct nvshare_gpu_score){
		.free = score->free,
		.gpu = (uint8_t)index,
		.verdict = (uint8_t)job_fill_verdict(score),
		.n_on = score->n_on < UINT16_MAX ? (uint16_t)score->n_on : UINT16_MAX,
		.degree = score->degree,
		.affinity = place_points(score->affinity),
		.memory = place_points(score->by_free),
		.utilization = place_points(score->by_utilization),
		.temperature = place_points(score->by_temperature),
		.idle = place_points(score->by_idle),
		.total = place_points(score->sum),
	};
	memcpy(ret->uuid, server->gpus.at[index].uuid, sizeof(ret->uuid));
}

void job_submit_place(struct server *server, struct peer *peer, uint32_t seq,
		      const struct nvshare_submit *submit)
{
	uint32_t owner = job_queue_owner(peer), gpu;
	struct nvshare_submit tidy = *submit;
	struct nvshare_placement answer = {
		.memory = submit_memory(server, submit, owner),
		.n_queued = jobs_n_queued(&server->jobs.core),
		.is_estimated = submit->memory == 0,
	};
	struct place_score scores[PLACE_GPUS_MAX];
	struct jobs_request request;
	char text[NVSHARE_TEXT_LEN];
	int r;

	submit_tidy(server, peer, &tidy);
	if (submit_request(server, &tidy, owner, answer.memory, &request, text)) {
		tools_answer(server, peer, seq, NVSHARE_RESULT_INVALID, "%s", text);
		return;
	}
	measure_sample_all(server);
	job_facts_look(server);
	r = jobs_check(&server->jobs.core, &request, server->now_ns);
	if (r) {
		submit_error(server, &request, "", r, text);
		tools_answer(server, peer, seq, NVSHARE_RESULT_INVALID, "%s", text);
		return;
	}
	gpu = jobs_place(&server->jobs.core, &request, server->now_ns, scores);
	answer.gpu = gpu == PLACE_NONE ? NVSHARE_JOB_NO_GPU : gpu;
	for (uint32_t i = 0; i < PLACE_GPUS_MAX; i++) {
		if (scores[i].reason != PLACE_NO_GPU)
			place_fill(server, i, &scores[i], &answer.gpus[answer.n++]);
	}
	server_send_body(server, peer, NVSHARE_MSG_PLACEMENT, seq, &answer);
}
