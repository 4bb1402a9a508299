/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CORE_TIMESHARE_UPDATE_H
#define NVS_CORE_TIMESHARE_UPDATE_H

/*
 * The clients to look at before the step ends. A look compares what a client should have with what
 * it was told last, and sends a SET if they differ. No other place sends one. Clients that may be
 * held come first, since others wait for that. One step looks at a limited number, and the next
 * step at the rest, so that steps are short.
 */

#include "core/timeshare/timeshare.h"

void timeshare_update_touch(struct timeshare *timeshare, uint32_t client);
void timeshare_update_all(struct timeshare *timeshare,
			  uint32_t gpu); /* all that run on it, one by one */
void timeshare_update_none(struct timeshare *timeshare, uint32_t client); /* takes a touch back */

/* client is about to leave its place in the list of running clients. */
void timeshare_update_moves(struct timeshare *timeshare, uint32_t client);

/* Some client is still to be looked at. */
bool timeshare_update_is_pending(const struct timeshare *timeshare);

/* client has been told its slice, or cannot be told. */
bool timeshare_update_has_slice(const struct timeshare *timeshare, uint32_t client);

/* client may be sent a SET. A client that owes too many answers may not. */
bool timeshare_update_may_tell(const struct timeshare_client *c);

/* Looks at the touched clients, as far as the step has room. */
void timeshare_update_flush(struct timeshare *timeshare);

void timeshare_update_report(struct timeshare *timeshare, uint32_t client, uint32_t gpu,
			     enum timeshare_report report, uint64_t seq);

#endif
