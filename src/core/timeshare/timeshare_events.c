/* SPDX-License-Identifier: Apache-2.0 */

#include "core/timeshare/timeshare_events.h"

#include "core/timeshare/burst.h"
#include "core/timeshare/energy.h"
#include "core/timeshare/predict.h"
#include "core/timeshare/preempt_choice.h"
#include "core/timeshare/slice_policy.h"
#include "core/timeshare/timers.h"
#include "core/timeshare/timeshare_part.h"
#include "core/timeshare/timeshare_update.h"
#include "core/timeshare/usage.h"
#include "core/u64.h"

#define RETRY_PART    32u /* the first pause is this part of retry_ns */
#define TASKS_AT_ONCE 1000u

static void client_linger(struct timeshare *timeshare, struct timeshare_client *c)
{
	if (!timeshare_part_is_at_work(c) && c->burst != TIMESHARE_BURST_HINTED)
		c->linger_ns = timeshare->now_ns + timeshare->config.active_ns;
}

void timeshare_events_stop(struct timeshare *timeshare, uint32_t client)
{
	struct timeshare_client *c = &timeshare->clients[client];

	c->state = TIMESHARE_CLIENT_STOPPED;
	c->work = TIMESHARE_WORK_NONE;
	c->burst = TIMESHARE_BURST_NONE;
	c->is_overdue = false;
	c->linger_ns = TIMESHARE_NO_DEADLINE;
	c->burst_end_ns = TIMESHARE_NO_DEADLINE;
	c->hint_ns = TIMESHARE_NO_DEADLINE;
	c->silent_ns = TIMESHARE_NO_DEADLINE;
	timeshare_part_refresh(timeshare, client);
}

/* ---- requests and bursts --------------------------------------------------- */

static void client_arm(struct timeshare *timeshare, struct timeshare_client *c,
		       enum timeshare_warning warning)
{
	if (c->burst != TIMESHARE_BURST_NONE)
		return;
	c->burst = TIMESHARE_BURST_PLANNED;
	c->warning = warning;
	c->arm = energy_arm(timeshare, c, warning, preempt_choice_next(&c->arms[warning]));
}

static void on_begin(struct timeshare *timeshare, struct timeshare_client *c, uint64_t value)
{
	struct timeshare_gpu *g = &timeshare->gpus[c->gpu];
	uint64_t error_ns;

	if (c->state != TIMESHARE_CLIENT_RUNNING)
		predict_cancel(&c->predict); /* it waited for the GPU, which is not preparing */
	if (predict_begin(&c->predict, &timeshare->config, timeshare->now_ns, &error_ns))
		g->hint_error_ns =
			g->hint_error_ns ? (g->hint_error_ns * 7 + error_ns * 3) / 10 : error_ns;
	client_arm(timeshare, c,
		   c->part.is_active ? TIMESHARE_WARNING_NONE : TIMESHARE_WARNING_PAUSE);
	c->hint_ns = TIMESHARE_NO_DEADLINE;
	c->burst = value ? TIMESHARE_BURST_REQUEST : TIMESHARE_BURST_WORK;
	if (timeshare_part_is_at_work(
		    c)) /* else only linger_ns keeps it active until its work comes */
		c->linger_ns = TIMESHARE_NO_DEADLINE;
	c->is_overdue = false;
	slice_policy_begin(timeshare, c);
}

static void begin_hint(struct timeshare *timeshare, struct timeshare_client *c)
{
	struct timeshare_gpu *g = &timeshare->gpus[c->gpu];

	c->burst = TIMESHARE_BURST_HINTED;
	c->linger_ns = TIMESHARE_NO_DEADLINE;
	c->hint_ns = timeshare->now_ns + timeshare->config.hint_ns;
	g->hint_end_ns = c->hint_ns;
}

static void end_hint(struct timeshare *timeshare, struct timeshare_client *c)
{
	bool was_hinted = c->burst == TIMESHARE_BURST_HINTED;

	timeshare->gpus[c->gpu].n_hints_missed++;
	c->burst = TIMESHARE_BURST_NONE;
	c->hint_ns = TIMESHARE_NO_DEADLINE;
	if (was_hinted)
		client_linger(timeshare, c);
}

/*
 * A hint that comes too late to take a client off is no warning. A copy is such a hint, because its
 * work follows at once.
 */
static enum timeshare_warning warning_of(const struct timeshare *timeshare,
					 const struct timeshare_client *c)
{
	uint64_t begin_ns = c->predict.said_ns + c->predict.expected_ns;

	if (begin_ns >= timeshare->now_ns + burst_lead_usual(timeshare, c->gpu) / 2)
		return TIMESHARE_WARNING_HINT;
	return c->part.is_active ? TIMESHARE_WARNING_NONE : TIMESHARE_WARNING_PAUSE;
}

