/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Stopping the program, and letting it go on. A stopped program has nothing running on the GPU.
 * First its work gets a short time to end; then the rest is frozen. The memory of a frozen program
 * can move in the middle of a kernel, through the pager context, which is not frozen. A program
 * that cannot be frozen is stopped when its work has ended.
 */

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
#include "hook/memory/budget.h"
#include "hook/pager/backend.h"
#include "hook/pager/pager_context.h"
#include "hook/table/cuda_real.h"
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

/* The pager context and host memory are kept so long after contention has ended. */
#define HALT_SPARE_NS (30 * CLOCK_NS_PER_SEC)

/* A freeze that follows another one too soon is tried again after a few milliseconds. */
#define HALT_TRIES_MAX 5
#define HALT_PAUSE_NS  (3 * CLOCK_NS_PER_MS)

/*
 * After so many failed freezes in a row the next stop drains. Then every other stop does, until a
 * freeze succeeds.
 */
#define HALT_FAILURES_MAX 2

static struct {
	uint32_t n_failures;  /* in a row: evictions under a freeze that came to nothing */
	bool is_frozen;       /* the last stop froze it; it may be thawed since: freeze_commit() */
	uint64_t host_max;    /* bytes of host memory while others lack some; else AGENT_NEVER */
	uint64_t host_wanted; /* bytes that others lack, by the last message */
} halt = {.host_max = AGENT_NEVER};

bool agent_halt_is_frozen(void)
{
	return halt.is_frozen;
}

/* An enum nvshare_halt. It leaves out whether the reserve has room for a pager context. */
static uint32_t halt_find_how(const struct agent_link *link)
{
	uint32_t how = freeze_halt();

	if (how == NVSHARE_HALT_FREEZE && backend_of(link->dev) == NVSHARE_BACKEND_MANAGED)
		how = NVSHARE_HALT_MANAGED;
	if (how == NVSHARE_HALT_FREEZE && halt.n_failures >= HALT_FAILURES_MAX)
		how = NVSHARE_HALT_FAILED;
	return how;
}

/* A stop of link's program may end in a freeze. */
static bool link_may_freeze(const struct agent_link *link)
{
	return halt_find_how(link) == NVSHARE_HALT_FREEZE;
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
	uint32_t how = halt_find_how(link);

	if (how == NVSHARE_HALT_FREEZE && link->lacks_pager_context)
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
	is_ready = link_may_freeze(link);
	link->lacks_pager_context =
		is_ready && mem.resident && !pager_context_make(link->dev, link->pager_context_max);
	is_ready = is_ready && !link->lacks_pager_context;
	/* The proof is ready before the first stop, because something may prevent it then. */
	if (is_ready && !is_urgent && !freeze_is_proven(link->dev) && !share_is_frozen())
		agent_halt_prove(link->dev, true);
	/* While others lack host memory, none is taken ahead. */
	if (bytes && (is_urgent || halt.host_max == AGENT_NEVER) &&
	    agent_enter_context(link->dev, &place)) {
		/* No more can go than there is. */
		pager_prepare(link->dev, bytes < mem.resident ? bytes : mem.resident, is_urgent);
		agent_leave_context(&place);
	}
	return is_ready;
}

void agent_halt_touch(const struct agent_link *link, uint64_t bytes)
{
	struct nvshare_mem mem;

	/* All GPUs share one pool of host memory: the first GPU that was told uses it. */
	for (struct agent_link *l = agent_link_next(NULL); l; l = agent_link_next(l)) {
		if (l != link && (l->is_watched || l->is_near))
			return;
	}
	if (bytes && halt.host_max != AGENT_NEVER)
		return;
	budget_read(link->dev, &mem);
	hook_debug("device %d: %llu bytes may have to go soon", (int)link->dev,
		   (unsigned long long)bytes);
	pager_touch(link->dev, bytes < mem.resident ? bytes : mem.resident);
}

void agent_halt_keep(struct agent_link *link)
{
	bool has_any = pager_context_get(link->dev) || hostpool_bytes();
	bool may_lie = lease_is_open(&link->lease) || link->lease.state == LEASE_IDLE;

	if (!has_any || !may_lie || link->is_watched || link->is_near)
		link->spare_ns = AGENT_NEVER;
	else if (link->spare_ns == AGENT_NEVER)
		link->spare_ns = clock_now_ns() + HALT_SPARE_NS;
}

