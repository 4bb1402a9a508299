/* SPDX-License-Identifier: Apache-2.0 */

#include "core/gang/gang.h"

#include "core/act.h"
#include "core/fit.h"
#include "core/gang/gang_private.h"
#include "core/grant.h"
#include "core/list.h"
#include "core/policy/sleeper.h"
#include "core/turn.h"
#include "core/u64.h"

#include <assert.h>

#define SECOND_NS 1000000000ull

void gang_init(struct sched *sched)
{
	for (uint32_t i = 0; i < sched->n_clients; i++) {
		sched->clients[i].gang_here = (struct sched_gang){.next = SCHED_NONE};
		list_init(&sched->clients[i].gang_here.members);
	}
	sched->changed = SCHED_NONE;
	list_init(&sched->due);
}

void gang_mark(struct sched *sched, uint32_t gang)
{
	struct sched_gang *g = gang_at(sched, gang);

	if (g->is_changed)
		return;
	g->is_changed = true;
	g->next = sched->changed;
	sched->changed = gang;
}

void gang_change(struct sched *sched, uint32_t client)
{
	if (sched->clients[client].gang != SCHED_NONE)
		gang_mark(sched, sched->clients[client].gang);
}

void gang_leave(struct sched *sched, uint32_t client)
{
	struct sched_client *c = &sched->clients[client];
	uint32_t gang = c->gang;

	if (gang == SCHED_NONE)
		return;
	list_remove(LIST_SLOTS(sched->clients, SCHED_LINK_GANG), &gang_at(sched, gang)->members,
		    client);
	c->gang = SCHED_NONE;
	c->is_called = c->is_called_off = c->is_behind = c->is_held = c->is_stuck = false;
	grant_unready(c);
	if (c->state != SCHED_CLIENT_FREE)
		fit_change(sched, client);
	gang_mark(sched, gang);
}

int gang_join(struct sched *sched, const struct sched_event *event)
{
	struct sched_client *c = &sched->clients[event->client];
	struct sched_gang *g;

	if (c->state == SCHED_CLIENT_FREE)
		return SCHED_E_NO_CLIENT;
	if (event->gang != SCHED_NONE &&
	    (event->gang >= sched->n_clients ||
	     (event->gang != c->gang && gang_at(sched, event->gang)->members.n >= SCHED_GANG_MAX)))
		return SCHED_E_CONFIG;
	if (event->gang != c->gang)
		gang_leave(sched, event->client);
	if (event->gang == SCHED_NONE)
		return 0;
	g = gang_at(sched, event->gang);
	g->size = event->gang_size;
	gang_mark(sched, event->gang);
	if (event->gang == c->gang)
		return 0;
	if (g->members.n == 0)
		g->has_had = false;
	c->gang = event->gang;
	list_push_back(LIST_SLOTS(sched->clients, SCHED_LINK_GANG), &g->members, event->client);
	fit_change(sched, event->client);
	return 0;
}

/*
 * The bytes that members on gpu can have together; pinned of them are theirs already. Pager
 * contexts take of the reserve that pinned bytes of others would live in: together the members must
 * come beside both, as gang_member_is_able() has it.
 */
static uint64_t gang_limit(const struct sched *sched, uint32_t gpu, uint64_t pinned)
{
	uint64_t others = sched->gpus[gpu].sums.pinned - pinned;

	return u64_min(fit_usable(sched, gpu), u64_excess(fit_capacity(sched, gpu), others));
}

/*
 * Members on one GPU may need more than the card has. Or they are more than may be there, or come,
 * at once.
 */
static bool gang_is_apart(const struct sched *sched, uint32_t gang)
{
	uint64_t bytes[SCHED_GPUS_MAX] = {0}, pinned[SCHED_GPUS_MAX] = {0};
	uint32_t n[SCHED_GPUS_MAX] = {0};

	GANG_FOR_EACH(sched, gang, i)
	{
		const struct sched_client *c = &sched->clients[i];

		if (!gang_counts(c) && !gang_member_is_awaited(c))
			continue;
		/* It may not have said yet what it has made of its budget. */
		bytes[c->gpu] += u64_max(fit_footprint(c), fit_allowed(c));
		pinned[c->gpu] += c->counted.pinned;
		n[c->gpu]++;
	}
	for (uint32_t gpu = 0; gpu < SCHED_GPUS_MAX; gpu++) {
		if (n[gpu] > 1 && (bytes[gpu] > gang_limit(sched, gpu, pinned[gpu]) ||
				   n[gpu] > fit_degree(sched, gpu) || n[gpu] > TURN_PASSERS_MAX))
			return true;
	}
	return false;
}

