/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_SIM_TRAFFIC_H
#define NVS_SIM_TRAFFIC_H

/* What comes when: requests drawn from a seed, or read from a file; quantiles of results. */

#include "sim/engine.h"

#include <stdio.h>

struct traffic {
	struct engine_request *requests;
	size_t n;
};

/* Time until the next of a Poisson process, ns, at least 1; rate a second, > 0. */
uint64_t traffic_gap(uint64_t *rng, double rate);

/*
 * Poisson arrivals until length_ns, services of service_ns: all the same, or exponential
 * around it. Returns 0 or -ENOMEM.
 */
int traffic_poisson(struct traffic *traffic, uint64_t seed, double rate, uint64_t service_ns,
		    bool is_exponential, uint64_t length_ns);

/*
 * Lines "arrival_us,service_us", in order; empty ones and those that begin with # or with a
 * letter count for nothing. Returns 0, -ENOMEM, -errno of reading, or the number of the
 * first bad line.
 */
int traffic_read(struct traffic *traffic, FILE *file);

void traffic_free(struct traffic *traffic);

/* The percent'th percentile of n > 0 values, which are sorted by it. */
uint64_t traffic_quantile(uint64_t *values, size_t n, uint32_t percent);

#endif
