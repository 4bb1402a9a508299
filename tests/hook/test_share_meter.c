/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What the meter makes of its looks, against what a program really did. All in a time of the
 * test's own, which the meter's clock and naps are given, so each run finds the same.
 */

#include "core/meter/probe_schedule.h"
#include "core/meter/sampler.h"
#include "core/u64.h"
#include "hook/base/hook_options.h"
#include "hook/gate/drain.h"
#include "hook/gate/gate.h"
#include "hook/share/share_private.h"
#include "util/clock.h"
#include "util/prng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define US 1000ull
#define MS CLOCK_NS_PER_MS

#define CALL_NS     (4 * US) /* a thread submits no faster, */
#define CALLS_AHEAD 256u     /* nor further ahead of the GPU */
#define EVENT_NS    (3 * US) /* an idle GPU reaches one */
#define CLOCK_NS    20ull    /* to read the clock */
#define ASK_NS      (3 * US)
#define BEFORE_NS   (30 * US) /* so long before the end of the work is before it */
#define ROUND_NS    US        /* of the agent, which goes on at once, */

#define GPU      0
#define HALF_PPM 500000u

#define COARSE SHARE_LOOK_COARSE
#define USUAL  SHARE_LOOK_USUAL
#define FINE   SHARE_LOOK_FINE

/* When in its period a burst begins is chance; it is work_ns of n_calls alike. */
struct bursts {
	uint64_t period_ns, jitter_ns, work_ns, n_calls;
};

/* The agent sleeps longer than it should by late_ns, and by chance up to jitter_ns more. */
struct sleeps {
	uint64_t late_ns, jitter_ns, nap_late_ns;
};

/* In which the GPU is its own, and not; both 0: always. */
struct turns {
	uint64_t own_ns, other_ns;
};

/* What there was, and what was found. */
struct sums {
	uint64_t true_busy_ns, true_ran_ns, busy_ns, ran_ns;
	uint64_t n_bursts;
	uint64_t n_asked;    /* of the bursts, */
	uint64_t n_asks_max; /* so often at most */
	uint64_t n_events;   /* behind submissions */
};

static struct world {
	struct bursts bursts;
	struct turns turns;
	struct sleeps sleeps;
	bool is_held; /* in the turns that are not its own, and nobody else is there */
	struct sums sums;
	uint64_t now_ns, chance;
	uint64_t period_ns, next_ns; /* of the next burst: its period, itself */
	uint64_t begin_ns, end_ns;   /* of the last one */
	uint64_t n_calls, n_asks;    /* before it; in it */
	bool is_armed;
	uint64_t tripped_ns;
	bool is_asked;
	uint64_t probe_ns[2], timed_ns, here_ns; /* when events are reached */
	bool has_two_gpus;                       /* and uses the first */
	uint64_t soon_ns;                        /* a limit has it look again by then */
	uint64_t awake_ns;                       /* the agent has gone round for nothing */
} world;

/* ---- the GPU and the program ----------------------------------------------------------- */

/* Of all time until then, what was its own. */
static uint64_t own_at(uint64_t ns)
{
	uint64_t own_ns = world.turns.own_ns, turns_ns = own_ns + world.turns.other_ns;

	if (!turns_ns)
		return ns;
	return ns / turns_ns * own_ns + u64_min(ns % turns_ns, own_ns);
}

static uint64_t held_at(uint64_t ns)
{
	return world.is_held ? ns - own_at(ns) : 0;
}

/* What is to run for ns. */
static uint64_t done_at(uint64_t begin_ns, uint64_t ns)
{
	uint64_t own_ns = own_at(begin_ns) + ns;

	if (!world.turns.own_ns)
		return own_ns;
	return own_ns + (own_ns - 1) / world.turns.own_ns * world.turns.other_ns;
}

