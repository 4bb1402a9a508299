/* SPDX-License-Identifier: Apache-2.0 */

#include "core/policy/sleeper.h"

#include "core/list.h"
#include "core/policy/owner.h"
#include "core/u64.h"

#define SECOND_NS 1000000000ull

/*
 * The last minute: a sum that loses a sixth every ten seconds. Somebody with a constant part of the
 * time has that part of 50 to 60 s in it.
 */
#define TICK_NS   (10 * SECOND_NS)
#define KEPT      5u
#define KEPT_OF   6u
#define TICKS_MAX 128 /* then nothing is left of it */
#define MINUTE_NS (60 * SECOND_NS)

/* A sleeper computes for this part of the time at the most. */
#define BUSY_PART 4

/* An account holds what so much time brings, so that several may wake after a pause. */
#define ACCOUNT_SPAN_NS (30 * SECOND_NS)

/* Out for the sleeper, and back. */
#define WAYS 2

/* The rest of the minute, now. */
static uint64_t minute_ns(const struct sched *sched, const struct sched_minute *minute)
{
	uint64_t n = sched->now_ns / TICK_NS - minute->tick, ns = minute->ns;

	if (n > TICKS_MAX)
		return 0;
	while (n-- > 0)
		ns = ns / KEPT_OF * KEPT;
	return ns;
}

static void minute_add(const struct sched *sched, struct sched_minute *minute, uint64_t ns)
{
	uint64_t sum = minute_ns(sched, minute);

	minute->ns = u64_min(sum, UINT64_MAX - ns) + ns;
	minute->tick = sched->now_ns / TICK_NS;
}

bool sleeper_is_on(const struct sched *sched)
{
	return sched->config.moving_percent > 0 && sched->config.anti_thrash &&
	       sched->config.policy != SCHED_POLICY_DEADLINE;
}

bool sleeper_is(const struct sched *sched, uint32_t client)
{
	const struct sched_client *c = &sched->clients[client];

	return c->has_slept && !c->is_fixed && !c->is_resident && c->use_ns <= SLEEPER_USE_NS &&
	       minute_ns(sched, &c->used_minute) <= MINUTE_NS / BUSY_PART;
}

bool sleeper_is_below_share(const struct sched *sched, uint32_t client)
{
	const struct sched_client *c = &sched->clients[client];
	const struct sched_owner *o = owner_of(sched, c);
	const struct sched_gpu *g = &sched->gpus[c->gpu];
	uint64_t ns = minute_ns(sched, &o->minute);

	if (g->n_owners <= 1)
		return minute_ns(sched, &c->had_minute) < MINUTE_NS / u64_max(o->n_awake, 1);
	if (o->n_on > 0)
		ns += g->wanted_ns - o->on_wanted_ns;
	return ns < MINUTE_NS / g->n_owners;
}

/* A long stay counts when it ends: nothing of it is older than a minute. */
static void minute_had(const struct sched *sched, struct sched_minute *minute, uint64_t ns)
{
	minute_add(sched, minute, u64_min(ns, MINUTE_NS));
}

void sleeper_on(struct sched *sched, uint32_t client, bool is_on)
{
	struct sched_client *c = &sched->clients[client];
	struct sched_owner *o = owner_of(sched, c);
	uint64_t wanted_ns = sched->gpus[c->gpu].wanted_ns;

	if (is_on) {
		c->on_wanted_ns = wanted_ns;
		if (o->n_on++ == 0)
			o->on_wanted_ns = wanted_ns;
		return;
	}
	minute_had(sched, &c->had_minute, wanted_ns - c->on_wanted_ns);
	if (--o->n_on == 0)
		minute_had(sched, &o->minute, wanted_ns - o->on_wanted_ns);
}

void sleeper_reset(struct sched *sched)
{
	for (uint32_t i = 0; i < sched->n_clients; i++) {
		struct sched_client *c = &sched->clients[i];
		struct sched_owner *o;

		if (c->state < SCHED_CLIENT_INCOMING)
			continue;
		o = owner_of(sched, c);
		o->n_on++;
		o->on_wanted_ns = sched->gpus[c->gpu].wanted_ns;
	}
}

void sleeper_used(struct sched *sched, uint32_t client, uint64_t ns)
{
	struct sched_client *c = &sched->clients[client];

	c->use_ns = u64_min(c->use_ns, UINT64_MAX - ns) + ns;
	minute_add(sched, &c->used_minute, ns);
}

void sleeper_end_use(struct sched *sched, uint32_t client)
{
	struct sched_client *c = &sched->clients[client];

	c->has_slept = c->use_ns <= SLEEPER_USE_NS;
	c->use_ns = 0;
}

