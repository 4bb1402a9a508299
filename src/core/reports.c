/* SPDX-License-Identifier: Apache-2.0 */

#include "core/reports.h"

#include "core/act.h"
#include "core/fit.h"
#include "core/forecast.h"
#include "core/gang/gang.h"
#include "core/grant.h"
#include "core/policy/policy.h"
#include "core/policy/quantum.h"
#include "core/queue.h"
#include "core/stop.h"
#include "core/turn.h"
#include "core/u64.h"

static void cancel_growth(struct sched *sched, uint32_t client)
{
	struct sched_client *c = &sched->clients[client];

	if (!c->is_growing)
		return;
	queue_leave(sched, client);
	c->is_growing = false;
	fit_change(sched, client);
}

/* The blocked allocations fail; whoever made them goes on without, so nothing is wanted. */
static void refuse_wanted(struct sched *sched, uint32_t client)
{
	struct sched_client *c = &sched->clients[client];

	act_emit(sched, (struct sched_action){.type = SCHED_ACTION_REFUSE,
					      .client = client,
					      .bytes = c->memory.wanted + c->memory.wanted_pinned,
					      .budget = fit_limit(sched, client)});
	sched->gpus[c->gpu].still_ns = sched->now_ns;
	cancel_growth(sched, client);
	c->memory.wanted = 0;
	c->memory.wanted_pinned = 0;
	queue_bound(sched, c);
	if (c->state == SCHED_CLIENT_INCOMING && c->task != SCHED_TASK_RESTORE)
		fit_set_target(sched, client);
	fit_change(sched, client);
}

/* Makes client a grower that is to have target bytes; at once if the card has them. */
static void request_growth(struct sched *sched, uint32_t client, uint64_t target)
{
	struct sched_client *c = &sched->clients[client];

	if (c->line == SCHED_LINE_NONE) {
		c->budget_target = target;
		c->is_growing = true;
		c->has_switched = false;
		/* Then the sums never see it wait, so that it keeps its place among the runners. */
		if (fit_beside(sched, client) && fit_at_once(sched, client)) {
			grant_growth(sched, client);
			return;
		}
		queue_push(sched, client);
		fit_change(sched, client);
		turn_admit(sched, client);
	} else {
		c->budget_target = target;
		fit_set_target(sched, client);
		fit_change(sched, client);
	}
}

/*
 * All that hold the GPU lack memory, and none has moved for as long as anybody waits: those in
 * the way can not go, as there is nowhere that their memory could. Somebody has to do without.
 */
static bool is_standstill(const struct sched *sched, uint32_t gpu)
{
	const struct sched_gpu *g = &sched->gpus[gpu];

	return g->sums.n_busy == 0 && sched->now_ns - g->still_ns >= sched->config.wait_bound_ns;
}

/*
 * client runs. If it lacks memory it grows at once, or queues; if not, it grows no more. wanted
 * is what it lacks beyond the budget that it knew of. If that was not the last one, another is on
 * its way, and the client will say whether it is enough.
 */
static void reports_growth(struct sched *sched, uint32_t client, bool is_last_epoch)
{
	struct sched_client *c = &sched->clients[client];
	uint64_t wanted = c->memory.wanted + c->memory.wanted_pinned;
	uint64_t target = fit_allowed(c) + wanted;

	if (wanted == 0)
		cancel_growth(sched, client);
	else if (!is_last_epoch)
		return;
	else if (c->line != SCHED_LINE_NONE && target <= c->budget_target)
		return; /* it waits for that already, up to its bound */
	else if (target > fit_limit_alone(sched, client) || is_standstill(sched, c->gpu))
		refuse_wanted(sched, client);
	else
		request_growth(sched, client, target);
}

/* A stopped client's report: what is wanted may be more than the card can ever give. */
static void check_wanted(struct sched *sched, uint32_t client)
{
	if (fit_never(sched, client))
		refuse_wanted(sched, client);
}

void reports_bound(struct sched *sched, uint32_t client)
{
	struct sched_client *c = &sched->clients[client];

	/* A gang's member may wait beside an empty GPU, for its gang's other ones. */
	bool waits_for_gang = c->state == SCHED_CLIENT_WAITING && gang_is_bound(sched, client);

	if (!fit_ever(sched, client) || (is_standstill(sched, c->gpu) && !waits_for_gang)) {
		refuse_wanted(sched, client);
		return;
	}
	c->bound_ns = sched->now_ns + sched->config.wait_bound_ns;
	fit_change(sched, client);
}

