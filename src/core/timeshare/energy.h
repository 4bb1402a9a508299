/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CORE_ENERGY_H
#define NVS_CORE_ENERGY_H

/*
 * The energy of clients' work, and whether a hold is worth its own.
 *
 * A client's energy is its GPU time at the GPU's power (TIMESHARE_EVENT_POWER). It is an estimate.
 * The power of an unused GPU belongs to no client. Time from before the power was known counts at
 * the first known power.
 *
 * With timeshare_config::is_saving, others are held for a burst in two cases: slices have broken
 * the burst's SLO (by their tail), or slices would cost more than the hold.
 *
 * - A switch of contexts moves 44 MB out and in, at 10 pJ a byte. It takes 0.2 ms, in which the GPU
 *   draws its power for nothing.
 * - A hold costs two switches, and the GPU's power while the burst's client has nothing on it.
 * - Slices cost two switches a round.
 *
 * The work itself costs the same in both. energy_budget_w pays what holds cost beyond slices, and
 * up to ten seconds of it may be saved up. When it is used up, no client is held. The first bursts
 * of a client, and later one in 256, use the other kind, so that both stay known.
 */

#include "core/timeshare/timeshare.h"

/* client has had GPU time. */
void energy_charge(struct timeshare *timeshare, uint32_t client);

/* client's energy until now, in uJ. */
uint64_t energy_uj(const struct timeshare *timeshare, uint32_t client);

/* Returns the kind for c's next burst; kind: the answer of preempt_choice_next() for it. */
enum timeshare_arm_kind energy_arm(struct timeshare *timeshare, const struct timeshare_client *c,
				   enum timeshare_warning warning, enum timeshare_arm_kind kind);

/* Fills the budget: at the start, and when the configuration changes. */
void energy_fill(struct timeshare *timeshare, uint32_t gpu);

#endif
