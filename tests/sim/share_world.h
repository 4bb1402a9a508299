/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_TESTS_SIM_SHARE_WORLD_H
#define NVS_TESTS_SIM_SHARE_WORLD_H

/*
 * share in a closed loop with simulated clients on one GPU: critical ones whose bursts need
 * GPU time, and who in some seeds work between them too, others that compute when they can,
 * messages that take their time, freezes that do. What the clients really get follows from the
 * slices and holds that they were told.
 *
 * A header with code, and one world, because sim_share.c would be too long with it.
 */

#include "core/timeshare/preempt_choice.h"
#include "core/timeshare/timeshare.h"
#include "util/prng.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define US UINT64_C(1000)
#define MS UINT64_C(1000000)
#define S  UINT64_C(1000000000)

#define CLIENTS    9
#define RUN_NS     (20 * S)
#define REPORT_NS  (10 * MS)
#define WIRE_MAX   (100 * US)
#define FREEZE_MAX (2 * MS)
#define ENOUGH     (3 * WIRE_MAX + FREEZE_MAX) /* for a message and a freeze */
#define QUEUE      16
#define SLO_US     5000u

struct order { /* a SET_SHARE on its way, then being done */
	struct timeshare_action set;
	uint64_t at_ns;
	bool is_answer;
	uint32_t outcome;
	uint64_t took_ns;
	bool is_held;
};

struct client {
	bool is_alive;
	bool is_critical;
	bool is_at_work;
	bool is_told_busy; /* as its last report says */
	bool is_greedy;    /* always at work */
	bool is_bursting;
	bool is_asked;   /* one that is not critical has a request, with work or without */
	bool was_capped; /* in this burst */
	uint32_t weight;
	uint64_t slice_us;
	uint64_t until_ns;  /* held until then */
	uint64_t next_ns;   /* it begins or ends its work; a critical one: its next burst */
	uint64_t hint_ns;   /* it gives a hint then; 0: none */
	uint64_t report_ns; /* not before */
	uint64_t need_ns;   /* GPU time of the burst */
	uint64_t left_ns;   /* what it still lacks of it */
	uint64_t begun_ns;  /* the burst */
	uint64_t told_ns;   /* it said so that it has work */
	uint64_t last_ns;   /* it computed last, or wanted nothing */
	uint64_t busy_ns, held_ns, got_ns;
	uint64_t half_ns; /* got_ns in the middle of the run */
	struct order queue[QUEUE];
	uint32_t n_queued;
};

static struct world {
	struct timeshare share;
	struct timeshare_client slots[CLIENTS];
	struct client clients[CLIENTS];
	uint64_t seed, rng, now_ns, hash;
	bool has_faults;
	bool has_deaths;
	bool has_requests;   /* of those in no hurry, too */
	bool are_equals;     /* none is critical, all are greedy; weights from 1 to 8 */
	bool is_overloaded;  /* the critical never rest */
	bool is_loose;       /* the critical work between bursts, too */
	bool is_blind;       /* clients can not tell how much of their time they were on the GPU */
	bool is_saving;      /* energy */
	bool is_pinned;      /* their bursts hold others, whatever they learn */
	uint32_t n_lc, n_be; /* the critical are the first; the next one is greedy and lives */
	uint32_t lc_max_percent;
	enum timeshare_rule rule;
	uint64_t be_ns;   /* GPU time of the others, while one of them is greedy */
	uint64_t need_ns; /* a burst, or a hint of one, asked for room last */
	uint64_t start_ns;
	uint64_t last_ns, n_at_once; /* steps within a microsecond */
	uint64_t n_steps, n_told, n_bursts;
} world;

static void on_abort(int number)
{
	char text[96];
	int n = snprintf(text, sizeof(text), "sim_share: failed with seed %" PRIu64 "\n",
			 world.seed);

	(void)number;
	if (n > 0)
		(void)!write(STDERR_FILENO, text, (size_t)n);
}

static void check(bool is_good, const char *what, uint32_t client)
{
	if (is_good)
		return;
	fprintf(stderr, "sim_share: %s: client %u at %.6f s\n", what, client,
		(double)(world.now_ns - world.start_ns) / 1e9);
	abort();
}

static uint64_t below(uint64_t n)
{
	return prng_below(&world.rng, n);
}

static bool is_lucky(uint32_t percent)
{
	return below(100) < percent;
}

