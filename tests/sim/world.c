/* SPDX-License-Identifier: Apache-2.0 */
#include "world.h"

#include "core/fit.h"
#include "world_turns.h"
#include "world_users.h"

#include <assert.h>
#include <string.h>

void world_copy(struct world *to, const struct world *from)
{
	*to = *from;
	to->sched.clients = to->clients;
}

uint64_t world_used(const struct world_proc *proc)
{
	return proc->resident + proc->pinned;
}

/* What it may have without another word from the scheduler. */
static uint64_t world_may_have(const struct world_proc *proc)
{
	uint64_t used = world_used(proc);
	bool may_take = proc->is_open || proc->work == WORLD_WORK_RESTORE;

	return may_take && proc->budget > used ? proc->budget : used;
}

uint64_t world_on_card(const struct world *world, uint32_t gpu)
{
	uint64_t bytes = 0;

	for (uint32_t p = 0; p < WORLD_PROCS; p++) {
		if (world->procs[p].is_alive && world->procs[p].gpu == gpu)
			bytes += world_used(&world->procs[p]);
	}
	return bytes;
}

/* ---- what must always be true ------------------------------------------------ */

static void world_check_proc(const struct world *world, uint32_t p)
{
	const struct world_proc *proc = &world->procs[p];
	const struct sched_client *c = &world->clients[p];

	lease_assert_valid(&proc->lease);
	assert(proc->resident + proc->swapped == proc->owned);
	assert(proc->is_open == (lease_is_open(&proc->lease) && proc->has_begun));
	/* Nobody runs while bytes of it are out. */
	assert(!proc->is_open || proc->swapped == 0);
	if (!proc->is_joined || !proc->is_linked)
		return;
	/* Nobody runs without a grant. */
	if (proc->is_open)
		assert(c->state == SCHED_CLIENT_RUNNING || c->state == SCHED_CLIENT_STOPPING);
	/* Nobody has, or may take, more than is charged to it. (One that waits with its gate
	 * closed may hear of a smaller budget only with its grant.) */
	if (proc->budget != LEASE_UNLIMITED && proc->lease.state != LEASE_ASKED)
		assert(proc->budget <= fit_charge(c));
	if (world->is_strict)
		assert(world_used(proc) <= fit_charge(c));
}

void world_check(const struct world *world)
{
	uint32_t n_open[WORLD_GPUS] = {0};
	uint64_t on_card[WORLD_GPUS] = {0};
	uint64_t may_have[WORLD_GPUS] = {0};

	for (uint32_t p = 0; p < WORLD_PROCS; p++) {
		const struct world_proc *proc = &world->procs[p];

		if (!proc->is_alive)
			continue;
		world_check_proc(world, p);
		on_card[proc->gpu] += world_used(proc);
		if (world->is_strict)
			may_have[proc->gpu] += world_may_have(proc);
		n_open[proc->gpu] += proc->is_open && proc->is_joined && proc->is_linked &&
				     !world->clients[p].is_hung;
	}
	for (uint32_t g = 0; g < WORLD_GPUS; g++) {
		assert(on_card[g] <= world->total[g]);
		if (world->is_strict) {
			assert(on_card[g] <= fit_room(&world->sched, g));
			/* Nor will there be too much, whatever they do with what they were given.
			 */
			assert(may_have[g] <= fit_room(&world->sched, g));
		}
		if (world->is_strict && !world->may_overlap)
			assert(n_open[g] <= fit_degree(&world->sched, g));
	}
}

/*
 * p has enough once all pageable bytes of the others are out: what it has and wanted bytes fit
 * beside what the others have pinned, of which the reserve takes its part. As far as the scheduler
 * knows. What a coming client is to pin is as good as pinned; was_coming, unless NULL, are those
 * that came until now: the step that has refused p may have put one back. Bytes of one that does
 * not answer are not out before it does.
 */
static bool world_could_have(const struct world *world, uint32_t p, uint64_t wanted,
			     const bool *was_coming)
{
	const struct sched_client *c = &world->clients[p];
	uint64_t usable = fit_usable(&world->sched, c->gpu);
	uint64_t spare = fit_room(&world->sched, c->gpu) - usable, pinned = 0, kept = 0;

	for (uint32_t q = 0; q < WORLD_PROCS; q++) {
		const struct sched_client *other = &world->clients[q];

		if (q == p || other->state == SCHED_CLIENT_FREE || other->gpu != c->gpu)
			continue;
		pinned += other->memory.pinned + other->promised;
		if (other->line == SCHED_LINE_COMING || (was_coming && was_coming[q]))
			pinned += other->memory.wanted_pinned;
		kept += other->is_hung ? fit_pageable(other) : 0;
	}
	return fit_charge(c) + c->memory.swapped + wanted + kept +
		       (pinned > spare ? pinned - spare : 0) <=
	       usable;
}

