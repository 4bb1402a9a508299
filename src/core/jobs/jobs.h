/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CORE_JOBS_H
#define NVS_CORE_JOBS_H

/*
 * The queue of jobs: which job starts next, on which GPU, and which job has run for too long.
 *
 * A job is a command that a user has submitted. Its programs become clients of the scheduler
 * (core/sched.h), which is another matter: this module only decides when the command starts. A
 * job never stops a running program.
 *
 * A pure state machine. The caller feeds one event at a time, with the time it happened, and
 * carries out the actions that come back, in order. Nothing here reads a clock, allocates, logs or
 * touches a file descriptor.
 *
 * Order: priority first. Within a priority, the owner that has the fewest jobs running; then the
 * owner whose last start or end is longest ago; within an owner the id, which rises by submission.
 * An owner's oldest job that has waited for age_ns goes before all of that, once in age_ns.
 *
 * Start: a job starts when its need fits on a GPU beside the margin. A job that is not is_whole
 * also starts where it would take turns, as far as the GPU's sharing degree allows (place.h).
 * A job that cannot start lets others pass for pass_ns after its submission. Then it books a
 * GPU: nobody behind it starts there before it has.
 *
 * Gangs: the jobs of a gang start all together, or none of them does (jobs_gang.h).
 *
 * Reservation: a started job counts with its need for reserve_ns. When its programs have
 * registered, it counts for reserve_ns more, because they have yet to allocate. Their footprint
 * counts in any case, so the larger of the two is charged. The reservation ends early when the
 * footprint has reached the need.
 *
 * Cost: with n jobs an event takes O(log n), plus the search for a start. That looks at no job
 * where no GPU has a place. Else it looks, for each GPU and kind, at no more than JOBS_LOOK_MAX
 * jobs that cannot start and at as many old ones, and at gangs only until it has looked at
 * JOBS_GANG_LOOK_MAX members.
 *
 * Ownership: the caller owns struct jobs and the array of jobs that it names.
 * Threading: none; one caller at a time.
 */

#include "core/place/place.h"

#include <stdbool.h>
#include <stdint.h>

#define JOBS_NONE             UINT32_MAX /* no slot, no GPU */
#define JOBS_NO_DEADLINE      UINT64_MAX
#define JOBS_NO_LIMIT         UINT64_MAX /* of the time that a job may run */
#define JOBS_ACTIONS_MAX      64
#define JOBS_PRIORITY_MAX     100 /* 0 to this; larger goes first */
#define JOBS_PRIORITY_DEFAULT 50
#define JOBS_RETRIES_MAX      1000
#define JOBS_LOOK_MAX         16
#define JOBS_GANG_MAX         JOBS_ACTIONS_MAX /* start together, in one step */
/* A search looks at no more gangs of a lane when it has looked at so many members. */
#define JOBS_GANG_LOOK_MAX (2 * JOBS_GANG_MAX)
#define JOBS_GANG_OPEN_MAX 256 /* members of a gang that are not over */

struct jobs_config {
	struct place_config place;
	bool fair_users;       /* owners share as told above; false: all jobs are one owner's; true
				* by default. It holds for jobs that are submitted from then on */
	uint64_t reserve_ns;   /* default 60 s; 1 s to 3600 s */
	uint64_t pass_ns;      /* default 600 s; to 86400 s */
	uint64_t age_ns;       /* default 3600 s; 1 s to 30 days */
	uint64_t limit_ns;     /* of a job that names none: JOBS_NO_LIMIT, the default, or 1 s to
				* limit_max_ns */
	uint64_t limit_max_ns; /* of a limit that is named; default 86400 s; 1 s to 365 days */
	uint64_t grace_ns;     /* between TERM and KILL; default 30 s; to 3600 s */
	uint64_t retry_ns;     /* rest before a retry; default 10 s; to 3600 s */
};

enum jobs_state {
	JOBS_FREE,     /* slot unused */
	JOBS_QUEUED,   /* waits for its start */
	JOBS_RESTING,  /* has failed, and is queued again when it has rested */
	JOBS_STARTED,  /* START was given; none of its programs has registered */
	JOBS_RUNNING,  /* one of its programs has registered, now or before */
	JOBS_STOPPING, /* TERM was given; KILL comes at the end of its grace */
	JOBS_KILLED,   /* KILL was given; its end is to come */
	JOBS_DONE,     /* over; kept for questions until FORGET */
	JOBS_STATE_COUNT_
};

/* How a job ended; or why it was stopped. */
enum jobs_end {
	JOBS_END_NOT,       /* it has not */
	JOBS_END_SUCCESS,   /* exit status 0 */
	JOBS_END_FAILED,    /* any other exit status, or a signal */
	JOBS_END_OOM,       /* failed, and the library has reported that memory ran out */
	JOBS_END_CANCELLED, /* CANCEL */
	JOBS_END_TIMEOUT,   /* its time limit */
	JOBS_END_LOST,      /* its process is gone, and nobody knows the exit status */
	JOBS_END_COUNT_
};

