/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CORE_JOBS_LOAD_H
#define NVS_CORE_JOBS_LOAD_H

/*
 * The part of its GPU that a started job takes: a place, its bytes, its model; and the time that it
 * has used of its limit.
 */

#include "core/jobs/jobs.h"

/* Started, and not ended. */
bool jobs_is_on(const struct job *job);

/* job begins on its GPU and reserves its need there; or it ends. */
void jobs_load_begin(struct jobs *jobs, uint32_t job);
void jobs_load_end(struct jobs *jobs, uint32_t job);
/* Its need is reserved for reserve_ns from now; or no longer. */
void jobs_load_reserve(struct jobs *jobs, uint32_t job, bool is_reserved);
/* Its footprint or its reservation has changed: the GPU's sum follows. */
void jobs_load_charge(struct jobs *jobs, uint32_t job);
/* The GPUs on which a started job has the number apart; 0: none. Looks at all that have one. */
uint32_t jobs_load_apart(const struct jobs *jobs, uint64_t apart);

/* counted_ns as of now_ns. */
uint64_t jobs_counted_ns(const struct job *job, uint64_t now_ns);
/* Brings counted_ns up to now. Before a change of is_stopped or of the state. */
void jobs_count(struct jobs *jobs, uint32_t job);

/* When the job's next timer is due; JOBS_NO_DEADLINE: never. */
uint64_t jobs_due_ns(const struct job *job);
/* The timer follows the job's state. After each change. */
void jobs_timer_set(struct jobs *jobs, uint32_t job);

#endif
