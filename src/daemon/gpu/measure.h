/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_MEASURE_H
#define NVS_DAEMON_MEASURE_H

/*
 * Measures how much of each GPU others than our clients use: asks NVML, sorts processes by whether
 * they are clients, and tells the core. Calls into NVML may block.
 *
 * Threading: the loop's.
 */

#include "daemon/deadlines.h"
#include "daemon/gpu/outsiders.h"
#include "util/clock.h"

#include <stdbool.h>
#include <stdint.h>

/* The period of samples while somebody waits, or memory of a client that left is not free. */
#define MEASURE_PERIOD_NS (1000 * CLOCK_NS_PER_MS)

struct server;
struct peer;

struct measure {
	struct outsiders outsiders;
	struct deadline sample; /* not set: nobody waits, and all that has been left is free */
};

void measure_init(struct server *server);

/* Somebody waits: all GPUs are measured soon, if no sample is planned. */
void measure_wake(struct server *server);

/* GPU index is measured, or all GPUs are, but during the grace. The core hears of a change. */
void measure_sample(struct server *server, uint32_t index);
void measure_sample_all(struct server *server);

/*
 * peer, whose account is up to date, found the card full within its budget. true: others have more
 * than the core knows, and measure_tell() has to follow.
 */
bool measure_full(struct server *server, const struct peer *peer);

/* The grace has ended: what clients have by their reports is there for certain. */
void measure_end_grace(struct server *server, uint32_t index);

/* Tells the core of GPU index, as server->gpus has it. */
void measure_tell(struct server *server, uint32_t index);

/* The core hears of GPUs that it does not know, or whose total is another by now. */
void measure_tell_new(struct server *server);

/* peer, whose account is up to date, is about to register on peer->gpu. */
void measure_join(struct server *server, const struct peer *peer);

/* peer leaves its GPU; its account follows. */
void measure_leave(struct server *server, const struct peer *peer);

/* A client of GPU index is gone, or did not come: what it alone said of the GPU goes with it. */
void measure_left(struct server *server, uint32_t index);

#endif
