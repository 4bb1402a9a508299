/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Stopping the program, and letting it go on. A stopped program has nothing running on the GPU.
 * First its work gets a short time to end; then the rest is frozen. The memory of a frozen program
 * can move in the middle of a kernel, through the pager context, which is not frozen. A program
 * that cannot be frozen is stopped when its work has ended.
 *
 * A process stops on all of its GPUs at once: it has one gate and one freeze. The first stop halts
 * the process. A stop on another GPU then finds it halted, and only memory has to move.
 */

#include "core/u64.h"
#include "hook/agent/agent_private.h"
#include "hook/base/hook_log.h"
#include "hook/base/hook_options.h"
#include "hook/freeze/freeze.h"
#include "hook/gate/bell.h"
#include "hook/gate/device.h"
#include "hook/gate/drain.h"
#include "hook/gate/gate.h"
#include "hook/gate/inflight_threads.h"
#include "hook/host/hostpool.h"
#include "hook/host/slabs.h"
#include "hook/memory/budget.h"
#include "hook/pager/backend.h"
#include "hook/pager/pager_context.h"
#include "hook/table/cuda_real.h"
#include "hook/table/reach.h"
#include "hook/tickets/tickets.h"
#include "util/clock.h"

/*
 * The limit from the freeze to the first memory that is given up. That takes a probe and one copy,
 * milliseconds. If the driver hangs for longer, the program is thawed, so that the driver goes on.
 * Copies that take longer extend the limit as they get on, and so does getting host memory.
 */
#define HALT_LIMIT_NS CLOCK_NS_PER_SEC

/*
 * A thread inside the gate may need so long to get a processor and come to the driver: some periods
 * of a container's limit on processor time.
 */
#define HALT_SETTLE_NS (300 * CLOCK_NS_PER_MS)

/* A freeze that follows another one too soon is tried again after a few milliseconds. */
#define HALT_TRIES_MAX 5
#define HALT_PAUSE_NS  (3 * CLOCK_NS_PER_MS)

/* A proof freezes, too, so the proof of the next GPU waits for so long. */
#define HALT_PROOF_PAUSE_NS (2 * HALT_PAUSE_NS)

/*
 * After so many failed freezes in a row the next stop drains. Then every other stop does, until a
 * freeze succeeds.
 */
#define HALT_FAILURES_MAX 2

static struct {
	uint32_t n_failures; /* in a row: evictions under a freeze that came to nothing */
	bool is_halted;      /* a stop has succeeded, and the process has not been let go since */
	bool is_frozen;      /* the last stop froze it; it may be thawed since: freeze_commit() */
} halt;

bool agent_halt_is_frozen(void)
{
	return halt.is_frozen;
}

bool agent_halt_stands(void)
{
	return halt.is_halted && gate_get() == GATE_CLOSED;
}

void agent_halt_committed(void)
{
	halt.is_halted = halt.is_halted || halt.is_frozen;
	halt.n_failures = 0; /* memory went under this freeze */
}

bool agent_halt_is_drained(void)
{
	return agent_halt_stands() && !halt.is_frozen;
}

static bool process_is_managed(void)
{
	agent_for_each_link (l) {
		if (backend_of(l->dev) == NVSHARE_BACKEND_MANAGED)
			return true;
	}
	return false;
}

static bool process_lacks_pager_context(void)
{
	agent_for_each_link (l) {
		if (l->lacks_pager_context)
			return true;
	}
	return false;
}

/* An enum nvshare_halt. It leaves out whether the reserve has room for the pager contexts. */
static uint32_t halt_find_how(void)
{
	uint32_t how;

	(void)reach_look();
	how = freeze_halt();

	if (how == NVSHARE_HALT_FREEZE && process_is_managed())
		how = NVSHARE_HALT_MANAGED;
	if (how == NVSHARE_HALT_FREEZE && halt.n_failures >= HALT_FAILURES_MAX)
		how = NVSHARE_HALT_FAILED;
	return how;
}

/* A stop of the program may end in a freeze. */
static bool process_may_freeze(void)
{
	return halt_find_how() == NVSHARE_HALT_FREEZE;
}

static void halt_log_how(const struct agent_link *link, uint32_t how)
{
	const char *why = freeze_why_not();

	if (how == NVSHARE_HALT_FREEZE)
		hook_debug("device %d: stops by freezing", (int)link->dev);
	else if (how == NVSHARE_HALT_MANAGED)
		hook_debug("device %d: stops by draining: managed memory", (int)link->dev);
	else if (how == NVSHARE_HALT_FAILED)
		hook_debug("device %d: stops by draining: the last freezes were called off",
			   (int)link->dev);
	else if (how == NVSHARE_HALT_NO_ROOM)
		hook_debug("device %d: stops by draining: no room for a second context",
			   (int)link->dev);
	else
		hook_debug("device %d: stops by draining: %s", (int)link->dev,
			   why ? why : "for a reason that is gone");
}

