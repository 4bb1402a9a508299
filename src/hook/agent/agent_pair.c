/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A second GPU for the process. Two processes that take turns on two GPUs could deadlock: each
 * holds one and waits for the other. So such a process takes no turns. It registers as fixed on all
 * of its GPUs. The scheduler allows that only where it fits beside the others for good.
 */

#include "hook/agent/agent_private.h"
#include "hook/base/hook_log.h"

enum pair_phase {
	PAIR_NONE,
	PAIR_WAITING, /* until the process holds the GPUs that it has */
	PAIR_ADDING,  /* the new one registers as fixed */
	PAIR_FIXING,  /* the others register again, as fixed */
};

/* The agent's thread alone. */
static struct {
	enum pair_phase phase;
	struct agent_link *added;
} pair;

#define for_each_other(l)                                                             \
	for (struct agent_link *l = agent_link_next(NULL); l; l = agent_link_next(l)) \
		if (l != pair.added)

bool agent_pair_owns(const struct agent_link *link)
{
	return pair.phase != PAIR_NONE && pair.added == link;
}

static void pair_finish(CUresult res)
{
	CUdevice dev = pair.added->dev;

	pair.phase = PAIR_NONE;
	pair.added = NULL;
	agent_settle(dev, res);
}

static void pair_step_waiting(void)
{
	for_each_other(l)
	{
		if (agent_link_is_coming(l))
			return;
		if (l->state != AGENT_LINK_UP || l->lease.state == LEASE_HOLDING)
			continue;
		if (l->lease.state == LEASE_IDLE)
			agent_lease_step(l, &(struct lease_event){.type = LEASE_EVENT_WANT});
		return;
	}
	pair.added->is_fixed = true;
	pair.phase = PAIR_ADDING;
	agent_link_connect(pair.added);
}

static void link_register_as(struct agent_link *link, bool is_fixed)
{
	link->is_fixed = is_fixed;
	agent_link_close(link);
	agent_link_connect(link);
}

static void pair_refuse(void)
{
	CUdevice dev = pair.added->dev;

	hook_warn_once("a program that uses several GPUs can not take turns, and there is no room "
		       "to let it run beside the others now: show it one GPU "
		       "(CUDA_VISIBLE_DEVICES), or start it when the GPUs are free");
	pair_finish(CUDA_ERROR_NOT_SUPPORTED);
	agent_link_remove(dev);
	for_each_other(l)
	{
		if (l->is_fixed)
			link_register_as(l, false);
	}
}

static void pair_step_adding(void)
{
	if (agent_link_is_coming(pair.added))
		return;
	if (pair.added->state == AGENT_LINK_DOWN && pair.added->is_refused) {
		pair_refuse();
		return;
	}
	/* UP; or the scheduler has gone, and they register so when it is back. */
	pair.phase = PAIR_FIXING;
	for_each_other(l)
	{
		if (l->state == AGENT_LINK_UP && !l->is_fixed)
			link_register_as(l, true);
		l->is_fixed = true;
	}
}

static void pair_step_fixing(void)
{
	for_each_other(l)
	{
		if (agent_link_is_coming(l))
			return;
	}
	for_each_other(l)
	{
		if (l->state == AGENT_LINK_DOWN && l->is_refused) {
			pair_refuse();
			return;
		}
	}
	pair_finish(CUDA_SUCCESS);
}

void agent_pair_step(void)
{
	if (pair.phase == PAIR_WAITING)
		pair_step_waiting();
	if (pair.phase == PAIR_ADDING)
		pair_step_adding();
	if (pair.phase == PAIR_FIXING)
		pair_step_fixing();
}

bool agent_pair_begin(struct agent_link *link)
{
	bool has_other = false, is_managed = false;

	if (pair.phase != PAIR_NONE)
		return true; /* with this GPU, or with one that comes first */
	pair.added = link;
	for_each_other(l)
	{
		has_other = true;
		is_managed = is_managed || l->state != AGENT_LINK_DOWN;
	}
	if (!is_managed) {
		/* Without a scheduler all is allowed. One that comes later hears of it. */
		for_each_other(l) l->is_fixed = true;
		link->is_fixed = has_other;
		pair.added = NULL;
		return false;
	}
	pair.phase = PAIR_WAITING;
	agent_pair_step();
	return true;
}

void agent_pair_reset(void)
{
	pair.phase = PAIR_NONE;
	pair.added = NULL;
}
