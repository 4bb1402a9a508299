/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_JOB_FACTS_H
#define NVS_DAEMON_JOB_FACTS_H

/*
 * Facts of the GPUs for the core of jobs: their memory, who is there besides jobs, heat and use.
 * While a restarted scheduler waits for running programs (daemon/grace.h), all GPUs count as out,
 * because their memory is not known.
 *
 * Threading: the loop's.
 */

struct server;

/* Tells the core the settings, with the GPUs that they name. */
void job_facts_config(struct server *server);

/* Tells the core what has changed of the GPUs. */
void job_facts_look(struct server *server);

#endif
