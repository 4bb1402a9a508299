/* SPDX-License-Identifier: Apache-2.0 */
#include "share_world.h"

#include "core/timeshare/preempt_choice.h"
#include "mix.h"
#include "util/prng.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct world world;

void share_on_abort(int number)
{
	char text[96];
	int n = snprintf(text, sizeof(text), "sim_share: failed: SEED=%" PRIu64 "\n", world.seed);

	(void)number;
	if (n > 0)
		(void)!write(STDERR_FILENO, text, (size_t)n);
}

void share_check(bool is_good, const char *what, uint32_t client)
{
	if (is_good)
		return;
	fprintf(stderr, "sim_share: %s: client %u at %.6f s\n", what, client,
		(double)(world.now_ns - world.start_ns) / 1e9);
	abort();
}

uint64_t share_below(uint64_t n)
{
	return prng_below(&world.rng, n);
}

static bool share_is_lucky(uint32_t percent)
{
	return share_below(100) < percent;
}

/* ---- the machine ----------------------------------------------------------- */

static void take(const struct timeshare_action *action)
{
	struct client *c = &world.clients[action->client];

	share_check(c->is_alive, "told after its end", action->client);
	share_check(c->n_queued < QUEUE, "told too much", action->client);
	share_check(action->hold_us * US <= world.share.config.hold_ns, "held for too long",
		    action->client);
	share_check(!c->is_critical || action->hold_us * US <= MS, "critical, and held",
		    action->client);
	share_check(action->slice_us == 0 || (action->slice_us >= TIMESHARE_SLICE_MIN &&
					      action->slice_us <= TIMESHARE_SLICE_MAX),
		    "a slice out of bounds", action->client);
	c->queue[c->n_queued++] = (struct order){
		.set = *action,
		.at_ns = world.now_ns + 10 * US + share_below(WIRE_MAX - 10 * US),
	};
	/* A socket keeps the order. */
	for (uint32_t i = c->n_queued - 1; i > 0; i--) {
		if (c->queue[i - 1].at_ns > c->queue[i].at_ns)
			c->queue[i].at_ns = c->queue[i - 1].at_ns;
	}
	world.n_told++;
}

void share_step(struct timeshare_event event)
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
	share_check(world.n_at_once < 1000, "asks to be called at once for ever", CLIENTS);
	timeshare_assert_valid(&world.share);
	world.n_steps++;
	for (uint32_t i = 0; i < actions.n; i++) {
		mix(&world.hash,
		    actions.at[i].client + actions.at[i].slice_us * 3 + actions.at[i].hold_us * 7);
		if (actions.at[i].type == TIMESHARE_ACTION_SET)
			take(&actions.at[i]);
	}
}

static void share_say(uint32_t client, enum timeshare_activity activity, uint64_t value)
{
	struct client *c = &world.clients[client];

	if (activity == TIMESHARE_ACTIVITY_BUSY || activity == TIMESHARE_ACTIVITY_IDLE)
		c->is_told_busy = activity == TIMESHARE_ACTIVITY_BUSY;
	if (activity == TIMESHARE_ACTIVITY_BUSY)
		c->told_ns = world.now_ns;
	c->report_ns = world.now_ns + REPORT_NS;
	share_step((struct timeshare_event){.type = TIMESHARE_EVENT_ACTIVITY,
					    .client = client,
					    .activity = activity,
					    .busy_ns = c->busy_ns,
					    .held_ns = c->held_ns,
					    .ran_ns = world.is_blind ? 0 : c->got_ns,
					    .value = value});
}

/* ---- the clients ----------------------------------------------------------- */

bool share_is_held(const struct client *c)
{
	return c->until_ns > world.now_ns;
}

bool share_computes(const struct client *c)
{
	return c->is_alive && c->is_at_work && !share_is_held(c);
}

