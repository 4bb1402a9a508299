/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Memory of several GPUs moves at the same time, by one thread. A move goes step by step
 * (pager_move_step()), and between the steps of one GPU the thread does those of the others. An
 * order for a further GPU begins its move meanwhile.
 *
 * The outermost agent_lease_step() returns when all moves have ended. So nothing else of the agent
 * ever meets a move.
 */

#include "core/u64.h"
#include "hook/agent/agent_private.h"
#include "hook/base/descriptors.h"
#include "hook/base/hook_log.h"
#include "hook/gate/bell.h"
#include "hook/host/hostmem.h"
#include "hook/memory/budget.h"
#include "hook/memory/rdma.h"
#include "hook/pager/backend.h"
#include "hook/pager/pager_context.h"
#include "hook/pager/transfer.h"
#include "hook/table/bypass.h"
#include "hook/table/cuda_real.h"
#include "hook/table/reach.h"
#include "hook/tickets/tickets.h"
#include "util/clock.h"

/* The longest pause between two looks at the messages. */
#define MOVES_NAP_NS CLOCK_NS_PER_MS

/* Moves may begin one another for long. After this time the rest of the agent's work has its turn.
 */
#define MOVES_TURN_NS (10 * CLOCK_NS_PER_SEC)

static struct {
	bool are_running;
	bool is_return_due; /* shared memory has come in, and openers have not got it yet */
} moves;

bool agent_moves_are_running(void)
{
	return moves.are_running;
}

/*
 * Enters a context in which bytes can be moved. Memory that the program has mapped itself outlives
 * its contexts. After the last one it can be moved in a pager context only, which may cost max
 * bytes.
 */
static bool device_enter_to_move(CUdevice dev, uint64_t bytes, uint64_t max,
				 struct agent_place *ret_place)
{
	if (agent_enter_context(dev, ret_place))
		return true;
	return bytes && backend_of(dev) != NVSHARE_BACKEND_MANAGED && !agent_halt_is_frozen() &&
	       pager_context_make(dev, max) && agent_enter_context(dev, ret_place);
}

/*
 * Orders may name the same bytes. An eviction that counts on them twice begins too early, waits for
 * them, and fails as one without host memory does.
 */
void agent_moves_sync_coming(void)
{
	uint64_t bytes = 0;

	agent_for_each_link (l)
		bytes += l->host_coming;
	hostmem_set_coming(bytes);
}

/* Memory of some GPU is on its way. */
static bool process_moves(void)
{
	agent_for_each_link (l) {
		if (l->moving)
			return true;
	}
	return false;
}

/*
 * Openers come with this process, and find the memory there. Memory that is about to leave another
 * GPU must not be given to them, and for a chunk on its way this thread would wait, which moves it.
 */
static void moves_return_tickets(void)
{
	if (!moves.is_return_due || process_moves())
		return;
	moves.is_return_due = false;
	tickets_return();
}

/*
 * Where a device, or a library whose calls go past us, may reach memory by itself, all memory
 * stays, because nobody can tell which memory that is. Managed memory cannot be registered, and the
 * driver moves it.
 */
static bool link_may_move(const struct agent_link *link, uint64_t bytes)
{
	enum rdma rdma;

	if (!bytes || backend_of(link->dev) == NVSHARE_BACKEND_MANAGED)
		return true;
	rdma = rdma_look(NULL);
	if (rdma == RDMA_OPEN || rdma == RDMA_HIDDEN || reach_look())
		pager_pin_all(link->dev);
	if (rdma == RDMA_UNKNOWN && descriptors_are_short())
		hook_warn_once("file descriptors are short (RLIMIT_NOFILE): memory of this program "
			       "can not make room for others");
	return rdma == RDMA_NONE && !bypass_seen();
}

uint32_t agent_moves_stop(struct agent_link *link, uint64_t bytes)
{
	if (!link_may_move(link, bytes))
		return NVSHARE_OUTCOME_UNSUPPORTED;
	return agent_halt(link, bytes, link->lease.work == LEASE_WORK_GIVE_UP);
}

/*
 * Gives budget that is not in use, and returns how many of bytes have to move then. A restore that
 * found too little for its next chunk has such budget. A stopped program reports it before anything
 * moves: others may lack no more than that, and memory may not be able to move.
 */
static uint64_t link_give_unused(struct agent_link *link, uint64_t bytes,
				 const struct nvshare_mem *mem)
{
	uint64_t used = agent_lease_on_card(mem),
		 unused = link->charge > used ? link->charge - used : 0;

	if (unused && link->lease.work != LEASE_WORK_DROP)
		agent_report(link, true);
	return bytes > unused ? bytes - unused : 0;
}

/*
 * A stop on another GPU may have failed after it had let the process go, and then this GPU computes
 * although it was told to stop. Memory goes only when the process stands again.
 */
