/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CORE_TIMESHARE_UPDATE_H
#define NVS_CORE_TIMESHARE_UPDATE_H

/*
 * The clients to look at before the step ends: what a client is told is only ever found out there,
 * by comparing what it should have with what it was told last. Those that may be held come first,
 * since somebody waits for it. So many are looked at in one step, and the rest in the next: a step
 * is to be short, however many there are.
 */

#include "core/timeshare/timeshare.h"

void timeshare_update_touch(struct timeshare *timeshare, uint32_t client);
void timeshare_update_all(struct timeshare *timeshare,
			  uint32_t gpu); /* all that run on it, one by one */
void timeshare_update_none(struct timeshare *timeshare, uint32_t client); /* not any more */

/* It is about to leave its place among those that run. */
void timeshare_update_moves(struct timeshare *timeshare, uint32_t client);

/* Whether anybody is left to be looked at. */
bool timeshare_update_is_pending(const struct timeshare *timeshare);

/* Whether it has the slice that it is to have, or can not be told of one. */
bool timeshare_update_has_slice(const struct timeshare *timeshare, uint32_t client);

/* Whether it may be told something: not while it owes too many answers. */
bool timeshare_update_may_tell(const struct timeshare_client *c);

/* Tells those touched what they are to know, as far as the step has room. */
void timeshare_update_flush(struct timeshare *timeshare);

void timeshare_update_report(struct timeshare *timeshare, uint32_t client, uint32_t gpu,
			     enum timeshare_report report, uint64_t seq);

#endif
