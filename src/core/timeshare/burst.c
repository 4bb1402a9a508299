/* SPDX-License-Identifier: Apache-2.0 */

#include "core/timeshare/burst.h"

#include "core/list.h"
#include "core/timeshare/preempt_choice.h"
#include "core/timeshare/timeshare_update.h"

#define SLOW_MIN      2u /* slow holds among the last ones; one alone may be chance */
#define PAUSE_PART    8u /* the first pause is this part of retry_ns */
#define WEIGHT_MEAN   100u
#define TURN_PARTS    20u                  /* a turn is from 1/5 to 20 times turn_ns */
#define TURN_LATE_NS  5000000u             /* a turn may end so much later, to end after a burst */
#define SPAN_MAX_NS   (60ull * 1000000000) /* fills the credit; keeps the product from overflow */
#define LOOSE_MEAN_US 50000u
#define LEAD_SAMPLES  32u
#define LEAD_FIRST_NS 1000000u /* before the first preemption */

static bool may_take_turns(const struct timeshare_client *c)
{
	return c->part.is_active && c->part.class != TIMESHARE_CLASS_CRITICAL &&
	       c->hold != TIMESHARE_HOLD_FAILED;
}

uint64_t burst_credit_max(const struct timeshare_config *config)
{
	return config->lc_window_ns / 100 * config->lc_max_percent * (100 - config->lc_max_percent);
}

/*
 * The part that critical clients take of the time that others want, in TIMESHARE_ONE. Their work
 * outside bursts counts, because it also keeps the others to short slices.
 */
static uint64_t credit_taken(const struct timeshare_gpu *g)
{
	if (g->n_wanting == 0)
		return 0;
	if (g->n_bursting > 0 || g->is_holding)
		return TIMESHARE_ONE;
	return g->loose < TIMESHARE_ONE ? g->loose : TIMESHARE_ONE;
}

/* The loss of the credit in TIMESHARE_ONE ns; below 0: a gain. On a capped GPU it only gains. */
static int64_t credit_drain(const struct timeshare *timeshare, const struct timeshare_gpu *g)
{
	uint64_t percent = timeshare->config.lc_max_percent;

	if (g->is_capped)
		return -(int64_t)((TIMESHARE_ONE - credit_taken(g)) * percent);
	return (int64_t)(credit_taken(g) * 100) - (int64_t)(TIMESHARE_ONE * percent);
}

void burst_advance(struct timeshare *timeshare, uint32_t gpu)
{
	struct timeshare_gpu *g = &timeshare->gpus[gpu];
	uint64_t ns = timeshare->now_ns - g->at_ns, max = burst_credit_max(&timeshare->config);
	int64_t change;

	g->at_ns = timeshare->now_ns;
	if (!g->is_holding)
		g->turn_left_ns -= ns < g->turn_left_ns ? ns : g->turn_left_ns;
	ns = ns < SPAN_MAX_NS ? ns : SPAN_MAX_NS;
	change = (int64_t)ns * credit_drain(timeshare, g) / (int64_t)TIMESHARE_ONE;
	if (change > 0)
		g->credit -= (uint64_t)change < g->credit ? (uint64_t)change : g->credit;
	else
		g->credit += (uint64_t)-change;
	g->credit = g->credit < max ? g->credit : max;
}

void burst_note_loose(struct timeshare *timeshare, uint32_t client, uint64_t busy_ns)
{
	struct timeshare_client *c = &timeshare->clients[client];
	uint64_t passed_us = (timeshare->now_ns - c->usage.report_ns) / 1000, busy_us, sum_us;

	if (c->work != TIMESHARE_WORK_BUSY || timeshare_is_in_burst(c) ||
	    busy_ns < c->usage.busy_ns)
		return;
	busy_us = (busy_ns - c->usage.busy_ns + 999) / 1000;
	busy_us = busy_us < passed_us ? busy_us : passed_us;
	sum_us = LOOSE_MEAN_US + passed_us;
	c->loose = (uint32_t)((c->loose * LOOSE_MEAN_US + busy_us * TIMESHARE_ONE + sum_us - 1) /
			      sum_us);
}

static void burst_report(struct timeshare *timeshare, uint32_t gpu, enum timeshare_report what)
{
	timeshare_update_report(timeshare, TIMESHARE_NONE, gpu, what, 0);
}

static void plan_cap(struct timeshare *timeshare, uint32_t gpu)
{
	struct timeshare_gpu *g = &timeshare->gpus[gpu];
	uint64_t max = burst_credit_max(&timeshare->config);

	if (!g->is_capped && g->credit == 0 && max > 0 && credit_drain(timeshare, g) > 0) {
		g->is_capped = true;
		burst_report(timeshare, gpu, TIMESHARE_REPORT_CAPPED);
	} else if (g->is_capped && g->credit >= max / 2) {
		g->is_capped = false;
		burst_report(timeshare, gpu, TIMESHARE_REPORT_NOT_CAPPED);
	}
}

