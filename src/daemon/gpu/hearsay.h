/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_HEARSAY_H
#define NVS_DAEMON_HEARSAY_H

/*
 * Facts about a GPU that only clients know. A client's word counts as long as it is there. One user
 * has one vote (daemon/gpu/votes.h), and the vote of trusted users goes before all others. Where
 * NVSHARE_GPUS names GPUs, no client is asked.
 *
 * Threading: the loop's.
 */

#include "nvshare/protocol.h"

#include <stdbool.h>
#include <stdint.h>

struct server;
struct peer;

/*
 * Finds the GPU of newcomer, which is peer->gpu then. false: the GPU is not known, and is not
 * listed on newcomer's word.
 */
bool hearsay_find(struct server *server, struct peer *newcomer, const struct nvshare_register *reg);

/* A client of GPU index is gone, or did not come. true: the GPU's total is another one now. */
bool hearsay_left(struct server *server, uint32_t index);

/* peer reports bytes of contexts; its first such report counts, or a smaller one. */
void hearsay_note_context(const struct server *server, struct peer *peer, uint64_t bytes);

/* The cost of peer's first context is known: NVML shows most bytes of its process. */
void hearsay_confirm(struct peer *peer, uint64_t most);

/* The bytes that a context costs, as peer is told; 0: nobody knows. */
uint64_t hearsay_context(const struct server *server, const struct peer *peer);

#endif
