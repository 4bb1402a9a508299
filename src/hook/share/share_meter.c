/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Does the program have work on the GPU? Looked at a thousand times a second while it has, a
 * hundred where only the status wants to know, more often at the beginning of bursts that are
 * asked (asked.h); the share of the looks that found some is the share of the time. While it has
 * none nobody looks: the gate is armed, and tells when that changes.
 *
 * Looks that count come by chance, one in each step of time (sampler.h); others, for the end of a
 * burst, come in between, and count for nothing.
 *
 * A look records an event behind everything that was submitted, and asks a moment later
 * whether it has been reached, which hides the last moment of all work. So who has work is
 * asked once more: what ended between the two stands for what ended before the first, too,
 * whose part of the time was as long. Where no event can be had (an open capture, a driver
 * before 12.5) work counts as being there as long as threads submit.
 *
 * Work that is there may wait for other processes' slices. What has run is what was there in
 * looks that found the program on the GPU (share_here.c, ran.h). Of programs in a hurry only
 * some bursts are asked for that (asked.h).
 */

#include "core/client/asked.h"
#include "core/client/quiet.h"
#include "core/client/ran.h"
#include "core/client/sampler.h"
#include "hook/gate/drain.h"
#include "hook/gate/gate.h"
#include "hook/hook_options.h"
#include "hook/share/share_private.h"
#include "util/clock.h"
#include "util/prng.h"

#include <string.h>
#include <time.h>

#define METER_TICK_NS     CLOCK_NS_PER_MS
#define METER_COARSE_NS   (10 * CLOCK_NS_PER_MS)
#define METER_TICK_NS_MIN (100000ull)
#define METER_CLOSE_PART  8 /* of a burst so far: until the next look, if it is asked */
#define METER_IDLE_NS     (5 * CLOCK_NS_PER_MS)  /* shorter gaps are none */
#define METER_GAP_NS_MAX  (20 * CLOCK_NS_PER_MS) /* a look stands for no more than this */

/* An idle GPU has reached an event by then; it takes it some METER_REACH_NS. */
#define METER_EVENT_NS 20000
#define METER_REACH_NS 3000

/* What a look that found work stands for, of the time since the last one. */
#define METER_ONE      1024u
#define METER_PART_MAX (3 * METER_ONE)

enum meter_state { METER_OFF, METER_IDLE, METER_BUSY };

static struct {
	enum meter_state state;
	bool is_probing; /* an event is recorded, and was not reached when looked at last */
	bool is_timed;   /* the end of what it stands for will have a time */
	bool is_stale;   /* somebody has submitted since the last event */
	bool is_here;    /* was on the GPU at the last look that counts and found work */
	enum share_look how;
	uint64_t activity;
	uint64_t last_ns;       /* the last look, */
	uint64_t tick_ns;       /* the next, whether it counts or not */
	uint64_t seen_ns;       /* the last tick, */
	uint64_t held_ns;       /* and what it had been held for then */
	bool was_shut;          /* the gate, too */
	uint64_t chance;        /* prng.h */
	struct sampler sampler; /* when those come that count */
	struct ran ran;
	struct asked asked;
	struct quiet quiet; /* looking finely */
	struct share_meter out;
} meter;

void share_meter_read(struct share_meter *ret)
{
	*ret = meter.out;
}

static void look_at(uint64_t at_ns)
{
	meter.tick_ns = share_earlier(meter.tick_ns, at_ns);
	sampler_hurry(&meter.sampler, at_ns);
}

void share_meter_soon(uint64_t now_ns, uint64_t ns)
{
	uint64_t from_ns = meter.sampler.begin_ns;

	look_at((now_ns > from_ns ? now_ns : from_ns) + ns);
}

static void begin_asking(void)
{
	asked_begin(&meter.asked, meter.how != SHARE_LOOK_FINE, gate_activity(), meter.ran.ns);
}

/* What is under way may never end. */
static void forget_asked(void)
{
	asked_forget(&meter.asked);
	if (meter.state == METER_BUSY)
		begin_asking();
}

void share_meter_set_use(uint64_t use_ppm)
{
	if (ran_set_use(&meter.ran, use_ppm))
		forget_asked();
}

void share_meter_reset(void)
{
	memset(&meter, 0, sizeof(meter));
}

