/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CORE_SLICE_POLICY_H
#define NVS_CORE_SLICE_POLICY_H

/*
 * Timeslices beside critical clients that follow what happens (timeshare_config::slice_rule);
 * slice.c has those that do not. They count where slices do: who is held has none.
 *
 * - SLACK, of a critical client with an SLO: its slack is the SLO, less the time since its
 *   burst began, less what its bursts take on average. The average counts in full to the
 *   end, since nobody knows before how much of a burst is done. Slack below 0: the client
 *   has its longest slice, as with FIXED, and the others the shortest there is. Below a
 *   tenth of the average: 10 ms. Else 1 ms, as somebody who can wait: the others keep
 *   be_slice_us, and so a part of its time. Between bursts it has what the next one will
 *   begin with, so that beginning costs no message. One without an SLO is as with FIXED.
 * - EXPONENTIAL: six levels from 10 s to 100 us. The highest is the critical clients' (of
 *   several: as with FIXED, for one would wait 10 s for the other). The others begin at
 *   10 ms, 1 ms or 100 us, by class. A client that has had a whole slice goes down a level.
 *   One that had work and waited ten times the slice of the level above, without that, goes
 *   up one. So a long slice is earned by ten times as long a wait.
 * - FEEDBACK: a controller (P 0.5, I 0.1, D 0.05) sets the others' slice by what each burst
 *   of a critical client with an SLO took. It aims at four fifths of the SLO: aiming at a
 *   bound crosses it every other time. Without error it is be_slice_us; the output goes
 *   from 100 us to 10 ms, or to half of the SLO if that is less, for a longer one breaks
 *   it by itself. In the sum who is late counts twenty times, and the sum is bounded to
 *   what the output can show. Only bursts beside others that were not held tell anything;
 *   of several SLOs the shortest counts. The output is forgotten when no active client has
 *   that SLO any more, and only then: each change of it is a message to all of the others.
 */

#include "core/timeshare/timeshare.h"

void slice_policy_join(struct timeshare_client *c);

/* client's state has changed, or time has come: its slack, and when to look again. */
void slice_policy_look(struct timeshare *timeshare, uint32_t client);

/* A burst begins; one has ended, after ns. */
void slice_policy_begin(struct timeshare *timeshare, struct timeshare_client *c);
void slice_policy_end(struct timeshare *timeshare, struct timeshare_client *c, uint64_t ns);

/* client has said what it does, which usage has heard. */
void slice_policy_report(struct timeshare *timeshare, uint32_t client);

/* Updates what depends on the active clients of gpu, before its slices are planned. */
void slice_policy_plan(struct timeshare *timeshare, uint32_t gpu);

/* us: of who is not critical, beside critical ones. */
uint64_t slice_policy_others(const struct timeshare_config *config,
			     const struct timeshare_gpu *gpu);

/* us: of c, for which slice.c has found us. TIMESHARE_SLICE_MIN to _MAX. */
uint64_t slice_policy_slice(const struct timeshare_config *config, const struct timeshare_gpu *gpu,
			    const struct timeshare_client *c, uint64_t us);

#endif
