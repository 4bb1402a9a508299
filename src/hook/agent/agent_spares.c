/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The pager context and host memory make a stop quick. Both are kept for a while after they were
 * needed, and host memory goes to others that lack it.
 */

#include "core/u64.h"
#include "hook/agent/agent_private.h"
#include "hook/base/hook_log.h"
#include "hook/gate/bell.h"
#include "hook/gate/device.h"
#include "hook/host/hostpool.h"
#include "hook/host/slabs.h"
#include "hook/memory/budget.h"
#include "hook/pager/pager_context.h"
#include "util/clock.h"

/*
 * Registering host memory takes the driver's locks, which programs need, too, and so does each
 * freeze. A pause is so many times as long.
 */
#define SPARES_ADD_PAUSE    2
#define SPARES_ADD_RETRY_NS (100 * CLOCK_NS_PER_MS)

/* The pager context and host memory are kept so long after contention has ended. */
#define SPARES_SPARE_NS (30 * CLOCK_NS_PER_SEC)

static struct {
	uint64_t add_ns;      /* no host memory is added or registered before */
	uint64_t host_max;    /* bytes of host memory while others lack some; else AGENT_NEVER */
	uint64_t host_wanted; /* bytes that others lack, by the last message */
} spares = {.host_max = AGENT_NEVER};

bool agent_spares_may_grow(void)
{
	return spares.host_max == AGENT_NEVER;
}

void agent_spares_touch(const struct agent_link *link, uint64_t bytes)
{
	struct nvshare_mem mem;

	/* All GPUs share one pool of host memory: the first GPU that was told uses it. */
	for (struct agent_link *l = agent_link_next(NULL); l; l = agent_link_next(l)) {
		if (l != link && (l->is_watched || l->is_near))
			return;
	}
	if (bytes && !agent_spares_may_grow())
		return;
	budget_read(link->dev, &mem);
	hook_debug("device %d: %llu bytes may have to go soon", (int)link->dev,
		   (unsigned long long)bytes);
	pager_touch(link->dev, bytes < mem.resident ? bytes : mem.resident);
}

/* A stop is expected, on any GPU. */
static bool process_is_expected(void)
{
	agent_for_each_link (l) {
		if (l->is_watched || l->is_near)
			return true;
	}
	return false;
}

/* A context of a frozen process must not be destroyed. */
void agent_spares_keep(struct agent_link *link)
{
	bool has_any = pager_context_get(link->dev) || hostpool_has_any();
	bool may_lie = lease_is_open(&link->lease) || link->lease.state == LEASE_IDLE;

	if (!has_any || !may_lie || agent_halt_is_frozen() || process_is_expected() ||
	    link->ahead != AGENT_AHEAD_NONE)
		link->spare_ns = AGENT_NEVER;
	else if (link->spare_ns == AGENT_NEVER)
		link->spare_ns = clock_now_ns() + SPARES_SPARE_NS;
}

/*
 * Gives back the pager context and host memory that are kept for the next stop. Unregistering host
 * memory in a context of the program may wait for its work. So while the program runs, only memory
 * goes that is registered in the pager context, or nowhere. false: try later.
 */
