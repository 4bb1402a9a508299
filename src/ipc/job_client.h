/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_IPC_JOB_CLIENT_H
#define NVS_IPC_JOB_CLIENT_H

/*
 * A process's own place in the scheduler's queue of jobs: `nvsharectl run` and plugins of other
 * schedulers take one.
 *
 * The place belongs to the process that calls job_client_submit(), as the kernel tells the
 * scheduler. It outlives the connection, and an exec. So a process that becomes the command itself
 * (NVSHARE_SUBMIT_SELF) waits for its start, calls job_client_deinit(), and executes the command;
 * the place ends with the process. Any other process starts the command as its child, and reports
 * its end.
 *
 * A connection that is lost is made again, and the place is kept, also over a restart of the
 * scheduler. Nothing here writes, exits, forks or touches signals. A connection is close-on-exec.
 *
 * Ownership: struct job_client is the caller's; texts in it are safe for a terminal.
 * Threading: one thread at a time. Calls block only where they say so.
 */

#include "nvshare/protocol.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define JOB_CLIENT_TEXT_LEN 512

enum {
	JOB_CLIENT_E_SUCCESS_,
	JOB_CLIENT_E_AWAY,    /* no scheduler answers */
	JOB_CLIENT_E_REFUSED, /* it refuses the job, or does not know it */
	JOB_CLIENT_E_VERSION, /* it speaks another version of the protocol */
	JOB_CLIENT_E_CALLER,  /* the caller's callback gave up */
};

struct job_client {
	const char *dir; /* of the socket, borrowed; NULL: as sock_dir() has it */
	int fd;          /* -1: not connected */
	struct nvshare_submit submit;
	struct nvshare_gang gang; /* size 0: none */
	struct nvshare_job job;   /* as heard last; job.job 0: there is no place yet */
	bool is_asking_position;  /* the caller wants to know the place as it changes */
	bool is_pending;          /* a submission or an attachment is not answered yet */
	bool is_unknown; /* the scheduler has lost the running job: nobody manages it any more */
	bool is_end_answered; /* of the last job_client_ended() */
	bool has_lost_place;  /* the scheduler had forgotten the place, and there is a new one */
	uint64_t
		due_ns; /* job_client_step() wants to be called then; UINT64_MAX: for input alone */
	uint64_t retry_ns;              /* the pause before the next try to connect */
	int error;                      /* JOB_CLIENT_E_* of the last call that failed */
	char text[JOB_CLIENT_TEXT_LEN]; /* and why, for people */
};

/* dir: NULL, or must outlive client. */
void job_client_init(struct job_client *client, const char *dir);
void job_client_deinit(struct job_client *client);

/*
 * Takes a place. Waits for the scheduler's answer, ten seconds at most. 0: client->job has it, and
 * may have a GPU already. Else JOB_CLIENT_E_*, with the reason in client->text.
 */
int job_client_submit(struct job_client *client, const struct nvshare_submit *submit);
/* The same for a job that starts together with others of its gang, as SUBMIT_GANG says. */
int job_client_submit_gang(struct job_client *client, const struct nvshare_submit *submit,
			   const struct nvshare_gang *gang);

/*
 * Hears what has come, and connects again where the connection is lost. Call it when client->fd has
 * input, and at client->due_ns (CLOCK_MONOTONIC). Does not block. *ret_is_news: client->job has
 * changed. 0; or JOB_CLIENT_E_AWAY while the scheduler is away (call it again); or another error:
 * the place is lost, and cannot be had again.
 */
int job_client_step(struct job_client *client, bool *ret_is_news);

/*
 * After the submission: where the user may not claim the class that was asked for, the line that
 * says so; client->job.priority is what was given. NULL: it was given as asked.
 */
const char *job_client_cut(const struct job_client *client, char *buf, size_t size);

/*
 * Of job's counted_ns: from then on its time limit is near. While such a job runs,
 * job_client_step() asks for its values in time. UINT64_MAX: it has no limit.
 */
uint64_t job_client_near_ns(const struct nvshare_job *job);

/* Hears of the wait. job: its values now; is_away: no scheduler is there at the moment.
 * false: the caller gives up. */
typedef bool job_client_fn(const struct nvshare_job *job, bool is_away, void *arg);

/*
 * Blocks until the job has its GPU, then 0: client->job.gpu_uuid names the GPU. Calls on_news (may
 * be NULL) at each change of position, reason or scheduler, and once a second. Else JOB_CLIENT_E_*:
 * a job that was cancelled is JOB_CLIENT_E_REFUSED. The place ends with job_client_ended() or the
 * process.
 */
int job_client_await_start(struct job_client *client, job_client_fn *on_news, void *arg);

/*
 * Tells how the command ended: exit_code, or the signal that ended it; flags: NVSHARE_ENDED_*.
 * Waits for the scheduler's answer, two seconds at most. 0: client->job is DONE; or it is not,
 * because it is tried again: call job_client_await_start(). Else JOB_CLIENT_E_*.
 */
int job_client_ended(struct job_client *client, uint32_t exit_code, uint32_t signal,
		     uint32_t flags);

#endif
