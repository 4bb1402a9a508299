/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_TESTS_JOB_MODEL_H
#define NVS_TESTS_JOB_MODEL_H

/*
 * The queue of jobs a second time, as its rules read: no trees, no timers, each question answered
 * by a look at every job. It is fed the same events, and must give the same actions, states, sums,
 * bookings and deadline. Scores come from core/place, which has tests of its own. In each step the
 * members of a gang start all together, or not at all, unless they come back to their gang.
 */

#include "core/jobs/jobs.h"

#define JOB_MODEL_JOBS   64
#define JOB_MODEL_OWNERS 9

struct job_model_job {
	enum jobs_state state;
	enum jobs_end end;
	uint64_t id;
	struct jobs_request request;
	uint32_t owner, priority, n_retries, gpu;
	bool is_turns, is_stopped, is_reserved;
	uint32_t n_programs;
	uint64_t footprint;
	uint64_t limit_ns, counted_ns;
	uint64_t queued_ns, reserve_until_ns, due_ns;
	uint64_t gang_ns;    /* on: its gang runs since then */
	uint32_t gang_n_new; /* on: so many have come to its gang since then */
	uint32_t n_starts;
	uint32_t tier, n_on; /* queued: at the last search */
	enum job_stand stand;
	uint64_t since_ns; /* the same: it counts as waiting since then */
};

struct job_model {
	struct jobs_config config;
	struct place place; /* its loads are not kept: job_model_load() adds them up */
	uint64_t now_ns;
	uint32_t n_slots;
	uint64_t n_turns;
	uint64_t turn[JOB_MODEL_OWNERS], aged_ns[JOB_MODEL_OWNERS];
	uint32_t booked[PLACE_GPUS_MAX];
	struct job_model_job jobs[JOB_MODEL_JOBS];
	bool was_aged[JOB_MODEL_JOBS]; /* its last start was for its age */
};

/* Owners are numbers below JOB_MODEL_OWNERS. */
void job_model_init(struct job_model *model, uint32_t n_slots, const struct jobs_config *config);

/*
 * The event that jobs_step() was called with, which returned r and actions; NULL: it was called
 * again because the actions were full. Aborts where jobs differs from the model.
 */
void job_model_step(struct job_model *model, const struct jobs *jobs,
		    const struct jobs_event *event, int r, const struct jobs_actions *actions);

bool job_model_is_on(const struct job_model_job *job);

/* The queued job waits for members of its gang that were not submitted. */
bool job_model_is_lacking(const struct job_model *model, uint32_t job);
/* The same, or the node would not have places for its round if it was empty. */
bool job_model_is_stuck(const struct job_model *model, uint32_t job);

#endif
