/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Does the program have work on the GPU? Looked at a thousand times a second while it has, a
 * hundred where only the status wants to know; the share of the looks that found some is the
 * share of the time. While it has none nobody looks: the gate is armed, and tells when that
 * changes.
 *
 * Looks that count must not fall in step with the program. Time goes in steps, the first of
 * which begins with the work; in each there is one look, at a moment of chance, which stands
 * for all of the step. So what is shorter than a step is found as often as its length says,
 * whatever it repeats itself in. Looks for the end of a burst come in between, and count for
 * nothing.
 *
 * A look records an event behind everything that was submitted, and asks a moment later
 * whether it has been reached, which hides the last moment of all work. So who has work is
 * asked once more: what ended between the two stands for what ended before the first, too,
 * whose part of the time was as long. Where no event can be had (an open capture, a driver
 * before 12.5) work counts as being there as long as threads submit.
 *
 * Work that is there may wait for other processes' slices. What has run is what was there in
 * looks that found the program on the GPU (share_here.c). To ask that costs others a switch
 * of the GPU, and requests some of their tail (a graph of 1 ms each 7 ms beside one that
 * computes all the time: 4.5 % of that one's time; 0.05 to 0.1 ms). So of programs in a hurry
 * only some bursts are asked; the part of their time that they were on the GPU holds for the
 * others.
 */

#include "core/client/quiet.h"
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
#define METER_IDLE_NS     (5 * CLOCK_NS_PER_MS)  /* shorter gaps are none */
#define METER_GAP_NS_MAX  (20 * CLOCK_NS_PER_MS) /* a look stands for no more than this */

/* An idle GPU has reached an event by then; it takes it some METER_REACH_NS. */
#define METER_EVENT_NS 20000
#define METER_REACH_NS 3000

/* What a look that found work stands for, of the time since the last one. */
#define METER_ONE         1024u
#define METER_PART_MAX    (3 * METER_ONE)
#define METER_LATE_NS_MAX 200000

#define METER_TOGETHER_MAX 256u

/* Bursts that are asked: the first, then fewer than one in a hundred. */
#define METER_ASKED_FIRST 64u
#define METER_ASKED_EVERY 128u
#define METER_ASKED_SUM   32u /* so many of them make the part */

enum meter_state { METER_OFF, METER_IDLE, METER_BUSY };

static struct {
	enum meter_state state;
	bool is_probing; /* an event is recorded, and was not reached when looked at last */
	bool is_timed;   /* the end of what it stands for will have a time */
	bool is_stale;   /* somebody has submitted since the last event */
	bool is_here;    /* was on the GPU at the last look that counts and found work */
	enum share_look how;
	uint64_t chance; /* prng.h */
	uint64_t activity;
	uint64_t look_ns;    /* the last */
	uint64_t tick_ns;    /* the next */
	uint64_t counted_ns; /* the step that was looked at last ends then */
	uint64_t count_ns;   /* the next look that counts */
	bool is_ahead;       /* which was to come when it was planned */
	bool is_early;       /* which is not by chance: it stands for what was */
	uint64_t seen_ns;    /* the last tick, */
	uint64_t held_ns;    /* and what it had been held for then */
	bool was_shut;       /* the gate, too */
	uint64_t ran_ns;
	uint64_t maybe_ns;   /* what has not been answered yet */
	uint32_t n_together; /* times that the end of work came with the answer */
	bool was_late;       /* the last answer came after its look */
	bool was_here;       /* what has not been answered was asked right after such an answer */
	bool is_alone;       /* nobody else is known to be there */
	uint64_t use_ppm;    /* of the time in which it has work, usually */
	uint64_t late_ns;    /* that a look is, usually */
	uint32_t n_asked;    /* bursts, since others came */
	bool is_asking;      /* in this one, */
	uint64_t begin_busy_ns, begin_ran_ns; /* which has begun with that */
	uint64_t asked_busy_ns, asked_ran_ns; /* of those that were */
	uint64_t asked_ppm;
	struct quiet quiet; /* looking finely */
	struct share_meter out;
} meter = {.asked_ppm = SHARE_PPM};

void share_meter_read(struct share_meter *ret)
{
	*ret = meter.out;
}

static void look_at(uint64_t at_ns)
{
	meter.tick_ns = share_earlier(meter.tick_ns, at_ns);
	if (at_ns >= meter.count_ns)
		return;
	meter.count_ns = at_ns;
	meter.is_early = true;
}

void share_meter_soon(uint64_t now_ns, uint64_t ns)
{
	look_at((now_ns > meter.counted_ns ? now_ns : meter.counted_ns) + ns);
}

static void begin_asking(void)
{
	meter.is_asking = meter.how != SHARE_LOOK_FINE || meter.n_asked < METER_ASKED_FIRST ||
			  meter.n_asked % METER_ASKED_EVERY == 0;
	meter.n_asked += meter.n_asked < UINT32_MAX;
	meter.begin_busy_ns = meter.out.busy_ns;
	meter.begin_ran_ns = meter.ran_ns;
}

/* What was learned does not hold any more; what is under way may never end. */
static void forget_asked(void)
{
	meter.n_asked = 0;
	meter.asked_busy_ns = 0;
	meter.asked_ran_ns = 0;
	meter.asked_ppm = SHARE_PPM;
	if (meter.state == METER_BUSY)
		begin_asking();
}

void share_meter_set_use(uint64_t use_ppm)
{
	bool was_alone = meter.is_alone;

	meter.is_alone = use_ppm == 0;
	meter.use_ppm = use_ppm && use_ppm < SHARE_PPM ? use_ppm : SHARE_PPM;
	if (was_alone != meter.is_alone)
		forget_asked();
}

void share_meter_reset(void)
{
	memset(&meter, 0, sizeof(meter));
	meter.asked_ppm = SHARE_PPM;
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

/*
 * On the GPU at last: it has waited for that since it was asked, if it was not there then. If
 * it just had been and no look has found it there, one of its slices is among that time.
 */
static void answered(void)
{
	if (meter.was_here || meter.is_alone)
		meter.ran_ns += meter.maybe_ns * meter.use_ppm / SHARE_PPM;
	meter.n_together = 0;
	meter.maybe_ns = 0;
	meter.was_late = true;
}

/* Once for each event that was not reached: the end of the work will have a time, too. */
static void take_time(void)
{
	if (!meter.is_asking || meter.is_timed)
		return;
	drain_probe_time();
	meter.is_timed = true;
}

static void ask_here(bool knows_work)
{
	enum share_here here;

	if (!meter.is_asking)
		return;
	here = share_here_ask(knows_work);
	meter.out.is_blind = meter.out.is_blind || here == SHARE_HERE_BLIND;
	if (here != SHARE_HERE_ASKED)
		return;
	if (meter.maybe_ns)
		answered();
	meter.was_here = meter.was_late;
	meter.was_late = false;
}

/*
 * If it has been answered, too, it was on the GPU since then, if that was before the end; and
 * if both came together, which a short graph's do, all the time. Who is answered at the end
 * of its work each time shares a queue of the hardware's with that, and nothing can be told.
 */
static void count_maybe(void)
{
	bool is_answered = share_here_is(false);

	if (is_answered && !meter.is_alone && share_here_waited()) {
		meter.n_together = 0;
		return;
	}
	meter.ran_ns += meter.maybe_ns;
	if (!is_answered || meter.is_alone || meter.how == SHARE_LOOK_FINE)
		return;
	if (++meter.n_together == METER_TOGETHER_MAX)
		meter.out.is_blind = true;
}

/* The work that was asked for last is done. */
static void settle(void)
{
	meter.is_probing = false;
	if (meter.maybe_ns)
		count_maybe();
	share_here_forget();
	meter.maybe_ns = 0;
	meter.was_late = false;
	meter.was_here = false;
}

static void note_here(bool is_here)
{
	meter.is_here = is_here;
	if (is_here)
		meter.n_together = 0;
}

static void look_here(bool knows_work)
{
	take_time();
	ask_here(knows_work);
	if (!meter.is_asking)
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
	if (counts && meter.is_ahead && at_ns > meter.count_ns &&
	    at_ns < meter.count_ns + METER_LATE_NS_MAX)
		meter.late_ns += (at_ns - meter.count_ns) / 8 - meter.late_ns / 8;
	meter.is_stale = false;
	if (is_reached_soon(at_ns, &first_ns))
		return 0;
	if (!counts)
		return METER_ONE;
	/* Not before: a program that waits for all its streams would wait for the answer. */
	take_time();
	ask_here(true);
	if (!is_reached_soon(at_ns, &second_ns)) {
		note_here(meter.is_asking && share_here_is(true));
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
		if (meter.maybe_ns && share_here_is(true))
			answered();
		return METER_ONE;
	}
	if (meter.is_probing) {
		look_here(true);
		return METER_ONE;
	}
	return meter.is_stale ? ask(counts) : 0;
}

/* Of looks that count. */
static uint64_t step_ns(void)
{
	return meter.how == SHARE_LOOK_COARSE ? METER_COARSE_NS : METER_TICK_NS;
}

/* Planned as much too early as looks come late, so that short work is found as it should. */
static void plan_step(uint64_t now_ns)
{
	meter.count_ns = meter.counted_ns + prng_below(&meter.chance, step_ns()) - meter.late_ns;
	meter.is_ahead = meter.count_ns > now_ns;
	meter.is_early = false;
}

/* How much of its time in bursts that were asked it was on the GPU. */
static void note_asked(void)
{
	if (!meter.is_asking || meter.how != SHARE_LOOK_FINE)
		return;
	meter.asked_busy_ns -= meter.asked_busy_ns / METER_ASKED_SUM;
	meter.asked_busy_ns += meter.out.busy_ns - meter.begin_busy_ns;
	meter.asked_ran_ns -= meter.asked_ran_ns / METER_ASKED_SUM;
	meter.asked_ran_ns += meter.ran_ns - meter.begin_ran_ns;
	if (meter.asked_busy_ns)
		meter.asked_ppm =
			meter.asked_ran_ns / 1000 * SHARE_PPM / (meter.asked_busy_ns / 1000 + 1);
}

/* Nothing is known: an event will show. */
static void start(uint64_t now_ns)
{
	meter.state = METER_BUSY;
	meter.activity = gate_activity() - 1;
	meter.tick_ns = now_ns;
	meter.counted_ns = now_ns;
	meter.count_ns = now_ns;
	meter.is_early = true;
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
	uint64_t ns = share_earlier(hook_options()->burst_idle_ns / 4, METER_TICK_NS / 4);

	meter.tick_ns = meter.count_ns;
	if (meter.how != SHARE_LOOK_FINE)
		return;
	ns = ns > METER_TICK_NS_MIN ? ns : METER_TICK_NS_MIN;
	meter.tick_ns = share_earlier(meter.tick_ns, now_ns + ns);
}

/*
 * Steps follow each other where work does, or what comes twice in one would be found less
 * often than it should: its look may be to come, or would have found nothing, or has been.
 */
static void begin_step(uint64_t begin_ns, uint64_t now_ns)
{
	uint64_t end_ns = meter.counted_ns + step_ns();

	if (begin_ns >= end_ns || (meter.is_early && begin_ns >= meter.counted_ns)) {
		meter.counted_ns = begin_ns;
	} else if (begin_ns >= meter.counted_ns) {
		if (meter.count_ns > begin_ns)
			return;
		meter.counted_ns = end_ns;
	}
	plan_step(now_ns);
}

/* Somebody has submitted. Coarsely, that alone is no work: most calls are none. */
static void begin(uint64_t now_ns)
{
	uint64_t tripped_ns = gate_tripped_ns(), begin_ns;

	begin_ns = tripped_ns > meter.look_ns && tripped_ns <= now_ns ? tripped_ns : now_ns;
	meter.state = METER_BUSY;
	note_pause(begin_ns);
	meter.out.idle_ns = 0;
	begin_step(begin_ns, now_ns);
	begin_asking();
	meter.tick_ns = meter.how == SHARE_LOOK_FINE ? now_ns : meter.count_ns;
	if (meter.how != SHARE_LOOK_COARSE)
		set_busy(begin_ns);
}

/* Of the one that has no work just now; 0: there is none. */
static uint64_t burst_length(void)
{
	if (!meter.out.is_busy || meter.out.idle_ns < meter.out.begin_ns)
		return 0;
	return meter.out.idle_ns - meter.out.begin_ns;
}

/* What a look stands for: its step, and those that it came too late for. */
static uint64_t span(uint64_t now_ns)
{
	uint64_t late_ns = now_ns > meter.count_ns ? now_ns - meter.count_ns : 0;

	if (meter.is_early)
		return now_ns > meter.counted_ns ? now_ns - meter.counted_ns : 0;
	return (1 + late_ns / step_ns()) * step_ns();
}

static void count(uint64_t now_ns, uint32_t part)
{
	uint64_t ns = span(now_ns), busy_ns;

	meter.counted_ns += ns;
	busy_ns = share_earlier(ns, METER_GAP_NS_MAX) * part / METER_ONE;
	meter.out.busy_ns += busy_ns;
	if (!meter.is_asking)
		meter.ran_ns += busy_ns * meter.asked_ppm / SHARE_PPM;
	else if (meter.is_here)
		meter.ran_ns += busy_ns;
	else
		meter.maybe_ns += busy_ns;
	meter.out.ran_ns = meter.out.is_blind ? 0 : meter.ran_ns;
	plan_step(now_ns);
}

static void look(uint64_t now_ns)
{
	bool is_fine = meter.how == SHARE_LOOK_FINE, is_new;
	bool counts = now_ns >= meter.count_ns;
	uint32_t part = find_work(counts, &is_new);
	uint64_t idle_ns = METER_IDLE_NS;

	meter.look_ns = now_ns;
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
		note_asked();
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
	meter.counted_ns += ns;
	meter.count_ns += ns;
	meter.tick_ns += ns;
}

/* The gate is armed, or somebody has passed it; when it was tripped arming it would forget. */
static bool is_entered(void)
{
	return !gate_is_armed() && (gate_tripped_ns() > meter.look_ns || !gate_arm(meter.activity));
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
		meter.look_ns = now_ns; /* who has submitted meanwhile begins when it goes on */
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