static void share_join(uint32_t client)
{
	struct client *c = &world.clients[client];
	bool is_critical = client < world.n_lc;

	*c = (struct client){
		.is_alive = true,
		.is_critical = is_critical,
		.is_greedy = world.are_equals || client == world.n_lc ||
			     (!is_critical && share_is_lucky(50)),
		.weight = 100 * (1 + (uint32_t)share_below(world.are_equals ? 8 : 3)),
		.next_ns = world.now_ns + share_below(20 * MS),
		.report_ns = world.now_ns,
		.last_ns = world.now_ns,
	};
	share_step((struct timeshare_event){
		.type = TIMESHARE_EVENT_JOIN,
		.client = client,
		.claim = {is_critical ? TIMESHARE_CLASS_CRITICAL : TIMESHARE_CLASS_NORMAL,
			  c->weight, SLO_US, 0}});
	share_step((struct timeshare_event){
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

void share_die(uint32_t client)
{
	world.clients[client].is_alive = false;
	world.clients[client].n_queued = 0;
	world.clients[client].next_ns = world.now_ns + share_below(300 * MS);
	share_step((struct timeshare_event){.type = TIMESHARE_EVENT_LEAVE, .client = client});
	forget_need();
}

void share_give_hint(uint32_t client)
{
	struct client *c = &world.clients[client];

	c->hint_ns = 0;
	if (world.need_ns < c->next_ns + world.share.config.hint_ns)
		world.need_ns = c->next_ns + world.share.config.hint_ns;
	share_say(client, TIMESHARE_ACTIVITY_HINT, c->next_ns - world.now_ns);
}

void share_on_order(uint32_t client)
{
	struct client *c = &world.clients[client];
	struct order *order = &c->queue[0];

	if (!order->is_answer) {
		uint64_t took_ns = order->set.hold_us
					   ? 300 * US + share_below(FREEZE_MAX - 300 * US)
					   : 100 * US;

		if (world.has_faults && share_is_lucky(3))
			took_ns = share_below(2) ? 15 * MS : 1500 * MS;
		if (world.has_faults && order->set.hold_us && share_is_lucky(1))
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
		if (world.has_faults && share_is_lucky(1))
			return; /* the answer is lost */
		share_step((struct timeshare_event){.type = TIMESHARE_EVENT_DONE,
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
	c->need_ns = world.is_overloaded
			     ? 200 * MS
			     : 200 * US + share_below(share_is_lucky(20) ? 60 * MS : 8 * MS);
	c->left_ns = c->need_ns;
	c->was_capped = false;
	c->next_ns = UINT64_MAX;
	c->hint_ns = 0;
	world.n_bursts++;
	share_say(client, TIMESHARE_ACTIVITY_BEGIN, 0);
}

void share_end_burst(uint32_t client)
{
	struct client *c = &world.clients[client];
	uint64_t gap_ns =
		world.is_overloaded ? US : MS + share_below(share_is_lucky(5) ? 3 * S : 20 * MS);

	c->is_bursting = false;
	c->is_at_work = world.is_loose && (world.is_overloaded || share_is_lucky(70));
	if (c->is_at_work && world.is_overloaded)
		gap_ns = share_below(10 * S);
	c->next_ns = world.now_ns + gap_ns;
	if (gap_ns > 3 * MS && share_is_lucky(30))
		c->hint_ns = c->next_ns - 2 * MS - share_below(MS);
	share_say(client, TIMESHARE_ACTIVITY_END, world.now_ns - c->begun_ns);
}

void share_on_next(uint32_t client)
{
	struct client *c = &world.clients[client];

	if (!c->is_alive) {
		share_join(client);
	} else if (world.has_deaths && share_is_lucky(1) && client != world.n_lc) {
		share_die(client);
	} else if (c->is_critical) {
		begin_burst(client);
	} else {
		c->is_at_work = c->is_greedy || !c->is_at_work;
		if (world.has_requests && share_is_lucky(50)) {
			c->is_asked = !c->is_asked;
			share_say(client,
				  c->is_asked ? TIMESHARE_ACTIVITY_BEGIN : TIMESHARE_ACTIVITY_END,
				  MS);
		}
		c->last_ns = world.now_ns;
		c->next_ns =
			world.now_ns + (c->is_greedy ? 100 * MS : 100 * US + share_below(60 * MS));
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
	share_step((struct timeshare_event){.type = TIMESHARE_EVENT_RUN, .client = client});
	share_step((struct timeshare_event){
		.type = TIMESHARE_EVENT_RUN, .client = client, .running = true});
	if (c->is_bursting || c->is_asked)
		share_say(client, TIMESHARE_ACTIVITY_BEGIN, 0);
	if (c->is_told_busy)
		share_say(client, TIMESHARE_ACTIVITY_BUSY, 0);
}

void share_on_report(uint32_t client)
{
	struct client *c = &world.clients[client];

	if (world.has_faults && share_is_lucky(1))
		run_on(client);
	if (c->is_at_work != c->is_told_busy)
		share_say(client, c->is_at_work ? TIMESHARE_ACTIVITY_BUSY : TIMESHARE_ACTIVITY_IDLE,
			  0);
	else
		share_say(client, TIMESHARE_ACTIVITY_USE, 0);
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

		if (share_computes(c))
			sum += c->slice_us ? c->slice_us : 2048;
	}
	return sum;
}

static uint64_t timeshare_of(const struct client *c, uint64_t ns, uint64_t sum)
{
	return (uint64_t)((double)ns * (double)(c->slice_us ? c->slice_us : 2048) / (double)sum);
}

uint64_t share_next_event(void)
{
	uint64_t at_ns = timeshare_deadline(&world.share), sum = slices();

	for (uint32_t i = 0; i < CLIENTS; i++) {
		const struct client *c = &world.clients[i];

		least(&at_ns, c->next_ns);
		if (!c->is_alive)
			continue;
		if (c->n_queued)
			least(&at_ns, c->queue[0].at_ns);
		if (share_is_held(c))
			least(&at_ns, c->until_ns);
		if (c->hint_ns)
			least(&at_ns, c->hint_ns);
		if (c->is_at_work || c->is_told_busy)
			least(&at_ns, c->report_ns);
		if (c->is_bursting && share_computes(c)) {
			double share = (double)(c->slice_us ? c->slice_us : 2048) / (double)sum;

			least(&at_ns, world.now_ns + (uint64_t)((double)c->left_ns / share) + 1);
		}
	}
	return at_ns < world.now_ns ? world.now_ns : at_ns;
}

void share_pass(uint64_t at_ns)
{
	uint64_t ns = at_ns - world.now_ns, sum = slices();

	for (uint32_t i = 0; i < CLIENTS; i++) {
		struct client *c = &world.clients[i];

		if (c->is_alive && c->is_at_work && share_is_held(c))
			c->held_ns += ns;
		if (!share_computes(c))
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
