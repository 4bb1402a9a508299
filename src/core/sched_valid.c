/* SPDX-License-Identifier: Apache-2.0 */

/* The invariants, all computed anew from the clients: O(clients), for tests and debug builds. */

#include "core/fit.h"
#include "core/forecast.h"
#include "core/gang/gang.h"
#include "core/policy/owner.h"
#include "core/policy/policy.h"
#include "core/policy/rank.h"
#include "core/queue.h"
#include "core/sched.h"
#include "core/turn.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

static void check_timers(const struct sched *sched, const struct sched_client *c)
{
	const struct sched_node *node = &c->node[SCHED_NODE_TIMER];
	const uint64_t all[] = {c->answer_ns, c->retry_ns, c->bound_ns, c->beat_ns,
				c->ready_until_ns};
	uint64_t first = SCHED_NO_DEADLINE;

	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
		first = all[i] < first ? all[i] : first;
	assert(node->is_in == (first != SCHED_NO_DEADLINE));
	if (!node->is_in)
		return;
	assert(node->key == first);
	assert(sched->timers != SCHED_NONE);
	assert(sched->clients[sched->timers].node[SCHED_NODE_TIMER].key <= first);
}

enum fact { HUNG = 1, RETRYING = 2, RESTING = 4, GROWING = 8, NOT_PREEMPTIBLE = 16 };

/* Sets, of what a client in a state may be. src/README.md has the same table, and what it means. */
static const struct allowed {
	uint32_t lines, tasks, prepares, facts;
} allowed[SCHED_CLIENT_STATE_COUNT_] = {
#define OF(value) (1u << SCHED_##value)
	[SCHED_CLIENT_IDLE] = {OF(LINE_NONE), OF(TASK_NONE) | OF(TASK_DROP) | OF(TASK_DROP_PART),
			       OF(PREPARE_NONE) | OF(PREPARE_SOON), HUNG | RETRYING},
	[SCHED_CLIENT_WAITING] = {OF(LINE_NONE) | OF(LINE_QUEUE),
				  OF(TASK_NONE) | OF(TASK_DROP) | OF(TASK_DROP_PART) |
					  OF(TASK_RESTORE),
				  OF(PREPARE_NONE), HUNG | RETRYING | RESTING},
	[SCHED_CLIENT_INCOMING] = {OF(LINE_COMING),
				   OF(TASK_NONE) | OF(TASK_DROP) | OF(TASK_DROP_PART) |
					   OF(TASK_RESTORE),
				   OF(PREPARE_NONE), RETRYING},
	[SCHED_CLIENT_RUNNING] = {OF(LINE_NONE) | OF(LINE_QUEUE) | OF(LINE_COMING), OF(TASK_NONE),
				  OF(PREPARE_NONE) | OF(PREPARE_SOON) | OF(PREPARE_NOW),
				  HUNG | RETRYING | GROWING | NOT_PREEMPTIBLE},
	[SCHED_CLIENT_STOPPING] = {OF(LINE_NONE), OF(TASK_DROP) | OF(TASK_DROP_PART),
				   OF(PREPARE_NONE), HUNG},
#undef OF
};

static void check_state(const struct sched_client *c)
{
	const struct allowed *may = &allowed[c->state];
	uint32_t facts = (c->is_hung ? HUNG : 0) | (c->is_retrying ? RETRYING : 0) |
			 (c->is_resting ? RESTING : 0) | (c->is_growing ? GROWING : 0) |
			 (c->is_not_preemptible ? NOT_PREEMPTIBLE : 0);

	assert(may->lines & 1u << c->line);
	assert(may->tasks & 1u << c->task);
	assert(may->prepares & 1u << c->prepare);
	assert(!(facts & ~may->facts));
	/* A hung client is in no line, and is told nothing before it is heard. */
	assert(!c->is_hung || (c->line == SCHED_LINE_NONE && c->prepare == SCHED_PREPARE_NONE));
	if (c->state == SCHED_CLIENT_WAITING)
		assert(c->is_hung ||
		       (c->line == SCHED_LINE_QUEUE && c->task != SCHED_TASK_RESTORE));
	/* A paused client waits for nothing but to be resumed. */
	assert(!c->is_paused ||
	       (c->state != SCHED_CLIENT_WAITING && c->state != SCHED_CLIENT_INCOMING));
	assert(!c->is_asking || (c->is_paused && c->state == SCHED_CLIENT_IDLE));
	if (c->state == SCHED_CLIENT_RUNNING)
		assert((c->is_growing && !c->is_hung) == (c->line != SCHED_LINE_NONE));
	assert(!sched_has_drop(c) || (c->prepare == SCHED_PREPARE_NONE && !c->is_retrying));
	assert(c->prepare != SCHED_PREPARE_NOW || c->is_warned);
	assert(c->state == SCHED_CLIENT_RUNNING || !(c->is_behind || c->is_held));
}

