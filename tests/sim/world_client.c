/* SPDX-License-Identifier: Apache-2.0 */
#include "world_client.h"

#include "core/fit.h"

#include <assert.h>
#include <string.h>

#define WORLD_PARTIAL     7   /* as an outcome: NVSHARE_OUTCOME_PARTIAL */
#define WORLD_SECOND_PART 128 /* of a card, that a second context takes */

/* ---- a client's side ------------------------------------------------------------ */

static struct sched_memory world_memory(const struct world_proc *proc)
{
	uint64_t used = world_used(proc);
	uint64_t unused = proc->budget > used ? proc->budget - used : 0;
	uint64_t lack = proc->lack > unused ? proc->lack - unused : 0;

	return (struct sched_memory){
		.resident = proc->resident,
		.swapped = proc->swapped,
		.pinned = proc->pinned,
		.pager_context = proc->second,
		.wanted = proc->is_lack_pinned ? 0 : lack,
		.wanted_pinned = proc->is_lack_pinned ? lack : 0,
	};
}

static void world_send(struct world *world, uint32_t p, struct world_msg msg)
{
	struct world_proc *proc = &world->procs[p];
	uint64_t used = world_used(proc);

	if (!proc->is_joined)
		return; /* the connection has ended, and it does not know yet */
	msg.memory = world_memory(proc);
	msg.stops = proc->drains ? SCHED_STOPS_DRAINING : SCHED_STOPS_FREEZING;
	msg.moved = proc->moved;
	proc->moved = 0;
	msg.budget = proc->budget == LEASE_UNLIMITED || proc->budget < used ? used : proc->budget;
	if (msg.type == SCHED_EVENT_RELEASED)
		msg.budget = msg.outcome ? proc->lease.budget : used;
	world_push(&proc->up, &msg);
	if (world->on_up)
		world->on_up(world, p);
}

/* Some do, and none of the small worlds, whose states are to be few. */
static bool world_copies_ahead(uint32_t p)
{
	return WORLD_PROCS > 3 && p % 3 != 0;
}

static void world_begin(struct world *world, uint32_t p, enum world_work work, uint64_t bytes)
{
	struct world_proc *proc = &world->procs[p];

	assert(proc->work == WORLD_WORK_NONE);
	proc->work = work;
	proc->work_bytes = bytes;
	if (world->on_work)
		world->on_work(world, p);
}

/* What it has not used of its budget goes by itself; who has stopped says so at once. */
static void world_evict(struct world *world, uint32_t p, uint64_t bytes)
{
	struct world_proc *proc = &world->procs[p];
	uint64_t used = world_used(proc), unused = proc->charge > used ? proc->charge - used : 0;

	if (unused && proc->lease.work != LEASE_WORK_DROP)
		world_send(
			world, p,
			(struct world_msg){.type = SCHED_EVENT_MEMORY, .epoch = proc->lease.epoch});
	proc->charge = 0;
	world_begin(world, p, WORLD_WORK_EVICT, bytes > unused ? bytes - unused : 0);
}

static void world_act(struct world *world, uint32_t p, const struct lease_action *action)
{
	struct world_proc *proc = &world->procs[p];

	switch (action->type) {
	case LEASE_ACTION_SEND_REQ:
		world_send(world, p, (struct world_msg){.type = SCHED_EVENT_REQUEST});
		break;
	case LEASE_ACTION_SEND_RELEASED:
		world_send(world, p,
			   (struct world_msg){.type = SCHED_EVENT_RELEASED,
					      .grant = action->grant,
					      .epoch = action->epoch,
					      .outcome = action->outcome,
					      .is_part = action->outcome == WORLD_PARTIAL,
					      .wants = action->wants});
		break;
	case LEASE_ACTION_SEND_MEMORY:
		world_send(
			world, p,
			(struct world_msg){.type = SCHED_EVENT_MEMORY, .epoch = proc->lease.epoch});
		break;
	case LEASE_ACTION_SET_BUDGET:
		proc->budget = action->budget;
		break;
	case LEASE_ACTION_REFUSE:
		proc->is_cut = false;
		proc->lack = 0;
		break;
	case LEASE_ACTION_OPEN:
		proc->is_open = true;
		proc->has_begun = true;
		break;
	case LEASE_ACTION_CLOSE:
		assert(!proc->has_begun);
		proc->has_begun = true;
		break;
	case LEASE_ACTION_DRAIN:
		proc->is_open = false;
		world_begin(world, p, WORLD_WORK_DRAIN, 0);
		break;
	case LEASE_ACTION_EVICT:
		world_evict(world, p, action->bytes);
		break;
	case LEASE_ACTION_RESTORE:
		world_begin(world, p, WORLD_WORK_RESTORE, 0);
		break;
	case LEASE_ACTION_PREPARE:
		proc->is_watched = action->due_ms > 0;
		break;
	case LEASE_ACTION_ORPHAN_TIMER:
		break;
	}
}

