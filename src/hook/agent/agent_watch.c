/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Looks whether the process is idle, while a client waits for its GPU. It is idle when for
 * NVSHARE_IDLE_MS no thread has passed the gate or waited for memory, and submitted work is done.
 * Then it gives up the GPU, or rests if others are at work on its memory.
 */

#include "hook/agent/agent_private.h"
#include "hook/base/hook_log.h"
#include "hook/base/hook_options.h"
#include "hook/gate/drain.h"
#include "hook/gate/gate.h"
#include "hook/memory/budget.h"
#include "hook/tickets/tickets.h"
#include "util/clock.h"

#define WATCH_TICK_NS (20 * CLOCK_NS_PER_MS)

enum watch_phase {
	WATCH_BUSY,
	WATCH_PROBING, /* no thread submits; does the device still work? */
	WATCH_QUIET,   /* since quiet_ns */
};

/* The agent's thread alone. */
static struct {
	enum watch_phase phase;
	uint64_t activity; /* gate_activity() at the last look */
	uint64_t tick_ns;  /* the next look */
	uint64_t quiet_ns; /* since when the phase is WATCH_QUIET */
	bool rests;        /* idle, and keeps the GPU for others */
} watch;

bool agent_watch_rests(void)
{
	return watch.rests;
}

/* Of two owners that have each other's memory open, each would keep the GPU for the other one. */
static void watch_set_rests(bool rests)
{
	if (watch.rests == rests)
		return;
	watch.rests = rests;
	agent_for_each_link (l) {
		if (l->state == AGENT_LINK_UP)
			agent_report_send(l);
	}
}

/* A program that waits for memory is not idle: it would give up the turn that brings the memory. */
static bool process_is_watched(void)
{
	bool is_watched = false;

	agent_for_each_link (l) {
		if (share_is_critical(l) || budget_wanting(l->dev))
			return false;
		is_watched = is_watched || (l->is_watched && l->lease.state == LEASE_HOLDING);
	}
	return is_watched;
}

/* Its work has ended, it waits for another GPU of its own, and no thread wants it. */
static bool process_is_over(void)
{
	return agent_lease_is_stopped() && agent_halt_is_drained() && !gate_wanted();
}

static bool watch_is_needed(void)
{
	if (!process_is_watched())
		return false;
	return (gate_get() == GATE_OPEN && !share_is_frozen()) || process_is_over();
}

static void watch_look(uint64_t now_ns)
{
	uint64_t activity = gate_activity();

	if (activity != watch.activity || !gate_quiet()) {
		watch.activity = activity;
		watch.phase = WATCH_BUSY;
		watch_set_rests(false);
		return;
	}
	if (watch.phase == WATCH_BUSY && drain_probe_start(DEVICE_ANY))
		watch.phase = WATCH_PROBING;
	if (watch.phase == WATCH_PROBING && drain_probe_done(DEVICE_ANY)) {
		watch.phase = WATCH_QUIET;
		watch.quiet_ns = now_ns;
	}
}

/* A process with one GPU less can compute on none, so it gives all of them up. */
static void watch_give_up(void)
{
	watch.phase = WATCH_BUSY;
	watch_set_rests(false);
	agent_for_each_link (l) {
		if (l->lease.state != LEASE_HOLDING || !l->lease.grant)
			continue;
		hook_debug("device %d: idle, and others wait", (int)l->dev);
		agent_lease_step(l, &(struct lease_event){.type = LEASE_EVENT_IDLE});
		if (l->lease.state == LEASE_HOLDING)
			return; /* it has found work to do */
	}
}

/* Memory that others of its gang have open would be taken while they work on it. */
static void watch_be_idle(void)
{
	if (tickets_are_used())
		watch_set_rests(true);
	else
		watch_give_up();
}

uint64_t agent_watch_tick(uint64_t now_ns)
{
	if (!watch_is_needed()) {
		watch.phase = WATCH_BUSY;
		watch.tick_ns = 0;
		watch_set_rests(false);
		return AGENT_NEVER;
	}
	if (now_ns >= watch.tick_ns) {
		watch.tick_ns = now_ns + WATCH_TICK_NS;
		if (!process_is_over())
			watch_look(now_ns);
		else
			watch_give_up();
		if (watch.phase == WATCH_QUIET &&
		    now_ns - watch.quiet_ns >= hook_options()->idle_ns)
			watch_be_idle();
	}
	return watch_is_needed() ? watch.tick_ns : AGENT_NEVER;
}