/* A hung client joins the queue when it is taken back. */
static void wait_for_turn(struct sched *sched, uint32_t client)
{
	stop_set_state(sched, client, SCHED_CLIENT_WAITING);
	queue_renew(sched, client);
	if (sched->clients[client].is_hung)
		policy_awake(sched, client, false);
	else
		queue_push_kept(sched, client);
}

int reports_request(struct sched *sched, const struct sched_event *event)
{
	struct sched_client *c = &sched->clients[event->client];

	switch (c->state) {
	case SCHED_CLIENT_FREE:
		return SCHED_E_NO_CLIENT;
	case SCHED_CLIENT_WAITING:
	case SCHED_CLIENT_INCOMING:
	case SCHED_CLIENT_RUNNING:
	case SCHED_CLIENT_STOPPING:
		return SCHED_E_STATE;
	case SCHED_CLIENT_IDLE:
		if (c->is_asking)
			return SCHED_E_STATE;
		break;
	case SCHED_CLIENT_STATE_COUNT_:
		assert(!"client state out of range");
	}

	stop_client_alive(sched, event->client);
	forecast_forget(sched, event->client);
	fit_set_memory(sched, event->client, &event->memory);
	c->promised = 0;
	if (c->is_paused) {
		c->is_asking = true;
		fit_change(sched, event->client);
		return 0;
	}
	wait_for_turn(sched, event->client);
	fit_change(sched, event->client);
	check_wanted(sched, event->client);
	return 0;
}

static void client_set_stops(struct sched_client *c, enum sched_stops stops)
{
	if (stops != SCHED_STOPS_AS_BEFORE)
		c->drains = stops == SCHED_STOPS_DRAINING;
}

static void take_report(struct sched *sched, const struct sched_event *event)
{
	struct sched_client *c = &sched->clients[event->client];

	stop_client_alive(sched, event->client);
	fit_set_memory(sched, event->client, &event->memory);
	if (event->epoch == c->epoch)
		c->promised = 0;
	queue_bound(sched, c);
	fit_change(sched, event->client);
}

/* The meaning of RELEASED; REL_STALE changes nothing, REL_ALIVE nothing but that it is heard. */
enum released {
	REL_STALE,
	REL_ALIVE,
	REL_STOPPED,
	REL_EVICTED,
	REL_FAILED,
	REL_RESTORE_FAILED,
	REL_RESTORED_PART
};

static enum released released_means(const struct sched_client *c, const struct sched_event *event)
{
	/* Stops come to pass, or fail: nobody has stopped in part. */
	bool is_answer = sched_has_drop(c) && event->epoch == c->drop_epoch && !event->is_part;

	switch (c->state) {
	case SCHED_CLIENT_IDLE:
	case SCHED_CLIENT_WAITING:
		/* It restores ahead of its turn, or was put back while it did: that is worth to
		 * know. */
		if (event->grant == 0 && event->outcome && event->epoch == c->epoch &&
		    !sched_has_drop(c))
			return REL_ALIVE;
		if (event->grant != 0 || !is_answer)
			return REL_STALE;
		return event->outcome ? REL_FAILED : REL_EVICTED;
	case SCHED_CLIENT_INCOMING:
		if (event->grant == 0 && is_answer)
			return event->outcome ? REL_FAILED : REL_EVICTED;
		if (event->grant == 0 && c->task == SCHED_TASK_RESTORE &&
		    event->epoch == c->epoch && event->outcome)
			return event->is_part ? REL_RESTORED_PART : REL_RESTORE_FAILED;
		return REL_STALE;
	case SCHED_CLIENT_RUNNING:
		return event->grant == c->grant && !event->outcome ? REL_STOPPED : REL_STALE;
	case SCHED_CLIENT_STOPPING:
		if (event->grant != c->grant)
			return REL_STALE;
		if (!event->outcome)
			return REL_STOPPED; /* the answer, or given up early before it came */
		return is_answer ? REL_FAILED : REL_STALE;
	case SCHED_CLIENT_FREE:
	case SCHED_CLIENT_STATE_COUNT_:
		break;
	}
	assert(!"client state out of range");
	return REL_STALE;
}

