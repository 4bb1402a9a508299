/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CORE_PLAN_H
#define NVS_CORE_PLAN_H

/*
 * The holders to stop for somebody, and when.
 *
 * Nobody is stopped before it had something of its turn: an eighth of a usual one; all of it while
 * its allocation waits, since then it had nothing yet. There are two exceptions. Critical clients
 * wait for nobody's turn. And where all that run wait for memory, time brings nothing: one of
 * them, whose turn is youngest, gets what it lacks, and those are stopped that are in its way.
 * They get what they want with their next grant. So each of them has got further before it can be
 * stopped again.
 */

#include "core/sched.h"

#include <stdbool.h>
#include <stdint.h>

/*
 * Brings head's due and ready times up to date. true: its victims can be stopped now, and
 * plan_victim() finds them once it comes.
 */
bool plan_head(struct sched *sched, uint32_t head);
/* The same if n others come before head, who add bytes to the load. */
bool plan_head_more(struct sched *sched, uint32_t head, uint64_t bytes, uint32_t n);
/*
 * Of the victims that have to stop for head, after those others: the first that has lacked host
 * memory when it was to, and may again; SCHED_NONE: none has.
 */
uint32_t plan_in_doubt(struct sched *sched, uint32_t head, uint64_t bytes, uint32_t n);
/*
 * When those can be stopped that are in the way of client, a sleeper that has woken and waits; at
 * the earliest now. SCHED_NO_DEADLINE: one of them is stopped only when its turn is over.
 */
uint64_t plan_early(struct sched *sched, uint32_t client);
/* The same if n others come before client, who add bytes to the load. */
uint64_t plan_early_more(struct sched *sched, uint32_t client, uint64_t bytes, uint32_t n);
/* Tells head's victims how much, and when. */
void plan_prepare(struct sched *sched, uint32_t head);

/*
 * The client that is to get what it lacks because all that run wait for memory; SCHED_NONE: not so.
 */
uint32_t plan_stalled(const struct sched *sched, uint32_t gpu);
/* client, which is it, comes: who waits for memory can be stopped for it. */
void plan_stall(struct sched *sched, uint32_t client);

/* client comes beside all others: nobody is stopped for it, unless it is critical. */
void plan_beside(struct sched *sched, uint32_t client);
/* The next one to be stopped for client, which comes (SCHED_NONE: whatever its turn). */
uint32_t plan_victim(const struct sched *sched, uint32_t gpu, uint32_t client);

#endif
