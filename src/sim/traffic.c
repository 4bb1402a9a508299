/* SPDX-License-Identifier: Apache-2.0 */

#include "sim/traffic.h"

#include "util/parse.h"
#include "util/prng.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define US_MAX (UINT64_MAX / 1000 / 1000)

/* Exponential with mean 1. The uniform draw is never 0, so log() is finite. */
static double draw_exponential(uint64_t *rng)
{
	return -log(((double)(prng_next(rng) >> 11) + 0.5) * 0x1p-53);
}

uint64_t traffic_gap(uint64_t *rng, double rate)
{
	return (uint64_t)(draw_exponential(rng) / rate * 1e9) + 1;
}

static int add_request(struct traffic *traffic, size_t *size, uint64_t at_ns, uint64_t service_ns)
{
	if (traffic->n == *size) {
		size_t new_size = *size ? *size * 2 : 1024;
		void *new = realloc(traffic->requests, new_size * sizeof(*traffic->requests));

		if (!new)
			return -ENOMEM;
		traffic->requests = new;
		*size = new_size;
	}
	traffic->requests[traffic->n++] =
		(struct engine_request){at_ns, service_ns ? service_ns : 1};
	return 0;
}

int traffic_poisson(struct traffic *traffic, uint64_t seed, double rate, uint64_t service_ns,
		    bool is_exponential, uint64_t length_ns)
{
	uint64_t rng = seed, at_ns = 0;
	size_t size = 0;
	int r = 0;

	*traffic = (struct traffic){0};
	if (rate <= 0)
		return 0;
	for (at_ns = traffic_gap(&rng, rate); at_ns < length_ns && !r;
	     at_ns += traffic_gap(&rng, rate)) {
		uint64_t ns = is_exponential
				      ? (uint64_t)((double)service_ns * draw_exponential(&rng))
				      : service_ns;

		r = add_request(traffic, &size, at_ns, ns);
	}
	if (r)
		traffic_free(traffic);
	return r;
}

static bool is_line_good(char *line, uint64_t last_us, uint64_t *ret_at_us,
			 uint64_t *ret_service_us)
{
	char *comma = strchr(line, ',');

	if (!comma)
		return false;
	*comma = '\0';
	return !parse_u64(line, 0, US_MAX, ret_at_us) &&
	       !parse_u64(comma + 1, 1, US_MAX, ret_service_us) && *ret_at_us >= last_us;
}

int traffic_read(struct traffic *traffic, FILE *file)
{
	char line[128];
	uint64_t at_us = 0, service_us, last_us = 0;
	size_t size = 0;
	int n = 0, r = 0;

	*traffic = (struct traffic){0};
	while (!r && fgets(line, sizeof(line), file)) {
		n++;
		line[strcspn(line, "\r\n")] = '\0';
		if (line[0] == '\0' || line[0] == '#' || isalpha((unsigned char)line[0]))
			continue;
		if (is_line_good(line, last_us, &at_us, &service_us))
			r = add_request(traffic, &size, at_us * 1000, service_us * 1000);
		else
			r = n;
		last_us = at_us;
	}
	if (!r && ferror(file))
		r = -errno;
	if (r)
		traffic_free(traffic);
	return r;
}

void traffic_free(struct traffic *traffic)
{
	free(traffic->requests);
	*traffic = (struct traffic){0};
}

static int compare_u64(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

uint64_t traffic_quantile(uint64_t *values, size_t n, uint32_t percent)
{
	size_t rank = (n * percent + 99) / 100;

	qsort(values, n, sizeof(*values), compare_u64);
	return values[rank ? rank - 1 : 0];
}
