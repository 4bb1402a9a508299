/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CORE_TIMESHARE_EVENTS_H
#define NVS_CORE_TIMESHARE_EVENTS_H

/* All that timeshare hears: what clients do, what they answer, and what they do not. */

#include "core/timeshare/timeshare.h"

/* The most reports that one timer causes. */
#define EVENTS_REPORTS_MAX 8u

/* It runs from now on. An announcement of before that is still to come counts. */
void timeshare_events_run(struct timeshare *timeshare, uint32_t client);

/* It does not run any more: whatever it did is over. */
void timeshare_events_stop(struct timeshare *timeshare, uint32_t client);

int timeshare_events_activity(struct timeshare *timeshare, const struct timeshare_event *event);
int timeshare_events_done(struct timeshare *timeshare, const struct timeshare_event *event);

/* One of client's timers is due. */
void timeshare_events_timer(struct timeshare *timeshare, uint32_t client);

#endif
