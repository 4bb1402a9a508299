/* SPDX-License-Identifier: Apache-2.0 */

/*
 * share in a closed loop with simulated clients (share_world.h). One seed decides everything
 * and is printed first; each run is made twice and must be the same. Some seeds have faults:
 * answers that are late or never come, freezes that are slow or fail, stops that fail; some have
 * deaths, of critical clients and of others. Checked all the time:
 *
 * - the machine's own invariants, and that a hold names an end no further than it may be;
 * - nobody computes in a critical client's burst once there was time for one freeze, and a
 *   burst waits for no more than that;
 * - the others get the floor that the critical have to leave them, whoever wants the GPU
 *   gets it within a bound, and shares of equals become their weights;
 * - what a client has said that it is at is not forgotten when a stop of it fails;
 * - nobody is held longer than somebody may need it, also when that one has died;
 * - all of it with each rule of slices beside the critical (slice_policy.h);
 * - GPU time is what the clients really had, and never more than time.
 *
 *     sim_share SEED SEEDS
 */

#include "mix.h"
#include "share_world.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what must hold -------------------------------------------------------- */

/* With orders on their way it may be on for a moment. */
static bool is_settled(const struct client *c)
{
	return c->is_told_busy && world.now_ns > c->told_ns + ENOUGH && c->n_queued == 0;
}

/* A burst that holds others waits for one message, one freeze and no more. */
static void check_burst(uint32_t lc)
{
	struct client *l = &world.clients[lc];
	const struct timeshare_gpu *g = &world.share.gpus[0];

	if (!l->is_alive || !l->is_bursting)
		return;
	l->was_capped = l->was_capped || g->is_capped;
	if (!g->is_holding || world.has_faults || world.now_ns < l->begun_ns + ENOUGH)
		return;
	for (uint32_t i = world.n_lc; i < CLIENTS; i++) {
		const struct client *c = &world.clients[i];

		share_check(!share_computes(c) || !is_settled(c), "computes in a burst", i);
	}
}

/* What a burst may lose to others beside it that are not held, by the slices of the rule. */
static uint64_t given_ns(const struct client *c)
{
	switch (world.rule) {
	case TIMESHARE_RULE_FIXED:
	case TIMESHARE_RULE_COUNT_:
		break;
	case TIMESHARE_RULE_SLACK: /* with 1 ms beside be_slice_us, until it is urgent */
		return SLO_US * US / 2 + c->need_ns / 1000;
	case TIMESHARE_RULE_EXPONENTIAL: /* 10 s beside 1 s, at most */
		return c->need_ns / 10;
	case TIMESHARE_RULE_FEEDBACK: /* 5 s beside half of the SLO */
		return c->need_ns / 100;
	}
	/* Beside short slices it has nearly all; the hold that is no preemption adds nothing. */
	return c->need_ns / 1000;
}

/* With another critical one it shares; beyond the cap it is made to. */
static void check_burst_end(uint32_t client)
{
	const struct client *c = &world.clients[client];
	uint64_t waited_ns = world.now_ns - c->begun_ns - c->need_ns;

	if (world.n_lc > 1 || world.has_faults || c->was_capped)
		return;
	share_check(waited_ns <= ENOUGH + given_ns(c), "a burst waits too long", client);
}

/* Beside the critical at most one of the others computes. */
static void check_alone(void)
{
	uint32_t n = 0;

	if (!world.share.gpus[0].is_taking || world.has_faults)
		return;
	for (uint32_t i = world.n_lc; i < CLIENTS; i++)
		n += share_computes(&world.clients[i]) && is_settled(&world.clients[i]);
	share_check(n <= 1, "several compute", CLIENTS);
}

/* What a client is at is what it has said, whatever stops it was told since. */
static void check_known(void)
{
	uint64_t burst_ns = world.share.config.burst_ns;

	for (uint32_t i = 0; i < CLIENTS; i++) {
		const struct client *c = &world.clients[i];
		bool is_new = c->is_bursting && world.now_ns < c->begun_ns + burst_ns;

		if (!c->is_alive)
			continue;
		share_check((world.slots[i].work == TIMESHARE_WORK_BUSY) == c->is_told_busy,
			    "is taken for idle", i);
		share_check(!is_new || timeshare_is_in_burst(&world.slots[i]),
			    "its burst is forgotten", i);
	}
}

