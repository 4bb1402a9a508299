/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The scheduler of a node, and the library of each of its programs: the same core as in the daemon
 * and in libnvshare, without sockets and threads. Messages arrive at once and in order. A program
 * reads none while it drains or copies, as the library does.
 */

#include "fleet_node.h"

#include <assert.h>
#include <string.h>

/* Measured on an H100: tests/gpu/results/switch-h100.txt, in bytes a second. */
#define TURNS_COPY_RATE (46.0 * (double)FLEET_GIB)
#define TURNS_LINK_RATE (UINT64_C(514) * FLEET_GIB / 10)
#define TURNS_PAGER     (UINT64_C(294) << 20)

#define TURNS_DRAIN_NS (FLEET_S_NS / 1000) /* to freeze it: tests/gpu/results/freeze.md */
#define TURNS_IDLE_NS  FLEET_S_NS          /* NVSHARE_IDLE_MS */

/* An eviction reports after each of so many parts, and the next program comes in meanwhile. Copies
 * of 46 GiB/s each way then take 1.25 times as long as one way alone; measured are 1.1. */
#define TURNS_PARTS 4

#define TURNS_PARTIAL 7 /* NVSHARE_OUTCOME_PARTIAL */

static void turns_want(struct fleet_node *node, struct fleet_program *p, uint64_t now_ns);