/*
 * The blocked allocation goes on as soon as it can. A budget says nothing of kinds; but
 * the core can promise that everybody can be made whole again only if all that is to be
 * pinned is asked for. Strict worlds keep to that.
 */
static void world_unblock(struct world *world, uint32_t p)
{
	struct world_proc *proc = &world->procs[p];
	const struct sched_client *c = &world->clients[p];
	uint64_t used = world_used(proc);

	if (proc->lack == 0 || !proc->is_open || proc->budget < used ||
	    proc->budget - used < proc->lack)
		return;
	if (world->is_strict && proc->is_lack_pinned &&
	    c->promised + c->memory.pinned < proc->pinned + proc->lack) {
		proc->budget = used;
		return;
	}
	if (world_on_card(world, proc->gpu) + proc->lack > world->total[proc->gpu]) {
		assert(!world->is_strict);
		proc->is_cut = false;
		proc->lack = 0; /* the driver's own out of memory */
		return;
	}
	if (proc->is_lack_pinned) {
		proc->pinned += proc->lack;
	} else {
		proc->resident += proc->lack;
		proc->owned += proc->lack;
	}
	proc->lack = 0;
	proc->is_cut = false;
	world_refresh_external(world, proc->gpu);
}

int world_lease(struct world *world, uint32_t p, struct lease_event event)
{
	struct world_proc *proc = &world->procs[p];
	struct lease_actions actions;
	int r;

	event.wanting = proc->is_at_gate || proc->lack > 0;
	r = lease_step(&proc->lease, &event, &actions);
	for (uint32_t i = 0; i < actions.n; i++)
		world_act(world, p, &actions.at[i]);
	/* Holding, or alone, without an OPEN: it has been open all the time. */
	if (proc->lease.state != LEASE_HOLDING)
		proc->is_watched = false;
	world_unblock(world, p);
	return r;
}

void world_want(struct world *world, uint32_t p)
{
	struct world_proc *proc = &world->procs[p];
	bool lacks = proc->lack > 0;

	if (!proc->is_linked || proc->work != WORLD_WORK_NONE)
		return;
	if ((lacks && proc->lease.state == LEASE_HOLDING) ||
	    ((lacks || proc->is_at_gate) && proc->lease.state == LEASE_IDLE))
		(void)world_lease(world, p, (struct lease_event){.type = LEASE_EVENT_WANT});
}

void world_alloc(struct world *world, uint32_t p, uint64_t bytes, bool is_pinned)
{
	struct world_proc *proc = &world->procs[p];

	assert(proc->lack == 0 && bytes > 0);
	proc->lack = bytes;
	proc->is_lack_pinned = is_pinned;
	world_unblock(world, p);
	if (proc->lack > 0)
		world_want(world, p);
}

void world_free(struct world *world, uint32_t p, uint64_t bytes)
{
	struct world_proc *proc = &world->procs[p];
	uint64_t out;

	assert(bytes <= proc->owned);
	proc->owned -= bytes;
	out = bytes < proc->swapped ? bytes : proc->swapped;
	proc->swapped -= out;
	proc->resident -= bytes - out;
	world_refresh_external(world, proc->gpu);
	world_unblock(world, p);
}