uint32_t agent_halt_how(struct agent_link *link)
{
	uint32_t how = halt_find_how();

	if (how == NVSHARE_HALT_FREEZE && process_lacks_pager_context())
		how = NVSHARE_HALT_NO_ROOM;
	if (how != link->told_how)
		halt_log_how(link, how);
	link->told_how = how;
	return how;
}

/*
 * Proves with the program running that freezing works. The program's work must not delay the test's
 * write, so the gate is closed for a few milliseconds, once a GPU. An open capture could not pass
 * it, so then there is no proof.
 */
static void device_prove_busy(CUdevice dev, CUcontext ctx)
{
	bool is_open = gate_get() == GATE_OPEN;

	if (is_open && !gate_bar_captures())
		return;
	if (is_open)
		gate_set(GATE_CLOSED);
	(void)freeze_prove_busy(dev, ctx);
	if (!is_open)
		return;
	gate_set(GATE_OPEN);
	gate_allow_captures();
}

void agent_halt_prove(CUdevice dev, bool is_busy)
{
	struct device_context *c = device_context_hold(dev);

	if (c && is_busy)
		device_prove_busy(dev, c->ctx);
	else if (c)
		(void)freeze_prove(dev, c->ctx);
	device_context_drop(c);
}

/* Each GPU needs a proof of its own. One without a context has no work that could go on. */
bool agent_halt_is_proven(void)
{
	agent_for_each_link (l) {
		if (device_has_context(l->dev) && !freeze_is_proven(l->dev))
			return false;
	}
	return true;
}

void agent_halt_prove_all(bool is_busy)
{
	bool is_first = true;

	agent_for_each_link (l) {
		if (!device_has_context(l->dev) || freeze_is_proven(l->dev))
			continue;
		if (!is_first)
			clock_nap(HALT_PROOF_PAUSE_NS);
		is_first = false;
		agent_halt_prove(l->dev, is_busy);
	}
}

/* It has memory that moves, or has opened some that is to be mapped again. */
static bool link_needs_pager_context(const struct agent_link *link)
{
	struct nvshare_mem mem;

	budget_read(link->dev, &mem);
	return mem.resident || opened_is_there(link->dev);
}

/*
 * A freeze stops the work of all GPUs, and then no pager context can be made. So each GPU with
 * memory of the program gets its own before.
 */
static bool process_make_pager_contexts(bool may_freeze)
{
	agent_for_each_link (l) {
		l->lacks_pager_context = may_freeze && link_needs_pager_context(l) &&
					 !pager_context_make(l->dev, l->pager_context_max);
	}
	return may_freeze && !process_lacks_pager_context();
}

/*
 * Makes ready what an eviction of bytes needs, while the program still runs, so that it costs no
 * time later. true: the program can be frozen for it. A program with memory on the card needs a
 * pager context, also if bytes is 0. It may have to give memory up once it is frozen, and then none
 * can be made.
 */
bool agent_halt_prepare(struct agent_link *link, uint64_t bytes, bool is_urgent)
{
	struct agent_place place;
	struct nvshare_mem mem;
	bool is_ready;

	budget_read(link->dev, &mem);
	is_ready = process_make_pager_contexts(process_may_freeze());
	/* The proof is ready before the first stop, because something may prevent it then. */
	if (is_ready && !is_urgent && !share_is_frozen())
		agent_halt_prove_all(true);
	if (is_ready && !is_urgent && !share_is_frozen())
		pager_context_load_digests(link->dev, link->pager_context_max);
	/* While others lack host memory, none is taken ahead. */
	if (bytes && mem.resident && (is_urgent || agent_spares_may_grow()) &&
	    agent_enter_context(link->dev, &place)) {
		/* No more can go than there is. */
		pager_prepare(link->dev, bytes < mem.resident ? bytes : mem.resident, is_urgent);
		agent_leave_context(&place);
	}
	return is_ready;
}

/* The program may have allocated up to the freeze, after agent_halt_prepare() looked at it. */
static bool process_can_move(void)
{
	agent_for_each_link (l) {
		if (link_needs_pager_context(l) && !pager_context_get(l->dev))
			return false;
	}
	return true;
}

/*
 * The gate stops threads that are outside. Threads inside are blocked in the driver when
 * inflight_wait() is done.
 */
static uint32_t process_freeze(uint64_t begin_ns)
{
	int r = FREEZE_E_BUSY;

	gate_set(GATE_CLOSED);
	agent_halt_prove_all(true);
	for (int i = 0; i < HALT_TRIES_MAX && r == FREEZE_E_BUSY; i++) {
		if (i > 0)
			clock_nap(HALT_PAUSE_NS); /* there was a freeze just now */
		if (share_hand_over(HALT_LIMIT_NS))
			r = 0;
		else
			r = agent_halt_is_proven() ? freeze_begin(HALT_LIMIT_NS)
						   : FREEZE_E_UNPROVEN;
	}
	/* The limit begins anew for the eviction, which notices if it has ended already. */
	if (!r && process_can_move() && inflight_wait(HALT_SETTLE_NS)) {
		(void)freeze_extend(HALT_LIMIT_NS);
	} else if (!r) {
		agent_resume();
		r = FREEZE_E_BUSY;
	}
	if (r) {
		hook_debug("freeze: error %d", r);
		return NVSHARE_OUTCOME_TIMEOUT;
	}
	halt.is_frozen = true;
	hook_debug("stopped in %llu us, frozen",
		   (unsigned long long)((clock_now_ns() - begin_ns) / 1000));
	return NVSHARE_OUTCOME_SUCCESS;
}

