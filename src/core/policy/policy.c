/* SPDX-License-Identifier: Apache-2.0 */

#include "core/policy/policy.h"

#include "core/fit.h"
#include "core/policy/owner.h"
#include "core/policy/quantum.h"
#include "core/policy/sleeper.h"
#include "core/u64.h"

#include <assert.h>

/* Bands of the queue, and of an owner's own clients. Below BAND_LEVELS stand the levels, the
 * highest first. */
enum { BAND_RESIDENT, BAND_AGED, BAND_LEVELS };

static const struct policy *const policies[SCHED_POLICY_COUNT_] = {
	[SCHED_POLICY_PRIORITY] = &policy_priority,
	[SCHED_POLICY_FAIR] = &policy_fair,
	[SCHED_POLICY_CREDIT] = &policy_credit,
	[SCHED_POLICY_DEADLINE] = &policy_deadline,
};

static const struct policy *policy_of(const struct sched *sched)
{
	return policies[sched->config.policy];
}

static bool has_grant(enum sched_client_state state)
{
	return state == SCHED_CLIENT_RUNNING || state == SCHED_CLIENT_STOPPING;
}

static bool client_is_awake(const struct sched_client *c)
{
	return c->state >= SCHED_CLIENT_WAITING && !c->is_hung;
}

static void client_set_level(const struct sched *sched, struct sched_client *c)
{
	bool is_critical = c->claim.priority == SCHED_PRIORITY_CRITICAL;

	c->level = is_critical || policy_of(sched)->has_levels ? c->claim.priority
							       : SCHED_PRIORITY_NORMAL;
	c->is_resident = is_critical && !fit_exclusive(sched, c->gpu);
}

void policy_join(struct sched *sched, uint32_t client)
{
	client_set_level(sched, &sched->clients[client]);
	if (policy_of(sched)->join)
		policy_of(sched)->join(sched, client);
}

void policy_claim(struct sched *sched, uint32_t client)
{
	struct sched_client *c = &sched->clients[client];
	bool moves = client_is_awake(c) && policy_of(sched)->sleep;

	if (moves)
		policy_of(sched)->sleep(sched, client);
	client_set_level(sched, c);
	if (moves)
		policy_of(sched)->wake(sched, client);
}

void policy_reset(struct sched *sched)
{
	for (uint32_t i = 0; i < sched->n_clients; i++) {
		struct sched_owner *o = &sched->clients[i].own;

		for (int level = 0; level < SCHED_PRIORITY_COUNT_; level++)
			o->vtime_ns[level] = 0;
		o->credit_round = 0;
	}
	sleeper_reset(sched);
	for (uint32_t i = 0; i < sched->n_clients; i++) {
		struct sched_client *c = &sched->clients[i];

		if (c->state == SCHED_CLIENT_FREE)
			continue;
		c->charged_ns = sched->now_ns;
		c->vtime_ns = 0;
		c->credit_ns = 0;
		c->credit_round = 0;
		c->is_boosted = false;
		policy_join(sched, i);
		if (client_is_awake(c))
			policy_awake(sched, i, true);
	}
}

void policy_awake(struct sched *sched, uint32_t client, bool awake)
{
	void (*change)(struct sched *, uint32_t) =
		awake ? policy_of(sched)->wake : policy_of(sched)->sleep;

	owner_awake(sched, client, awake);
	if (change)
		change(sched, client);
}

void policy_state(struct sched *sched, uint32_t client, enum sched_client_state from,
		  enum sched_client_state to)
{
	struct sched_client *c = &sched->clients[client];
	const struct policy *policy = policy_of(sched);

	if (has_grant(from) && !has_grant(to)) {
		policy_charge(sched, client);
		if (policy->stop)
			policy->stop(sched, client);
	} else if (!has_grant(from) && has_grant(to)) {
		c->charged_ns = sched->now_ns;
		if (policy->run)
			policy->run(sched, client);
	}
	if ((from >= SCHED_CLIENT_INCOMING) != (to >= SCHED_CLIENT_INCOMING))
		sleeper_on(sched, client, to >= SCHED_CLIENT_INCOMING);
	if (from <= SCHED_CLIENT_IDLE && to > SCHED_CLIENT_IDLE)
		policy_awake(sched, client, true);
	else if (from > SCHED_CLIENT_IDLE && to <= SCHED_CLIENT_IDLE)
		policy_awake(sched, client, false);
}

void policy_used(struct sched *sched, uint32_t client, uint64_t ns)
{
	sched->clients[client].is_metered = true;
	sleeper_used(sched, client, ns);
	policy_of(sched)->charge(sched, client, ns);
}

uint64_t policy_pending(const struct sched *sched, const struct sched_client *client)
{
	if (client->is_metered || !has_grant(client->state))
		return 0;
	return sched->now_ns - client->charged_ns;
}

