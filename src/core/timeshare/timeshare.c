/* SPDX-License-Identifier: Apache-2.0 */

#include "core/timeshare/timeshare.h"

#include "core/list.h"
#include "core/timeshare/burst.h"
#include "core/timeshare/energy.h"
#include "core/timeshare/slice.h"
#include "core/timeshare/slice_policy.h"
#include "core/timeshare/timers.h"
#include "core/timeshare/timeshare_events.h"
#include "core/timeshare/timeshare_part.h"
#include "core/timeshare/timeshare_update.h"
#include "core/timeshare/usage.h"
#include "core/timeshare/weights.h"
#include "core/u64.h"

#include <assert.h>
#include <string.h>

#define US_NS      1000ull
#define MS_NS      1000000ull
#define SECOND_NS  1000000000ull
#define HOUR_NS    (3600 * SECOND_NS)
#define WEIGHT_MAX 10000u
#define WATT_MAX   (TIMESHARE_POWER_MAX / 1000)

/* The most in one step, because a thousand may be due together. */
#define TIMERS_MAX  24u
#define REFRESH_MAX 24u

void timeshare_config_default(struct timeshare_config *ret_config)
{
	*ret_config = (struct timeshare_config){
		.is_hinting = true,
		.has_classes = true,
		.is_holding = true,
		.lc_max_percent = 90,
		.lc_window_ns = SECOND_NS,
		.equal_slice_us = 10000,
		.be_slice_us = 100,
		.slice_us = {200, 500, 1000, 5000000},
		.active_ns = SECOND_NS,
		.turn_ns = 200 * MS_NS,
		.hold_ns = SECOND_NS,
		.hint_ns = 10 * MS_NS,
		.margin_ns = 50 * US_NS,
		.prepare_ns = 100 * US_NS,
		.burst_ns = 10 * SECOND_NS,
		.slow_ns = 3 * MS_NS,
		.answer_ns = SECOND_NS,
		.retry_ns = 10 * SECOND_NS,
	};
}

int timeshare_config_check(const struct timeshare_config *config)
{
	bool is_good =
		u64_is_within(config->slice_rule, 0, TIMESHARE_RULE_COUNT_ - 1) &&
		u64_is_within(config->lc_max_percent, 10, 100) &&
		u64_is_within(config->lc_window_ns, 10 * MS_NS, 60 * SECOND_NS) &&
		u64_is_within(config->equal_slice_us, TIMESHARE_SLICE_MIN, TIMESHARE_SLICE_MAX) &&
		u64_is_within(config->be_slice_us, TIMESHARE_SLICE_MIN, TIMESHARE_SLICE_MAX) &&
		u64_is_within(config->active_ns, MS_NS, 60 * SECOND_NS) &&
		u64_is_within(config->turn_ns, MS_NS, 10 * SECOND_NS) &&
		u64_is_within(config->hold_ns, 10 * MS_NS, 60 * SECOND_NS) &&
		u64_is_within(config->hint_ns, 100 * US_NS, SECOND_NS) &&
		u64_is_within(config->margin_ns, US_NS, config->hint_ns) &&
		u64_is_within(config->prepare_ns, 0, config->hint_ns) &&
		u64_is_within(config->burst_ns, MS_NS, HOUR_NS) &&
		u64_is_within(config->slow_ns, US_NS, SECOND_NS) &&
		u64_is_within(config->answer_ns, MS_NS, 60 * SECOND_NS) &&
		u64_is_within(config->retry_ns, MS_NS, HOUR_NS) &&
		u64_is_within(config->energy_budget_w, 0, WATT_MAX);

	for (int i = 0; i < TIMESHARE_CLASS_COUNT_; i++)
		is_good = is_good && u64_is_within(config->slice_us[i], TIMESHARE_SLICE_MIN,
						   TIMESHARE_SLICE_MAX);
	return is_good ? 0 : TIMESHARE_E_VALUE;
}