/* Plans the hold of an open hint; no burst is under way. */
static void plan_hint(struct timeshare *timeshare, struct timeshare_client *c)
{
	uint64_t start_ns;

	client_arm(timeshare, c, warning_of(timeshare, c));
	if (c->burst == TIMESHARE_BURST_HINTED || c->arm != TIMESHARE_ARM_HOLD)
		return; /* another hint does not make a hold longer */
	start_ns = predict_start(&c->predict, &timeshare->config, burst_lead(timeshare, c->gpu));
	c->hint_ns = start_ns;
	if (start_ns <= timeshare->now_ns)
		begin_hint(timeshare, c);
}

static void plan_hint_or_forget(struct timeshare *timeshare, struct timeshare_client *c)
{
	if (c->claim.class == TIMESHARE_CLASS_CRITICAL &&
	    predict_is_ahead(&c->predict, timeshare->now_ns))
		plan_hint(timeshare, c);
	else
		predict_cancel(&c->predict);
}

/* The end is known some time after the last work, so the next burst may be announced already. */
static void end_burst(struct timeshare *timeshare, struct timeshare_client *c)
{
	bool was_at_work = timeshare_part_is_at_work(c);

	c->burst = TIMESHARE_BURST_NONE;
	c->burst_end_ns = TIMESHARE_NO_DEADLINE;
	if (was_at_work)
		client_linger(timeshare, c);
	plan_hint_or_forget(timeshare, c);
}

void timeshare_events_run(struct timeshare *timeshare, uint32_t client)
{
	struct timeshare_client *c = &timeshare->clients[client];

	c->state = TIMESHARE_CLIENT_RUNNING;
	if (!timeshare_is_in_burst(c))
		plan_hint_or_forget(timeshare, c);
	timeshare_part_refresh(timeshare, client);
}

/* The burst's true end: it is known some time later. */
static uint64_t burst_ended_ns(const struct timeshare *timeshare, const struct timeshare_client *c,
			       uint64_t took_ns)
{
	uint64_t since_ns = timeshare->now_ns - c->pace.begin_ns;

	return c->pace.begin_ns + (took_ns < since_ns ? took_ns : since_ns);
}

static void on_end(struct timeshare *timeshare, struct timeshare_client *c, uint64_t took_ns,
		   uint32_t n_calls)
{
	const struct timeshare_gpu *g = &timeshare->gpus[c->gpu];
	bool was_overdue = c->is_overdue; /* then took_ns is not the time of this burst */

	c->is_overdue = false;
	if (!timeshare_is_in_burst(c))
		return;
	slice_policy_end(timeshare, c, took_ns);
	if (c->part.is_bursting && g->n_bursting == 1)
		usage_burst_ends(timeshare, c->gpu, burst_ended_ns(timeshare, c, took_ns));
	/* A burst with nobody beside it, or nobody that could be held, shows nothing. */
	if (c->part.is_bursting && !was_overdue && g->n_wanting > 0 && g->is_taking &&
	    !g->is_capped && !g->is_slow)
		preempt_choice_note(&c->arms[c->warning], c->warning, c->arm, took_ns, n_calls);
	end_burst(timeshare, c);
}

static void on_hint(struct timeshare *timeshare, struct timeshare_client *c, uint64_t value_ns)
{
	if (c->claim.class != TIMESHARE_CLASS_CRITICAL)
		return;
	if (value_ns == 0) {
		if (c->hint_ns != TIMESHARE_NO_DEADLINE)
			end_hint(timeshare, c);
		predict_cancel(&c->predict);
		if (c->burst == TIMESHARE_BURST_PLANNED)
			c->burst = TIMESHARE_BURST_NONE;
		return;
	}
	c->n_hints++;
	timeshare->gpus[c->gpu].n_hints++;
	if (!timeshare->config.is_hinting)
		return;
	predict_hint(&c->predict, &timeshare->config, timeshare->now_ns, value_ns);
	if (!timeshare_is_in_burst(c))
		plan_hint(timeshare, c);
}

/* ---- events ---------------------------------------------------------------- */

/*
 * An overdue request may never end, and no other one begins before it does. So its work counts as
 * those requests.
 */
static void on_busy(struct timeshare *timeshare, struct timeshare_client *c)
{
	c->work = TIMESHARE_WORK_BUSY;
	c->silent_ns = timeshare->now_ns + timeshare->config.burst_ns;
	c->linger_ns = TIMESHARE_NO_DEADLINE;
	if (!c->is_overdue || timeshare_is_in_burst(c))
		return;
	on_begin(timeshare, c, 0);
	c->is_overdue = true;
}

static void on_idle(struct timeshare *timeshare, struct timeshare_client *c)
{
	if (c->work != TIMESHARE_WORK_BUSY)
		return;
	c->work = TIMESHARE_WORK_NONE;
	c->silent_ns = TIMESHARE_NO_DEADLINE;
	if (c->is_overdue && timeshare_is_in_burst(c))
		end_burst(timeshare, c);
	client_linger(timeshare, c);
}

