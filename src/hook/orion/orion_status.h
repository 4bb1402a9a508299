/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_ORION_STATUS_H
#define NVS_HOOK_ORION_STATUS_H

/*
 * The work of the scheduler inside the process so far, for the report to the node's scheduler.
 * Threading: any thread; a short lock.
 */

#include <stdbool.h>
#include <stdint.h>

struct orion_status {
	uint32_t n_clients;                         /* of orion_start_scheduler() */
	uint32_t n_waiting;                         /* of them, at this moment */
	uint64_t hp_ops, be_ops, be_waits, wait_us; /* as in struct orion_stats, since the start */
};

/* false: no scheduler is started. */
bool orion_status_read(struct orion_status *ret);

#endif