static void wait_a_moment(void)
{
	const struct timespec moment = {.tv_nsec = METER_EVENT_NS};

	(void)nanosleep(&moment, NULL);
}

/* Of the event recorded at at_ns; ret_ns: when it was asked for. */
static bool is_reached_soon(uint64_t at_ns, uint64_t *ret_ns)
{
	wait_a_moment();
	*ret_ns = clock_now_ns() - at_ns;
	meter.is_probing = !drain_probe_done();
	return !meter.is_probing;
}

/* Once for each event that was not reached: the end of the work will have a time, too. */
static void take_time(void)
{
	if (!meter.asked.is_now || meter.is_timed)
		return;
	drain_probe_time();
	meter.is_timed = true;
}

static void ask_here(bool knows_work)
{
	enum share_here here;

	if (!meter.asked.is_now)
		return;
	here = share_here_ask(knows_work);
	meter.out.is_blind = meter.out.is_blind || here == SHARE_HERE_BLIND;
	if (here == SHARE_HERE_ASKED)
		ran_asked(&meter.ran);
}

/* The work that was asked for last is done. */
static void settle(void)
{
	bool is_reached = meter.ran.maybe_ns && share_here_is(false);
	bool has_waited = is_reached && meter.ran.has_others && share_here_waited();

	meter.is_probing = false;
	ran_ended(&meter.ran, is_reached, has_waited, meter.how != SHARE_LOOK_FINE);
	meter.out.is_blind = meter.out.is_blind || meter.ran.is_blind;
	share_here_forget();
}

static void note_here(bool is_here)
{
	meter.is_here = is_here;
	if (is_here)
		ran_found(&meter.ran);
}

static void look_here(bool knows_work)
{
	take_time();
	ask_here(knows_work);
	if (!meter.asked.is_now)
		return;
	wait_a_moment();
	/* What has ended meanwhile was on the GPU for that. */
	note_here(share_here_is(knows_work) || (knows_work && drain_probe_done()));
}

/*
 * What a look of now stands for. One that found work at its first moment but not at its
 * second stands for itself and for those that came too late for their first.
 */
static uint32_t ask(bool counts)
{
	uint64_t at_ns, first_ns, second_ns, part;

	meter.is_timed = false;
	if (!drain_probe_start()) {
		if (counts)
			look_here(false);
		return METER_ONE;
	}
	at_ns = clock_now_ns();
	if (counts)
		sampler_note_late(&meter.sampler, at_ns);
	meter.is_stale = false;
	if (is_reached_soon(at_ns, &first_ns))
		return 0;
	if (!counts)
		return METER_ONE;
	/* Not before: a program that waits for all its streams would wait for the answer. */
	take_time();
	ask_here(true);
	if (!is_reached_soon(at_ns, &second_ns)) {
		note_here(meter.asked.is_now && share_here_is(true));
		return METER_ONE;
	}
	note_here(true);
	share_here_forget();
	part = first_ns > METER_REACH_NS ? first_ns - METER_REACH_NS : 0;
	part = METER_ONE + METER_ONE * part / (second_ns > first_ns ? second_ns - first_ns : 1);
	return (uint32_t)(part < METER_PART_MAX ? part : METER_PART_MAX);
}

/*
 * 0: there is no work. One event at a time: as long as it is not reached there is work,
 * whatever has come behind it. Who submits all the time is busy, as far as the end of a burst
 * goes, and its driver's locks are left alone; for how much of the time it is, an event is
 * needed each time.
 */
static uint32_t find_work(bool counts, bool *ret_is_new)
{
	uint64_t activity = gate_activity();
	bool is_new = activity != meter.activity;

	meter.activity = activity;
	meter.is_stale = meter.is_stale || is_new;
	meter.is_here = false;
	*ret_is_new = is_new;
	meter.out.is_blind = meter.out.is_blind || !drain_has_limit();
	if (!drain_has_limit())
		return is_new ? METER_ONE : 0;
	if (!counts && is_new && meter.out.is_busy)
		return METER_ONE;
	if (meter.is_probing && drain_probe_done())
		settle();
	if (meter.is_probing && !counts) {
		if (meter.ran.maybe_ns && share_here_is(true))
			ran_answered(&meter.ran);
		return METER_ONE;
	}
	if (meter.is_probing) {
		look_here(true);
		return METER_ONE;
	}
	return meter.is_stale ? ask(counts) : 0;
}

