/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Does the program have work on the GPU? Looked at about a thousand times a second while it
 * has, a hundred where only the status wants to know; the share of the looks that found some
 * is the share of the time. While it has none nobody looks: the gate is armed, and tells when
 * that changes.
 *
 * Looks that count must not fall in step with the program: they come at times of chance, and
 * the first of them not with the work, but some time within the first step. So what is
 * shorter than a step is found as often as its length says. Looks for the end of a burst come
 * in between, and count for nothing.
 *
 * A look records an event behind everything that was submitted, and asks a moment later
 * whether it has been reached, which hides the last moment of all work. So who has work is
 * asked once more: what ended between the two stands for what ended before the first, too,
 * whose part of the time was as long. Where no event can be had (an open capture, a driver
 * before 12.5) work counts as being there as long as threads submit.
 *
 * Work that is there may wait for other processes' slices. What has run is what was there in
 * looks that found the program on the GPU (share_here.c).
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
#define METER_LATE_NS_MAX 200000

#define METER_TOGETHER_MAX 256u
#define METER_PART_MAX     (3 * METER_ONE)

enum meter_state { METER_OFF, METER_IDLE, METER_BUSY };

static struct {
	enum meter_state state;
	bool is_paused;
	uint64_t pause_ns; /* since when */
	bool is_probing;   /* an event is recorded, and was not reached when looked at last */
	bool is_stale;     /* somebody has submitted since the last event */
	bool is_here;      /* was on the GPU at the last look that counts and found work */
	enum share_look how;
	uint64_t chance; /* prng.h */
	uint64_t activity;
	uint64_t look_ns;    /* the last */
	uint64_t tick_ns;    /* the next */
	uint64_t counted_ns; /* the last that counted */
	uint64_t count_ns;   /* the next that does */
	uint64_t ran_ns;
	uint64_t maybe_ns;   /* what has not been answered yet */
	uint32_t n_together; /* times that the end of work came with the answer */
	bool was_late;       /* the last answer came after its look */
	bool was_here;       /* what has not been answered was asked right after such an answer */
	uint64_t use_ppm;    /* of the time in which it has work, usually */
	uint64_t since_ns;   /* may be on the GPU since then */
	uint64_t late_ns;    /* that a look is, usually */
	struct quiet quiet;  /* looking finely */
	struct share_meter out;
} meter;

void share_meter_read(struct share_meter *ret)
{
	*ret = meter.out;
}

void share_meter_soon(uint64_t at_ns)
{
	meter.tick_ns = share_earlier(meter.tick_ns, at_ns);
	if (at_ns >= meter.count_ns)
		return;
	meter.count_ns = at_ns;
	/* The first look is not by chance any more, and stands for what was. */
	if (meter.counted_ns < meter.since_ns)
		meter.counted_ns = meter.since_ns;
}

