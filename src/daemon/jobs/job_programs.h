/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_JOB_PROGRAMS_H
#define NVS_DAEMON_JOB_PROGRAMS_H

/*
 * Which clients are programs of jobs (daemon/jobs/job_process.h has the rule), what memory they
 * have, and whether they may compute. A program on another GPU than its job's is an ordinary
 * client.
 *
 * Threading: the loop's.
 */

#include <stdint.h>

struct job_entry;
struct memory_account;
struct peer;
struct server;

/* peer has registered. */
void job_programs_join(struct server *server, struct peer *peer);

/* peer, a client, ends: its account is zero by now. */
void job_programs_leave(struct server *server, struct peer *peer);

/* The programs of entry are ordinary clients from now on. */
void job_programs_release(struct server *server, struct job_entry *entry);

/* The account of peer on its GPU has changed. */
void job_programs_account(struct server *server, struct peer *peer,
			  const struct memory_account *before, const struct memory_account *after);

/* Tells the core what has changed of the jobs' programs. */
void job_programs_look(struct server *server);

/*
 * The scheduler refuses memory that the library of peer has asked for: the program is out of
 * memory. If its job fails, that is why.
 */
void job_programs_refused(struct peer *peer);

#endif