/* A restore that was late, so that its client waits since then, has ended after all. */
static void end_late_restore(struct sched *sched, const struct sched_event *event)
{
	const struct sched_client *c = &sched->clients[event->client];

	if (c->state == SCHED_CLIENT_WAITING && c->task == SCHED_TASK_RESTORE &&
	    event->epoch == c->epoch)
		stop_answered(sched, event->client);
}

/* It waits, and has ended what it brought in ahead: nothing more of that will be used. */
static void end_coming_ahead(struct sched *sched, const struct sched_event *event)
{
	struct sched_client *c = &sched->clients[event->client];

	if ((c->state != SCHED_CLIENT_WAITING && !c->is_asking) || sched_has_drop(c) ||
	    event->epoch != c->epoch || event->budget >= c->budget)
		return;
	c->budget = event->budget;
	fit_change(sched, event->client);
}

/* Takes note of a copy, as the client tells it, in one of its GPU's counters. */
static void take_moved(struct sched *sched, const struct sched_event *event, uint64_t *counter)
{
	uint32_t gpu = sched->clients[event->client].gpu;
	uint64_t moved = u64_min(event->moved, sched->gpus[gpu].total);

	quantum_measure(sched, gpu, moved, event->move_ns);
	*counter += u64_min(moved, UINT64_MAX - *counter);
}

int reports_released(struct sched *sched, const struct sched_event *event)
{
	struct sched_client *c = &sched->clients[event->client];
	struct sched_gpu *g = &sched->gpus[c->gpu];
	uint64_t charge_before = fit_charge(c);
	enum released means;

	if (c->state == SCHED_CLIENT_FREE)
		return SCHED_E_NO_CLIENT;
	means = released_means(c, event);
	if (means == REL_STALE && c->is_hung)
		means = REL_ALIVE; /* so late that it was given up */
	if (means == REL_STALE)
		return SCHED_E_STALE;

	client_set_stops(c, event->stops);
	take_moved(sched, event, &g->moved_out);
	if (means == REL_STOPPED || means == REL_EVICTED) {
		bool has_seen = sched_has_drop(c) && event->epoch == c->drop_epoch;

		if (means == REL_STOPPED)
			stop_done(sched, event, has_seen);
		else
			stop_evicted(sched, event);
	} else {
		take_report(sched, event);
		if (means == REL_FAILED)
			stop_failed(sched, event->client, event->outcome, event->is_short);
		else if (means == REL_RESTORE_FAILED ||
			 (means == REL_RESTORED_PART && !grant_restored_part(sched, event->client)))
			stop_restore_failed(sched, event->client, event->outcome);
		else
			end_coming_ahead(sched, event);
		end_late_restore(sched, event);
	}
	/* By the books: a client that says so may have moved nothing. */
	if (fit_charge(c) < charge_before)
		g->still_ns = sched->now_ns;

	if (c->state == SCHED_CLIENT_RUNNING)
		reports_growth(sched, event->client, event->epoch == c->epoch);
	else if (c->state != SCHED_CLIENT_IDLE)
		check_wanted(sched, event->client);
	return 0;
}

/* More than the card: who says that it can run so, may. */
static bool is_restored(const struct sched *sched, const struct sched_event *event)
{
	const struct sched_client *c = &sched->clients[event->client];

	return event->epoch == c->epoch &&
	       (c->memory.swapped == 0 || fit_oversize(sched, event->client));
}

/* client waits, or comes and has nothing to bring in; its memory has changed. */
static void check_memory(struct sched *sched, uint32_t client)
{
	struct sched_client *c = &sched->clients[client];

	check_wanted(sched, client);
	if (c->state != SCHED_CLIENT_INCOMING)
		return;
	fit_set_target(sched, client);
	/* It needs more by now than it was given. */
	if (fit_allowed(c) < c->budget_target)
		grant_unready(c);
	fit_change(sched, client);
}

