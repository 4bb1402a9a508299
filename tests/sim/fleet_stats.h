/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_TESTS_SIM_FLEET_STATS_H
#define NVS_TESTS_SIM_FLEET_STATS_H

/* The figures of a fleet's run. */

#include "fleet_trace.h"

#define FLEET_BINS 96 /* of the run */

struct fleet_samples {
	float *at;
	size_t n, size;
};

struct fleet_stats {
	uint64_t bin_ns;
	double busy_s[FLEET_BINS];               /* GPU time in which programs computed */
	double kind_s[FLEET_KINDS];              /* the same, by kind */
	double asked_s[FLEET_KINDS];             /* time in which programs had work, begun or not */
	struct fleet_samples wait[FLEET_KINDS];  /* s in the fleet's queue, ended or not */
	struct fleet_samples begin[FLEET_KINDS]; /* s from asking for work to its first turn */
	struct fleet_samples delay[FLEET_KINDS]; /* s by which work took longer than alone */
	struct fleet_samples slowdown; /* of trainings that ended: run time over length alone */
	struct fleet_samples stretch[FLEET_KINDS]; /* the same of all, with the wait */
	double train_run_s, train_alone_s;         /* of these trainings, in sum */
	uint64_t n_done[FLEET_KINDS], n_out_of_memory[FLEET_KINDS], n_given_up[FLEET_KINDS];
	uint64_t n_running[FLEET_KINDS], n_queued[FLEET_KINDS]; /* at the end */
	uint64_t bytes_out, bytes_in, n_evictions;
	uint64_t n_events, n_steps; /* of nodes; of the core */
	uint64_t host_most;
};

void fleet_samples_add(struct fleet_samples *samples, double value);

/* Sorts them. q from 0 to 1; 0 without samples. */
double fleet_samples_quantile(struct fleet_samples *samples, double q);
void fleet_samples_free(struct fleet_samples *samples);

/* GPU seconds from begin to end at so much a second. */
void fleet_stats_busy(struct fleet_stats *stats, uint64_t begin_ns, uint64_t end_ns, double share);

void fleet_stats_free(struct fleet_stats *stats);

#endif
