/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CORE_RECENT_H
#define NVS_CORE_RECENT_H

/*
 * How much a GPU's totals have grown in the last ten seconds.
 *
 * The totals are kept at the end of each second. So the window begins with a second, and is nine to
 * ten seconds long.
 *
 * Pure: the caller gives the time. Ownership: struct recent is the caller's, and zeroed at first.
 * Threading: none.
 */

#include <stdint.h>

#define RECENT_SECONDS 10u

/* Of each class: requests and bursts that ended, and GPU time in ns. */
enum recent_total {
	RECENT_LC_TASKS,
	RECENT_BE_TASKS,
	RECENT_LC_GPU,
	RECENT_BE_GPU,
	RECENT_TOTAL_COUNT_
};

struct recent {
	uint64_t begin_ns;                                        /* the first note; 0: none yet */
	uint64_t second;                                          /* of the last note */
	uint64_t at_end[RECENT_SECONDS + 1][RECENT_TOTAL_COUNT_]; /* by second, a ring */
};

/* The totals are such now. They never fall, and now_ns neither. Each change must be noted. */
void recent_note(struct recent *recent, const uint64_t totals[RECENT_TOTAL_COUNT_],
		 uint64_t now_ns);

/*
 * totals: as noted last. Returns the length of the window in ns, and sets the growth in it. After
 * the first note the window counts as a second long, until it is one.
 */
uint64_t recent_growth(const struct recent *recent, const uint64_t totals[RECENT_TOTAL_COUNT_],
		       uint64_t now_ns, uint64_t ret_growth[RECENT_TOTAL_COUNT_]);

#endif