static uint32_t link_stand(struct agent_link *link, uint64_t bytes)
{
	bool is_of_stopped = link->lease.work == LEASE_WORK_EVICT_IDLE ||
			     link->lease.work == LEASE_WORK_EVICT_ASKED;

	if (!bytes || !is_of_stopped || agent_halt_stands() ||
	    !agent_link_next(agent_link_next(NULL)))
		return NVSHARE_OUTCOME_SUCCESS;
	return agent_halt(link, bytes, false);
}

void agent_moves_end_order(struct agent_link *link)
{
	link->out_asked = 0;
	transfer_aim(link->dev, 0);
	link->hand_bytes = 0;
	link->host_coming = 0;
	agent_moves_sync_coming();
	link->host_lacked = 0;
}

static uint32_t link_evicted(struct agent_link *link, uint32_t outcome)
{
	uint64_t asked = link->out_asked;

	agent_moves_end_order(link);
	outcome = agent_halt_evicted(outcome);
	agent_ahead_evicted(link);
	hook_debug("device %d: evicted %llu of %llu bytes in %llu us, outcome %d, %llu copied, "
		   "%llu handed over",
		   (int)link->dev, (unsigned long long)link->out.bytes, (unsigned long long)asked,
		   (unsigned long long)(link->out.ns / 1000), (int)outcome,
		   (unsigned long long)link->out.copied, (unsigned long long)link->out.handed);
	return outcome;
}

/* The current context is place. */
static void move_begin(struct agent_link *link, const struct agent_place *place,
		       struct pager_moving *moving)
{
	agent_pause_context(place);
	link->place = *place;
	link->moving = moving;
	link->step_ns = 0;
}

bool agent_moves_evict(struct agent_link *link, uint64_t bytes, uint32_t *ret_outcome)
{
	struct agent_place place;
	struct pager_moving *moving = NULL;
	struct nvshare_mem mem;

	link->out = (struct pager_move){0};
	link->out_told = 0;
	budget_read(link->dev, &mem);
	bytes = link_give_unused(link, bytes, &mem);
	if (!link_may_move(link, bytes)) {
		agent_moves_end_order(link);
		*ret_outcome = agent_halt_evicted(NVSHARE_OUTCOME_UNSUPPORTED);
		return false;
	}
	*ret_outcome = link_stand(link, bytes);
	if (*ret_outcome) {
		agent_moves_end_order(link);
		return false;
	}
	if (!device_enter_to_move(link->dev, bytes ? mem.resident : 0, link->pager_context_max,
				  &place)) {
		agent_moves_end_order(link);
		*ret_outcome =
			agent_halt_evicted(bytes && mem.resident ? NVSHARE_OUTCOME_INVALID_STATE
								 : NVSHARE_OUTCOME_SUCCESS);
		return false;
	}
	link->out_asked = bytes;
	if (bytes) {
		transfer_aim(link->dev, link->hand_bytes);
		moving = pager_evict_begin(link->dev, bytes, agent_halt_is_frozen());
	}
	if (moving) {
		move_begin(link, &place, moving);
		return true;
	}
	agent_leave_context(&place);
	*ret_outcome =
		link_evicted(link, bytes ? NVSHARE_OUTCOME_SAVE_FAILED : NVSHARE_OUTCOME_SUCCESS);
	return false;
}

static bool device_has_room_for_all(CUdevice dev)
{
	size_t bytes_free, total;
	struct nvshare_mem mem;

	budget_read(dev, &mem);
	return !cuda_real.cuMemGetInfo_v2 ||
	       cuda_real.cuMemGetInfo_v2(&bytes_free, &total) != CUDA_SUCCESS ||
	       bytes_free >= mem.swapped;
}

/* A process can only run with all of its memory in, on all of its GPUs. */
static bool process_has_room_for_all(void)
{
	bool has_room = true;

	agent_for_each_link (l) {
		struct agent_place place;

		if (!agent_enter_context(l->dev, &place))
			continue;
		has_room = has_room && device_has_room_for_all(l->dev);
		agent_leave_context(&place);
	}
	return has_room;
}

/* Has no scheduler, and may have as much memory as there is. */
static bool link_is_alone(const struct agent_link *link)
{
	return link->lease.state == LEASE_OFF || link->lease.work == LEASE_WORK_ALONE;
}

/* Those of its GPUs that have come in already, and were put out again, come with this one. */
static int process_restore(CUdevice dev, struct pager_move *move)
{
	int outcome = pager_restore(dev, move);

	agent_for_each_link (l) {
		struct pager_move other = {0};
		struct agent_place place;

		if (outcome || l->dev == dev || !link_is_alone(l) || !agent_lease_is_out(l->dev))
			continue;
		outcome = NVSHARE_OUTCOME_INVALID_STATE;
		if (!agent_enter_context(l->dev, &place))
			continue;
		outcome = pager_restore(l->dev, &other);
		agent_leave_context(&place);
	}
	return outcome;
}

/*
 * Two processes that each had the memory of one GPU in, and lacked room on the other, would wait
 * for each other for ever.
 */
