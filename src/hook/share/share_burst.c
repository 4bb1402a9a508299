/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Reports to the scheduler: when the program works; and for a critical program, when its requests
 * begin and end. A program without requests has its bursts of work taken for them. A burst lasts
 * from the first submission after idleness until the program has been idle for
 * NVSHARE_BURST_IDLE_US.
 */

#include "core/u64.h"
#include "hook/base/hook_options.h"
#include "hook/gate/gate.h"
#include "hook/share/share_private.h"
#include "util/clock.h"

#include <string.h>

#define BURST_TELL_NS   (10 * CLOCK_NS_PER_MS) /* BUSY and IDLE are no further apart than this */
#define BURST_USE_NS    (50 * CLOCK_NS_PER_MS)
#define BURST_SELDOM_NS CLOCK_NS_PER_SEC       /* any of these, where only the status shows it */
#define BURST_HINT_NS   (10 * CLOCK_NS_PER_MS) /* work that follows a copy later is not its own */
#define BURST_GUESS_NS  100000                 /* from a copy to the work, until it was seen */
#define BURST_WARM_NS   200000                 /* before announced work; takes 0.1 ms */
#define BURST_SAMPLES   3

static struct {
	bool has_requests; /* the program tells them */
	bool is_on;        /* a request or burst */
	bool is_told;      /* the scheduler knows of it */
	uint64_t begin_ns;
	uint64_t longest_ns; /* of the requests that have ended since it was told */
	bool is_told_busy;
	uint64_t told_ns;  /* BUSY or IDLE; 0: nothing yet, or it was forgotten */
	uint64_t again_ns; /* when all of it was forgotten, as far as it was told */
	uint64_t use_ns;   /* any of them */
	uint64_t told_busy_ns;
	uint64_t copied_ns;  /* the copy that a hint was given for; 0: none */
	uint64_t prepare_ns; /* from such a copy to the work; 0: not seen yet */
	uint32_t n_prepared;
	uint64_t hinted_ns; /* when the program's hint says that work begins; 0: no hint is open */
	uint64_t warm_ns;   /* the context is to be brought onto the GPU then; 0: it is not */
	bool is_unprepared; /* for that, perhaps: once, when nothing is at work */
	uint64_t activity;  /* of the gate, when the last burst ended */
} burst;

void share_burst_reset(void)
{
	memset(&burst, 0, sizeof(burst));
}

void share_burst_lost(void)
{
	uint32_t n, n_violations;

	share_tasks_take(&n, &n_violations); /* there was no counter yet */
	burst.is_told = false;
	burst.is_told_busy = false;
	burst.told_ns = 0;
	burst.use_ns = 0;
	burst.told_busy_ns = 0;
	burst.activity = 0;
}

/* A limit keeps the meter going although nothing is reported. */
void share_burst_again(void)
{
	burst.told_ns = 0;
}

/* A stop that has come to pass is told by use_step_stopped(), as soon as that can be. */
void share_burst_forgotten(bool runs_on)
{
	burst.is_told = false;
	burst.told_ns = 0;
	burst.again_ns = clock_now_ns();
	if (runs_on)
		burst.is_told_busy = false;
}

static void burst_tell_begin(bool is_request, uint64_t now_ns)
{
	if (!burst.is_told)
		share_tell(NVSHARE_ACTIVITY_BEGIN, is_request, 0, now_ns);
	burst.is_told = true;
}

/* The time of a stop says nothing about the clients beside it. */
static void burst_tell_end(bool is_request, uint64_t took_ns, uint32_t n_calls, uint64_t now_ns)
{
	uint64_t since_ns = now_ns > burst.again_ns ? now_ns - burst.again_ns : 0;

	burst_tell_begin(is_request, now_ns);
	share_tell(NVSHARE_ACTIVITY_END, u64_min(took_ns, since_ns), n_calls, now_ns);
	burst.is_told = false;
}

/*
 * Those that overlap have one beginning and one end to the scheduler, which has to keep others off
 * for all of them. How many they were goes with every message.
 */
static void burst_step_requests(const struct share_api_news *news, uint64_t now_ns)
{
	if (news->longest_ns > burst.longest_ns)
		burst.longest_ns = news->longest_ns;
	if (news->n_ended && !news->n_open) {
		burst_tell_end(true, burst.longest_ns, 0, now_ns);
		burst.longest_ns = 0;
	} else if (news->n_open) {
		burst_tell_begin(true, now_ns);
	}
	burst.is_on = news->n_open > 0;
}

/*
 * A burst that begins with a copy has begun with that copy. Else the time that the copy waited
 * would not count. The first few say little about the time from copy to work: a program loads
 * things at first.
 */