static void timeshare_init_gpu(struct timeshare *timeshare, uint32_t gpu)
{
	struct timeshare_gpu *g = &timeshare->gpus[gpu];

	memset(g, 0, sizeof(*g));
	list_init(&g->running);
	usage_init(timeshare, gpu);
	g->sweep_at = TIMESHARE_NONE;
	g->turn = TIMESHARE_NONE;
	g->leaving = TIMESHARE_NONE;
	g->wake_ns = TIMESHARE_NO_DEADLINE;
	g->credit = burst_credit_max(&timeshare->config);
	energy_fill(timeshare, gpu);
	for (int class = 0; class < TIMESHARE_CLASS_COUNT_; class ++)
		weights_init(&g->weights[class], TIMESHARE_ORDER_WEIGHT);
	weights_init(&g->slos, TIMESHARE_ORDER_SLO);
	slice_plan(&timeshare->config, g, &g->slices);
}

void timeshare_init(struct timeshare *timeshare, struct timeshare_client *clients,
		    uint32_t n_clients, const struct timeshare_config *config)
{
	assert(timeshare_config_check(config) == 0);
	memset(timeshare, 0, sizeof(*timeshare));
	timeshare->config = *config;
	timeshare->clients = clients;
	timeshare->n_clients = n_clients;
	list_init(&timeshare->dirty);
	for (uint32_t i = 0; i < TIMESHARE_GPUS_MAX; i++)
		timeshare_init_gpu(timeshare, i);
}

static bool claim_is_good(const struct timeshare_claim *claim)
{
	return u64_is_within(claim->class, 0, TIMESHARE_CLASS_COUNT_ - 1) &&
	       u64_is_within(claim->weight, 1, WEIGHT_MAX) && u64_is_within(claim->limit, 0, 100);
}

static int on_config(struct timeshare *timeshare, const struct timeshare_event *event)
{
	bool had_classes = timeshare->config.has_classes;
	enum timeshare_rule had_rule = timeshare->config.slice_rule;
	int r;

	r = timeshare_config_check(event->config);
	if (r)
		return r;
	for (uint32_t i = 0; i < TIMESHARE_GPUS_MAX; i++) {
		burst_advance(timeshare, i);
		timeshare->gpus[i].is_dirty = true;
	}
	timeshare->config = *event->config;
	for (uint32_t i = 0; i < TIMESHARE_GPUS_MAX; i++) {
		energy_fill(timeshare, i);
		/* Another rule may change slices although slice_plan()'s values stay the same. */
		if (had_rule != timeshare->config.slice_rule)
			timeshare_update_all(timeshare, i);
	}
	if (had_classes != timeshare->config.has_classes)
		timeshare->n_stale = timeshare->n_clients;
	return 0;
}

static int on_join(struct timeshare *timeshare, const struct timeshare_event *event)
{
	struct timeshare_client *c = &timeshare->clients[event->client];
	uint32_t heap_slot = c->heap_slot;

	if (c->state != TIMESHARE_CLIENT_FREE)
		return TIMESHARE_E_EXISTS;
	if (event->gpu >= TIMESHARE_GPUS_MAX)
		return TIMESHARE_E_NO_GPU;
	if (!claim_is_good(&event->claim))
		return TIMESHARE_E_VALUE;

	memset(c, 0, sizeof(*c));
	c->heap_slot = heap_slot; /* belongs to another client, timers.h */
	c->state = TIMESHARE_CLIENT_STOPPED;
	c->gpu = event->gpu;
	c->claim = event->claim;
	c->part.class = timeshare_part_class(timeshare, &event->claim);
	c->part.weight = event->claim.weight;
	c->loose = TIMESHARE_ONE;
	c->linger_ns = TIMESHARE_NO_DEADLINE;
	c->burst_end_ns = TIMESHARE_NO_DEADLINE;
	c->hint_ns = TIMESHARE_NO_DEADLINE;
	c->answer_ns = TIMESHARE_NO_DEADLINE;
	c->renew_ns = TIMESHARE_NO_DEADLINE;
	c->retry_ns = TIMESHARE_NO_DEADLINE;
	c->silent_ns = TIMESHARE_NO_DEADLINE;
	c->due_ns = TIMESHARE_NO_DEADLINE;
	slice_policy_join(c);
	usage_join(timeshare, event->client);
	return 0;
}

