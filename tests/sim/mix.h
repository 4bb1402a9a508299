/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_TESTS_SIM_MIX_H
#define NVS_TESTS_SIM_MIX_H

/* The core's state as a hash, in which absolute times and counters do not show. */

#include "core/sched.h"

#define MIX_AGE_MAX UINT64_C(100000000000) /* ns; older than all that is ever asked */

/* These three stay inline: a search calls them a hundred times for each of its states. */
static inline void mix(uint64_t *hash, uint64_t value)
{
	*hash = (*hash ^ value) * 0x9e3779b97f4a7c15ull;
	*hash ^= *hash >> 29;
}

static inline uint64_t mix_ahead(uint64_t now, uint64_t time)
{
	return time == SCHED_NO_DEADLINE ? UINT64_MAX : time > now ? time - now : 0;
}

static inline uint64_t mix_age(uint64_t now, uint64_t time)
{
	return now - time < MIX_AGE_MAX ? now - time : MIX_AGE_MAX;
}

void mix_memory(uint64_t *hash, const struct sched_memory *m);
void mix_list(uint64_t *hash, const struct sched_client *clients, const struct list *list,
	      enum sched_link_kind kind);
void mix_client(uint64_t *hash, uint64_t now, const struct sched_client *c);

/* What is foreseen for a GPU; whoever was its cause counts only as long as it is. */
void mix_forecast(uint64_t *hash, uint64_t now, const struct sched_client *clients,
		  const struct sched_forecast *f);

/* Which of two owners had a turn later, and all else that decides their order. */
void mix_owner(uint64_t *hash, const struct sched *sched, const struct sched_client *c);

/* What a client's next waking depends on, where clients may come early. */
void mix_sleeper(uint64_t *hash, const struct sched *sched, const struct sched_client *c);

/* What decides the order; clocks count by their distances. */
void mix_policy(uint64_t *hash, const struct sched *sched, const struct sched_client *c);

#endif
