/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Measures how much of the time the program has work on the GPU: the share of the looks that find
 * work. While it has work, the agent looks 1000 times a second, or 100 times if only the status
 * wants to know. It looks more often at the beginning of bursts that are asked (probe_schedule.h).
 * While the program has no work, there are no looks: the gate is armed, and shows the next
 * submission.
 *
 * Each step of time has one look that counts, at a random moment (sampler.h). Other looks, which
 * find the end of a burst, come in between and do not count.
 *
 * The program has one schedule of looks, because one gate sees all its submissions. Results are
 * kept for each GPU (share_gpu.c).
 */

#include "core/meter/burst_end.h"
#include "core/meter/sampler.h"
#include "core/u64.h"
#include "hook/base/hook_options.h"
#include "hook/gate/drain.h"
#include "hook/gate/gate.h"
#include "hook/share/share_gpu.h"
#include "util/clock.h"
#include "util/prng.h"

#include <string.h>

#define METER_TICK_NS     CLOCK_NS_PER_MS
#define METER_COARSE_NS   (10 * CLOCK_NS_PER_MS)
#define METER_TICK_NS_MIN (100000ull)
#define METER_CLOSE_PART  8 /* in a burst that is asked, looks are 1/8 of its length apart */
#define METER_IDLE_NS     (5 * CLOCK_NS_PER_MS)  /* shorter gaps do not count as idle */
#define METER_GAP_NS_MAX  (20 * CLOCK_NS_PER_MS) /* the most time that a look stands for */

enum meter_state { METER_OFF, METER_IDLE, METER_BUSY };

static struct {
	enum meter_state state;
	enum share_look how;
	uint64_t activity;
	uint64_t last_ns;       /* time of the last look */
	uint64_t tick_ns;       /* time of the next look, whether it counts or not */
	bool is_slept_for;      /* the next look counts, and the agent sleeps until then */
	uint64_t seen_ns;       /* time of the last tick */
	uint64_t held_ns;       /* how long the program had been held, at the last tick */
	bool was_shut;          /* the gate, at the last tick */
	uint64_t chance;        /* prng.h */
	struct sampler sampler; /* plans the looks that count */
	struct burst_end quiet; /* with SHARE_LOOK_FINE */
	struct share_meter out;
} meter;

void share_meter_read(struct share_meter *ret)
{
	*ret = meter.out;
}

static bool meter_has_one_gpu(void)
{
	const struct share_gpu *first = share_gpu_next(NULL);

	return first && !share_gpu_next(first);
}

/* A program with one GPU is busy there from its submission on, before any look. */
static bool meter_is_busy_on(const struct share_gpu *gpu)
{
	if (meter_has_one_gpu())
		return meter.out.is_busy;
	return meter.out.is_busy && gpu->found_ns + METER_GAP_NS_MAX >= meter.last_ns;
}

void share_meter_read_gpu(CUdevice dev, struct share_meter_gpu *ret)
{
	const struct share_gpu *gpu = share_gpu_of(dev);

	*ret = gpu->out;
	ret->is_busy = meter_is_busy_on(gpu);
}

static void meter_look_at(uint64_t at_ns)
{
	meter.tick_ns = u64_min(meter.tick_ns, at_ns);
	sampler_hurry(&meter.sampler, at_ns);
}

void share_meter_soon(uint64_t now_ns, uint64_t ns)
{
	uint64_t from_ns = meter.sampler.begin_ns;

	meter_look_at((now_ns > from_ns ? now_ns : from_ns) + ns);
}

static void meter_begin_asking(struct share_gpu *gpu)
{
	probe_schedule_begin(&gpu->asked, meter.how != SHARE_LOOK_FINE, gate_activity(),
			     gpu->ran.ns);
}

/* Begins asking at once if there is work, because that work may never end. */
static void meter_forget_asked(struct share_gpu *gpu)
{
	probe_schedule_forget(&gpu->asked);
	if (meter.state == METER_BUSY)
		meter_begin_asking(gpu);
}

void share_meter_set_use(CUdevice dev, uint64_t use_ppm)
{
	struct share_gpu *gpu = share_gpu_of(dev);

	if (runtime_set_use(&gpu->ran, use_ppm))
		meter_forget_asked(gpu);
}

