/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CORE_SLICE_H
#define NVS_CORE_SLICE_H

/*
 * How long a client computes before another one's turn on the hardware.
 *
 * - A switch costs about 0.2 ms, so equals have equal_slice_us or more, in proportion to their
 *   weights.
 * - A class below an active one has its own slice_us, so that the higher class waits little. Beside
 *   critical clients it has be_slice_us.
 * - One critical client keeps the GPU as long as it has work; several are equals.
 * - Capped critical clients leave others the rest of the time, in rounds of 10 ms or more.
 */

#include "core/timeshare/timeshare.h"

/* Plans the slices of the clients that are active on gpu now. */
void slice_plan(const struct timeshare_config *config, const struct timeshare_gpu *gpu,
		struct timeshare_slices *ret_slices);

/* The slice of one client in us, TIMESHARE_SLICE_MIN to _MAX. */
uint64_t slice_of(const struct timeshare_slices *slices, const struct timeshare_part *part);

#endif