/* An answer is awaited exactly where one is owed; and so on with the other times. */
static void check_debts(const struct sched_client *c)
{
	bool wants = c->memory.wanted > 0 || c->memory.wanted_pinned > 0;
	bool is_told = c->prepare == SCHED_PREPARE_NOW;

	/* A hung client that owes an answer is late, or its process is stopped and may yet be. */
	assert(c->answer_ns == SCHED_NO_DEADLINE || c->task != SCHED_TASK_NONE);
	assert(c->is_hung ? c->answer_ns == SCHED_NO_DEADLINE || sched_has_drop(c)
			  : c->answer_ns != SCHED_NO_DEADLINE || c->task == SCHED_TASK_NONE);
	assert(sched_has_drop(c) || c->drop_bytes == 0);
	assert((c->retry_ns != SCHED_NO_DEADLINE) == (c->is_retrying || c->is_resting));
	assert((c->beat_ns != SCHED_NO_DEADLINE) == is_told);
	assert((c->ready_until_ns != SCHED_NO_DEADLINE) == c->is_ready);
	/* Each wait for memory has a bound, at which it may be refused. */
	assert((c->bound_ns != SCHED_NO_DEADLINE) == (c->line == SCHED_LINE_QUEUE && wants));
}

static uint32_t count_list(const struct sched *sched, const struct list *list,
			   enum sched_link_kind kind)
{
	uint32_t n = 0, prev = SCHED_NONE;

	for (uint32_t i = list->first; i != SCHED_NONE; i = sched->clients[i].link[kind].next) {
		assert(sched->clients[i].link[kind].prev == prev);
		n++;
		assert(n <= list->n);
		prev = i;
	}
	assert(list->last == prev);
	assert(n == list->n);
	return n;
}

static bool is_front_before(const struct sched_client *a, const struct sched_client *b)
{
	if (a->front_band != b->front_band)
		return a->front_band < b->front_band;
	return a->front_key != b->front_key ? a->front_key < b->front_key : rank_is_before(a, b);
}

/* Of two neighbours in the queue: fronts first, then the rest of each owner's together. */
static void check_order(const struct sched *sched, const struct sched_client *a,
			const struct sched_client *b)
{
	assert(a->is_front >= b->is_front);
	if (b->is_front)
		assert(is_front_before(a, b));
	else if (a->is_front || a->owner != b->owner)
		assert(owner_of(sched, b)->ranked != SCHED_NONE &&
		       rank_first(sched, owner_of(sched, b)->ranked) ==
			       (uint32_t)(b - sched->clients));
	else
		assert(rank_is_before(a, b));
}

/* By rank, each where the trees say: for a single owner that is the queue's order. */
static void check_queue(const struct sched *sched, const struct sched_gpu *g)
{
	const struct sched_client *before = NULL;
	uint32_t position = 0, n_fronts = 0, nth = 0;

	for (uint32_t i = g->queue.first; i != SCHED_NONE;
	     i = sched->clients[i].link[SCHED_LINK_LINE].next) {
		const struct sched_client *c = &sched->clients[i];
		const struct sched_owner *o = owner_of(sched, c);
		uint64_t turns = ++position;

		if (before)
			check_order(sched, before, c);
		assert(c->is_front == (o->front == i || c->is_resident));
		assert(!c->is_front || c->front_band == policy_front_band(sched, i));
		n_fronts += c->is_front;
		nth = c->is_front ? 0 : before->owner == c->owner ? nth + 1 : 1;
		if (!c->is_front)
			turns = (uint64_t)nth * n_fronts + rank_position(sched, o->front);
		assert(rank_position(sched, i) == (turns < g->queue.n ? turns : g->queue.n));
		before = c;
	}
	assert(owner_n_waiting(sched, (uint32_t)(g - sched->gpus)) == n_fronts);
}