/*
 * Gives back the pager context and host memory that are kept for the next stop. Unregistering host
 * memory in a context of the program may wait for its work. So while the program runs, only memory
 * goes that is registered in the pager context, or nowhere. false: try later.
 */
static bool link_drop_spares(const struct agent_link *link)
{
	bool has_any = pager_context_get(link->dev) || hostpool_bytes(), is_hung = false;
	struct agent_place place;

	if (agent_enter_context(link->dev, &place)) {
		is_hung = pager_mover_is_hung();
		if (!is_hung && lease_is_open(&link->lease))
			hostpool_trim_here();
		else if (!is_hung)
			hostpool_trim();
		agent_leave_context(&place);
		if (!is_hung)
			pager_context_drop(link->dev);
	} else {
		hostpool_trim();
	}
	if (has_any)
		bell_memory_changed(link->dev);
	return !is_hung;
}

/*
 * Evicted memory of an idle program was registered in the pager context that is gone. It must be
 * registered again to come back at the speed of the bus. One part at a time, so that the agent
 * hears messages between. true: there is more.
 */
static bool host_register_one(struct agent_link *link)
{
	struct agent_place place;

	if (!link->is_host_loose)
		return false;
	link->is_host_loose = false;
	if (link->lease.state != LEASE_IDLE || !agent_enter_context(link->dev, &place))
		return false;
	link->is_host_loose = hostpool_register_one();
	agent_leave_context(&place);
	return link->is_host_loose;
}

/*
 * One part at a time, so that the agent hears messages between. Without waiters and without a pager
 * context a running program gets none: unregistering it would have to wait for the program's work.
 */
static bool host_add_one(const struct agent_link *link)
{
	bool may_add =
		link->is_watched || !lease_is_open(&link->lease) || pager_context_get(link->dev);
	struct agent_place place;

	if (!may_add || !hostpool_may_add() || !agent_enter_context(link->dev, &place))
		return false;
	hostpool_add_one();
	agent_leave_context(&place);
	bell_memory_changed(link->dev);
	return true;
}

/*
 * The limit is what was last reported, less bytes: the scheduler's sums are of reports. The same
 * bytes again change nothing, so that no host memory is given twice for one lack.
 */
void agent_halt_wanted(const struct agent_link *link, uint64_t bytes)
{
	uint64_t host = link->reported.host;

	if (bytes == halt.host_wanted)
		return;
	halt.host_wanted = bytes;
	halt.host_max = bytes ? host - (bytes < host ? bytes : host) : AGENT_NEVER;
}

/*
 * Unregistering in a context of the program may wait for its work, which the agent must not do. So
 * while the program runs without a pager context, registered memory stays.
 */
static uint64_t host_give_one(const struct agent_link *link)
{
	struct agent_place place;
	uint64_t given;

	if (!pager_context_get(link->dev) && lease_is_open(&link->lease))
		return hostpool_give_touched();
	if (!agent_enter_context(link->dev, &place))
		return 0;
	given = pager_mover_is_any_hung() ? 0 : pager_give_host_memory(link->dev);
	agent_leave_context(&place);
	return given;
}

/* One part at a time. Memory in use stays wanted, because it may be free in a moment. */
static bool host_give_wanted(const struct agent_link *link)
{
	uint64_t given = hostpool_bytes() > halt.host_max ? host_give_one(link) : 0;

	if (!given)
		return false;
	hook_debug("device %d: gave %llu bytes of host memory back to others", (int)link->dev,
		   (unsigned long long)given);
	bell_memory_changed(link->dev);
	return true;
}

void agent_give_host(CUdevice dev)
{
	const struct agent_link *link = agent_link_of(dev);

	while (link && host_give_wanted(link))
		;
}

/*
 * The scheduler's sums contain this process's host memory, also the part that is touched ahead. A
 * stale figure would hide that others lack memory, or ask for memory that is gone.
 */
static bool host_has_changed(const struct agent_link *link)
{
	struct nvshare_mem mem;

	agent_lease_memory(link->dev, &mem);
	return mem.host != link->reported.host;
}