static void begin_burst(void)
{
	const struct bursts *b = &world.bursts;
	struct sums *sums = &world.sums;

	world.n_calls += b->n_calls;
	world.n_asks = 0;
	world.begin_ns = world.next_ns;
	world.end_ns = done_at(world.begin_ns, b->work_ns);
	sums->n_bursts++;
	sums->true_ran_ns += b->work_ns;
	sums->true_busy_ns += world.end_ns - held_at(world.end_ns);
	sums->true_busy_ns -= world.begin_ns - held_at(world.begin_ns);
	if (world.is_armed)
		world.tripped_ns = world.begin_ns;
	world.is_armed = false;
	world.period_ns += b->period_ns;
	world.next_ns = world.period_ns + prng_below(&world.chance, b->jitter_ns + 1);
	if (world.next_ns < world.end_ns)
		world.next_ns = world.end_ns;
}

static void pass_to(uint64_t ns)
{
	while (world.next_ns <= ns)
		begin_burst();
	world.now_ns = ns;
}

static uint64_t n_submitted(void)
{
	const struct bursts *b = &world.bursts;
	uint64_t n_run = (own_at(world.now_ns) - own_at(world.begin_ns)) * b->n_calls / b->work_ns;
	uint64_t n = 1 + (world.now_ns - world.begin_ns) / CALL_NS;

	return u64_min(u64_min(n, n_run + CALLS_AHEAD), b->n_calls);
}

/* An event behind it. */
static uint64_t submitted_done_at(void)
{
	const struct bursts *b = &world.bursts;
	uint64_t end_ns = done_at(world.begin_ns, b->work_ns * n_submitted() / b->n_calls);

	return (end_ns > world.now_ns ? end_ns : world.now_ns) + EVENT_NS;
}

/* ---- what the meter calls ---------------------------------------------------------------- */

uint64_t clock_now_ns(void)
{
	pass_to(world.now_ns + CLOCK_NS);
	return world.now_ns;
}

void clock_nap(uint64_t ns)
{
	pass_to(world.now_ns + ns + world.sleeps.nap_late_ns);
}

uint64_t gate_activity(void)
{
	return world.n_calls + n_submitted();
}

bool gate_arm(uint64_t activity)
{
	if (gate_activity() != activity)
		return false;
	world.is_armed = true;
	world.tripped_ns = 0;
	return true;
}

bool gate_is_armed(void)
{
	return world.is_armed;
}

uint64_t gate_tripped_ns(void)
{
	return world.tripped_ns;
}

uint64_t gate_copied_ns(void)
{
	return 0;
}

enum gate_state gate_get(void)
{
	return GATE_OPEN;
}

void gate_set(enum gate_state state)
{
	(void)state;
	world.is_armed = false;
}

struct agent_link *agent_link_of(CUdevice dev)
{
	static struct agent_link links[2] = {{.dev = GPU}, {.dev = GPU + 1}};

	return &links[dev];
}

struct agent_link *agent_link_next(struct agent_link *prev)
{
	if (!prev)
		return agent_link_of(GPU);
	return world.has_two_gpus && prev->dev == GPU ? agent_link_of(GPU + 1) : NULL;
}

bool drain_has_limit(void)
{
	return true;
}

bool drain_probe_start(CUdevice dev)
{
	assert_false(share_off_is_on());
	world.sums.n_events++;
	world.probe_ns[dev] = dev == GPU ? submitted_done_at() : world.now_ns + EVENT_NS;
	return true;
}

bool drain_probe_done(CUdevice dev)
{
	return world.now_ns >= world.probe_ns[dev];
}

void drain_probe_time(CUdevice dev)
{
	(void)dev;
	world.timed_ns = submitted_done_at();
}

enum share_here share_here_ask(CUdevice dev, bool knows_work)
{
	world.sums.n_asked += world.n_asks++ == 0;
	if (world.n_asks > world.sums.n_asks_max)
		world.sums.n_asks_max = world.n_asks;
	pass_to(world.now_ns + ASK_NS);
	if (knows_work && drain_probe_done(dev))
		return SHARE_HERE_ASKED;
	if (world.is_asked && world.now_ns < world.here_ns)
		return SHARE_HERE_WAITING;
	world.is_asked = true;
	world.here_ns = done_at(world.now_ns, EVENT_NS);
	return SHARE_HERE_ASKED;
}

