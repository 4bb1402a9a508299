/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CORE_JOBS_PRIVATE_H
#define NVS_CORE_JOBS_PRIVATE_H

/*
 * The members of struct jobs and struct job. Outside core/jobs only their size matters: include
 * core/jobs/jobs.h, and read states through its functions.
 */

#include "core/list.h"
#include "core/tree.h"

#include <stdbool.h>
#include <stdint.h>

/*
 * Queued jobs stand in lanes: one for each GPU that a job can name and one for any GPU, each for
 * the jobs that take turns and for those that wait for room. So a lane whose jobs cannot start
 * hides no other one.
 */
#define JOBS_LANES ((PLACE_GPUS_MAX + 1) * 2)

/* The trees that a job can be in. */
enum job_node {
	JOB_NODE_ALL,   /* queued; by priority, id */
	JOB_NODE_OWNED, /* in a lane, of its lane and owner; by priority, id */
	JOB_NODE_OLD,   /* the same; by stand_ns, id */
	JOB_NODE_FIRST, /* STAND_FIRST; by id */
	JOB_NODE_GANG,  /* of a gang, not over; by owner_number, gang, id */
	JOB_NODE_TIMER, /* by due time */
	JOB_NODE_COUNT_
};

/* Where a queued job stands. */
enum job_stand {
	STAND_NOT, /* not queued; or a member whose gang lacks others, or whom another stands for */
	STAND_LINE,  /* in its lane */
	STAND_GANG,  /* the same, for all that start together with it */
	STAND_FIRST, /* in its lane, and before all lanes: it comes back to a gang that runs */
};

/*
 * All queued jobs of one owner in one lane. There are no more of these than jobs, so each lies in
 * the slot of a job, whoever's that is.
 */
struct jobs_line {
	uint32_t owner, lane;
	uint32_t next;   /* slot of the next one in its bucket, or of those not in use */
	uint32_t bucket; /* not its own: slot of the first line whose hash is this slot */
	uint32_t owned;  /* roots of its jobs' trees */
	uint32_t old;
	struct tree_node front;  /* of its lane; by priority of its first job, the owner's load and
				  * turn, that job's id */
	struct tree_node oldest; /* of its lane; by the time since which its oldest job counts as
				  * waiting, that job's id */
};

/*
 * An owner's account, of all lanes. As for lines, each lies in the slot of a job: an owner is kept
 * while it has jobs that are queued, rest or run.
 */
struct jobs_owner {
	uint32_t number;
	uint32_t next, bucket; /* as in struct jobs_line */
	uint32_t n_jobs;       /* 0: not in use */
	uint32_t n_on;         /* of them: started, and not ended */
	uint32_t n_queued;
	uint64_t turn;    /* number of its last start or end, or of its coming */
	uint64_t aged_ns; /* its last start out of order for age */
};

struct job {
	enum jobs_state state;
	enum jobs_end end;
	uint64_t id;
	struct jobs_request request;
	uint32_t owner_number, owner; /* slot of its struct jobs_owner; JOBS_NONE: it has none */
	uint32_t line;                /* slot of its line; JOBS_NONE: it stands in none */
	enum job_stand stand;
	uint64_t stand_ns; /* counts as waiting since: queued_ns, or its gang has been whole */
	uint64_t gang_ns;  /* started, with a gang: since then the gang runs */
	uint32_t priority, n_retries, n_starts;
	uint32_t gpu;
	uint32_t n_programs;
	bool is_turns, is_stopped;
	bool is_reserved; /* its need is charged until reserve_until_ns */
	uint64_t footprint;
	uint64_t charged; /* as added to its GPU's load */
	uint64_t reserve_until_ns;
	uint64_t limit_ns, counted_ns;
	uint64_t counted_at_ns; /* counted_ns is right as of then */
	uint64_t queued_ns;     /* submitted, or its last rest has ended */
	uint64_t wait_ns;       /* its last wait began: submitted, or its last rest began */
	uint64_t waited_ns;     /* in all waits that have ended */
	uint64_t started_ns;
	uint64_t ran_ns;        /* from its last start to its end */
	uint64_t due_ns;        /* STOPPING: of KILL; RESTING: of its return; QUEUED: then it
				 * stands elsewhere */
	uint64_t n_looked;      /* jobs::n_searches when it was last looked at */
	uint32_t gang_n_new;    /* started: so many have taken a seat of its gang for the first
				 * time since gang_ns */
	struct list_link apart; /* jobs::apart, of its GPU */
	struct tree_node node[JOB_NODE_COUNT_];
	struct jobs_line its_line; /* in its slot, not its own */
	struct jobs_owner its_owner;
};

struct jobs {
	struct jobs_config config;
	struct place place;
	struct job *slots;
	uint32_t n_slots;
	uint64_t now_ns;
	uint64_t n_searches;
	uint64_t n_turns;                    /* numbers given to owners */
	uint32_t all, timers, firsts, gangs; /* roots */
	uint32_t fronts[JOBS_LANES];
	uint32_t oldest[JOBS_LANES];
	uint32_t free_line, free_owner;
	uint32_t n_waiting;                /* owners with queued jobs */
	uint32_t booked[PLACE_GPUS_MAX];   /* the job that each GPU is kept for, or JOBS_NONE */
	struct list apart[PLACE_GPUS_MAX]; /* started jobs that keep away from others */
	bool is_changed;                   /* something may start that could not before */
};

#endif
