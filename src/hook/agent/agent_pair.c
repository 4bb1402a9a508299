/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A second GPU for the process. Taking turns on two GPUs could deadlock with another
 * process that holds one and waits for the other, so such a process does not take
 * turns: it registers as fixed on all of its GPUs, which the scheduler allows only when
 * it fits beside the others for good.
 */

#include "hook/agent/agent_private.h"
#include "hook/base/hook_log.h"

enum pair_phase {
	PAIR_NONE,
	PAIR_WAITING, /* until the process holds the GPUs that it has */
	PAIR_ADDING,  /* the new one registers as fixed */
	PAIR_FIXING,  /* the others register again, as fixed */
};

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

static void finish(CUresult res)
{
	CUdevice dev = pair.added->dev;

	pair.phase = PAIR_NONE;
	pair.added = NULL;
	agent_settle(dev, res);
}

static void step_waiting(void)
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

static void register_again(struct agent_link *link, bool is_fixed)
{
	link->is_fixed = is_fixed;
	agent_link_close(link);
	agent_link_connect(link);
}

static void refuse(void)
{
	CUdevice dev = pair.added->dev;

	hook_warn_once("a program that uses several GPUs can not take turns, and there is no room "
		       "to let it run beside the others now: show it one GPU "
		       "(CUDA_VISIBLE_DEVICES), or start it when the GPUs are free");
	finish(CUDA_ERROR_NOT_SUPPORTED);
	agent_link_remove(dev);
	for_each_other(l)
	{
		if (l->is_fixed)
			register_again(l, false);
	}
}

static void step_adding(void)
{
	if (agent_link_is_coming(pair.added))
		return;
	if (pair.added->state == AGENT_LINK_DOWN && pair.added->is_refused) {
		refuse();
		return;
	}
	/* UP; or the scheduler has just gone, then this is how they register when it is back. */
	pair.phase = PAIR_FIXING;
	for_each_other(l)
	{
		if (l->state == AGENT_LINK_UP && !l->is_fixed)
			register_again(l, true);
		l->is_fixed = true;
	}
}

static void step_fixing(void)
{
	for_each_other(l)
	{
		if (agent_link_is_coming(l))
			return;
	}
	for_each_other(l)
	{
		if (l->state == AGENT_LINK_DOWN && l->is_refused) {
			refuse();
			return;
		}
	}
	finish(CUDA_SUCCESS);
}

void agent_pair_step(void)
{
	if (pair.phase == PAIR_WAITING)
		step_waiting();
	if (pair.phase == PAIR_ADDING)
		step_adding();
	if (pair.phase == PAIR_FIXING)
		step_fixing();
}

bool agent_pair_begin(struct agent_link *link)
{
	bool has_other = false, is_managed = false;

	if (pair.phase != PAIR_NONE)
		return true; /* this one, or one that comes first */
	pair.added = link;
	for_each_other(l)
	{
		has_other = true;
		is_managed = is_managed || l->state != AGENT_LINK_DOWN;
	}
	if (!is_managed) {
		/* No scheduler: everything is allowed, and one that comes is told. */
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
