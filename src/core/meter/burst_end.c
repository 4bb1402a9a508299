/* SPDX-License-Identifier: Apache-2.0 */

#include "core/meter/burst_end.h"

void burst_end_note_pause(struct burst_end *quiet, uint64_t pause_ns, uint64_t most_ns)
{
	/* After a longer one it is another burst, whatever was learned. */
	if (pause_ns > most_ns)
		return;
	if (pause_ns / 1000 > quiet->pause_us)
		quiet->pause_us = (uint32_t)(pause_ns / 1000);
}

void burst_end_note_end(struct burst_end *quiet)
{
	quiet->pauses_us[quiet->n_bursts++ % QUIET_BURSTS] = quiet->pause_us;
	quiet->pause_us = 0;
	if (quiet->n_bursts == 2 * QUIET_BURSTS)
		quiet->n_bursts = QUIET_BURSTS;
}

static uint32_t second_longest(const struct burst_end *quiet)
{
	uint32_t first = quiet->pause_us, second = 0;

	for (uint32_t i = 0; i < QUIET_BURSTS; i++) {
		uint32_t us = quiet->pauses_us[i];

		if (us >= first) {
			second = first;
			first = us;
		} else if (us > second) {
			second = us;
		}
	}
	return second;
}

uint64_t burst_end_ns(const struct burst_end *quiet, uint64_t burst_ns, uint64_t most_ns)
{
	uint64_t ns = second_longest(quiet) * 2000ull;

	if (ns < burst_ns / QUIET_LONG)
		ns = burst_ns / QUIET_LONG;
	if (quiet->n_bursts < QUIET_BURSTS || ns > most_ns)
		return most_ns;
	return ns > most_ns / QUIET_PART ? ns : most_ns / QUIET_PART;
}
