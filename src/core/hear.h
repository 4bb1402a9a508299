/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CORE_HEAR_H
#define NVS_CORE_HEAR_H

/*
 * What clients say. Each returns what sched_step() returns; the client's slot is in use.
 * None emits more than ACT_MARGIN actions.
 */

#include "core/sched.h"

int hear_request(struct sched *sched, const struct sched_event *event);
int hear_released(struct sched *sched, const struct sched_event *event);
int hear_memory(struct sched *sched, const struct sched_event *event);
int hear_alive(struct sched *sched, const struct sched_event *event);

/* client runs: does it lack memory? Grows at once if it can, else queues; or no more. */
void hear_growth(struct sched *sched, uint32_t client, bool is_last_epoch);

/* A wait for memory has reached its bound: refused, if there is no end to it. */
void hear_bound(struct sched *sched, uint32_t client);

#endif