static void process_put_out(CUdevice dev)
{
	agent_for_each_link (l) {
		bool is_ours = l->dev == dev || (link_is_alone(l) && agent_halt_stands());
		struct pager_move out = {0};
		struct agent_place place;

		if (!is_ours || !agent_enter_context(l->dev, &place))
			continue;
		(void)pager_evict(l->dev, UINT64_MAX, agent_halt_is_frozen(), &out);
		agent_leave_context(&place);
	}
}

/*
 * Without a scheduler stopped programs come in as they find room. Part of the memory on the cards
 * is of no use, and in another's way. So all of it goes in, or out again.
 */
static int device_restore_alone(CUdevice dev, struct pager_move *move)
{
	int outcome = NVSHARE_OUTCOME_INVALID_STATE;

	if (process_has_room_for_all())
		outcome = process_restore(dev, move);
	if (outcome)
		process_put_out(dev);
	else
		budget_lost(dev); /* its next allocation waits for the scheduler */
	return outcome;
}

static uint32_t link_restored(struct agent_link *link, uint32_t outcome,
			      const struct pager_move *move)
{
	link->in.bytes += move->bytes;
	link->in.ns += move->ns;
	moves.is_return_due = moves.is_return_due || outcome == NVSHARE_OUTCOME_SUCCESS;
	moves_return_tickets();
	hook_debug("device %d: restored %llu bytes in %llu us, outcome %d, %llu taken over",
		   (int)link->dev, (unsigned long long)move->bytes,
		   (unsigned long long)(move->ns / 1000), (int)outcome,
		   (unsigned long long)move->handed);
	return outcome;
}

/*
 * Brings all memory in, since nothing may run with memory out. A pager context that this needs
 * gets the room that the program's contexts had, so the reserve sets no limit.
 */
bool agent_moves_restore(struct agent_link *link, uint32_t *ret_outcome)
{
	uint32_t outcome = NVSHARE_OUTCOME_INVALID_STATE;
	struct pager_moving *moving = NULL;
	struct pager_move move = {0};
	struct agent_place place;
	struct nvshare_mem mem;

	budget_read(link->dev, &mem);
	*ret_outcome = mem.swapped ? NVSHARE_OUTCOME_INVALID_STATE : NVSHARE_OUTCOME_SUCCESS;
	if (!device_enter_to_move(link->dev, mem.swapped, UINT64_MAX, &place))
		return false;
	if (link->lease.work == LEASE_WORK_ALONE)
		outcome = (uint32_t)device_restore_alone(link->dev, &move);
	else
		moving = pager_restore_begin(link->dev);
	if (moving) {
		move_begin(link, &place, moving);
		return true;
	}
	agent_leave_context(&place);
	*ret_outcome = link_restored(link, outcome, &move);
	return false;
}

/* ---- all of them ------------------------------------------------------------- */

/* The lease hears of the end, which may begin another move. */
static void link_end_move(struct agent_link *link)
{
	bool is_eviction = link->lease.state == LEASE_EVICTING;
	struct lease_event end = {
		.type = is_eviction ? LEASE_EVENT_EVICTED : LEASE_EVENT_RESTORED,
	};
	struct pager_move move;

	end.outcome = (uint32_t)pager_move_end(link->moving, &move);
	link->moving = NULL;
	device_context_drop(link->place.held);
	if (is_eviction) {
		link->out = move;
		end.outcome = link_evicted(link, end.outcome);
		agent_tickets_park();
	} else {
		end.outcome = link_restored(link, end.outcome, &move);
	}
	agent_lease_step(link, &end);
}

static void link_step_move(struct agent_link *link)
{
	/* In no context, or in another one, its copies fail, and the move ends. */
	bool is_there = agent_go_on_in_context(&link->place), has_more;
	uint64_t pause_ns;

	has_more = pager_move_step(link->moving, &pause_ns);
	link->step_ns = clock_now_ns() + pause_ns;
	if (is_there)
		agent_pause_context(&link->place);
	if (!has_more)
		link_end_move(link);
}

/* The next step of each move that is due. Returns when the next one is; AGENT_NEVER: all have
 * ended. */
static uint64_t moves_step(void)
{
	uint64_t due_ns = AGENT_NEVER;

	agent_for_each_link (l) {
		if (l->moving && clock_now_ns() >= l->step_ns)
			link_step_move(l);
	}
	agent_for_each_link (l) {
		if (l->moving)
			due_ns = u64_min(due_ns, l->step_ns);
	}
	return due_ns;
}

void agent_moves_run(void)
{
	uint64_t end_ns = clock_now_ns() + MOVES_TURN_NS, due_ns, now_ns;

	if (moves.are_running)
		return;
	moves.are_running = true;
	while ((due_ns = moves_step()) != AGENT_NEVER) {
		now_ns = clock_now_ns();
		agent_hear_beside_moves(now_ns < end_ns && !bell_is_stopping());
		if (now_ns < due_ns)
			clock_nap(u64_min(due_ns - now_ns, MOVES_NAP_NS));
	}
	moves.are_running = false;
	moves_return_tickets();
}

void agent_moves_reset(void)
{
	moves.are_running = moves.is_return_due = false;
}