void sleeper_lose(struct sched *sched, uint32_t client)
{
	sched->clients[client].has_slept = false;
}

void sleeper_wait(struct sched *sched, uint32_t client)
{
	struct sched_client *c = &sched->clients[client];

	if (c->state != SCHED_CLIENT_WAITING || !sleeper_is_on(sched) || !sleeper_is(sched, client))
		return;
	c->waking = SCHED_WAKING_SOON;
	list_push_back(LIST_SLOTS(sched->clients, SCHED_LINK_WOKEN), &sched->gpus[c->gpu].woken,
		       client);
}

void sleeper_leave(struct sched *sched, uint32_t client, enum sched_waking state)
{
	struct sched_client *c = &sched->clients[client];

	if (c->waking == SCHED_WAKING_SOON)
		list_remove(LIST_SLOTS(sched->clients, SCHED_LINK_WOKEN),
			    &sched->gpus[c->gpu].woken, client);
	c->waking = state;
}

static int64_t account_most(const struct sched *sched)
{
	return (int64_t)(ACCOUNT_SPAN_NS / 100 * sched->config.moving_percent);
}

/* Those that came early, or because somebody did, are what the account pays for. */
static bool account_fills(const struct sched_gpu *g)
{
	return g->sums.n_holding > g->sums.n_guests;
}

static void account_fill(struct sched *sched, struct sched_gpu *g)
{
	uint64_t ns = sched->now_ns - g->filled_ns;
	int64_t most = account_most(sched);

	g->filled_ns = sched->now_ns;
	if (g->queue.n > 0)
		g->wanted_ns += ns;
	if (account_fills(g))
		g->moving_ns += (int64_t)(ns / 100 * sched->config.moving_percent +
					  ns % 100 * sched->config.moving_percent / 100);
	if (g->moving_ns > most)
		g->moving_ns = most;
}

enum sched_early sleeper_status(const struct sched *sched, uint32_t client)
{
	const struct sched_client *c = &sched->clients[client];

	if (c->is_displaced)
		return SCHED_EARLY_MADE_WAY;
	if (c->is_early)
		return SCHED_EARLY_CAME;
	if (c->waking == SCHED_WAKING_SHARE)
		return SCHED_EARLY_SHARE;
	if (c->waking != SCHED_WAKING_SOON || !sleeper_is_on(sched))
		return SCHED_EARLY_NOT;
	return sched->gpus[c->gpu].moving_ns < (int64_t)c->early_cost_ns ? SCHED_EARLY_MOVES
									 : SCHED_EARLY_SOON;
}

void sleeper_fill(struct sched *sched)
{
	for (uint32_t i = 0; i < SCHED_GPUS_MAX; i++) {
		if (sched->gpus[i].is_known)
			account_fill(sched, &sched->gpus[i]);
	}
}

uint64_t sleeper_affords_ns(const struct sched *sched, uint32_t gpu, uint64_t cost_ns)
{
	int64_t most = account_most(sched), has = sched->gpus[gpu].moving_ns, needs = most;

	/* A switch that costs more than an account can have needs a full one. */
	if (cost_ns < (uint64_t)most)
		needs = (int64_t)cost_ns;
	if (has >= needs)
		return sched->now_ns;
	if (!account_fills(&sched->gpus[gpu]))
		return SCHED_NO_DEADLINE;
	return sched->now_ns + (uint64_t)(needs - has) / sched->config.moving_percent * 100 + 100;
}

void sleeper_come(struct sched *sched, uint32_t client)
{
	struct sched_client *c = &sched->clients[client];

	c->is_early = true;
	c->is_guest = true;
	sched->gpus[c->gpu].moving_ns -= (int64_t)c->early_cost_ns;
	sched->gpus[c->gpu].n_early++;
}

void sleeper_pay(struct sched *sched, uint32_t client)
{
	const struct sched_client *c = &sched->clients[client];

	/* Somebody that has aged meanwhile may have had a turn, which is no sleeper's doing. */
	sched->gpus[c->gpu].moving_ns -=
		(int64_t)u64_min(sched->now_ns - c->asked_ns, ACCOUNT_SPAN_NS);
}

void sleeper_come_done(struct sched *sched, uint32_t client)
{
	struct sched_client *c = &sched->clients[client];
	uint64_t took_ns;

	if (!c->is_early)
		return;
	took_ns = (sched->now_ns - c->since_ns) * WAYS;
	sched->gpus[c->gpu].moving_ns += (int64_t)c->early_cost_ns - (int64_t)took_ns;
	/* The way there counts as had, as everybody's does. */
	minute_add(sched, &c->had_minute, took_ns / WAYS);
	minute_add(sched, &owner_of(sched, c)->minute, took_ns / WAYS);
}
