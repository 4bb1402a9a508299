/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_SIM_ENGINE_H
#define NVS_SIM_ENGINE_H

/*
 * One GPU in virtual time: a latency-critical client whose requests come one after another,
 * others that compute beside it, and, but for the driver's own slices, the scheduler's
 * machine for shares of time (core/timeshare/timeshare.h) with messages, freezes and thaws that
 * take time.
 *
 * The GPU gives each client with work its slice in turn; a switch costs switch_ns, in which
 * nobody computes. A request is n_pieces of work of equal length with gap_ns of host time
 * between them, in which the client has nothing on the GPU.
 *
 * The same configuration gives the same result.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ENGINE_BE_MAX 15

enum engine_mode {
	ENGINE_MODE_DEFAULT, /* the driver's slices, the same for all */
	ENGINE_MODE_SLICES,  /* long for the critical, short for the others; nobody is held */
	ENGINE_MODE_FREEZE,  /* the others are held during bursts */
	ENGINE_MODE_HINT,    /* and from a hint on that comes hint_ns ahead */
	ENGINE_MODE_COUNT_
};

struct engine_request {
	uint64_t at_ns;
	uint64_t service_ns; /* GPU time */
};

struct engine_config {
	enum engine_mode mode;
	const struct engine_request *requests; /* in the order of their times */
	size_t n_requests;
	uint32_t n_pieces; /* at least 1 */
	uint64_t gap_ns;
	uint32_t n_be;
	double be_rate;        /* kernels a second, of each, Poisson; 0: always at work */
	uint64_t be_kernel_ns; /* length of one */
	uint64_t seed;         /* of the others' arrivals */
	uint64_t length_ns;    /* nothing is counted beyond */
	uint64_t warmup_ns;    /* requests before are not counted */
	uint64_t slice_ns;     /* the driver's */
	uint64_t switch_ns;
	uint64_t freeze_ns, thaw_ns;
	uint64_t wire_ns;       /* a message, one way, and what is done about it */
	uint64_t hint_ns;       /* ENGINE_MODE_HINT only */
	uint64_t burst_idle_ns; /* without work for so long, a burst is over */
};

struct engine_result {
	uint64_t n_lc;                             /* requests that have ended */
	uint64_t lc_p50_ns, lc_p99_ns, lc_mean_ns; /* from arrival to end */
	uint64_t wait_p99_ns;                      /* of that: not service, not gaps */
	double wait_mean_ns;
	uint64_t n_be; /* kernels that have ended */
	uint64_t lc_gpu_ns, be_gpu_ns, length_ns;
	uint64_t n_holds;
};

/*
 * Returns 0 or -ENOMEM. Requests that have not ended by length_ns are not counted: look at
 * n_lc to see that it kept up.
 */
int engine_run(const struct engine_config *config, struct engine_result *ret);

#endif
