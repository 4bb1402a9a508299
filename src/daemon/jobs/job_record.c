/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/jobs/job_record.h"

#include "core/u64.h"
#include "daemon/peers/pods.h"
#include "daemon/peers/quota.h"
#include "ipc/msg.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC 0x4a53564eu /* "NVSJ" */

/* Numbers of namespaces grow by this with each restart, so those of different starts differ. */
#define OWNER_STEP 0x10000u
_Static_assert(PODS_OWNERS_MAX < OWNER_STEP, "a number that is given is none from before");

struct record_header {
	uint32_t magic;
	uint16_t kind;
	uint16_t size; /* of the whole record */
	uint32_t sum;  /* of all bytes, with 0 in its own place */
	uint32_t unused;
};

static const size_t body_size[JOB_RECORD_KIND_COUNT_] = {
	[JOB_RECORD_OPEN] = sizeof(struct job_record_open),
	[JOB_RECORD_SUBMIT] = sizeof(struct job_record_place),
	[JOB_RECORD_START] = sizeof(struct job_record_start),
	[JOB_RECORD_RETRY] = sizeof(struct job_record_place),
	[JOB_RECORD_COUNTED] = sizeof(struct job_record_number),
	[JOB_RECORD_CANCEL] = sizeof(struct job_record_number),
	[JOB_RECORD_END] = sizeof(struct job_record_number),
	[JOB_RECORD_SUBMIT_GANG] = sizeof(struct job_record_member),
	[JOB_RECORD_TIME] = sizeof(struct job_record_time),
	[JOB_RECORD_ENDED] = sizeof(struct job_record_ended),
};
_Static_assert(sizeof(struct job_record_ended) <= sizeof(struct job_record_member) &&
		       sizeof(struct record_header) + sizeof(struct job_record_member) <=
			       JOB_RECORD_SIZE_MAX,
	       "the longest record");
_Static_assert(sizeof(struct job_record_place) % 8 == 0 &&
		       sizeof(struct job_record_member) % 8 == 0 &&
		       sizeof(struct job_record_ended) % 8 == 0 &&
		       sizeof(struct job_record_open) % 8 == 0,
	       "records keep their alignment");

/* FNV-1a: against writes that are cut off, not against people; only the scheduler may write. */
static uint32_t record_sum(const uint8_t *bytes, size_t len)
{
	uint32_t sum = 2166136261u;

	for (size_t i = 0; i < len; i++)
		sum = (sum ^ bytes[i]) * 16777619u;
	return sum;
}

size_t job_record_write(const struct job_record *record, uint8_t ret_bytes[JOB_RECORD_SIZE_MAX])
{
	struct record_header header = {
		.magic = MAGIC,
		.kind = (uint16_t)record->kind,
		.size = (uint16_t)(sizeof(header) + body_size[record->kind]),
	};

	memcpy(ret_bytes, &header, sizeof(header));
	memcpy(ret_bytes + sizeof(header), &record->open, body_size[record->kind]);
	header.sum = record_sum(ret_bytes, header.size);
	memcpy(ret_bytes, &header, sizeof(header));
	return header.size;
}

/* The same rules as for the message that it came by. */
static bool place_is_good(const struct job_record_place *place)
{
	struct msg msg, checked;
	size_t size = msg_encode(NVSHARE_MSG_SUBMIT, 0, &place->submit, &msg);

	return place->id && place->pid > 0 && place->pid <= INT32_MAX && place->memory &&
	       place->n_retries <= NVSHARE_JOB_RETRIES_MAX && place->is_estimated <= 1 &&
	       msg_decode(&msg, size, MSG_TO_SCHEDULER, &checked) == 0;
}

static bool member_is_good(const struct job_record_member *member)
{
	const struct nvshare_submit_gang submit = {member->place.submit, member->gang};
	struct msg msg, checked;
	size_t size = msg_encode(NVSHARE_MSG_SUBMIT_GANG, 0, &submit, &msg);

	return place_is_good(&member->place) &&
	       msg_decode(&msg, size, MSG_TO_SCHEDULER, &checked) == 0;
}

