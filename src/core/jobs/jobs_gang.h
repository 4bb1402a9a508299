/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CORE_JOBS_GANG_H
#define NVS_CORE_JOBS_GANG_H

/*
 * Gangs of jobs: the members start all together, or none of them does.
 *
 * The queued and the started jobs of one owner with the same jobs_request::gang are a gang. It
 * starts in rounds. A round is gang_size queued members, those with the lowest ids. They start in
 * one step, as soon as there is a place for each of them. The first member stands in the queue for
 * the round, with its priority, its id and its lane. The round counts as waiting since its last
 * member was queued. Then it passes, books and ages as a job does, and books a GPU for each member.
 * Fewer members than a round stand nowhere: they get no place, and no GPU is booked for them.
 *
 * A member comes back if others of its gang are started, fewer than gang_size, and fewer than
 * gang_size wait. It fills a seat that another member has left, so it starts by itself. It stands
 * before the queue, because those who wait for it have places that nobody else gets before. Only
 * jobs that go first for their age stand before it. Two limits keep a user from passing the queue
 * with one gang after another job: limit_max_ns after the gang's start a member only stands in its
 * lane like any other job, and so does one that has never run when gang_size others have come like
 * it.
 *
 * From the start on each member's place is its own. A retry ends as failed when no member is
 * started, and fewer than gang_size are not over: those for which it would wait have ended.
 */

#include "core/jobs/jobs_search.h"

/* job is one of its gang from now on, until it is over. Nothing happens without a gang. */
void jobs_gang_join(struct jobs *jobs, uint32_t job);
void jobs_gang_leave(struct jobs *jobs, uint32_t job);

/* The states of members of job's gang have changed: each of them stands where it has to. */
void jobs_gang_settle(struct jobs *jobs, uint32_t job);
/* The same for all gangs, after a change of the configuration. */
void jobs_gang_settle_all(struct jobs *jobs);

/* job, which is of a gang, has just been started. */
void jobs_gang_begin(struct jobs *jobs, uint32_t job);
/* job has been started by itself. If it has never run before, it has taken another's seat. */
void jobs_gang_replace(struct jobs *jobs, uint32_t job);

/* Where a queued member has to stand. */
struct jobs_standing {
	enum job_stand stand;
	uint64_t since_ns; /* it counts as waiting since then */
	uint64_t until_ns; /* then it stands elsewhere; JOBS_NO_DEADLINE: only an event moves it */
};

struct jobs_standing jobs_gang_stand(const struct jobs *jobs, uint32_t job);

/* Whether job is a retry whose gang is over: it has no place to wait for, and ends as failed. */
bool jobs_gang_is_over(const struct jobs *jobs, uint32_t job);

/*
 * Whether the queued job waits for a round. *ret_n_missing: so many members must be submitted
 * before the round is whole. *ret_is_never: even an empty node has no places for it.
 */
bool jobs_gang_is_in_round(const struct jobs *jobs, uint32_t job, uint32_t *ret_n_missing,
			   bool *ret_is_never);

/* A round: its members in the order in which they are placed. */
struct jobs_round {
	uint32_t n;
	uint32_t job[JOBS_GANG_MAX];
	const struct jobs_request *request[JOBS_GANG_MAX];
	uint32_t gpu[JOBS_GANG_MAX]; /* as planned */
};

/* The round that job stands for. */
void jobs_gang_round(const struct jobs *jobs, uint32_t job, struct jobs_round *ret);

/*
 * Whether a new job may be submitted to its gang: 0 or JOBS_E_GANG_*. Members that are to come are
 * taken to need nothing but a place.
 */
int jobs_gang_check(const struct jobs *jobs, const struct jobs_event *event);

/* ---- places for a round (jobs_gang_place.c) ------------------------------------- */

/* Puts members that name a GPU first, then those that need more. */
void jobs_round_add(struct jobs_round *round, uint32_t job, const struct jobs_request *request);

/* Can the round that job stands for start now? If not, it may book GPUs. *ret_booked: mask. */
bool jobs_gang_look(struct jobs *jobs, uint32_t job, struct jobs_found *ret_found,
		    uint32_t *ret_booked);

/* Whether the node would have places for all if nobody else was there. */
bool jobs_gang_can_ever(const struct jobs *jobs, struct jobs_round *round);

#endif