static void mix(uint64_t value)
{
	world.hash = (world.hash ^ value) * UINT64_C(0x9e3779b97f4a7c15);
	world.hash ^= world.hash >> 29;
}

/* ---- the machine ----------------------------------------------------------- */

static void take(const struct timeshare_action *action)
{
	struct client *c = &world.clients[action->client];

	check(c->is_alive, "told after its end", action->client);
	check(c->n_queued < QUEUE, "told too much", action->client);
	check(action->hold_us * US <= world.share.config.hold_ns, "held for too long",
	      action->client);
	check(!c->is_critical || action->hold_us * US <= MS, "critical, and held", action->client);
	check(action->slice_us == 0 || (action->slice_us >= TIMESHARE_SLICE_MIN &&
					action->slice_us <= TIMESHARE_SLICE_MAX),
	      "a slice out of bounds", action->client);
	c->queue[c->n_queued++] = (struct order){
		.set = *action,
		.at_ns = world.now_ns + 10 * US + below(WIRE_MAX - 10 * US),
	};
	/* A socket keeps the order. */
	for (uint32_t i = c->n_queued - 1; i > 0; i--) {
		if (c->queue[i - 1].at_ns > c->queue[i].at_ns)
			c->queue[i].at_ns = c->queue[i - 1].at_ns;
	}
	world.n_told++;
}

static void step(struct timeshare_event event)
{
	struct timeshare_actions actions;

	event.now_ns = world.now_ns;
	for (uint32_t i = 0; i < world.n_lc && world.is_pinned; i++) {
		for (int k = 0; k < TIMESHARE_WARNINGS_; k++) {
			world.slots[i].arms[k].n_bursts = 1025;
			world.slots[i].arms[k].n_noted = ARM_FIRST_BURSTS;
			world.slots[i].arms[k].best = TIMESHARE_ARM_HOLD;
		}
	}
	(void)timeshare_step(&world.share, &event, &actions);
	world.n_at_once++;
	if (event.now_ns > world.last_ns + US) {
		world.last_ns = event.now_ns;
		world.n_at_once = 0;
	}
	check(world.n_at_once < 1000, "asks to be called at once for ever", CLIENTS);
	timeshare_assert_valid(&world.share);
	world.n_steps++;
	for (uint32_t i = 0; i < actions.n; i++) {
		mix(actions.at[i].client + actions.at[i].slice_us * 3 + actions.at[i].hold_us * 7);
		if (actions.at[i].type == TIMESHARE_ACTION_SET)
			take(&actions.at[i]);
	}
}

static void say(uint32_t client, enum timeshare_activity activity, uint64_t value)
{
	struct client *c = &world.clients[client];

	if (activity == TIMESHARE_ACTIVITY_BUSY || activity == TIMESHARE_ACTIVITY_IDLE)
		c->is_told_busy = activity == TIMESHARE_ACTIVITY_BUSY;
	if (activity == TIMESHARE_ACTIVITY_BUSY)
		c->told_ns = world.now_ns;
	c->report_ns = world.now_ns + REPORT_NS;
	step((struct timeshare_event){.type = TIMESHARE_EVENT_ACTIVITY,
				      .client = client,
				      .activity = activity,
				      .busy_ns = c->busy_ns,
				      .held_ns = c->held_ns,
				      .ran_ns = world.is_blind ? 0 : c->got_ns,
				      .value = value});
}

/* ---- the clients ----------------------------------------------------------- */

static bool is_held(const struct client *c)
{
	return c->until_ns > world.now_ns;
}

static bool computes(const struct client *c)
{
	return c->is_alive && c->is_at_work && !is_held(c);
}

static void join(uint32_t client)
{
	struct client *c = &world.clients[client];
	bool is_critical = client < world.n_lc;

	*c = (struct client){
		.is_alive = true,
		.is_critical = is_critical,
		.is_greedy =
			world.are_equals || client == world.n_lc || (!is_critical && is_lucky(50)),
		.weight = 100 * (1 + (uint32_t)below(world.are_equals ? 8 : 3)),
		.next_ns = world.now_ns + below(20 * MS),
		.report_ns = world.now_ns,
		.last_ns = world.now_ns,
	};
	step((struct timeshare_event){
		.type = TIMESHARE_EVENT_JOIN,
		.client = client,
		.claim = {is_critical ? TIMESHARE_CLASS_CRITICAL : TIMESHARE_CLASS_NORMAL,
			  c->weight, SLO_US, 0}});
	step((struct timeshare_event){
		.type = TIMESHARE_EVENT_RUN, .client = client, .running = true});
}