static int on_leave(struct timeshare *timeshare, const struct timeshare_event *event)
{
	struct timeshare_client *c = &timeshare->clients[event->client];

	timeshare_events_stop(timeshare, event->client);
	burst_note_off(timeshare, event->client, false);
	c->answer_ns = TIMESHARE_NO_DEADLINE;
	c->renew_ns = TIMESHARE_NO_DEADLINE;
	c->retry_ns = TIMESHARE_NO_DEADLINE;
	timers_set(timeshare, event->client);
	usage_leave(timeshare, event->client);
	timeshare_update_none(timeshare, event->client);
	c->state = TIMESHARE_CLIENT_FREE;
	return 0;
}

static int on_claim(struct timeshare *timeshare, const struct timeshare_event *event)
{
	struct timeshare_client *c = &timeshare->clients[event->client];

	if (!claim_is_good(&event->claim))
		return TIMESHARE_E_VALUE;
	timeshare_update_none(timeshare, event->client); /* its place there depends on its class */
	c->claim = event->claim;
	c->is_claim_new = true;
	timeshare_part_refresh(timeshare, event->client);
	return 0;
}

static int on_run(struct timeshare *timeshare, const struct timeshare_event *event)
{
	struct timeshare_client *c = &timeshare->clients[event->client];

	if (event->running == (c->state == TIMESHARE_CLIENT_RUNNING))
		return 0;
	if (event->running)
		timeshare_events_run(timeshare, event->client);
	else
		timeshare_events_stop(timeshare, event->client);
	return 0;
}

static int on_power(struct timeshare *timeshare, const struct timeshare_event *event)
{
	if (event->gpu >= TIMESHARE_GPUS_MAX)
		return TIMESHARE_E_NO_GPU;
	if (event->value > TIMESHARE_POWER_MAX)
		return TIMESHARE_E_VALUE;
	timeshare->gpus[event->gpu].power_mw = event->value;
	return 0;
}

/* The counts, and what was learned, say nothing of the other GPU. */
static int on_gpu(struct timeshare *timeshare, const struct timeshare_event *event)
{
	if (event->gpu >= TIMESHARE_GPUS_MAX)
		return TIMESHARE_E_NO_GPU;
	for (uint32_t i = 0; i < timeshare->n_clients; i++) {
		if (timeshare->clients[i].state != TIMESHARE_CLIENT_FREE &&
		    timeshare->clients[i].gpu == event->gpu)
			return TIMESHARE_E_EXISTS;
	}
	timeshare_init_gpu(timeshare, event->gpu);
	return 0;
}

static int on_time(struct timeshare *timeshare)
{
	uint32_t client;

	for (uint32_t n = 0; n < TIMERS_MAX; n++) {
		client = timers_first(timeshare);
		if (client == TIMESHARE_NONE ||
		    timeshare->clients[client].due_ns > timeshare->now_ns ||
		    timeshare->out->n + EVENTS_REPORTS_MAX >= TIMESHARE_ACTIONS_MAX)
			break;
		timeshare_events_timer(timeshare, client);
	}
	for (uint32_t i = 0; i < TIMESHARE_GPUS_MAX; i++) {
		if (timeshare->gpus[i].wake_ns <= timeshare->now_ns)
			timeshare->gpus[i].is_dirty = true;
	}
	return 0;
}