bool share_here_is(CUdevice dev, bool knows_work)
{
	if (knows_work && drain_probe_done(dev))
		return false;
	return world.is_asked && world.now_ns >= world.here_ns;
}

bool share_here_waited(CUdevice dev)
{
	(void)dev;
	return world.is_asked && world.here_ns + BEFORE_NS < world.timed_ns;
}

void share_here_forget(CUdevice dev)
{
	(void)dev;
	if (world.now_ns >= world.here_ns)
		world.is_asked = false;
}

bool share_off_is_on(void)
{
	return world.is_held && own_at(world.now_ns + 1) == own_at(world.now_ns);
}

void share_off_stats(uint64_t now_ns, struct share_off_stats *ret)
{
	*ret = (struct share_off_stats){.held_ns = held_at(now_ns)};
}

const struct hook_options *hook_options(void)
{
	static const struct hook_options options = {.burst_idle_ns = 500 * US};

	return &options;
}

/* ---- the agent -------------------------------------------------------------------------- */

static uint64_t next_turn(void)
{
	uint64_t own_ns = world.turns.own_ns, turns_ns = own_ns + world.turns.other_ns;
	uint64_t at_ns = world.now_ns % turns_ns;

	return world.now_ns - at_ns + (at_ns < own_ns ? own_ns : turns_ns);
}

static uint64_t next_wake(void)
{
	uint64_t wake_ns = share_meter_due();

	assert_true(wake_ns == SHARE_NEVER || !share_off_is_on());
	if (world.is_armed)
		wake_ns = u64_min(wake_ns, world.next_ns);
	if (world.is_held)
		wake_ns = u64_min(wake_ns, next_turn());
	if (wake_ns <= world.now_ns) {
		world.awake_ns += ROUND_NS;
		assert_true(world.awake_ns <= SAMPLER_LATE_NS_MAX);
		return world.now_ns + ROUND_NS;
	}
	world.awake_ns = 0;
	return wake_ns + world.sleeps.late_ns + prng_below(&world.chance, world.sleeps.jitter_ns);
}

/* Until before the burst after so many. */
static struct sums follow(enum share_look how, uint64_t n_bursts)
{
	struct share_meter_gpu before, after;
	uint64_t wake_ns;

	share_meter_read_gpu(GPU, &before);
	world.sums = (struct sums){0};
	pass_to(world.now_ns);
	for (;;) {
		uint64_t now_ns = world.now_ns;

		share_meter_tick(now_ns, how);
		world.awake_ns = world.now_ns == now_ns ? world.awake_ns : 0;
		if (world.soon_ns)
			share_meter_soon(world.now_ns, world.soon_ns);
		wake_ns = next_wake();
		if (world.sums.n_bursts >= n_bursts && wake_ns >= world.next_ns)
			break;
		pass_to(wake_ns);
	}
	share_meter_read_gpu(GPU, &after);
	assert_false(after.is_blind);
	world.sums.busy_ns = after.busy_ns - before.busy_ns;
	world.sums.ran_ns = after.ran_ns - before.ran_ns;
	return world.sums;
}

/* ---- tests ------------------------------------------------------------------------------ */

/* Permille: what is found may be off by three deviations of what chance does, or so. */
struct row {
	enum share_look how;
	uint64_t use_ppm; /* as it is told */
	uint64_t n_bursts, busy_permille, ran_permille;
	struct bursts bursts;
	uint64_t later_ns; /* they become so long and are learned anew; the row is for those */
	struct turns others, holds;
	struct sleeps sleeps; /* all 0: as of a processor that is awake */
	uint64_t soon_ns;
	bool has_two_gpus;
};

static const struct sleeps awake = {5 * US, 5 * US, 3 * US};

static void begin(const struct row *row)
{
	world = (struct world){
		.bursts = row->bursts,
		.turns = row->holds.own_ns ? row->holds : row->others,
		.sleeps = row->sleeps.late_ns ? row->sleeps : awake,
		.soon_ns = row->soon_ns,
		.has_two_gpus = row->has_two_gpus,
		.is_held = row->holds.own_ns > 0,
		.now_ns = MS,
		.period_ns = MS,
		.next_ns = MS,
	};
	share_meter_reset();
	share_meter_set_use(GPU, row->use_ppm);
}