/* Nobody is held for the dead. */
static void forget_need(void)
{
	uint64_t active_ns = world.share.config.active_ns;

	for (uint32_t i = 0; i < world.n_lc; i++) {
		if (world.clients[i].is_alive)
			return;
	}
	if (world.need_ns + active_ns > world.now_ns)
		world.need_ns = world.now_ns - active_ns;
}

static void die(uint32_t client)
{
	world.clients[client].is_alive = false;
	world.clients[client].n_queued = 0;
	world.clients[client].next_ns = world.now_ns + below(300 * MS);
	step((struct timeshare_event){.type = TIMESHARE_EVENT_LEAVE, .client = client});
	forget_need();
}

static void give_hint(uint32_t client)
{
	struct client *c = &world.clients[client];

	c->hint_ns = 0;
	if (world.need_ns < c->next_ns + world.share.config.hint_ns)
		world.need_ns = c->next_ns + world.share.config.hint_ns;
	say(client, TIMESHARE_ACTIVITY_HINT, c->next_ns - world.now_ns);
}

/* The first order has arrived, or has been done. */
static void on_order(uint32_t client)
{
	struct client *c = &world.clients[client];
	struct order *order = &c->queue[0];

	if (!order->is_answer) {
		uint64_t took_ns =
			order->set.hold_us ? 300 * US + below(FREEZE_MAX - 300 * US) : 100 * US;

		if (world.has_faults && is_lucky(3))
			took_ns = below(2) ? 15 * MS : 1500 * MS;
		if (world.has_faults && order->set.hold_us && is_lucky(1))
			order->outcome = 6;
		order->is_answer = true;
		order->took_ns = took_ns;
		order->at_ns = world.now_ns + took_ns;
		return;
	}
	c->slice_us = order->set.slice_us;
	if (!order->outcome)
		c->until_ns = order->set.hold_us
				      ? world.now_ns + order->set.hold_us * US - order->took_ns
				      : 0;
	if (c->until_ns < world.now_ns)
		c->until_ns = 0;
	{
		struct order done = *order;

		c->n_queued--;
		memmove(c->queue, c->queue + 1, c->n_queued * sizeof(c->queue[0]));
		if (world.has_faults && is_lucky(1))
			return; /* the answer is lost */
		step((struct timeshare_event){.type = TIMESHARE_EVENT_DONE,
					      .client = client,
					      .seq = done.set.seq,
					      .outcome = done.outcome,
					      .took_ns = done.took_ns,
					      .is_held = c->until_ns > 0});
	}
}

static void begin_burst(uint32_t client)
{
	struct client *c = &world.clients[client];

	c->is_bursting = true;
	c->is_at_work = true;
	c->begun_ns = c->last_ns = world.now_ns;
	c->need_ns =
		world.is_overloaded ? 200 * MS : 200 * US + below(is_lucky(20) ? 60 * MS : 8 * MS);
	c->left_ns = c->need_ns;
	c->was_capped = false;
	c->next_ns = UINT64_MAX;
	c->hint_ns = 0;
	world.n_bursts++;
	say(client, TIMESHARE_ACTIVITY_BEGIN, 0);
}

static void end_burst(uint32_t client)
{
	struct client *c = &world.clients[client];
	uint64_t gap_ns = world.is_overloaded ? US : MS + below(is_lucky(5) ? 3 * S : 20 * MS);

	c->is_bursting = false;
	c->is_at_work = world.is_loose && (world.is_overloaded || is_lucky(70));
	if (c->is_at_work && world.is_overloaded)
		gap_ns = below(10 * S);
	c->next_ns = world.now_ns + gap_ns;
	if (gap_ns > 3 * MS && is_lucky(30))
		c->hint_ns = c->next_ns - 2 * MS - below(MS);
	say(client, TIMESHARE_ACTIVITY_END, world.now_ns - c->begun_ns);
}