/* The others of its gang wait for a turn that goes with its own. */
static bool member_stays(const struct sched_client *c)
{
	return c->state == SCHED_CLIENT_RUNNING && (c->is_resident || c->is_not_preemptible);
}

/*
 * It runs or stops, and its kernels may wait for those of the others until they end. So the others
 * stop after it. On a GPU that is out nobody is stopped.
 */
static bool member_drains(const struct sched *sched, const struct sched_client *c)
{
	if (!c->drains || !gang_counts(c) || member_stays(c))
		return false;
	return c->state == SCHED_CLIENT_STOPPING ||
	       (c->state == SCHED_CLIENT_RUNNING && !sched->gpus[c->gpu].is_out);
}

static bool member_has_failed(const struct sched_client *c)
{
	return c->state == SCHED_CLIENT_RUNNING && c->is_retrying;
}

static bool member_is_off(const struct sched_client *c)
{
	if (member_stays(c))
		return true;
	return c->state == SCHED_CLIENT_WAITING || (c->state == SCHED_CLIENT_IDLE && !c->is_asking);
}

void gang_look_at_gpus(struct sched *sched, uint32_t gang)
{
	GANG_FOR_EACH(sched, gang, i)
	{
		sched->gpus[sched->clients[i].gpu].is_dirty = true;
	}
}

static void gang_change_displaced(struct sched *sched, uint32_t gang)
{
	GANG_FOR_EACH(sched, gang, i)
	{
		const struct sched_client *c = &sched->clients[i];

		if (c->is_displaced && c->state == SCHED_CLIENT_STOPPING)
			fit_change(sched, i);
	}
}

static void gang_count_drainers(struct sched *sched, uint32_t gang)
{
	struct sched_gang *g = gang_at(sched, gang);

	g->has_drainer = g->is_held = false;
	if (!g->is_bound)
		return;
	GANG_FOR_EACH(sched, gang, i)
	{
		const struct sched_client *c = &sched->clients[i];

		if (!member_drains(sched, c))
			continue;
		g->has_drainer = true;
		g->is_held = g->is_held || member_has_failed(c);
	}
}

static void gang_count_one(struct sched *sched, uint32_t gang)
{
	struct sched_gang *g = gang_at(sched, gang);
	bool had_drainer = g->has_drainer;
	bool was_bound = g->is_bound, was_lacking = g->is_lacking, was_off = g->is_off;
	bool was_stopping = g->is_stopping;
	bool is_displaced = false;
	uint32_t n = 0, n_awaited = 0, had_n = g->n_counted;

	g->has_had = g->members.n > 0 && (g->has_had || g->members.n >= g->size);
	g->is_off = true;
	g->is_stopping = false;
	GANG_FOR_EACH(sched, gang, i)
	{
		const struct sched_client *c = &sched->clients[i];

		n_awaited += gang_member_is_awaited(c);
		if (!gang_counts(c))
			continue;
		n++;
		g->is_off = g->is_off && member_is_off(c);
		g->is_stopping = g->is_stopping || gang_member_holds_up(c);
		is_displaced = is_displaced || c->is_displaced;
	}
	/* Nobody of it is left to stop, and it may be chosen again in this very step. */
	if (g->is_off)
		g->is_yielding = g->makes_way = false;
	g->is_stopping = g->is_stopping || g->is_yielding;
	g->n_counted = n;
	g->is_apart = n + n_awaited > 1 && gang_is_apart(sched, gang);
	g->is_lacking = (!g->has_had && g->members.n > 0) || (n_awaited > 0 && !g->is_apart);
	g->is_bound = g->is_lacking || (n > 1 && !g->is_apart);
	gang_count_drainers(sched, gang);
	/* Members that make way count as those of a gang, or as single clients. */
	if (g->is_bound != was_bound)
		gang_change_displaced(sched, gang);
	/*
	 * The last member that stops may rest then, and another one may leave or hang: nothing more
	 * happens on the GPUs of those that wait. GPUs are kept for one that is displaced: not
	 * until somebody else has an event.
	 */
	if (g->is_bound != was_bound || g->is_lacking != was_lacking || n < had_n ||
	    (was_stopping && !g->is_stopping) || (had_drainer && !g->has_drainer) ||
	    (is_displaced && g->is_off != was_off))
		gang_look_at_gpus(sched, gang);
}

