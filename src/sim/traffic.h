/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_SIM_TRAFFIC_H
#define NVS_SIM_TRAFFIC_H

/* Requests, drawn from a seed or read from a file, and quantiles of results. */

#include "sim/engine.h"

#include <stdio.h>

struct traffic {
	struct engine_request *requests;
	size_t n;
};

/* Time to the next arrival of a Poisson process, ns, at least 1. rate: arrivals a second, > 0. */
uint64_t traffic_gap(uint64_t *rng, double rate);

/*
 * Draws Poisson arrivals until length_ns. Services are service_ns each, or exponential with
 * this mean. Returns 0 or -ENOMEM. The caller frees traffic; after a failure it is empty.
 */
int traffic_poisson(struct traffic *traffic, uint64_t seed, double rate, uint64_t service_ns,
		    bool is_exponential, uint64_t length_ns);

/*
 * Reads lines "arrival_us,service_us", sorted by arrival. Empty lines, and lines that begin with
 * # or a letter, are skipped. Returns 0, -errno, or the number of the first bad line. The caller
 * frees traffic; after a failure it is empty.
 */
int traffic_read(struct traffic *traffic, FILE *file);

void traffic_free(struct traffic *traffic);

/* The percentile percent of n > 0 values. Sorts values. */
uint64_t traffic_quantile(uint64_t *values, size_t n, uint32_t percent);

#endif