struct jobs_request {
	uint64_t need;           /* bytes, 1 to PLACE_BYTES_MAX */
	struct place_name model; /* not set: none */
	uint32_t gpu;            /* index, or PLACE_ANY */
	bool is_whole;           /* waits for room */
	bool is_critical;        /* its memory stays while it runs, so no turns bring it; needs
				  * is_whole */
	uint64_t apart;          /* a number: no two jobs with the same one share a GPU; 0: none.
				  * No two users have the same one, as a job waits for those of
				  * its own user without a bound */
	uint64_t gang;      /* a number: its owner's jobs with the same one are a gang; 0: none */
	uint32_t gang_size; /* so many start together, 2 to JOBS_GANG_MAX; without a gang 0 */
};

enum jobs_event_type {
	JOBS_EVENT_TIME,     /* jobs_deadline() has come */
	JOBS_EVENT_CONFIG,   /* config. Running limits stay as they are */
	JOBS_EVENT_GPU,      /* gpu, facts, is_other: first, and on change */
	JOBS_EVENT_SUBMIT,   /* job (a free slot), id, since_ns, owner, priority, request, limit_ns,
			      * n_retries, is_restored */
	JOBS_EVENT_ADOPT,    /* the same and gpu, counted_ns: a job that was started before the
			      * scheduler restarted. It is STARTED, and reserves anew */
	JOBS_EVENT_TRIED,    /* job: QUEUED, and started in vain before the scheduler restarted. It
			      * comes after all jobs of that time: too few of a gang are its end */
	JOBS_EVENT_CANCEL,   /* job: in any state; a job that has ended stays as it is */
	JOBS_EVENT_PROGRAMS, /* job, n_programs, footprint, is_stopped: changed. Not before START */
	JOBS_EVENT_ENDED,    /* job, end (SUCCESS, FAILED, OOM, LOST), need: from any state before
			      * DONE; a job that has not been started can only be LOST. A started job
			      * with FAILED or OOM is retried if it has retries left and was not told
			      * to stop; its need becomes need then, if that is not 0 */
	JOBS_EVENT_FORGET,   /* job: DONE becomes FREE */
	JOBS_EVENT_COUNT_
};

struct jobs_event {
	enum jobs_event_type type;
	uint32_t job;    /* slot */
	uint32_t gpu;    /* GPU, ADOPT: index */
	uint64_t now_ns; /* monotonic, never before the previous event's */

	uint64_t id; /* unique among the jobs, rising by submission; a restored job keeps it */
	uint64_t since_ns;   /* submitted; up to now_ns */
	uint32_t owner;      /* any number, the same for all jobs of a user */
	uint32_t priority;   /* to JOBS_PRIORITY_MAX */
	uint32_t n_retries;  /* left, to JOBS_RETRIES_MAX */
	uint64_t limit_ns;   /* 0: that of the configuration; to limit_max_ns; JOBS_NO_LIMIT */
	uint64_t counted_ns; /* of its limit, used up */
	bool is_restored;    /* it was accepted before a restart: of the errors from JOBS_E_LIMIT on
			      * none applies */
	struct jobs_request request;

	uint32_t n_programs; /* its programs that are clients now */
	uint64_t footprint;  /* bytes that they need to run, all together */
	bool is_stopped;     /* it has programs, and all of them wait or are frozen: its limit does
			      * not run */
	enum jobs_end end;
	uint64_t need; /* ENDED: for the retry; 0: as before */

	struct place_gpu facts;
	bool is_other;                    /* the index stands for another GPU than before */
	const struct jobs_config *config; /* checked */
};

enum jobs_action_type {
	JOBS_ACTION_START, /* job, gpu, is_turns: run its command there */
	JOBS_ACTION_TERM,  /* job, end: ask its programs to end (SIGTERM) */
	JOBS_ACTION_KILL,  /* job, end: end them (SIGKILL) */
	JOBS_ACTION_RETRY, /* job, end: it has failed, and is tried again in config.retry_ns */
	JOBS_ACTION_DONE,  /* job, end: it is over */
};

struct jobs_action {
	enum jobs_action_type type;
	uint32_t job;
	uint32_t gpu;
	bool is_turns; /* it does not fit beside the others, and takes turns */
	enum jobs_end end;
};

struct jobs_actions {
	uint32_t n;
	struct jobs_action at[JOBS_ACTIONS_MAX];
};

enum {
	JOBS_E_SUCCESS_,
	JOBS_E_EXISTS, /* SUBMIT, ADOPT: of a slot in use */
	JOBS_E_NO_JOB, /* any other event of a free slot */
	JOBS_E_STATE,  /* event not allowed in the job's state */
	JOBS_E_VALUE,  /* a value is out of its range */
	JOBS_E_LIMIT,  /* SUBMIT: limit_ns is above config.limit_max_ns */
	JOBS_E_GPU,    /* SUBMIT: the named GPU is not known, is reserved, or job_gpus lacks it */
	JOBS_E_NEVER,  /* SUBMIT: GPUs are known, and each that the job may use is too small */
	JOBS_E_GANG_SIZE,  /* SUBMIT: a member of its gang has another gang_size */
	JOBS_E_GANG_NEVER, /* SUBMIT: GPUs are known, and even without other jobs and programs there
			    * would not be places for all that would start with it */
	JOBS_E_GANG_FULL,  /* SUBMIT: JOBS_GANG_OPEN_MAX members of its gang are not over */
};

