/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CORE_BURST_H
#define NVS_CORE_BURST_H

/*
 * The time that the others on a GPU leave to its critical clients.
 *
 * While a critical client is active, one of the others may compute; the rest are held until it is
 * their turn. The last one is held as well while a burst asks for it (is_holding). Turns are
 * handed over through the held: who had it must be off before the next one is on.
 *
 * The cap is a credit in ns * percent. Critical clients' work while others want the GPU draws
 * on it, the rest of the time fills it; with none left the slices divide the time, until half
 * is back. A burst is work all the time. Without one, BUSY and IDLE are told too seldom to say
 * how much of the time work is there: the reports of those that are busy say it (loose).
 */

#include "core/timeshare/timeshare.h"

/* The greatest credit that config allows. */
uint64_t burst_credit_max(const struct timeshare_config *config);

/* Settles credit and turn up to now; before anything that they depend on changes. */
void burst_advance(struct timeshare *timeshare, uint32_t gpu);

/* client reports busy_ns; before what it says besides changes what it counts as. */
void burst_note_loose(struct timeshare *timeshare, uint32_t client, uint64_t busy_ns);

/* Decides; whom a change concerns is touched. Sets when it is to be called again. */
void burst_plan(struct timeshare *timeshare, uint32_t gpu);

/*
 * Whether client is to be held now; until when a hold that is told now lasts; whether that
 * is for a hint, which ends when it ends and is not renewed.
 */
bool burst_holds(const struct timeshare *timeshare, uint32_t client);
uint64_t burst_until(const struct timeshare *timeshare, uint32_t client);
bool burst_is_brief(const struct timeshare *timeshare, uint32_t client);

/* How long before it counts a hold has to begin: what the slower of the last ones took. */
uint64_t burst_lead(const struct timeshare *timeshare, uint32_t gpu);

/* The median of the last ones: whether somebody can be off in that time. */
uint64_t burst_lead_usual(const struct timeshare *timeshare, uint32_t gpu);

/* client is told to be off; it was taken off, which took ns. */
void burst_note_asked(struct timeshare *timeshare, uint32_t client);
void burst_note_took(struct timeshare *timeshare, uint32_t client, uint64_t ns);

/* client, whose hold was a part of the preemption under way, is off, or will not be. */
void burst_note_off(struct timeshare *timeshare, uint32_t client, bool is_off);

#endif
