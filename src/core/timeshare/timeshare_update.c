/* SPDX-License-Identifier: Apache-2.0 */

#include "core/timeshare/timeshare_update.h"

#include "core/list.h"
#include "core/timeshare/burst.h"
#include "core/timeshare/slice.h"
#include "core/timeshare/slice_policy.h"
#include "core/timeshare/timers.h"
#include "core/timeshare/usage.h"

#include <assert.h>

/* The most reports that one event causes. */
#define REPORTS_MAX 8u

/* The most clients of one step. A look takes about 0.1 us, or 0.3 us if its memory is cold. */
#define LOOKS_MAX 48u

/* Open SETs of a client, so that the socket of a mute client does not fill. */
#define OPEN_MAX 8u

/* A change of use_ppm that is worth a message. A client with a limit depends on the value. */
#define USE_STEP_LIMIT 20000u
#define USE_STEP       100000u

/* A shorter slice does not end one that has begun. Being off for this time does. */
#define KICK_NS 1000000ull

void timeshare_update_touch(struct timeshare *timeshare, uint32_t client)
{
	struct timeshare_client *c = &timeshare->clients[client];

	if (c->is_dirty)
		return;
	c->is_dirty = true;
	if (c->claim.class == TIMESHARE_CLASS_CRITICAL)
		list_push_back(LIST_SLOTS(timeshare->clients, TIMESHARE_LINK_DIRTY),
			       &timeshare->dirty, client);
	else
		list_push_front(LIST_SLOTS(timeshare->clients, TIMESHARE_LINK_DIRTY),
				&timeshare->dirty, client);
}

void timeshare_update_all(struct timeshare *timeshare, uint32_t gpu)
{
	timeshare->gpus[gpu].n_sweep = timeshare->gpus[gpu].running.n;
}

/* A client may be looked at once too often, as may the first one, but none is left out. */
void timeshare_update_moves(struct timeshare *timeshare, uint32_t client)
{
	struct timeshare_client *c = &timeshare->clients[client];
	struct timeshare_gpu *g = &timeshare->gpus[c->gpu];

	if (g->n_sweep == 0)
		return;
	if (g->sweep_at == client)
		g->sweep_at = c->link[TIMESHARE_LINK_RUNNING].next;
	g->n_sweep++;
	timeshare_update_touch(timeshare,
			       client); /* if it was the last, the sweep ends before it */
}

bool timeshare_update_is_pending(const struct timeshare *timeshare)
{
	if (timeshare->dirty.n > 0)
		return true;
	for (uint32_t i = 0; i < TIMESHARE_GPUS_MAX; i++) {
		if (timeshare->gpus[i].n_sweep > 0)
			return true;
	}
	return false;
}

void timeshare_update_none(struct timeshare *timeshare, uint32_t client)
{
	struct timeshare_client *c = &timeshare->clients[client];

	if (!c->is_dirty)
		return;
	c->is_dirty = false;
	list_remove(LIST_SLOTS(timeshare->clients, TIMESHARE_LINK_DIRTY), &timeshare->dirty,
		    client);
}

void timeshare_update_report(struct timeshare *timeshare, uint32_t client, uint32_t gpu,
			     enum timeshare_report report, uint64_t seq)
{
	/* A full list drops the report, which is only a line in the log. */
	if (timeshare->out->n == TIMESHARE_ACTIONS_MAX)
		return;
	timeshare->out->at[timeshare->out->n++] = (struct timeshare_action){
		.type = TIMESHARE_ACTION_REPORT,
		.client = client,
		.gpu = gpu,
		.report = report,
		.seq = seq,
	};
}

bool timeshare_update_may_tell(const struct timeshare_client *c)
{
	return c->told.seq - c->told.seq_done < OPEN_MAX;
}

static bool client_is_told_held(const struct timeshare *timeshare, const struct timeshare_client *c)
{
	return c->told.until_ns > timeshare->now_ns;
}

static uint64_t client_slice(const struct timeshare *timeshare, const struct timeshare_client *c)
{
	const struct timeshare_gpu *g = &timeshare->gpus[c->gpu];

	if (!g->is_shared)
		return 0;
	/* A client without work keeps its slice: a change would be a message for nothing. */
	if (!c->part.is_active && c->told.slice_us)
		return c->told.slice_us;
	return slice_policy_slice(&timeshare->config, g, c, slice_of(&g->slices, &c->part));
}