static uint64_t turns_min(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static uint64_t turns_over(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

static uint64_t turns_used(const struct fleet_program *p)
{
	return p->resident + p->pinned;
}

/* ---- the scheduler ---------------------------------------------------------------------- */

static void turns_step(struct fleet_node *node, struct sched_event *event, uint64_t now_ns)
{
	struct sched_actions actions;
	int r;

	event->now_ns = now_ns;
	r = sched_step(&node->sched, event, &actions);
	assert(r == 0 || r == SCHED_E_STALE);
	node->stats->n_steps++;
	for (uint32_t i = 0; i < actions.n; i++) {
		struct fleet_program *p = &node->programs[actions.at[i].client];

		/* A report tells of an answer that is late or failed, or of too much memory. */
		assert(actions.at[i].type != SCHED_ACTION_REPORT);
		if (actions.at[i].type == SCHED_ACTION_WAIT || !p->is_used)
			continue;
		assert(p->n_messages < FLEET_MESSAGES);
		p->messages[p->n_messages++] = actions.at[i];
		node->unread |= UINT64_C(1) << actions.at[i].client;
	}
}

/* The program's GPU time since it was told last. */
static void turns_tell_used(struct fleet_node *node, struct fleet_program *p, uint64_t now_ns)
{
	struct sched_event event = {.type = SCHED_EVENT_USED,
				    .client = fleet_slot(node, p),
				    .gpu_ns = (uint64_t)(p->told_s * 1e9)};

	if (event.gpu_ns == 0)
		return;
	p->told_s = 0;
	turns_step(node, &event, now_ns);
}

static void turns_send(struct fleet_node *node, struct fleet_program *p, struct sched_event event,
		       uint64_t now_ns)
{
	uint64_t used = turns_used(p), unused = turns_over(p->budget, used);

	if (p->budget == LEASE_UNLIMITED)
		unused = 0;
	event.client = fleet_slot(node, p);
	event.gpu = p->gpu;
	event.memory = (struct sched_memory){
		.resident = p->resident,
		.swapped = p->swapped,
		.pinned = p->pinned,
		.pager_context = p->pager,
		.wanted = turns_over(p->lack, turns_over(unused, p->lack_pinned)),
		.wanted_pinned = turns_over(p->lack_pinned, unused),
	};
	event.moved = p->moved;
	event.move_ns = p->moved_ns;
	p->moved = p->moved_ns = 0;
	event.budget = p->budget == LEASE_UNLIMITED || p->budget < used ? used : p->budget;
	if (event.type == SCHED_EVENT_RELEASED)
		event.budget = event.outcome ? p->lease.budget : used;
	turns_step(node, &event, now_ns);
}

/* ---- the library -------------------------------------------------------------------------- */

static void turns_begin(struct fleet_program *p, enum fleet_move move, uint64_t bytes,
			uint64_t now_ns)
{
	p->move = move;
	p->move_bytes = bytes;
	p->move_began_ns = now_ns;
	p->move_ns = now_ns + (move == FLEET_MOVE_DRAIN
				       ? TURNS_DRAIN_NS
				       : (uint64_t)((double)bytes / TURNS_COPY_RATE * 1e9));
}

static void turns_evict_part(struct fleet_program *p, uint64_t now_ns)
{
	uint64_t bytes = turns_min(p->move_part, p->move_rest);

	p->move_rest -= bytes;
	turns_begin(p, FLEET_MOVE_EVICT, bytes, now_ns);
}

/* Budget that it has not used goes by itself. A stopped program says so at once. */
static void turns_evict(struct fleet_node *node, struct fleet_program *p, uint64_t bytes,
			uint64_t now_ns)
{
	uint64_t unused = turns_over(p->charge, turns_used(p));

	if (unused && p->lease.work != LEASE_WORK_DROP)
		turns_send(
			node, p,
			(struct sched_event){.type = SCHED_EVENT_MEMORY, .epoch = p->lease.epoch},
			now_ns);
	p->charge = 0;
	if (p->pager == 0)
		p->pager = TURNS_PAGER;
	p->move_rest = turns_min(turns_over(bytes, unused), p->resident);
	p->move_part = p->move_rest / TURNS_PARTS + 1;
	turns_evict_part(p, now_ns);
}

static void turns_set_open(struct fleet_node *node, struct fleet_program *p, bool is_open,
			   uint64_t now_ns)
{
	if (p->is_open == is_open)
		return;
	fleet_share_count(node, p->gpu, now_ns);
	p->is_open = is_open;
	node->gpus[p->gpu].is_changed = true;
	if (is_open)
		fleet_node_note_begin(node, p, now_ns);
	else
		turns_tell_used(node, p, now_ns);
}

static void turns_act(struct fleet_node *node, struct fleet_program *p,
		      const struct lease_action *action, uint64_t now_ns)
{
	struct sched_event event = {.epoch = p->lease.epoch};

	switch (action->type) {
	case LEASE_ACTION_SEND_REQ:
		event.type = SCHED_EVENT_REQUEST;
		turns_send(node, p, event, now_ns);
		break;
	case LEASE_ACTION_SEND_RELEASED:
		event = (struct sched_event){.type = SCHED_EVENT_RELEASED,
					     .grant = action->grant,
					     .epoch = action->epoch,
					     .outcome = action->outcome,
					     .is_part = action->outcome == TURNS_PARTIAL,
					     .wants = action->wants};
		turns_send(node, p, event, now_ns);
		break;
	case LEASE_ACTION_SEND_MEMORY:
		event.type = SCHED_EVENT_MEMORY;
		turns_send(node, p, event, now_ns);
		break;
	case LEASE_ACTION_SET_BUDGET:
		p->budget = action->budget;
		break;
	case LEASE_ACTION_REFUSE:
		fleet_node_end(node, p, FLEET_OUT_OF_MEMORY, now_ns);
		break;
	case LEASE_ACTION_OPEN:
		turns_set_open(node, p, p->lack == 0 && p->lack_pinned == 0, now_ns);
		break;
	case LEASE_ACTION_DRAIN:
		turns_set_open(node, p, false, now_ns);
		turns_begin(p, FLEET_MOVE_DRAIN, 0, now_ns);
		break;
	case LEASE_ACTION_EVICT:
		turns_evict(node, p, action->bytes, now_ns);
		break;
	case LEASE_ACTION_RESTORE:
		turns_begin(p, FLEET_MOVE_RESTORE,
			    turns_min(turns_over(p->budget, turns_used(p)), p->swapped), now_ns);
		break;
	case LEASE_ACTION_PREPARE:
		p->is_watched = action->due_ms > 0;
		if (p->is_watched && !p->is_working && p->idle_ns == FLEET_NEVER)
			p->idle_ns = now_ns + TURNS_IDLE_NS;
		break;
	case LEASE_ACTION_CLOSE:
	case LEASE_ACTION_ORPHAN_TIMER:
		break;
	}
}

/* The first allocation of a program goes on as soon as its budget covers it. */
static void turns_unblock(struct fleet_node *node, struct fleet_program *p, uint64_t now_ns)
{
	uint64_t lack = p->lack + p->lack_pinned;

	if (lack == 0 || p->lease.state != LEASE_HOLDING ||
	    turns_over(p->budget, turns_used(p)) < lack)
		return;
	p->resident += p->lack;
	p->pinned += p->lack_pinned;
	p->lack = p->lack_pinned = 0;
	turns_set_open(node, p, true, now_ns);
}

static void turns_lease(struct fleet_node *node, struct fleet_program *p, struct lease_event event,
			uint64_t now_ns)
{
	struct lease_actions actions;

	fleet_touch(node, p);
	event.wanting = p->is_working;
	event.is_out = p->swapped > 0;
	(void)lease_step(&p->lease, &event, &actions);
	for (uint32_t i = 0; i < actions.n && p->is_used; i++)
		turns_act(node, p, &actions.at[i], now_ns);
	if (!p->is_used)
		return;
	if (p->lease.state != LEASE_HOLDING)
		p->is_watched = false;
	turns_unblock(node, p, now_ns);
}

static void turns_want(struct fleet_node *node, struct fleet_program *p, uint64_t now_ns)
{
	bool is_blocked = p->lack + p->lack_pinned > 0 && p->lease.state == LEASE_HOLDING;

	if (!p->is_used || !p->is_working || p->move != FLEET_MOVE_NONE)
		return;
	if (is_blocked || p->lease.state == LEASE_IDLE)
		turns_lease(node, p, (struct lease_event){.type = LEASE_EVENT_WANT}, now_ns);
}

static void turns_read(struct fleet_node *node, struct fleet_program *p, uint64_t now_ns)
{
	struct sched_action a = p->messages[0];
	struct lease_event event = {.grant = a.grant,
				    .epoch = a.epoch,
				    .budget = a.budget,
				    .bytes = a.bytes,
				    .due_ms = a.due_ms};

	p->n_messages--;
	memmove(&p->messages[0], &p->messages[1], p->n_messages * sizeof(p->messages[0]));
	switch (a.type) {
	case SCHED_ACTION_GRANT:
		event.type = LEASE_EVENT_LOCK_OK;
		break;
	case SCHED_ACTION_DROP:
		event.type = LEASE_EVENT_DROP;
		p->charge = a.budget;
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
		turns_send(node, p, (struct sched_event){.type = SCHED_EVENT_ALIVE}, now_ns);
		return;
	case SCHED_ACTION_AHEAD: /* no client of the fleet copies ahead */
	case SCHED_ACTION_WAIT:
	case SCHED_ACTION_REPORT:
		return;
	}
	turns_lease(node, p, event, now_ns);
	if (p->is_used && p->move == FLEET_MOVE_NONE)
		p->charge = 0;
	turns_want(node, p, now_ns);
}

/* Until nothing is left that a program may read. */
static void turns_deliver(struct fleet_node *node, uint64_t now_ns)
{
	uint64_t left = node->unread;

	while (left) {
		uint32_t slot = (uint32_t)__builtin_ctzll(left);
		struct fleet_program *p = &node->programs[slot];

		left &= left - 1;
		if (p->n_messages > 0 && p->move == FLEET_MOVE_NONE) {
			turns_read(node, p, now_ns);
			left = node->unread;
		} else if (p->n_messages == 0) {
			node->unread &= ~(UINT64_C(1) << slot);
		}
	}
}

/* ---- what ends by itself ------------------------------------------------------------------ */

static void turns_end_drain(struct fleet_node *node, struct fleet_program *p, uint64_t now_ns)
{
	p->move = FLEET_MOVE_NONE;
	turns_lease(node, p, (struct lease_event){.type = LEASE_EVENT_DRAINED}, now_ns);
}

static void turns_end_evict(struct fleet_node *node, struct fleet_program *p, uint64_t now_ns)
{
	p->resident -= p->move_bytes;
	p->swapped += p->move_bytes;
	p->moved += p->move_bytes;
	p->moved_ns += now_ns - p->move_began_ns;
	node->host_bytes += p->move_bytes;
	if (node->host_bytes > node->host_most)
		node->host_most = node->host_bytes;
	node->stats->bytes_out += p->move_bytes;
	if (p->move_rest > 0) {
		turns_lease(node, p, (struct lease_event){.type = LEASE_EVENT_PROGRESS}, now_ns);
		turns_evict_part(p, now_ns);
		return;
	}
	node->stats->n_evictions += p->move_bytes > 0;
	p->move = FLEET_MOVE_NONE;
	turns_lease(node, p, (struct lease_event){.type = LEASE_EVENT_EVICTED}, now_ns);
}

static void turns_end_restore(struct fleet_node *node, struct fleet_program *p, uint64_t now_ns)
{
	p->resident += p->move_bytes;
	p->swapped -= p->move_bytes;
	p->moved += p->move_bytes;
	p->moved_ns += now_ns - p->move_began_ns;
	node->host_bytes -= p->move_bytes;
	node->stats->bytes_in += p->move_bytes;
	p->move = FLEET_MOVE_NONE;
	turns_lease(node, p,
		    (struct lease_event){.type = LEASE_EVENT_RESTORED,
					 .outcome = p->swapped ? TURNS_PARTIAL : 0},
		    now_ns);
}

void fleet_turns_due(struct fleet_node *node, struct fleet_program *p, uint64_t now_ns)
{
	if (p->move != FLEET_MOVE_NONE && p->move_ns <= now_ns) {
		enum fleet_move move = p->move;

		p->move_ns = FLEET_NEVER;
		if (move == FLEET_MOVE_EVICT)
			turns_end_evict(node, p, now_ns);
		else if (move == FLEET_MOVE_RESTORE)
			turns_end_restore(node, p, now_ns);
		else
			turns_end_drain(node, p, now_ns);
		turns_want(node, p, now_ns);
	}
	if (p->is_used && p->idle_ns <= now_ns) {
		p->idle_ns = FLEET_NEVER;
		if (p->is_watched && !p->is_working && p->move == FLEET_MOVE_NONE)
			turns_lease(node, p, (struct lease_event){.type = LEASE_EVENT_IDLE},
				    now_ns);
	}
	turns_deliver(node, now_ns);
}

void fleet_turns_time(struct fleet_node *node, uint64_t now_ns)
{
	/* The end of a program may have made room for others. */
	turns_deliver(node, now_ns);
	while (sched_deadline(&node->sched) <= now_ns) {
		turns_step(node, &(struct sched_event){.type = SCHED_EVENT_TIME}, now_ns);
		turns_deliver(node, now_ns);
	}
}

/* ---- the life of a program ------------------------------------------------------------------ */

void fleet_turns_join(struct fleet_node *node, struct fleet_program *p, uint64_t now_ns)
{
	static const enum sched_priority priorities[FLEET_KINDS] = {
		[FLEET_NOTEBOOK] = SCHED_PRIORITY_HIGH,
		[FLEET_TRAINING] = SCHED_PRIORITY_NORMAL,
		[FLEET_INFERENCE] = SCHED_PRIORITY_CRITICAL,
	};
	const struct fleet_job *job = fleet_job_of(node, p);
	struct sched_event event = {.type = SCHED_EVENT_JOIN,
				    .client = fleet_slot(node, p),
				    .gpu = p->gpu,
				    .owner = job->owner,
				    .claim = {.priority = priorities[job->kind]}};

	p->is_open = false;
	p->move_ns = p->idle_ns = FLEET_NEVER;
	p->lack_pinned = FLEET_CONTEXT;
	p->budget = LEASE_UNLIMITED;
	lease_init(&p->lease);
	turns_step(node, &event, now_ns);
	turns_lease(node, p, (struct lease_event){.type = LEASE_EVENT_REGISTERED}, now_ns);
	turns_deliver(node, now_ns);
}

void fleet_turns_leave(struct fleet_node *node, struct fleet_program *p, uint64_t now_ns)
{
	struct sched_event event = {.type = SCHED_EVENT_LEAVE, .client = fleet_slot(node, p)};

	node->host_bytes -= p->swapped;
	p->is_used = false;
	p->n_messages = 0;
	turns_step(node, &event, now_ns);
}

void fleet_turns_want(struct fleet_node *node, struct fleet_program *p, uint64_t now_ns)
{
	p->idle_ns = FLEET_NEVER;
	turns_want(node, p, now_ns);
	turns_deliver(node, now_ns);
}

void fleet_turns_rest(struct fleet_node *node, struct fleet_program *p, uint64_t now_ns)
{
	turns_tell_used(node, p, now_ns);
	p->idle_ns = p->is_watched ? now_ns + TURNS_IDLE_NS : FLEET_NEVER;
	turns_deliver(node, now_ns);
}

void fleet_turns_init(struct fleet_node *node, const struct sched_config *config)
{
	sched_init(&node->sched, node->clients, FLEET_NODE_GPUS * node->replicas, config);
	for (uint32_t gpu = 0; gpu < FLEET_NODE_GPUS; gpu++)
		turns_step(node,
			   &(struct sched_event){.type = SCHED_EVENT_GPU,
						 .gpu = gpu,
						 .bytes = FLEET_CARD,
						 .link_bandwidth = TURNS_LINK_RATE},
			   0);
}

void fleet_turns_check(const struct fleet_node *node)
{
	uint64_t host = 0;

	sched_assert_valid(&node->sched);
	for (uint32_t gpu = 0; gpu < FLEET_NODE_GPUS; gpu++) {
		uint64_t used = 0;

		for (uint32_t i = 0; i < node->replicas; i++) {
			const struct fleet_program *p = &node->programs[gpu * node->replicas + i];

			if (!p->is_used)
				continue;
			lease_assert_valid(&p->lease);
			assert(p->n_messages == 0 || p->move != FLEET_MOVE_NONE);
			/* Nothing computes while bytes of it are out, or without a grant. */
			assert(!p->is_open || (p->swapped == 0 && lease_is_open(&p->lease)));
			assert(p->resident + p->swapped + p->lack == p->bytes);
			used += turns_used(p) + p->pager;
			host += p->swapped;
		}
		assert(used <= FLEET_CARD);
	}
	assert(host == node->host_bytes);
}
