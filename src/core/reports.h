/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CORE_REPORTS_H
#define NVS_CORE_REPORTS_H

/*
 * The reports of clients. Each returns what sched_step() returns; the client's slot is in use.
 * None emits more than ACT_MARGIN actions.
 */

#include "core/sched.h"

int reports_request(struct sched *sched, const struct sched_event *event);
int reports_released(struct sched *sched, const struct sched_event *event);
int reports_memory(struct sched *sched, const struct sched_event *event);
/* Pauses a client, or resumes it. */
int reports_pause(struct sched *sched, const struct sched_event *event);
int reports_alive(struct sched *sched, const struct sched_event *event);
int reports_process(struct sched *sched, const struct sched_event *event);
/* Not a client's own word: no sign of life, and what it wants stays as it is. */
int reports_pinned(struct sched *sched, const struct sched_event *event);

/* A wait for memory has reached its bound: refused, if there is no end to it. */
void reports_bound(struct sched *sched, uint32_t client);

#endif
