/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_TESTS_BENCH_TIMING_H
#define NVS_TESTS_BENCH_TIMING_H

/* What benchmarks do with times; the clock on the wall is clock_now_ns(). */

#include <stddef.h>
#include <stdint.h>

/* Of the calling thread. */
uint64_t timing_cpu_ns(void);

void timing_sort(uint64_t *ns, size_t n);

/* Sorts them; n is not 0. */
double timing_median(double *values, size_t n);

#endif
