/* SPDX-License-Identifier: Apache-2.0 */

#include "core/turn.h"

#include "core/act.h"
#include "core/ahead.h"
#include "core/early.h"
#include "core/fit.h"
#include "core/forecast.h"
#include "core/gang/gang.h"
#include "core/grant.h"
#include "core/notice.h"
#include "core/plan.h"
#include "core/policy/quantum.h"
#include "core/policy/sleeper.h"
#include "core/queue.h"
#include "core/stop.h"
#include "core/u64.h"

/* More than any look at a GPU can need: each round sends, moves or admits a client. */
#define ROUNDS_MAX 4096

/* The head is told to come ahead so many times sooner than its copies should need. */
#define AHEAD_TIMES 2

void turn_choose(struct sched *sched, uint32_t client, bool has_switched)
{
	struct sched_client *c = &sched->clients[client];

	if (has_switched)
		sched->gpus[c->gpu].n_switches++;
	queue_choose(sched, client, has_switched);
	c->kept_bound_ns = c->bound_ns;
	queue_leave(sched, client);
	queue_push_coming(sched, client);
	fit_set_target(sched, client);
	c->has_switched = has_switched;
	if (c->state == SCHED_CLIENT_WAITING)
		stop_set_state(sched, client, SCHED_CLIENT_INCOMING);
	fit_change(sched, client);
}

void turn_admit(struct sched *sched, uint32_t client)
{
	const struct sched_client *c = &sched->clients[client];

	if (sched->gpus[c->gpu].is_out || c->is_called_off ||
	    sched->gpus[c->gpu].coming.n >= TURN_COMING_MAX || !fit_beside(sched, client))
		return;
	plan_beside(sched, client);
	turn_choose(sched, client, false);
}

void turn_put_back(struct sched *sched, uint32_t client)
{
	struct sched_client *c = &sched->clients[client];

	queue_leave(sched, client);
	queue_push_again(sched, client);
	/* It has waited all the while: else whoever is put back again and again waits for ever. */
	if (c->bound_ns != SCHED_NO_DEADLINE)
		c->bound_ns = u64_min(c->bound_ns, c->kept_bound_ns);
	/*
	 * The bytes that it has brought in stay, and can be asked back: the copies are still clean.
	 */
	if (c->task == SCHED_TASK_RESTORE) {
		c->answer_ns = SCHED_NO_DEADLINE;
		c->task = SCHED_TASK_NONE;
	}
	if (c->state == SCHED_CLIENT_INCOMING)
		stop_set_state(sched, client, SCHED_CLIENT_WAITING);
	fit_change(sched, client);
	queue_tell(sched, client);
}

/* The last one that came and has not all its budget yet; SCHED_NONE: all have. */
static uint32_t last_without_budget(const struct sched *sched, uint32_t gpu)
{
	uint32_t i = sched->gpus[gpu].coming.last;

	while (i != SCHED_NONE && grant_is_whole(&sched->clients[i]))
		i = sched->clients[i].link[SCHED_LINK_LINE].prev;
	return i;
}

/* The client that victim makes room for: the first that comes, as it is the first to restore. */
static uint32_t first_without_budget(const struct sched *sched, uint32_t gpu, uint32_t victim)
{
	uint32_t i = sched->gpus[gpu].coming.first;

	while (i != SCHED_NONE && (i == victim || grant_is_whole(&sched->clients[i])))
		i = turn_next_in_line(sched, i);
	return i;
}

static bool evict_from(struct sched *sched, uint32_t client, uint64_t bytes)
{
	if (client == SCHED_NONE)
		return false;
	stop_evict(sched, client, u64_min(bytes, fit_pageable(&sched->clients[client])),
		   first_without_budget(sched, sched->clients[client].gpu, client));
	return true;
}

