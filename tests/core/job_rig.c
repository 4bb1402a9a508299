/* SPDX-License-Identifier: Apache-2.0 */
#include "job_rig.h"

#include <string.h>

struct place_gpu job_rig_card(uint64_t total, uint32_t degree)
{
	return (struct place_gpu){
		.is_known = true,
		.total = total,
		.degree = degree,
		.utilization = 0,
		.temperature = 40,
	};
}

void job_rig_init(struct job_rig *rig, uint32_t n_gpus, uint32_t degree)
{
	memset(rig, 0, sizeof(*rig));
	jobs_config_default(&rig->config);
	rig->config.place.margin_bytes = 0;
	rig->now = 1000 * S;
	jobs_init(&rig->jobs, rig->slots, JOB_RIG_SLOTS, &rig->config);
	for (uint32_t gpu = 0; gpu < n_gpus; gpu++)
		assert_int_equal(job_rig_gpu(rig, gpu, job_rig_card(100 * GIB, degree)), 0);
}

void job_rig_clear(struct job_rig *rig)
{
	rig->n = 0;
}

int job_rig_step(struct job_rig *rig, struct jobs_event event)
{
	struct jobs_actions actions;
	int r;

	event.now_ns = rig->now;
	r = jobs_step(&rig->jobs, &event, &actions);
	for (;;) {
		jobs_assert_valid(&rig->jobs);
		assert_true(rig->n + actions.n <= JOB_RIG_ACTIONS);
		memcpy(&rig->did[rig->n], actions.at, actions.n * sizeof(actions.at[0]));
		rig->n += actions.n;
		if (r || jobs_deadline(&rig->jobs) > rig->now)
			return r;
		event = (struct jobs_event){.type = JOBS_EVENT_TIME, .now_ns = rig->now};
		assert_int_equal(jobs_step(&rig->jobs, &event, &actions), 0);
	}
}

void job_rig_at(struct job_rig *rig, uint64_t time)
{
	while (jobs_deadline(&rig->jobs) <= time) {
		rig->now = jobs_deadline(&rig->jobs);
		assert_int_equal(job_rig_step(rig, (struct jobs_event){.type = JOBS_EVENT_TIME}),
				 0);
	}
	rig->now = time;
}

int job_rig_config(struct job_rig *rig)
{
	return job_rig_step(rig,
			    (struct jobs_event){.type = JOBS_EVENT_CONFIG, .config = &rig->config});
}

int job_rig_gpu(struct job_rig *rig, uint32_t gpu, struct place_gpu facts)
{
	return job_rig_step(
		rig, (struct jobs_event){.type = JOBS_EVENT_GPU, .gpu = gpu, .facts = facts});
}

struct jobs_event job_rig_job(struct job_rig *rig, uint32_t job, uint64_t gib)
{
	return (struct jobs_event){
		.type = JOBS_EVENT_SUBMIT,
		.job = job,
		.id = ++rig->last_id,
		.since_ns = rig->now,
		.owner = 1,
		.priority = JOBS_PRIORITY_DEFAULT,
		.request = {.need = gib * GIB, .gpu = PLACE_ANY},
	};
}

void job_rig_submit(struct job_rig *rig, uint32_t job, uint64_t gib)
{
	assert_int_equal(job_rig_step(rig, job_rig_job(rig, job, gib)), 0);
}

int job_rig_cancel(struct job_rig *rig, uint32_t job)
{
	return job_rig_step(rig, (struct jobs_event){.type = JOBS_EVENT_CANCEL, .job = job});
}

int job_rig_forget(struct job_rig *rig, uint32_t job)
{
	return job_rig_step(rig, (struct jobs_event){.type = JOBS_EVENT_FORGET, .job = job});
}

int job_rig_end(struct job_rig *rig, uint32_t job, enum jobs_end end)
{
	return job_rig_step(rig,
			    (struct jobs_event){.type = JOBS_EVENT_ENDED, .job = job, .end = end});
}

int job_rig_programs(struct job_rig *rig, uint32_t job, uint32_t n, uint64_t gib, bool is_stopped)
{
	return job_rig_step(rig, (struct jobs_event){.type = JOBS_EVENT_PROGRAMS,
						     .job = job,
						     .n_programs = n,
						     .footprint = gib * GIB,
						     .is_stopped = is_stopped});
}

const struct jobs_action *job_rig_did(const struct job_rig *rig, uint32_t job,
				      enum jobs_action_type type)
{
	for (uint32_t i = rig->n; i-- > 0;) {
		if (rig->did[i].job == job && rig->did[i].type == type)
			return &rig->did[i];
	}
	return NULL;
}

void job_rig_assert_starts(const struct job_rig *rig, const uint32_t *jobs)
{
	for (uint32_t i = 0; i < rig->n; i++) {
		if (rig->did[i].type == JOBS_ACTION_START)
			assert_int_equal(rig->did[i].job, *jobs++);
	}
	assert_int_equal(*jobs, JOBS_NONE);
}

struct jobs_status job_rig_status(const struct job_rig *rig, uint32_t job)
{
	struct jobs_status status;

	jobs_status(&rig->jobs, job, rig->now, &status);
	return status;
}
