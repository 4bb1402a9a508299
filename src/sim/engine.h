/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_SIM_ENGINE_H
#define NVS_SIM_ENGINE_H

/*
 * One GPU in virtual time. A latency-critical client serves its requests one after another, and
 * best-effort clients compute beside it. In all modes but ENGINE_MODE_DEFAULT the scheduler's
 * core/timeshare steers them; messages, freezes and thaws take time.
 *
 * The GPU gives each client with work its slice in turn. A switch takes switch_ns, in which no
 * client computes. A request is n_pieces of work of equal length. Between two of them the client
 * has gap_ns of host time, and nothing on the GPU.
 *
 * Pure: the same configuration gives the same result. Thread-safe.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ENGINE_BE_MAX 15

enum engine_mode {
	ENGINE_MODE_DEFAULT, /* the driver's slices, the same for all clients */
	ENGINE_MODE_SLICES,  /* long slices for the critical client, short ones for the others */
	ENGINE_MODE_FREEZE,  /* the others are held during bursts */
	ENGINE_MODE_HINT,    /* the others are held from a hint on, hint_ns ahead of a request */
	ENGINE_MODE_COUNT_
};

struct engine_request {
	uint64_t at_ns;
	uint64_t service_ns; /* GPU time */
};

struct engine_config {
	enum engine_mode mode;
	const struct engine_request *requests; /* borrowed; sorted by at_ns */
	size_t n_requests;
	uint32_t n_pieces; /* pieces of work of a request, at least 1 */
	uint64_t gap_ns;
	uint32_t n_be;         /* best-effort clients, at most ENGINE_BE_MAX */
	double be_rate;        /* Poisson arrivals of kernels a second and client; 0: always busy */
	uint64_t be_kernel_ns; /* length of a kernel */
	uint64_t seed;         /* of these arrivals */
	uint64_t length_ns;    /* end of the run */
	uint64_t warmup_ns;    /* earlier requests are not counted */
	uint64_t slice_ns;     /* the driver's slice */
	uint64_t switch_ns;
	uint64_t freeze_ns, thaw_ns;
	uint64_t wire_ns;       /* a message, one way, with its handling */
	uint64_t hint_ns;       /* ENGINE_MODE_HINT only */
	uint64_t burst_idle_ns; /* a burst ends after so long without work */
};

struct engine_result {
	uint64_t n_lc;                             /* requests that have ended */
	uint64_t lc_p50_ns, lc_p99_ns, lc_mean_ns; /* latency, from arrival to end */
	uint64_t wait_p99_ns;                      /* latency without service and gaps */
	double wait_mean_ns;
	uint64_t n_be; /* kernels that have ended */
	uint64_t lc_gpu_ns, be_gpu_ns, length_ns;
	uint64_t n_holds;
};

/*
 * Returns 0 or -ENOMEM. Requests that have not ended by length_ns are not counted, so an
 * overloaded run shows in n_lc.
 */
int engine_run(const struct engine_config *config, struct engine_result *ret);

#endif
