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

/* Of one step: a thousand may be due together. */
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

void timeshare_init(struct timeshare *share, struct timeshare_client *clients, uint32_t n_clients,
		    const struct timeshare_config *config)
{
	assert(timeshare_config_check(config) == 0);
	memset(share, 0, sizeof(*share));
	share->config = *config;
	share->clients = clients;
	share->n_clients = n_clients;
	list_init(&share->dirty);
	for (uint32_t i = 0; i < TIMESHARE_GPUS_MAX; i++) {
		struct timeshare_gpu *g = &share->gpus[i];

		list_init(&g->running);
		usage_init(share, i);
		g->sweep_at = TIMESHARE_NONE;
		g->turn = TIMESHARE_NONE;
		g->leaving = TIMESHARE_NONE;
		g->wake_ns = TIMESHARE_NO_DEADLINE;
		g->credit = burst_credit_max(config);
		energy_fill(share, i);
		for (int class = 0; class < TIMESHARE_CLASS_COUNT_; class ++)
			weights_init(&g->weights[class], TIMESHARE_ORDER_WEIGHT);
		weights_init(&g->slos, TIMESHARE_ORDER_SLO);
		slice_plan(config, g, &g->slices);
	}
}

static bool claim_is_good(const struct timeshare_claim *claim)
{
	return u64_is_within(claim->class, 0, TIMESHARE_CLASS_COUNT_ - 1) &&
	       u64_is_within(claim->weight, 1, WEIGHT_MAX) && u64_is_within(claim->limit, 0, 100);
}

static int on_config(struct timeshare *share, const struct timeshare_event *event)
{
	bool had_classes = share->config.has_classes;
	enum timeshare_rule had_rule = share->config.slice_rule;
	int r;

	r = timeshare_config_check(event->config);
	if (r)
		return r;
	for (uint32_t i = 0; i < TIMESHARE_GPUS_MAX; i++) {
		burst_advance(share, i);
		share->gpus[i].is_dirty = true;
	}
	share->config = *event->config;
	for (uint32_t i = 0; i < TIMESHARE_GPUS_MAX; i++) {
		energy_fill(share, i);
		/* Slices by another rule may be made of the same for all. */
		if (had_rule != share->config.slice_rule)
			timeshare_update_all(share, i);
	}
	if (had_classes != share->config.has_classes)
		share->n_stale = share->n_clients;
	return 0;
}

static int on_join(struct timeshare *share, const struct timeshare_event *event)
{
	struct timeshare_client *c = &share->clients[event->client];
	uint32_t heap_slot = c->heap_slot;

	if (c->state != TIMESHARE_CLIENT_FREE)
		return TIMESHARE_E_EXISTS;
	if (event->gpu >= TIMESHARE_GPUS_MAX)
		return TIMESHARE_E_NO_GPU;
	if (!claim_is_good(&event->claim))
		return TIMESHARE_E_VALUE;

	memset(c, 0, sizeof(*c));
	c->heap_slot = heap_slot; /* another's */
	c->state = TIMESHARE_CLIENT_STOPPED;
	c->gpu = event->gpu;
	c->claim = event->claim;
	c->part.class = timeshare_part_class(share, &event->claim);
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
	usage_join(share, event->client);
	return 0;
}

static int on_leave(struct timeshare *share, const struct timeshare_event *event)
{
	struct timeshare_client *c = &share->clients[event->client];

	timeshare_events_stop(share, event->client);
	burst_note_off(share, event->client, false);
	c->answer_ns = TIMESHARE_NO_DEADLINE;
	c->renew_ns = TIMESHARE_NO_DEADLINE;
	c->retry_ns = TIMESHARE_NO_DEADLINE;
	timers_set(share, event->client);
	usage_leave(share, event->client);
	timeshare_update_none(share, event->client);
	c->state = TIMESHARE_CLIENT_FREE;
	return 0;
}

static int on_claim(struct timeshare *share, const struct timeshare_event *event)
{
	struct timeshare_client *c = &share->clients[event->client];

	if (!claim_is_good(&event->claim))
		return TIMESHARE_E_VALUE;
	timeshare_update_none(share, event->client); /* its class says where it belongs there */
	c->claim = event->claim;
	c->is_claim_new = true;
	timeshare_part_refresh(share, event->client);
	return 0;
}

static int on_run(struct timeshare *share, const struct timeshare_event *event)
{
	struct timeshare_client *c = &share->clients[event->client];

	if (event->running == (c->state == TIMESHARE_CLIENT_RUNNING))
		return 0;
	if (event->running)
		timeshare_events_run(share, event->client);
	else
		timeshare_events_stop(share, event->client);
	return 0;
}