#include "core/jobs/jobs_private.h" /* struct jobs, struct job: for their size only */

void jobs_config_default(struct jobs_config *ret_config);

/* NULL, or the name of the first field that is out of its range. */
const char *jobs_config_check(const struct jobs_config *config);

/* slots: n_slots, all free; kept, and used, until the last call. config: checked. */
void jobs_init(struct jobs *jobs, struct job *slots, uint32_t n_slots,
	       const struct jobs_config *config);

/*
 * Returns 0, or one of JOBS_E_* when the event is refused; a refused event changes nothing but the
 * time and yields no action. If there is more to do than fits into ret_actions, jobs_deadline() is
 * at once now: step again with JOBS_EVENT_TIME.
 */
int jobs_step(struct jobs *jobs, const struct jobs_event *event, struct jobs_actions *ret_actions);

/* When the next JOBS_EVENT_TIME is due; JOBS_NO_DEADLINE if none is. */
uint64_t jobs_deadline(const struct jobs *jobs);

/* Aborts if an invariant is broken. For tests. */
void jobs_assert_valid(const struct jobs *jobs);

/* Why a queued job has not started. */
enum jobs_wait {
	JOBS_WAIT_NOT,      /* it does not wait */
	JOBS_WAIT_POSITION, /* others stand before it */
	JOBS_WAIT_PLACE,    /* reason: of the GPUs, place_reason_of() */
	JOBS_WAIT_REST,     /* it rests before a retry */
	JOBS_WAIT_MEMBERS,  /* n_missing more members of its gang must be submitted */
	JOBS_WAIT_GANG,  /* there are not places for all of its gang; or others stand before it */
	JOBS_WAIT_NEVER, /* even an empty node has no places for those that would start with it */
};

struct jobs_status {
	enum jobs_state state;
	enum jobs_end end;
	enum jobs_wait wait;
	enum place_reason reason;
	uint32_t position;  /* from 1: its rank by priority and id, or what its owner's share makes
			     * of that if it is sooner; 0: it is not queued */
	uint32_t gpu;       /* since START; JOBS_NONE: not started */
	uint32_t booked;    /* a GPU that the search for a start last kept for it, or JOBS_NONE */
	uint32_t n_missing; /* JOBS_WAIT_MEMBERS */
	bool is_turns;
	uint64_t id;
	uint32_t owner, priority, n_retries, n_starts;
	struct jobs_request request;
	uint64_t reserved; /* bytes beyond its footprint that are kept for it */
	uint64_t footprint;
	uint64_t waited_ns;  /* queued or resting, all waits together; since its submission */
	uint64_t ran_ns;     /* from its last start to now or to its end; the last run of those that
			      * rest or are queued again */
	uint64_t counted_ns; /* of its limit, since its last start; an adopted job's before that,
				too */
	uint64_t limit_ns;   /* JOBS_NO_LIMIT: none */
};

/* slot < n_slots. Takes O(log n), and a placement for a queued job. */
enum jobs_state jobs_state(const struct jobs *jobs, uint32_t job);
void jobs_status(const struct jobs *jobs, uint32_t job, uint64_t now_ns, struct jobs_status *ret);

/* Of the gang of job: the members that are not over, and those of them that have a GPU. */
void jobs_members(const struct jobs *jobs, uint32_t job, uint32_t *ret_n, uint32_t *ret_n_on);
/* Of the gang of job, which runs: those that have a GPU, and those that come back to them. */
uint32_t jobs_gang_together(const struct jobs *jobs, uint32_t job);

/*
 * The queued jobs by priority and id, without regard to owners: the slot of the one at index, from
 * 0; JOBS_NONE: there are fewer. For lists. Takes O(log n).
 */
uint32_t jobs_at(const struct jobs *jobs, uint32_t index);
/* How many jobs are queued; how many are started and have not ended, on a GPU. */
uint32_t jobs_n_queued(const struct jobs *jobs);
uint32_t jobs_n_on(const struct jobs *jobs, uint32_t gpu);

/*
 * Where a job with this request would be placed now if none stood before it, as place_choose()
 * says; beside the bookings of the last search. For `nvsharectl place --dry-run`. Changes nothing.
 */
uint32_t jobs_place(const struct jobs *jobs, const struct jobs_request *request, uint64_t now_ns,
		    struct place_score ret_scores[PLACE_GPUS_MAX]);

/* JOBS_E_GPU or JOBS_E_NEVER, where SUBMIT of this request would be refused so now; else 0. */
int jobs_check(const struct jobs *jobs, const struct jobs_request *request, uint64_t now_ns);

/* "others stand before it"; of JOBS_WAIT_PLACE see place_reason_text(). */
const char *jobs_wait_text(enum jobs_wait wait);

#endif