static struct sums follow_row(const struct row *row)
{
	struct sums sums;

	begin(row);
	if (row->later_ns) {
		(void)follow(row->how, row->n_bursts);
		world.bursts.work_ns = row->later_ns;
		sums = follow(row->how, ASKED_WRONG * ASKED_EVERY + ASKED_FIRST);
		assert_true(sums.ran_ns < sums.busy_ns * 11 / 10);
	}
	return follow(row->how, row->n_bursts);
}

static bool is_about(uint64_t got, uint64_t expected, uint64_t permille)
{
	uint64_t off = got > expected ? got - expected : expected - got;

	return off * 1000 <= expected * permille;
}

static void finds_what_there_is(void **state)
{
	const struct row *rows = *state;
	uint32_t n_bad = 0;

	for (uint32_t i = 0; rows[i].n_bursts; i++) {
		const struct row *row = &rows[i];
		struct sums sums = follow_row(row);

		if (is_about(sums.busy_ns, sums.true_busy_ns, row->busy_permille) &&
		    is_about(sums.ran_ns, sums.true_ran_ns, row->ran_permille) &&
		    (row->use_ppm || sums.ran_ns == sums.busy_ns))
			continue;
		print_error("row %u: %.4f of the work, %.4f of what has run\n", i,
			    (double)sums.busy_ns / (double)sums.true_busy_ns,
			    (double)sums.ran_ns / (double)sums.true_ran_ns);
		n_bad++;
	}
	assert_int_equal(n_bad, 0);
}

static struct row few_bursts_tell_what_all_have_run[] = {
	{FINE, HALF_PPM, 500000, 25, 25, .bursts = {MS, 700 * US, 200 * US, 10}},
	{FINE, HALF_PPM, 40000, 45, 50, .bursts = {7 * MS, MS, 200 * US, 1}},
	{FINE, HALF_PPM, 10000, 15, 25, .bursts = {3 * MS, 100 * US, 900 * US, 10}},
	/* An event behind what was submitted up to now may end before work that goes on: */
	{FINE, HALF_PPM, 10000, 25, 25, .bursts = {7 * MS, 3 * MS, 900 * US, 100}},
	{FINE, HALF_PPM, 4000, 5, 25, .bursts = {20 * MS, 9 * MS, 4 * MS, 1}},
	{FINE, HALF_PPM, 4000, 10, 20, .bursts = {5 * MS, 500 * US, 4 * MS, 100}},
	{FINE, HALF_PPM, 2000, 5, 15, .bursts = {40 * MS, 5 * MS, 15 * MS, 100}},
	{FINE, HALF_PPM, 2000, 5, 15, .bursts = {17 * MS, MS, 15 * MS, 100}},
	{FINE, HALF_PPM, 1000, 5, 5, .bursts = {150 * MS, 20 * MS, 60 * MS, 1000}},
	{0},
};

static struct row who_is_alone_runs_while_it_has_work[] = {
	{FINE, 0, 40000, 40, 40, .bursts = {MS, 700 * US, 200 * US, 10}},
	{FINE, 0, 2000, 5, 5, .bursts = {20 * MS, 9 * MS, 4 * MS, 100}},
	{FINE, 0, 500, 5, 5, .bursts = {150 * MS, 20 * MS, 60 * MS, 1000}},
	{USUAL, 0, 10000, 8, 8, .bursts = {10 * MS, MS, 3 * MS, 10}},
	{COARSE, 0, 2000, 5, 5, .bursts = {100 * MS, MS, 40 * MS, 10}},
	{0},
};