uint64_t agent_halt_tick(struct agent_link *link, uint64_t now_ns)
{
	struct nvshare_mem mem;

	if (host_has_changed(link))
		bell_memory_changed(link->dev);
	if (!device_has_context(link->dev)) {
		budget_read(link->dev, &mem);
		if (!mem.swapped) /* only evicted memory needs the pager context still */
			(void)link_drop_spares(link);
		else if (hostpool_bytes() > halt.host_max)
			hostpool_trim(); /* it is registered in no context */
		return AGENT_NEVER;
	}
	if (now_ns >= link->spare_ns) {
		link->is_host_loose = link_drop_spares(link);
		link->spare_ns = link->is_host_loose ? AGENT_NEVER : now_ns + HALT_SPARE_NS;
	}
	if (host_give_wanted(link) || host_register_one(link))
		return now_ns;
	return host_add_one(link) ? now_ns : link->spare_ns;
}

/* The program may have allocated up to the freeze, after agent_halt_prepare() looked at it. */
static bool link_can_move(const struct agent_link *link)
{
	struct nvshare_mem mem;

	budget_read(link->dev, &mem);
	return !mem.resident || pager_context_get(link->dev);
}

/*
 * The gate stops threads that are outside. Threads inside are blocked in the driver when
 * inflight_wait() is done.
 */
static uint32_t link_freeze(const struct agent_link *link, uint64_t begin_ns)
{
	int r = FREEZE_E_BUSY;

	gate_set(GATE_CLOSED);
	if (!freeze_is_proven(link->dev))
		agent_halt_prove(link->dev, true);
	for (int i = 0; i < HALT_TRIES_MAX && r == FREEZE_E_BUSY; i++) {
		if (i > 0)
			clock_nap(HALT_PAUSE_NS); /* there was a freeze just now */
		if (share_hand_over(HALT_LIMIT_NS))
			r = 0;
		else
			r = freeze_is_proven(link->dev) ? freeze_begin(HALT_LIMIT_NS)
							: FREEZE_E_UNPROVEN;
	}
	/* The limit begins anew for the eviction, which notices if it has ended already. */
	if (!r && link_can_move(link) && inflight_wait(HALT_SETTLE_NS)) {
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
 * A gate that is closed for another GPU stays closed (may_open). A failed freeze, or a hold, may
 * have closed it too. Then open captures could not end, so the gate opens for them.
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
static uint32_t halt_drained(const struct agent_link *link, uint32_t outcome)
{
	if (outcome == NVSHARE_OUTCOME_SUCCESS && !freeze_is_proven(link->dev))
		agent_halt_prove(link->dev, false);
	return outcome;
}

uint32_t agent_halt(struct agent_link *link, uint64_t bytes, bool is_idle)
{
	uint64_t begin_ns = clock_now_ns(), grace_ns = hook_options()->drain_ns;
	uint64_t max_ns = hook_options()->drain_max_ns;
	bool may_open = gate_get() != GATE_CLOSED || share_bars_gate();
	uint32_t outcome;

	halt.is_frozen = false;
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
		return halt_drained(link, outcome);
	outcome = link_freeze(link, begin_ns);
	if (outcome == NVSHARE_OUTCOME_SUCCESS && !bytes)
		outcome = agent_halt_evicted(outcome);
	if (outcome == NVSHARE_OUTCOME_TIMEOUT) {
		halt.is_frozen = false; /* a drain follows */
		outcome = halt_drained(link, halt_drain(max_ns, may_open));
	}
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
	if (outcome == NVSHARE_OUTCOME_SUCCESS)
		halt.n_failures = 0;
	else if (outcome == NVSHARE_OUTCOME_TIMEOUT)
		halt.n_failures++;
	return outcome;
}

void agent_resume(void)
{
	int r;

	halt.is_frozen = false;
	r = freeze_end();
	if (r)
		hook_log_warn("the GPU does not let this program go on (error %d)", r);
}

void agent_halt_reset(void)
{
	halt.n_failures = 0;
	halt.is_frozen = false;
	halt.host_max = AGENT_NEVER;
	halt.host_wanted = 0;
}