static int timeshare_handle(struct timeshare *timeshare, const struct timeshare_event *event)
{
	switch (event->type) {
	case TIMESHARE_EVENT_CONFIG:
		return on_config(timeshare, event);
	case TIMESHARE_EVENT_JOIN:
		return on_join(timeshare, event);
	case TIMESHARE_EVENT_LEAVE:
		return on_leave(timeshare, event);
	case TIMESHARE_EVENT_CLAIM:
		return on_claim(timeshare, event);
	case TIMESHARE_EVENT_RUN:
		return on_run(timeshare, event);
	case TIMESHARE_EVENT_ACTIVITY:
		return timeshare_events_activity(timeshare, event);
	case TIMESHARE_EVENT_DONE:
		return timeshare_events_done(timeshare, event);
	case TIMESHARE_EVENT_POWER:
		return on_power(timeshare, event);
	case TIMESHARE_EVENT_TIME:
		return on_time(timeshare);
	case TIMESHARE_EVENT_GPU:
		return on_gpu(timeshare, event);
	case TIMESHARE_EVENT_COUNT_:
		break;
	}
	assert(!"event type out of range");
	return TIMESHARE_E_VALUE;
}

static void timeshare_plan(struct timeshare *timeshare, uint32_t gpu)
{
	struct timeshare_gpu *g = &timeshare->gpus[gpu];
	struct timeshare_slices slices;
	bool is_shared = g->running.n > 1;

	g->is_dirty = false;
	burst_plan(timeshare, gpu);
	slice_policy_plan(timeshare, gpu);
	slice_plan(&timeshare->config, g, &slices);
	if (is_shared == g->is_shared && !memcmp(&slices, &g->slices, sizeof(slices)))
		return;
	g->is_shared = is_shared;
	g->slices = slices;
	timeshare_update_all(timeshare, gpu);
}

/* After a CONFIG: counts clients anew, some in each step. */
static void timeshare_refresh_stale(struct timeshare *timeshare)
{
	for (uint32_t n = 0; n < REFRESH_MAX && timeshare->n_stale > 0; n++) {
		uint32_t client = timeshare->n_clients - timeshare->n_stale--;

		if (timeshare->clients[client].state != TIMESHARE_CLIENT_FREE)
			timeshare_part_refresh(timeshare, client);
	}
}

static bool event_is_of_client(enum timeshare_event_type type)
{
	return type != TIMESHARE_EVENT_CONFIG && type != TIMESHARE_EVENT_POWER &&
	       type != TIMESHARE_EVENT_TIME && type != TIMESHARE_EVENT_GPU;
}

int timeshare_step(struct timeshare *timeshare, const struct timeshare_event *event,
		   struct timeshare_actions *ret_actions)
{
	int r = 0;

	assert(event->now_ns >= timeshare->now_ns);
	assert(!event_is_of_client(event->type) || event->client < timeshare->n_clients);

	timeshare->now_ns = event->now_ns;
	ret_actions->n = 0;
	timeshare->out = ret_actions;
	if (event_is_of_client(event->type) && event->type != TIMESHARE_EVENT_JOIN &&
	    timeshare->clients[event->client].state == TIMESHARE_CLIENT_FREE)
		r = TIMESHARE_E_NO_CLIENT;
	else
		r = timeshare_handle(timeshare, event);
	if (!r) {
		timeshare_refresh_stale(timeshare);
		for (uint32_t i = 0; i < TIMESHARE_GPUS_MAX; i++) {
			if (timeshare->gpus[i].is_dirty)
				timeshare_plan(timeshare, i);
		}
		timeshare_update_flush(timeshare);
	}
	timeshare->out = NULL;
	return r;
}

uint64_t timeshare_deadline(const struct timeshare *timeshare)
{
	uint64_t deadline = TIMESHARE_NO_DEADLINE;
	uint32_t client = timers_first(timeshare);

	if (timeshare->n_stale > 0 || timeshare_update_is_pending(timeshare))
		return timeshare->now_ns;
	if (client != TIMESHARE_NONE)
		deadline = timeshare->clients[client].due_ns;
	for (uint32_t i = 0; i < TIMESHARE_GPUS_MAX; i++) {
		if (timeshare->gpus[i].is_dirty)
			return timeshare->now_ns;
		if (timeshare->gpus[i].wake_ns < deadline)
			deadline = timeshare->gpus[i].wake_ns;
	}
	return deadline < timeshare->now_ns ? timeshare->now_ns : deadline;
}