void share_meter_set_use(uint64_t use_ppm)
{
	meter.use_ppm = use_ppm && use_ppm < SHARE_PPM ? use_ppm : SHARE_PPM;
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

/*
 * On the GPU at last: it has waited for that since it was asked, if it was not there then. If
 * it just had been and no look has found it there, one of its slices is among that time.
 */
static void answered(void)
{
	if (meter.was_here || meter.use_ppm == SHARE_PPM)
		meter.ran_ns += meter.maybe_ns * meter.use_ppm / SHARE_PPM;
	meter.n_together = 0;
	meter.maybe_ns = 0;
	meter.was_late = true;
}

static void ask_here(bool knows_work)
{
	enum share_here here;

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
 * If it has been answered, too: who is looked at finely has been found waiting before if it
 * was, and the slices of the others are short; and who is alone waits for nobody. Who is
 * answered at the end of its work each time shares a queue of the hardware's with that, and
 * nothing can be told.
 */
static void count_maybe(void)
{
	bool is_answered = share_here_is(false);

	if (meter.how == SHARE_LOOK_FINE || meter.use_ppm == SHARE_PPM || !is_answered) {
		meter.ran_ns += meter.maybe_ns;
		return;
	}
	if (++meter.n_together == METER_TOGETHER_MAX)
		meter.out.is_blind = true;
}

/* The work that was asked for last is done. */
static void settle(void)
{
	meter.is_probing = false;
	if (meter.maybe_ns)
		count_maybe();
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
	ask_here(knows_work);
	wait_a_moment();
	note_here(share_here_is(knows_work));
}

/*
 * What a look of now stands for. One that found work at its first moment but not at its
 * second stands for itself and for those that came too late for their first.
 */
static uint32_t ask(bool counts)
{
	uint64_t at_ns, first_ns, second_ns, part;

	if (!drain_probe_start()) {
		if (counts)
			look_here(false);
		return METER_ONE;
	}
	at_ns = clock_now_ns();
	if (counts && at_ns > meter.count_ns && at_ns < meter.count_ns + METER_LATE_NS_MAX)
		meter.late_ns += (at_ns - meter.count_ns) / 8 - meter.late_ns / 8;
	meter.is_stale = false;
	if (is_reached_soon(at_ns, &first_ns))
		return 0;
	if (!counts)
		return METER_ONE;
	/* Not before: a program that waits for all its streams would wait for the answer. */
	ask_here(true);
	if (!is_reached_soon(at_ns, &second_ns)) {
		note_here(share_here_is(true));
		return METER_ONE;
	}
	note_here(true);
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

/* Nothing is known: an event will show. */
static void start(uint64_t now_ns)
{
	meter.state = METER_BUSY;
	meter.activity = gate_activity() - 1;
	meter.tick_ns = now_ns;
	meter.counted_ns = now_ns;
	meter.count_ns = now_ns;
	meter.out.idle_ns = 0;
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
 * The first look that counts stands for a step, as if there had been one before; planned as
 * much too early as looks come late, it finds short work as often as it should.
 */
static void plan_first(uint64_t begin_ns)
{
	meter.since_ns = begin_ns;
	meter.count_ns = begin_ns - meter.late_ns + prng_below(&meter.chance, step_ns());
	meter.counted_ns = meter.count_ns - step_ns();
}

/* Somebody has submitted. Coarsely, that alone is no work: most calls are none. */
static void begin(uint64_t now_ns)
{
	uint64_t tripped_ns = gate_tripped_ns(), begin_ns;

	begin_ns = tripped_ns > meter.look_ns && tripped_ns <= now_ns ? tripped_ns : now_ns;
	meter.state = METER_BUSY;
	note_pause(begin_ns);
	meter.out.idle_ns = 0;
	plan_first(begin_ns);
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

static void count(uint64_t now_ns, uint32_t part)
{
	uint64_t gap_ns = now_ns > meter.counted_ns ? now_ns - meter.counted_ns : 0;
	uint64_t step = step_ns();

	gap_ns = share_earlier(gap_ns, METER_GAP_NS_MAX) * part / METER_ONE;
	meter.out.busy_ns += gap_ns;
	*(meter.is_here ? &meter.ran_ns : &meter.maybe_ns) += gap_ns;
	meter.out.ran_ns = meter.out.is_blind ? 0 : meter.ran_ns;
	meter.counted_ns = now_ns;
	meter.count_ns = now_ns + step - step / 5 + prng_below(&meter.chance, step * 2 / 5);
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
		if (is_fine && meter.out.is_busy)
			quiet_note_end(&meter.quiet);
		meter.out.is_busy = false;
		return;
	}
	plan(now_ns);
}

/* As if there had been no time between. */
static void resume(uint64_t now_ns)
{
	uint64_t ns = now_ns - meter.pause_ns;

	meter.is_paused = false;
	meter.counted_ns += ns;
	meter.count_ns += ns;
	meter.since_ns += ns;
	meter.tick_ns = meter.count_ns;
}

/* While it is stopped or kept off nothing of it runs: that is no idleness. */
static bool is_paused(void)
{
	return share_off_is_on() || gate_get() != GATE_OPEN;
}

void share_meter_tick(uint64_t now_ns, enum share_look how)
{
	if (how > meter.how)
		share_meter_soon(now_ns);
	meter.how = how;
	if (how == SHARE_LOOK_NONE) {
		if (meter.state != METER_OFF && gate_is_armed())
			gate_set(GATE_OPEN);
		meter.state = METER_OFF;
		meter.out.is_busy = false;
		return;
	}
	if (is_paused()) {
		if (!meter.is_paused)
			meter.pause_ns = now_ns;
		meter.is_paused = true;
		return;
	}
	if (meter.is_paused)
		resume(now_ns);
	if (meter.state == METER_OFF)
		start(now_ns);
	if (meter.state == METER_IDLE) {
		/* Copies alone are work for all but the end of a burst. */
		if (gate_is_armed() && gate_copied_ns() && how != SHARE_LOOK_FINE)
			gate_set(GATE_OPEN);
		if (!gate_is_armed() && !gate_arm(meter.activity))
			begin(now_ns);
	}
	if (meter.state == METER_BUSY && now_ns >= meter.tick_ns)
		look(now_ns);
	if (meter.state == METER_IDLE && !gate_is_armed() && !gate_arm(meter.activity))
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
