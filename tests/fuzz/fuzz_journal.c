/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Any bytes as a journal of jobs: as they are, and as a row of kinds and bodies, which mutations
 * reach without sums. What is read must be whole: jobs in the order of their ids, none above the
 * last one, strings that end; and the same bytes up to the good ones give the same jobs.
 */

#include "daemon/jobs/job_record.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int fuzz_left_out(void);

static bool was_accepted[JOB_RECORD_KIND_COUNT_];

static void check_jobs(const struct job_replay *replay)
{
	for (size_t i = 0; i < replay->n; i++) {
		const struct job_replay_job *job = &replay->jobs[i];

		if (job->place.id == 0 || job->place.id > replay->open.last_id ||
		    (i && job->place.id <= job[-1].place.id) || !job->place.memory ||
		    !memchr(job->gpu, '\0', sizeof(job->gpu)) ||
		    !memchr(job->place.submit.gpus, '\0', sizeof(job->place.submit.gpus)) ||
		    !memchr(job->gang.name, '\0', sizeof(job->gang.name)))
			abort();
	}
	for (uint64_t i = 0; i < replay->n_ended && i < JOB_RECORD_ENDED_MAX; i++) {
		const struct nvshare_job *job = &replay->ended[i].job;

		if (!job->job || job->job > replay->open.last_id ||
		    !memchr(job->text, '\0', sizeof(job->text)))
			abort();
	}
}

static void check(const uint8_t *bytes, size_t len)
{
	struct job_replay replay = {.n = 0}, again = {.n = 0};
	struct job_record record;
	size_t good = len + 1, good_again, at = 0;
	int r = job_replay(&replay, bytes, len, &good);

	if (good > len || (r == 0) != (good == len) || (r && r != JOB_RECORD_E_BAD))
		abort();
	check_jobs(&replay);
	if (job_replay(&again, bytes, good, &good_again) || good_again != good ||
	    again.n != replay.n || again.n_ended != replay.n_ended ||
	    (replay.n && memcmp(again.jobs, replay.jobs, replay.n * sizeof(*replay.jobs)) != 0))
		abort();
	while (at < good && job_record_read(bytes, good, &at, &record) == 0)
		was_accepted[record.kind] = true;
	job_replay_deinit(&replay);
	job_replay_deinit(&again);
}

int fuzz_left_out(void)
{
	for (int i = 0; i < JOB_RECORD_KIND_COUNT_; i++) {
		if (!was_accepted[i])
			return i;
	}
	return -1;
}

/* A kind, the length of its body in units of eight, and the body; what is missing is 0. */
static size_t row_write(const uint8_t *data, size_t size, uint8_t *ret_bytes, size_t ret_size)
{
	size_t len = 0;

	while (size >= 2 && len + JOB_RECORD_SIZE_MAX <= ret_size) {
		struct job_record record;
		size_t n = data[1] * (size_t)8;

		memset(&record, 0, sizeof(record));
		record.kind = data[0] % JOB_RECORD_KIND_COUNT_;
		n = n < size - 2 ? n : size - 2;
		memcpy(&record.open, data + 2,
		       n < sizeof(record.member) ? n : sizeof(record.member));
		len += job_record_write(&record, ret_bytes + len);
		data += 2 + n;
		size -= 2 + n;
	}
	return len;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t bytes[64 * JOB_RECORD_SIZE_MAX];

	check(data, size);
	check(bytes, row_write(data, size, bytes, sizeof(bytes)));
	return 0;
}
