/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CORE_SLICE_POLICY_H
#define NVS_CORE_SLICE_POLICY_H

/*
 * Rules by which timeslices beside critical clients change with the load
 * (timeshare_config::slice_rule). slice.c has the fixed ones. A held client has no slice.
 *
 * SLACK is for critical clients with an SLO; one without an SLO is as with FIXED. The slack is the
 * SLO, less the time since the burst began, less the average of the client's bursts. The average
 * counts in full until the end, since it is not known how much of a burst is done.
 *
 *	slack below 0               the client's slice is as with FIXED, the others' is the shortest
 *	below 1/10 of the average   the client's slice is 10 ms
 *	else                        1 ms; the others keep be_slice_us, and so a part of its time
 *
 * Between bursts the client keeps the slice with which the next one begins, so that the begin costs
 * no message.
 *
 * EXPONENTIAL has six levels from 10 s to 100 us. A critical client has the highest; several are as
 * with FIXED, because one would wait 10 s for the other. The others begin at 10 ms, 1 ms or 100 us,
 * by class. A client that has had a whole slice goes down a level. A client goes up a level when it
 * had work and waited ten times the slice of the level above. So a long slice takes ten times as
 * long a wait.
 *
 * FEEDBACK is a controller (P 0.5, I 0.1, D 0.05). It sets the others' slice by the time of each
 * burst of a critical client with an SLO.
 *
 * - It aims at four fifths of the SLO, because aiming at the SLO breaks it every other time.
 * - Without error the slice is be_slice_us. It goes from 100 us to 10 ms, or to half of the SLO if
 *   that is less: a longer slice alone would break it.
 * - In the sum a late burst counts twenty times. The sum is bounded by what the output can show.
 * - Only bursts beside others that were not held count; of several SLOs the shortest.
 * - The output stays while an active client has that SLO, because each change of it is a message to
 *   all of the others.
 */

#include "core/timeshare/timeshare.h"

void slice_policy_join(struct timeshare_client *c);

/* Computes client's slack, and when to do so again: when its state changes, or that time comes. */
void slice_policy_look(struct timeshare *timeshare, uint32_t client);

/* A burst begins. A burst has ended after ns. */
void slice_policy_begin(struct timeshare *timeshare, struct timeshare_client *c);
void slice_policy_end(struct timeshare *timeshare, struct timeshare_client *c, uint64_t ns);

/* client has sent a report. Call it after usage_report(). */
void slice_policy_report(struct timeshare *timeshare, uint32_t client);

/* Updates what depends on the active clients of gpu, before its slices are planned. */
void slice_policy_plan(struct timeshare *timeshare, uint32_t gpu);

/* The slice of clients beside critical ones, in us. */
uint64_t slice_policy_others(const struct timeshare_config *config,
			     const struct timeshare_gpu *gpu);

/* c's slice in us, TIMESHARE_SLICE_MIN to _MAX; us: its fixed slice, from slice.c. */
uint64_t slice_policy_slice(const struct timeshare_config *config, const struct timeshare_gpu *gpu,
			    const struct timeshare_client *c, uint64_t us);

#endif
