/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_JOB_RECORD_H
#define NVS_DAEMON_JOB_RECORD_H

/*
 * The journal of jobs as bytes, for a scheduler that restarts. A record is one event of one job.
 * The file is a row of records, the oldest first.
 *
 * A record holds its size and a sum of its bytes. Bytes behind a record that is wrong do not count:
 * a write that was cut off stands at the end. The machine's own byte order and widths are
 * used, because the file does not outlive the start of the machine.
 *
 * Pure, and safe for any bytes. Threading: none.
 */

#include "daemon/jobs/job_process.h"
#include "nvshare/protocol.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define JOB_RECORD_VERSION  1u
#define JOB_RECORD_BOOT_LEN 40

/* So many jobs are kept after their end, the last ones. */
#define JOB_RECORD_ENDED_MAX 256

enum job_record_kind {
	JOB_RECORD_OPEN,        /* the first one; open */
	JOB_RECORD_SUBMIT,      /* place */
	JOB_RECORD_START,       /* start */
	JOB_RECORD_RETRY,       /* place, without a GPU again */
	JOB_RECORD_COUNTED,     /* number: ns of its time limit; of older schedulers */
	JOB_RECORD_CANCEL,      /* number: it is to end */
	JOB_RECORD_END,         /* number; of older schedulers */
	JOB_RECORD_SUBMIT_GANG, /* member: a SUBMIT of a job with a gang */
	JOB_RECORD_TIME,        /* time: it has started, or its time stands still or goes on */
	JOB_RECORD_ENDED,       /* ended: it has, now or before the file was written anew */
	JOB_RECORD_KIND_COUNT_
};

/* Of which machine's run, and which namespace, the numbers of processes are. */
struct job_record_open {
	uint32_t version;
	uint32_t unused;
	uint64_t pid_namespace;
	uint64_t last_id;               /* the highest that was given */
	char boot[JOB_RECORD_BOOT_LEN]; /* /proc/sys/kernel/random/boot_id */
};

struct job_record_place {
	uint64_t id;
	int64_t pid;
	uint64_t ticks;    /* of its process: struct job_process */
	uint64_t since_ns; /* CLOCK_MONOTONIC */
	uint64_t unix_ns;
	uint64_t memory; /* bytes, as asked or estimated */
	uint32_t uid;
	uint32_t owner;
	uint32_t n_retries; /* that are left */
	uint32_t is_estimated;
	struct nvshare_submit submit;
};

struct job_record_member {
	struct job_record_place place;
	struct nvshare_gang gang;
};

struct job_record_start {
	uint64_t id;
	char gpu[NVSHARE_UUID_LEN]; /* "GPU-..." */
};

struct job_record_number {
	uint64_t id;
	uint64_t ns;
};

/* The used part of its time limit, so that a later scheduler knows it as of any time. */
struct job_record_time {
	uint64_t id;
	uint64_t counted_ns;  /* as of at_ns */
	uint64_t at_ns;       /* CLOCK_MONOTONIC */
	uint64_t is_counting; /* its time goes on from then */
};

/* All that can be asked of a job after its end. */
struct job_record_ended {
	struct nvshare_job job;       /* job 0: none */
	struct nvshare_job_gang gang; /* as of then; size 0: none */
};

struct job_record {
	enum job_record_kind kind;
	union {
		struct job_record_open open;
		struct job_record_place place;
		struct job_record_member member;
		struct job_record_start start;
		struct job_record_number number;
		struct job_record_time time;
		struct job_record_ended ended;
	};
};

#define JOB_RECORD_SIZE_MAX 1024

enum {
	JOB_RECORD_E_SUCCESS_,
	JOB_RECORD_E_END, /* no bytes are left */
	JOB_RECORD_E_BAD, /* what follows is no record */
};

/* Returns the bytes of the record, a multiple of 8. */
size_t job_record_write(const struct job_record *record, uint8_t ret_bytes[JOB_RECORD_SIZE_MAX]);

/* The record at bytes[*at], and moves *at behind it. 0 or JOB_RECORD_E_*: *at stays. */
int job_record_read(const uint8_t *bytes, size_t len, size_t *at, struct job_record *ret_record);

/*
 * A number for the recorded owner after a restart, as numbers of namespaces are given anew. Jobs of
 * one owner keep one number, and jobs of two owners have two; none is a number that is given. Users
 * keep theirs.
 */
uint32_t job_record_owner_before(uint32_t owner);

/* A job that had not ended. */
struct job_replay_job {
	struct job_record_place place;
	struct nvshare_gang gang; /* size 0: none */
	bool is_started;
	bool was_started; /* it has failed since, and is tried again */
	bool is_cancelled;
	char gpu[NVSHARE_UUID_LEN];
	struct job_record_time time;
};

/* The part of its time limit that job has used up by now_ns. */
uint64_t job_replay_counted_ns(const struct job_replay_job *job, uint64_t now_ns);

/* Zeroed: empty. job_replay_deinit() frees. */
struct job_replay {
	struct job_record_open open;
	struct job_record_ended *ended; /* a ring of JOB_RECORD_ENDED_MAX, the next one at n_ended;
					 * NULL: n_ended is 0 */
	uint64_t n_ended;
	struct job_replay_job *jobs; /* by id, which rises */
	size_t n, size;
};

/*
 * Replays the records of bytes. *ret_good: the bytes of whole records. 0; JOB_RECORD_E_BAD:
 * there are bytes that are none, which do not count; or -ENOMEM. A record of a job that is not
 * there, or in a state that it cannot be in, is bad.
 */
int job_replay(struct job_replay *replay, const uint8_t *bytes, size_t len, size_t *ret_good);
void job_replay_deinit(struct job_replay *replay);

#endif
