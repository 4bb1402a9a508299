/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Stopping the program, and letting it go on. What is wanted is that nothing of it runs:
 * first its work is given a short while to end, and then what still runs is frozen. A
 * frozen program can be paged out in the middle of a kernel, by a second context of the
 * process, which is not frozen. Where that can not be had the work is waited for.
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
 * From the freeze to the first memory given up: a probe and one copy, milliseconds. A
 * driver that is in the way for longer is let go on, by thawing. Copies that take longer, or
 * the host memory for them, extend it as they get on.
 */
#define HALT_LIMIT_NS CLOCK_NS_PER_SEC

/*
 * To have the processor that a thread inside needs to come to the driver: some periods of a
 * limit on processor time, as containers have it.
 */
#define HALT_SETTLE_NS (300 * CLOCK_NS_PER_MS)

/* Contention that comes back within this finds everything ready. */
#define HALT_SPARE_NS (30 * CLOCK_NS_PER_SEC)

/* Freezes that follow each other too soon are put off by a few milliseconds. */
#define HALT_TRIES_MAX 5
#define HALT_PAUSE_NS  (3 * CLOCK_NS_PER_MS)

/*
 * After so many freezes that had to be called off the next stop waits for the work; and
 * after that every other one, until a freeze has come to something.
 */
#define HALT_FAILURES_MAX 2

static struct {
	uint32_t n_failures; /* in a row: evictions under a freeze that came to nothing */
	bool is_frozen;      /* since the last stop; not a moment's truth, see freeze_commit() */
	uint64_t host_max; /* bytes of host memory, for others lack it; AGENT_NEVER: they do not */
	uint64_t host_wanted; /* what they lack, as it was told last */
} halt = {.host_max = AGENT_NEVER};

bool agent_halt_is_frozen(void)
{
	return halt.is_frozen;
}

/* enum nvshare_halt, but for what the reserve has room for. */
static uint32_t find_how(const struct agent_link *link)
{
	uint32_t how = freeze_halt();

	if (how == NVSHARE_HALT_FREEZE && backend_of(link->dev) == NVSHARE_BACKEND_MANAGED)
		how = NVSHARE_HALT_MANAGED;
	if (how == NVSHARE_HALT_FREEZE && halt.n_failures >= HALT_FAILURES_MAX)
		how = NVSHARE_HALT_FAILED;
	return how;
}

/* Whether stopping link's program may end in a freeze. */
static bool may_freeze(const struct agent_link *link)
{
	return find_how(link) == NVSHARE_HALT_FREEZE;
}

static void tell(const struct agent_link *link, uint32_t how)
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
	uint32_t how = find_how(link);

	if (how == NVSHARE_HALT_FREEZE && link->lacks_second)
		how = NVSHARE_HALT_NO_ROOM;
	if (how != link->told_how)
		tell(link, how);
	link->told_how = how;
	return how;
}

/*
 * Nothing of the program may get ahead of the value that is to stand still: for these few
 * milliseconds, once a GPU, nobody enters. Who captures would not get through.
 */
static void prove_busy(CUdevice dev, CUcontext ctx)
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
		prove_busy(dev, c->ctx);
	else if (c)
		(void)freeze_prove(dev, c->ctx);
	device_context_drop(c);
}

/*
 * With the program still running: what an eviction of bytes needs is made ready, so that
 * it does not cost the program's time later. true: it can be frozen for it. One that has
 * anything on the card may be told to give it up after it was frozen for nothing, and then
 * it is too late for a second context.
 */
bool agent_halt_prepare(struct agent_link *link, uint64_t bytes, bool is_urgent)
{
	struct agent_place place;
	struct nvshare_mem mem;
	bool is_ready;

	budget_read(link->dev, &mem);
	is_ready = may_freeze(link);
	link->lacks_second =
		is_ready && mem.resident && !pager_context_make(link->dev, link->pager_context_max);
	is_ready = is_ready && !link->lacks_second;
	/* The first stop finds it proven, whatever is in its way then. */
	if (is_ready && !is_urgent && !freeze_is_proven(link->dev) && !share_is_frozen())
		agent_halt_prove(link->dev, true);
	/* What others lack is not taken ahead. */
	if (bytes && (is_urgent || halt.host_max == AGENT_NEVER) &&
	    agent_enter_context(link->dev, &place)) {
		/* More than there is can not go. */
		pager_prepare(link->dev, bytes < mem.resident ? bytes : mem.resident, is_urgent);
		agent_leave_context(&place);
	}
	return is_ready;
}

