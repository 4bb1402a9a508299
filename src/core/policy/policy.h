/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CORE_POLICY_H
#define NVS_CORE_POLICY_H

/*
 * Whose turn is next, and how long turns are: what config.policy decides.
 *
 * Common to all policies: the resident (critical, unless only one may run at a time) go
 * first and wait for nobody's turn to end; once granted they are never stopped. Then come
 * those that have waited for half of wait_bound, by the beginning of their waits, so that
 * nobody waits for ever; then the rest, by level and then as the policy has it. A turn of
 * a higher level lasts until those below it have aged.
 *
 * This is the order of one owner's clients. Owners have the same bands, the level being the
 * highest of those that wait; an owner ages when it has waited for half of wait_bound since its
 * last turn. Within a band they take turns (owner.h), of usual length, whatever the policy.
 *
 *   priority  the level is the claim's priority; within one as fair
 *   fair      who had least GPU time for its weight; newcomers begin with the least that
 *             anybody has
 *   credit    rounds of time by weight: who has some left goes before who has none
 *   deadline  least slack: what is left until the SLO, or the bound of the wait
 *
 * A client's GPU time is what SCHED_EVENT_USED says; of one of which that says nothing,
 * the time with a grant.
 */

#include "core/sched.h"

#include <stdbool.h>
#include <stdint.h>

/* Turns may be cut short to this part of a usual one: else switching would be all there is. */
#define POLICY_TURN_PART 8

struct policy {
	bool has_levels; /* level is the claim's priority; else all but critical are equal */
	/* The client's place among its equals when it begins to wait: smallest first. */
	uint64_t (*key)(struct sched *sched, uint32_t client);
	/* When victim's turn ends for head; end_ns: a usual turn's end, last_ns: the latest. */
	uint64_t (*end)(const struct sched *sched, uint32_t victim, uint32_t head, uint64_t end_ns,
			uint64_t last_ns);
	/* client has had so much more GPU time. */
	void (*charge)(struct sched *sched, uint32_t client, uint64_t ns);
	/* The members from here on may be NULL. */
	void (*join)(struct sched *sched, uint32_t client);
	void (*wake)(struct sched *sched, uint32_t client);   /* wants to run, or runs */
	void (*sleep)(struct sched *sched, uint32_t client);  /* no more; not without wake */
	void (*choose)(struct sched *sched, uint32_t client); /* its owner's first; is let in */
	void (*run)(struct sched *sched, uint32_t client);    /* has a grant from now on */
	void (*stop)(struct sched *sched, uint32_t client);   /* no more */
};

extern const struct policy policy_priority, policy_fair, policy_credit, policy_deadline;

/* Policy credit: the length of a round for a client of the default weight. */
uint64_t policy_round_ns(const struct sched_gpu_config *config);

/* A slot's first look at its claim, before anything else. */
void policy_join(struct sched *sched, uint32_t client);
/* Its claim has changed; what it had so far is charged. fit_change() follows. */
void policy_claim(struct sched *sched, uint32_t client);
/* The policy, or what may run side by side, has changed: all begin anew. */
void policy_reset(struct sched *sched);

/* It goes from one state to the other, and wants something exactly if is_awake. */
void policy_state(struct sched *sched, uint32_t client, enum sched_client_state from,
		  enum sched_client_state to);
void policy_awake(struct sched *sched, uint32_t client, bool is_awake);
/* client has used so much GPU time. */
void policy_used(struct sched *sched, uint32_t client, uint64_t ns);
/* Had since it was last charged, and not yet charged. */
uint64_t policy_pending(const struct sched *sched, const struct sched_client *client);
void policy_charge(struct sched *sched, uint32_t client);

/* Sets the client's rank; it is not in the queue. */
void policy_rank(struct sched *sched, uint32_t client);
/* client is about to leave the queue because it may come. */
void policy_choose(struct sched *sched, uint32_t client);
/* Nobody waits whom client, a sleeper that has woken and waits, must not pass. */
bool policy_may_pass(const struct sched *sched, uint32_t client);
/* The band of client, a front, among fronts. */
uint32_t policy_front_band(const struct sched *sched, uint32_t client);
/*
 * When the wait began, half of wait_bound before client, in the queue, ages, or its owner, whose
 * front it is; SCHED_NO_DEADLINE: both have, or do not. And when it ages.
 */
uint64_t policy_waits_ns(const struct sched *sched, uint32_t client);
uint64_t policy_ages_ns(const struct sched *sched, uint32_t client);
/* It ages, or its owner, or both: what is due. */
void policy_age(struct sched *sched, uint32_t client);
/* When victim's turn of turn_ns is over for head's sake. */
uint64_t policy_end(const struct sched *sched, uint32_t victim, uint32_t head, uint64_t turn_ns);

#endif
