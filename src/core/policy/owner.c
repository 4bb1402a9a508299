/* SPDX-License-Identifier: Apache-2.0 */

#include "core/policy/owner.h"

#include "core/policy/policy.h"
#include "core/policy/rank.h"

#include <assert.h>

/* The slot whose bucket holds the owners with this hash. */
static uint32_t *owner_bucket(const struct sched *sched, uint32_t number, uint32_t gpu)
{
	uint32_t x = (number ^ gpu << 27) * 0x9e3779b1u;

	x ^= x >> 15;
	return &sched->clients[x % sched->n_clients].own.bucket;
}

void owner_init(struct sched *sched)
{
	for (uint32_t i = 0; i < sched->n_clients; i++) {
		sched->clients[i].own = (struct sched_owner){
			.bucket = SCHED_NONE,
			.next = i + 1 < sched->n_clients ? i + 1 : SCHED_NONE,
		};
	}
	sched->free_owner = sched->n_clients > 0 ? 0 : SCHED_NONE;
}

/* There is a slot, as there are no more owners than clients. */
static uint32_t owner_new(struct sched *sched, uint32_t number, uint32_t gpu)
{
	uint32_t *bucket = owner_bucket(sched, number, gpu), slot = sched->free_owner;
	struct sched_owner *o = &sched->clients[slot].own;

	assert(slot != SCHED_NONE);
	sched->free_owner = o->next;
	/* The bucket in the slot is not this owner's. */
	*o = (struct sched_owner){
		.number = number,
		.gpu = gpu,
		.next = *bucket,
		.bucket = o->bucket,
		.front = SCHED_NONE,
		.ranked = SCHED_NONE,
		.turn_ns = sched->now_ns,
		.since_ns = sched->now_ns,
	};
	for (int level = 0; level < SCHED_PRIORITY_COUNT_; level++)
		o->least[level] = SCHED_NONE;
	*owner_bucket(sched, number, gpu) = slot;
	return slot;
}

void owner_join(struct sched *sched, uint32_t client)
{
	struct sched_client *c = &sched->clients[client];
	uint32_t number = sched->config.fair_users ? c->owner_number : 0;
	uint32_t slot = *owner_bucket(sched, number, c->gpu);

	while (slot != SCHED_NONE) {
		const struct sched_owner *o = &sched->clients[slot].own;

		if (o->number == number && o->gpu == c->gpu)
			break;
		slot = o->next;
	}
	if (slot == SCHED_NONE)
		slot = owner_new(sched, number, c->gpu);
	c->owner = slot;
	sched->clients[slot].own.n_clients++;
}

void owner_leave(struct sched *sched, uint32_t client)
{
	struct sched_client *c = &sched->clients[client];
	uint32_t slot = c->owner, *place;
	struct sched_owner *o = owner_of(sched, c);

	c->owner = SCHED_NONE;
	if (--o->n_clients > 0)
		return;
	place = owner_bucket(sched, o->number, o->gpu);
	while (*place != slot)
		place = &sched->clients[*place].own.next;
	*place = o->next;
	o->next = sched->free_owner;
	sched->free_owner = slot;
}

void owner_awake(struct sched *sched, uint32_t client, bool is_awake)
{
	struct sched_client *c = &sched->clients[client];
	struct sched_owner *o = owner_of(sched, c);
	uint32_t before = o->n_awake;

	if (c->is_awake == is_awake)
		return;
	c->is_awake = is_awake;
	o->n_awake += is_awake ? 1 : -1u;
	sched->gpus[c->gpu].n_owners += (o->n_awake > 0) - (before > 0);
}

enum sched_priority owner_level(const struct sched_owner *owner)
{
	int level = SCHED_PRIORITY_CRITICAL;

	while (level > SCHED_PRIORITY_LOW && owner->n_queued[level] == 0)
		level--;
	return (enum sched_priority)level;
}

uint32_t owner_n_waiting(const struct sched *sched, uint32_t gpu)
{
	uint32_t ranked = sched->gpus[gpu].ranked;

	return ranked == SCHED_NONE ? 0 : sched->clients[ranked].tree.n;
}

uint32_t owner_next(const struct sched *sched, uint32_t client)
{
	const struct sched_client *c = &sched->clients[client];
	uint32_t next = c->link[SCHED_LINK_LINE].next;

	if (c->is_front)
		return rank_first(sched, owner_of(sched, c)->ranked);
	return next != SCHED_NONE && sched->clients[next].owner == c->owner ? next : SCHED_NONE;
}

