/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CORE_ENERGY_H
#define NVS_CORE_ENERGY_H

/*
 * The energy of clients' work, and whether a hold is worth its own.
 *
 * The GPU's power (TIMESHARE_EVENT_POWER) times a client's GPU time is its energy: an
 * estimate, in which what the GPU draws while nobody computes is nobody's. Time from
 * before the power was known counts with the first that is.
 *
 * With timeshare_config::is_saving others are held for a burst only if leaving it to the
 * slices has broken its SLO (the tail of those that were left), or would cost more:
 *
 * - a switch of contexts moves 44 MB out and in, 10 pJ a byte, and takes 0.2 ms, in which
 *   the GPU draws its power for nothing;
 * - a hold is two switches, and what the GPU draws in the part of the burst in which its
 *   client has nothing on it: others could have used that;
 * - slices are two switches each time that both have had theirs.
 *
 * The work itself costs the same in both. energy_budget_w pays what holds cost beyond slices; ten
 * seconds of it may be saved up; without that nobody is held. The first bursts of a client, and
 * later one in 256, try what is not chosen.
 */

#include "core/timeshare/timeshare.h"

/* client has had GPU time. */
void energy_charge(struct timeshare *timeshare, uint32_t client);

/* uJ, until now. */
uint64_t energy_uj(const struct timeshare *timeshare, uint32_t client);

/* For the burst of c for which preempt_choice_next() has said kind: what it is to be. */
enum timeshare_arm_kind energy_arm(struct timeshare *timeshare, const struct timeshare_client *c,
				   enum timeshare_warning warning, enum timeshare_arm_kind kind);

/* At first, and when the configuration changes: the budget is full. */
void energy_fill(struct timeshare *timeshare, uint32_t gpu);

#endif