/* Its counts, and its place in the queue. */
static void check_owner(const struct sched *sched, const struct sched_owner *o)
{
	uint32_t n_clients = 0, n_awake = 0, n_behind = 0, n_on = 0;
	uint32_t n_queued[SCHED_PRIORITY_COUNT_] = {0};
	const struct sched_client *front;

	for (uint32_t i = 0; i < sched->n_clients; i++) {
		const struct sched_client *c = &sched->clients[i];

		if (c->state == SCHED_CLIENT_FREE || owner_of(sched, c) != o)
			continue;
		assert(c->gpu == o->gpu);
		assert(o->number == (sched->config.fair_users ? c->owner_number : 0));
		assert(c->is_awake == (c->state > SCHED_CLIENT_IDLE && !c->is_hung));
		n_clients++;
		n_awake += c->is_awake;
		n_on += c->state >= SCHED_CLIENT_INCOMING;
		if (c->line != SCHED_LINE_QUEUE)
			continue;
		if (c->is_resident)
			continue;
		n_queued[c->level]++;
		n_behind += !c->is_front;
		assert(o->front != SCHED_NONE && !rank_is_before(c, &sched->clients[o->front]));
	}
	assert(n_clients == o->n_clients && n_awake == o->n_awake);
	assert(n_on == o->n_on);
	assert(memcmp(n_queued, o->n_queued, sizeof(n_queued)) == 0);
	assert((o->ranked == SCHED_NONE ? 0 : sched->clients[o->ranked].tree.n) == n_behind);
	if (o->front == SCHED_NONE)
		return;
	front = &sched->clients[o->front];
	assert(front->front_key == o->turn_ns);
}

/* Each slot is one owner's, found by its number, or free; and n_owners are awake. */
static void check_owners(const struct sched *sched)
{
	uint32_t n_awake[SCHED_GPUS_MAX] = {0}, n = 0;

	for (uint32_t i = 0; i < sched->n_clients; i++) {
		for (uint32_t j = sched->clients[i].own.bucket; j != SCHED_NONE;
		     j = sched->clients[j].own.next) {
			const struct sched_owner *o = &sched->clients[j].own;

			assert(o->n_clients > 0 && n < sched->n_clients);
			check_owner(sched, o);
			n_awake[o->gpu] += o->n_awake > 0;
			n++;
		}
	}
	for (uint32_t j = sched->free_owner; j != SCHED_NONE; j = sched->clients[j].own.next) {
		assert(sched->clients[j].own.n_clients == 0 && n < sched->n_clients);
		n++;
	}
	assert(n == sched->n_clients);
	for (uint32_t gpu = 0; gpu < SCHED_GPUS_MAX; gpu++)
		assert(n_awake[gpu] == sched->gpus[gpu].n_owners);
}

/* A waiter will age, and the time of a client that wants something counts. */
static void check_policy(const struct sched *sched, uint32_t client)
{
	const struct sched_client *c = &sched->clients[client];
	bool has_clock = sched->config.policy == SCHED_POLICY_PRIORITY ||
			 sched->config.policy == SCHED_POLICY_FAIR;

	assert(c->node[SCHED_NODE_AGE].is_in ==
	       (c->line == SCHED_LINE_QUEUE && policy_ages_ns(sched, client) != SCHED_NO_DEADLINE));
	assert(c->node[SCHED_NODE_VTIME].is_in ==
	       (has_clock && c->state > SCHED_CLIENT_IDLE && !c->is_hung));
	assert(!c->node[SCHED_NODE_AGE].is_in ||
	       c->node[SCHED_NODE_AGE].key == policy_waits_ns(sched, client));
	assert(c->line == SCHED_LINE_QUEUE || (c->tree.n == 0 && !c->is_front));
	assert(!c->is_resident || c->level == SCHED_PRIORITY_CRITICAL);
	assert(!c->is_resident || !fit_exclusive(sched, c->gpu));
}

/* One client a GPU copies, and it is idle. */
static void check_ahead(const struct sched *sched, uint32_t client)
{
	const struct sched_client *c = &sched->clients[client];
	bool is_told = c->ahead == SCHED_AHEAD_TOLD;

	assert(is_told == (sched->gpus[c->gpu].ahead == client));
	assert(c->ahead == SCHED_AHEAD_NONE || c->state == SCHED_CLIENT_IDLE);
	assert(!is_told ||
	       (c->copies_ahead && !c->is_ahead_owed && !c->is_hung && c->task == SCHED_TASK_NONE));
}

