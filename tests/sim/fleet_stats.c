/* SPDX-License-Identifier: Apache-2.0 */
#include "fleet_stats.h"

#include <math.h>
#include <stdlib.h>

void fleet_samples_add(struct fleet_samples *samples, double value)
{
	if (samples->n == samples->size) {
		samples->size = samples->size ? 2 * samples->size : 256;
		samples->at = realloc(samples->at, samples->size * sizeof(*samples->at));
		if (!samples->at)
			abort();
	}
	samples->at[samples->n++] = (float)value;
}

static int compare_floats(const void *left, const void *right)
{
	const float *a = left, *b = right;

	return *a < *b ? -1 : *a > *b;
}

double fleet_samples_quantile(struct fleet_samples *samples, double q)
{
	if (samples->n == 0)
		return 0;
	qsort(samples->at, samples->n, sizeof(*samples->at), compare_floats);
	return (double)samples->at[(size_t)floor(q * (double)(samples->n - 1))];
}

void fleet_samples_free(struct fleet_samples *samples)
{
	free(samples->at);
	*samples = (struct fleet_samples){0};
}

void fleet_stats_busy(struct fleet_stats *stats, uint64_t begin_ns, uint64_t end_ns, double share)
{
	while (begin_ns < end_ns) {
		uint64_t bin = begin_ns / stats->bin_ns, next_ns = (bin + 1) * stats->bin_ns;
		uint64_t to_ns = next_ns < end_ns ? next_ns : end_ns;

		if (bin < FLEET_BINS)
			stats->busy_s[bin] += share * (double)(to_ns - begin_ns) / 1e9;
		begin_ns = to_ns;
	}
}

void fleet_stats_free(struct fleet_stats *stats)
{
	for (int kind = 0; kind < FLEET_KINDS; kind++) {
		fleet_samples_free(&stats->wait[kind]);
		fleet_samples_free(&stats->begin[kind]);
		fleet_samples_free(&stats->delay[kind]);
		fleet_samples_free(&stats->stretch[kind]);
	}
	fleet_samples_free(&stats->slowdown);
}
