/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CORE_JOBS_QUEUE_H
#define NVS_CORE_JOBS_QUEUE_H

/*
 * The order of the queued jobs, and what their owners have. jobs.h has the rule.
 *
 * The first job of each owner in a lane, the front, stands for the others of that owner and lane.
 * So the owner's place changes in O(log n) when one of its jobs starts or ends, however many wait.
 */

#include "core/jobs/jobs.h"

/* The lists that free slots, owners and lines make up. */
void jobs_queue_init(struct jobs *jobs);

/* job, of job::owner_number, is one more of its owner's; or one less. */
void jobs_queue_join(struct jobs *jobs, uint32_t job);
void jobs_queue_leave(struct jobs *jobs, uint32_t job);

/*
 * job, which has an owner, enters the queue or leaves it. A job without a gang stands in its lane
 * from then on. Where the members of a gang stand, jobs_gang_settle() says.
 */
void jobs_queue_enter(struct jobs *jobs, uint32_t job);
void jobs_queue_exit(struct jobs *jobs, uint32_t job);

/* A queued job stands there from now on, and counts as waiting since then. */
void jobs_queue_stand(struct jobs *jobs, uint32_t job, enum job_stand stand, uint64_t since_ns);

/*
 * job, which is not queued, begins to count as one of its owner's that run; or does no more.
 * is_aged: it has started out of order for its age.
 */
void jobs_queue_begin(struct jobs *jobs, uint32_t job, bool is_aged);
void jobs_queue_end(struct jobs *jobs, uint32_t job);

/* The lane of a request; the GPU that a lane's jobs name, or PLACE_ANY. */
uint32_t jobs_lane(const struct jobs_request *request);
uint32_t jobs_lane_gpu(uint32_t lane);

/* The tree of fronts, and that of the oldest: their slots hold lines. */
struct tree_slots jobs_fronts(const struct jobs *jobs);
struct tree_slots jobs_oldest(const struct jobs *jobs);
struct tree_slots jobs_nodes(const struct jobs *jobs, enum job_node kind);

/*
 * An owner may have many jobs in a lane that cannot start. After JOBS_TIER of them, or a gang, the
 * other owners' jobs of that priority are looked at, so that few owners cannot hide the others.
 */
#define JOBS_TIER 4

/* So many looks a queued job costs, which stands for those that start with it. */
uint32_t jobs_look_cost(const struct job *job);

/*
 * The key of job in its lane after n_before looks at its owner's there. Its first number
 * is above 0, so that a search can put old jobs before all others.
 */
struct tree_key jobs_front_key(const struct jobs *jobs, uint32_t job, uint32_t n_before);

uint32_t jobs_position(const struct jobs *jobs, uint32_t job);

#endif
