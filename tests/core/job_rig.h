/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_TESTS_CORE_JOB_RIG_H
#define NVS_TESTS_CORE_JOB_RIG_H

/*
 * A queue of jobs with a few slots, and cards of 100 GiB without a margin. Time stands still but
 * for job_rig_at(). Every step is checked with jobs_assert_valid(), and what it asked for is
 * collected until job_rig_clear(). Jobs have the priority 50 and one owner unless a test says more.
 */

#include "core/jobs/jobs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define JOB_RIG_SLOTS   300
#define JOB_RIG_ACTIONS 2048
#define GIB             (1ull << 30)
#define S               1000000000ull

struct job_rig {
	struct jobs jobs;
	struct job slots[JOB_RIG_SLOTS];
	struct jobs_config config;
	uint64_t now;
	uint64_t last_id;
	uint32_t n;
	struct jobs_action did[JOB_RIG_ACTIONS];
};

/* n_gpus cards with this sharing degree. */
void job_rig_init(struct job_rig *rig, uint32_t n_gpus, uint32_t degree);
void job_rig_clear(struct job_rig *rig);

/* now_ns comes from the rig. Steps again as long as there is more to do at once. */
int job_rig_step(struct job_rig *rig, struct jobs_event event);
/* Goes to time, with every JOBS_EVENT_TIME that is due on the way. */
void job_rig_at(struct job_rig *rig, uint64_t time);
/* The rig's config has changed. */
int job_rig_config(struct job_rig *rig);

int job_rig_gpu(struct job_rig *rig, uint32_t gpu, struct place_gpu facts);
struct place_gpu job_rig_card(uint64_t total, uint32_t degree);

/* A submission of gib for the next id, to be changed by the test; job_rig_step() sends it. */
struct jobs_event job_rig_job(struct job_rig *rig, uint32_t job, uint64_t gib);
void job_rig_submit(struct job_rig *rig, uint32_t job, uint64_t gib);
int job_rig_cancel(struct job_rig *rig, uint32_t job);
int job_rig_forget(struct job_rig *rig, uint32_t job);
int job_rig_end(struct job_rig *rig, uint32_t job, enum jobs_end end);
int job_rig_programs(struct job_rig *rig, uint32_t job, uint32_t n, uint64_t gib, bool is_stopped);

/* The last action of this type for job since job_rig_clear(); NULL: none. */
const struct jobs_action *job_rig_did(const struct job_rig *rig, uint32_t job,
				      enum jobs_action_type type);
/* The jobs that were started since job_rig_clear(), in order, then JOBS_NONE. */
void job_rig_assert_starts(const struct job_rig *rig, const uint32_t *jobs);

struct jobs_status job_rig_status(const struct job_rig *rig, uint32_t job);

#endif