static bool make_room(struct sched *sched, uint32_t gpu)
{
	struct sched_gpu *g = &sched->gpus[gpu];
	uint32_t last = last_without_budget(sched, gpu);
	uint64_t bytes = last == SCHED_NONE ? 0 : fit_to_evict(sched, gpu, SCHED_NONE);
	bool is_crowded = g->sums.n_on > fit_degree(sched, gpu);

	/* Its memory stays until somebody needs the room. */
	if (g->place[SCHED_PLACE_PAUSED].first != SCHED_NONE) {
		uint32_t off = g->place[SCHED_PLACE_PAUSED].first;

		sched->clients[off].is_displaced = gang_is_displaced(sched, off);
		stop_drop(sched, off, 0, SCHED_NONE);
		return true;
	}

	if (bytes > 0 && evict_from(sched, g->place[SCHED_PLACE_IDLE].first, bytes))
		return true;
	if (is_crowded || (last != SCHED_NONE && g->sums.load > fit_capacity(sched, gpu))) {
		uint32_t victim = plan_victim(sched, gpu, last);

		if (victim != SCHED_NONE) {
			bool is_early = last != SCHED_NONE && gang_comes_early(sched, last);

			/* The client that comes keeps its place until others of a gang have
			 * stopped. */
			if (gang_yields(sched, victim, is_early))
				return false;
			sched->clients[victim].is_displaced = is_early;
			stop_drop(sched, victim,
				  u64_min(bytes, fit_pageable(&sched->clients[victim])),
				  first_without_budget(sched, gpu, victim));
			return true;
		}
		if (last != SCHED_NONE) {
			sched->clients[last].spared_ns = sched->now_ns;
			turn_put_back(sched, last);
			return true;
		}
	}
	return bytes > 0 && evict_from(sched, g->place[SCHED_PLACE_QUEUED].last, bytes);
}

/* The former head is overtaken: those who run may be others when it is head again. */
static void turn_set_head(struct sched *sched, uint32_t gpu, uint32_t head)
{
	struct sched_gpu *g = &sched->gpus[gpu];

	if (g->head == head)
		return;
	if (g->head != SCHED_NONE) {
		gang_passed(sched, g->head);
		sched->clients[g->head].due_ns = SCHED_NO_DEADLINE;
		sched->clients[g->head].ready_ns = SCHED_NO_DEADLINE;
	}
	g->head = head;
	g->head_ns = sched->now_ns;
	g->is_prepared = false;
	g->is_ahead = false;
}

/*
 * Those who are on their way have no turn that could end. As long as there always are some, head's
 * time would never come: it has waited enough after a usual turn.
 */
static bool head_is_overtaken(const struct sched *sched, uint32_t head)
{
	const struct sched_client *c = &sched->clients[head];
	uint64_t bytes = fit_to_evict(sched, c->gpu, head) + c->memory.swapped;

	return sched->config.anti_thrash && !fit_by_switch(sched, head) &&
	       sched->now_ns - sched->gpus[c->gpu].head_ns >= quantum_turn(sched, c->gpu, bytes);
}

/*
 * Its time has come, and it waits only for those who came last: who passed it now would be one
 * more of them. A gang's time has come when it has on all of its GPUs; that of a displaced one goes
 * on. As long as nobody can be stopped for it on one of them, the others would stand empty.
 */
bool turn_head_is_held_up(const struct sched *sched, uint32_t head)
{
	if (head == SCHED_NONE)
		return false;
	if (gang_is_bound(sched, head) && sched->clients[head].state == SCHED_CLIENT_WAITING)
		return (!gang_is_jammed(sched, head) &&
			(sched->clients[head].is_displaced || gang_holds_up(sched, head))) ||
		       head_is_overtaken(sched, head);
	if (sched->clients[head].due_ns <= sched->now_ns &&
	    sched->clients[head].ready_ns > sched->now_ns)
		return true;
	return head_is_overtaken(sched, head);
}

static bool admit_stalled(struct sched *sched, uint32_t gpu)
{
	uint32_t client = plan_stalled(sched, gpu);

	if (client == SCHED_NONE || sched->clients[client].spared_ns == sched->now_ns)
		return false;
	plan_stall(sched, client);
	turn_choose(sched, client, true);
	return true;
}

