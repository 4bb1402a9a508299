/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Rounds: in each a client has so much time as its weight says. Clients with time left (under) go
 * before those without (over), first come, first served; who comes back with some left goes first
 * of all, once. When those are chosen that have none, the next round begins: as many rounds as it
 * takes until the first of them has some. Debts last, savings do not.
 *
 * Rounds are each owner's own: clients of others neither begin nor end them.
 *
 * So the key is the round in which a client will have some left, which stays true while
 * it waits, and nobody has to go through the queue when a round begins.
 */

#include "core/policy/owner.h"
#include "core/policy/policy.h"

#define ROUND_NS    10000000000ull /* where no switch time is set */
#define DEBT_MAX_NS 120000000000ll
#define FOREVER_NS  1000000000000000000ll /* longer than any round and debt */

/*
 * An administrator who sets the switch time wants turns of that length, so a round is as long. In
 * mode concurrent the switch time does not count.
 */
uint64_t policy_round_ns(const struct sched_gpu_config *config)
{
	bool is_set =
		config->switch_mode == SCHED_SWITCH_FIXED && config->mode != SCHED_MODE_CONCURRENT;

	return is_set ? config->switch_fixed_ns : ROUND_NS;
}

/* The time that the client gets in n rounds. */
static int64_t credit_of(const struct sched *sched, const struct sched_client *c, uint64_t n)
{
	uint64_t round_ns = policy_round_ns(&sched->gpus[c->gpu].config) / SCHED_WEIGHT_DEFAULT *
			    c->claim.weight;

	return n < FOREVER_NS / round_ns ? (int64_t)(n * round_ns) : FOREVER_NS;
}

static int64_t credit_refill(const struct sched *sched, const struct sched_client *c)
{
	return credit_of(sched, c, 1);
}

/* Credits for the rounds that have begun since the last look. */
static void credit_look(struct sched *sched, uint32_t client)
{
	struct sched_client *c = &sched->clients[client];
	uint64_t round = owner_of(sched, c)->credit_round;

	c->credit_ns += credit_of(sched, c, round - c->credit_round);
	c->credit_round = round;
	if (c->credit_ns > credit_refill(sched, c))
		c->credit_ns = credit_refill(sched, c);
}

static void credit_join(struct sched *sched, uint32_t client)
{
	struct sched_client *c = &sched->clients[client];

	c->credit_round = owner_of(sched, c)->credit_round;
	c->credit_ns = credit_refill(sched, c);
}

static void credit_wake(struct sched *sched, uint32_t client)
{
	struct sched_client *c = &sched->clients[client];

	credit_look(sched, client);
	/* A client that answers again has not come back: it would go first after each pause. */
	if (c->state <= SCHED_CLIENT_IDLE)
		c->is_boosted = c->credit_ns > 0;
}

/* Debts have a limit: who was alone for long is not to pay for it for ever. */
static void credit_charge(struct sched *sched, uint32_t client, uint64_t ns)
{
	struct sched_client *c = &sched->clients[client];
	uint64_t most = (uint64_t)(c->credit_ns + DEBT_MAX_NS);

	/* First what was used, of which most was before the next round began; then that one. */
	c->credit_ns -= (int64_t)(ns < most ? ns : most);
	credit_look(sched, client);
}

static uint64_t credit_key(struct sched *sched, uint32_t client)
{
	struct sched_client *c = &sched->clients[client];

	credit_look(sched, client);
	if (c->credit_ns > 0)
		return c->is_boosted ? 0 : c->credit_round + 1;
	return c->credit_round + 2 + (uint64_t)(-c->credit_ns / credit_refill(sched, c));
}

static void credit_choose(struct sched *sched, uint32_t client)
{
	struct sched_client *c = &sched->clients[client];
	struct sched_owner *o = owner_of(sched, c);

	if (!c->is_aged && !c->is_resident && c->key > o->credit_round + 1)
		o->credit_round = c->key - 1;
	c->is_boosted = false;
}

/*
 * It may use up what it has left, and what it will get in the rounds before the one in which head
 * has some: were it stopped now, it would stand before head.
 */
static uint64_t credit_end(const struct sched *sched, uint32_t victim, uint32_t head,
			   uint64_t end_ns, uint64_t last_ns)
{
	const struct sched_client *v = &sched->clients[victim], *h = &sched->clients[head];
	uint64_t round = owner_of(sched, v)->credit_round, until_ns;
	uint64_t n_rounds = h->key > round + 2 ? h->key - 2 - round : 0;
	int64_t left_ns = v->credit_ns - (int64_t)policy_pending(sched, v);

	n_rounds += round - v->credit_round;
	left_ns += credit_of(sched, v, n_rounds);
	if (left_ns <= 0)
		return end_ns;
	until_ns = sched->now_ns + (uint64_t)left_ns;
	if (until_ns > last_ns)
		until_ns = last_ns;
	return until_ns > end_ns ? until_ns : end_ns;
}

const struct policy policy_credit = {
	.has_levels = false,
	.key = credit_key,
	.end = credit_end,
	.charge = credit_charge,
	.join = credit_join,
	.wake = credit_wake,
	.choose = credit_choose,
	.run = credit_look,
};