void world_claim(struct world *world, uint32_t p, struct sched_claim claim)
{
	struct sched_event event = {.type = SCHED_EVENT_CLAIM, .client = p, .claim = claim};

	world->procs[p].claim = claim;
	if (world->procs[p].is_joined)
		(void)world_step(world, &event);
}

void world_process(struct world *world, uint32_t p, bool is_stopped)
{
	struct sched_event event = {
		.type = SCHED_EVENT_PROCESS, .client = p, .is_stopped = is_stopped};

	/* Others have its place meanwhile. */
	world->may_overlap = true;
	(void)world_step(world, &event);
}

void world_pause(struct world *world, uint32_t p, bool is_paused)
{
	struct sched_event event = {.type = SCHED_EVENT_PAUSE, .client = p, .is_paused = is_paused};

	if (world->procs[p].is_joined)
		(void)world_step(world, &event);
}

void world_used_gpu(struct world *world, uint32_t p, uint64_t ns)
{
	struct sched_event event = {.type = SCHED_EVENT_USED, .client = p, .gpu_ns = ns};

	if (world->procs[p].is_joined)
		(void)world_step(world, &event);
}

void world_report(struct world *world, uint32_t p)
{
	world_send(world, p,
		   (struct world_msg){.type = SCHED_EVENT_MEMORY,
				      .epoch = world->procs[p].lease.epoch});
}

void world_return_slack(struct world *world, uint32_t p)
{
	struct world_proc *proc = &world->procs[p];

	if (!proc->is_linked || proc->lease.state != LEASE_HOLDING ||
	    proc->budget == LEASE_UNLIMITED || proc->lack > 0)
		return;
	if (proc->budget > world_used(proc))
		proc->budget = world_used(proc);
	world_report(world, p);
}

static void world_move_out(struct world *world, uint32_t p, uint64_t bytes)
{
	struct world_proc *proc = &world->procs[p];

	assert(!proc->is_open && bytes <= proc->resident);
	proc->resident -= bytes;
	proc->swapped += bytes;
	proc->work_bytes -= bytes < proc->work_bytes ? bytes : proc->work_bytes;
	world_refresh_external(world, proc->gpu);
}

void world_progress(struct world *world, uint32_t p, uint64_t bytes)
{
	struct world_proc *proc = &world->procs[p];

	assert(proc->work == WORLD_WORK_EVICT);
	world_move_out(world, p, bytes);
	if (world_lease(world, p, (struct lease_event){.type = LEASE_EVENT_PROGRESS}) == 0)
		world->n_progress++;
}

/* As far as the budget and the card go; the outcome if that is not far enough. */
static uint32_t world_bring_in(struct world *world, uint32_t p, uint32_t outcome)
{
	struct world_proc *proc = &world->procs[p];
	uint64_t used = world_used(proc), bytes, room;
	bool is_short;

	room = proc->budget > used ? proc->budget - used : 0;
	is_short = room < proc->swapped;
	bytes = is_short ? room : proc->swapped;
	room = world->total[proc->gpu] - world_on_card(world, proc->gpu);
	if (world->is_strict)
		assert(world_on_card(world, proc->gpu) + bytes <=
		       fit_room(&world->sched, proc->gpu));
	if (bytes > room) {
		bytes = room;
		outcome = outcome ? outcome : 5;
	}
	bytes = outcome ? bytes / 2 : bytes;
	proc->resident += bytes;
	proc->swapped -= bytes;
	proc->moved += bytes;
	world_refresh_external(world, proc->gpu);
	if (outcome || !is_short)
		return outcome;
	world->n_parts++;
	return WORLD_PARTIAL;
}

bool world_part(struct world *world, uint32_t p)
{
	struct world_proc *proc = &world->procs[p];

	assert(proc->work == WORLD_WORK_RESTORE && !proc->is_open);
	if (proc->lease.is_used_up || world_bring_in(world, p, 0) != WORLD_PARTIAL ||
	    world_lease(world, p,
			(struct lease_event){.type = LEASE_EVENT_PART, .outcome = WORLD_PARTIAL}))
		return false;
	world->n_told++;
	return true;
}

