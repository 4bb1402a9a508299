/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CORE_EARLY_H
#define NVS_CORE_EARLY_H

/*
 * Clients that come before their usual turn. A sleeper (core/policy/sleeper.h) that wakes stops
 * others for a short use, within bounds. Its victims are displaced: their turns go on when it has
 * ended. Clients that run beside meanwhile are guests.
 */

#include "core/sched.h"

#include <stdbool.h>
#include <stdint.h>

/* Chooses the first sleeper of gpu that may come now. false: none may. */
bool early_admit(struct sched *sched, uint32_t gpu);

/* client, a sleeper that waits, passes nobody whom it must not pass before its turn. */
bool early_may_pass(const struct sched *sched, uint32_t client);

/* client is about to be chosen: it is a guest, if it passes a displaced one. */
void early_set_guest(struct sched *sched, uint32_t client);

#endif