static void check_held(void)
{
	uint64_t slack_ns = world.has_faults ? 4 * S : ENOUGH;
	uint64_t end_ns = world.need_ns + world.share.config.active_ns + slack_ns;

	for (uint32_t i = world.n_lc; i < CLIENTS; i++) {
		const struct client *c = &world.clients[i];

		if (c->is_alive && share_is_held(c))
			share_check(world.now_ns <= end_ns, "is held for nobody", i);
	}
}

static void check_waits(void)
{
	/* Everybody's turn, of which the critical leave a tenth, and what a fault may cost. */
	uint64_t bound_ns = world.n_be * 500 * MS + (world.has_faults ? 30 * S : 2 * S);

	for (uint32_t i = 0; i < CLIENTS; i++) {
		const struct client *c = &world.clients[i];

		if (c->is_alive && c->is_at_work)
			share_check(world.now_ns - c->last_ns < bound_ns, "waits too long", i);
	}
}

static void check_usage(void)
{
	uint64_t wall_ns = world.now_ns - world.start_ns, sum_ns = 0;
	/*
	 * A lower cap changes slices more often, which are told before they are; work without
	 * a burst is told when it has begun or ended up to REPORT_NS ago. By slices alone it is
	 * less exact.
	 */
	uint64_t slack_ns =
		wall_ns / 100 *
		((world.lc_max_percent < 90 ? 3 : 2) + 2 * world.is_loose + 2 * world.is_blind);
	struct timeshare_client_status status;

	for (uint32_t i = 0; i < CLIENTS; i++) {
		const struct client *c = &world.clients[i];
		uint64_t error_ns;

		if (!c->is_alive)
			continue;
		timeshare_client_status(&world.share, i, &status);
		sum_ns += status.gpu_ns;
		error_ns = status.gpu_ns > c->got_ns ? status.gpu_ns - c->got_ns
						     : c->got_ns - status.gpu_ns;
		if (!world.has_faults)
			share_check(error_ns < slack_ns, "GPU time is wrong", i);
	}
	share_check(sum_ns <= wall_ns, "more GPU time than time", CLIENTS);
}

/* Of equals that always want the GPU, over the second half of the run. */
static void check_shares(void)
{
	uint64_t weights = 0, sum_ns = 0;

	for (uint32_t i = 0; i < world.n_be; i++) {
		weights += world.clients[i].weight;
		sum_ns += world.clients[i].got_ns - world.clients[i].half_ns;
	}
	for (uint32_t i = 0; i < world.n_be; i++) {
		const struct client *c = &world.clients[i];
		double asked = (double)c->weight / (double)weights;
		double got = (double)(c->got_ns - c->half_ns) / (double)sum_ns;

		share_check(got > asked - 0.01 && got < asked + 0.01, "share is not its weight", i);
	}
}

/* What the critical leave: their cap says it of the time in which others want the GPU. */
static void check_floor(void)
{
	uint64_t floor_ns = RUN_NS / 100 * (100 - world.lc_max_percent) / 10 * 8;

	share_check(world.be_ns >= floor_ns, "less than the floor", CLIENTS);
}

/* With the critical gone and nobody saying anything, everybody is soon let go. */
static void check_end(void)
{
	uint64_t end_ns = world.now_ns + 5 * S;

	world.has_faults = false;
	for (uint32_t i = 0; i < world.n_lc; i++) {
		if (world.clients[i].is_alive)
			share_die(i);
	}
	for (uint32_t i = 0; i < CLIENTS; i++)
		world.clients[i].next_ns = world.clients[i].report_ns = UINT64_MAX;
	while (share_next_event() <= end_ns) {
		share_pass(share_next_event());
		for (uint32_t i = 0; i < CLIENTS; i++) {
			struct client *c = &world.clients[i];

			while (c->is_alive && c->n_queued && c->queue[0].at_ns <= world.now_ns)
				share_on_order(i);
		}
		if (timeshare_deadline(&world.share) <= world.now_ns)
			share_step((struct timeshare_event){.type = TIMESHARE_EVENT_TIME});
	}
	for (uint32_t i = 0; i < CLIENTS; i++)
		share_check(!world.clients[i].is_alive || !share_is_held(&world.clients[i]),
			    "is held for ever", i);
	share_check(!world.share.gpus[0].is_capped, "is capped for ever", CLIENTS);
}

/* ---- a run ----------------------------------------------------------------- */