static struct row bursts_of_another_length_are_learned_anew[] = {
	{FINE, HALF_PPM, 1000, 10, 20, .bursts = {20 * MS, 5 * MS, MS, 10}, .later_ns = 8 * MS},
	{FINE, HALF_PPM, 1000, 10, 20, .bursts = {20 * MS, 5 * MS, 8 * MS, 10}, .later_ns = MS},
	{FINE, 0, 1000, 10, 10, .bursts = {20 * MS, 5 * MS, MS, 10}, .later_ns = 8 * MS},
	{FINE, 0, 1000, 10, 10, .bursts = {20 * MS, 5 * MS, 8 * MS, 10}, .later_ns = MS},
	{0},
};

static struct row what_comes_and_goes_is_found_as_often_as_it_is_there[] = {
	{USUAL, HALF_PPM, 200000, 35, 35, .bursts = {MS, 100 * US, 100 * US, 1}},
	{USUAL, HALF_PPM, 100000, 25, 25, .bursts = {17 * MS, 500 * US, 200 * US, 1}},
	{USUAL, HALF_PPM, 10000, 8, 8, .bursts = {10 * MS, MS, 3 * MS, 10}},
	{USUAL, HALF_PPM, 1000, 5, 5, .bursts = {100 * MS, 20 * MS, 40 * MS, 1000}},
	{COARSE, HALF_PPM, 1000000, 30, 30, .bursts = {MS, 100 * US, 100 * US, 1}},
	{COARSE, HALF_PPM, 100000, 20, 20, .bursts = {10 * MS, MS, 3 * MS, 10}},
	{COARSE, HALF_PPM, 4000, 5, 5, .bursts = {100 * MS, 20 * MS, 40 * MS, 1000}},
	{0},
};

/* As on a virtual machine whose processors halt: work may be over before anybody is there. */
#define HALTED    .sleeps = {60 * US, 20 * US, 5 * US}
#define DEEPLY    .sleeps = {60 * US, 60 * US, 10 * US}
#define FOR_LONG  .sleeps = {100 * US, 60 * US, 10 * US}
#define LATE_NAPS .sleeps = {100 * US, 60 * US, 30 * US}

static struct row what_is_short_is_found_however_late_the_agent_wakes[] = {
	{FINE, 0, 200000, 25, 25, .bursts = {1200 * US, 100 * US, 200 * US, 1}, HALTED},
	{FINE, 0, 200000, 40, 40, .bursts = {1200 * US, 100 * US, 200 * US, 1}, DEEPLY},
	{FINE, 0, 200000, 25, 25, .bursts = {1200 * US, 100 * US, 200 * US, 1}, FOR_LONG},
	{FINE, 0, 200000, 40, 40, .bursts = {1200 * US, 100 * US, 200 * US, 1}, LATE_NAPS},
	{FINE, HALF_PPM, 200000, 25, 25, .bursts = {1200 * US, 100 * US, 200 * US, 1}, HALTED},
	{FINE, HALF_PPM, 200000, 45, 45, .bursts = {1200 * US, 100 * US, 200 * US, 1}, DEEPLY},
	{FINE, 0, 200000, 25, 25, .bursts = {400 * US, 50 * US, 100 * US, 1}, HALTED},
	{FINE, 0, 200000, 25, 25, .bursts = {400 * US, 50 * US, 100 * US, 1}, FOR_LONG},
	{FINE, 0, 100000, 35, 35, .bursts = {7 * MS, MS, 200 * US, 1}, HALTED},
	{FINE, 0, 100000, 35, 35, .bursts = {7 * MS, MS, 200 * US, 1}, FOR_LONG},
	{FINE, 0, 100000, 45, 45, .bursts = {7 * MS, MS, 300 * US, 1}, HALTED},
	{FINE, 0, 100000, 35, 35, .bursts = {7 * MS, MS, 300 * US, 1}, DEEPLY},
	{USUAL, 0, 100000, 35, 35, .bursts = {7 * MS, MS, 200 * US, 1}, HALTED},
	{USUAL, HALF_PPM, 100000, 45, 45, .bursts = {7 * MS, MS, 200 * US, 1}, FOR_LONG},
	{USUAL, 0, 100000, 45, 45, .bursts = {7 * MS, MS, 200 * US, 1}, HALTED,
	 .has_two_gpus = true},
	{COARSE, 0, 1000000, 35, 35, .bursts = {7 * MS, MS, 200 * US, 1}, HALTED},
	{COARSE, 0, 4000, 25, 25, .bursts = {50 * MS, MS, 30 * MS, 1}, HALTED, .soon_ns = 7 * MS},
	/* Half of the time until somebody was there is taken for what was over by then, */
	{FINE, 0, 200000, 45, 45, .bursts = {7 * MS, MS, 45 * US, 1}, DEEPLY},
	{FINE, HALF_PPM, 200000, 45, 60, .bursts = {7 * MS, MS, 45 * US, 1}, DEEPLY},
	{USUAL, 0, 200000, 45, 45, .bursts = {7 * MS, MS, 65 * US, 1}, FOR_LONG},
	{0},
};