bool timeshare_update_has_slice(const struct timeshare *timeshare, uint32_t client)
{
	const struct timeshare_client *c = &timeshare->clients[client];

	return !c->part.is_running || !timeshare_update_may_tell(c) ||
	       client_slice(timeshare, c) == c->told.slice_us;
}

/* true: half of the hold has passed. A hint's hold is only renewed by a later end. */
static bool hold_is_renewal(const struct timeshare *timeshare, uint32_t client, uint64_t until_ns)
{
	uint64_t told_ns = timeshare->clients[client].told.until_ns;

	if (burst_is_brief(timeshare, client))
		return until_ns > told_ns;
	return until_ns >= told_ns + timeshare->config.hold_ns / 2;
}

static bool client_has_news(const struct timeshare *timeshare, uint32_t client, uint64_t slice_us,
			    uint64_t until_ns)
{
	const struct timeshare_client *c = &timeshare->clients[client];
	uint64_t use_ppm = c->usage.use_ppm, told_ppm = c->told.use_ppm;
	uint64_t step_ppm = c->claim.limit ? USE_STEP_LIMIT : USE_STEP;

	if (slice_us != c->told.slice_us || c->is_claim_new || c->is_stray)
		return true;
	if ((until_ns > 0) != client_is_told_held(timeshare, c))
		return true;
	if (until_ns > 0 && hold_is_renewal(timeshare, client, until_ns))
		return true;
	return slice_us > 0 &&
	       (use_ppm > told_ppm ? use_ppm - told_ppm : told_ppm - use_ppm) >= step_ppm;
}

static void hold_end(struct timeshare *timeshare, uint32_t client)
{
	struct timeshare_client *c = &timeshare->clients[client];

	c->told.hold_seq = 0;
	burst_note_off(timeshare, client, false);
	if (c->hold == TIMESHARE_HOLD_TOLD)
		c->hold = TIMESHARE_HOLD_NONE;
}

static void hold_note(struct timeshare *timeshare, uint32_t client, uint64_t until_ns)
{
	struct timeshare_client *c = &timeshare->clients[client];
	struct timeshare_gpu *g = &timeshare->gpus[c->gpu];

	c->renew_ns = TIMESHARE_NO_DEADLINE;
	if (until_ns == 0) {
		hold_end(timeshare, client);
	} else if (!client_is_told_held(timeshare, c)) {
		c->told.hold_seq = c->told.seq;
		burst_note_asked(timeshare, client);
		if (c->hold == TIMESHARE_HOLD_NONE)
			c->hold = TIMESHARE_HOLD_TOLD;
		if (g->is_holding && c->hold != TIMESHARE_HOLD_TIMED) {
			c->hold = TIMESHARE_HOLD_TIMED;
			/* The preemption begins now: clients that were held before are off. */
			if (g->n_pending++ == 0)
				g->preempt_ns = timeshare->now_ns;
		}
	}
	if (until_ns > timeshare->now_ns + timeshare->config.hold_ns / 2)
		c->renew_ns = until_ns - timeshare->config.hold_ns / 2;
	c->told.until_ns = until_ns;
}

/* The client is critical, and its work may be in a slice. */
static bool burst_has_begun(const struct timeshare *timeshare, const struct timeshare_client *c)
{
	if (c->claim.class != TIMESHARE_CLASS_CRITICAL)
		return false;
	return timeshare_is_in_burst(c) ? c->pace.begin_ns < timeshare->now_ns
					: c->work == TIMESHARE_WORK_BUSY;
}

