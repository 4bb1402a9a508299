/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CORE_RANK_H
#define NVS_CORE_RANK_H

/*
 * A GPU's queue in the order of its clients' ranks: by band, then key, then ticket. The
 * list g->queue walks it; a tree over the same clients finds places in it. Insertion,
 * removal and position take O(log n), expected. A client's rank does not change while it
 * is in.
 */

#include "core/sched.h"

#include <stdint.h>

void rank_insert(struct sched *sched, uint32_t client);
void rank_remove(struct sched *sched, uint32_t client);
/* From 1. */
uint32_t rank_position(const struct sched *sched, uint32_t client);

#endif
