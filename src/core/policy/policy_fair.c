/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Every client has a time of its own, which passes with the GPU time that it has, the
 * slower the more weight it has. Whose time is least is next, and who runs may go on until
 * it has caught up with the next one. So each gets its share, whatever the turns.
 *
 * Nobody gains by not wanting: who comes, or comes back, begins with the least time that
 * anybody has who is there. priority has such clocks for each level by itself. All of that is
 * among the clients of one owner.
 */

#include "core/heap.h"
#include "core/policy/owner.h"
#include "core/policy/policy.h"

/*
 * In the queue, times that differ by less than a second are equal: first come, first
 * served. A turn is longer, and to sort those that come back at once by the last
 * microsecond would only be unfair by chance.
 */
#define GRAIN_NS 1000000000ull

/* A floor may be lower than it must be for a moment; a look at it is not to be long. */
#define LOOKS_MAX 16

/* Far beyond any honest clock; two of them add up to no overflow. */
#define VTIME_MAX (1ull << 62)

static uint64_t fair_by_weight(const struct sched_client *c, uint64_t ns)
{
	return ns / c->claim.weight * SCHED_WEIGHT_DEFAULT +
	       ns % c->claim.weight * SCHED_WEIGHT_DEFAULT / c->claim.weight;
}

/*
 * The least time of those that are there, of client's level. Their nodes are older than
 * their clocks, so the first ones are brought up to date until the first stays first.
 */
static uint64_t fair_least(struct sched *sched, uint32_t client)
{
	const struct sched_client *c = &sched->clients[client];
	struct sched_owner *o = owner_of(sched, c);
	uint32_t *root = &o->least[c->level];

	for (int n = 0; n < LOOKS_MAX && *root != SCHED_NONE; n++) {
		uint32_t first = *root;

		policy_charge(sched, first);
		if (sched->clients[first].node[SCHED_NODE_VTIME].key ==
		    sched->clients[first].vtime_ns)
			break;
		heap_set(sched->clients, root, SCHED_NODE_VTIME, first,
			 sched->clients[first].vtime_ns);
	}
	if (*root != SCHED_NONE &&
	    o->vtime_ns[c->level] < sched->clients[*root].node[SCHED_NODE_VTIME].key)
		o->vtime_ns[c->level] = sched->clients[*root].node[SCHED_NODE_VTIME].key;
	return o->vtime_ns[c->level];
}

static void fair_wake(struct sched *sched, uint32_t client)
{
	struct sched_client *c = &sched->clients[client];
	struct sched_owner *o = owner_of(sched, c);
	uint64_t from;

	if (c->node[SCHED_NODE_VTIME].is_in)
		return;
	from = fair_least(sched, client);
	/* Among others now: it is as far ahead of them as it was of those before. */
	if (c->vtime_level != c->level)
		c->vtime_ns += from - o->vtime_ns[c->vtime_level];
	c->vtime_level = c->level;
	if ((int64_t)(c->vtime_ns - from) < 0)
		c->vtime_ns = from;
	heap_set(sched->clients, &o->least[c->level], SCHED_NODE_VTIME, client, c->vtime_ns);
}

static void fair_sleep(struct sched *sched, uint32_t client)
{
	struct sched_client *c = &sched->clients[client];

	/* The floor moves on with who leaves: who was alone took all of it with itself. */
	(void)fair_least(sched, client);
	heap_remove(sched->clients, &owner_of(sched, c)->least[c->vtime_level], SCHED_NODE_VTIME,
		    client);
}

static void fair_join(struct sched *sched, uint32_t client)
{
	sched->clients[client].vtime_level = sched->clients[client].level;
}

static void fair_charge(struct sched *sched, uint32_t client, uint64_t ns)
{
	struct sched_client *c = &sched->clients[client];
	uint64_t vtime_ns = c->vtime_ns + fair_by_weight(c, ns);

	c->vtime_ns = vtime_ns < VTIME_MAX ? vtime_ns : VTIME_MAX;
}

static uint64_t fair_key(struct sched *sched, uint32_t client)
{
	return sched->clients[client].vtime_ns / GRAIN_NS;
}

static uint64_t fair_clock_of(const struct sched *sched, const struct sched_client *c)
{
	return c->vtime_ns + fair_by_weight(c, policy_pending(sched, c));
}

/* When victim's clock shows what head's does, but not before a turn is over. */
static uint64_t fair_end(const struct sched *sched, uint32_t victim, uint32_t head, uint64_t end_ns,
			 uint64_t last_ns)
{
	const struct sched_client *v = &sched->clients[victim], *h = &sched->clients[head];
	uint64_t from_ns = fair_clock_of(sched, v), to_ns = fair_clock_of(sched, h), left_ns,
		 until_ns;

	if (from_ns >= to_ns || last_ns <= end_ns)
		return end_ns;
	left_ns = (to_ns - from_ns) / SCHED_WEIGHT_DEFAULT;
	if (left_ns > last_ns / v->claim.weight)
		return last_ns;
	until_ns = sched->now_ns + left_ns * v->claim.weight;
	if (until_ns > last_ns)
		until_ns = last_ns;
	return until_ns > end_ns ? until_ns : end_ns;
}

const struct policy policy_priority = {
	.has_levels = true,
	.key = fair_key,
	.end = fair_end,
	.charge = fair_charge,
	.join = fair_join,
	.wake = fair_wake,
	.sleep = fair_sleep,
};

const struct policy policy_fair = {
	.has_levels = false,
	.key = fair_key,
	.end = fair_end,
	.charge = fair_charge,
	.join = fair_join,
	.wake = fair_wake,
	.sleep = fair_sleep,
};