void policy_charge(struct sched *sched, uint32_t client)
{
	struct sched_client *c = &sched->clients[client];
	uint64_t ns = policy_pending(sched, c);

	c->charged_ns = sched->now_ns;
	if (ns == 0)
		return;
	sleeper_used(sched, client, ns);
	policy_of(sched)->charge(sched, client, ns);
}

/* A client that made way for a sleeper goes before the others of its level. */
static uint32_t band_of_level(enum sched_priority level, bool is_displaced)
{
	return BAND_LEVELS + 2 * (uint32_t)(SCHED_PRIORITY_CRITICAL - level) + !is_displaced;
}

void policy_rank(struct sched *sched, uint32_t client)
{
	struct sched_client *c = &sched->clients[client];

	c->key = policy_of(sched)->key(sched, client);
	if (c->is_resident) {
		c->band = BAND_RESIDENT;
	} else if (c->is_aged) {
		c->band = BAND_AGED;
		c->key = c->asked_ns;
	} else {
		c->band = band_of_level(c->level, c->is_displaced);
	}
}

void policy_choose(struct sched *sched, uint32_t client)
{
	const struct sched_client *c = &sched->clients[client];

	if (c->is_front && policy_of(sched)->choose)
		policy_of(sched)->choose(sched, client);
}

uint32_t policy_front_band(const struct sched *sched, uint32_t client)
{
	const struct sched_client *c = &sched->clients[client];
	const struct sched_owner *o = owner_of(sched, c);

	if (c->is_resident)
		return BAND_RESIDENT;
	/* Not the front's own level: it may be one that has aged, before others of a higher one. */
	return o->is_aged ? BAND_AGED : band_of_level(owner_level(o), c->is_displaced);
}

bool policy_may_pass(const struct sched *sched, uint32_t client)
{
	const struct sched_client *c = &sched->clients[client];
	uint32_t first = sched->gpus[c->gpu].queue.first;

	return sched->clients[first].front_band >= band_of_level(c->level, true);
}

uint64_t policy_waits_ns(const struct sched *sched, uint32_t client)
{
	const struct sched_client *c = &sched->clients[client];
	const struct sched_owner *o = owner_of(sched, c);
	uint64_t waits_ns = SCHED_NO_DEADLINE;

	if (c->band == BAND_RESIDENT)
		return SCHED_NO_DEADLINE;
	if (c->band >= BAND_LEVELS)
		waits_ns = c->asked_ns;
	if (sched->config.fair_users && c->is_front && !o->is_aged && o->since_ns < waits_ns)
		waits_ns = o->since_ns;
	return waits_ns;
}

uint64_t policy_ages_ns(const struct sched *sched, uint32_t client)
{
	uint64_t waits_ns = policy_waits_ns(sched, client);

	return waits_ns == SCHED_NO_DEADLINE ? SCHED_NO_DEADLINE
					     : waits_ns + sched->config.wait_bound_ns / 2;
}

void policy_age(struct sched *sched, uint32_t client)
{
	struct sched_client *c = &sched->clients[client];
	struct sched_owner *o = owner_of(sched, c);
	uint64_t half_ns = sched->config.wait_bound_ns / 2;

	if (c->asked_ns + half_ns <= sched->now_ns)
		c->is_aged = true;
	if (sched->config.fair_users && c->is_front && o->since_ns + half_ns <= sched->now_ns)
		o->is_aged = true;
}

/* The same among owners, where only classes make a difference. */
static uint64_t end_for_owner(const struct sched *sched, const struct sched_client *victim,
			      const struct sched_owner *owner, uint64_t end_ns)
{
	uint64_t ages_ns = owner->since_ns + sched->config.wait_bound_ns / 2;

	if (owner->is_aged || victim->level <= owner_level(owner))
		return end_ns;
	return end_ns > ages_ns ? end_ns : ages_ns;
}

uint64_t policy_end(const struct sched *sched, uint32_t victim, uint32_t head, uint64_t turn_ns)
{
	const struct sched_client *v = &sched->clients[victim], *h = &sched->clients[head];
	uint64_t end_ns, ages_ns;

	if (h->band == BAND_RESIDENT)
		return sched->now_ns;
	if (v->is_guest)
		turn_ns = u64_min(turn_ns, SLEEPER_USE_NS);
	end_ns = v->turn_ns + u64_excess(turn_ns, v->had_ns);
	if (v->owner != h->owner)
		return end_for_owner(sched, v, owner_of(sched, h), end_ns);
	if (h->band == BAND_AGED || v->level < h->level)
		return end_ns;
	if (v->level > h->level) {
		ages_ns = h->asked_ns + sched->config.wait_bound_ns / 2;
		return end_ns > ages_ns ? end_ns : ages_ns;
	}
	if (v->is_guest)
		return end_ns;
	return policy_of(sched)->end(sched, victim, head, end_ns,
				     v->turn_ns + quantum_most(sched, v->gpu));
}
