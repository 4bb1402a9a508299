/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CORE_FIT_H
#define NVS_CORE_FIT_H

/*
 * Admission by memory: what each client is charged, what it needs, who fits.
 *
 * A client is charged max(budget, resident + pinned), less what is doubted. Per GPU two sums
 * matter: "charged" and "load". Charged passes the usable memory by a part of the reserve at the
 * most, and only while others move out, so that the card never overflows. Load is what stays on
 * the card once every stopped and stopping client has given up all that it can. A client is
 * admitted when load leaves room for its target; it gets its budget when charged does. In between,
 * evictions turn the one into the other.
 *
 * Everything here takes constant time: fit_change() replaces a client's part of the sums.
 */

#include "core/sched.h"

#include <stdbool.h>
#include <stdint.h>

/*
 * The fields of client have changed: its part of the sums, its list and its timer follow. To be
 * called once a change is whole, since a client that moves between lists loses its place.
 */
void fit_change(struct sched *sched, uint32_t client);

uint64_t fit_usable(const struct sched *sched, uint32_t gpu);
/*
 * The most that there is for all of them: who comes in has a lead, of what is in reserve, for as
 * long as at least so much is on its way out.
 */
uint64_t fit_room(const struct sched *sched, uint32_t gpu);
/*
 * The most that holders may have, and the pinned bytes of all others: usable, and as much of half
 * of the reserve as pinned bytes take. It never exceeds fit_room().
 */
uint64_t fit_capacity(const struct sched *sched, uint32_t gpu);
/* Of that, what lies in the reserve now. */
uint64_t fit_spare(const struct sched *sched, uint32_t gpu);
uint64_t fit_footprint(const struct sched_client *client);
/* The bytes that a client may have on the card: its budget, or what it has where that is more. */
uint64_t fit_allowed(const struct sched_client *client);
/* The same, without what is doubted: so much counts for others. */
uint64_t fit_charge(const struct sched_client *client);
/* Of its charge, what no eviction takes; what it was given to pin counts until its next report. */
uint64_t fit_fixed(const struct sched_client *client);
/* The rest of its charge: what it can be asked to give up. */
uint64_t fit_pageable(const struct sched_client *client);
/* No allocation of it waits for bytes. */
bool fit_lacks_nothing(const struct sched_client *client);
/* Adds a client's part to sums; sign UINT32_MAX takes it out again. */
void fit_sums_add(struct sched_sums *sums, const struct sched_sums *part, uint32_t sign);
/* The most that it can have: usable less what the others can not give up. */
uint64_t fit_limit(const struct sched *sched, uint32_t client);
/* The same, were there no others than our clients: their memory comes and goes. */
uint64_t fit_limit_alone(const struct sched *sched, uint32_t client);
/*
 * It does not run, and what it owns is more than that: it has grown while nobody
 * watched, or the card has shrunk. It fits when all the others are out, and then it may
 * try to run with what it owns, but nothing wanted on top.
 */
bool fit_oversize(const struct sched *sched, uint32_t client);

/* It has room beside the pinned bytes of the others, once all else of theirs is out. */
bool fit_can_be_whole(const struct sched *sched, uint32_t client);
/* The budget it would run with: its footprint; while it grows, what it asks for. */
uint64_t fit_budget_target(const struct sched *sched, uint32_t client);
/* Sets what a client that comes is to get, from its memory as it is now. fit_change() follows. */
void fit_set_target(struct sched *sched, uint32_t client);
/* The same, for one that came to get the whole card, which may be another now. */
void fit_update_target(struct sched *sched, uint32_t client);
struct sched_sums fit_sums_of(const struct sched *sched, uint32_t client);
enum sched_place fit_place(const struct sched_client *client);

/* Takes over a report, kept to what can be true of a card of this size. */
void fit_set_memory(struct sched *sched, uint32_t client, const struct sched_memory *memory);

/*
 * So many clients may be on the GPU at once: one in serial and concurrent, in auto the sharing
 * degree. UINT32_MAX: any number, as where anti-thrashing is off.
 */
uint32_t fit_degree(const struct sched *sched, uint32_t gpu);
/* One at a time. */
bool fit_exclusive(const struct sched *sched, uint32_t gpu);
/* So many of the others have to leave the GPU before client is on it, for want of places. */
uint32_t fit_n_crowded(const struct sched *sched, uint32_t client);
/* The same after n others have come. */
uint32_t fit_n_crowded_more(const struct sched *sched, uint32_t client, uint32_t n);
/* Its wanted bytes can never be had, even with all the others out. */
bool fit_never(const struct sched *sched, uint32_t client);
/*
 * It may come now: beside those that run, with evictions from stopped clients at the most. The
 * second form: the same after n others have come, who add bytes to the load.
 */
bool fit_beside(const struct sched *sched, uint32_t client);
bool fit_beside_more(const struct sched *sched, uint32_t client, uint64_t bytes, uint32_t n);
/* It may come if those are stopped that can be stopped now. */
bool fit_by_switch(const struct sched *sched, uint32_t client);
bool fit_by_switch_more(const struct sched *sched, uint32_t client, uint64_t bytes, uint32_t n);
/* The bytes that client would add to the load if it came. */
uint64_t fit_load_added(const struct sched *sched, uint32_t client);
/* It may come at some time if nobody leaves: no client that can never be stopped is in the way. */
bool fit_ever(const struct sched *sched, uint32_t client);
bool fit_ever_more(const struct sched *sched, uint32_t client, uint64_t bytes, uint32_t n);

/* Bytes that client lacks, logically: load + target - usable. */
uint64_t fit_missing(const struct sched *sched, uint32_t client);
/* The same after others have come, who add bytes to the load. */
uint64_t fit_missing_more(const struct sched *sched, uint32_t client, uint64_t bytes);
/* Bytes still to be evicted for those that come, and for client too if not SCHED_NONE. */
uint64_t fit_to_evict(const struct sched *sched, uint32_t gpu, uint32_t client);
/* The same if others come before client, who add bytes to what is charged. */
uint64_t fit_to_evict_more(const struct sched *sched, uint32_t gpu, uint32_t client,
			   uint64_t bytes);
/*
 * The clients' memory, on the card or off it, and what they wait for, is more than there is. So
 * some of it is out, or will have to go.
 */
bool fit_is_contended(const struct sched *sched, uint32_t gpu);
/* The card has room now for what is promised to client beyond its charge. */
bool fit_has_room(const struct sched *sched, uint32_t client);
/* The same for one that runs and asks for its target, with no part of what others move out. */
bool fit_at_once(const struct sched *sched, uint32_t client);
/*
 * Of the bytes that client is to get beyond its charge, those that the card has room for now, with
 * the lead while others move out. 0 if that is too little to be worth a message.
 */
uint64_t fit_part(const struct sched *sched, uint32_t client);
/*
 * The same for client, which waits, before others are asked to move out for it: as much as they
 * will be, at the most, so that no more is used than with the lead.
 */
uint64_t fit_ahead(const struct sched *sched, uint32_t client);

#endif