/* but nothing, where that was long, or nobody knows which GPU had it. */
static void what_was_over_long_ago_or_somewhere_is_not_guessed(void **state)
{
	static const struct row rows[] = {
		{.bursts = {40 * MS, MS, 45 * US, 1}, .sleeps = {MS, 2 * MS, 5 * US}},
		{.bursts = {40 * MS, MS, 45 * US, 1}, DEEPLY, .has_two_gpus = true},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct sums sums;

		begin(&rows[i]);
		sums = follow(USUAL, 20000);
		assert_in_range(sums.busy_ns, 0, sums.true_busy_ns / 20);
	}
}

#define IN_TURNS(own, other) .others = {MS * (own), MS * (other)}

static struct row what_waits_for_others_slices_has_not_run[] = {
	{USUAL, HALF_PPM, 4000, 5, 25, {30 * MS, 7 * MS, 3 * MS, 1}, IN_TURNS(10, 10)},
	{USUAL, HALF_PPM, 2000, 5, 10, {100 * MS, 30 * MS, 40 * MS, 1000}, IN_TURNS(10, 10)},
	{USUAL, HALF_PPM, 4000, 5, 20, {40 * MS, 10 * MS, 8 * MS, 100}, IN_TURNS(2, 2)},
	{USUAL, 333333, 2000, 5, 12, {100 * MS, 10 * MS, 20 * MS, 100}, IN_TURNS(5, 10)},
	/* All bursts are asked: */
	{FINE, HALF_PPM, 60, 10, 40, {40 * MS, 5 * MS, 15 * MS, 100}, IN_TURNS(10, 10)},
	{FINE, HALF_PPM, 60, 5, 15, {200 * MS, 30 * MS, 60 * MS, 1000}, IN_TURNS(10, 10)},
	/* few are: */
	{FINE, HALF_PPM, 4000, 5, 40, {40 * MS, 5 * MS, 15 * MS, 100}, IN_TURNS(10, 10)},
	{FINE, HALF_PPM, 1000, 5, 15, {200 * MS, 30 * MS, 60 * MS, 1000}, IN_TURNS(10, 10)},
	{FINE, 980392, 4000, 5, 30, {20 * MS, 5 * MS, 4 * MS, 1}, .others = {5 * MS, 100 * US}},
	{0},
};

#define HELD_IN(own, other) .holds = {MS * (own), MS * (other)}

static struct row time_in_a_hold_is_none[] = {
	{FINE, HALF_PPM, 20000, 5, 12, {10 * MS, MS, 3 * MS, 10}, HELD_IN(30, 10)},
	{FINE, HALF_PPM, 1000, 5, 10, {100 * MS, MS, 40 * MS, 1000}, HELD_IN(10, 10)},
	{FINE, 0, 1000, 5, 5, {100 * MS, MS, 40 * MS, 1000}, HELD_IN(5, 45)},
	{USUAL, HALF_PPM, 20000, 5, 5, {10 * MS, MS, 3 * MS, 10}, HELD_IN(30, 10)},
	{USUAL, HALF_PPM, 1000, 5, 5, {100 * MS, MS, 40 * MS, 1000}, HELD_IN(5, 45)},
	{COARSE, HALF_PPM, 100000, 15, 15, {10 * MS, MS, 3 * MS, 10}, HELD_IN(30, 10)},
	{COARSE, 0, 1000, 10, 10, {100 * MS, MS, 40 * MS, 1000}, HELD_IN(10, 10)},
	{0},
};