static bool admit_beside(struct sched *sched, uint32_t client, uint32_t head)
{
	const struct sched_gpu *g = &sched->gpus[sched->clients[client].gpu];

	bool is_guest = head != SCHED_NONE && sched->clients[head].is_displaced &&
			sched->clients[client].state == SCHED_CLIENT_WAITING &&
			!sched->clients[client].is_displaced;

	if (sched->clients[client].is_resting || sched->clients[client].is_called_off ||
	    g->coming.n >= (head == SCHED_NONE ? TURN_COMING_MAX : TURN_PASSERS_MAX) ||
	    !fit_beside(sched, client))
		return false;
	/* A sleeper passes within its bounds: early_admit(), which lets none pass a gang. */
	if (is_guest && !gang_is_bound(sched, head) &&
	    sched->clients[client].waking == SCHED_WAKING_SOON && sleeper_is_on(sched))
		return false;
	plan_beside(sched, client);
	/* The displaced client is to be back soon, whoever passes it. */
	if (is_guest)
		sched->clients[client].is_guest = true;
	turn_choose(sched, client, false);
	return true;
}

/* All members of client's gang that wait are chosen in one step. */
static void admit_gang(struct sched *sched, uint32_t client, bool has_switched)
{
	uint32_t gang = sched->clients[client].gang;

	for (uint32_t i = sched->clients[gang].gang_here.members.first; i != SCHED_NONE;
	     i = sched->clients[i].link[SCHED_LINK_GANG].next) {
		if (sched->clients[i].state != SCHED_CLIENT_WAITING || sched->clients[i].is_hung)
			continue;
		if (!has_switched) {
			plan_beside(sched, i);
			early_set_guest(sched, i);
		}
		turn_choose(sched, i, has_switched);
	}
	if (has_switched)
		gang_share_ends(sched, client);
}

/* The gangs of one look at a queue that do not fit beside all others. */
struct refused {
	uint32_t n;
	uint32_t gangs[LINE_LOOK_AHEAD];
};

/* The answer is the same for each member, and takes long where there are many. */
static bool is_refused(const struct refused *refused, uint32_t gang)
{
	for (uint32_t i = 0; i < refused->n; i++) {
		if (refused->gangs[i] == gang)
			return true;
	}
	return false;
}

/*
 * client, a member of a gang, waits. is_first: its turn has come as far as this GPU goes. true:
 * something has changed.
 */
static bool admit_member(struct sched *sched, uint32_t client, bool is_first,
			 struct refused *refused)
{
	uint32_t gang = sched->clients[client].gang;

	if (is_first && gang_call(sched, client))
		return true; /* it may be the head by that */
	if (is_refused(refused, gang))
		return false;
	if (!gang_fits_beside(sched, client)) {
		refused->gangs[refused->n++] = gang;
		return false;
	}
	admit_gang(sched, client, false);
	return true;
}

/* The gang that is next here is before all but critical clients. */
static bool is_before_gang(const struct sched *sched, uint32_t client)
{
	return client != SCHED_NONE && sched->clients[client].is_resident &&
	       queue_able(sched, client) == client;
}