static void plan_speed(struct timeshare *timeshare, uint32_t gpu)
{
	struct timeshare_gpu *g = &timeshare->gpus[gpu];

	if (!g->is_slow || g->slow_ns > timeshare->now_ns)
		return;
	g->is_slow = false;
	burst_report(timeshare, gpu, TIMESHARE_REPORT_FAST);
}

/* The length of c's turn, in proportion to its weight and to its class's slice_us. */
static uint64_t turn_length(const struct timeshare *timeshare, const struct timeshare_client *c)
{
	const struct timeshare_config *config = &timeshare->config;
	uint64_t least_ns = config->turn_ns / 5, most_ns = config->turn_ns * TURN_PARTS;
	uint64_t mean = config->slice_us[TIMESHARE_CLASS_NORMAL] * WEIGHT_MEAN;
	uint64_t ns = config->turn_ns / 1000 * config->slice_us[c->part.class] / mean *
		      c->part.weight * 1000;

	ns = ns < least_ns ? least_ns : ns;
	return ns < most_ns ? ns : most_ns;
}

/* The first client that wants the GPU; if none does, the first one that may take turns. */
static uint32_t next_turn(const struct timeshare *timeshare, const struct timeshare_gpu *g)
{
	uint32_t idle = TIMESHARE_NONE;

	for (uint32_t at = g->running.first; at != TIMESHARE_NONE;
	     at = timeshare->clients[at].link[TIMESHARE_LINK_RUNNING].next) {
		const struct timeshare_client *c = &timeshare->clients[at];

		if (!may_take_turns(c))
			continue;
		if (c->part.is_wanting)
			return at;
		if (idle == TIMESHARE_NONE)
			idle = at;
	}
	return idle;
}

static void give_turn(struct timeshare *timeshare, struct timeshare_gpu *g, uint32_t client)
{
	uint32_t old = g->turn;

	g->turn = client;
	if (client == TIMESHARE_NONE)
		return;
	g->turn_left_ns = turn_length(timeshare, &timeshare->clients[client]) + TURN_LATE_NS;
	/* The list is the queue: a client that gets the turn becomes its last. */
	timeshare_update_moves(timeshare, client);
	list_remove(LIST_SLOTS(timeshare->clients, TIMESHARE_LINK_RUNNING), &g->running, client);
	list_push_back(LIST_SLOTS(timeshare->clients, TIMESHARE_LINK_RUNNING), &g->running, client);
	if (client == old)
		return;
	if (old != TIMESHARE_NONE && may_take_turns(&timeshare->clients[old])) {
		g->leaving = old;
		timeshare_update_touch(timeshare, old);
	}
	timeshare_update_touch(timeshare, client);
}

/*
 * The rest of the turn. Each change of turns changes the GPU's list of running channels, and delays
 * the work of a burst that is on it. So a turn may end TURN_LATE_NS later, after the burst.
 */
static uint64_t turn_rest(const struct timeshare_gpu *g)
{
	uint64_t late_ns = g->n_bursting > 0 ? 0 : TURN_LATE_NS;

	return g->turn_left_ns > late_ns ? g->turn_left_ns - late_ns : 0;
}

static void plan_turn(struct timeshare *timeshare, struct timeshare_gpu *g)
{
	const struct timeshare_client *holder = NULL;
	uint32_t next;

	if (g->turn != TIMESHARE_NONE && may_take_turns(&timeshare->clients[g->turn]))
		holder = &timeshare->clients[g->turn];
	if (holder && turn_rest(g) > 0 && (holder->part.is_wanting || g->n_wanting == 0))
		return;
	next = next_turn(timeshare, g);
	if (!holder)
		give_turn(timeshare, g, next);
	else if (next != TIMESHARE_NONE && timeshare->clients[next].part.is_wanting)
		give_turn(timeshare, g, next);
	else
		g->turn_left_ns = turn_length(timeshare, holder) + TURN_LATE_NS;
}

static bool client_is_off(const struct timeshare_client *c)
{
	return c->told.hold_seq > 0 && c->told.seq_done >= c->told.hold_seq;
}

static void plan_leaving(struct timeshare *timeshare, struct timeshare_gpu *g)
{
	const struct timeshare_client *c;

	if (g->leaving == TIMESHARE_NONE)
		return;
	c = &timeshare->clients[g->leaving];
	if (may_take_turns(c) && g->leaving != g->turn && !client_is_off(c))
		return;
	g->leaving = TIMESHARE_NONE;
	if (g->turn != TIMESHARE_NONE)
		timeshare_update_touch(timeshare, g->turn);
}

