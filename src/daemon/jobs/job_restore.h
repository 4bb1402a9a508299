/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_JOB_RESTORE_H
#define NVS_DAEMON_JOB_RESTORE_H

/*
 * After a restart: the jobs whose processes still live have their places again, in the order of
 * their submission, and those that run have their GPU. Their processes connect when they notice.
 *
 * Threading: the loop's.
 */

struct server;

/* Reads the journal. GPUs and settings are known to the core of jobs. */
void job_restore(struct server *server);

#endif
