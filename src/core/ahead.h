/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CORE_AHEAD_H
#define NVS_CORE_AHEAD_H

/*
 * While the footprints of a GPU's clients exceed it, idle clients copy their memory out ahead of an
 * eviction, which is then an unmapping. One client copies at a time, the one that would have to go
 * first. It may as long as nobody moves memory on that GPU: whoever waits has the bus.
 *
 * A client that was told to stop answers. Until then it is told nothing more, so that a process
 * that a signal has stopped finds no more than three messages of the kind.
 */

#include "core/sched.h"

#include <stdbool.h>
#include <stdint.h>

/* client is not idle any more, is told to move memory, hangs or leaves: it copies no more. */
void ahead_forget(struct sched *sched, uint32_t client);

/* client has so many clean bytes; is_done: it copies no more before it has run again. */
void ahead_report(struct sched *sched, uint32_t client, uint64_t bytes, bool is_done);

/* At the end of a look at gpu: tells one, or takes back. false: no room for more actions. */
bool ahead_update(struct sched *sched, uint32_t gpu);

/* When to look again by ourselves; SCHED_NO_DEADLINE: nobody copies. */
uint64_t ahead_wake_ns(const struct sched *sched, uint32_t gpu);

#endif
