/* SPDX-License-Identifier: Apache-2.0 */

/* Slabs of host memory (host/slabs.h): who lends them, and what goes back when. */

#include "hook/agent/agent_private.h"
#include "hook/host/hostpool.h"
#include "hook/host/slab_map.h"
#include "hook/host/slabs.h"
#include "hook/memory/budget.h"
#include "hook/pager/backend.h"
#include "ipc/pass.h"

/* One pair serves the process, whatever GPU it came for. A connection asks for one once. */
static void slabs_borrow(struct agent_link *link)
{
	if (link->state != AGENT_LINK_UP || !link->takes_slabs || link->has_borrowed ||
	    slabs_is_open())
		return;
	link->has_borrowed = true;
	agent_link_send(link, NVSHARE_MSG_BORROW, NULL);
}

bool agent_slabs_may_borrow(struct agent_link *link)
{
	return backend_of(link->dev) == NVSHARE_BACKEND_VMM &&
	       slab_map_supported(link->dev, &link->slab_node);
}

void agent_slabs_begin(struct agent_link *link, const struct nvshare_registered *body)
{
	link->takes_slabs = link->may_borrow && (body->flags & NVSHARE_REGISTERED_SLABS);
	link->has_borrowed = false;
	slabs_borrow(link);
}

void agent_slabs_lent(const struct agent_link *link, const struct nvshare_slabs *body, int fd)
{
	if (link->has_borrowed && !slabs_is_open())
		slabs_open(fd, body->slab_bytes, link->slab_node);
	else
		pass_close(fd);
}

/* Slabs hold what is out. All else could go back. */
static uint64_t slabs_unused(void)
{
	uint64_t bytes = slabs_bytes(), out = 0;
	struct nvshare_mem mem;

	for (struct agent_link *l = agent_link_next(NULL); l; l = agent_link_next(l)) {
		budget_read(l->dev, &mem);
		out += mem.swapped;
	}
	return bytes > out ? bytes - out : 0;
}

void agent_slabs_tick(void)
{
	for (struct agent_link *l = agent_link_next(NULL); l; l = agent_link_next(l))
		slabs_borrow(l);
	slabs_tell_unused(slabs_unused());
}

/*
 * One at a time, so that the agent hears messages between. If others lack slabs, one goes even
 * where an eviction is expected, and clean copies go with it.
 */
bool agent_slabs_give_one(const struct agent_link *link)
{
	bool is_wanted = slabs_wanted() > 0;
	struct agent_place place;
	uint64_t given;

	if (!slabs_bytes() && !slabs_promised())
		return false;
	if (!is_wanted && !hostpool_may_return())
		return false;
	if (!agent_enter_context(link->dev, &place))
		return false;
	given = pager_mover_is_any_hung() ? 0 : pager_return_slab(link->dev, is_wanted);
	agent_leave_context(&place);
	return given > 0;
}