static void happen(uint32_t client)
{
	struct client *c = &world.clients[client];

	if (c->is_alive && c->n_queued && c->queue[0].at_ns <= world.now_ns)
		share_on_order(client);
	if (c->is_alive && c->is_bursting && c->left_ns == 0) {
		check_burst_end(client);
		share_end_burst(client);
	}
	if (c->is_alive && c->hint_ns && c->hint_ns <= world.now_ns)
		share_give_hint(client);
	if (c->next_ns <= world.now_ns)
		share_on_next(client);
	if (c->is_alive && (c->is_at_work || c->is_told_busy) && c->report_ns <= world.now_ns)
		share_on_report(client);
}

static void run_until(uint64_t end_ns)
{
	while (world.now_ns < end_ns) {
		share_pass(share_next_event());
		for (uint32_t i = 0; i < CLIENTS; i++)
			happen(i);
		if (timeshare_deadline(&world.share) <= world.now_ns)
			share_step((struct timeshare_event){.type = TIMESHARE_EVENT_TIME});
		for (uint32_t i = 0; i < world.n_lc; i++)
			check_burst(i);
		check_alone();
		check_known();
		check_waits();
		check_held();
	}
}

static void begin(uint64_t seed)
{
	static const uint32_t percents[] = {90, 50, 75, 95};
	struct timeshare_config config;

	memset(&world, 0, sizeof(world));
	world.seed = world.rng = seed;
	world.has_faults = seed % 2;
	world.has_deaths = seed % 2 || seed % 8 == 4;
	world.has_requests = seed % 3 == 0;
	world.are_equals = seed % 8 == 2;
	world.is_overloaded = seed % 5 == 0;
	world.is_loose = !world.are_equals && seed / 3 % 3 == 0;
	world.is_blind = seed % 4 == 0;
	world.is_pinned = seed % 3 == 0;
	world.n_lc = world.are_equals ? 0 : seed % 7 < 2 ? 2 : 1;
	world.n_be = 1 + (uint32_t)share_below(CLIENTS - 2);
	world.lc_max_percent = percents[share_below(sizeof(percents) / sizeof(percents[0]))];
	world.is_saving = seed / 8 % 2;
	world.rule = (enum timeshare_rule)(seed / 2 % TIMESHARE_RULE_COUNT_);
	world.start_ns = world.now_ns = 1000 * S;
	timeshare_config_default(&config);
	config.lc_max_percent = world.lc_max_percent;
	config.slice_rule = world.rule;
	config.is_saving = world.is_saving;
	config.energy_budget_w = world.is_saving && seed % 3 ? 1 : 0;
	timeshare_init(&world.share, world.slots, CLIENTS, &config);
	share_step((struct timeshare_event){.type = TIMESHARE_EVENT_POWER, .value = 300000});
	for (uint32_t i = 0; i < CLIENTS; i++)
		world.clients[i].next_ns =
			i < world.n_lc + world.n_be ? world.now_ns + share_below(MS) : UINT64_MAX;
}

static uint64_t run(uint64_t seed)
{
	begin(seed);
	run_until(world.start_ns + RUN_NS / 2);
	for (uint32_t i = 0; i < CLIENTS; i++)
		world.clients[i].half_ns = world.clients[i].got_ns;
	run_until(world.start_ns + RUN_NS);
	check_usage();
	if (world.are_equals)
		check_shares();
	else if (!world.has_faults)
		check_floor();
	check_end();
	mix(&world.hash, world.n_steps);
	return world.hash;
}

int main(int argc, char **argv)
{
	uint64_t first = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
	uint64_t n = argc > 2 ? strtoull(argv[2], NULL, 10) : 100;
	uint64_t n_steps = 0, n_told = 0, n_bursts = 0;

	(void)signal(SIGABRT, share_on_abort);
	printf("sim_share: seeds %" PRIu64 " to %" PRIu64 "\n", first, first + n - 1);
	for (uint64_t seed = first; seed < first + n; seed++) {
		uint64_t hash = run(seed);

		if (run(seed) != hash)
			share_check(false, "a second run differs", CLIENTS);
		n_steps += world.n_steps;
		n_told += world.n_told;
		n_bursts += world.n_bursts;
	}
	printf("sim_share: ok, %" PRIu64 " steps, %" PRIu64 " bursts, %" PRIu64 " told\n", n_steps,
	       n_bursts, n_told);
	return 0;
}
