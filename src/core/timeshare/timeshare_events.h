/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CORE_TIMESHARE_EVENTS_H
#define NVS_CORE_TIMESHARE_EVENTS_H

/* The clients' events: what they do and answer, and the timers that run when they do not. */

#include "core/timeshare/timeshare.h"

/* The most reports that one timer causes. */
#define EVENTS_REPORTS_MAX 8u

/* client runs from now on. If an earlier hint of it is still to come, it counts. */
void timeshare_events_run(struct timeshare *timeshare, uint32_t client);

/* client runs no more: its work and its burst have ended. */
void timeshare_events_stop(struct timeshare *timeshare, uint32_t client);

int timeshare_events_activity(struct timeshare *timeshare, const struct timeshare_event *event);
int timeshare_events_done(struct timeshare *timeshare, const struct timeshare_event *event);

/* One of client's timers is due. */
void timeshare_events_timer(struct timeshare *timeshare, uint32_t client);

#endif