int reports_memory(struct sched *sched, const struct sched_event *event)
{
	struct sched_client *c = &sched->clients[event->client];
	bool is_last_epoch = event->epoch == c->epoch;
	uint64_t charge_before, swapped_before = c->memory.swapped;

	if (c->state == SCHED_CLIENT_FREE)
		return SCHED_E_NO_CLIENT;

	charge_before = fit_charge(c);
	client_set_stops(c, event->stops);
	take_report(sched, event);
	take_moved(sched, event, &sched->gpus[c->gpu].moved_in);
	if (c->task == SCHED_TASK_RESTORE && !c->is_hung && c->memory.swapped < swapped_before)
		sched->gpus[c->gpu].still_ns = sched->now_ns;
	/* A restore needs all that it was given. */
	if (is_last_epoch && event->budget < c->budget &&
	    (c->state != SCHED_CLIENT_INCOMING || sched_has_drop(c)))
		c->budget = event->budget;
	fit_change(sched, event->client);
	if (is_last_epoch && sched_has_drop(c))
		stop_progress(sched, event->client, charge_before);

	switch (c->state) {
	case SCHED_CLIENT_WAITING:
		if (is_restored(sched, event))
			end_late_restore(sched, event);
		check_memory(sched, event->client);
		break;
	case SCHED_CLIENT_INCOMING:
		if (c->task != SCHED_TASK_RESTORE)
			check_memory(sched, event->client);
		else if (is_restored(sched, event))
			grant_restored(sched, event->client);
		break;
	case SCHED_CLIENT_RUNNING:
		reports_growth(sched, event->client, is_last_epoch);
		break;
	case SCHED_CLIENT_FREE:
	case SCHED_CLIENT_IDLE:
	case SCHED_CLIENT_STOPPING:
	case SCHED_CLIENT_STATE_COUNT_:
		break;
	}
	return 0;
}

int reports_pinned(struct sched *sched, const struct sched_event *event)
{
	struct sched_client *c = &sched->clients[event->client];
	struct sched_memory memory = c->memory;

	if (c->state == SCHED_CLIENT_FREE)
		return SCHED_E_NO_CLIENT;
	memory.pinned = event->bytes;
	fit_set_memory(sched, event->client, &memory);
	fit_change(sched, event->client);
	if (c->state == SCHED_CLIENT_WAITING ||
	    (c->state == SCHED_CLIENT_INCOMING && c->task != SCHED_TASK_RESTORE))
		check_memory(sched, event->client);
	return 0;
}

/*
 * A paused client that wants to run counts as idle, so that nothing waits for it, and its memory
 * goes first. A client that runs is stopped in this step or as soon as it can be (make_room()).
 */
static void client_pause(struct sched *sched, uint32_t client)
{
	struct sched_client *c = &sched->clients[client];

	if (c->state != SCHED_CLIENT_WAITING && c->state != SCHED_CLIENT_INCOMING)
		return;
	if (c->task == SCHED_TASK_RESTORE) {
		c->task = SCHED_TASK_NONE;
		c->answer_ns = SCHED_NO_DEADLINE;
	}
	queue_leave(sched, client);
	c->is_resting = false;
	if (!c->is_retrying)
		c->retry_ns = SCHED_NO_DEADLINE;
	stop_set_state(sched, client, SCHED_CLIENT_IDLE);
	c->is_asking = true;
}

static void client_resume(struct sched *sched, uint32_t client)
{
	struct sched_client *c = &sched->clients[client];

	if (!c->is_asking)
		return;
	c->is_asking = false;
	forecast_forget(sched, client);
	wait_for_turn(sched, client);
}

int reports_pause(struct sched *sched, const struct sched_event *event)
{
	struct sched_client *c = &sched->clients[event->client];

	if (c->state == SCHED_CLIENT_FREE)
		return SCHED_E_NO_CLIENT;
	if (c->is_fixed)
		return SCHED_E_STATE;
	if (c->is_paused == event->is_paused)
		return 0;
	c->is_paused = event->is_paused;
	if (c->is_paused)
		client_pause(sched, event->client);
	else
		client_resume(sched, event->client);
	fit_change(sched, event->client);
	if (c->state == SCHED_CLIENT_WAITING)
		check_wanted(sched, event->client);
	return 0;
}

int reports_alive(struct sched *sched, const struct sched_event *event)
{
	if (sched->clients[event->client].state == SCHED_CLIENT_FREE)
		return SCHED_E_NO_CLIENT;
	stop_client_alive(sched, event->client);
	return 0;
}

int reports_process(struct sched *sched, const struct sched_event *event)
{
	if (sched->clients[event->client].state == SCHED_CLIENT_FREE)
		return SCHED_E_NO_CLIENT;
	stop_client_process(sched, event->client, event->is_stopped);
	return 0;
}
