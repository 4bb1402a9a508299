/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CORE_RANK_H
#define NVS_CORE_RANK_H

/*
 * A GPU's queue in the order of its clients' ranks: by band, then key, then ticket. The
 * list g->queue walks it: first the owners' fronts (owner.h), which go by front_band and
 * front_key before that, then the others, an owner's together. A tree over the fronts, and
 * one over each owner's others, find places in it. Insertion, removal and position take
 * O(log n), expected. A client's rank does not change while it is in.
 */

#include "core/sched.h"

#include <stdbool.h>
#include <stdint.h>

/* Where client's is_front says. */
void rank_insert(struct sched *sched, uint32_t client);
void rank_remove(struct sched *sched, uint32_t client);
/* The first one of a tree; SCHED_NONE: it is empty. */
uint32_t rank_first(const struct sched *sched, uint32_t root);
/* Of two of one owner's, a goes first. */
bool rank_is_before(const struct sched_client *a, const struct sched_client *b);
/*
 * From 1: so many turns at the most until client's. Each turn of one that stands behind its
 * front is one of all owners, so several may have the same.
 */
uint32_t rank_position(const struct sched *sched, uint32_t client);

#endif