/* For the end of a burst. */
static uint64_t fine_ns(void)
{
	uint64_t ns = share_earlier(hook_options()->burst_idle_ns / 4, METER_TICK_NS / 4);

	return ns > METER_TICK_NS_MIN ? ns : METER_TICK_NS_MIN;
}

/* Of bursts few are asked and stand for many: many looks in each. */
static bool is_asked_closely(void)
{
	return meter.how == SHARE_LOOK_FINE && meter.asked.is_now && meter.ran.has_others;
}

/*
 * Of looks that count: until the next. Each takes locks that a thread which launches one kernel
 * after the other needs, too: as many as tell how long the burst was, not more.
 */
static uint64_t step_ns(uint64_t now_ns)
{
	uint64_t part_ns;

	if (meter.how == SHARE_LOOK_COARSE)
		return METER_COARSE_NS;
	if (!is_asked_closely())
		return METER_TICK_NS;
	part_ns = (now_ns - meter.out.begin_ns) / METER_CLOSE_PART;
	return share_earlier(part_ns > fine_ns() ? part_ns : fine_ns(), METER_TICK_NS);
}

/* Nothing is known: an event will show. */
static void start(uint64_t now_ns)
{
	meter.state = METER_BUSY;
	meter.activity = gate_activity() - 1;
	meter.tick_ns = now_ns;
	sampler_start(&meter.sampler, now_ns);
	meter.out.idle_ns = 0;
	begin_asking();
}

/* Work again; a burst that was taken for ended may be going on. */
static void note_pause(uint64_t since_ns)
{
	if (meter.how == SHARE_LOOK_FINE && meter.out.idle_ns && since_ns > meter.out.idle_ns)
		quiet_note_pause(&meter.quiet, since_ns - meter.out.idle_ns,
				 hook_options()->burst_idle_ns);
}

static void set_busy(uint64_t since_ns)
{
	meter.out.is_busy = true;
	meter.out.begin_ns = since_ns;
	meter.out.idle_ns = 0;
}

/* The next look, whether it counts or not. */
static void plan(uint64_t now_ns)
{
	meter.tick_ns = meter.sampler.look_ns;
	if (meter.how == SHARE_LOOK_FINE)
		meter.tick_ns = share_earlier(meter.tick_ns, now_ns + fine_ns());
}

/* Somebody has submitted. Coarsely, that alone is no work: most calls are none. */
static void begin(uint64_t now_ns)
{
	uint64_t tripped_ns = gate_tripped_ns(), begin_ns;
	bool was_asked = meter.asked.is_now;

	begin_ns = tripped_ns > meter.last_ns && tripped_ns <= now_ns ? tripped_ns : now_ns;
	meter.state = METER_BUSY;
	note_pause(begin_ns);
	meter.out.idle_ns = 0;
	if (meter.how != SHARE_LOOK_COARSE)
		set_busy(begin_ns);
	begin_asking();
	/* One long step would find most short bursts of those few idle. */
	if (!was_asked && is_asked_closely())
		sampler_forget(&meter.sampler);
	sampler_resume(&meter.sampler, begin_ns, now_ns, step_ns(begin_ns),
		       prng_next(&meter.chance));
	meter.tick_ns = meter.how == SHARE_LOOK_FINE ? now_ns : meter.sampler.look_ns;
}

/* Of the one that has no work just now; 0: there is none. */
static uint64_t burst_length(void)
{
	if (!meter.out.is_busy || meter.out.idle_ns < meter.out.begin_ns)
		return 0;
	return meter.out.idle_ns - meter.out.begin_ns;
}

/* With nobody else there nothing waits, and what there is runs. */
static void count_ran(uint64_t busy_ns)
{
	if (!meter.ran.has_others)
		ran_count(&meter.ran, busy_ns, true);
	else if (meter.asked.is_now)
		ran_count(&meter.ran, busy_ns, meter.is_here);
	else
		ran_count(&meter.ran, asked_part(&meter.asked, busy_ns, gate_activity()), true);
	meter.out.ran_ns = meter.out.is_blind ? 0 : meter.ran.ns;
}

