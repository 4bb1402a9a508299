/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CORE_ARM_H
#define NVS_CORE_ARM_H

/*
 * Whether to hold others during a critical client's bursts, or to leave it to the slices:
 * whichever has shown the shorter tail of its bursts. Holding costs the others their time,
 * so it has to be better, not as good. At first both are tried in turn; later the worse
 * one now and then, rarely enough not to be in the 99th percentile itself.
 */

#include "core/share/share.h"

/* For the burst that begins. */
enum share_arm_kind arm_next(struct share_arm *arm);

/* The last that arm_next() was asked for: of the first, or one that tries the worse one. */
bool arm_is_first(const struct share_arm *arm);
bool arm_is_trial(const struct share_arm *arm);

/* A burst of that kind took ns. */
void arm_note(struct share_arm *arm, enum share_arm_kind kind, uint64_t ns);

/* The second longest of the last ones, us: about their 98th percentile. */
uint32_t arm_tail(const struct share_arm *arm, enum share_arm_kind kind);

/* The same of any n; of one itself, and 0 of none. */
uint32_t arm_tail_of(const uint32_t *us, uint32_t n);

#endif