void agent_halt_touch(const struct agent_link *link, uint64_t bytes)
{
	struct nvshare_mem mem;

	/* All GPUs have one pool, and who was told first has it. */
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
 * Host memory is unregistered where that can be; without a context that is done already. Of a
 * program that runs not in its own contexts, which may wait for its work. false: not now.
 */
static bool let_go(const struct agent_link *link)
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
 * What an idle program has out was registered in the context that is gone. It comes back at
 * the speed of the bus only if it is again; bit by bit, so that messages are heard between.
 */
static bool register_host_memory(struct agent_link *link)
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
 * Bit by bit, so that messages are heard between. Not in a context in which the program runs
 * while nobody waits: there it would have to be unregistered, too.
 */
static bool add_host_memory(const struct agent_link *link)
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
 * Of what was reported, for that is what they count with. Once: what was given for it is not
 * given again when something else is told with it.
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
 * In a context of the program's that may wait for its work, which nothing here may: then what
 * is registered stays.
 */
static uint64_t give_some(const struct agent_link *link)
{
	struct agent_place place;
	uint64_t given;

	if (!pager_context_get(link->dev) && lease_is_open(&link->lease))
		return hostpool_give_touched();
	if (!agent_enter_context(link->dev, &place))
		return 0;
	given = pager_mover_is_hung() ? 0 : pager_give_host_memory(link->dev);
	agent_leave_context(&place);
	return given;
}

/* Bit by bit, too. What is in use now may not be in a moment: it stays wanted. */
static bool give_host_memory(const struct agent_link *link)
{
	uint64_t given = hostpool_bytes() > halt.host_max ? give_some(link) : 0;

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

	while (link && give_host_memory(link))
		;
}

/*
 * Others count with what is touched ahead. And with what was told: what is not there any more
 * would be asked for, and missing is what others lack.
 */
static bool is_host_news(const struct agent_link *link)
{
	struct nvshare_mem mem;

	agent_lease_memory(link->dev, &mem);
	return mem.host != link->reported.host;
}

uint64_t agent_halt_tick(struct agent_link *link, uint64_t now_ns)
{
	struct nvshare_mem mem;

	if (is_host_news(link))
		bell_memory_changed(link->dev);
	if (!device_has_context(link->dev)) {
		budget_read(link->dev, &mem);
		if (!mem.swapped) /* ours alone is no reason to hold the card, but for that */
			(void)let_go(link);
		else if (hostpool_bytes() > halt.host_max)
			hostpool_trim(); /* it is registered in no context */
		return AGENT_NEVER;
	}
	if (now_ns >= link->spare_ns) {
		link->is_host_loose = let_go(link);
		link->spare_ns = link->is_host_loose ? AGENT_NEVER : now_ns + HALT_SPARE_NS;
	}
	if (give_host_memory(link) || register_host_memory(link))
		return now_ns;
	return add_host_memory(link) ? now_ns : link->spare_ns;
}

/* It may have allocated since it was looked at, up to the moment in which it was frozen. */
static bool can_move(const struct agent_link *link)
{
	struct nvshare_mem mem;

	budget_read(link->dev, &mem);
	return !mem.resident || pager_context_get(link->dev);
}

/* The gate closes for whoever is not inside; who is, is blocked when it has settled. */
static uint32_t freeze(const struct agent_link *link, uint64_t begin_ns)
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
	/* The time limit is for what follows; where it has ended all the same, that finds out. */
	if (!r && can_move(link) && inflight_wait(HALT_SETTLE_NS)) {
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
 * A gate that is closed for another GPU stays closed. One that was closed here, by a freeze
 * that came to nothing or to keep the program off, keeps its open captures from ending.
 */
static uint32_t drain(uint64_t max_ns, bool may_open)
{
	if (may_open && gate_get() == GATE_CLOSED && gate_capture_open())
		gate_set(GATE_NO_CAPTURES);
	return (uint32_t)drain_run(max_ns);
}

/*
 * How a drain ended in the place of a freeze. Nothing is at work, and nothing in the way of
 * the proof that was missing: the next stop need not wait.
 */
static uint32_t drained(const struct agent_link *link, uint32_t outcome)
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
		/* What was in the way of freezing may be gone: that is looked at once more. */
		if (!is_idle && halt.n_failures >= HALT_FAILURES_MAX)
			halt.n_failures = HALT_FAILURES_MAX - 1;
		share_let_go();
		return drain(max_ns, may_open);
	}

	/* Without a limit there would be no freeze before the work has ended. */
	outcome = NVSHARE_OUTCOME_TIMEOUT;
	if (!share_is_frozen()) {
		share_let_go();
		if (drain_has_limit())
			outcome = drain(grace_ns < max_ns ? grace_ns : max_ns, may_open);
	} /* else nothing of it ends while it is held */
	if (outcome != NVSHARE_OUTCOME_TIMEOUT)
		return drained(link, outcome);
	outcome = freeze(link, begin_ns);
	if (outcome == NVSHARE_OUTCOME_SUCCESS && !bytes)
		outcome = agent_halt_evicted(outcome);
	if (outcome == NVSHARE_OUTCOME_TIMEOUT) {
		halt.is_frozen = false; /* what comes is a drain */
		outcome = drained(link, drain(max_ns, may_open));
	}
	return outcome;
}

/*
 * What was unmapped has committed the freeze. Where nothing was, the program would be thawed
 * in a moment, and run on while it counts as stopped.
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
