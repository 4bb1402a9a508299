/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CORE_BURST_END_H
#define NVS_CORE_BURST_END_H

/*
 * How long a program must have been idle before its burst of work counts as over. Others wait
 * until then; but who ends a burst in one of its pauses lets them in between. So it is what
 * the program is told to have at first, and then as little as its pauses allow: of the last
 * bursts all but one had none that was half as long. After a long burst a longer one costs
 * others little, and long ones, of programs that launch one kernel after the other, have
 * pauses of any kind: so it is a part of the burst, too.
 *
 * Pure; not thread-safe.
 */

#include <stdint.h>

#define QUIET_BURSTS 64u /* one in so many is not looked at: it may have met anything */
#define QUIET_PART   5u  /* never less than this part of the most */
#define QUIET_LONG   8u  /* nor than this part of the burst; both only up to the most */

struct burst_end {
	uint32_t pauses_us[QUIET_BURSTS]; /* the longest in each of the last */
	uint32_t n_bursts;
	uint32_t pause_us; /* the longest since the last burst ended, or was taken for ended */
};

/* The program has work again after it had none for pause_ns; most_ns as below. */
void burst_end_note_pause(struct burst_end *quiet, uint64_t pause_ns, uint64_t most_ns);

void burst_end_note_end(struct burst_end *quiet);

/* Nanoseconds, after a burst of burst_ns; most_ns (NVSHARE_BURST_IDLE_US) at the most. */
uint64_t burst_end_ns(const struct burst_end *quiet, uint64_t burst_ns, uint64_t most_ns);

#endif
