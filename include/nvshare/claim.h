/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVSHARE_CLAIM_H
#define NVSHARE_CLAIM_H

/* What a program may claim of a GPU's time: for the wire and for the programs' own header. */

#include <stdint.h>

#define NVSHARE_WEIGHT_MIN     1u
#define NVSHARE_WEIGHT_MAX     10000u
#define NVSHARE_WEIGHT_DEFAULT 100u
#define NVSHARE_SLO_US_MAX     3600000000u /* an hour */

enum nvshare_priority {
	NVSHARE_PRIORITY_LOW,
	NVSHARE_PRIORITY_NORMAL,
	NVSHARE_PRIORITY_HIGH,
	NVSHARE_PRIORITY_CRITICAL, /* latency-critical: others make way within a millisecond */
	NVSHARE_PRIORITY_COUNT
};

/* What a client claims, and what it was given; nvsharectl changes each of them. */
struct nvshare_claim {
	uint32_t priority;      /* enum nvshare_priority */
	uint32_t weight;        /* NVSHARE_WEIGHT_MIN to _MAX; 0: the default */
	uint32_t slo_us;        /* of a request or burst, to NVSHARE_SLO_US_MAX; 0: none */
	uint32_t compute_limit; /* percent of a GPU's time, 1 to 100; 0: none */
};

#endif