static void client_tell(struct timeshare *timeshare, uint32_t client, uint64_t slice_us,
			uint64_t until_ns)
{
	struct timeshare_client *c = &timeshare->clients[client];
	uint64_t hold_ns = until_ns ? until_ns - timeshare->now_ns : 0;

	if (burst_has_begun(timeshare, c) && slice_us < c->told.slice_us / 2)
		hold_ns = KICK_NS;
	c->told.seq++;
	hold_note(timeshare, client, until_ns);
	c->told.slice_us = slice_us;
	c->told.use_ppm = c->usage.use_ppm;
	c->is_claim_new = false;
	c->is_stray = false;
	if (c->answer_ns == TIMESHARE_NO_DEADLINE)
		c->answer_ns = timeshare->now_ns + timeshare->config.answer_ns;
	timers_set(timeshare, client);
	timeshare->out->at[timeshare->out->n++] = (struct timeshare_action){
		.type = TIMESHARE_ACTION_SET,
		.client = client,
		.gpu = c->gpu,
		.seq = c->told.seq,
		.slice_us = slice_us,
		.hold_us = (hold_ns + 999) / 1000,
		.use_ppm = c->told.use_ppm,
	};
}

static void client_look(struct timeshare *timeshare, uint32_t client)
{
	struct timeshare_client *c = &timeshare->clients[client];
	uint64_t slice_us = client_slice(timeshare, c), until_ns = 0;

	if (burst_holds(timeshare, client))
		until_ns = burst_until(timeshare, client);
	if (c->part.is_running && timeshare_update_may_tell(c) &&
	    client_has_news(timeshare, client, slice_us, until_ns))
		client_tell(timeshare, client, slice_us, until_ns);
	else if (!c->part.is_running && timeshare_update_may_tell(c) && c->is_claim_new)
		client_tell(timeshare, client, c->told.slice_us,
			    0); /* it tells this claim to the next scheduler */
	if (!client_is_told_held(timeshare, c) && c->told.hold_seq)
		hold_end(timeshare, client); /* its time is over */
	/* A request without work is not present: its work may come later. */
	usage_set(timeshare, client,
		  c->part.is_running && !client_is_told_held(timeshare, c) &&
			  (c->work == TIMESHARE_WORK_BUSY ||
			   (c->part.is_bursting && c->burst != TIMESHARE_BURST_REQUEST)),
		  c->told.slice_us);
}

static bool may_look(const struct timeshare *timeshare, uint32_t n_looks)
{
	return n_looks < LOOKS_MAX && timeshare->out->n + REPORTS_MAX < TIMESHARE_ACTIONS_MAX;
}

static void flush_touched(struct timeshare *timeshare, bool is_critical_too, uint32_t *n_looks)
{
	while (timeshare->dirty.n > 0 && may_look(timeshare, *n_looks)) {
		uint32_t client = timeshare->dirty.first;

		if (!is_critical_too &&
		    timeshare->clients[client].claim.class == TIMESHARE_CLASS_CRITICAL)
			return;
		timeshare_update_none(timeshare, client);
		client_look(timeshare, client);
		(*n_looks)++;
	}
}

/* Looks at the others first, and touches critical clients, which come after all of them. */
static void flush_sweep(struct timeshare *timeshare, struct timeshare_gpu *g, uint32_t *n_looks)
{
	while (g->n_sweep > 0 && g->running.n > 0 && may_look(timeshare, *n_looks)) {
		uint32_t client = g->sweep_at == TIMESHARE_NONE ? g->running.first : g->sweep_at;

		g->n_sweep--;
		g->sweep_at = timeshare->clients[client].link[TIMESHARE_LINK_RUNNING].next;
		(*n_looks)++;
		if (timeshare->clients[client].claim.class == TIMESHARE_CLASS_CRITICAL) {
			timeshare_update_touch(timeshare, client);
			continue;
		}
		timeshare_update_none(timeshare, client);
		client_look(timeshare, client);
	}
	if (g->n_sweep == 0 || g->running.n == 0) {
		g->n_sweep = 0;
		g->sweep_at = TIMESHARE_NONE;
	}
}

void timeshare_update_flush(struct timeshare *timeshare)
{
	bool is_sweeping = false;
	uint32_t n_looks = 0;

	flush_touched(timeshare, false, &n_looks);
	for (uint32_t i = 0; i < TIMESHARE_GPUS_MAX; i++) {
		flush_sweep(timeshare, &timeshare->gpus[i], &n_looks);
		is_sweeping = is_sweeping || timeshare->gpus[i].n_sweep > 0;
	}
	if (!is_sweeping)
		flush_touched(timeshare, true, &n_looks);
}