static void plan_wake(struct timeshare *timeshare, struct timeshare_gpu *g)
{
	uint64_t half = burst_credit_max(&timeshare->config) / 2, wake_ns = TIMESHARE_NO_DEADLINE,
		 at_ns;
	int64_t rate = credit_drain(timeshare, g);

	if (g->is_slow)
		wake_ns = g->slow_ns;
	if (g->is_capped ? rate < 0 : rate > 0) {
		at_ns = timeshare->now_ns + 1;
		at_ns += g->is_capped ? (half - g->credit) * TIMESHARE_ONE / (uint64_t)-rate
				      : g->credit * TIMESHARE_ONE / (uint64_t)rate;
		wake_ns = at_ns < wake_ns ? at_ns : wake_ns;
	}
	if (g->is_taking && !g->is_holding && g->n_wanting > 1 && g->turn != TIMESHARE_NONE) {
		at_ns = timeshare->now_ns + turn_rest(g);
		wake_ns = at_ns < wake_ns ? at_ns : wake_ns;
	}
	g->wake_ns = wake_ns;
}

void burst_plan(struct timeshare *timeshare, uint32_t gpu)
{
	struct timeshare_gpu *g = &timeshare->gpus[gpu];
	bool was_taking = g->is_taking, was_holding = g->is_holding, was_brief = g->is_brief;

	burst_advance(timeshare, gpu);
	plan_speed(timeshare, gpu);
	plan_cap(timeshare, gpu);
	g->is_taking = g->n_active[TIMESHARE_CLASS_CRITICAL] > 0 && timeshare->config.is_holding;
	if (g->is_taking) {
		plan_turn(timeshare, g);
		plan_leaving(timeshare, g);
	} else {
		g->turn = TIMESHARE_NONE;
		g->leaving = TIMESHARE_NONE;
	}
	g->is_holding = g->is_taking && g->n_holders > 0 && !g->is_capped && !g->is_slow;
	g->is_brief = g->is_holding && g->n_bursting == 0;
	if (g->is_taking != was_taking)
		timeshare_update_all(timeshare, gpu);
	else if ((g->is_holding != was_holding || g->is_brief != was_brief || g->is_brief) &&
		 g->turn != TIMESHARE_NONE)
		timeshare_update_touch(timeshare, g->turn);
	plan_wake(timeshare, g);
}

bool burst_holds(const struct timeshare *timeshare, uint32_t client)
{
	const struct timeshare_client *c = &timeshare->clients[client];
	const struct timeshare_gpu *g = &timeshare->gpus[c->gpu];

	if (!g->is_taking || !may_take_turns(c))
		return false;
	return client != g->turn || g->is_holding || g->leaving != TIMESHARE_NONE;
}

bool burst_is_brief(const struct timeshare *timeshare, uint32_t client)
{
	const struct timeshare_gpu *g = &timeshare->gpus[timeshare->clients[client].gpu];

	return client == g->turn && g->is_brief && g->leaving == TIMESHARE_NONE;
}

uint64_t burst_until(const struct timeshare *timeshare, uint32_t client)
{
	const struct timeshare_gpu *g = &timeshare->gpus[timeshare->clients[client].gpu];

	return burst_is_brief(timeshare, client) ? g->hint_end_ns
						 : timeshare->now_ns + timeshare->config.hold_ns;
}

void burst_note_asked(struct timeshare *timeshare, uint32_t client)
{
	struct timeshare_client *c = &timeshare->clients[client];
	struct timeshare_gpu *g = &timeshare->gpus[c->gpu];

	struct timeshare_batch *last = &g->batches[g->n_batches % TIMESHARE_BATCHES];

	c->told.asked_ns = timeshare->now_ns;
	if (last->n == 0 || last->asked_ns != timeshare->now_ns) {
		last = &g->batches[++g->n_batches % TIMESHARE_BATCHES];
		*last = (struct timeshare_batch){.asked_ns = timeshare->now_ns};
	}
	last->n++;
}

/* The clients that were asked within ns of asked_ns, with the one that was asked then. */
static uint32_t n_at_once(const struct timeshare_gpu *g, uint64_t asked_ns, uint64_t ns)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < TIMESHARE_BATCHES; i++) {
		uint64_t at_ns = g->batches[i].asked_ns;

		if ((at_ns > asked_ns ? at_ns - asked_ns : asked_ns - at_ns) <= ns)
			n += g->batches[i].n;
	}
	return n ? n : 1;
}

/*
 * How long bursts hold nobody after slow holds. A loading program is slow for a moment; one that
 * makes contexts in a loop is slow always. So the pause doubles if holds are slow again within
 * retry_ns, or before TIMESHARE_HOLD_SAMPLES new ones.
 */
