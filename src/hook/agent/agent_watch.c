/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Looks whether the process is idle, while a client waits for its GPU. It is idle when for
 * NVSHARE_IDLE_MS no thread has passed the gate or waited for memory, and submitted work is done.
 */

#include "hook/agent/agent_private.h"
#include "hook/base/hook_log.h"
#include "hook/base/hook_options.h"
#include "hook/gate/drain.h"
#include "hook/gate/gate.h"
#include "hook/memory/budget.h"
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
} watch;

/* A program that waits for memory is not idle: it would give up the turn that brings the memory. */
static bool link_is_watched(const struct agent_link *link)
{
	return link->is_watched && link->lease.state == LEASE_HOLDING && !share_is_critical(link) &&
	       !budget_wanting(link->dev);
}

static bool watch_is_needed(void)
{
	for (struct agent_link *l = agent_link_next(NULL); l; l = agent_link_next(l)) {
		if (link_is_watched(l))
			return gate_get() == GATE_OPEN && !share_is_frozen();
	}
	return false;
}

static void watch_look(uint64_t now_ns)
{
	uint64_t activity = gate_activity();

	if (activity != watch.activity || !gate_quiet()) {
		watch.activity = activity;
		watch.phase = WATCH_BUSY;
		return;
	}
	if (watch.phase == WATCH_BUSY && drain_probe_start(DEVICE_ANY))
		watch.phase = WATCH_PROBING;
	if (watch.phase == WATCH_PROBING && drain_probe_done(DEVICE_ANY)) {
		watch.phase = WATCH_QUIET;
		watch.quiet_ns = now_ns;
	}
}

static void watch_give_up(void)
{
	watch.phase = WATCH_BUSY;
	for (struct agent_link *l = agent_link_next(NULL); l; l = agent_link_next(l)) {
		if (!link_is_watched(l))
			continue;
		hook_debug("device %d: idle, and others wait", (int)l->dev);
		agent_lease_step(l, &(struct lease_event){.type = LEASE_EVENT_IDLE});
	}
}

uint64_t agent_watch_tick(uint64_t now_ns)
{
	if (!watch_is_needed()) {
		watch.phase = WATCH_BUSY;
		watch.tick_ns = 0;
		return AGENT_NEVER;
	}
	if (now_ns >= watch.tick_ns) {
		watch.tick_ns = now_ns + WATCH_TICK_NS;
		watch_look(now_ns);
		if (watch.phase == WATCH_QUIET &&
		    now_ns - watch.quiet_ns >= hook_options()->idle_ns)
			watch_give_up();
	}
	return watch_is_needed() ? watch.tick_ns : AGENT_NEVER;
}