static void owner_insert_front(struct sched *sched, uint32_t client)
{
	struct sched_client *c = &sched->clients[client];
	struct sched_owner *o = owner_of(sched, c);

	c->is_front = true;
	c->front_band = policy_front_band(sched, client);
	c->front_key = c->is_resident ? 0 : o->turn_ns;
	rank_insert(sched, client);
}

static void owner_insert_behind(struct sched *sched, uint32_t client)
{
	struct sched_client *c = &sched->clients[client];

	c->is_front = false;
	c->front_band = 0;
	c->front_key = 0;
	rank_insert(sched, client);
}

/* Something that its owner's place comes from has changed. */
static uint32_t owner_move_front(struct sched *sched, const struct sched_owner *o)
{
	const struct sched_client *front;

	if (o->front == SCHED_NONE)
		return SCHED_NONE;
	front = &sched->clients[o->front];
	if (front->front_band == policy_front_band(sched, o->front) &&
	    front->front_key == o->turn_ns)
		return o->front;
	rank_remove(sched, o->front);
	owner_insert_front(sched, o->front);
	return o->front;
}

void owner_wait(struct sched *sched, uint32_t client)
{
	struct sched_client *c = &sched->clients[client];
	struct sched_owner *o = owner_of(sched, c);

	c->has_turn = false;
	if (o->front != SCHED_NONE)
		return;
	o->since_ns = sched->now_ns;
	o->is_aged = false;
}

uint32_t owner_enter(struct sched *sched, uint32_t client)
{
	struct sched_client *c = &sched->clients[client];
	struct sched_owner *o = owner_of(sched, c);
	uint32_t old = o->front;

	if (c->is_resident) {
		owner_insert_front(sched, client);
		return SCHED_NONE;
	}
	c->queued_level = c->level;
	o->n_queued[c->level]++;
	if (old != SCHED_NONE && !rank_is_before(c, &sched->clients[old])) {
		owner_insert_behind(sched, client);
		(void)owner_move_front(sched, o);
		return SCHED_NONE;
	}
	if (old != SCHED_NONE)
		rank_remove(sched, old);
	o->front = client;
	owner_insert_front(sched, client);
	if (old != SCHED_NONE)
		owner_insert_behind(sched, old);
	return old;
}

uint32_t owner_exit(struct sched *sched, uint32_t client)
{
	struct sched_client *c = &sched->clients[client];
	struct sched_owner *o = owner_of(sched, c);

	rank_remove(sched, client);
	if (c->is_front && o->front != client) { /* it entered as a resident one */
		c->is_front = false;
		return SCHED_NONE;
	}
	o->n_queued[c->queued_level]--;
	if (o->front != client) {
		(void)owner_move_front(sched, o);
		return SCHED_NONE;
	}
	c->is_front = false;
	o->front = rank_first(sched, o->ranked);
	if (o->front == SCHED_NONE)
		return SCHED_NONE;
	rank_remove(sched, o->front);
	owner_insert_front(sched, o->front);
	return o->front;
}

uint32_t owner_turn(struct sched *sched, uint32_t client, bool has_switched)
{
	struct sched_client *c = &sched->clients[client];
	struct sched_owner *o = owner_of(sched, c);

	bool is_first = sched->gpus[c->gpu].queue.first == client;

	/*
	 * Else it passes, or finds room at once: nobody waits longer for that, so it must not cost
	 * its owner the next turn.
	 */
	c->has_turn = has_switched || (is_first && c->asked_ns < sched->now_ns);
	if (!c->has_turn)
		return SCHED_NONE;
	c->kept_turn_ns = o->turn_ns;
	c->kept_since_ns = o->since_ns;
	/* Later than those who came, or were sorted anew, in this moment. */
	o->turn_ns = sched->now_ns > o->turn_ns ? sched->now_ns : o->turn_ns + 1;
	o->since_ns = sched->now_ns;
	o->is_aged = false;
	return o->front == client ? SCHED_NONE : owner_move_front(sched, o);
}

uint32_t owner_put_back(struct sched *sched, uint32_t client)
{
	struct sched_client *c = &sched->clients[client];
	struct sched_owner *o = owner_of(sched, c);

	if (!c->has_turn)
		return SCHED_NONE;
	c->has_turn = false;
	o->turn_ns = c->kept_turn_ns < o->turn_ns ? c->kept_turn_ns : o->turn_ns;
	o->since_ns = c->kept_since_ns < o->since_ns ? c->kept_since_ns : o->since_ns;
	return owner_move_front(sched, o);
}
