/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_TESTS_SIM_WORLD_H
#define NVS_TESTS_SIM_WORLD_H

/*
 * The scheduler's core and the leases of its clients in one closed loop, with the
 * messages between them and the memory of the cards: what the daemon and the library
 * do, without sockets, threads or a GPU. Nothing here decides when things happen: that
 * is the driver's (sim_sched.c: a seed; exhaustive.c: every order).
 *
 * A header with code, because its users need it in different sizes: define WORLD_PROCS
 * and WORLD_GPUS before including it. No pointers inside but those to itself, so that a
 * world can be copied (world_copy) and hashed.
 */

#include "core/fit.h"
#include "core/lease.h"
#include "core/sched.h"

#include <assert.h>
#include <string.h>

#ifndef WORLD_QUEUE
#define WORLD_QUEUE 48
#endif

enum world_work { WORLD_WORK_NONE, WORLD_WORK_DRAIN, WORLD_WORK_EVICT, WORLD_WORK_RESTORE };

/* type: a client's message is enum sched_event_type, the scheduler's enum sched_action_type. */
struct world_msg {
	uint32_t type;
	uint32_t outcome;
	uint64_t grant, epoch, budget, bytes, due_ms, moved;
	struct sched_memory memory;
	bool wants, is_running;
};

struct world_queue {
	uint32_t n;
	struct world_msg at[WORLD_QUEUE];
};

struct world_proc {
	bool is_alive;
	bool is_joined;  /* the scheduler has it */
	bool is_linked;  /* it believes to be connected: REGISTERED came, LOST did not */
	bool is_watched; /* PREPARE said that somebody waits */
	bool is_at_gate; /* a thread wants to submit work */
	bool has_begun;  /* it has used the GPU */
	bool is_open;    /* the gate, as the actions have left it */
	enum world_work work;
	uint32_t gpu;
	struct lease lease;
	uint64_t budget;
	uint64_t resident, swapped, pinned; /* the truth */
	uint64_t owned;                     /* pageable bytes that the program has allocated */
	uint64_t lack;                      /* size of the allocation that is blocked */
	bool is_lack_pinned;
	bool is_refused; /* the blocked allocation has failed; the driver clears it */
	uint64_t work_bytes;
	uint64_t moved; /* since the last report */
	struct world_queue up, down;
};

struct world {
	struct sched sched;
	struct sched_client clients[WORLD_PROCS];
	struct sched_config config;
	struct world_proc procs[WORLD_PROCS];
	uint64_t total[WORLD_GPUS];
	uint64_t external[WORLD_GPUS]; /* as the scheduler was told last */
	uint64_t now;
	bool is_strict;  /* nobody runs unmanaged: what is within a budget is on the card */
	bool may_overlap; /* the mode has changed, or a hung one has come back */
	uint64_t hash;   /* of all that the scheduler asked for */
	uint64_t n_grants, n_drops, n_hung, n_refused, n_steps;
	/* The driver's: something is in the queue, or work has begun. May be NULL. */
	void (*on_up)(struct world *world, uint32_t p);
	void (*on_down)(struct world *world, uint32_t p);
	void (*on_work)(struct world *world, uint32_t p);
};

static inline void world_copy(struct world *to, const struct world *from)
{
	*to = *from;
	to->sched.clients = to->clients;
}

static inline uint64_t world_used(const struct world_proc *proc)
{
	return proc->resident + proc->pinned;
}

static inline uint64_t world_on_card(const struct world *world, uint32_t gpu)
{
	uint64_t bytes = 0;

	for (uint32_t p = 0; p < WORLD_PROCS; p++) {
		if (world->procs[p].is_alive && world->procs[p].gpu == gpu)
			bytes += world_used(&world->procs[p]);
	}
	return bytes;
}

/* ---- what must always be true ------------------------------------------------ */

static inline void world_check_proc(const struct world *world, uint32_t p)
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