static bool admit_next(struct sched *sched, uint32_t gpu)
{
	struct sched_gpu *g = &sched->gpus[gpu];
	uint32_t n = 0, head = SCHED_NONE, first = gang_head(sched, gpu);
	bool is_kept = g->sums.n_displaced > 0;
	struct refused refused;

	refused.n = 0;
	/* A gang that makes way is back before all but critical clients: gang_comes_back(). */
	if (is_kept && !is_before_gang(sched, g->queue.first)) {
		turn_set_head(sched, gpu, SCHED_NONE);
		return admit_stalled(sched, gpu);
	}
	if (first != SCHED_NONE && !is_before_gang(sched, g->queue.first)) {
		head = first;
		turn_set_head(sched, gpu, head);
		if (gang_can_switch(sched, head) && !gang_awaits_doubt(sched, head)) {
			if (!gang_asks_first(sched, head))
				admit_gang(sched, head, true);
			return true;
		}
		/*
		 * A critical client that waits on another GPU keeps the gang from a switch, and the
		 * gang may pass it. Nobody looks at that GPU when the last one leaves this GPU.
		 */
		if (gang_fits_beside(sched, head)) {
			admit_gang(sched, head, false);
			return true;
		}
	}
	for (uint32_t i = g->queue.first; i != SCHED_NONE && n < LINE_LOOK_AHEAD;
	     i = turn_next_in_line(sched, i), n++) {
		uint32_t able;

		if (is_kept && !sched->clients[i].is_resident)
			break;
		if (sched->clients[i].state == SCHED_CLIENT_WAITING && gang_is_bound(sched, i)) {
			if (i != head && !turn_head_is_held_up(sched, head) &&
			    admit_member(sched, i, head == SCHED_NONE, &refused))
				return true;
			if (head == SCHED_NONE && sched->clients[i].is_displaced) {
				if (!gang_comes_back(sched, i)) {
					gang_lose_place(sched, i);
					return true;
				}
				head = i;
				turn_set_head(sched, gpu, head);
			}
			if (head != SCHED_NONE)
				continue;
		} else if (turn_head_is_held_up(sched, head) &&
			   sched->clients[i].state == SCHED_CLIENT_WAITING) {
			continue;
		} else if (admit_beside(sched, i, head)) {
			return true;
		}
		if (head != SCHED_NONE)
			continue;
		able = queue_able(sched, i);
		/* Others of its owner would stand in for it, before their turn. */
		if (able != i && sched->clients[i].is_displaced) {
			sched->clients[i].is_displaced = false;
			queue_rank(sched, i);
			return true;
		}
		if (able == SCHED_NONE)
			continue;
		if (able != i && admit_beside(sched, able, head))
			return true;
		head = able;
		turn_set_head(sched, gpu, head);
		if (fit_by_switch(sched, head) && plan_head(sched, head) &&
		    g->coming.n < TURN_COMING_MAX) {
			turn_choose(sched, head, true);
			return true;
		}
	}
	turn_set_head(sched, gpu, head);
	return admit_stalled(sched, gpu);
}

/* When head is to bring in bytes before its victims stop, at due_ns. */
static uint64_t ahead_begins_ns(const struct sched *sched, uint32_t gpu, uint64_t bytes,
				uint64_t due_ns)
{
	const struct sched_gpu *g = &sched->gpus[gpu];
	const struct sched_client *c = &sched->clients[g->head];
	uint64_t takes_ns;

	if (bytes == 0 || g->is_ahead || quantum_bandwidth(sched, gpu) == 0 || g->coming.n > 0 ||
	    sched_has_drop(c) || c->state != SCHED_CLIENT_WAITING)
		return SCHED_NO_DEADLINE;
	takes_ns = u64_min(AHEAD_TIMES * quantum_swap(sched, gpu, bytes), sched->config.prepare_ns);
	return due_ns - u64_min(takes_ns, due_ns);
}

/*
 * The bus is free while others compute: what head brings in now, into what the reserve can do
 * without, nobody waits for when they stop. It still waits for its turn.
 */
static void come_ahead(struct sched *sched, uint32_t client, uint64_t bytes)
{
	struct sched_client *c = &sched->clients[client];

	c->budget = fit_allowed(c) + bytes;
	stop_epoch(c, false);
	fit_change(sched, client);
	grant_emit_budget(sched, client);
	sched->gpus[c->gpu].is_ahead = true;
}

/*
 * When to look again by ourselves: somebody ages, or the victims are to prepare, or to stop, or
 * who waits for that is to begin.
 */