/* A woken client waits, an early one has a short turn, and a displaced one is on its way back. */
static void check_sleeper(const struct sched_client *c)
{
	assert(c->waking == SCHED_WAKING_NOT || c->line == SCHED_LINE_QUEUE);
	assert(c->waking == SCHED_WAKING_NOT || c->state == SCHED_CLIENT_WAITING);
	assert(!c->is_early || c->is_guest);
	assert(!c->is_guest || c->state >= SCHED_CLIENT_INCOMING);
	assert(!c->is_displaced || c->state == SCHED_CLIENT_WAITING ||
	       c->state == SCHED_CLIENT_INCOMING || c->state == SCHED_CLIENT_STOPPING);
}

/* Without the padding at the end, which a compiler may leave as it is. */
#define SUMS_BYTES (offsetof(struct sched_sums, n_busy) + sizeof(uint32_t))

struct counts {
	uint32_t n_clients, n_queue, n_coming, n_told, n_near, n_woken, n_place[SCHED_PLACE_COUNT_];
	uint32_t n_copied;
	struct sched_sums sums;
};

static void check_client(const struct sched *sched, uint32_t client, struct counts *counts)
{
	const struct sched_client *c = &sched->clients[client];
	struct sched_sums sums = fit_sums_of(sched, client);

	assert(memcmp(&sums, &c->counted, SUMS_BYTES) == 0);
	assert(c->place == fit_place(c));
	fit_sums_add(&counts->sums, &sums, 1);
	counts->n_clients++;
	counts->n_queue += c->line == SCHED_LINE_QUEUE;
	counts->n_coming += c->line == SCHED_LINE_COMING;
	counts->n_told += c->prepare == SCHED_PREPARE_NOW;
	counts->n_near += c->prepare == SCHED_PREPARE_SOON;
	counts->n_woken += c->waking == SCHED_WAKING_SOON;
	counts->n_copied += c->ahead == SCHED_AHEAD_DONE;
	counts->n_place[c->place]++;
	check_state(c);
	check_debts(c);
	check_timers(sched, c);
	check_policy(sched, client);
	check_ahead(sched, client);
	check_sleeper(c);
}

/* Nobody waits for a place that is there, but on a GPU that is out. */
static void check_work_conserving(const struct sched *sched, const struct sched_gpu *g)
{
	for (uint32_t i = g->queue.first; i != SCHED_NONE && !g->is_dirty && !g->is_out;
	     i = sched->clients[i].link[SCHED_LINK_LINE].next) {
		uint32_t able = queue_able(sched, i);

		if (able == SCHED_NONE)
			continue;
		/* A gang may have it next, and wait for its last GPU. */
		if (g->head != SCHED_NONE && gang_is_bound(sched, g->head) &&
		    turn_head_is_held_up(sched, g->head))
			break;
		/* The GPU is kept for a gang that makes way, but not from critical clients. */
		if (g->sums.n_displaced > 0 &&
		    (able != g->queue.first || !sched->clients[able].is_resident))
			break;
		assert(!fit_beside(sched, able) || g->coming.n > 0);
		break;
	}
}

/* Nobody is near for ever, or where that is switched off; and few are. */
static void check_forecast(const struct sched *sched, const struct sched_gpu *g, uint32_t n_near)
{
	const struct sched_forecast *f = &g->forecast;

	assert(n_near == count_list(sched, &f->near, SCHED_LINK_TOLD));
	assert(n_near <= FORECAST_NEAR_MAX);
	if (n_near == 0 || g->is_dirty)
		return;
	assert(sched->config.prepare_ns > 0 && g->n_clients > 1);
	assert(f->growth_ends_ns > sched->now_ns || f->newcomer_ends_ns > sched->now_ns ||
	       g->wake_ns <= sched->now_ns);
	assert(g->wake_ns <= f->growth_ends_ns || g->wake_ns <= f->newcomer_ends_ns);
}