static inline void world_check(const struct world *world)
{
	uint32_t n_open[WORLD_GPUS] = {0};
	uint64_t on_card[WORLD_GPUS] = {0}, pinned[WORLD_GPUS] = {0}, largest[WORLD_GPUS] = {0};

	for (uint32_t p = 0; p < WORLD_PROCS; p++) {
		const struct world_proc *proc = &world->procs[p];

		if (!proc->is_alive)
			continue;
		world_check_proc(world, p);
		on_card[proc->gpu] += world_used(proc);
		pinned[proc->gpu] += proc->pinned;
		if (proc->owned > largest[proc->gpu])
			largest[proc->gpu] = proc->owned;
		n_open[proc->gpu] += proc->is_open && proc->is_joined && proc->is_linked &&
				     !world->clients[p].is_hung;
	}
	for (uint32_t g = 0; g < WORLD_GPUS; g++) {
		assert(on_card[g] <= world->total[g]);
		if (world->is_strict) {
			assert(on_card[g] <= fit_usable(&world->sched, g));
			/* Everybody can be made whole again. */
			assert(pinned[g] + largest[g] <= fit_usable(&world->sched, g));
		}
		if (world->is_strict && !world->may_overlap && world->config.anti_thrash &&
		    world->config.mode != SCHED_MODE_AUTO)
			assert(n_open[g] <= 1);
	}
}

/* ---- the scheduler's side ------------------------------------------------------ */

static inline void world_push(struct world_queue *queue, const struct world_msg *msg)
{
	assert(queue->n < WORLD_QUEUE);
	queue->at[queue->n++] = *msg;
}

static inline struct world_msg world_pop(struct world_queue *queue)
{
	struct world_msg msg = queue->at[0];

	assert(queue->n > 0);
	queue->n--;
	memmove(&queue->at[0], &queue->at[1], queue->n * sizeof(queue->at[0]));
	memset(&queue->at[queue->n], 0, sizeof(queue->at[0]));
	return msg;
}

static inline void world_note(struct world *world, const struct sched_action *a)
{
	const uint64_t parts[] = {a->type,  a->client, a->grant,  a->epoch, a->budget,
				  a->bytes, a->due_ms, a->position, a->why, a->report};

	for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++)
		world->hash = (world->hash ^ parts[i]) * 0x100000001b3ull;
	world->n_grants += a->type == SCHED_ACTION_GRANT;
	world->n_drops += a->type == SCHED_ACTION_DROP;
	world->n_refused += a->type == SCHED_ACTION_REFUSE;
	if (a->type == SCHED_ACTION_REPORT && a->report == SCHED_REPORT_HUNG) {
		world->n_hung++;
		world->may_overlap = true;
	}
}