static bool link_drop_spares(struct agent_link *link)
{
	bool has_any = pager_context_get(link->dev) || hostpool_has_any(), is_hung = false;
	struct agent_place place;

	pager_drop_copies(link->dev);
	agent_ahead_dropped(link);
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

static void spares_pause(uint64_t begin_ns)
{
	uint64_t end_ns = clock_now_ns();

	spares.add_ns = end_ns + (end_ns - begin_ns) * SPARES_ADD_PAUSE;
}

/*
 * Evicted memory of an idle program was registered in the pager context that is gone. It must be
 * registered again to come back at the speed of the bus. One part at a time, so that the agent
 * hears messages between, and with pauses. true: there is more.
 */
static bool host_register_one(struct agent_link *link)
{
	uint64_t begin_ns = clock_now_ns();
	struct agent_place place;

	if (!link->is_host_loose || begin_ns < spares.add_ns)
		return false;
	link->is_host_loose = false;
	if (link->lease.state != LEASE_IDLE || !agent_enter_context(link->dev, &place))
		return false;
	link->is_host_loose = hostpool_register_one();
	agent_leave_context(&place);
	spares_pause(begin_ns);
	return link->is_host_loose;
}

/*
 * Where no stop is expected, nothing is registered: a stop that is over may have left touched
 * memory, and another program may have to be frozen just now. Without waiters and without a pager
 * context a running program gets none: unregistering it would have to wait for the program's work.
 */
static bool link_may_register(const struct agent_link *link)
{
	bool is_foreseen = process_is_expected() || link->ahead == AGENT_AHEAD_COPYING;

	return is_foreseen &&
	       (link->is_watched || !lease_is_open(&link->lease) || pager_context_get(link->dev));
}

/* One part at a time, so that the agent hears messages between. */
static bool host_add_one(const struct agent_link *link)
{
	bool may_register = link_may_register(link);
	uint64_t begin_ns = clock_now_ns();
	struct agent_place place;

	if (begin_ns < spares.add_ns || !hostpool_may_add(may_register) ||
	    !agent_enter_context(link->dev, &place))
		return false;
	hostpool_add_one(may_register);
	agent_leave_context(&place);
	spares_pause(begin_ns);
	bell_memory_changed(link->dev);
	return true;
}

/*
 * The limit is what was last reported, less bytes: the scheduler's sums are of reports. The same
 * bytes again change nothing, so that no host memory is given twice for one lack.
 */
void agent_spares_wanted(uint64_t bytes)
{
	uint64_t host = agent_lease_host_told(NULL).bytes;

	if (bytes == spares.host_wanted)
		return;
	spares.host_wanted = bytes;
	spares.host_max = bytes ? host - (bytes < host ? bytes : host) : AGENT_NEVER;
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
	uint64_t given = hostpool_bytes() > spares.host_max ? host_give_one(link) : 0;

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

	/* Memory that goes out on another GPU needs it itself. */
	agent_for_each_link (l) {
		if (l->out_asked)
			link = NULL;
	}
	while (link && host_give_wanted(link))
		;
	slabs_receive();
	while (link && slabs_wanted() && agent_slabs_give_one(link))
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

/* The pool is the process's: it may be in use for another GPU. */
static bool process_uses_another(const struct agent_link *link)
{
	agent_for_each_link (l) {
		if (l != link && device_has_context(l->dev))
			return true;
	}
	return false;
}

uint64_t agent_spares_tick(struct agent_link *link, uint64_t now_ns)
{
	struct nvshare_mem mem;

	if (host_has_changed(link))
		bell_memory_changed(link->dev);
	if (!device_has_context(link->dev)) {
		budget_read(link->dev, &mem);
		if (process_uses_another(link))
			return AGENT_NEVER;
		if (!mem.swapped) /* only evicted memory needs the pager context still */
			(void)link_drop_spares(link);
		else if (hostpool_bytes() > spares.host_max || slabs_wanted())
			hostpool_trim(); /* it is registered in no context */
		return AGENT_NEVER;
	}
	if (now_ns >= link->spare_ns) {
		link->is_host_loose = link_drop_spares(link);
		link->spare_ns = link->is_host_loose ? AGENT_NEVER : now_ns + SPARES_SPARE_NS;
	}
	if (host_give_wanted(link) || host_register_one(link) || agent_slabs_give_one(link))
		return now_ns;
	if (host_add_one(link))
		return u64_min(spares.add_ns, link->spare_ns);
	if (link->is_host_loose || hostpool_may_add(link_may_register(link)))
		return u64_min(spares.add_ns > now_ns ? spares.add_ns
						      : now_ns + SPARES_ADD_RETRY_NS,
			       link->spare_ns);
	return link->spare_ns;
}

void agent_spares_reset(void)
{
	spares.host_max = AGENT_NEVER;
	spares.host_wanted = 0;
	spares.add_ns = 0;
}
