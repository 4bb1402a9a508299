/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Copies ahead of an eviction, as COPY_AHEAD allows. Between two pieces the agent hears messages,
 * and leaves the bus alone for as long as the last piece took: a program that computes meanwhile
 * shares the memory of the card and of the machine with these copies.
 */

#include "core/u64.h"
#include "hook/agent/agent_private.h"
#include "hook/base/hook_log.h"
#include "hook/base/hook_options.h"
#include "hook/gate/gate.h"
#include "hook/pager/backend.h"
#include "hook/pager/pager.h"
#include "hook/pager/pager_context.h"
#include "util/clock.h"

static void ahead_report(struct agent_link *link, bool is_done)
{
	struct pager_copies copies = pager_copies_read(link->dev);
	struct nvshare_clean body = {
		.bytes = copies.clean,
		.copied = copies.copied,
		.saved = copies.saved,
		.is_done = is_done,
	};

	link->ahead_clean = copies.clean;
	if (link->takes_clean && link->state == AGENT_LINK_UP)
		agent_link_send(link, NVSHARE_MSG_CLEAN, &body);
	link->ahead_saved = copies.saved;
}

void agent_ahead_begin(struct agent_link *link, const struct nvshare_registered *body)
{
	link->takes_clean = body->flags & NVSHARE_REGISTERED_CLEAN && hook_options()->clean &&
			    backend_of(link->dev) != NVSHARE_BACKEND_MANAGED;
	link->ahead = AGENT_AHEAD_NONE;
	if (link->takes_clean)
		ahead_report(link, false);
}

/* A word that has crossed our request means nothing: the scheduler forgets it with the request. */
void agent_ahead_hear(struct agent_link *link, uint64_t bytes)
{
	if (bytes && link->lease.state == LEASE_IDLE)
		link->ahead = AGENT_AHEAD_COPYING;
	else if (!bytes)
		link->ahead = AGENT_AHEAD_NONE;
	link->ahead_ns = 0;
	if (!bytes)
		ahead_report(link, false);
	agent_spares_keep(link);
}

void agent_ahead_end(struct agent_link *link)
{
	link->ahead = AGENT_AHEAD_NONE;
}

/* An eviction has passed chunks by whose copies were clean. */
void agent_ahead_evicted(struct agent_link *link)
{
	if (pager_copies_read(link->dev).saved != link->ahead_saved)
		ahead_report(link, false);
}

/* Copies have gone. */
void agent_ahead_dropped(struct agent_link *link)
{
	if (pager_copies_read(link->dev).clean < link->ahead_clean)
		ahead_report(link, false);
}

/*
 * The gate is closed for all GPUs of the process, and what was submitted has ended. Others who lack
 * host memory, on any GPU, get it rather than these copies.
 */
static bool link_may_copy(const struct agent_link *link)
{
	return link->ahead == AGENT_AHEAD_COPYING && link->lease.state == LEASE_IDLE &&
	       agent_halt_is_drained() && !gate_wanted() && agent_spares_may_grow();
}

static void link_copy_piece(struct agent_link *link, uint64_t now_ns)
{
	enum pager_ahead more = PAGER_AHEAD_DONE;
	struct agent_place place;

	pager_context_load_digests(link->dev, link->pager_context_max);
	if (agent_enter_context(link->dev, &place)) {
		more = pager_copy_ahead(link->dev);
		agent_leave_context(&place);
	}
	if (more == PAGER_AHEAD_DONE) {
		link->ahead = AGENT_AHEAD_DONE;
		ahead_report(link, true);
		hook_debug("device %d: copied ahead as far as it goes", (int)link->dev);
		return;
	}
	link->ahead_ns = more == PAGER_AHEAD_MORE ? 2 * clock_now_ns() - now_ns : AGENT_NEVER;
}

uint64_t agent_ahead_tick(uint64_t now_ns)
{
	uint64_t next_ns = AGENT_NEVER;

	for (struct agent_link *l = agent_link_next(NULL); l; l = agent_link_next(l)) {
		if (!link_may_copy(l))
			continue;
		/* Something has rung, and it may be the host memory that was lacking. */
		if (now_ns >= l->ahead_ns || l->ahead_ns == AGENT_NEVER)
			link_copy_piece(l, clock_now_ns());
		if (link_may_copy(l))
			next_ns = u64_min(next_ns, l->ahead_ns);
	}
	return next_ns;
}
