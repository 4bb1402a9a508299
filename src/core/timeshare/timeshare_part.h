/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CORE_TIMESHARE_PART_H
#define NVS_CORE_TIMESHARE_PART_H

/* A client's entry in the counts of its GPU (struct timeshare_part), and those counts. */

#include "core/timeshare/timeshare.h"

/* The class that claim counts as. Without classes all but critical clients are normal. */
enum timeshare_class timeshare_part_class(const struct timeshare *timeshare,
					  const struct timeshare_claim *claim);

/* client has work, or a critical one is in a burst. */
bool timeshare_part_is_at_work(const struct timeshare_client *client);

/* Counts client anew, by its state now. If that changes, touches it and plans its GPU anew. */
void timeshare_part_refresh(struct timeshare *timeshare, uint32_t client);

#endif
