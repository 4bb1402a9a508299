/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_JOB_PROCESS_H
#define NVS_DAEMON_JOB_PROCESS_H

/*
 * The processes of jobs: which one a job belongs to, and of which job a program is.
 *
 * A process is its number and the time at which it started (proc(5), starttime): the kernel gives
 * a number anew, but not within one tick of the clock. So a place is found again after a restart
 * of the scheduler, and by nobody else.
 *
 * A program is a job's if the job's process is the program itself or one of its ancestors. Only
 * the kernel makes ancestors: a process cannot choose its parent, and one that is orphaned goes to
 * an ancestor that it has already. So no program of somebody else can use up a job's reservation.
 * A program that leaves its job by a daemon's double fork is an ordinary client.
 *
 * Threading: none.
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct peer;

struct job_process {
	pid_t pid;
	uint64_t ticks; /* since boot, when it started */
};

/*
 * The process that peer's connection belongs to, and a descriptor of it (pidfd), which the caller
 * owns. Or -errno; -ESRCH: it is gone, or of a pid namespace that is not seen from here.
 */
int job_process_of(const struct peer *peer, struct job_process *ret_process);

/* A descriptor of process, or -errno; -ESRCH: it is gone. */
int job_process_open(const struct job_process *process);

/* 0 or -errno; -ESRCH: it is gone. */
int job_process_read(pid_t pid, struct job_process *ret_process, pid_t *ret_parent);

/*
 * text: of /proc/PID/stat. 0 or -EINVAL.
 */
int job_process_parse(const char *text, pid_t *ret_parent, uint64_t *ret_ticks);

/* Whether the process of a descriptor still lives. */
bool job_process_is_alive(int pidfd);

#endif
