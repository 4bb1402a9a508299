/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CORE_FORECAST_H
#define NVS_CORE_FORECAST_H

/*
 * Contention that is coming: nobody waits yet. Either the room ends within prepare_ns at the rate
 * at which budgets have just grown; or a program is new, has taken nothing yet, and less than a
 * quarter of the card is free for it. Those who would have to go hear it (PREPARE with due_ms 0),
 * so that their host memory is there in time, and nothing else: they are near. It is taken back
 * when nobody has grown for a while, or there is room again.
 *
 * Looking ahead by prepare_ns is what NVSHARE_PREPARE_SEC is for; 0: none of it happens.
 */

#include "core/sched.h"

#include <stdbool.h>
#include <stdint.h>

#define FORECAST_NEAR_MAX 8 /* of a GPU; it bounds the work of a look at it, too */

/* client has been given bytes that it had not before, on the card or off it. */
void forecast_grown(struct sched *sched, uint32_t client, uint64_t bytes);

/* client is new: it counts if it has nothing yet. */
void forecast_joined(struct sched *sched, uint32_t client);

void forecast_left(struct sched *sched, uint32_t client);

/* client is told something else, which ends it, or has left RUNNING and IDLE: not near. */
void forecast_forget(struct sched *sched, uint32_t client);

/* At the end of a look at gpu: tells, or takes back. false: no room for more actions. */
bool forecast_update(struct sched *sched, uint32_t gpu);

/* When to look again by ourselves; SCHED_NO_DEADLINE: nobody is near. */
uint64_t forecast_wake_ns(const struct sched *sched, uint32_t gpu);

#endif