void world_work_done(struct world *world, uint32_t p, uint32_t outcome)
{
	struct world_proc *proc = &world->procs[p];
	enum world_work work = proc->work;
	uint64_t bytes;

	assert(work != WORLD_WORK_NONE);
	proc->work = WORLD_WORK_NONE;
	switch (work) {
	case WORLD_WORK_NONE:
		break;
	case WORLD_WORK_DRAIN:
		(void)world_lease(
			world, p,
			(struct lease_event){.type = LEASE_EVENT_DRAINED, .outcome = outcome});
		break;
	case WORLD_WORK_EVICT:
		assert(!proc->is_open);
		bytes = proc->work_bytes < proc->resident ? proc->work_bytes : proc->resident;
		bytes = outcome ? bytes / 2 : bytes;
		world_move_out(world, p, bytes);
		proc->moved += bytes;
		(void)world_lease(
			world, p,
			(struct lease_event){.type = LEASE_EVENT_EVICTED, .outcome = outcome});
		break;
	case WORLD_WORK_RESTORE:
		assert(!proc->is_open);
		outcome = world_bring_in(world, p, outcome);
		(void)world_lease(
			world, p,
			(struct lease_event){.type = LEASE_EVENT_RESTORED, .outcome = outcome});
		break;
	}
	world_want(world, p);
}

/* ---- messages arrive -------------------------------------------------------------- */

void world_tell_gang(struct world *world, uint32_t p)
{
	world_push(&world->procs[p].up, &(struct world_msg){.type = SCHED_EVENT_GANG});
	if (world->on_up)
		world->on_up(world, p);
}

/* The scheduler takes the client in; what it says to that arrives in order. */
static void world_join(struct world *world, uint32_t p, const struct world_msg *msg)
{
	struct world_proc *proc = &world->procs[p];
	struct sched_event event = {.type = SCHED_EVENT_JOIN,
				    .client = p,
				    .gpu = proc->gpu,
				    .owner = proc->owner,
				    .budget = msg->budget,
				    .memory = msg->memory,
				    .claim = proc->claim,
				    .running = msg->is_running};
	struct world_msg registered = {.type = SCHED_ACTION_REPORT, .is_running = msg->is_running};
	int r;

	assert(!proc->is_joined && proc->is_alive);
	proc->is_joined = true;
	world_push(&proc->down, &registered);
	if (world->on_down)
		world->on_down(world, p);
	r = world_step(world, &event);
	assert(r == 0);
	world_refresh_external(world, proc->gpu);
	if (proc->gang != SCHED_NONE)
		world_tell_gang(world, p);
}

void world_register(struct world *world, uint32_t p)
{
	struct world_proc *proc = &world->procs[p];
	struct world_msg msg = {.is_running = lease_is_open(&proc->lease) && proc->has_begun};

	assert(!proc->is_linked && proc->work == WORLD_WORK_NONE);
	msg.memory = world_memory(proc);
	msg.budget = world_used(proc);
	world_join(world, p, &msg);
}

int world_deliver_up(struct world *world, uint32_t p)
{
	struct world_msg msg = world_pop(&world->procs[p].up);
	struct sched_event event = {
		.type = (enum sched_event_type)msg.type,
		.client = p,
		.gpu = world->procs[p].gpu,
		.grant = msg.grant,
		.epoch = msg.epoch,
		.budget = msg.budget,
		.moved = msg.moved,
		.move_ns = msg.moved,
		.outcome = msg.outcome,
		.is_short = msg.outcome == WORLD_SHORT,
		.bytes = msg.bytes,
		.is_part = msg.is_part,
		.is_done = msg.is_done,
		.wants = msg.wants,
		.stops = msg.stops,
		.memory = msg.memory,
		.gang = world->procs[p].gang,
		.gang_size = world->procs[p].gang_size,
	};

	return world_step(world, &event);
}

bool world_may_deliver_down(const struct world *world, uint32_t p)
{
	const struct world_proc *proc = &world->procs[p];

	if (proc->down.n == 0)
		return false;
	return proc->work == WORLD_WORK_NONE ||
	       (proc->lease.is_used_up && proc->down.at[0].type == SCHED_ACTION_BUDGET);
}

