/* SPDX-License-Identifier: Apache-2.0 */

#include "core/stop.h"

#include "core/act.h"
#include "core/ahead.h"
#include "core/fit.h"
#include "core/forecast.h"
#include "core/gang/gang.h"
#include "core/grant.h"
#include "core/notice.h"
#include "core/policy/policy.h"
#include "core/policy/quantum.h"
#include "core/policy/sleeper.h"
#include "core/queue.h"
#include "core/u64.h"

#define FAILED_MAX 3 /* stops in a row, then the client counts as not preemptible */
#define SHORT_PART 8 /* of retry_ns, for the first time that something was lacking */

void stop_set_state(struct sched *sched, uint32_t client, enum sched_client_state state)
{
	struct sched_client *c = &sched->clients[client];

	enum sched_client_state from = c->state;

	policy_state(sched, client, from, state);
	if (from >= SCHED_CLIENT_RUNNING && state < SCHED_CLIENT_RUNNING)
		c->run_ns += sched->now_ns - c->granted_ns;
	if (from >= SCHED_CLIENT_RUNNING && state == SCHED_CLIENT_IDLE)
		sleeper_end_use(sched, client);
	if (state <= SCHED_CLIENT_WAITING)
		c->is_early = c->is_guest = false;
	if (state <= SCHED_CLIENT_IDLE || state == SCHED_CLIENT_RUNNING)
		c->is_displaced = false;
	if (state < SCHED_CLIENT_RUNNING)
		c->is_called_off = false;
	if (state != SCHED_CLIENT_RUNNING)
		c->is_behind = c->is_held = c->is_stuck = false;
	if (state != SCHED_CLIENT_WAITING)
		c->is_called = false;
	if (state < SCHED_CLIENT_INCOMING)
		grant_unready(c);
	if (state > SCHED_CLIENT_INCOMING) {
		c->is_ready = false;
		c->ready_until_ns = SCHED_NO_DEADLINE;
	}
	c->state = state;
	if (state != SCHED_CLIENT_IDLE)
		ahead_forget(sched, client);
	c->since_ns = sched->now_ns;
}

uint64_t stop_epoch(struct sched_client *client, bool runs)
{
	client->epoch += (client->epoch & 1) == (runs ? 0 : 1) ? 2 : 1;
	return client->epoch;
}

static void drop_begin(struct sched *sched, uint32_t client, uint64_t bytes, bool runs)
{
	struct sched_client *c = &sched->clients[client];

	c->task = SCHED_TASK_DROP;
	c->drop_bytes = bytes;
	c->drop_epoch = stop_epoch(c, runs);
	c->answer_ns = sched->now_ns + quantum_answer(sched, c->gpu, bytes);
}

void stop_answered(struct sched *sched, uint32_t client)
{
	struct sched_client *c = &sched->clients[client];

	c->task = SCHED_TASK_NONE;
	c->drop_bytes = 0;
	c->answer_ns = SCHED_NO_DEADLINE;
	stop_client_alive(sched, client);
}

void stop_drop(struct sched *sched, uint32_t client, uint64_t bytes, uint32_t to)
{
	struct sched_client *c = &sched->clients[client];

	if (c->prepare != SCHED_PREPARE_NOW)
		notice_tell(sched, client, bytes, sched->now_ns);
	notice_forget(sched, client);
	queue_leave(sched, client);
	c->is_growing = false;
	c->n_switches++;
	drop_begin(sched, client, bytes, true);
	stop_set_state(sched, client, SCHED_CLIENT_STOPPING);
	fit_change(sched, client);
	act_emit(sched, (struct sched_action){.type = SCHED_ACTION_DROP,
					      .client = client,
					      .to = to,
					      .grant = c->grant,
					      .bytes = bytes,
					      .budget = fit_charge(c),
					      .epoch = c->epoch});
}

void stop_evict(struct sched *sched, uint32_t client, uint64_t bytes, uint32_t to)
{
	struct sched_client *c = &sched->clients[client];

	forecast_forget(sched, client);
	ahead_forget(sched, client);
	drop_begin(sched, client, bytes, false);
	fit_change(sched, client);
	act_emit(sched, (struct sched_action){.type = SCHED_ACTION_DROP,
					      .client = client,
					      .to = to,
					      .bytes = bytes,
					      .budget = fit_charge(c),
					      .epoch = c->epoch});
}

