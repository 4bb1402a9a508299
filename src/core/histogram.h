/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CORE_HISTOGRAM_H
#define NVS_CORE_HISTOGRAM_H

/*
 * Counts durations by fixed bounds. All histograms have the same bounds, so that those of several
 * nodes can be added up.
 *
 * Pure. Zeroed: empty. Threading: none.
 */

#include <stdint.h>

#define HISTOGRAM_BOUNDS 25

struct histogram {
	uint64_t n[HISTOGRAM_BOUNDS + 1]; /* at most the bound, above the last; the rest */
	uint64_t sum_ns;
};

/* 10 us to 1,000 s, three to a decade; rising. */
extern const uint64_t histogram_bounds_ns[HISTOGRAM_BOUNDS];

void histogram_add(struct histogram *histogram, uint64_t ns);

#endif
