/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Does the program have work on the GPU? Looked at about a thousand times a second while it
 * has, a hundred where only the status wants to know; the share of the looks that found some
 * is the share of the time. While it has none nobody looks: the gate is armed, and tells when
 * that changes.
 *
 * Few looks must not fall in step with the program: they come at times of chance, and the
 * first of them not with the work, but some time within the first step. So what is shorter
 * than a step is found as often as its length says.
 *
 * A look records an event behind everything that was submitted, and asks a moment later
 * whether it has been reached. Where that can not be done (an open capture, a driver before
 * 12.5) work counts as being there as long as threads submit.
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
#define METER_TICK_NS_MIN (100000ull)
#define METER_EVENT_NS    20000                  /* an idle GPU has reached an event by then */
#define METER_IDLE_NS     (5 * CLOCK_NS_PER_MS)  /* shorter gaps are none */
#define METER_GAP_NS_MAX  (20 * CLOCK_NS_PER_MS) /* a look stands for no more than this */
#define METER_COARSE_NS   (10 * CLOCK_NS_PER_MS)
#define METER_JITTER_NS   (3 * CLOCK_NS_PER_MS) /* more, or less */

enum meter_state { METER_OFF, METER_IDLE, METER_BUSY };

static struct {
	enum meter_state state;
	bool is_paused;
	bool is_probing; /* an event is recorded, and was not reached when looked at last */
	bool is_stale;   /* somebody has submitted since the last event */
	enum share_look how;
	uint64_t chance; /* prng.h */
	uint64_t activity;
	uint64_t look_ns;   /* the last */
	uint64_t tick_ns;   /* the next */
	struct quiet quiet; /* looking finely */
	struct share_meter out;
} meter;

void share_meter_read(struct share_meter *ret)
{
	*ret = meter.out;
}

void share_meter_soon(uint64_t at_ns)
{
	meter.tick_ns = share_earlier(meter.tick_ns, at_ns);
}

void share_meter_reset(void)
{
	memset(&meter, 0, sizeof(meter));
}

/* Records an event behind all that was submitted. false: it is certainly not done. */
static bool record(void)
{
	const struct timespec moment = {.tv_nsec = METER_EVENT_NS};

	if (!drain_probe_start())
		return false;
	meter.is_probing = true;
	meter.is_stale = false;
	(void)nanosleep(&moment, NULL);
	return true;
}

/*
 * One event at a time: as long as it is not reached there is work, whatever has come behind
 * it. Who submits all the time is busy, as far as the end of a burst goes, and its driver's
 * locks are left alone; for how much of the time it is, an event is needed each time.
 */
static bool has_work(void)
{
	uint64_t activity = gate_activity();
	bool is_new = activity != meter.activity;

	meter.activity = activity;
	meter.is_stale = meter.is_stale || is_new;
	if (!drain_has_limit())
		return is_new;
	if (is_new && meter.how == SHARE_LOOK_FINE && meter.out.is_busy)
		return true;
	if (meter.is_probing && !drain_probe_done())
		return true;
	meter.is_probing = false;
	if (!meter.is_stale)
		return false;
	if (!record())
		return true;
	meter.is_probing = !drain_probe_done();
	return meter.is_probing;
}

/* Nothing is known: an event will show. */
static void start(uint64_t now_ns)
{
	meter.state = METER_BUSY;
	meter.activity = gate_activity() - 1;
	meter.look_ns = now_ns;
	meter.tick_ns = now_ns;
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

static uint64_t next_step_ns(void)
{
	uint64_t ns = METER_TICK_NS;

	if (meter.how == SHARE_LOOK_COARSE)
		return METER_COARSE_NS - METER_JITTER_NS +
		       prng_below(&meter.chance, 2 * METER_JITTER_NS);
	if (meter.how == SHARE_LOOK_FINE)
		ns = share_earlier(hook_options()->burst_idle_ns / 4, ns);
	return ns > METER_TICK_NS_MIN ? ns : METER_TICK_NS_MIN;
}

/* Somebody has submitted. Coarsely, that alone is no work: most calls are none. */
static void begin(uint64_t now_ns)
{
	uint64_t tripped_ns = gate_tripped_ns();

	meter.state = METER_BUSY;
	meter.look_ns = tripped_ns > meter.look_ns && tripped_ns <= now_ns ? tripped_ns : now_ns;
	meter.tick_ns = now_ns;
	note_pause(meter.look_ns);
	meter.out.idle_ns = 0;
	if (meter.how == SHARE_LOOK_COARSE) {
		meter.tick_ns = meter.look_ns + prng_below(&meter.chance, METER_COARSE_NS);
		meter.look_ns = meter.tick_ns - METER_COARSE_NS;
	} else {
		set_busy(meter.look_ns);
	}
}

/* Of the one that has no work just now; 0: there is none. */
static uint64_t burst_length(void)
{
	if (!meter.out.is_busy || meter.out.idle_ns < meter.out.begin_ns)
		return 0;
	return meter.out.idle_ns - meter.out.begin_ns;
}

static void look(uint64_t now_ns)
{
	uint64_t gap_ns = now_ns > meter.look_ns ? now_ns - meter.look_ns : 0;
	bool is_fine = meter.how == SHARE_LOOK_FINE;
	uint64_t idle_ns = METER_IDLE_NS;

	meter.look_ns = now_ns;
	if (has_work()) {
		meter.out.busy_ns += share_earlier(gap_ns, METER_GAP_NS_MAX);
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
	meter.tick_ns = now_ns + next_step_ns();
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
		meter.is_paused = true;
		return;
	}
	if (meter.is_paused) {
		meter.is_paused = false;
		meter.look_ns = now_ns;
		meter.tick_ns = now_ns + METER_TICK_NS_MIN;
	}
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