/* The same rules as for the messages that tell of it. */
static bool ended_is_good(const struct job_record_ended *ended)
{
	struct msg msg, checked;
	size_t size = msg_encode(NVSHARE_MSG_JOB, 0, &ended->job, &msg);

	if (msg_decode(&msg, size, MSG_TO_TOOL, &checked) != 0 || !ended->job.job ||
	    ended->job.state != NVSHARE_JOB_DONE || ended->job.end == NVSHARE_JOB_END_NOT)
		return false;
	size = msg_encode(NVSHARE_MSG_JOB_GANG, 0, &ended->gang, &msg);
	return !ended->gang.size || msg_decode(&msg, size, MSG_TO_TOOL, &checked) == 0;
}

int job_record_read(const uint8_t *bytes, size_t len, size_t *at, struct job_record *ret_record)
{
	uint8_t copy[JOB_RECORD_SIZE_MAX];
	struct record_header header;
	struct job_record record = {.kind = JOB_RECORD_OPEN};

	if (*at == len)
		return JOB_RECORD_E_END;
	if (len - *at < sizeof(header))
		return JOB_RECORD_E_BAD;
	memcpy(&header, bytes + *at, sizeof(header));
	if (header.magic != MAGIC || header.kind >= JOB_RECORD_KIND_COUNT_ ||
	    header.size != sizeof(header) + body_size[header.kind] || header.size > len - *at)
		return JOB_RECORD_E_BAD;
	memcpy(copy, bytes + *at, header.size);
	memset(copy + offsetof(struct record_header, sum), 0, sizeof(header.sum));
	if (record_sum(copy, header.size) != header.sum)
		return JOB_RECORD_E_BAD;
	record.kind = (enum job_record_kind)header.kind;
	memcpy(&record.open, copy + sizeof(header), body_size[header.kind]);
	if (record.kind == JOB_RECORD_OPEN &&
	    (record.open.version != JOB_RECORD_VERSION ||
	     !memchr(record.open.boot, '\0', sizeof(record.open.boot))))
		return JOB_RECORD_E_BAD;
	if ((record.kind == JOB_RECORD_SUBMIT || record.kind == JOB_RECORD_RETRY) &&
	    !place_is_good(&record.place))
		return JOB_RECORD_E_BAD;
	if (record.kind == JOB_RECORD_SUBMIT_GANG && !member_is_good(&record.member))
		return JOB_RECORD_E_BAD;
	if (record.kind == JOB_RECORD_ENDED && !ended_is_good(&record.ended))
		return JOB_RECORD_E_BAD;
	if (record.kind == JOB_RECORD_START &&
	    !memchr(record.start.gpu, '\0', sizeof(record.start.gpu)))
		return JOB_RECORD_E_BAD;
	*ret_record = record;
	*at += header.size;
	return 0;
}

/* ---- replay -------------------------------------------------------------------- */

/* Ids rise, so the jobs are sorted. NULL: there is no such job, or it has ended. */
static struct job_replay_job *replay_find(struct job_replay *replay, uint64_t id)
{
	size_t low = 0, high = replay->n;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (replay->jobs[middle].place.id < id)
			low = middle + 1;
		else
			high = middle;
	}
	return low < replay->n && replay->jobs[low].place.id == id && replay->jobs[low].place.memory
		       ? &replay->jobs[low]
		       : NULL;
}

static int replay_submit(struct job_replay *replay, const struct job_record_place *place,
			 const struct nvshare_gang *gang)
{
	if (replay->n && place->id <= replay->jobs[replay->n - 1].place.id)
		return JOB_RECORD_E_BAD;
	if (replay->n == replay->size) {
		size_t size = replay->size ? 2 * replay->size : 64;
		struct job_replay_job *jobs = realloc(replay->jobs, size * sizeof(*jobs));

		if (!jobs)
			return -ENOMEM;
		replay->jobs = jobs;
		replay->size = size;
	}
	replay->jobs[replay->n++] = (struct job_replay_job){.place = *place, .gang = *gang};
	if (place->id > replay->open.last_id)
		replay->open.last_id = place->id;
	return 0;
}

static int replay_end(struct job_replay *replay, const struct job_record_ended *ended)
{
	struct job_replay_job *job = replay_find(replay, ended->job.job);

	if (!replay->ended)
		replay->ended = calloc(JOB_RECORD_ENDED_MAX, sizeof(*replay->ended));
	if (!replay->ended)
		return -ENOMEM;
	replay->ended[replay->n_ended++ % JOB_RECORD_ENDED_MAX] = *ended;
	if (job)
		job->place.memory = 0; /* its id keeps its place in the order */
	if (ended->job.job > replay->open.last_id)
		replay->open.last_id = ended->job.job;
	return 0;
}

