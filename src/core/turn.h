/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CORE_TURN_H
#define NVS_CORE_TURN_H

/*
 * Whose turn it is. After every event that touched a GPU, turn_dispatch() looks at its
 * lines and does what can be done:
 *
 *   give       those that come get their budget, or their grant, once the card has room;
 *              the first of them a part of it as soon as that is worth a restore;
 *   make room  bytes are asked back, from idle clients first, then from victims (blocked
 *              ones first, then by lowest level and oldest turn), then from queued
 *              ones, last first;
 *   admit      the head of the queue, if it fits or its due time has come; and up to
 *              LINE_LOOK_AHEAD behind it that fit beside all that is promised.
 *
 * The head is the first in the queue that can be served at all. Its due time is the latest end of
 * the turns of its victims (core/policy/policy.h), fixed when it becomes head, and only ever
 * brought forward: by more waiters, or a victim that blocks. plan.h says which victims may be
 * stopped for it, and which not yet.
 */

#include "core/sched.h"

#include <stdbool.h>
#include <stdint.h>

void turn_dispatch(struct sched *sched, uint32_t gpu);

/*
 * How many may come at once. Few, because they are looked at one by one; passers take
 * only part, so that there is always a place for the head.
 */
#define TURN_COMING_MAX  16
#define TURN_PASSERS_MAX 8

/*
 * client, in the queue, comes: from now on its target is counted, and room is made. has_switched:
 * others are stopped for it.
 */
void turn_choose(struct sched *sched, uint32_t client, bool has_switched);

/* client, which comes, cannot have the room after all: it goes back to where it stood. */
void turn_put_back(struct sched *sched, uint32_t client);

/* Nobody passes head: whoever did would be one more that it waits for. head may be SCHED_NONE. */
bool turn_head_is_held_up(const struct sched *sched, uint32_t head);

/* The next one in client's line. */
static inline uint32_t turn_next_in_line(const struct sched *sched, uint32_t client)
{
	return sched->clients[client].link[SCHED_LINK_LINE].next;
}

/* client, in the queue, is chosen at once if it fits: however long the queue is. */
void turn_admit(struct sched *sched, uint32_t client);

#endif