static void on_next(uint32_t client)
{
	struct client *c = &world.clients[client];

	if (!c->is_alive) {
		join(client);
	} else if (world.has_deaths && is_lucky(1) && client != world.n_lc) {
		die(client);
	} else if (c->is_critical) {
		begin_burst(client);
	} else {
		c->is_at_work = c->is_greedy || !c->is_at_work;
		if (world.has_requests && is_lucky(50)) {
			c->is_asked = !c->is_asked;
			say(client, c->is_asked ? TIMESHARE_ACTIVITY_BEGIN : TIMESHARE_ACTIVITY_END,
			    MS);
		}
		c->last_ns = world.now_ns;
		c->next_ns = world.now_ns + (c->is_greedy ? 100 * MS : 100 * US + below(60 * MS));
	}
}

/*
 * It is told to stop, and fails to: whatever held it has ended, and what it is at was forgotten,
 * so it says that again.
 */
static void run_on(uint32_t client)
{
	struct client *c = &world.clients[client];

	c->until_ns = 0;
	step((struct timeshare_event){.type = TIMESHARE_EVENT_RUN, .client = client});
	step((struct timeshare_event){
		.type = TIMESHARE_EVENT_RUN, .client = client, .running = true});
	if (c->is_bursting || c->is_asked)
		say(client, TIMESHARE_ACTIVITY_BEGIN, 0);
	if (c->is_told_busy)
		say(client, TIMESHARE_ACTIVITY_BUSY, 0);
}

static void on_report(uint32_t client)
{
	struct client *c = &world.clients[client];

	if (world.has_faults && is_lucky(1))
		run_on(client);
	if (c->is_at_work != c->is_told_busy)
		say(client, c->is_at_work ? TIMESHARE_ACTIVITY_BUSY : TIMESHARE_ACTIVITY_IDLE, 0);
	else
		say(client, TIMESHARE_ACTIVITY_USE, 0);
}

/* ---- time ------------------------------------------------------------------ */

static void least(uint64_t *at_ns, uint64_t candidate_ns)
{
	if (candidate_ns < *at_ns)
		*at_ns = candidate_ns;
}

static uint64_t slices(void)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < CLIENTS; i++) {
		const struct client *c = &world.clients[i];

		if (computes(c))
			sum += c->slice_us ? c->slice_us : 2048;
	}
	return sum;
}

static uint64_t timeshare_of(const struct client *c, uint64_t ns, uint64_t sum)
{
	return (uint64_t)((double)ns * (double)(c->slice_us ? c->slice_us : 2048) / (double)sum);
}

static uint64_t next_event(void)
{
	uint64_t at_ns = timeshare_deadline(&world.share), sum = slices();

	for (uint32_t i = 0; i < CLIENTS; i++) {
		const struct client *c = &world.clients[i];

		least(&at_ns, c->next_ns);
		if (!c->is_alive)
			continue;
		if (c->n_queued)
			least(&at_ns, c->queue[0].at_ns);
		if (is_held(c))
			least(&at_ns, c->until_ns);
		if (c->hint_ns)
			least(&at_ns, c->hint_ns);
		if (c->is_at_work || c->is_told_busy)
			least(&at_ns, c->report_ns);
		if (c->is_bursting && computes(c)) {
			double share = (double)(c->slice_us ? c->slice_us : 2048) / (double)sum;

			least(&at_ns, world.now_ns + (uint64_t)((double)c->left_ns / share) + 1);
		}
	}
	return at_ns < world.now_ns ? world.now_ns : at_ns;
}

/* Nothing happens until then; who computes gets its part. */
static void pass(uint64_t at_ns)
{
	uint64_t ns = at_ns - world.now_ns, sum = slices();

	for (uint32_t i = 0; i < CLIENTS; i++) {
		struct client *c = &world.clients[i];

		if (c->is_alive && c->is_at_work && is_held(c))
			c->held_ns += ns;
		if (!computes(c))
			continue;
		c->busy_ns += ns;
		c->got_ns += timeshare_of(c, ns, sum);
		c->last_ns = at_ns;
		if (c->is_bursting)
			c->left_ns -= timeshare_of(c, ns, sum) < c->left_ns
					      ? timeshare_of(c, ns, sum)
					      : c->left_ns;
		if (!c->is_critical)
			world.be_ns += timeshare_of(c, ns, sum);
	}
	for (uint32_t i = 0; i < world.n_lc; i++) {
		const struct client *c = &world.clients[i];

		if (c->is_alive && (c->is_at_work || c->is_told_busy) && world.need_ns < at_ns)
			world.need_ns = at_ns;
	}
	world.now_ns = at_ns;
}

#endif
