/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CORE_PREEMPT_CHOICE_H
#define NVS_CORE_PREEMPT_CHOICE_H

/*
 * Whether to hold others during a critical client's bursts, or to leave it to the slices:
 * whichever has shown the shorter tail of its bursts. Holding costs the others their time,
 * so it has to be better, not as good: by a twentieth, or by a fiftieth for a client that
 * announces its bursts. At first both are tried in turn, 64 bursts long, of which the first
 * half counts only until the second is there; and again, for 32, when the better one's median
 * is by a fifth not what it was then. Else the worse one is tried once in 256 bursts: that is
 * rarely enough not to be in the 99th percentile itself.
 *
 * A busy processor delays a burst in a hundred of either kind, so tails of so few bursts differ by
 * chance. Of the kind in use there is always news, of the other hardly any: it would not be used
 * again for long. So a median that is shorter by a tenth counts for more than a tail that is
 * longer by less than a quarter.
 *
 * Requests that come close together are one burst, which says nothing of its length: so
 * what counts is the time for each call that gave work.
 */

#include "core/timeshare/timeshare.h"

#define ARM_FIRST_BURSTS 64u /* that tell anything: of those beside nobody nothing is noted */

/* For the burst that begins. */
enum timeshare_arm_kind preempt_choice_next(struct timeshare_arm *arm);

/* Of each there were enough since both were last tried anew. */
bool preempt_choice_is_decided(const struct timeshare_arm *arm);

/* The last that preempt_choice_next() was asked for: of the first, or one that tries the worse one.
 */
bool preempt_choice_is_first(const struct timeshare_arm *arm);
bool preempt_choice_is_trial(const struct timeshare_arm *arm);

/* A burst of that kind took ns, in which n_calls gave work; 0: not known, as one. */
void preempt_choice_note(struct timeshare_arm *arm, enum timeshare_warning warning,
			 enum timeshare_arm_kind kind, uint64_t ns, uint32_t n_calls);

/*
 * Of the last 32 the mean of the second to the fourth longest (of fewer, of as large a
 * part): one alone may have met anything, and few are much like each other by chance.
 * us, of a burst of usual length; 0: there is none.
 */
uint64_t preempt_choice_tail(const struct timeshare_arm *arm, enum timeshare_arm_kind kind);

/* The second longest of any n; of one itself, and 0 of none. */
uint32_t preempt_choice_second_of(const uint32_t *us, uint32_t n);

/* Of no more than TIMESHARE_ARM_SAMPLES; of none 0. */
uint32_t preempt_choice_median_of(const uint32_t *values, uint32_t n);

#endif