/* All that hold the card can be stopped, so that waiting has no other reason than turns. */
static bool world_takes_turns(const struct world *world, uint32_t gpu)
{
	if (!world->config.anti_thrash)
		return false;
	for (uint32_t p = 0; p < WORLD_PROCS; p++) {
		const struct sched_client *c = &world->clients[p];

		if (c->state != SCHED_CLIENT_FREE && c->gpu == gpu &&
		    (c->is_resident || c->is_hung || c->is_retrying || c->is_not_preemptible))
			return false;
	}
	return true;
}

bool world_is_locked_out(const struct world *world, uint32_t p)
{
	const struct sched_client *c = &world->clients[p];

	return world->procs[p].is_joined && c->state != SCHED_CLIENT_FREE &&
	       !world_could_have(world, p, c->memory.wanted + c->memory.wanted_pinned, NULL);
}

/* ---- the scheduler's side ------------------------------------------------------ */

void world_push(struct world_queue *queue, const struct world_msg *msg)
{
	assert(queue->n < WORLD_QUEUE);
	queue->at[queue->n++] = *msg;
}

struct world_msg world_pop(struct world_queue *queue)
{
	struct world_msg msg = queue->at[0];

	assert(queue->n > 0);
	queue->n--;
	memmove(&queue->at[0], &queue->at[1], queue->n * sizeof(queue->at[0]));
	memset(&queue->at[queue->n], 0, sizeof(queue->at[0]));
	return msg;
}

static void world_note(struct world *world, const struct sched_action *a)
{
	const uint64_t parts[] = {a->type,  a->client, a->grant,    a->epoch, a->budget,
				  a->bytes, a->due_ms, a->position, a->why,   a->report};

	for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++)
		world->hash = (world->hash ^ parts[i]) * 0x100000001b3ull;
	world->n_grants += a->type == SCHED_ACTION_GRANT;
	world->n_drops += a->type == SCHED_ACTION_DROP;
	world->n_early += a->type == SCHED_ACTION_GRANT && world->clients[a->client].is_early;
	world->n_refused += a->type == SCHED_ACTION_REFUSE;
	world->n_ahead += a->type == SCHED_ACTION_BUDGET &&
			  world->clients[a->client].state == SCHED_CLIENT_WAITING;
	if (a->type == SCHED_ACTION_REPORT && a->report == SCHED_REPORT_HUNG) {
		world->n_hung++;
		world->may_overlap = true;
	}
}

int world_step(struct world *world, struct sched_event *event)
{
	struct sched_actions actions;
	struct world_before before;
	const struct world_users users = world->users;
	int r;

	event->now_ns = world->now;
	world_look(world, event, &before);
	r = sched_step(&world->sched, event, &actions);
	if (world->has_users)
		world_look_users(world, &world->users);
	if (event->type == SCHED_EVENT_CONFIG)
		memset(world->n_passed, 0, sizeof(world->n_passed));
	else if (world->has_users)
		world_check_users(world, &users);
	world->n_steps++;
	for (uint32_t i = 0; i < actions.n; i++) {
		const struct sched_action *a = &actions.at[i];
		struct world_msg msg = {.type = a->type,
					.grant = a->grant,
					.epoch = a->epoch,
					.budget = a->budget,
					.bytes = a->bytes,
					.due_ms = a->due_ms};

		world_note(world, a);
		/*
		 * No error while a turn could bring what is lacking. With gangs a card may be
		 * empty, and its reserve be full of pager contexts all the same.
		 */
		if (a->type == SCHED_ACTION_REFUSE && world->is_strict && !world->has_gangs &&
		    world_takes_turns(world, world->clients[a->client].gpu))
			assert(!world_could_have(world, a->client, a->bytes, before.is_coming));
		/* Nobody is served who cannot answer, and nobody is stopped for it. */
		if (a->type == SCHED_ACTION_GRANT || a->type == SCHED_ACTION_BUDGET)
			assert(!world->clients[a->client].is_hung);
		if (a->type == SCHED_ACTION_DROP && a->to != SCHED_NONE)
			assert(!world->clients[a->to].is_hung);
		if (a->type == SCHED_ACTION_BUDGET)
			before.is_blocked[a->client] = false; /* it has what it waited for */
		if (a->type == SCHED_ACTION_DROP && a->grant)
			world_check_stop(world, a->client, &before);
		/* More than the card: it may try to run with what it owns, and nothing more. */
		if (a->type == SCHED_ACTION_GRANT &&
		    world->clients[a->client].load_bytes < world->clients[a->client].budget_target)
			world->procs[a->client].is_cut = false;
		if (a->type == SCHED_ACTION_REPORT || a->type == SCHED_ACTION_WAIT)
			continue;
		if (!world->procs[a->client].is_joined)
			continue; /* its connection has just ended */
		world_push(&world->procs[a->client].down, &msg);
		if (world->on_down)
			world->on_down(world, a->client);
	}
	return r;
}

