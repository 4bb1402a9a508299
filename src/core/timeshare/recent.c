/* SPDX-License-Identifier: Apache-2.0 */
#include "core/timeshare/recent.h"

#include "core/u64.h"

#include <assert.h>
#include <string.h>

#define SECOND_NS 1000000000ull
#define RING      (RECENT_SECONDS + 1)

void recent_note(struct recent *recent, const uint64_t totals[RECENT_TOTAL_COUNT_], uint64_t now_ns)
{
	uint64_t second = now_ns / SECOND_NS, last[RECENT_TOTAL_COUNT_];

	assert(second >= recent->second);
	if (!recent->begin_ns) {
		recent->begin_ns = now_ns;
		recent->second = second;
		for (uint32_t i = 0; i < RING; i++)
			memcpy(recent->at_end[i], totals, sizeof(recent->at_end[i]));
	}
	memcpy(last, recent->at_end[recent->second % RING], sizeof(last));
	/* Nothing has changed in the seconds between. */
	for (uint64_t s = u64_max(recent->second + 1, u64_excess(second, RECENT_SECONDS));
	     s < second; s++)
		memcpy(recent->at_end[s % RING], last, sizeof(last));
	memcpy(recent->at_end[second % RING], totals, sizeof(last));
	recent->second = second;
}

uint64_t recent_growth(const struct recent *recent, const uint64_t totals[RECENT_TOTAL_COUNT_],
		       uint64_t now_ns, uint64_t ret_growth[RECENT_TOTAL_COUNT_])
{
	uint64_t second = now_ns / SECOND_NS;
	uint64_t from = u64_excess(second, RECENT_SECONDS);
	uint64_t begin_ns = u64_max(recent->begin_ns, (from + 1) * SECOND_NS);

	for (uint32_t i = 0; i < RECENT_TOTAL_COUNT_; i++) {
		const uint64_t *base = recent->at_end[u64_min(from, recent->second) % RING];

		ret_growth[i] = recent->begin_ns ? totals[i] - base[i] : 0;
	}
	return u64_max(now_ns > begin_ns ? now_ns - begin_ns : 0, SECOND_NS);
}
