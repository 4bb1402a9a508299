/* SPDX-License-Identifier: Apache-2.0 */
#include "timing.h"

#include <stdlib.h>
#include <time.h>

#include "util/clock.h"

uint64_t timing_cpu_ns(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * CLOCK_NS_PER_SEC + (uint64_t)t.tv_nsec;
}

static int timing_by_ns(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

void timing_sort(uint64_t *ns, size_t n)
{
	qsort(ns, n, sizeof(*ns), timing_by_ns);
}

static int timing_by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

double timing_median(double *values, size_t n)
{
	qsort(values, n, sizeof(*values), timing_by_value);
	return values[n / 2];
}
