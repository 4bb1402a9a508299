/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CORE_BURST_H
#define NVS_CORE_BURST_H

/*
 * The time that the others on a GPU leave to its critical clients.
 *
 * While a critical client is active, one of the others may compute, and the rest are held until it
 * is their turn. That one is held as well while a burst asks for it (is_holding). A turn passes on
 * in two steps: the client that had it must be off before the next one is let on.
 *
 * The cap is a credit in ns * percent. Work of critical clients while others want the GPU draws on
 * the credit, and the rest of the time fills it. When it is used up, slices divide the time until
 * half of it is back. A burst counts as work all the time. Outside bursts, BUSY and IDLE come too
 * seldom to show how much of the time has work. So the clients' busy times show it (loose).
 */

#include "core/timeshare/timeshare.h"

/* The greatest credit that config allows. */
uint64_t burst_credit_max(const struct timeshare_config *config);

/* Settles credit and turn up to now. Call it before anything changes that they depend on. */
void burst_advance(struct timeshare *timeshare, uint32_t gpu);

/* client reports busy_ns. Call it before the report's activity changes the client's state. */
void burst_note_loose(struct timeshare *timeshare, uint32_t client, uint64_t busy_ns);

/* Decides, touches the clients that a change concerns, and sets wake_ns for its next call. */
void burst_plan(struct timeshare *timeshare, uint32_t gpu);

/*
 * burst_holds: client must be held now. burst_until: the end of a hold that begins now.
 * burst_is_brief: that hold is for a hint, and ends with it; it is not renewed.
 */
bool burst_holds(const struct timeshare *timeshare, uint32_t client);
uint64_t burst_until(const struct timeshare *timeshare, uint32_t client);
bool burst_is_brief(const struct timeshare *timeshare, uint32_t client);

/* How long before a burst a hold must begin: the time of the slower ones among the last. */
uint64_t burst_lead(const struct timeshare *timeshare, uint32_t gpu);

/* The median of the last ones: in less time a hold can hardly take a client off. */
uint64_t burst_lead_usual(const struct timeshare *timeshare, uint32_t gpu);

/* asked: client is told to be off. took: it is off, and the library needed ns for that. */
void burst_note_asked(struct timeshare *timeshare, uint32_t client);
void burst_note_took(struct timeshare *timeshare, uint32_t client, uint64_t ns);

/* Ends client's part in the preemption under way. is_off: it is off; else it will not be. */
void burst_note_off(struct timeshare *timeshare, uint32_t client, bool is_off);

#endif