static void burst_begin(uint64_t begin_ns)
{
	uint64_t took_ns = begin_ns > burst.copied_ns ? begin_ns - burst.copied_ns : 0;
	bool is_copied = burst.copied_ns && took_ns <= BURST_HINT_NS;

	burst.is_on = true;
	burst.hinted_ns = 0;
	burst.begin_ns = is_copied ? burst.copied_ns : begin_ns;
	burst.copied_ns = 0;
	if (!is_copied)
		return;
	burst.n_prepared++;
	burst.prepare_ns = burst.prepare_ns ? (burst.prepare_ns * 7 + took_ns * 3) / 10 : took_ns;
}

/*
 * Several requests may be one burst: how many calls it was says so. 0: not known, since it is
 * the first that was looked at.
 */
static uint32_t burst_count_calls(void)
{
	uint64_t activity = gate_activity(), n_calls = activity - burst.activity;

	if (!burst.activity)
		n_calls = 0;
	burst.activity = activity;
	return n_calls < UINT32_MAX ? (uint32_t)n_calls : UINT32_MAX;
}

static bool link_is_stopped(void)
{
	return gate_get() != GATE_OPEN && !share_off_is_on();
}

static void burst_step(const struct share_meter *meter, enum share_look look, uint64_t now_ns)
{
	bool is_critical = look == SHARE_LOOK_FINE;
	struct nvshare_claim claim;

	/* A look in ten milliseconds does not see where bursts begin and end. */
	if (look < SHARE_LOOK_USUAL && !burst.is_told) {
		burst.is_on = false;
		burst.activity = 0;
		return;
	}
	if (meter->is_busy && !burst.is_on) {
		burst_begin(meter->begin_ns);
		if (is_critical)
			burst_tell_begin(false, now_ns);
	} else if (meter->is_busy) {
		if (is_critical && !link_is_stopped())
			burst_tell_begin(false, now_ns);
	} else if (burst.is_on) {
		uint64_t took_ns =
			meter->idle_ns > burst.begin_ns ? meter->idle_ns - burst.begin_ns : 0;
		uint32_t n_calls = burst_count_calls();

		burst.is_on = false;
		share_claim_now(&claim);
		(void)share_tasks_add(took_ns, claim.slo_us);
		if (is_critical || burst.is_told)
			burst_tell_end(false, took_ns, n_calls, now_ns);
	}
}

/* The program has said itself that work comes about now: its copies say nothing new. */
static bool burst_is_hinted(uint64_t now_ns)
{
	return now_ns + BURST_HINT_NS >= burst.hinted_ns &&
	       now_ns < burst.hinted_ns + BURST_HINT_NS;
}

/* A copy to the GPU after idleness: work on its bytes will follow. */
static uint64_t burst_step_copies(uint64_t now_ns)
{
	uint64_t copied_ns = gate_is_armed() ? gate_copied_ns() : 0, ahead_ns, past_ns;

	if (!copied_ns)
		return SHARE_NEVER;
	past_ns = now_ns > copied_ns ? now_ns - copied_ns : 0;
	if (burst.copied_ns != copied_ns) {
		ahead_ns = burst.n_prepared < BURST_SAMPLES ? BURST_GUESS_NS : burst.prepare_ns;
		burst.copied_ns = copied_ns;
		if (burst_is_hinted(copied_ns))
			return copied_ns + BURST_HINT_NS;
		share_tasks_hint();
		share_tell(NVSHARE_ACTIVITY_HINT, ahead_ns > past_ns ? ahead_ns - past_ns : 1, 0,
			   now_ns);
	}
	if (past_ns < BURST_HINT_NS)
		return copied_ns + BURST_HINT_NS;
	share_meter_forget(); /* copies without work: the next one is another story */
	return SHARE_NEVER;
}

static void use_tell(enum nvshare_activity_kind kind, const struct share_meter *meter,
		     uint64_t now_ns)
{
	share_tell(kind, 0, 0, now_ns);
	burst.use_ns = now_ns;
	burst.told_busy_ns = meter->busy_ns;
}

/* Forgotten reports are sent again when the program runs. */
static void use_step_stopped(const struct share_meter *meter, uint64_t now_ns)
{
	if (burst.is_told_busy || meter->busy_ns != burst.told_busy_ns || share_tasks_are_new())
		use_tell(NVSHARE_ACTIVITY_IDLE, meter, now_ns);
	burst.is_told_busy = false;
	burst.told_ns = 0;
}

/* Now, or in work that was too short to be told of; or requests have ended beside others. */
static bool use_is_there(const struct share_meter *meter)
{
	return meter->is_busy || meter->busy_ns != burst.told_busy_ns || share_tasks_are_new();
}