static inline int world_step(struct world *world, struct sched_event *event)
{
	struct sched_actions actions;
	int r;

	event->now_ns = world->now;
	r = sched_step(&world->sched, event, &actions);
	world->n_steps++;
	for (uint32_t i = 0; i < actions.n; i++) {
		const struct sched_action *a = &actions.at[i];
		struct world_msg msg = {.type = a->type, .grant = a->grant, .epoch = a->epoch,
					.budget = a->budget, .bytes = a->bytes,
					.due_ms = a->due_ms};

		world_note(world, a);
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
static inline void world_tell_external(struct world *world, uint32_t gpu)
{
	struct sched_event event = {.type = SCHED_EVENT_GPU, .gpu = gpu};

	for (uint32_t p = 0; p < WORLD_PROCS; p++) {
		const struct world_proc *proc = &world->procs[p];

		if (proc->is_alive && proc->gpu == gpu && !proc->is_joined)
			event.external += world_used(proc);
	}
	event.bytes = world->total[gpu];
	world->external[gpu] = event.external;
	(void)world_step(world, &event);
}

static inline void world_refresh_external(struct world *world, uint32_t gpu)
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

/* The scheduler sees the end of p's connection; its process may live on. */
static inline void world_gone(struct world *world, uint32_t p)
{
	struct sched_event event = {.type = SCHED_EVENT_LEAVE, .client = p};

	assert(world->procs[p].is_joined);
	world->procs[p].is_joined = false;
	memset(&world->procs[p].up, 0, sizeof(world->procs[p].up));
	memset(&world->procs[p].down, 0, sizeof(world->procs[p].down));
	world_refresh_external(world, world->procs[p].gpu);
	(void)world_step(world, &event);
}

/* ---- a client's side ------------------------------------------------------------ */

static inline struct sched_memory world_memory(const struct world_proc *proc)
{
	uint64_t used = world_used(proc);
	uint64_t unused = proc->budget > used ? proc->budget - used : 0;
	uint64_t lack = proc->lack > unused ? proc->lack - unused : 0;

	return (struct sched_memory){
		.resident = proc->resident,
		.swapped = proc->swapped,
		.pinned = proc->pinned,
		.wanted = proc->is_lack_pinned ? 0 : lack,
		.wanted_pinned = proc->is_lack_pinned ? lack : 0,
	};
}

static inline void world_send(struct world *world, uint32_t p, struct world_msg msg)
{
	struct world_proc *proc = &world->procs[p];
	uint64_t used = world_used(proc);

	if (!proc->is_joined)
		return; /* the connection has ended, and it does not know yet */
	msg.memory = world_memory(proc);
	msg.moved = proc->moved;
	proc->moved = 0;
	msg.budget = proc->budget == LEASE_UNLIMITED || proc->budget < used ? used : proc->budget;
	if (msg.type == SCHED_EVENT_RELEASED)
		msg.budget = msg.outcome ? proc->lease.budget : used;
	world_push(&proc->up, &msg);
	if (world->on_up)
		world->on_up(world, p);
}

static inline void world_begin(struct world *world, uint32_t p, enum world_work work,
			       uint64_t bytes)
{
	struct world_proc *proc = &world->procs[p];

	assert(proc->work == WORLD_WORK_NONE);
	proc->work = work;
	proc->work_bytes = bytes;
	if (world->on_work)
		world->on_work(world, p);
}

static inline void world_act(struct world *world, uint32_t p, const struct lease_action *action)
{
	struct world_proc *proc = &world->procs[p];

	switch (action->type) {
	case LEASE_ACTION_SEND_REQ:
		world_send(world, p, (struct world_msg){.type = SCHED_EVENT_REQUEST});
		break;
	case LEASE_ACTION_SEND_RELEASED:
		world_send(world, p, (struct world_msg){.type = SCHED_EVENT_RELEASED,
							.grant = action->grant,
							.epoch = action->epoch,
							.outcome = action->outcome,
							.wants = action->wants});
		break;
	case LEASE_ACTION_SEND_MEMORY:
		world_send(world, p, (struct world_msg){.type = SCHED_EVENT_MEMORY,
							.epoch = proc->lease.epoch});
		break;
	case LEASE_ACTION_SET_BUDGET:
		proc->budget = action->budget;
		break;
	case LEASE_ACTION_REFUSE:
		proc->is_refused = proc->lack > 0;
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
		world_begin(world, p, WORLD_WORK_EVICT, action->bytes);
		break;
	case LEASE_ACTION_RESTORE:
		world_begin(world, p, WORLD_WORK_RESTORE, 0);
		break;
	case LEASE_ACTION_PREPARE:
		proc->is_watched = action->bytes || action->due_ms;
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
static inline void world_unblock(struct world *world, uint32_t p)
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
		proc->is_refused = true; /* the driver's own out of memory */
		proc->lack = 0;
		return;
	}
	if (proc->is_lack_pinned) {
		proc->pinned += proc->lack;
	} else {
		proc->resident += proc->lack;
		proc->owned += proc->lack;
	}
	proc->lack = 0;
	world_refresh_external(world, proc->gpu);
}

static inline int world_lease(struct world *world, uint32_t p, struct lease_event event)
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

/* A thread waits, perhaps: the agent looks. */
static inline void world_want(struct world *world, uint32_t p)
{
	struct world_proc *proc = &world->procs[p];
	bool lacks = proc->lack > 0;

	if (!proc->is_linked || proc->work != WORLD_WORK_NONE)
		return;
	if ((lacks && proc->lease.state == LEASE_HOLDING) ||
	    ((lacks || proc->is_at_gate) && proc->lease.state == LEASE_IDLE))
		(void)world_lease(world, p, (struct lease_event){.type = LEASE_EVENT_WANT});
}

/* The program asks for memory; it must not be blocked already. */
static inline void world_alloc(struct world *world, uint32_t p, uint64_t bytes, bool is_pinned)
{
	struct world_proc *proc = &world->procs[p];

	assert(proc->lack == 0 && bytes > 0);
	proc->lack = bytes;
	proc->is_lack_pinned = is_pinned;
	proc->is_refused = false;
	world_unblock(world, p);
	if (proc->lack > 0)
		world_want(world, p);
}

static inline void world_free(struct world *world, uint32_t p, uint64_t bytes)
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

static inline void world_report(struct world *world, uint32_t p)
{
	world_send(world, p, (struct world_msg){.type = SCHED_EVENT_MEMORY,
						.epoch = world->procs[p].lease.epoch});
}

/* Budget that is not used goes back. */
static inline void world_return_slack(struct world *world, uint32_t p)
{
	struct world_proc *proc = &world->procs[p];

	if (!proc->is_linked || proc->lease.state != LEASE_HOLDING ||
	    proc->budget == LEASE_UNLIMITED || proc->lack > 0)
		return;
	if (proc->budget > world_used(proc))
		proc->budget = world_used(proc);
	world_report(world, p);
}

/* The work under way ends. An eviction that fails has moved half. */
static inline void world_work_done(struct world *world, uint32_t p, uint32_t outcome)
{
	struct world_proc *proc = &world->procs[p];
	enum world_work work = proc->work;
	uint64_t bytes, room;

	assert(work != WORLD_WORK_NONE);
	proc->work = WORLD_WORK_NONE;
	switch (work) {
	case WORLD_WORK_NONE:
		break;
	case WORLD_WORK_DRAIN:
		(void)world_lease(world, p, (struct lease_event){.type = LEASE_EVENT_DRAINED,
								 .outcome = outcome});
		break;
	case WORLD_WORK_EVICT:
		assert(!proc->is_open);
		bytes = proc->work_bytes < proc->resident ? proc->work_bytes : proc->resident;
		bytes = outcome ? bytes / 2 : bytes;
		proc->resident -= bytes;
		proc->swapped += bytes;
		proc->moved += bytes;
		world_refresh_external(world, proc->gpu);
		(void)world_lease(world, p, (struct lease_event){.type = LEASE_EVENT_EVICTED,
								 .outcome = outcome});
		break;
	case WORLD_WORK_RESTORE:
		assert(!proc->is_open);
		room = proc->budget > world_used(proc) ? proc->budget - world_used(proc) : 0;
		if (world->is_strict)
			assert(world_on_card(world, proc->gpu) +
				       (room < proc->swapped ? room : proc->swapped) <=
			       fit_usable(&world->sched, proc->gpu));
		bytes = world->total[proc->gpu] - world_on_card(world, proc->gpu);
		room = bytes < room ? bytes : room;
		bytes = proc->swapped < room ? proc->swapped : room;
		bytes = outcome ? bytes / 2 : bytes;
		proc->resident += bytes;
		proc->swapped -= bytes;
		proc->moved += bytes;
		world_refresh_external(world, proc->gpu);
		if (proc->swapped > 0 && !outcome)
			outcome = 5;
		(void)world_lease(world, p, (struct lease_event){.type = LEASE_EVENT_RESTORED,
								 .outcome = outcome});
		break;
	}
	world_want(world, p);
}

/* ---- messages arrive -------------------------------------------------------------- */

/* The scheduler takes the client in; what it says to that arrives in order. */
static inline void world_join(struct world *world, uint32_t p, const struct world_msg *msg)
{
	struct world_proc *proc = &world->procs[p];
	struct sched_event event = {.type = SCHED_EVENT_JOIN, .client = p, .gpu = proc->gpu,
				    .budget = msg->budget, .memory = msg->memory,
				    .running = msg->is_running};
	struct world_msg registered = {.type = SCHED_ACTION_REPORT,
				       .is_running = msg->is_running};
	int r;

	assert(!proc->is_joined && proc->is_alive);
	proc->is_joined = true;
	world_push(&proc->down, &registered);
	if (world->on_down)
		world->on_down(world, p);
	r = world_step(world, &event);
	assert(r == 0);
	world_refresh_external(world, proc->gpu);
}

/* p's process registers; the connection is new, and nothing is on its way. */
static inline void world_register(struct world *world, uint32_t p)
{
	struct world_proc *proc = &world->procs[p];
	struct world_msg msg = {.is_running = lease_is_open(&proc->lease) && proc->has_begun};

	assert(!proc->is_linked && proc->work == WORLD_WORK_NONE);
	msg.memory = world_memory(proc);
	msg.budget = world_used(proc);
	world_join(world, p, &msg);
}

/* The oldest message of p arrives at the scheduler. */
static inline int world_deliver_up(struct world *world, uint32_t p)
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
		.wants = msg.wants,
		.memory = msg.memory,
	};

	return world_step(world, &event);
}

