/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CORE_OWNER_H
#define NVS_CORE_OWNER_H

/*
 * Turns among owners. All clients of one owner on one GPU stand in the queue as one: the first
 * of them by rank, the front, stands for them. Fronts go by the classes, and within one by the
 * beginning of their owners' last turns. So an owner waits for one turn of each other owner,
 * however many clients those have. Its other clients stand behind all fronts. The resident wait
 * for nobody's turn, so each of them is a front by itself, and stands for nobody else.
 *
 * An owner is a number that SCHED_EVENT_JOIN tells. With config.fair_users off all clients count
 * as one owner's.
 */

#include "core/sched.h"

#include <stdbool.h>
#include <stdint.h>

/* Of a client that has joined. */
static inline struct sched_owner *owner_of(const struct sched *sched, const struct sched_client *c)
{
	return &sched->clients[c->owner].own;
}

void owner_init(struct sched *sched);

/* client, of sched_client::owner_number, is one more of its owner's, or no more. */
void owner_join(struct sched *sched, uint32_t client);
void owner_leave(struct sched *sched, uint32_t client);
/* It wants something or runs, and is not hung; or no more. Twice is once. */
void owner_awake(struct sched *sched, uint32_t client, bool is_awake);

/* A new wait of client's begins; it is not in the queue yet. */
void owner_wait(struct sched *sched, uint32_t client);
/*
 * client, whose rank is set, enters its GPU's queue, or leaves it. Both return another client,
 * which has become its owner's front, or is no more; SCHED_NONE: there is none.
 */
uint32_t owner_enter(struct sched *sched, uint32_t client);
uint32_t owner_exit(struct sched *sched, uint32_t client);

/*
 * client is chosen, from the queue: that is its owner's turn, if it has waited and is the first
 * of all, or if others are stopped for it. It is put back: its owner has the place that it had
 * before. Both return a front that may have moved and stays in the queue; SCHED_NONE: there is
 * none.
 */
uint32_t owner_turn(struct sched *sched, uint32_t client, bool has_switched);
uint32_t owner_put_back(struct sched *sched, uint32_t client);

/* The highest level of those of its clients that wait, but for the resident. */
enum sched_priority owner_level(const struct sched_owner *owner);
/* How many fronts wait for gpu. */
uint32_t owner_n_waiting(const struct sched *sched, uint32_t gpu);
/* The next of client's owner behind it in the queue; SCHED_NONE: it is the last one. */
uint32_t owner_next(const struct sched *sched, uint32_t client);

#endif
