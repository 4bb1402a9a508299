/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CORE_GRANT_H
#define NVS_CORE_GRANT_H

/* Grants, and budgets to come in or to grow with: what those have that were chosen. */

#include "core/sched.h"

#include <stdbool.h>
#include <stdint.h>

/* client has all its memory on the card, or never lacked any: it runs. */
void grant_run(struct sched *sched, uint32_t client);
/* client, which runs, gets its budget: the blocked allocation goes on. */
void grant_growth(struct sched *sched, uint32_t client);

/* client, which restores, has all its memory on the card: it runs, or waits for the rest. */
void grant_restored(struct sched *sched, uint32_t client);
/* client has used up its budget, and bytes are out. false: no larger one will come of it. */
bool grant_restored_part(struct sched *sched, uint32_t client);

/* The first that comes, and that the card has room for now, gets its budget or its grant. */
bool grant_next(struct sched *sched, uint32_t gpu);
/* The first that comes gets a part, if that is worth a restore. */
bool grant_part(struct sched *sched, uint32_t gpu);

/* client was to run with all of its gang, and does not: it knows nothing of that. */
void grant_unready(struct sched_client *client);

/* client, which comes, may get no grant now: no place is free, or the GPU is out. */
bool grant_is_barred(const struct sched *sched, uint32_t client);

/* client has all that it is to get, or can have it now. */
bool grant_is_whole(const struct sched_client *client);
/* Sends client its budget. */
void grant_emit_budget(struct sched *sched, uint32_t client);

#endif