/* As NVML would show it: what is on the card and not the scheduler's clients'. */
static void world_tell_external(struct world *world, uint32_t gpu)
{
	struct sched_event event = {.type = SCHED_EVENT_GPU, .gpu = gpu};

	for (uint32_t p = 0; p < WORLD_PROCS; p++) {
		const struct world_proc *proc = &world->procs[p];

		if (proc->is_alive && proc->gpu == gpu && !proc->is_joined)
			event.external += world_used(proc);
	}
	event.bytes = world->total[gpu];
	/* What the copies do measure (world_client.h), on one card; the other one tells nothing. */
	event.link_bandwidth = gpu == 0 ? 1000000000ull : 0;
	world->external[gpu] = event.external;
	(void)world_step(world, &event);
}

void world_refresh_external(struct world *world, uint32_t gpu)
{
	uint64_t external = 0;

	for (uint32_t p = 0; p < WORLD_PROCS; p++) {
		const struct world_proc *proc = &world->procs[p];

		if (proc->is_alive && proc->gpu == gpu && !proc->is_joined)
			external += world_used(proc);
	}
	if (external != world->external[gpu])
		world_tell_external(world, gpu);
}

void world_gone(struct world *world, uint32_t p)
{
	struct sched_event event = {.type = SCHED_EVENT_LEAVE, .client = p};

	assert(world->procs[p].is_joined);
	world->procs[p].is_joined = false;
	memset(&world->procs[p].up, 0, sizeof(world->procs[p].up));
	memset(&world->procs[p].down, 0, sizeof(world->procs[p].down));
	world_refresh_external(world, world->procs[p].gpu);
	(void)world_step(world, &event);
}

void world_init(struct world *world, const struct sched_config *config, const uint64_t *total)
{
	memset(world, 0, sizeof(*world));
	world->config = *config;
	world->hash = 0xcbf29ce484222325ull;
	sched_init(&world->sched, world->clients, WORLD_PROCS, config);
	for (uint32_t g = 0; g < WORLD_GPUS; g++) {
		world->total[g] = total[g];
		world_tell_external(world, g);
	}
}

void world_configure(struct world *world)
{
	struct sched_gpu_config configs[SCHED_GPUS_MAX];
	struct sched_event event = {.type = SCHED_EVENT_CONFIG, .config = &world->config};

	for (uint32_t g = 0; g < SCHED_GPUS_MAX; g++)
		configs[g] = g < WORLD_GPUS ? world->own[g] : sched_gpu_config_of(&world->config);
	if (world->has_own)
		event.gpu_configs = configs;
	assert(world_step(world, &event) == 0);
}

void world_restart(struct world *world)
{
	for (uint32_t p = 0; p < WORLD_PROCS; p++) {
		world->procs[p].is_joined = false;
		memset(&world->procs[p].up, 0, sizeof(world->procs[p].up));
		memset(&world->procs[p].down, 0, sizeof(world->procs[p].down));
	}
	memset(world->n_passed, 0, sizeof(world->n_passed));
	memset(&world->users, -1, sizeof(world->users));
	sched_init(&world->sched, world->clients, WORLD_PROCS, &world->config);
	for (uint32_t g = 0; g < WORLD_GPUS; g++)
		world_tell_external(world, g);
	world_configure(world);
}
