/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CORE_GANG_PRIVATE_H
#define NVS_CORE_GANG_PRIVATE_H

#include "core/gang/gang.h"

static inline struct sched_gang *gang_at(const struct sched *sched, uint32_t gang)
{
	return &sched->clients[gang].gang_here;
}

#define GANG_FOR_EACH(sched, gang, i)                                           \
	for (uint32_t i = gang_at(sched, gang)->members.first; i != SCHED_NONE; \
	     i = (sched)->clients[i].link[SCHED_LINK_GANG].next)

/* The rules concern it: it answers, and takes turns. */
static inline bool gang_counts(const struct sched_client *c)
{
	return !c->is_hung && !c->is_fixed;
}

/*
 * It would run, and does not answer. Kernels of the others wait for its own, which cannot come
 * before it does.
 */
static inline bool gang_member_is_awaited(const struct sched_client *c)
{
	return c->is_hung && !c->is_fixed && c->state == SCHED_CLIENT_WAITING;
}

/* The rules concern it, and it waits. */
static inline bool gang_member_waits(const struct sched_client *c)
{
	return c->state == SCHED_CLIENT_WAITING && gang_counts(c);
}

/* It runs, is paused, and has not been told to stop yet. Members that drain stop before it. */
static inline bool gang_member_is_to_pause(const struct sched_client *c)
{
	return c->state == SCHED_CLIENT_RUNNING && c->is_paused && !c->is_not_preemptible;
}

/* Those that wait are not chosen before it has stopped, or is resumed. */
static inline bool gang_member_holds_up(const struct sched_client *c)
{
	return c->state == SCHED_CLIENT_STOPPING || c->is_called_off || c->is_asking ||
	       gang_member_is_to_pause(c);
}

/* It is looked at before the step ends. */
void gang_mark(struct sched *sched, uint32_t gang);

/* All GPUs of its members are to be looked at again. */
void gang_look_at_gpus(struct sched *sched, uint32_t gang);

/* Members of the gang before client that wait on the same GPU, and what they add to its load. */
uint64_t gang_added_before(const struct sched *sched, uint32_t client, uint32_t *ret_n);

/* client, a member that waits, has room beside all others of its GPU. */
bool gang_member_may_pass(const struct sched *sched, uint32_t client);

/* Nobody before client in its queue has its turn first. Called gangs leave theirs to others. */
bool gang_member_is_first(const struct sched *sched, uint32_t client);

/* client, a member that waits, could come if its turn had come. */
bool gang_member_is_able(const struct sched *sched, uint32_t client);

/* Into sched->due, or out of it, as its members are now. */
void gang_set_due(struct sched *sched, uint32_t gang);

#endif