/* A program whose work is not looked at may still report requests. */
static uint64_t burst_step_tasks(const struct share_meter *meter, uint64_t now_ns)
{
	if (!share_tasks_are_new())
		return SHARE_NEVER;
	if (now_ns - burst.use_ns < BURST_SELDOM_NS)
		return burst.use_ns + BURST_SELDOM_NS;
	use_tell(NVSHARE_ACTIVITY_USE, meter, now_ns);
	return SHARE_NEVER;
}

/*
 * BUSY, IDLE and how much it was: not too often. Where it is told seldom, the IDLE that
 * follows a BUSY comes at once, so that nothing is left to wake up for.
 */
static uint64_t use_step(const struct share_meter *meter, bool is_often, uint64_t now_ns)
{
	uint64_t last_ns = is_often ? burst.told_ns : burst.use_ns;
	uint64_t tell_ns = is_often ? BURST_TELL_NS : BURST_SELDOM_NS;
	uint64_t use_ns = is_often ? BURST_USE_NS : BURST_SELDOM_NS;

	if (meter->is_busy != burst.is_told_busy || (is_often && !burst.told_ns)) {
		if (burst.told_ns && now_ns - last_ns < tell_ns && (is_often || meter->is_busy))
			return last_ns + tell_ns;
		use_tell(meter->is_busy ? NVSHARE_ACTIVITY_BUSY : NVSHARE_ACTIVITY_IDLE, meter,
			 now_ns);
		burst.is_told_busy = meter->is_busy;
		burst.told_ns = now_ns;
	}
	if (!use_is_there(meter) || share_off_is_on())
		return SHARE_NEVER;
	if (now_ns - burst.use_ns >= use_ns)
		use_tell(NVSHARE_ACTIVITY_USE, meter, now_ns);
	return use_is_there(meter) ? burst.use_ns + use_ns : SHARE_NEVER;
}

/* A request begins at_ns; 0: it does not. */
static void hint_send(uint64_t at_ns, bool is_critical)
{
	uint64_t now_ns = clock_now_ns(), ahead_ns = at_ns > now_ns ? at_ns - now_ns : 1;

	burst.hinted_ns = at_ns;
	burst.warm_ns = 0;
	if (at_ns)
		share_tasks_hint();
	if (!is_critical)
		return;
	share_tell(NVSHARE_ACTIVITY_HINT, at_ns ? ahead_ns : 0, 0, now_ns);
	if (!at_ns || ahead_ns < 2 * BURST_WARM_NS)
		return;
	burst.warm_ns = at_ns - BURST_WARM_NS;
	burst.is_unprepared = true;
}

/*
 * A program at work has its context on the GPU. If it is off the GPU, no call may be made that the
 * driver answers only when it runs.
 */
static uint64_t warm_step(bool is_busy, uint64_t now_ns)
{
	if (burst.is_on || is_busy || share_off_is_on())
		burst.warm_ns = 0;
	if (!burst.warm_ns)
		return SHARE_NEVER;
	if (burst.is_unprepared)
		share_warm_prepare();
	burst.is_unprepared = false;
	if (now_ns < burst.warm_ns)
		return burst.warm_ns;
	burst.warm_ns = 0;
	share_warm();
	return SHARE_NEVER;
}

uint64_t share_burst_tick(uint64_t now_ns, enum share_look look, bool is_often)
{
	bool is_critical = look == SHARE_LOOK_FINE;
	struct share_api_news news;
	struct share_meter meter;
	uint64_t due_ns = SHARE_NEVER;
	bool is_hint_last;

	share_api_take(&news);
	share_meter_read(&meter);
	burst.has_requests = burst.has_requests || news.has_begun;
	/* The scheduler takes work that begins after a hint for the announced work. */
	is_hint_last = news.is_hint_last && burst.has_requests;
	if (news.has_hint && !is_hint_last)
		hint_send(news.hint_ns, is_critical);
	if (burst.has_requests)
		burst_step_requests(&news, now_ns);
	else
		burst_step(&meter, look, now_ns);
	if (news.has_hint && is_hint_last)
		hint_send(news.hint_ns, is_critical);
	if (look == SHARE_LOOK_NONE)
		return burst_step_tasks(&meter, now_ns);
	if (link_is_stopped()) {
		use_step_stopped(&meter, now_ns);
		return SHARE_NEVER;
	}
	if (is_critical && !burst.has_requests)
		due_ns = burst_step_copies(now_ns);
	if (is_critical)
		due_ns = u64_min(due_ns, warm_step(meter.is_busy, now_ns));
	return u64_min(due_ns, use_step(&meter, is_often, now_ns));
}
