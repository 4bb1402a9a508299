/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_TESTS_SIM_FLEET_RUN_H
#define NVS_TESTS_SIM_FLEET_RUN_H

/*
 * A fleet of nodes, and the queue of jobs that wait for one. A job goes to the node with the most
 * free places, as Kubernetes does for a resource that is counted; the node chooses the GPU. Jobs
 * that wait are tried in the order of their submission.
 *
 * A job that ran out of memory is submitted again 300 s later, six times at most: Kubernetes' limit
 * of a pod's restart delay, and of a job's retries.
 */

#include "fleet_node.h"

struct fleet_setup {
	enum fleet_way way;
	uint32_t n_nodes, replicas;
	uint64_t length_ns;
	struct sched_config config; /* of each node's scheduler, under FLEET_NVSHARE */
	bool is_checked;            /* fleet_node_check() after each step of a node */
};

/* Aborts without memory. The caller ends stats by fleet_stats_free(). */
void fleet_run(const struct fleet_setup *setup, const struct fleet_trace *trace,
	       struct fleet_stats *stats);

#endif
