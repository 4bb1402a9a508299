/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_SNAPSHOT_H
#define NVS_DAEMON_SNAPSHOT_H

/*
 * Clients' parts of a status, so that many tools that ask at once share the work.
 *
 * A part serves every request that came before the part was made. So each answer is true at its
 * request or later, and a client's part is made once for all tools that wait.
 *
 * Pure. Ownership: the memory is the caller's. Threading: none.
 */

#include "nvshare/protocol.h"

#include <stdint.h>

struct snapshot_part {
	uint64_t n_asked;    /* requests that had come when it was made; 0: never made */
	uint32_t generation; /* of the peer in that slot */
	struct nvshare_status_client client;
};

struct snapshot {
	struct snapshot_part *parts; /* by slot, zeroed at first */
	uint64_t n_asked;
};

/* A request has come. Returns its ticket. */
uint64_t snapshot_ask(struct snapshot *snapshot);

/* The part, if it serves ticket; NULL: the part must be made. */
const struct nvshare_status_client *snapshot_find(const struct snapshot *snapshot, uint32_t slot,
						  uint32_t generation, uint64_t ticket);

/* The part is made now; the caller fills it. */
struct nvshare_status_client *snapshot_make(struct snapshot *snapshot, uint32_t slot,
					    uint32_t generation);

#endif
