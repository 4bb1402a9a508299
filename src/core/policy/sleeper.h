/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CORE_SLEEPER_H
#define NVS_CORE_SLEEPER_H

/*
 * Sleepers: clients that sleep most of the time and want little when they wake. They are measured:
 * nobody declares it. A sleeper that wakes need not wait for the end of a usual turn. Others are
 * stopped for it early, within two bounds:
 *
 *   time to move memory  Early switches take moving_percent of the time that usual turns have. Each
 *                        GPU has an account of it, which that time fills and early switches empty.
 *   a fair share         What the sleeper's owner had of the last minute is below its share: the
 *                        time in which one of its programs came, ran or stopped while others
 *                        waited, busy or not; and the way back of its early switches. Owners
 *                        share equally; the programs of a single owner do the same.
 *
 * A use begins when an idle client asks, and ends when the client is idle again. All values come
 * from events and their times.
 */

#include "core/sched.h"

#include <stdbool.h>
#include <stdint.h>

/* The most GPU time of a sleeper's use, and the longest turn of one that came early. */
#define SLEEPER_USE_NS 2500000000ull

/* Early switches happen here at all: by the setting, and by the policy. */
bool sleeper_is_on(const struct sched *sched);
/* client has done so far as sleepers do. */
bool sleeper_is(const struct sched *sched, uint32_t client);
/* client, or its owner, had less than its share in the last minute. */
bool sleeper_is_below_share(const struct sched *sched, uint32_t client);

/* client comes or runs from now on, or no more. */
void sleeper_on(struct sched *sched, uint32_t client, bool is_on);
/* Those of all owners are counted anew. */
void sleeper_reset(struct sched *sched);
/* client has had so much GPU time. */
void sleeper_used(struct sched *sched, uint32_t client, uint64_t ns);
/* client is idle after it had the GPU. */
void sleeper_end_use(struct sched *sched, uint32_t client);
/* client came early, and was stopped before its use had ended: it counts as no sleeper. */
void sleeper_lose(struct sched *sched, uint32_t client);

/* client waits, from now on: if it is a sleeper it joins sched_gpu::woken. */
void sleeper_wait(struct sched *sched, uint32_t client);
/* It is in that list no more: it is chosen, or waits as others do, with state. */
void sleeper_leave(struct sched *sched, uint32_t client, enum sched_waking state);

/* The answer of sched_client_status() for client. */
enum sched_early sleeper_status(const struct sched *sched, uint32_t client);

/* Time has passed: the accounts fill. Before each event. */
void sleeper_fill(struct sched *sched);
/* When gpu's account has cost_ns, if usual turns go on; SCHED_NO_DEADLINE: there is none now. */
uint64_t sleeper_affords_ns(const struct sched *sched, uint32_t gpu, uint64_t cost_ns);
/* client is chosen early: its early_cost_ns is taken from the account. */
void sleeper_come(struct sched *sched, uint32_t client);
/* It runs: what the switch took takes the place of the estimate. */
void sleeper_come_done(struct sched *sched, uint32_t client);
/*
 * client's gang made way, and is back on client's GPU: the account of that pays for the time that
 * the gang was off. Once a GPU, however many members it has there.
 */
void sleeper_pay(struct sched *sched, uint32_t client);

#endif