static int replay_change(struct job_replay *replay, const struct job_record *record)
{
	/* All bodies begin with the id. */
	struct job_replay_job *job = replay_find(replay, record->number.id);

	if (!job)
		return JOB_RECORD_E_BAD;
	switch (record->kind) {
	case JOB_RECORD_START:
		job->is_started = true;
		memcpy(job->gpu, record->start.gpu, sizeof(job->gpu));
		return 0;
	case JOB_RECORD_RETRY:
		*job = (struct job_replay_job){
			.place = record->place, .gang = job->gang, .was_started = true};
		return 0;
	case JOB_RECORD_COUNTED:
		job->time = (struct job_record_time){.counted_ns = record->number.ns};
		return 0;
	case JOB_RECORD_TIME:
		job->time = record->time;
		return 0;
	case JOB_RECORD_CANCEL:
		job->is_cancelled = true;
		return 0;
	case JOB_RECORD_END:
		job->place.memory = 0; /* its id keeps its place in the order */
		return 0;
	case JOB_RECORD_OPEN:
	case JOB_RECORD_SUBMIT:
	case JOB_RECORD_SUBMIT_GANG:
	case JOB_RECORD_ENDED:
	case JOB_RECORD_KIND_COUNT_:
		break;
	}
	return JOB_RECORD_E_BAD;
}

_Static_assert(offsetof(struct job_record_place, id) == 0 &&
		       offsetof(struct job_record_member, place) == 0 &&
		       offsetof(struct job_record_start, id) == 0 &&
		       offsetof(struct job_record_number, id) == 0 &&
		       offsetof(struct job_record_time, id) == 0,
	       "replay_change()");

/* Those that have not ended move together. */
static void replay_compact(struct job_replay *replay)
{
	size_t n = 0;

	for (size_t i = 0; i < replay->n; i++) {
		if (replay->jobs[i].place.memory)
			replay->jobs[n++] = replay->jobs[i];
	}
	replay->n = n;
}

int job_replay(struct job_replay *replay, const uint8_t *bytes, size_t len, size_t *ret_good)
{
	static const struct nvshare_gang none;
	struct job_record record;
	size_t at = 0;
	int r = 0;

	*ret_good = 0;
	while (!r && !(r = job_record_read(bytes, len, &at, &record))) {
		/* A file has one head, and begins with it. */
		if ((record.kind == JOB_RECORD_OPEN) != (*ret_good == 0))
			r = JOB_RECORD_E_BAD;
		else if (record.kind == JOB_RECORD_OPEN)
			replay->open = record.open;
		else if (record.kind == JOB_RECORD_SUBMIT)
			r = replay_submit(replay, &record.place, &none);
		else if (record.kind == JOB_RECORD_SUBMIT_GANG)
			r = replay_submit(replay, &record.member.place, &record.member.gang);
		else if (record.kind == JOB_RECORD_ENDED)
			r = replay_end(replay, &record.ended);
		else
			r = replay_change(replay, &record);
		if (!r)
			*ret_good = at;
	}
	replay_compact(replay);
	return r == JOB_RECORD_E_END ? 0 : r;
}

uint64_t job_replay_counted_ns(const struct job_replay_job *job, uint64_t now_ns)
{
	const struct job_record_time *time = &job->time;
	uint64_t since_ns = time->is_counting ? u64_excess(now_ns, time->at_ns) : 0;

	return time->counted_ns + u64_min(since_ns, UINT64_MAX - time->counted_ns);
}

void job_replay_deinit(struct job_replay *replay)
{
	free(replay->jobs);
	free(replay->ended);
	*replay = (struct job_replay){.n = 0};
}

uint32_t job_record_owner_before(uint32_t owner)
{
	bool is_given = owner >= PODS_OWNER_FIRST && owner != QUOTA_NOBODY;

	/* After 4,000 restarts with one job in the queue the numbers are used up. */
	return is_given && owner < QUOTA_NOBODY - OWNER_STEP ? owner + OWNER_STEP : owner;
}