static void turn_set_wake(struct sched *sched, uint32_t gpu)
{
	struct sched_gpu *g = &sched->gpus[gpu];
	uint64_t due_ns, begin_ns, bytes, prepare_ns = sched->config.prepare_ns;
	uint64_t ages_ns = queue_ages_ns(sched, gpu);

	g->wake_ns = ages_ns;
	if (g->is_out)
		return;
	g->wake_ns = u64_min(ages_ns, g->early_ns);
	if (plan_stalled(sched, gpu) != SCHED_NONE)
		g->wake_ns = sched->now_ns + 1; /* put back in this moment */
	if (g->head == SCHED_NONE)
		return;
	due_ns = sched->clients[g->head].ready_ns;
	if (due_ns <= sched->now_ns)
		return;
	/* Until then nobody passes: turn_head_is_held_up(). */
	if (!fit_by_switch(sched, g->head)) {
		if (sched->clients[g->head].due_ns <= sched->now_ns)
			g->wake_ns = u64_min(g->wake_ns, due_ns);
		return;
	}
	if (!g->is_prepared && due_ns - sched->now_ns <= prepare_ns) {
		g->is_prepared = true;
		plan_prepare(sched, g->head);
	}
	g->wake_ns = u64_min(g->wake_ns, g->is_prepared ? due_ns : due_ns - prepare_ns);
	bytes = fit_ahead(sched, g->head);
	begin_ns = ahead_begins_ns(sched, gpu, bytes, due_ns);
	if (begin_ns <= sched->now_ns && act_has_room(sched))
		come_ahead(sched, g->head, bytes);
	else
		g->wake_ns = u64_min(g->wake_ns, begin_ns);
}

/* Does one thing. false: nothing is left to do. */
static bool turn_advance(struct sched *sched, uint32_t gpu)
{
	if (sched->gpus[gpu].is_out) {
		turn_set_head(sched, gpu, SCHED_NONE);
		return false;
	}
	return grant_next(sched, gpu) || make_room(sched, gpu) || grant_part(sched, gpu) ||
	       early_admit(sched, gpu) || admit_next(sched, gpu);
}

/* Once a change: those that still wait watch again. */
static void turn_tell_watchers(struct sched *sched, uint32_t gpu)
{
	uint32_t watchers = sched->gpus[gpu].watchers;

	sched->gpus[gpu].watchers = 0;
	for (uint32_t i = 0; i < SCHED_GPUS_MAX; i++) {
		if (watchers & 1u << i)
			sched->gpus[i].is_recheck_due = true;
	}
}

void turn_dispatch(struct sched *sched, uint32_t gpu)
{
	struct sched_gpu *g = &sched->gpus[gpu];
	bool has_changed = g->is_dirty, is_jam_news;
	uint32_t n = 0;

	g->is_recheck_due = false;
	queue_age(sched, gpu);
	do {
		if (!act_has_room(sched)) {
			g->is_dirty = true;
			return;
		}
		n++;
		assert(n <= ROUNDS_MAX);
	} while (turn_advance(sched, gpu));
	/* A recheck that changes nothing tells nobody: two GPUs would tell each other for ever. */
	if (has_changed || n > 1)
		turn_tell_watchers(sched, gpu);

	if (g->sums.charged > fit_room(sched, gpu)) {
		if (!g->is_overcommitted)
			act_report(sched, gpu, SCHED_REPORT_OVERCOMMITTED, g->sums.charged);
		g->is_overcommitted = true;
	} else {
		g->is_overcommitted = false;
	}
	turn_set_wake(sched, gpu);
	is_jam_news = gang_update_jam(sched, gpu);
	g->is_dirty = !notice_update(sched, gpu) || !forecast_update(sched, gpu) ||
		      !ahead_update(sched, gpu) || is_jam_news;
	g->wake_ns = u64_min(g->wake_ns, forecast_wake_ns(sched, gpu));
	g->wake_ns = u64_min(g->wake_ns, ahead_wake_ns(sched, gpu));
}