/* An eviction that frees nothing would be asked for again at once, and for ever. */
static bool drop_freed_nothing(const struct sched_client *c, uint64_t charge_before)
{
	return c->task != SCHED_TASK_DROP_PART && c->drop_bytes > 0 &&
	       fit_charge(c) >= charge_before && fit_pageable(c) > 0;
}

void stop_progress(struct sched *sched, uint32_t client, uint64_t charge_before)
{
	struct sched_client *c = &sched->clients[client];
	uint64_t charge = fit_charge(c);

	if (charge >= charge_before)
		return;
	sched->gpus[c->gpu].still_ns = sched->now_ns;
	c->task = SCHED_TASK_DROP_PART;
	c->drop_bytes -= u64_min(c->drop_bytes, charge_before - charge);
	fit_change(sched, client);
}

static void stop_retry_in(struct sched *sched, struct sched_client *c, uint64_t ns)
{
	c->is_retrying = true;
	c->retry_ns = sched->now_ns + u64_min(ns, sched->config.retry_ns);
}

static void stop_retry_later(struct sched *sched, struct sched_client *c)
{
	stop_retry_in(sched, c, sched->config.retry_ns);
}

/* It can be stopped, and may be soon; less and less soon. */
static void stop_retry_soon(struct sched *sched, struct sched_client *c)
{
	stop_retry_in(sched, c, sched->config.retry_ns / SHORT_PART << c->n_short);
	c->n_short += c->n_short < 3;
}

/* It has found host memory. Where that comes and goes, it may lack some the next time. */
static void stop_forget_short(struct sched_client *c)
{
	c->n_short -= c->n_short > 0 && c->drop_bytes > 0;
}

/* Takes the report in: less is charged from now on, never more than before. */
static void stop_take_report(struct sched *sched, const struct sched_event *event, bool has_seen)
{
	struct sched_client *c = &sched->clients[event->client];
	uint64_t before = fit_charge(c), allowed = fit_allowed(c);

	fit_set_memory(sched, event->client, &event->memory);
	c->promised = 0;
	c->budget = u64_min(event->budget, allowed);
	c->last_outcome = 0;
	if (has_seen && drop_freed_nothing(c, before))
		stop_retry_later(sched, c);
	stop_answered(sched, event->client);
}

void stop_done(struct sched *sched, const struct sched_event *event, bool has_seen)
{
	uint32_t client = event->client;
	struct sched_client *c = &sched->clients[client];
	bool waits = event->wants && !c->is_paused;

	notice_forget(sched, client);
	if (event->wants)
		forecast_forget(sched, client);
	queue_leave(sched, client);
	c->is_growing = false;
	c->is_not_preemptible = false;
	c->is_retrying = false;
	c->retry_ns = SCHED_NO_DEADLINE;
	c->n_failed = 0;
	stop_forget_short(c);
	stop_take_report(sched, event, has_seen);
	if (c->is_displaced)
		c->had_ns += c->since_ns - c->turn_ns;
	/* A member that is called off has not outstayed its turn. */
	if (c->is_guest && waits && c->state == SCHED_CLIENT_STOPPING && !c->is_called_off)
		sleeper_lose(sched, client);
	stop_set_state(sched, client, waits ? SCHED_CLIENT_WAITING : SCHED_CLIENT_IDLE);
	c->is_asking = event->wants && !waits;
	if (waits)
		queue_push(sched, client);
	fit_change(sched, client);
}

void stop_evicted(struct sched *sched, const struct sched_event *event)
{
	stop_forget_short(&sched->clients[event->client]);
	stop_take_report(sched, event, true);
	queue_bound(sched, &sched->clients[event->client]);
	fit_change(sched, event->client);
}

void stop_failed(struct sched *sched, uint32_t client, uint32_t outcome, bool is_short)
{
	struct sched_client *c = &sched->clients[client];

	stop_answered(sched, client);
	c->last_outcome = outcome;
	if (is_short)
		stop_retry_soon(sched, c);
	else
		stop_retry_later(sched, c);
	act_report(sched, client, SCHED_REPORT_STOP_FAILED, outcome);
	if (c->state == SCHED_CLIENT_STOPPING) {
		stop_set_state(sched, client, SCHED_CLIENT_RUNNING);
		if (!is_short && ++c->n_failed >= FAILED_MAX) {
			c->is_not_preemptible = true;
			c->retry_ns = sched->now_ns + sched->config.wait_bound_ns;
		}
		if (!is_short && c->n_failed == FAILED_MAX)
			act_report(sched, client, SCHED_REPORT_NOT_PREEMPTIBLE, outcome);
	}
	fit_change(sched, client);
}

