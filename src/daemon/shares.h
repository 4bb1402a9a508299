/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_SHARES_H
#define NVS_DAEMON_SHARES_H

/*
 * The GPU's time: each call feeds one event to core/timeshare, and carries out its actions before
 * it returns. Events for sched that follow wait in the relay (daemon/relay.h).
 *
 * Threading: the loop's.
 */

#include "core/timeshare/timeshare.h"
#include "daemon/deadlines.h"
#include "nvshare/protocol.h"

struct server;
struct peer;

struct shares {
	struct timeshare timeshare;
	struct recent recent[TIMESHARE_GPUS_MAX];
	struct timeshare_client *clients; /* by slot */
	struct deadline due;              /* of timeshare */
	struct deadline power;            /* power is asked for; not set: by tools only */
};

void shares_init(struct server *server);

/* peer has become a client, with peer->claim; has another claim now; ends. */
void shares_join(struct server *server, struct peer *peer);
void shares_claim(struct server *server, struct peer *peer);
void shares_gone(struct server *server, struct peer *peer);

/* The relay tells whether peer runs, by core/sched; or only tells it if peer does not run. */
void shares_follow(struct server *server, struct peer *peer);
void shares_stop(struct server *server, struct peer *peer);

/* Messages of a client. */
void shares_activity(struct server *server, struct peer *peer, const struct nvshare_activity *a);
void shares_set(struct server *server, struct peer *peer, const struct nvshare_share_set *set);

/* server->settings may be others now. */
void shares_config(struct server *server);

/* The growth of gpu's totals, and the window's length in ns: core/timeshare/recent.h. */
uint64_t shares_recent(const struct server *server, uint32_t gpu,
		       uint64_t ret_growth[RECENT_TOTAL_COUNT_]);

/* The index stands for another GPU than before. No client is on it. */
void shares_other_gpu(struct server *server, uint32_t index);

/* Asks NVML what the GPUs draw, for the energy of those that use them. */
void shares_power(struct server *server);

#endif