static void check_gpu(const struct sched *sched, uint32_t gpu)
{
	const struct sched_gpu *g = &sched->gpus[gpu];
	struct counts counts = {0};

	for (uint32_t i = 0; i < sched->n_clients; i++) {
		const struct sched_client *c = &sched->clients[i];

		if (c->state != SCHED_CLIENT_FREE && c->gpu == gpu)
			check_client(sched, i, &counts);
	}
	assert(memcmp(&counts.sums, &g->sums, SUMS_BYTES) == 0);
	assert(counts.n_clients == g->n_clients);
	assert(counts.n_queue == count_list(sched, &g->queue, SCHED_LINK_LINE));
	assert(counts.n_coming == count_list(sched, &g->coming, SCHED_LINK_LINE));
	assert(counts.n_told == count_list(sched, &g->told, SCHED_LINK_TOLD));
	for (int place = SCHED_PLACE_NONE + 1; place < SCHED_PLACE_COUNT_; place++)
		assert(counts.n_place[place] ==
		       count_list(sched, &g->place[place], SCHED_LINK_PLACE));
	assert(g->restoring == SCHED_NONE ||
	       sched->clients[g->restoring].task == SCHED_TASK_RESTORE);
	assert(g->head == SCHED_NONE || sched->clients[g->head].line == SCHED_LINE_QUEUE);
	assert(counts.n_woken == count_list(sched, &g->woken, SCHED_LINK_WOKEN));
	assert(counts.n_copied == count_list(sched, &g->copied, SCHED_LINK_COPIED));
	check_forecast(sched, g, counts.n_near);
	if (g->ahead != SCHED_NONE && !g->is_dirty)
		assert(g->sums.asked == 0 && g->coming.n == 0 && g->wake_ns <= g->ahead_until_ns);
	check_queue(sched, g);
	check_work_conserving(sched, g);
}

/* A gang's members together, computed anew. */
struct gang_facts {
	bool is_broken;
	bool is_paused;   /* somebody who runs is, and can be stopped */
	bool has_drainer; /* somebody who drains runs, and can be stopped, or stops */
	bool has_failed;  /* such a stop has */
	uint32_t growing; /* bits: GPUs where somebody who runs waits for memory; turns are off */
};

static bool member_counts(const struct sched_client *c)
{
	return !c->is_hung && !c->is_fixed;
}

static bool member_stays(const struct sched_client *c)
{
	return c->state == SCHED_CLIENT_RUNNING && (c->is_resident || c->is_not_preemptible);
}

static bool member_is_drainer(const struct sched *sched, const struct sched_client *c)
{
	if (!c->drains || !member_counts(c))
		return false;
	return c->state == SCHED_CLIENT_STOPPING ||
	       (c->state == SCHED_CLIENT_RUNNING && !member_stays(c) &&
		!sched->gpus[c->gpu].is_out);
}

/*
 * No member goes on while another one does not, and wants to; but those that nobody can stop. Those
 * that drain stop first: the others go on until none of them runs or stops. After one could not be
 * stopped, all go on.
 */
static void check_bound(const struct sched *sched, uint32_t gang, const struct gang_facts *facts)
{
	bool is_off = facts->is_broken && !facts->has_failed;
	bool is_growing =
		sched->clients[gang].gang_here.is_bound && !facts->is_broken && facts->growing != 0;

	for (uint32_t i = sched->clients[gang].gang_here.members.first; i != SCHED_NONE;
	     i = sched->clients[i].link[SCHED_LINK_GANG].next) {
		const struct sched_client *c = &sched->clients[i];
		bool drains = member_is_drainer(sched, c);
		bool is_first = drains || !facts->has_drainer;

		if (!member_counts(c))
			continue;
		assert(c->state != SCHED_CLIENT_INCOMING || !facts->is_broken);
		if (c->state != SCHED_CLIENT_RUNNING)
			continue;
		assert(c->is_called_off == (is_off && is_first && !member_stays(c)));
		assert(c->is_behind == !is_first);
		assert(c->is_held == (facts->has_failed && !(drains && c->is_retrying)));
		assert(c->is_stuck == (is_growing && !(facts->growing & 1u << c->gpu)));
	}
}