/* The oldest message for p arrives; not while work is under way. */
static inline void world_deliver_down(struct world *world, uint32_t p)
{
	struct world_proc *proc = &world->procs[p];
	struct world_msg msg = world_pop(&proc->down);
	struct lease_event event = {.grant = msg.grant, .epoch = msg.epoch, .budget = msg.budget,
				    .bytes = msg.bytes, .due_ms = msg.due_ms};

	assert(proc->work == WORLD_WORK_NONE);
	switch ((enum sched_action_type)msg.type) {
	case SCHED_ACTION_REPORT: /* stands for REGISTERED */
		proc->is_linked = true;
		event.type = LEASE_EVENT_REGISTERED;
		event.running = msg.is_running;
		break;
	case SCHED_ACTION_GRANT:
		event.type = LEASE_EVENT_LOCK_OK;
		break;
	case SCHED_ACTION_DROP:
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
	case SCHED_ACTION_WAIT:
		return;
	}
	(void)world_lease(world, p, event);
	world_want(world, p);
}

/* p hears that its connection is gone. */
static inline void world_lost(struct world *world, uint32_t p)
{
	struct world_proc *proc = &world->procs[p];

	assert(!proc->is_joined && proc->is_linked);
	proc->is_linked = false;
	(void)world_lease(world, p, (struct lease_event){.type = LEASE_EVENT_LOST});
}