void share_meter_reset(void)
{
	memset(&meter, 0, sizeof(meter));
	share_gpu_reset();
}

static void meter_note_found(struct share_gpu *gpu, uint32_t part, uint64_t now_ns)
{
	gpu->part = part;
	if (part)
		gpu->found_ns = now_ns;
}

/* Without events: each GPU counts as busy if the program has submitted since the last look. */
static uint32_t meter_guess(bool is_new, uint64_t now_ns)
{
	share_for_each_gpu (gpu)
		meter_note_found(gpu, is_new ? SHARE_PART_ONE : 0, now_ns);
	return is_new ? SHARE_PART_ONE : 0;
}

/*
 * Looks at all GPUs, and returns the largest part. A look that only seeks the end of a burst needs
 * no event while the program submits, so it spares the driver's locks. A look that counts needs
 * one.
 */
static uint32_t meter_find_work(uint64_t now_ns, bool counts, bool *ret_is_new)
{
	uint64_t activity = gate_activity();
	bool is_new = activity != meter.activity;
	uint32_t most = 0;

	meter.activity = activity;
	*ret_is_new = is_new;
	share_for_each_gpu (gpu) {
		gpu->is_stale = gpu->is_stale || is_new;
		gpu->is_here = false;
		gpu->out.is_blind = gpu->out.is_blind || !drain_has_limit();
	}
	if (!drain_has_limit())
		return meter_guess(is_new, now_ns);
	if (!counts && is_new && meter.out.is_busy)
		return SHARE_PART_ONE;
	share_for_each_gpu (gpu) {
		uint64_t at_ns = 0;

		meter_note_found(gpu,
				 share_gpu_find(gpu, counts, meter.how == SHARE_LOOK_FINE, &at_ns),
				 now_ns);
		most = gpu->part > most ? gpu->part : most;
		/* Only the first GPU's event is on time: the others come after its answer. */
		if (counts && at_ns && gpu == share_gpu_next(NULL) && meter.is_slept_for)
			sampler_note_late(&meter.sampler, at_ns);
	}
	return most;
}

/* The time between looks for the end of a burst. */
static uint64_t meter_fine_ns(void)
{
	uint64_t ns = u64_min(hook_options()->burst_idle_ns / 4, METER_TICK_NS / 4);

	return ns > METER_TICK_NS_MIN ? ns : METER_TICK_NS_MIN;
}

/* Only few bursts are asked, and they stand for many. So each of them gets many looks. */
static bool meter_is_asked_closely(void)
{
	bool is_close = false;

	share_for_each_gpu (gpu)
		is_close = is_close || (gpu->asked.is_now && gpu->ran.has_others);
	return is_close && meter.how == SHARE_LOOK_FINE;
}

static bool meter_is_any_asked(void)
{
	bool is_any = false;

	share_for_each_gpu (gpu)
		is_any = is_any || gpu->asked.is_now;
	return is_any;
}

/*
 * The time to the next look that counts. Each look takes locks that a thread needs, too, that
 * launches one kernel after the other. So there are only as many as show the burst's length.
 */
static uint64_t meter_step_ns(uint64_t now_ns)
{
	uint64_t part_ns;

	if (meter.how == SHARE_LOOK_COARSE)
		return METER_COARSE_NS;
	if (!meter_is_asked_closely())
		return METER_TICK_NS;
	part_ns = (now_ns - meter.out.begin_ns) / METER_CLOSE_PART;
	return u64_min(part_ns > meter_fine_ns() ? part_ns : meter_fine_ns(), METER_TICK_NS);
}

/* Whether there is work is not known: the first look records an event. */
static void meter_start(uint64_t now_ns)
{
	meter.state = METER_BUSY;
	meter.activity = gate_activity() - 1;
	meter.tick_ns = now_ns;
	sampler_start(&meter.sampler, now_ns);
	meter.out.idle_ns = 0;
	share_for_each_gpu (gpu)
		meter_begin_asking(gpu);
}

/* There is work again: a burst that seemed to have ended may be going on. */
static void meter_note_pause(uint64_t since_ns)
{
	if (meter.how == SHARE_LOOK_FINE && meter.out.idle_ns && since_ns > meter.out.idle_ns)
		burst_end_note_pause(&meter.quiet, since_ns - meter.out.idle_ns,
				     hook_options()->burst_idle_ns);
}

