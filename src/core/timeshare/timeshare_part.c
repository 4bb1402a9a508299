/* SPDX-License-Identifier: Apache-2.0 */

#include "core/timeshare/timeshare_part.h"

#include "core/list.h"
#include "core/timeshare/burst.h"
#include "core/timeshare/slice_policy.h"
#include "core/timeshare/timers.h"
#include "core/timeshare/timeshare_update.h"
#include "core/timeshare/usage.h"
#include "core/timeshare/weights.h"

#include <string.h>

enum timeshare_class timeshare_part_class(const struct timeshare *timeshare,
					  const struct timeshare_claim *claim)
{
	if (timeshare->config.has_classes || claim->class == TIMESHARE_CLASS_CRITICAL)
		return claim->class;
	return TIMESHARE_CLASS_NORMAL;
}

/* The request of a client that is not critical may have its work later, or never. */
bool timeshare_part_is_at_work(const struct timeshare_client *c)
{
	return c->work == TIMESHARE_WORK_BUSY ||
	       (timeshare_is_in_burst(c) && c->claim.class == TIMESHARE_CLASS_CRITICAL);
}

static struct timeshare_part client_part(const struct timeshare *timeshare,
					 const struct timeshare_client *c)
{
	bool is_critical = c->claim.class == TIMESHARE_CLASS_CRITICAL;
	bool is_busy = c->work == TIMESHARE_WORK_BUSY, is_bursting = timeshare_is_in_burst(c);
	bool is_hinted = c->burst == TIMESHARE_BURST_HINTED;
	enum timeshare_class class = timeshare_part_class(timeshare, &c->claim);

	if (c->state != TIMESHARE_CLIENT_RUNNING)
		return (struct timeshare_part){.class = class, .weight = c->claim.weight};
	return (struct timeshare_part){
		.class = class,
		.weight = c->claim.weight,
		.slo_us = is_critical ? c->claim.slo_us : 0,
		.loose = is_critical && is_busy && !is_bursting ? c->loose : 0,
		.is_running = true,
		.is_active = timeshare_part_is_at_work(c) || is_hinted ||
			     c->linger_ns != TIMESHARE_NO_DEADLINE,
		.is_wanting = !is_critical && timeshare_part_is_at_work(c),
		.is_bursting = is_critical && is_bursting,
		.is_holding =
			is_critical && ((is_bursting && c->arm == TIMESHARE_ARM_HOLD) || is_hinted),
		.is_late = is_critical && is_bursting && c->pace.slack == TIMESHARE_SLACK_LATE,
	};
}

static void client_uncount(struct timeshare *timeshare, uint32_t client)
{
	const struct timeshare_part *part = &timeshare->clients[client].part;
	struct timeshare_gpu *g = &timeshare->gpus[timeshare->clients[client].gpu];

	g->n_wanting -= part->is_wanting;
	g->n_bursting -= part->is_bursting;
	g->n_holders -= part->is_holding;
	g->n_late -= part->is_late;
	g->loose -= part->loose;
	if (!part->is_active)
		return;
	g->n_active[part->class]--;
	weights_remove(timeshare, client);
}

static void client_count(struct timeshare *timeshare, uint32_t client)
{
	const struct timeshare_part *part = &timeshare->clients[client].part;
	struct timeshare_gpu *g = &timeshare->gpus[timeshare->clients[client].gpu];

	g->n_wanting += part->is_wanting;
	g->n_bursting += part->is_bursting;
	g->n_holders += part->is_holding;
	g->n_late += part->is_late;
	g->loose += part->loose;
	if (!part->is_active)
		return;
	g->n_active[part->class]++;
	weights_add(timeshare, client);
}

void timeshare_part_refresh(struct timeshare *timeshare, uint32_t client)
{
	struct timeshare_client *c = &timeshare->clients[client];
	struct timeshare_gpu *g = &timeshare->gpus[c->gpu];
	struct timeshare_part old = c->part, part;

	slice_policy_look(timeshare, client);
	part = client_part(timeshare, c);
	timers_set(timeshare, client);
	timeshare_update_touch(timeshare, client);
	if (!memcmp(&old, &part, sizeof(part)))
		return;
	burst_advance(timeshare, c->gpu);
	client_uncount(timeshare, client);
	c->part = part;
	client_count(timeshare, client);
	if (part.is_bursting && !old.is_bursting && g->n_bursting == 1 &&
	    c->burst != TIMESHARE_BURST_REQUEST)
		usage_burst_begins(timeshare, c->gpu);
	if (old.is_bursting && !part.is_bursting && g->n_bursting == 0)
		usage_burst_ends(timeshare, c->gpu, timeshare->now_ns);
	if (part.is_running && !old.is_running)
		list_push_back(LIST_SLOTS(timeshare->clients, TIMESHARE_LINK_RUNNING), &g->running,
			       client);
	if (!part.is_running && old.is_running) {
		timeshare_update_moves(timeshare, client);
		list_remove(LIST_SLOTS(timeshare->clients, TIMESHARE_LINK_RUNNING), &g->running,
			    client);
	}
	g->is_dirty = true;
}