/*
 * A gate that is closed for memory that is out stays closed (may_open). A failed freeze, a hold, or
 * the wait for another GPU may have closed it too. Then open captures could not end, so the gate
 * opens for them.
 */
static uint32_t halt_drain(uint64_t max_ns, bool may_open)
{
	if (may_open && gate_get() == GATE_CLOSED && gate_capture_open())
		gate_set(GATE_NO_CAPTURES);
	return (uint32_t)drain_run(max_ns);
}

/*
 * A drain has ended in the place of a freeze. If all work has ended, nothing hinders the missing
 * proof, so it is made now for the next stop.
 */
static uint32_t halt_drained(uint32_t outcome)
{
	if (outcome == NVSHARE_OUTCOME_SUCCESS)
		agent_halt_prove_all(false);
	return outcome;
}

static uint32_t process_halt(struct agent_link *link, uint64_t bytes, bool is_idle)
{
	uint64_t begin_ns = clock_now_ns(), grace_ns = hook_options()->drain_ns;
	uint64_t max_ns = hook_options()->drain_max_ns;
	bool may_open = gate_get() != GATE_CLOSED || share_bars_gate() || !agent_has_memory_out();
	uint32_t outcome;

	if (is_idle || !agent_halt_prepare(link, bytes, true)) {
		/* The reason of the failures may be gone: the next stop tries to freeze again. */
		if (!is_idle && halt.n_failures >= HALT_FAILURES_MAX)
			halt.n_failures = HALT_FAILURES_MAX - 1;
		share_let_go();
		return halt_drain(max_ns, may_open);
	}

	/* A drain that cannot end early would wait for all work, and nothing would be frozen. */
	outcome = NVSHARE_OUTCOME_TIMEOUT;
	if (!share_is_frozen()) {
		share_let_go();
		if (drain_has_limit())
			outcome = halt_drain(grace_ns < max_ns ? grace_ns : max_ns, may_open);
	} /* else it is held, and none of its work can end */
	if (outcome != NVSHARE_OUTCOME_TIMEOUT)
		return halt_drained(outcome);
	outcome = process_freeze(begin_ns);
	if (outcome == NVSHARE_OUTCOME_SUCCESS && !bytes)
		outcome = agent_halt_evicted(outcome);
	if (outcome == NVSHARE_OUTCOME_TIMEOUT) {
		halt.is_frozen = false; /* a drain follows */
		outcome = halt_drained(halt_drain(max_ns, may_open));
	}
	return outcome;
}

/*
 * A frozen thread may keep a lock of the driver's, and then no memory can go. The next stop lets
 * such a process go on for a moment, as long as all of its memory is on the cards, and none is on
 * its way there.
 */
static bool halt_is_in_the_way(uint64_t bytes)
{
	return bytes && halt.is_frozen && halt.n_failures && !agent_has_memory_out() &&
	       !agent_moves_are_running();
}

uint32_t agent_halt(struct agent_link *link, uint64_t bytes, bool is_idle)
{
	uint32_t outcome;

	if (agent_halt_stands() && !halt_is_in_the_way(bytes))
		return NVSHARE_OUTCOME_SUCCESS;
	if (halt.is_frozen)
		agent_resume();
	outcome = process_halt(link, bytes, is_idle);
	halt.is_halted = halt.is_halted || (outcome == NVSHARE_OUTCOME_SUCCESS && !halt.is_frozen);
	return outcome;
}

/*
 * An eviction commits the freeze when it unmaps memory. If it unmapped none, the freeze is
 * committed here. Otherwise the program would be thawed in a moment, and run on while it counts as
 * stopped.
 */
uint32_t agent_halt_evicted(uint32_t outcome)
{
	if (!halt.is_frozen)
		return outcome;
	if (outcome == NVSHARE_OUTCOME_SUCCESS && !freeze_commit())
		outcome = NVSHARE_OUTCOME_TIMEOUT;
	if (outcome == NVSHARE_OUTCOME_SUCCESS) {
		halt.n_failures = 0;
		halt.is_halted = true;
	} else if (outcome == NVSHARE_OUTCOME_TIMEOUT) {
		halt.n_failures++;
	}
	return outcome;
}

void agent_resume(void)
{
	int r;

	halt.is_frozen = false;
	halt.is_halted = false;
	r = freeze_end();
	if (r)
		hook_log_warn("the GPU does not let this program go on (error %d)", r);
}

void agent_halt_reset(void)
{
	halt.n_failures = 0;
	halt.is_frozen = false;
	halt.is_halted = false;
}
