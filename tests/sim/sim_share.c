/* SPDX-License-Identifier: Apache-2.0 */

/*
 * share in a closed loop with simulated clients on one GPU: a critical one whose bursts need
 * GPU time, others that compute when they can, messages that take their time, freezes that
 * do. What the clients really get follows from the slices and holds that they were told.
 *
 * One seed decides everything and is printed first; each run is made twice and must be the
 * same. Faults (every second seed): answers that are late or never come, freezes that are
 * slow or fail, deaths. Checked all the time: the machine's own invariants; nobody computes
 * in a critical client's burst once there was time for one freeze; the others get their
 * floor; whoever wants the GPU gets it within a bound. At the end everybody is let go.
 *
 *     sim_share SEED SEEDS
 */

#include "core/share.h"
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

struct order { /* a SET_SHARE on its way, then being done */
	struct share_action set;
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
	uint64_t slice_us;
	uint64_t until_ns;  /* held until then */
	uint64_t next_ns;   /* it begins or ends its work; a critical one: its next burst */
	uint64_t hint_ns;   /* it gives a hint then; 0: none */
	uint64_t report_ns; /* not before */
	uint64_t left_ns;   /* GPU time that the burst still needs */
	uint64_t begun_ns;  /* the burst */
	uint64_t told_ns;   /* it said so that it has work */
	uint64_t last_ns;   /* it computed last, or wanted nothing */
	uint64_t busy_ns, held_ns, got_ns;
	struct order queue[QUEUE];
	uint32_t n_queued;
};

