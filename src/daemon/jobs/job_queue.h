/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_JOB_QUEUE_H
#define NVS_DAEMON_JOB_QUEUE_H

/*
 * The node's queue of jobs around its core (core/jobs/jobs.h): which process and which connection a
 * job has, what the core is told, and what follows from its actions.
 *
 * A job belongs to a process, not to a connection. It ends when that process reports its end, or
 * is gone (pidfd). Its programs are clients like all others (daemon/jobs/job_programs.h).
 *
 * The core hears of GPUs and programs when something has changed, at most once in JOB_LOOK_NS, so
 * that a thousand reports cost one look.
 *
 * Threading: the loop's.
 */

#include "core/histogram.h"
#include "core/jobs/jobs.h"
#include "core/place/estimate.h"
#include "daemon/deadlines.h"
#include "daemon/jobs/job_journal.h"
#include "daemon/jobs/job_process.h"
#include "nvshare/protocol.h"
#include "util/event_source.h"

#include <stdbool.h>
#include <stdint.h>

#define JOB_QUEUE_MAX     16384
#define JOB_QUEUE_BUCKETS 4096
#define JOB_ESTIMATES_MAX 1024
#define JOB_LOOK_NS       (10 * CLOCK_NS_PER_MS)

struct server;
struct peer;
struct user;

/* A job; its slot is the core's, too. */
struct job_entry {
	uint64_t id; /* 0: the slot is free */
	struct nvshare_submit submit;
	struct nvshare_gang gang; /* size 0: none */
	struct job_process process;
	uid_t uid;            /* in a pod: of its container, which chose it */
	uint32_t owner;       /* daemon/jobs/job_queue.c: job_queue_owner() */
	uint32_t words_owner; /* the same words of another one are other words: owner; or, where
			       * a restart could not tell it, job_record_owner_before() */
	struct user *user;    /* server::users */
	int pidfd;
	struct event_source gone; /* pidfd */
	struct peer *peer;        /* that hears of it; NULL: none is connected */
	uint64_t memory;          /* bytes that it needs */
	bool is_estimated;
	uint64_t since_ns;
	uint64_t submitted_unix_ns;

	bool is_started;
	uint32_t gpu; /* index; while it is started */
	char gpu_uuid[NVSHARE_UUID_LEN];
	struct peer *programs; /* utlist, peer::program_prev/next: its clients on that GPU */
	uint32_t n_programs;
	bool is_stopped;    /* all of them wait or are frozen, as the core was told */
	bool is_changed;    /* the core is to hear of its programs */
	uint64_t footprint; /* bytes of its programs */
	uint64_t peak;      /* the most since it was started */
	bool is_oom;        /* a program was out of memory */
	bool is_cancelled;
	bool is_restored;       /* it was there before this scheduler */
	bool is_final;          /* its process has reported an end that is the last one */
	bool is_unbegun;        /* its process has reported that the command never began */
	uint32_t signal_now;    /* that its process is to send; 0: none */
	struct job_entry *prev; /* job_queue::started */
	struct job_entry *next;

	enum nvshare_job_end end;
	uint32_t exit_code, signal;
	struct peer *awaiting; /* utlist, peer::await_prev/next: tools that wait for its end */
	uint32_t id_next;      /* in its bucket: slot and 1; 0: none */
};

/* Since the scheduler began, for metrics. */
struct job_counts {
	uint64_t n_submitted, n_started, n_retried, n_refused;
	uint64_t n_ended[NVSHARE_JOB_END_COUNT];
	uint64_t n_failed;     /* of those that ended by themselves: not with 0 */
	struct histogram wait; /* from submission to start */
};