/* Of one kernel each. What is known without an event needs none. */
static void looks_as_often_as_it_needs_to(void **state)
{
	static const struct {
		enum share_look how;
		uint64_t use_ppm, n_asks_max;
		struct bursts bursts;
	} rows[] = {
		{FINE, HALF_PPM, 10, {7 * MS, 3 * MS, 900 * US, 1}},
		{FINE, HALF_PPM, 24, {20 * MS, 9 * MS, 4 * MS, 1}},
		{FINE, HALF_PPM, 40, {40 * MS, 5 * MS, 15 * MS, 1}},
		{FINE, HALF_PPM, 85, {150 * MS, 20 * MS, 60 * MS, 1}},
		{FINE, 0, 18, {40 * MS, 5 * MS, 15 * MS, 1}},
		{USUAL, HALF_PPM, 44, {100 * MS, 30 * MS, 40 * MS, 1}},
		{COARSE, HALF_PPM, 6, {100 * MS, 30 * MS, 40 * MS, 1}},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct sums sums;

		begin(&(struct row){.use_ppm = rows[i].use_ppm, .bursts = rows[i].bursts});
		sums = follow(rows[i].how, ASKED_FIRST);
		assert_in_range(sums.n_asks_max, rows[i].n_asks_max * 3 / 4, rows[i].n_asks_max);
		assert_in_range(sums.n_events, ASKED_FIRST, ASKED_FIRST + 1);
	}
}

static void few_bursts_are_asked(void **state)
{
	(void)state;
	for (uint64_t n_calls = 1; n_calls <= 100; n_calls *= 100) {
		struct sums sums;

		begin(&(struct row){.use_ppm = HALF_PPM,
				    .bursts = {40 * MS, 5 * MS, 15 * MS, n_calls}});
		sums = follow(FINE, ASKED_FIRST);
		assert_in_range(sums.n_asked, ASKED_FIRST - 1, ASKED_FIRST);
		sums = follow(FINE, 10 * ASKED_EVERY);
		assert_in_range(sums.n_asked, 9, 10);
	}
}

/* A kernel of two seconds, and short ones one after the other. */
static void what_never_ends_is_asked_a_thousand_times_a_second(void **state)
{
	(void)state;
	for (uint64_t n_calls = 1; n_calls <= 100000; n_calls *= 100000) {
		struct sums sums;

		begin(&(struct row){.use_ppm = HALF_PPM, .bursts = {MS, 0, 2000 * MS, n_calls}});
		sums = follow(FINE, 1);
		assert_in_range(sums.n_asks_max, 2 * 900, 2 * 1100);
		assert_true(is_about(sums.ran_ns, sums.true_ran_ns, 5));
	}
}

#define table_test(rows)                                     \
	{                                                    \
#rows, finds_what_there_is, NULL, NULL, rows \
	}

int main(void)
{
	const struct CMUnitTest tests[] = {
		table_test(few_bursts_tell_what_all_have_run),
		table_test(who_is_alone_runs_while_it_has_work),
		table_test(bursts_of_another_length_are_learned_anew),
		table_test(what_comes_and_goes_is_found_as_often_as_it_is_there),
		table_test(what_is_short_is_found_however_late_the_agent_wakes),
		table_test(what_waits_for_others_slices_has_not_run),
		table_test(time_in_a_hold_is_none),
		cmocka_unit_test(what_was_over_long_ago_or_somewhere_is_not_guessed),
		cmocka_unit_test(looks_as_often_as_it_needs_to),
		cmocka_unit_test(few_bursts_are_asked),
		cmocka_unit_test(what_never_ends_is_asked_a_thousand_times_a_second),
	};

	return cmocka_run_group_tests_name("hook/share_meter", tests, NULL, NULL);
}