/* It answers again, and waits where it stood. */
static void stop_client_back(struct sched *sched, uint32_t client)
{
	struct sched_client *c = &sched->clients[client];

	c->is_hung = false;
	c->silent_ns = SCHED_NO_DEADLINE;
	if (c->state > SCHED_CLIENT_IDLE)
		policy_awake(sched, client, true);
	if (c->state == SCHED_CLIENT_WAITING || c->is_growing)
		queue_push_kept(sched, client);
	fit_change(sched, client);
	act_report(sched, client, SCHED_REPORT_BACK, 0);
}

/*
 * A client that owes an answer is hung until it gives it, whatever else it says. To take it back
 * for a heartbeat would be to wait for the same answer again, and to report that each time.
 */
void stop_client_alive(struct sched *sched, uint32_t client)
{
	const struct sched_client *c = &sched->clients[client];

	sched->clients[client].silent_ns = SCHED_NO_DEADLINE;
	if (c->is_hung && c->task == SCHED_TASK_NONE)
		stop_client_back(sched, client);
}

/*
 * It does not answer: nothing waits for it, and it is passed over. Its bytes, and those that it may
 * take, stay charged. A client that waits keeps its place, and one that comes has lost its turn.
 */
static void stop_detach(struct sched *sched, uint32_t client)
{
	struct sched_client *c = &sched->clients[client];
	bool comes = c->line == SCHED_LINE_COMING;

	notice_forget(sched, client);
	forecast_forget(sched, client);
	ahead_forget(sched, client);
	queue_leave(sched, client);
	if (comes)
		queue_renew(sched, client);
	if (c->state == SCHED_CLIENT_INCOMING)
		stop_set_state(sched, client, SCHED_CLIENT_WAITING);
	c->is_hung = true;
	policy_awake(sched, client, false);
	fit_change(sched, client);
}

void stop_hung(struct sched *sched, uint32_t client)
{
	stop_detach(sched, client);
	act_report(sched, client, SCHED_REPORT_HUNG, 0);
}

void stop_late(struct sched *sched, uint32_t client)
{
	sched->clients[client].answer_ns = SCHED_NO_DEADLINE;
	act_report(sched, client, SCHED_REPORT_LATE, 0);
	stop_hung(sched, client);
}

/*
 * The time to answer a DROP goes on meanwhile, so that nobody gains any by being stopped. Once it
 * is over the client is late, and is back when it answers, not when its process goes on.
 */
void stop_client_process(struct sched *sched, uint32_t client, bool is_stopped)
{
	struct sched_client *c = &sched->clients[client];
	bool is_late = c->task != SCHED_TASK_NONE && c->answer_ns == SCHED_NO_DEADLINE;

	if (is_stopped && !c->is_hung) {
		/* As of one that is put back: what it still brings in, nobody waits for. */
		if (c->task == SCHED_TASK_RESTORE) {
			c->task = SCHED_TASK_NONE;
			c->answer_ns = SCHED_NO_DEADLINE;
		}
		stop_detach(sched, client);
	} else if (!is_stopped && c->is_hung && !is_late) {
		stop_client_back(sched, client);
	}
}

void stop_restore_failed(struct sched *sched, uint32_t client, uint32_t outcome)
{
	struct sched_client *c = &sched->clients[client];

	queue_leave(sched, client);
	c->task = SCHED_TASK_NONE;
	c->answer_ns = SCHED_NO_DEADLINE;
	c->last_outcome = outcome;
	c->is_resting = true;
	c->retry_ns = sched->now_ns + sched->config.retry_ns;
	stop_set_state(sched, client, SCHED_CLIENT_WAITING);
	queue_push(sched, client);
	fit_change(sched, client);
	act_report(sched, client, SCHED_REPORT_STOP_FAILED, outcome);
}

void stop_retry(struct sched *sched, uint32_t client)
{
	struct sched_client *c = &sched->clients[client];

	c->is_retrying = false;
	c->is_resting = false;
	c->retry_ns = SCHED_NO_DEADLINE;
	/* It gives up by itself only if its gang runs, and the others may wait for it. */
	if (gang_is_bound(sched, client))
		c->is_not_preemptible = false;
	fit_change(sched, client);
}
