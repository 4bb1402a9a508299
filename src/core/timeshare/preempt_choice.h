/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CORE_PREEMPT_CHOICE_H
#define NVS_CORE_PREEMPT_CHOICE_H

/*
 * Chooses for each burst of a critical client whether others are held, or left to their slices. The
 * kind with the shorter tail of bursts is better. Holding costs the others their time, so it must
 * be better by a twentieth, or by a fiftieth if the client announces its bursts.
 *
 * - At first both kinds are used in turn, for 64 bursts. The first 32 are forgotten then.
 * - Both are used again for 32 bursts when the better one's median has changed by a fifth.
 * - Otherwise the worse kind is used once in 256 bursts, too rarely for the 99th percentile.
 *
 * Tails of so few bursts differ by chance, because a busy processor delays one burst in a hundred.
 * The kind that is not used has hardly any new samples, so an error would stay for long. So a
 * median that is shorter by a tenth counts for more than a tail that is longer by less than a
 * quarter.
 *
 * A burst may contain several requests that come close together, so its length says little. The
 * time for each call that gave work counts.
 */

#include "core/timeshare/timeshare.h"

#define ARM_FIRST_BURSTS 64u /* noted ones; bursts beside nobody are not noted */

/* Returns the kind for the burst that begins. */
enum timeshare_arm_kind preempt_choice_next(struct timeshare_arm *arm);

/* Both kinds have enough samples since they were last tried anew. */
bool preempt_choice_is_decided(const struct timeshare_arm *arm);

/*
 * is_first: both kinds are still tried in turn. is_trial: the last answer of preempt_choice_next()
 * was a rare trial of the worse kind.
 */
bool preempt_choice_is_first(const struct timeshare_arm *arm);
bool preempt_choice_is_trial(const struct timeshare_arm *arm);

/* A burst of that kind took ns. n_calls calls gave it work; 0: not known, counts as one. */
void preempt_choice_note(struct timeshare_arm *arm, enum timeshare_warning warning,
			 enum timeshare_arm_kind kind, uint64_t ns, uint32_t n_calls);

/*
 * The tail, in us for a burst of usual length: the mean of the second to the fourth longest of the
 * last 32 bursts; of fewer, the same part. The longest may be chance. 0: there is none.
 */
uint64_t preempt_choice_tail(const struct timeshare_arm *arm, enum timeshare_arm_kind kind);

/* The second longest of n values; of one value that value, of none 0. */
uint32_t preempt_choice_second_of(const uint32_t *us, uint32_t n);

/* The median of n values, TIMESHARE_ARM_SAMPLES at most; of none 0. */
uint32_t preempt_choice_median_of(const uint32_t *values, uint32_t n);

#endif
