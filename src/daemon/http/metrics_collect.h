/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_METRICS_COLLECT_H
#define NVS_DAEMON_METRICS_COLLECT_H

/*
 * The numbers of the metrics, out of the server's state.
 *
 * Threading: the loop's.
 */

#include "core/histogram.h"
#include "daemon/http/metrics.h"

#include <stdint.h>

struct server;

/* Of one GPU: events that are counted where they happen. Another GPU at its index starts at 0. */
struct metrics_counts {
	uint64_t n_grants, n_stop_failures, n_refusals;
	struct histogram queue_wait, stop, wake;
};

/* Fills all of ret. */
void metrics_collect(struct server *server, struct metrics *ret);

#endif
