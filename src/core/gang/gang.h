/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CORE_GANG_H
#define NVS_CORE_GANG_H

/*
 * Gangs: clients that run on all of their GPUs together, or on none. README.md has the rules.
 *
 * A gang is bound while it lacks members of its size, or has two or more that the rules concern and
 * that can run together. It is apart if on some GPU they cannot. Members of a gang that is not
 * bound are like all other clients.
 *
 * The members' states change one at a time. gang_settle() looks at each gang that has changed. If a
 * member waits, stops, or would run and is paused, it calls the other members off.
 */

#include "core/sched.h"

#include <stdbool.h>
#include <stdint.h>

void gang_init(struct sched *sched);

/* SCHED_EVENT_GANG. Returns 0, SCHED_E_NO_CLIENT or SCHED_E_CONFIG. */
int gang_join(struct sched *sched, const struct sched_event *event);

/* client is of no gang any more. */
void gang_leave(struct sched *sched, uint32_t client);

/* Something of client has changed that its gang may depend on. */
void gang_change(struct sched *sched, uint32_t client);

/* client is in a bound gang. */
static inline bool gang_is_bound(const struct sched *sched, uint32_t client)
{
	uint32_t gang = sched->clients[client].gang;

	return gang != SCHED_NONE && sched->clients[gang].gang_here.is_bound;
}

/* Brings the fields of struct sched_gang up to date, of gangs that have changed. */
void gang_count(struct sched *sched);

/* Carries the rules out for those. true: GPUs are to be looked at again. */
bool gang_settle(struct sched *sched);

/*
 * client is to be stopped, but members of its gang that drain must stop first: they are called off,
 * and client's GPU is looked at again when they have stopped, or when one could not. is_early: it
 * makes way for a client that comes early.
 */
bool gang_yields(struct sched *sched, uint32_t client, bool is_early);

/* ---- admission (gang_admit.c) ------------------------------------------------- */

/* client waits, and its turn has come on its GPU. true: its gang has become due with that. */
bool gang_call(struct sched *sched, uint32_t client);

/*
 * The member on gpu of the gang that is the next to get this GPU and all of its others; SCHED_NONE:
 * no gang is. Others come before it only as far as that does not delay it.
 */
uint32_t gang_head(struct sched *sched, uint32_t gpu);

/*
 * All members of client's gang that wait can be chosen now: by a switch (client is a gang_head()),
 * or beside all others.
 */
bool gang_can_switch(struct sched *sched, uint32_t client);
bool gang_fits_beside(const struct sched *sched, uint32_t client);

/*
 * client's gang can switch. asks_first: one that has to go for it may fail, as it did before: it is
 * asked, and nobody else. awaits_doubt: such a one is on its way, and the gang waits for its
 * answer.
 */
bool gang_asks_first(struct sched *sched, uint32_t client);
bool gang_awaits_doubt(const struct sched *sched, uint32_t client);

/*
 * Members of client's gang have been chosen, by a switch. Those on one GPU get their memory in any
 * order: the turns that may end for one of them may end for all.
 */
void gang_share_ends(struct sched *sched, uint32_t client);

/* client is a gang_head(), and its gang waits for nothing but those that came last. */
bool gang_holds_up(const struct sched *sched, uint32_t client);
/* On one of its GPUs nobody can be stopped for it, or is on the way. */
bool gang_is_jammed(const struct sched *sched, uint32_t client);

/*
 * After a look at gpu: the gang that is next there may hold others up no more, or again. true: then
 * all of its GPUs are to be looked at again, gpu among them.
 */
bool gang_update_jam(struct sched *sched, uint32_t gpu);

/* client is the head of its GPU no more: others may pass its gang elsewhere. */
void gang_passed(struct sched *sched, uint32_t client);

/* All members that come have all that they need, and may run. */
bool gang_is_ready(const struct sched *sched, uint32_t client);

/* How long a member that is ready waits for the others: longer than all of their moves take. */
uint64_t gang_patience_ns(const struct sched *sched, uint32_t client);

/* client has waited for so long. Others have their turns, and all members come again later. */
void gang_late(struct sched *sched, uint32_t client);

/* client waits for its gang. *ret_gpu: as sched_client_status::gang_gpu. */
bool gang_waits(const struct sched *sched, uint32_t client, uint32_t *ret_gpu);

/* ---- sleepers (gang_early.c) ---------------------------------------------------- */

/*
 * Sleepers on gpu wait for client's gang, or with it. So they depend on the gang's other GPUs: when
 * one of those changes, gpu is looked at again.
 */
void gang_watch(struct sched *sched, uint32_t client, uint32_t gpu);

/* client, a sleeper, may come before the turn of victim's gang is over: if no member forbids it. */
bool gang_may_stop_early(const struct sched *sched, uint32_t victim, uint32_t client);

/*
 * When it may on all of the gang's GPUs; least_ns: of a turn, that each member keeps.
 * SCHED_NO_DEADLINE: not as long as others there are before both of them.
 */
uint64_t gang_stops_early_ns(const struct sched *sched, uint32_t victim, uint32_t client,
			     uint64_t least_ns);

/* client comes early, or another member of its gang does that comes on the same GPU. */
bool gang_comes_early(const struct sched *sched, uint32_t client);

/* client is in a bound gang that was stopped early on another GPU. */
bool gang_is_displaced(const struct sched *sched, uint32_t client);

/*
 * client waits, and was displaced with its gang: the gang is back as soon as the early one goes.
 * Until then its GPUs are kept for it, since nobody else's turn has come there.
 */
bool gang_comes_back(const struct sched *sched, uint32_t client);

/*
 * client, which was displaced with its gang, is the last member that gets its grant back on its
 * GPU.
 */
bool gang_is_back(const struct sched *sched, uint32_t client);

/* It does not come back: its members wait as others do. */
void gang_lose_place(struct sched *sched, uint32_t client);

/* All of client's gang are sleepers, and those that wait may come before their turns. */
bool gang_can_come_early(const struct sched *sched, uint32_t client);

/*
 * As plan_early(), for all members of client's gang that wait; *ret_here_ns: for those on client's
 * GPU. Members that come beside all others end nobody's turn: sched_client::ends_ns is 0.
 */
uint64_t gang_early_ns(struct sched *sched, uint32_t client, uint64_t *ret_here_ns);

#endif
