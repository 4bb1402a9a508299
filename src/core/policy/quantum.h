/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CORE_QUANTUM_H
#define NVS_CORE_QUANTUM_H

/* How long a turn lasts, and how long an answer may take. */

#include "core/sched.h"

#include <stdint.h>

/*
 * The length of a turn while somebody waits for gpu and the switch to come moves bytes.
 * Auto: the time the bytes take * multiplier, within [switch_min, switch_max]; fixed:
 * switch_fixed; concurrent: tq. Never above max_runtime, nor above wait_bound / waiters
 * (of which at least a second is left). Waiters are owners, unless there is only one.
 */
uint64_t quantum_turn(const struct sched *sched, uint32_t gpu, uint64_t bytes);

/* The longest turn of any policy: the last sentence of that. */
uint64_t quantum_most(const struct sched *sched, uint32_t gpu);

/* Bytes a second: as switches measured it, until then as the link should reach; 0: unknown. */
uint64_t quantum_bandwidth(const struct sched *sched, uint32_t gpu);

/* The time that bytes take at that bandwidth; 0 where it is unknown. */
uint64_t quantum_swap(const struct sched *sched, uint32_t gpu, uint64_t bytes);

/*
 * For an answer that moves bytes, of which a card's size counts at most: answer_ns and a second a
 * GiB, or twice quantum_swap(). Unless answer_ns is longer, it ends at wait_bound_ns, or where
 * bytes took twice as long as at a sixteenth of the link (of 1 GiB/s where that is unknown).
 */
uint64_t quantum_answer(const struct sched *sched, uint32_t gpu, uint64_t bytes);

/*
 * Takes note of a copy: a moving average, each new one counts for 0.3. It is cut to what the link
 * can do: a sixteenth of its bandwidth to twice that; 1 to 128 GiB/s where it is unknown.
 */
void quantum_measure(struct sched *sched, uint32_t gpu, uint64_t moved, uint64_t move_ns);

#endif