static void meter_set_busy(uint64_t since_ns)
{
	meter.out.is_busy = true;
	meter.out.begin_ns = since_ns;
	meter.out.idle_ns = 0;
}

/* Plans the next look, whether it counts or not. */
static void meter_plan(uint64_t now_ns)
{
	meter.tick_ns = meter.sampler.look_ns;
	if (meter.how == SHARE_LOOK_FINE)
		meter.tick_ns = u64_min(meter.tick_ns, now_ns + meter_fine_ns());
	meter.is_slept_for =
		meter.tick_ns == meter.sampler.look_ns && meter.tick_ns > clock_now_ns();
}

/* A thread has submitted. With SHARE_LOOK_COARSE that alone is no work, as most calls make none. */
static void meter_begin(uint64_t now_ns)
{
	uint64_t tripped_ns = gate_tripped_ns(), begin_ns;
	bool was_asked = meter_is_any_asked();

	begin_ns = tripped_ns > meter.last_ns && tripped_ns <= now_ns ? tripped_ns : now_ns;
	meter.state = METER_BUSY;
	meter_note_pause(begin_ns);
	meter.out.idle_ns = 0;
	if (meter.how != SHARE_LOOK_COARSE)
		meter_set_busy(begin_ns);
	share_for_each_gpu (gpu)
		meter_begin_asking(gpu);
	/* A long step from before would miss most of these few bursts if they are short. */
	if (!was_asked && meter_is_asked_closely())
		sampler_forget(&meter.sampler);
	sampler_resume(&meter.sampler, begin_ns, now_ns, meter_step_ns(begin_ns),
		       prng_next(&meter.chance));
	meter.tick_ns = meter.how == SHARE_LOOK_FINE ? now_ns : meter.sampler.look_ns;
	meter.is_slept_for = meter.tick_ns > now_ns;
}

/* The length of the burst that has no work now; 0: there is none. */
static uint64_t meter_burst_length(void)
{
	if (!meter.out.is_busy || meter.out.idle_ns < meter.out.begin_ns)
		return 0;
	return meter.out.idle_ns - meter.out.begin_ns;
}

static void meter_count(uint64_t now_ns)
{
	uint64_t chance = prng_next(&meter.chance), most_ns = 0;
	uint64_t ns = sampler_take(&meter.sampler, now_ns, meter_step_ns(now_ns), chance);

	ns = u64_min(ns, METER_GAP_NS_MAX);
	share_for_each_gpu (gpu) {
		uint64_t busy_ns = ns * gpu->part / SHARE_PART_ONE;

		most_ns = busy_ns > most_ns ? busy_ns : most_ns;
		gpu->out.busy_ns += busy_ns;
		share_gpu_ran(gpu, busy_ns);
	}
	meter.out.busy_ns += most_ns;
}

static void meter_end_asking(void)
{
	share_for_each_gpu (gpu) {
		if (!gpu->asked.is_now)
			share_gpu_ran(gpu, 0);
		probe_schedule_end(&gpu->asked, gate_activity(), gpu->ran.ns);
	}
}

/*
 * The agent woke for something else, shortly before the moment of the next look. A look now would
 * be too early, and after another sleep too late. So the agent does not sleep until that moment,
 * SAMPLER_LATE_NS_MAX at the most, and hears its messages meanwhile.
 */
static bool meter_is_too_early(uint64_t now_ns)
{
	return !meter.is_slept_for && now_ns >= meter.sampler.look_ns &&
	       now_ns < meter.sampler.at_ns;
}

/* Work began at a known moment, before that of the look, and the look was planned after both. */
static bool meter_is_behind(void)
{
	return meter.how != SHARE_LOOK_COARSE && meter.last_ns < meter.out.begin_ns &&
	       meter.sampler.is_behind && meter.sampler.at_ns >= meter.out.begin_ns;
}

/*
 * If the work is there now, it was there at the look's moment. If not, it may have ended since, and
 * counts as half. It does not count if the look is very late: an agent without a processor would
 * charge the program for that. Nor with several GPUs, as it is not known which one had the work.
 */
