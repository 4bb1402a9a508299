/* SPDX-License-Identifier: Apache-2.0 */
#include "spread.h"

#include <stdio.h>
#include <stdlib.h>

static const uint64_t bounds_us[] = {50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000};
#define N_BOUNDS (sizeof(bounds_us) / sizeof(bounds_us[0]))

static int spread_by_ns(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

void spread_sort(uint64_t *ns, uint64_t n)
{
	qsort(ns, n, sizeof(*ns), spread_by_ns);
}

void spread_print_head(const char *what)
{
	size_t i;

	printf("%-22s %6s %8s %8s %8s %8s us |", what, "n", "p50", "p90", "p99", "max");
	for (i = 0; i < N_BOUNDS; i++) {
		char bound[16];

		(void)snprintf(bound, sizeof(bound), "<%g", (double)bounds_us[i] / 1e3);
		printf(" %5s", bound);
	}
	printf("  more ms\n");
}

void spread_print(const char *name, uint64_t *ns, uint64_t n)
{
	uint64_t i = 0;
	size_t b;

	spread_sort(ns, n);
	printf("%-22s %6llu %8.0f %8.0f %8.0f %8.0f    |", name, (unsigned long long)n,
	       (double)ns[n / 2] / 1e3, (double)ns[n * 9 / 10] / 1e3,
	       (double)ns[n * 99 / 100] / 1e3, (double)ns[n - 1] / 1e3);
	for (b = 0; b < N_BOUNDS; b++) {
		uint64_t before = i;

		while (i < n && ns[i] < bounds_us[b] * 1000)
			i++;
		printf(" %5llu", (unsigned long long)(i - before));
	}
	printf(" %5llu\n", (unsigned long long)(n - i));
	fflush(stdout);
}