static int on_power(struct timeshare *share, const struct timeshare_event *event)
{
	if (event->gpu >= TIMESHARE_GPUS_MAX)
		return TIMESHARE_E_NO_GPU;
	if (event->value > TIMESHARE_POWER_MAX)
		return TIMESHARE_E_VALUE;
	share->gpus[event->gpu].power_mw = event->value;
	return 0;
}

static int on_time(struct timeshare *share)
{
	uint32_t client;

	for (uint32_t n = 0; n < TIMERS_MAX; n++) {
		client = timers_first(share);
		if (client == TIMESHARE_NONE || share->clients[client].due_ns > share->now_ns ||
		    share->out->n + EVENTS_REPORTS_MAX >= TIMESHARE_ACTIONS_MAX)
			break;
		timeshare_events_timer(share, client);
	}
	for (uint32_t i = 0; i < TIMESHARE_GPUS_MAX; i++) {
		if (share->gpus[i].wake_ns <= share->now_ns)
			share->gpus[i].is_dirty = true;
	}
	return 0;
}

static int timeshare_handle(struct timeshare *share, const struct timeshare_event *event)
{
	switch (event->type) {
	case TIMESHARE_EVENT_CONFIG:
		return on_config(share, event);
	case TIMESHARE_EVENT_JOIN:
		return on_join(share, event);
	case TIMESHARE_EVENT_LEAVE:
		return on_leave(share, event);
	case TIMESHARE_EVENT_CLAIM:
		return on_claim(share, event);
	case TIMESHARE_EVENT_RUN:
		return on_run(share, event);
	case TIMESHARE_EVENT_ACTIVITY:
		return timeshare_events_activity(share, event);
	case TIMESHARE_EVENT_DONE:
		return timeshare_events_done(share, event);
	case TIMESHARE_EVENT_POWER:
		return on_power(share, event);
	case TIMESHARE_EVENT_TIME:
		return on_time(share);
	case TIMESHARE_EVENT_COUNT_:
		break;
	}
	assert(!"event type out of range");
	return TIMESHARE_E_VALUE;
}

static void timeshare_plan(struct timeshare *share, uint32_t gpu)
{
	struct timeshare_gpu *g = &share->gpus[gpu];
	struct timeshare_slices slices;
	bool is_shared = g->running.n > 1;

	g->is_dirty = false;
	burst_plan(share, gpu);
	slice_policy_plan(share, gpu);
	slice_plan(&share->config, g, &slices);
	if (is_shared == g->is_shared && !memcmp(&slices, &g->slices, sizeof(slices)))
		return;
	g->is_shared = is_shared;
	g->slices = slices;
	timeshare_update_all(share, gpu);
}

/* After a CONFIG, some in each step. */
static void timeshare_refresh_stale(struct timeshare *share)
{
	for (uint32_t n = 0; n < REFRESH_MAX && share->n_stale > 0; n++) {
		uint32_t client = share->n_clients - share->n_stale--;

		if (share->clients[client].state != TIMESHARE_CLIENT_FREE)
			timeshare_part_refresh(share, client);
	}
}

static bool event_is_of_client(enum timeshare_event_type type)
{
	return type != TIMESHARE_EVENT_CONFIG && type != TIMESHARE_EVENT_POWER &&
	       type != TIMESHARE_EVENT_TIME;
}

int timeshare_step(struct timeshare *share, const struct timeshare_event *event,
		   struct timeshare_actions *ret_actions)
{
	int r = 0;

	assert(event->now_ns >= share->now_ns);
	assert(!event_is_of_client(event->type) || event->client < share->n_clients);

	share->now_ns = event->now_ns;
	ret_actions->n = 0;
	share->out = ret_actions;
	if (event_is_of_client(event->type) && event->type != TIMESHARE_EVENT_JOIN &&
	    share->clients[event->client].state == TIMESHARE_CLIENT_FREE)
		r = TIMESHARE_E_NO_CLIENT;
	else
		r = timeshare_handle(share, event);
	if (!r) {
		timeshare_refresh_stale(share);
		for (uint32_t i = 0; i < TIMESHARE_GPUS_MAX; i++) {
			if (share->gpus[i].is_dirty)
				timeshare_plan(share, i);
		}
		timeshare_update_flush(share);
	}
	share->out = NULL;
	return r;
}

uint64_t timeshare_deadline(const struct timeshare *share)
{
	uint64_t deadline = TIMESHARE_NO_DEADLINE;
	uint32_t client = timers_first(share);

	if (share->n_stale > 0 || timeshare_update_is_pending(share))
		return share->now_ns;
	if (client != TIMESHARE_NONE)
		deadline = share->clients[client].due_ns;
	for (uint32_t i = 0; i < TIMESHARE_GPUS_MAX; i++) {
		if (share->gpus[i].is_dirty)
			return share->now_ns;
		if (share->gpus[i].wake_ns < deadline)
			deadline = share->gpus[i].wake_ns;
	}
	return deadline < share->now_ns ? share->now_ns : deadline;
}
