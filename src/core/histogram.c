/* SPDX-License-Identifier: Apache-2.0 */
#include "core/histogram.h"

#define US ((uint64_t)1000)
#define MS (1000 * US)
#define S  (1000 * MS)

/* clang-format off */
const uint64_t histogram_bounds_ns[HISTOGRAM_BOUNDS] = {
	10 * US, 25 * US, 50 * US,
	100 * US, 250 * US, 500 * US,
	1 * MS, 2500 * US, 5 * MS,
	10 * MS, 25 * MS, 50 * MS,
	100 * MS, 250 * MS, 500 * MS,
	1 * S, 2500 * MS, 5 * S,
	10 * S, 25 * S, 50 * S,
	100 * S, 250 * S, 500 * S,
	1000 * S,
};
/* clang-format on */

void histogram_add(struct histogram *histogram, uint64_t ns)
{
	uint32_t i = 0;

	while (i < HISTOGRAM_BOUNDS && ns > histogram_bounds_ns[i])
		i++;
	histogram->n[i]++;
	histogram->sum_ns += ns;
}