/*
 * A client with work reports once a second, unless it is held. A process that is stopped, for
 * example by a signal, reports nothing. Its work has ended or stands still, so it must get no time
 * of others.
 */
static void on_silence(struct timeshare *timeshare, struct timeshare_client *c)
{
	uint64_t heard_ns = c->told.until_ns > c->heard_ns ? c->told.until_ns : c->heard_ns;

	c->silent_ns = heard_ns + timeshare->config.burst_ns;
	if (c->silent_ns > timeshare->now_ns)
		return;
	on_idle(timeshare, c);
	c->work = TIMESHARE_WORK_SILENT;
}

/* A silent client speaks again. It has not reported the end of its work, so it has some. */
static void on_word(struct timeshare *timeshare, struct timeshare_client *c)
{
	c->heard_ns = timeshare->now_ns;
	if (c->work == TIMESHARE_WORK_SILENT)
		on_busy(timeshare, c);
}

/*
 * END events are not counted: requests that always overlap never have one. No GPU ends more than
 * one task a microsecond, so no client can spoil the counters of its GPU by a single report.
 */
static void count_tasks(struct timeshare *timeshare, struct timeshare_client *c,
			const struct timeshare_event *event)
{
	struct timeshare_gpu *g = &timeshare->gpus[c->gpu];
	uint64_t passed_us = (timeshare->now_ns - c->usage.report_ns) / 1000;
	uint64_t n_tasks = u64_min(event->n_tasks, TASKS_AT_ONCE + passed_us);
	uint64_t n_violations = u64_min(event->n_violations, n_tasks);

	if (c->claim.class == TIMESHARE_CLASS_CRITICAL)
		g->n_lc_tasks += n_tasks;
	else
		g->n_be_tasks += n_tasks;
	c->n_tasks += n_tasks;
	c->n_slo_violations += n_violations;
	g->n_slo_violations += n_violations;
}

int timeshare_events_activity(struct timeshare *timeshare, const struct timeshare_event *event)
{
	struct timeshare_client *c = &timeshare->clients[event->client];

	if (event->activity >= TIMESHARE_ACTIVITY_COUNT_)
		return TIMESHARE_E_VALUE;
	burst_note_loose(timeshare, event->client, event->busy_ns);
	on_word(timeshare, c);
	switch (event->activity) {
	case TIMESHARE_ACTIVITY_USE:
		break;
	case TIMESHARE_ACTIVITY_BUSY:
		on_busy(timeshare, c);
		break;
	case TIMESHARE_ACTIVITY_IDLE:
		on_idle(timeshare, c);
		break;
	case TIMESHARE_ACTIVITY_BEGIN:
		on_begin(timeshare, c, event->value);
		break;
	case TIMESHARE_ACTIVITY_END:
		on_end(timeshare, c, event->value, event->n_calls);
		break;
	case TIMESHARE_ACTIVITY_HINT:
		on_hint(timeshare, c, event->value);
		break;
	case TIMESHARE_ACTIVITY_COUNT_:
		break;
	}
	if (timeshare_is_in_burst(c))
		c->burst_end_ns = timeshare->now_ns + timeshare->config.burst_ns;
	count_tasks(timeshare, c, event);
	usage_report(timeshare, event->client, event->busy_ns, event->held_ns, event->ran_ns);
	slice_policy_report(timeshare, event->client);
	energy_charge(timeshare, event->client);
	timeshare_part_refresh(timeshare, event->client);
	return 0;
}

/*
 * The obstacle may pass in a moment, such as a missing proof, or stay for ever. So the pause until
 * the next try doubles.
 */
static uint64_t hold_next_pause(const struct timeshare_config *config, struct timeshare_client *c)
{
	uint64_t first_ns = config->retry_ns / RETRY_PART;

	c->pause_ns = c->pause_ns ? c->pause_ns * 2 : first_ns;
	c->pause_ns = c->pause_ns < config->retry_ns ? c->pause_ns : config->retry_ns;
	return c->pause_ns;
}

static void hold_fail(struct timeshare *timeshare, uint32_t client, enum timeshare_report report,
		      uint64_t outcome)
{
	struct timeshare_client *c = &timeshare->clients[client];

	c->told.until_ns = 0;
	c->told.hold_seq = 0;
	c->renew_ns = TIMESHARE_NO_DEADLINE;
	burst_note_off(timeshare, client, false);
	c->hold = TIMESHARE_HOLD_FAILED;
	c->retry_ns = timeshare->now_ns + hold_next_pause(&timeshare->config, c);
	timeshare->gpus[c->gpu].is_dirty = true;
	timeshare_update_report(timeshare, client, c->gpu, report, outcome);
}