void gang_count(struct sched *sched)
{
	for (uint32_t gang = sched->changed; gang != SCHED_NONE; gang = gang_at(sched, gang)->next)
		gang_count_one(sched, gang);
}

/* Somebody of it wants to run, and does not; or is about to stop. */
static bool gang_is_broken(const struct sched *sched, uint32_t gang)
{
	const struct sched_gang *g = gang_at(sched, gang);

	GANG_FOR_EACH(sched, gang, i)
	{
		const struct sched_client *c = &sched->clients[i];

		if (!gang_counts(c))
			continue;
		if (c->state == SCHED_CLIENT_WAITING || c->state == SCHED_CLIENT_STOPPING ||
		    c->is_asking || (g->has_drainer && gang_member_is_to_pause(c)))
			return true;
	}
	return g->is_lacking || g->is_yielding;
}

/*
 * Bits: GPUs where a member that runs waits for memory, while nobody is stopped for a turn. Those
 * on other GPUs wait for its kernels, so they can be stopped as it can: else two gangs that grow
 * would wait for each other on two GPUs.
 */
static uint32_t gang_growing_gpus(const struct sched *sched, uint32_t gang)
{
	uint32_t gpus = 0;

	if (sched->config.anti_thrash)
		return 0;
	GANG_FOR_EACH(sched, gang, i)
	{
		const struct sched_client *c = &sched->clients[i];

		if (gang_counts(c) && c->state == SCHED_CLIENT_RUNNING && c->is_growing &&
		    c->line == SCHED_LINE_QUEUE)
			gpus |= 1u << c->gpu;
	}
	return gpus;
}

/* Members that drain are called off first, then all others. */
static void member_set(struct sched *sched, uint32_t client, bool is_broken, uint32_t growing_gpus)
{
	struct sched_client *c = &sched->clients[client];
	const struct sched_gang *g = gang_at(sched, c->gang);
	bool runs = c->state == SCHED_CLIENT_RUNNING, drains = member_drains(sched, c);
	bool is_behind = runs && g->has_drainer && !drains;
	bool is_held = runs && g->is_held && !(drains && member_has_failed(c));
	bool is_off = runs && is_broken && !g->is_held && !is_behind && !member_stays(c);
	bool is_stuck = runs && growing_gpus != 0 && !(growing_gpus & 1u << c->gpu);

	if (c->is_behind == is_behind && c->is_held == is_held && c->is_stuck == is_stuck &&
	    (c->is_called_off == is_off || !runs))
		return;
	c->is_behind = is_behind;
	c->is_held = is_held;
	c->is_stuck = is_stuck;
	if (runs)
		c->is_called_off = is_off;
	fit_change(sched, client);
}

/* false: there is no room for all of the actions. */
static bool gang_apply(struct sched *sched, uint32_t gang)
{
	struct sched_gang *g = gang_at(sched, gang);
	uint32_t growing_gpus = 0;
	bool is_broken;

	/* Its drainers have stopped, or one could not: then the client that comes waits again. */
	if (!g->has_drainer || g->is_held)
		g->is_yielding = g->makes_way = false;
	is_broken = g->is_bound && gang_is_broken(sched, gang);
	if (g->is_bound && !is_broken)
		growing_gpus = gang_growing_gpus(sched, gang);
	GANG_FOR_EACH(sched, gang, i)
	{
		struct sched_client *c = &sched->clients[i];

		if (!gang_counts(c))
			continue;
		member_set(sched, i, is_broken, growing_gpus);
		/*
		 * The room that it is to get would be of no use to it now. While others drain, a
		 * member that runs may still use it.
		 */
		if (is_broken && c->line == SCHED_LINE_COMING && !member_stays(c) &&
		    (c->state == SCHED_CLIENT_INCOMING || c->is_called_off)) {
			bool was_early = c->is_early;

			if (!act_has_room(sched))
				return false;
			turn_put_back(sched, i);
			/* It comes early again, with the one that has woken meanwhile. */
			if (was_early)
				sleeper_wait(sched, i);
		}
		if (c->is_ready && !g->is_bound) {
			grant_unready(c); /* it waits for nobody any more */
			fit_change(sched, i);
		}
		if (c->is_ready && gang_is_ready(sched, i))
			sched->gpus[c->gpu].is_dirty = true;
	}
	return true;
}