static uint64_t pause_length(const struct timeshare_gpu *g, const struct timeshare_config *config,
			     uint64_t now_ns)
{
	uint64_t first_ns = config->retry_ns / PAUSE_PART;

	if (g->pause_ns == 0)
		return first_ns;
	if (now_ns - g->slow_ns > config->retry_ns && g->n_took >= TIMESHARE_HOLD_SAMPLES)
		return first_ns;
	return g->pause_ns < config->retry_ns / 2 ? g->pause_ns * 2 : config->retry_ns;
}

/*
 * Clients that are taken off at once wait for each other in the driver, so the time is divided by
 * their number. While bursts hold nobody (is_slow), holds of turns do not count.
 */
void burst_note_took(struct timeshare *timeshare, uint32_t client, uint64_t ns)
{
	const struct timeshare_client *c = &timeshare->clients[client];
	struct timeshare_gpu *g = &timeshare->gpus[c->gpu];
	uint64_t us = ns / 1000;
	uint32_t n, n_slow = 0;

	if (g->is_slow)
		return;
	us /= n_at_once(g, c->told.asked_ns, ns);
	g->took_us[g->n_took++ % TIMESHARE_HOLD_SAMPLES] =
		us < UINT32_MAX ? (uint32_t)us : UINT32_MAX;
	n = g->n_took < TIMESHARE_HOLD_SAMPLES ? g->n_took : TIMESHARE_HOLD_SAMPLES;
	for (uint32_t i = 0; i < n; i++)
		n_slow += g->took_us[i] > timeshare->config.slow_ns / 1000;
	if (n_slow < SLOW_MIN)
		return;
	g->pause_ns = pause_length(g, &timeshare->config, timeshare->now_ns);
	g->is_slow = true;
	g->slow_ns = timeshare->now_ns + g->pause_ns;
	g->n_took = 0;
	g->is_dirty = true;
	burst_report(timeshare, c->gpu, TIMESHARE_REPORT_SLOW);
}

void burst_note_off(struct timeshare *timeshare, uint32_t client, bool is_off_now)
{
	struct timeshare_client *c = &timeshare->clients[client];
	struct timeshare_gpu *g = &timeshare->gpus[c->gpu];
	uint64_t ns = timeshare->now_ns - g->preempt_ns;

	if (c->hold != TIMESHARE_HOLD_TIMED)
		return;
	c->hold = TIMESHARE_HOLD_TOLD;
	g->n_pending--;
	g->n_preemptions += is_off_now;
	if (!is_off_now || g->n_pending > 0)
		return;
	g->preempt_us[g->n_preempted++ % TIMESHARE_PREEMPTIONS] =
		ns / 1000 < UINT32_MAX ? (uint32_t)(ns / 1000) : UINT32_MAX;
	histogram_add(&g->preempt, ns);
	g->preempt_ns_total += ns;
	g->preempt_ns_max = ns > g->preempt_ns_max ? ns : g->preempt_ns_max;
}

/* Writes the times of the last preemptions to us, and returns their number. */
static uint32_t last_preempt_us(const struct timeshare_gpu *g, uint32_t us[LEAD_SAMPLES])
{
	uint32_t n = 0;

	while (n < LEAD_SAMPLES && n < g->n_preempted) {
		us[n] = g->preempt_us[(g->n_preempted - 1 - n) % TIMESHARE_PREEMPTIONS];
		n++;
	}
	return n;
}

static uint64_t lead_bounded(const struct timeshare *timeshare, uint64_t lead_ns)
{
	uint64_t most_ns = timeshare->config.hint_ns / 2;

	return lead_ns < most_ns ? lead_ns : most_ns;
}

/*
 * The second longest of the last ones, and a quarter more, because one in a hundred takes longer
 * (on a card 1.06 to 1.3 ms, with a median of 0.76). The longest alone may have met a lock of the
 * driver.
 */
uint64_t burst_lead(const struct timeshare *timeshare, uint32_t gpu)
{
	uint32_t us[LEAD_SAMPLES], n = last_preempt_us(&timeshare->gpus[gpu], us);

	return lead_bounded(timeshare,
			    n > 0 ? preempt_choice_second_of(us, n) * 1250ull : LEAD_FIRST_NS);
}

/*
 * The median. With the tail, two slow preemptions while a program loads would make all hints seem
 * too late. Then no hint would preempt, and the tail would stay.
 */
uint64_t burst_lead_usual(const struct timeshare *timeshare, uint32_t gpu)
{
	uint32_t us[LEAD_SAMPLES], n = last_preempt_us(&timeshare->gpus[gpu], us);

	return lead_bounded(timeshare,
			    n > 0 ? preempt_choice_median_of(us, n) * 1000ull : LEAD_FIRST_NS);
}