/*
 * Notes the overhead when the preemption's last client is off: the time of the preemption without
 * that client's hold. It is the time of messages, and of two processes that must wake up.
 */
static void hold_note_overhead(struct timeshare *timeshare, const struct timeshare_client *c,
			       const struct timeshare_event *event)
{
	struct timeshare_gpu *g = &timeshare->gpus[c->gpu];
	uint64_t ns = timeshare->now_ns - g->preempt_ns;

	if (c->hold != TIMESHARE_HOLD_TIMED || g->n_pending > 1)
		return;
	ns -= event->took_ns < ns ? event->took_ns : ns;
	g->over_ns[g->n_over++ % TIMESHARE_PREEMPTIONS] =
		ns < UINT32_MAX ? (uint32_t)ns : UINT32_MAX;
	g->over_ns_max = ns > g->over_ns_max ? ns : g->over_ns_max;
}

int timeshare_events_done(struct timeshare *timeshare, const struct timeshare_event *event)
{
	struct timeshare_client *c = &timeshare->clients[event->client];
	struct timeshare_gpu *g = &timeshare->gpus[c->gpu];
	uint64_t hold_seq = c->told.hold_seq;
	bool was_open = hold_seq > c->told.seq_done;

	if (event->seq <= c->told.seq_done || event->seq > c->told.seq)
		return TIMESHARE_E_STALE;
	c->heard_ns = timeshare->now_ns;
	c->told.seq_done = event->seq;
	c->answer_ns = event->seq == c->told.seq ? TIMESHARE_NO_DEADLINE
						 : timeshare->now_ns + timeshare->config.answer_ns;
	if (event->is_held && !event->outcome) { /* also if its hold has been released since */
		usage_held(timeshare, event->client, event->took_ns);
		c->pause_ns = 0;
	}
	if (hold_seq && event->seq >= hold_seq && event->outcome) {
		g->n_failures++;
		hold_fail(timeshare, event->client, TIMESHARE_REPORT_NOT_HELD, event->outcome);
	} else if (was_open && event->seq >= hold_seq) {
		if (event->seq == hold_seq && event->is_held) {
			hold_note_overhead(timeshare, c, event);
			burst_note_took(timeshare, event->client, event->took_ns);
		}
		burst_note_off(timeshare, event->client, true);
	}
	if (g->leaving == event->client)
		g->is_dirty = true;
	c->is_stray =
		c->hold == TIMESHARE_HOLD_FAILED && event->is_held && event->seq == c->told.seq;
	timeshare_update_touch(timeshare, event->client);
	timers_set(timeshare, event->client);
	return 0;
}

static void on_mute(struct timeshare *timeshare, uint32_t client)
{
	struct timeshare_client *c = &timeshare->clients[client];

	c->answer_ns = TIMESHARE_NO_DEADLINE;
	c->pause_ns = timeshare->config.retry_ns; /* more messages would fill its socket */
	timeshare->gpus[c->gpu].n_timeouts++;
	hold_fail(timeshare, client, TIMESHARE_REPORT_MUTE, 0);
}

/* A client whose socket may be full is not held: others would wait for its answer for ever. */
static void hold_retry(struct timeshare *timeshare, struct timeshare_client *c)
{
	bool may_tell = timeshare_update_may_tell(c);

	c->hold = may_tell ? TIMESHARE_HOLD_NONE : TIMESHARE_HOLD_FAILED;
	c->retry_ns =
		may_tell ? TIMESHARE_NO_DEADLINE : timeshare->now_ns + timeshare->config.retry_ns;
	timeshare->gpus[c->gpu].is_dirty = true;
}

void timeshare_events_timer(struct timeshare *timeshare, uint32_t client)
{
	struct timeshare_client *c = &timeshare->clients[client];
	uint64_t now_ns = timeshare->now_ns;

	if (c->linger_ns <= now_ns)
		c->linger_ns = TIMESHARE_NO_DEADLINE;
	if (c->burst_end_ns <= now_ns) {
		if (c->burst == TIMESHARE_BURST_REQUEST)
			c->is_overdue = true;
		end_burst(timeshare, c);
	}
	if (c->silent_ns <= now_ns)
		on_silence(timeshare, c);
	if (c->hint_ns <= now_ns) {
		if (c->burst == TIMESHARE_BURST_HINTED)
			end_hint(timeshare, c);
		else
			begin_hint(timeshare, c);
	}
	if (c->answer_ns <= now_ns)
		on_mute(timeshare, client);
	if (c->renew_ns <= now_ns)
		c->renew_ns = TIMESHARE_NO_DEADLINE; /* the refresh below touches and renews it */
	if (c->retry_ns <= now_ns)
		hold_retry(timeshare, c);
	timeshare_part_refresh(timeshare, client);
}
