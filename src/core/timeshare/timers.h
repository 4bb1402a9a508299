/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CORE_TIMERS_H
#define NVS_CORE_TIMERS_H

/*
 * The timers of the clients: a binary heap of slots by due_ns, the earliest first. It lies in the
 * clients themselves: the slot at place i is clients[i].heap_slot.
 */

#include "core/timeshare/timeshare.h"

/* Sets due_ns to the least of client's timers, and moves client in the heap, or takes it out. */
void timers_set(struct timeshare *timeshare, uint32_t client);

/* The client whose timer is the earliest; TIMESHARE_NONE if no timer runs. */
uint32_t timers_first(const struct timeshare *timeshare);

#endif