/* For the eviction to come, if the reserve has room: what the daemon's second_max says. */
static void world_make_second(struct world *world, uint32_t p)
{
	struct world_proc *proc = &world->procs[p];
	uint64_t total = world->total[proc->gpu], bytes = total / WORLD_SECOND_PART;
	uint64_t taken = fit_spare(&world->sched, proc->gpu) + bytes;

	for (uint32_t q = 0; q < WORLD_PROCS; q++) {
		if (world->procs[q].is_alive && world->procs[q].gpu == proc->gpu)
			taken += world->procs[q].second;
	}
	if (proc->second == 0 &&
	    taken <= total / 100 * world->sched.gpus[proc->gpu].config.reserve_percent)
		proc->second = bytes;
}

void world_deliver_down(struct world *world, uint32_t p)
{
	struct world_proc *proc = &world->procs[p];
	struct world_msg msg;
	struct lease_event event;

	assert(world_may_deliver_down(world, p));
	msg = world_pop(&proc->down);
	event = (struct lease_event){.grant = msg.grant,
				     .epoch = msg.epoch,
				     .budget = msg.budget,
				     .bytes = msg.bytes,
				     .due_ms = msg.due_ms};
	switch ((enum sched_action_type)msg.type) {
	case SCHED_ACTION_REPORT: /* stands for REGISTERED */
		proc->is_linked = true;
		event.type = LEASE_EVENT_REGISTERED;
		event.running = msg.is_running;
		if (world_copies_ahead(p))
			world_send(world, p, (struct world_msg){.type = SCHED_EVENT_AHEAD});
		break;
	case SCHED_ACTION_GRANT:
		event.type = LEASE_EVENT_LOCK_OK;
		break;
	case SCHED_ACTION_DROP:
		proc->charge = msg.budget;
		world_make_second(world, p);
		event.type = LEASE_EVENT_DROP;
		break;
	case SCHED_ACTION_BUDGET:
		event.type = LEASE_EVENT_BUDGET;
		break;
	case SCHED_ACTION_REFUSE:
		event.type = LEASE_EVENT_REFUSED;
		break;
	case SCHED_ACTION_PREPARE:
		event.type = LEASE_EVENT_PREPARE;
		break;
	case SCHED_ACTION_BEAT:
		world_send(world, p, (struct world_msg){.type = SCHED_EVENT_ALIVE});
		return;
	case SCHED_ACTION_AHEAD:
		if (msg.bytes == 0 || p % 3 == 1) /* the others copy until they are told to stop */
			world_send(world, p,
				   (struct world_msg){.type = SCHED_EVENT_AHEAD,
						      .bytes = proc->resident,
						      .is_done = msg.bytes > 0});
		return;
	case SCHED_ACTION_WAIT:
		return;
	}
	(void)world_lease(world, p, event);
	if (proc->work == WORLD_WORK_NONE)
		proc->charge = 0;
	if (event.type == LEASE_EVENT_REGISTERED && proc->drains)
		world_report(world, p); /* before it has a kernel that others may wait for */
	world_want(world, p);
}

void world_lost(struct world *world, uint32_t p)
{
	struct world_proc *proc = &world->procs[p];

	assert(!proc->is_joined && proc->is_linked);
	proc->is_linked = false;
	(void)world_lease(world, p, (struct lease_event){.type = LEASE_EVENT_LOST});
}

void world_spawn(struct world *world, uint32_t p, uint32_t gpu)
{
	struct world_proc *proc = &world->procs[p];

	memset(proc, 0, sizeof(*proc));
	proc->is_alive = true;
	proc->gpu = gpu;
	proc->budget = LEASE_UNLIMITED;
	proc->gang = SCHED_NONE;
	lease_init(&proc->lease);
}

void world_kill(struct world *world, uint32_t p)
{
	struct world_proc *proc = &world->procs[p];
	bool is_joined = proc->is_joined;
	uint32_t gpu = proc->gpu, owner = proc->owner;

	memset(proc, 0, sizeof(*proc));
	proc->gpu = gpu;
	proc->owner = owner;
	proc->is_joined = is_joined;
	if (!is_joined)
		world_refresh_external(world, gpu);
}
