/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_CLAIMS_H
#define NVS_DAEMON_CLAIMS_H

/*
 * Clients' claims of a GPU's time: what each may claim, and which tools may change it.
 *
 * Threading: the loop's.
 */

#include "core/sched.h"
#include "nvshare/protocol.h"

#include <stdbool.h>
#include <stdint.h>

struct server;
struct peer;

/* peer registers with claim: peer->claim is what it may have of that. */
void claims_take(struct server *server, struct peer *peer, const struct nvshare_claim *claim);

/* priority, or the highest that peer may claim; then there is a line in the log. */
uint32_t claims_priority(struct server *server, const struct peer *peer, uint32_t priority);

/* The same claim, as core/sched has it. */
struct sched_claim claims_core(const struct nvshare_claim *claim);

/* Whether peer may change all settings: root, the scheduler's user, and the group "nvshare". */
bool claims_may_steer(const struct server *server, const struct peer *peer);

/* Whether key is one of a client, not of the node. */
bool claims_is_key(uint32_t key);

/* A tool changes one of a client's settings. It gets its answer. */
void claims_set(struct server *server, struct peer *tool, uint32_t seq,
		const struct nvshare_set *set);

#endif