static void meter_judge_behind(uint64_t now_ns)
{
	bool may_be = meter_has_one_gpu() && now_ns - meter.out.begin_ns < SAMPLER_LATE_NS_MAX;

	share_for_each_gpu (gpu) {
		if (gpu->part) {
			gpu->part = SHARE_PART_ONE;
		} else if (may_be) {
			gpu->part = SHARE_PART_ONE / 2;
			gpu->is_here = true; /* work that has ended was on the GPU */
		}
	}
}

static void meter_look(uint64_t now_ns)
{
	bool is_fine = meter.how == SHARE_LOOK_FINE, is_early = meter_is_too_early(now_ns), is_new;
	bool counts = !is_early && now_ns >= meter.sampler.look_ns;
	bool is_late = counts && meter_is_behind();
	uint64_t idle_ns = METER_IDLE_NS;
	uint32_t part;

	if (is_early && meter.tick_ns == meter.sampler.look_ns)
		return;
	share_for_each_gpu (gpu)
		gpu->is_awake = counts && !meter.is_slept_for;
	part = meter_find_work(now_ns, counts, &is_new);
	if (is_late)
		meter_judge_behind(now_ns);
	meter.last_ns = now_ns;
	if (counts)
		meter_count(now_ns);
	if (part || (is_fine && is_new && meter.out.is_busy)) {
		meter_note_pause(now_ns);
		meter.out.idle_ns = 0;
		if (!meter.out.is_busy)
			meter_set_busy(now_ns);
	} else if (!meter.out.idle_ns) {
		meter.out.idle_ns = clock_now_ns(); /* the look has taken a moment */
	}
	if (is_fine && meter.out.idle_ns)
		idle_ns = burst_end_ns(&meter.quiet, meter_burst_length(),
				       hook_options()->burst_idle_ns);
	if (meter.out.idle_ns && now_ns >= meter.out.idle_ns + idle_ns) {
		meter.state = METER_IDLE;
		if (is_fine)
			meter_end_asking();
		if (is_fine && meter.out.is_busy)
			burst_end_note_end(&meter.quiet);
		meter.out.is_busy = false;
		return;
	}
	meter_plan(now_ns);
}

/* Nothing of a stopped or held program runs, but it is not idle. */
static bool meter_is_paused(void)
{
	return share_off_is_on() || gate_get() != GATE_OPEN;
}

/* Takes the time of pauses out of the schedule. */
static void meter_skip_pauses(uint64_t now_ns)
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

/*
 * true: a thread has entered since the last look. false: the gate is armed. A gate that has tripped
 * is not armed again here, because that would lose the time of the trip.
 */
static bool meter_is_entered(void)
{
	return !gate_is_armed() && (gate_tripped_ns() > meter.last_ns || !gate_arm(meter.activity));
}

void share_meter_tick(uint64_t now_ns, enum share_look how)
{
	bool was_fine;

	meter_skip_pauses(now_ns);
	if (how > meter.how)
		meter_look_at(now_ns);
	was_fine = meter.how == SHARE_LOOK_FINE;
	meter.how = how;
	if (was_fine != (how == SHARE_LOOK_FINE)) {
		share_for_each_gpu (gpu)
			meter_forget_asked(gpu);
	}
	if (how == SHARE_LOOK_NONE) {
		if (meter.state != METER_OFF && gate_is_armed())
			gate_set(GATE_OPEN);
		meter.state = METER_OFF;
		meter.out.is_busy = false;
		return;
	}
	if (meter_is_paused()) {
		meter.last_ns =
			now_ns; /* work that is submitted now begins when the program goes on */
		return;
	}
	if (meter.state == METER_OFF)
		meter_start(now_ns);
	if (meter.state == METER_IDLE) {
		/* A copy is work, except where looks seek the end of a burst. */
		if (gate_is_armed() && gate_copied_ns() && how != SHARE_LOOK_FINE)
			gate_set(GATE_OPEN);
		if (meter_is_entered())
			meter_begin(now_ns);
	}
	if (meter.state == METER_BUSY && now_ns >= meter.tick_ns)
		meter_look(now_ns);
	if (meter.state == METER_IDLE && meter_is_entered())
		meter_begin(clock_now_ns()); /* the look has taken a moment */
}

uint64_t share_meter_due(void)
{
	return meter.state == METER_BUSY && !meter_is_paused() ? meter.tick_ns : SHARE_NEVER;
}

void share_meter_forget(void)
{
	meter.activity = gate_activity();
	(void)gate_arm(meter.activity);
}