static struct world {
	struct share share;
	struct share_client slots[CLIENTS];
	struct client clients[CLIENTS];
	uint64_t seed, rng, now_ns, hash;
	bool has_faults;
	bool is_overloaded; /* the critical client never rests */
	bool is_pinned;     /* its bursts hold others, whatever it learns */
	uint32_t n_be;
	uint64_t be_ns; /* GPU time of the others, while one of them is greedy */
	uint64_t start_ns;
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

static void take(const struct share_action *action)
{
	struct client *c = &world.clients[action->client];

	check(c->is_alive, "told after its end", action->client);
	check(c->n_queued < QUEUE, "told too much", action->client);
	check(action->slice_us == 0 ||
		      (action->slice_us >= SHARE_SLICE_MIN && action->slice_us <= SHARE_SLICE_MAX),
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

static void step(struct share_event event)
{
	struct share_actions actions;

	event.now_ns = world.now_ns;
	if (world.is_pinned) {
		world.slots[0].arms.n_bursts = 1025;
		world.slots[0].arms.best = SHARE_ARM_HOLD;
	}
	(void)share_step(&world.share, &event, &actions);
	share_assert_valid(&world.share);
	world.n_steps++;
	for (uint32_t i = 0; i < actions.n; i++) {
		mix(actions.at[i].client + actions.at[i].slice_us * 3 + actions.at[i].hold_us * 7);
		if (actions.at[i].type == SHARE_ACTION_SET)
			take(&actions.at[i]);
	}
}

static void say(uint32_t client, enum share_activity activity, uint64_t value)
{
	struct client *c = &world.clients[client];

	if (activity == SHARE_ACTIVITY_BUSY || activity == SHARE_ACTIVITY_IDLE)
		c->is_told_busy = activity == SHARE_ACTIVITY_BUSY;
	if (activity == SHARE_ACTIVITY_BUSY)
		c->told_ns = world.now_ns;
	c->report_ns = world.now_ns + REPORT_NS;
	step((struct share_event){.type = SHARE_EVENT_ACTIVITY,
				  .client = client,
				  .activity = activity,
				  .busy_ns = c->busy_ns,
				  .held_ns = c->held_ns,
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
	bool is_critical = client == 0;

	*c = (struct client){
		.is_alive = true,
		.is_critical = is_critical,
		.is_greedy = !is_critical && (client == 1 || is_lucky(50)),
		.next_ns = world.now_ns + below(20 * MS),
		.report_ns = world.now_ns,
		.last_ns = world.now_ns,
	};
	step((struct share_event){
		.type = SHARE_EVENT_JOIN,
		.client = client,
		.claim = {is_critical ? SHARE_CLASS_CRITICAL : SHARE_CLASS_NORMAL, 100, 5000, 0}});
	step((struct share_event){.type = SHARE_EVENT_RUN, .client = client, .running = true});
}

static void die(uint32_t client)
{
	world.clients[client].is_alive = false;
	world.clients[client].n_queued = 0;
	world.clients[client].next_ns = world.now_ns + below(300 * MS);
	step((struct share_event){.type = SHARE_EVENT_LEAVE, .client = client});
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
		step((struct share_event){.type = SHARE_EVENT_DONE,
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
	c->left_ns =
		world.is_overloaded ? 200 * MS : 200 * US + below(is_lucky(20) ? 60 * MS : 8 * MS);
	c->next_ns = UINT64_MAX;
	c->hint_ns = 0;
	world.n_bursts++;
	say(client, SHARE_ACTIVITY_BEGIN, 0);
}

static void end_burst(uint32_t client)
{
	struct client *c = &world.clients[client];
	uint64_t gap_ns = world.is_overloaded ? US : MS + below(is_lucky(5) ? 3 * S : 20 * MS);

	c->is_bursting = false;
	c->is_at_work = false;
	c->next_ns = world.now_ns + gap_ns;
	if (gap_ns > 3 * MS && is_lucky(30))
		c->hint_ns = c->next_ns - 2 * MS - below(MS);
	say(client, SHARE_ACTIVITY_END, world.now_ns - c->begun_ns);
}

static void on_next(uint32_t client)
{
	struct client *c = &world.clients[client];

	if (!c->is_alive) {
		join(client);
	} else if (world.has_faults && is_lucky(1) && client != 1) {
		die(client);
	} else if (c->is_critical) {
		begin_burst(client);
	} else {
		c->is_at_work = c->is_greedy || !c->is_at_work;
		c->last_ns = world.now_ns;
		c->next_ns = world.now_ns + (c->is_greedy ? 100 * MS : 100 * US + below(60 * MS));
	}
}

static void on_report(uint32_t client)
{
	struct client *c = &world.clients[client];

	if (c->is_critical)
		say(client, SHARE_ACTIVITY_USE, 0);
	else if (c->is_at_work != c->is_told_busy)
		say(client, c->is_at_work ? SHARE_ACTIVITY_BUSY : SHARE_ACTIVITY_IDLE, 0);
	else
		say(client, SHARE_ACTIVITY_USE, 0);
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

static uint64_t share_of(const struct client *c, uint64_t ns, uint64_t sum)
{
	return (uint64_t)((double)ns * (double)(c->slice_us ? c->slice_us : 2048) / (double)sum);
}

static uint64_t next_event(void)
{
	uint64_t at_ns = share_deadline(&world.share), sum = slices();

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
		c->got_ns += share_of(c, ns, sum);
		c->last_ns = at_ns;
		if (c->is_bursting)
			c->left_ns -= share_of(c, ns, sum) < c->left_ns ? share_of(c, ns, sum)
									: c->left_ns;
		if (!c->is_critical)
			world.be_ns += share_of(c, ns, sum);
	}
	world.now_ns = at_ns;
}

/* ---- what must hold -------------------------------------------------------- */

/* A burst that holds others waits for one message, one freeze and no more. */
static void check_burst(void)
{
	const struct client *lc = &world.clients[0];
	const struct share_gpu *g = &world.share.gpus[0];

	if (!lc->is_bursting || !g->is_holding || world.has_faults ||
	    world.now_ns < lc->begun_ns + ENOUGH)
		return;
	for (uint32_t i = 1; i < CLIENTS; i++) {
		const struct client *c = &world.clients[i];

		/* With orders on their way it may be on for a moment. */
		if (computes(c) && c->is_told_busy && world.now_ns > c->told_ns + ENOUGH)
			check(c->n_queued > 0, "computes in a burst", i);
	}
}

static void check_waits(void)
{
	/* Everybody's turn, of which the critical leave a tenth, and what a fault may cost. */
	uint64_t bound_ns = world.n_be * 500 * MS + (world.has_faults ? 30 * S : 2 * S);

	for (uint32_t i = 0; i < CLIENTS; i++) {
		const struct client *c = &world.clients[i];

		if (c->is_alive && c->is_at_work)
			check(world.now_ns - c->last_ns < bound_ns, "waits too long", i);
	}
}

static void check_usage(void)
{
	uint64_t wall_ns = world.now_ns - world.start_ns, sum_ns = 0;
	struct share_client_status status;

	for (uint32_t i = 0; i < CLIENTS; i++) {
		const struct client *c = &world.clients[i];
		uint64_t error_ns;

		if (!c->is_alive)
			continue;
		share_client_status(&world.share, i, &status);
		sum_ns += status.gpu_ns;
		error_ns = status.gpu_ns > c->got_ns ? status.gpu_ns - c->got_ns
						     : c->got_ns - status.gpu_ns;
		if (!world.has_faults)
			check(error_ns < wall_ns / 50, "GPU time is wrong", i);
	}
	check(sum_ns <= wall_ns, "more GPU time than time", CLIENTS);
}

/* With the critical client gone and nobody saying anything, everybody is soon let go. */
static void check_end(void)
{
	uint64_t end_ns = world.now_ns + 5 * S;

	world.has_faults = false;
	if (world.clients[0].is_alive)
		die(0);
	for (uint32_t i = 0; i < CLIENTS; i++)
		world.clients[i].next_ns = world.clients[i].report_ns = UINT64_MAX;
	while (next_event() <= end_ns) {
		pass(next_event());
		for (uint32_t i = 0; i < CLIENTS; i++) {
			struct client *c = &world.clients[i];

			while (c->is_alive && c->n_queued && c->queue[0].at_ns <= world.now_ns)
				on_order(i);
		}
		if (share_deadline(&world.share) <= world.now_ns)
			step((struct share_event){.type = SHARE_EVENT_TIME});
	}
	for (uint32_t i = 0; i < CLIENTS; i++)
		check(!world.clients[i].is_alive || !is_held(&world.clients[i]), "is held for ever",
		      i);
}

/* ---- a run ----------------------------------------------------------------- */

static void happen(uint32_t client)
{
	struct client *c = &world.clients[client];

	if (c->is_alive && c->n_queued && c->queue[0].at_ns <= world.now_ns)
		on_order(client);
	if (c->is_alive && c->is_bursting && c->left_ns == 0)
		end_burst(client);
	if (c->is_alive && c->hint_ns && c->hint_ns <= world.now_ns) {
		c->hint_ns = 0;
		say(client, SHARE_ACTIVITY_HINT, c->next_ns - world.now_ns);
	}
	if (c->next_ns <= world.now_ns)
		on_next(client);
	if (c->is_alive && (c->is_at_work || c->is_told_busy) && c->report_ns <= world.now_ns)
		on_report(client);
}

static uint64_t run(uint64_t seed)
{
	struct share_config config;

	memset(&world, 0, sizeof(world));
	world.seed = world.rng = seed;
	world.has_faults = seed % 2;
	world.is_overloaded = seed % 5 == 0;
	world.is_pinned = seed % 3 == 0;
	world.n_be = 1 + (uint32_t)below(CLIENTS - 1);
	world.start_ns = world.now_ns = 1000 * S;
	share_config_default(&config);
	share_init(&world.share, world.slots, CLIENTS, &config);
	for (uint32_t i = 0; i < CLIENTS; i++)
		world.clients[i].next_ns = i <= world.n_be ? world.now_ns + below(MS) : UINT64_MAX;
	while (world.now_ns < world.start_ns + RUN_NS) {
		pass(next_event());
		for (uint32_t i = 0; i < CLIENTS; i++)
			happen(i);
		if (share_deadline(&world.share) <= world.now_ns)
			step((struct share_event){.type = SHARE_EVENT_TIME});
		check_burst();
		check_waits();
	}
	check_usage();
	if (!world.has_faults)
		check(world.be_ns >= RUN_NS / 100 * 8, "less than the floor", CLIENTS);
	check_end();
	mix(world.n_steps);
	return world.hash;
}

int main(int argc, char **argv)
{
	uint64_t first = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
	uint64_t n = argc > 2 ? strtoull(argv[2], NULL, 10) : 100;
	uint64_t n_steps = 0, n_told = 0, n_bursts = 0;

	(void)signal(SIGABRT, on_abort);
	printf("sim_share: seeds %" PRIu64 " to %" PRIu64 "\n", first, first + n - 1);
	for (uint64_t seed = first; seed < first + n; seed++) {
		uint64_t hash = run(seed);

		if (run(seed) != hash)
			check(false, "a second run differs", CLIENTS);
		n_steps += world.n_steps;
		n_told += world.n_told;
		n_bursts += world.n_bursts;
	}
	printf("sim_share: ok, %" PRIu64 " steps, %" PRIu64 " bursts, %" PRIu64 " told\n", n_steps,
	       n_bursts, n_told);
	return 0;
}