static inline void world_spawn(struct world *world, uint32_t p, uint32_t gpu)
{
	struct world_proc *proc = &world->procs[p];

	memset(proc, 0, sizeof(*proc));
	proc->is_alive = true;
	proc->gpu = gpu;
	proc->budget = LEASE_UNLIMITED;
	lease_init(&proc->lease);
}

/* The process ends; its memory is free at once, the scheduler sees it later (world_gone). */
static inline void world_kill(struct world *world, uint32_t p)
{
	struct world_proc *proc = &world->procs[p];
	bool is_joined = proc->is_joined;
	uint32_t gpu = proc->gpu;

	memset(proc, 0, sizeof(*proc));
	proc->gpu = gpu;
	proc->is_joined = is_joined;
	if (!is_joined)
		world_refresh_external(world, gpu);
}

static inline void world_init(struct world *world, const struct sched_config *config,
			      const uint64_t *total)
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

/* A new scheduler; all connections have ended. */
static inline void world_restart(struct world *world)
{
	for (uint32_t p = 0; p < WORLD_PROCS; p++) {
		world->procs[p].is_joined = false;
		memset(&world->procs[p].up, 0, sizeof(world->procs[p].up));
		memset(&world->procs[p].down, 0, sizeof(world->procs[p].down));
	}
	sched_init(&world->sched, world->clients, WORLD_PROCS, &world->config);
	for (uint32_t g = 0; g < WORLD_GPUS; g++)
		world_tell_external(world, g);
}

#endif