struct job_queue {
	struct jobs core;
	struct job *slots;         /* JOB_QUEUE_MAX */
	struct job_entry *entries; /* the same */
	uint32_t *free;            /* a stack */
	uint32_t n_free, n_used;   /* slots below n_used have been used */
	uint32_t n_live;           /* that have not ended */
	uint32_t n_restored;       /* of an earlier scheduler, at the start */
	bool is_restoring;         /* no job starts before all are there again */
	uint32_t buckets[JOB_QUEUE_BUCKETS];
	uint64_t last_id;
	/* Those that have left the core: a ring of JOB_RECORD_ENDED_MAX, the next one at n_ended.
	 */
	struct job_record_ended *ended;
	uint64_t n_ended;
	struct job_entry *started; /* utlist */
	bool has_gang_shrunk; /* a job of a gang has ended: job_programs_look() tells the others */
	struct deadline due;  /* the core's */
	struct deadline look; /* what has changed is told to the core */
	struct deadline save; /* estimates go to their file */
	uint64_t looked_ns;
	bool is_changed;                        /* a GPU, a client or a setting */
	struct place_gpu facts[SCHED_GPUS_MAX]; /* as the core knows them */
	uint8_t uuids[SCHED_GPUS_MAX][16];
	uint32_t n_programs[SCHED_GPUS_MAX]; /* of all jobs */
	uint64_t footprints[SCHED_GPUS_MAX];
	uint64_t busy_ns[SCHED_GPUS_MAX]; /* a client has computed there; 0: never */
	uint64_t gpu_ns[SCHED_GPUS_MAX];  /* GPU time of all clients, then */
	struct job_journal journal;
	struct estimate estimate;
	struct estimate_entry *estimates; /* JOB_ESTIMATES_MAX */
	bool is_estimate_unsaved;
	int estimates_error; /* of the last write, -errno: it has been said */
	struct job_counts counts;
};

/* The listener is open. Jobs of an earlier scheduler are there again. 0 or -ENOMEM. */
int job_queue_open(struct server *server);
void job_queue_close(struct server *server);

/* Deadlines follow from the last steps. Called after each callback of the loop. */
void job_queue_settle(struct server *server);

/* A GPU, a client's state, or the end of the grace: the core is to hear of it soon. */
void job_queue_touch(struct server *server);

/* The settings are other ones. */
void job_queue_config(struct server *server);

/* Whether jobs wait that others' memory may be in the way of. */
bool job_queue_is_waiting(const struct server *server);

/* NULL: there is no such job, or it has ended: job_ends_find(). */
struct job_entry *job_queue_find(struct server *server, uint64_t id);

/* The number of the user that a connection's jobs and programs count for. */
uint32_t job_queue_owner(const struct peer *peer);
/* The process of entry, which has not ended, is back: entry is peer's user's from now on. */
void job_queue_own(struct server *server, struct job_entry *entry, const struct peer *peer);

/*
 * A slot for a job of that owner with that id. NULL: this owner has no room for one now. uid is for
 * people.
 */
struct job_entry *job_queue_add(struct server *server, uint32_t owner, uid_t uid, uint64_t id);
/* It never became a job, or has left the core. */
void job_queue_drop(struct server *server, struct job_entry *entry);

/* Steps the core. event->job is entry's. 0 or JOBS_E_*. */
int job_queue_step(struct server *server, struct job_entry *entry, struct jobs_event *event);
/* The same in two parts, for a caller with something to do in between. */
int job_queue_try(struct server *server, struct job_entry *entry, struct jobs_event *event,
		  struct jobs_actions *ret_actions);
void job_queue_perform(struct server *server, const struct jobs_actions *actions);

uint32_t job_queue_slot(const struct server *server, const struct job_entry *entry);

/* pidfd is entry's from now on, and is watched. */
void job_queue_watch(struct server *server, struct job_entry *entry, int pidfd);

/* peer hears of entry from now on, and nobody else; entry NULL: peer hears of none. */
void job_queue_attach(struct server *server, struct peer *peer, struct job_entry *entry);

/* peer ends. Its job does not. */
void job_queue_forget(struct server *server, struct peer *peer);

/* The place of entry as a record. */
void job_queue_record(struct server *server, const struct job_entry *entry,
		      enum job_record_kind kind);

#endif