static void count(uint64_t now_ns, uint32_t part)
{
	uint64_t chance = prng_next(&meter.chance);
	uint64_t ns = sampler_take(&meter.sampler, now_ns, step_ns(now_ns), chance);
	uint64_t busy_ns = share_earlier(ns, METER_GAP_NS_MAX) * part / METER_ONE;

	meter.out.busy_ns += busy_ns;
	count_ran(busy_ns);
}

static void end_asking(void)
{
	if (!meter.asked.is_now)
		count_ran(0);
	asked_end(&meter.asked, gate_activity(), meter.ran.ns);
}

static void look(uint64_t now_ns)
{
	bool is_fine = meter.how == SHARE_LOOK_FINE, is_new;
	bool counts = now_ns >= meter.sampler.look_ns;
	uint32_t part = find_work(counts, &is_new);
	uint64_t idle_ns = METER_IDLE_NS;

	meter.last_ns = now_ns;
	if (counts)
		count(now_ns, part);
	if (part || (is_fine && is_new && meter.out.is_busy)) {
		note_pause(now_ns);
		meter.out.idle_ns = 0;
		if (!meter.out.is_busy)
			set_busy(now_ns);
	} else if (!meter.out.idle_ns) {
		meter.out.idle_ns = clock_now_ns(); /* the look has taken a moment */
	}
	if (is_fine && meter.out.idle_ns)
		idle_ns = quiet_ns(&meter.quiet, burst_length(), hook_options()->burst_idle_ns);
	if (meter.out.idle_ns && now_ns >= meter.out.idle_ns + idle_ns) {
		meter.state = METER_IDLE;
		if (is_fine)
			end_asking();
		if (is_fine && meter.out.is_busy)
			quiet_note_end(&meter.quiet);
		meter.out.is_busy = false;
		return;
	}
	plan(now_ns);
}

/* While it is stopped or kept off nothing of it runs: that is no idleness. */
static bool is_paused(void)
{
	return share_off_is_on() || gate_get() != GATE_OPEN;
}

/* As if there had been no time between. */
static void skip_pauses(uint64_t now_ns)
{
	struct share_off_stats stats;
	uint64_t ns;

	share_off_stats(now_ns, &stats);
	ns = meter.was_shut ? now_ns - meter.seen_ns : stats.held_ns - meter.held_ns;
	meter.seen_ns = now_ns;
	meter.held_ns = stats.held_ns;
	meter.was_shut = gate_get() != GATE_OPEN;
	sampler_skip(&meter.sampler, ns);
	meter.tick_ns += ns;
}

/* The gate is armed, or somebody has passed it; when it was tripped arming it would forget. */
static bool is_entered(void)
{
	return !gate_is_armed() && (gate_tripped_ns() > meter.last_ns || !gate_arm(meter.activity));
}

void share_meter_tick(uint64_t now_ns, enum share_look how)
{
	bool was_fine;

	skip_pauses(now_ns);
	if (how > meter.how)
		look_at(now_ns);
	was_fine = meter.how == SHARE_LOOK_FINE;
	meter.how = how;
	if (was_fine != (how == SHARE_LOOK_FINE))
		forget_asked();
	if (how == SHARE_LOOK_NONE) {
		if (meter.state != METER_OFF && gate_is_armed())
			gate_set(GATE_OPEN);
		meter.state = METER_OFF;
		meter.out.is_busy = false;
		return;
	}
	if (is_paused()) {
		meter.last_ns = now_ns; /* who has submitted meanwhile begins when it goes on */
		return;
	}
	if (meter.state == METER_OFF)
		start(now_ns);
	if (meter.state == METER_IDLE) {
		/* Copies alone are work for all but the end of a burst. */
		if (gate_is_armed() && gate_copied_ns() && how != SHARE_LOOK_FINE)
			gate_set(GATE_OPEN);
		if (is_entered())
			begin(now_ns);
	}
	if (meter.state == METER_BUSY && now_ns >= meter.tick_ns)
		look(now_ns);
	if (meter.state == METER_IDLE && is_entered())
		begin(now_ns);
}

uint64_t share_meter_due(void)
{
	return meter.state == METER_BUSY && !is_paused() ? meter.tick_ns : SHARE_NEVER;
}

void share_meter_forget(void)
{
	meter.activity = gate_activity();
	(void)gate_arm(meter.activity);
}
