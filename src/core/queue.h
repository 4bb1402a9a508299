/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CORE_QUEUE_H
#define NVS_CORE_QUEUE_H

/*
 * The two lines of a GPU. In the queue stand those that want to run, and those that run
 * and want to grow, in the order of core/policy/policy.h. Chosen ones stand among the coming: their
 * budget is counted, room is being made for them.
 */

#include "core/sched.h"

#include <stdbool.h>
#include <stdint.h>

#define LINE_LOOK_AHEAD 128 /* how deep into the queue a decision looks */

/*
 * The caller's fit_change() of the client follows. Entering the queue starts the clock of a wait
 * for memory; leaving it stops it.
 */
void queue_push(struct sched *sched, uint32_t client);
/* The same, to where it stood: its wait goes on. kept: it was not there for a while. */
void queue_push_again(struct sched *sched, uint32_t client);
void queue_push_kept(struct sched *sched, uint32_t client);
/* Of a client in no line: a new wait begins, now; it enters the queue later. */
void queue_renew(struct sched *sched, uint32_t client);
void queue_push_coming(struct sched *sched, uint32_t client);
/* The wants of client have changed: the clock of its wait for memory starts, stops, or runs on. */
void queue_bound(const struct sched *sched, struct sched_client *client);
void queue_leave(struct sched *sched, uint32_t client); /* whichever it is in; none: nothing */

/*
 * Something that client's rank comes from has changed; whichever line it is in. fit_change()
 * follows.
 */
void queue_rank(struct sched *sched, uint32_t client);
/* The same in two, if all change. */
void queue_unrank(struct sched *sched, uint32_t client);
void queue_rerank(struct sched *sched, uint32_t client);
/* client is about to leave the queue because it may come. */
void queue_choose(struct sched *sched, uint32_t client, bool has_switched);
/* client, or for an owner whose first can not come: its next one that can; SCHED_NONE. */
uint32_t queue_able(const struct sched *sched, uint32_t client);
/* Those that have waited for long go to the front: not too many at a time. */
void queue_age(struct sched *sched, uint32_t gpu);
/* When the next one has; SCHED_NO_DEADLINE: nobody will. */
uint64_t queue_ages_ns(const struct sched *sched, uint32_t gpu);

/* From 1; 0: not in the queue. */
uint32_t queue_position(const struct sched *sched, uint32_t client);

enum sched_wait queue_why(const struct sched *sched, uint32_t client);
void queue_tell(struct sched *sched, uint32_t client); /* WAIT */

#endif
