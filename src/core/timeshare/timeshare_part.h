/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CORE_TIMESHARE_PART_H
#define NVS_CORE_TIMESHARE_PART_H

/* The part of its GPU that a client counts for (struct timeshare_part), and the counts. */

#include "core/timeshare/timeshare.h"

/* The class that claim counts as: without classes all but the critical are normal. */
enum timeshare_class timeshare_part_class(const struct timeshare *timeshare,
					  const struct timeshare_claim *claim);

/* client has work, or a critical one is in a burst. */
bool timeshare_part_is_at_work(const struct timeshare_client *client);

/* Counts client as what it is now; it is touched, and its GPU is planned anew. */
void timeshare_part_refresh(struct timeshare *timeshare, uint32_t client);

#endif
