/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVSHARE_CLAIM_H
#define NVSHARE_CLAIM_H

/* A program's claim to a GPU's time. Both the wire (protocol.h) and nvshare.h use it. */

#include <stdint.h>

#define NVSHARE_WEIGHT_MIN     1u
#define NVSHARE_WEIGHT_MAX     10000u
#define NVSHARE_WEIGHT_DEFAULT 100u
#define NVSHARE_SLO_US_MAX     3600000000u /* one hour */

enum nvshare_priority {
	NVSHARE_PRIORITY_LOW,
	NVSHARE_PRIORITY_NORMAL,
	NVSHARE_PRIORITY_HIGH,
	NVSHARE_PRIORITY_CRITICAL, /* latency-critical: others leave the GPU within a millisecond */
	NVSHARE_PRIORITY_COUNT
};

/* A client claims these values, and the scheduler answers with those that it grants. */
struct nvshare_claim {
	uint32_t priority;      /* enum nvshare_priority */
	uint32_t weight;        /* NVSHARE_WEIGHT_MIN to _MAX; 0: the default */
	uint32_t slo_us;        /* limit for a request or burst, to NVSHARE_SLO_US_MAX; 0: none */
	uint32_t compute_limit; /* percent of a GPU's time, 1 to 100; 0: no limit */
};

#endif