bool gang_yields(struct sched *sched, uint32_t client, bool is_early)
{
	uint32_t gang = sched->clients[client].gang;
	bool has_drainer = false, has_failed = false;
	struct sched_gang *g;

	if (!gang_is_bound(sched, client) || member_drains(sched, &sched->clients[client]))
		return false;
	GANG_FOR_EACH(sched, gang, i)
	{
		const struct sched_client *c = &sched->clients[i];

		if (!member_drains(sched, c))
			continue;
		has_drainer = true;
		has_failed = has_failed || member_has_failed(c);
	}
	if (!has_drainer)
		return false;
	/* After a failed stop all members are held, and the client that comes waits again. */
	g = gang_at(sched, gang);
	if (!has_failed && !g->is_yielding) {
		g->is_yielding = true;
		g->makes_way = is_early;
		gang_mark(sched, gang);
	}
	return true;
}

/* Victims and members each have an answer's time, and their bytes come on top. */
uint64_t gang_patience_ns(const struct sched *sched, uint32_t client)
{
	uint64_t bytes = 0;

	GANG_FOR_EACH(sched, sched->clients[client].gang, i)
	{
		bytes += fit_footprint(&sched->clients[i]);
	}
	return 4 * sched->config.answer_ns + 2 * (bytes >> 30) * SECOND_NS;
}

void gang_late(struct sched *sched, uint32_t client)
{
	uint32_t gang = sched->clients[client].gang;

	GANG_FOR_EACH(sched, gang, i)
	{
		struct sched_client *c = &sched->clients[i];

		if (c->state != SCHED_CLIENT_INCOMING || !act_has_room(sched))
			continue;
		turn_put_back(sched, i);
		c->is_resting = true;
		c->retry_ns = sched->now_ns + sched->config.retry_ns;
		fit_change(sched, i);
	}
}

bool gang_settle(struct sched *sched)
{
	bool has_changed = sched->changed != SCHED_NONE;

	while (sched->changed != SCHED_NONE) {
		uint32_t gang = sched->changed;
		struct sched_gang *g = gang_at(sched, gang);

		/* It stays marked meanwhile: a second look would change nothing more. */
		sched->changed = g->next;
		gang_count_one(sched, gang);
		if (!gang_apply(sched, gang)) {
			g->is_changed = false;
			gang_mark(sched, gang);
			return true;
		}
		gang_count_one(sched, gang);
		gang_set_due(sched, gang);
		g->is_changed = false;
		g->next = SCHED_NONE;
	}
	if (!has_changed)
		return false;
	for (uint32_t gpu = 0; gpu < SCHED_GPUS_MAX; gpu++) {
		if (sched->gpus[gpu].is_dirty)
			return true;
	}
	return false;
}

bool sched_gang_is_apart(const struct sched *sched, uint32_t gang)
{
	assert(gang < sched->n_clients);
	return gang_at(sched, gang)->is_apart;
}

void sched_gang_status(const struct sched *sched, uint32_t gang, struct sched_gang_status *ret)
{
	const struct sched_gang *g = gang_at(sched, gang);

	assert(gang < sched->n_clients);
	*ret = (struct sched_gang_status){
		.n_members = g->members.n,
		.size = g->size,
		.is_apart = g->is_apart,
	};
	GANG_FOR_EACH(sched, gang, i)
	{
		enum sched_client_state state = sched->clients[i].state;

		ret->n_running += state == SCHED_CLIENT_RUNNING || state == SCHED_CLIENT_STOPPING;
		ret->n_waiting += state == SCHED_CLIENT_WAITING || state == SCHED_CLIENT_INCOMING;
	}
}