static void check_gang(const struct sched *sched, uint32_t gang)
{
	const struct sched_gang *g = &sched->clients[gang].gang_here;
	struct gang_facts facts = {.is_broken = g->is_lacking};
	uint32_t n = 0;

	for (uint32_t i = g->members.first; i != SCHED_NONE;
	     i = sched->clients[i].link[SCHED_LINK_GANG].next) {
		const struct sched_client *c = &sched->clients[i];

		assert(c->gang == gang && c->state != SCHED_CLIENT_FREE);
		assert(!c->is_called || c->state == SCHED_CLIENT_WAITING);
		assert(!c->is_called_off || c->state >= SCHED_CLIENT_RUNNING);
		assert(!c->is_ready || c->state == SCHED_CLIENT_INCOMING);
		n++;
		if (!member_counts(c))
			continue;
		facts.is_broken = facts.is_broken || c->state == SCHED_CLIENT_WAITING ||
				  c->state == SCHED_CLIENT_STOPPING || c->is_asking;
		if (!sched->config.anti_thrash && c->state == SCHED_CLIENT_RUNNING &&
		    c->is_growing && c->line == SCHED_LINE_QUEUE)
			facts.growing |= 1u << c->gpu;
		facts.is_paused = facts.is_paused || (c->state == SCHED_CLIENT_RUNNING &&
						      c->is_paused && !c->is_not_preemptible);
		if (!g->is_bound || !member_is_drainer(sched, c))
			continue;
		facts.has_drainer = true;
		facts.has_failed =
			facts.has_failed || (c->state == SCHED_CLIENT_RUNNING && c->is_retrying);
	}
	assert(n == g->members.n && n <= SCHED_GANG_MAX);
	assert(g->is_due == (g->gpus != 0));
	assert(!g->makes_way || g->is_yielding);
	if (g->is_changed)
		return;
	assert(g->has_drainer == facts.has_drainer && g->is_held == facts.has_failed);
	assert(!g->is_yielding || (facts.has_drainer && !facts.has_failed));
	if (facts.has_drainer && (facts.is_paused || g->is_yielding))
		facts.is_broken = true;
	facts.is_broken = facts.is_broken && g->is_bound;
	check_bound(sched, gang, &facts);
}

/*
 * A gang that would fit beside all others has been chosen, once its GPUs have been looked at. They
 * may be kept for another gang, which makes way.
 */
static void check_gang_is_chosen(const struct sched *sched, uint32_t gang)
{
	const struct sched_gang *g = &sched->clients[gang].gang_here;
	uint32_t waits = SCHED_NONE;

	if (!g->is_bound || sched->changed != SCHED_NONE)
		return;
	for (uint32_t i = g->members.first; i != SCHED_NONE;
	     i = sched->clients[i].link[SCHED_LINK_GANG].next) {
		const struct sched_client *c = &sched->clients[i];
		const struct sched_gpu *gpu = &sched->gpus[c->gpu];

		if (c->state != SCHED_CLIENT_WAITING || !member_counts(c))
			continue;
		if (sched_gpu_is_due(gpu) || gpu->is_out || gpu->sums.n_displaced > 0 ||
		    gpu->queue.n > LINE_LOOK_AHEAD)
			return;
		/* It was put back, and waits for an event: else it might be chosen for ever. */
		if (c->spared_ns != SCHED_NO_DEADLINE && c->spared_ns >= c->since_ns)
			return;
		waits = i;
	}
	assert(waits == SCHED_NONE || !gang_fits_beside(sched, waits));
}

/* Where the first gang that wants a GPU could have all of its GPUs, it has been chosen. */
static void check_gangs(const struct sched *sched)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < sched->n_clients; i++) {
		check_gang(sched, i);
		check_gang_is_chosen(sched, i);
		n += sched->clients[i].gang_here.is_due;
		if (sched->clients[i].state == SCHED_CLIENT_FREE || sched->changed != SCHED_NONE)
			continue;
		if (sched->clients[i].state != SCHED_CLIENT_RUNNING || sched->clients[i].is_hung)
			continue;
		assert(sched->clients[i].gang != SCHED_NONE ||
		       !(sched->clients[i].is_called_off || sched->clients[i].is_behind ||
			 sched->clients[i].is_held || sched->clients[i].is_stuck));
	}
	assert(n == sched->due.n);
}

void sched_assert_valid(const struct sched *sched)
{
	assert(sched->out == NULL);
	check_owners(sched);
	check_gangs(sched);
	for (uint32_t gpu = 0; gpu < SCHED_GPUS_MAX; gpu++) {
		if (sched->gpus[gpu].is_known)
			check_gpu(sched, gpu);
	}
}
