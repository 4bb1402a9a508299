/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Tells the scheduler which clients belong together. A process has one gate, so its GPUs compute
 * together or not at all. Processes of one job wait for each other in the middle of a step, so they
 * have a gang of a name (gang_name.h).
 */

#include "hook/agent/agent_private.h"
#include "hook/base/hook_log.h"
#include "hook/base/hook_options.h"

#include <stdio.h>

static bool process_has_several(void)
{
	return agent_link_next(agent_link_next(NULL)) != NULL;
}

/*
 * Once it has run, it waits for nobody: a member may have ended before a new scheduler came. Before
 * the first scheduler it ran without one. The size is that of the user's own gang.
 */
static uint32_t link_gang_size(const struct agent_link *link)
{
	const struct hook_options *options = hook_options();
	bool has_begun = link->has_run || link->is_running;

	return *options->gang && !options->is_gang_found && !has_begun ? options->gang_size : 0;
}

static void link_join(struct agent_link *link)
{
	struct nvshare_gang body = {.size = link_gang_size(link)};

	(void)snprintf(body.name, sizeof(body.name), "%s", hook_options()->gang);
	link->is_in_gang = true;
	agent_link_send(link, NVSHARE_MSG_GANG, &body);
	hook_debug("device %d: in the gang of %s", (int)link->dev,
		   *body.name ? body.name : "its process");
}

/* An older scheduler gives a turn on each GPU by itself, and they seldom fall together. */
static void gang_warn(void)
{
	if (process_has_several())
		hook_warn_once("the scheduler knows no gangs: this program uses several GPUs, and "
			       "runs only while it has its turn on all of them. Upgrade "
			       "nvshare-scheduler to the library's release.");
	else if (!hook_options()->is_gang_found)
		hook_warn_once("the scheduler knows no gangs, so NVSHARE_GANG has no effect. "
			       "Upgrade nvshare-scheduler to the library's release.");
}

void agent_gang_begin(struct agent_link *link, const struct nvshare_registered *body)
{
	link->takes_gang = body->flags & NVSHARE_REGISTERED_GANG;
	link->is_in_gang = false;
	if (!*hook_options()->gang && !process_has_several())
		return;
	if (!link->takes_gang)
		gang_warn();
	/* With a second GPU the first one is in a gang, too. */
	agent_for_each_link (l) {
		if (l->state == AGENT_LINK_UP && l->takes_gang && !l->is_in_gang)
			link_join(l);
	}
}
