/* SPDX-License-Identifier: Apache-2.0 */

#include "core/share/share.h"

#include "core/share/burst.h"
#include "core/share/chain.h"
#include "core/share/energy.h"
#include "core/share/hark.h"
#include "core/share/pace.h"
#include "core/share/slice.h"
#include "core/share/timers.h"
#include "core/share/touch.h"
#include "core/share/usage.h"
#include "core/share/weights.h"

#include <assert.h>
#include <string.h>

#define US_NS      1000ull
#define MS_NS      1000000ull
#define SECOND_NS  1000000000ull
#define HOUR_NS    (3600 * SECOND_NS)
#define WEIGHT_MAX 10000u
#define WATT_MAX   (SHARE_POWER_MAX / 1000)

/* Of one step: a thousand may be due together. */
#define TIMERS_MAX  24u
#define REFRESH_MAX 24u

void share_config_default(struct share_config *ret_config)
{
	*ret_config = (struct share_config){
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

static bool within(uint64_t value, uint64_t min, uint64_t max)
{
	return value >= min && value <= max;
}

int share_config_check(const struct share_config *config)
{
	bool is_good = within(config->slice_rule, 0, SHARE_RULE_COUNT_ - 1) &&
		       within(config->lc_max_percent, 10, 100) &&
		       within(config->lc_window_ns, 10 * MS_NS, 60 * SECOND_NS) &&
		       within(config->equal_slice_us, SHARE_SLICE_MIN, SHARE_SLICE_MAX) &&
		       within(config->be_slice_us, SHARE_SLICE_MIN, SHARE_SLICE_MAX) &&
		       within(config->active_ns, MS_NS, 60 * SECOND_NS) &&
		       within(config->turn_ns, MS_NS, 10 * SECOND_NS) &&
		       within(config->hold_ns, 10 * MS_NS, 60 * SECOND_NS) &&
		       within(config->hint_ns, 100 * US_NS, SECOND_NS) &&
		       within(config->margin_ns, US_NS, config->hint_ns) &&
		       within(config->prepare_ns, 0, config->hint_ns) &&
		       within(config->burst_ns, MS_NS, HOUR_NS) &&
		       within(config->slow_ns, US_NS, SECOND_NS) &&
		       within(config->answer_ns, MS_NS, 60 * SECOND_NS) &&
		       within(config->retry_ns, MS_NS, HOUR_NS) &&
		       within(config->energy_budget_w, 0, WATT_MAX);

	for (int i = 0; i < SHARE_CLASS_COUNT_; i++)
		is_good = is_good && within(config->slice_us[i], SHARE_SLICE_MIN, SHARE_SLICE_MAX);
	return is_good ? 0 : SHARE_E_VALUE;
}

void share_init(struct share *share, struct share_client *clients, uint32_t n_clients,
		const struct share_config *config)
{
	assert(share_config_check(config) == 0);
	memset(share, 0, sizeof(*share));
	share->config = *config;
	share->clients = clients;
	share->n_clients = n_clients;
	chain_init(&share->dirty);
	for (uint32_t i = 0; i < SHARE_GPUS_MAX; i++) {
		struct share_gpu *g = &share->gpus[i];

		chain_init(&g->running);
		usage_init(share, i);
		g->sweep_at = SHARE_NONE;
		g->turn = SHARE_NONE;
		g->leaving = SHARE_NONE;
		g->wake_ns = SHARE_NO_DEADLINE;
		g->credit = burst_credit_max(config);
		energy_fill(share, i);
		for (int class = 0; class < SHARE_CLASS_COUNT_; class ++)
			weights_init(&g->weights[class], SHARE_ORDER_WEIGHT);
		weights_init(&g->slos, SHARE_ORDER_SLO);
		slice_plan(config, g, &g->slices);
	}
}

static bool is_claim_good(const struct share_claim *claim)
{
	return within(claim->class, 0, SHARE_CLASS_COUNT_ - 1) &&
	       within(claim->weight, 1, WEIGHT_MAX) && within(claim->limit, 0, 100);
}

static int on_config(struct share *share, const struct share_event *event)
{
	bool had_classes = share->config.has_classes;
	enum share_rule had_rule = share->config.slice_rule;
	int r;

	r = share_config_check(event->config);
	if (r)
		return r;
	for (uint32_t i = 0; i < SHARE_GPUS_MAX; i++) {
		burst_advance(share, i);
		share->gpus[i].is_dirty = true;
	}
	share->config = *event->config;
	for (uint32_t i = 0; i < SHARE_GPUS_MAX; i++) {
		energy_fill(share, i);
		/* Slices by another rule may be made of the same for all. */
		if (had_rule != share->config.slice_rule)
			touch_all(share, i);
	}
	if (had_classes != share->config.has_classes)
		share->n_stale = share->n_clients;
	return 0;
}

static int on_join(struct share *share, const struct share_event *event)
{
	struct share_client *c = &share->clients[event->client];
	uint32_t heap_slot = c->heap_slot;

	if (c->is_joined)
		return SHARE_E_EXISTS;
	if (event->gpu >= SHARE_GPUS_MAX)
		return SHARE_E_NO_GPU;
	if (!is_claim_good(&event->claim))
		return SHARE_E_VALUE;

	memset(c, 0, sizeof(*c));
	c->heap_slot = heap_slot; /* another's */
	c->is_joined = true;
	c->gpu = event->gpu;
	c->claim = event->claim;
	c->part.class = hark_class(share, &event->claim);
	c->part.weight = event->claim.weight;
	c->loose = SHARE_ONE;
	c->linger_ns = SHARE_NO_DEADLINE;
	c->burst_end_ns = SHARE_NO_DEADLINE;
	c->hint_ns = SHARE_NO_DEADLINE;
	c->answer_ns = SHARE_NO_DEADLINE;
	c->renew_ns = SHARE_NO_DEADLINE;
	c->retry_ns = SHARE_NO_DEADLINE;
	c->silent_ns = SHARE_NO_DEADLINE;
	c->due_ns = SHARE_NO_DEADLINE;
	pace_join(c);
	usage_join(share, event->client);
	return 0;
}

static int on_leave(struct share *share, const struct share_event *event)
{
	struct share_client *c = &share->clients[event->client];

	hark_stop(share, event->client);
	burst_note_off(share, event->client, false);
	c->answer_ns = SHARE_NO_DEADLINE;
	c->renew_ns = SHARE_NO_DEADLINE;
	c->retry_ns = SHARE_NO_DEADLINE;
	timers_set(share, event->client);
	usage_leave(share, event->client);
	touch_none(share, event->client);
	c->is_joined = false;
	return 0;
}

static int on_claim(struct share *share, const struct share_event *event)
{
	struct share_client *c = &share->clients[event->client];

	if (!is_claim_good(&event->claim))
		return SHARE_E_VALUE;
	touch_none(share, event->client); /* its class says where it belongs there */
	c->claim = event->claim;
	c->is_claim_new = true;
	hark_refresh(share, event->client);
	return 0;
}

static int on_run(struct share *share, const struct share_event *event)
{
	struct share_client *c = &share->clients[event->client];

	if (event->running == c->is_let_in)
		return 0;
	if (event->running)
		hark_run(share, event->client);
	else
		hark_stop(share, event->client);
	return 0;
}

static int on_power(struct share *share, const struct share_event *event)
{
	if (event->gpu >= SHARE_GPUS_MAX)
		return SHARE_E_NO_GPU;
	if (event->value > SHARE_POWER_MAX)
		return SHARE_E_VALUE;
	share->gpus[event->gpu].power_mw = event->value;
	return 0;
}

static int on_time(struct share *share)
{
	uint32_t client;

	for (uint32_t n = 0; n < TIMERS_MAX; n++) {
		client = timers_first(share);
		if (client == SHARE_NONE || share->clients[client].due_ns > share->now_ns ||
		    share->out->n + HARK_REPORTS_MAX >= SHARE_ACTIONS_MAX)
			break;
		hark_timer(share, client);
	}
	for (uint32_t i = 0; i < SHARE_GPUS_MAX; i++) {
		if (share->gpus[i].wake_ns <= share->now_ns)
			share->gpus[i].is_dirty = true;
	}
	return 0;
}

static int handle(struct share *share, const struct share_event *event)
{
	switch (event->type) {
	case SHARE_EVENT_CONFIG:
		return on_config(share, event);
	case SHARE_EVENT_JOIN:
		return on_join(share, event);
	case SHARE_EVENT_LEAVE:
		return on_leave(share, event);
	case SHARE_EVENT_CLAIM:
		return on_claim(share, event);
	case SHARE_EVENT_RUN:
		return on_run(share, event);
	case SHARE_EVENT_ACTIVITY:
		return hark_activity(share, event);
	case SHARE_EVENT_DONE:
		return hark_done(share, event);
	case SHARE_EVENT_POWER:
		return on_power(share, event);
	case SHARE_EVENT_TIME:
		return on_time(share);
	case SHARE_EVENT_COUNT_:
		break;
	}
	assert(!"event type out of range");
	return SHARE_E_VALUE;
}

static void plan(struct share *share, uint32_t gpu)
{
	struct share_gpu *g = &share->gpus[gpu];
	struct share_slices slices;
	bool is_shared = g->running.n > 1;

	g->is_dirty = false;
	burst_plan(share, gpu);
	pace_plan(share, gpu);
	slice_plan(&share->config, g, &slices);
	if (is_shared == g->is_shared && !memcmp(&slices, &g->slices, sizeof(slices)))
		return;
	g->is_shared = is_shared;
	g->slices = slices;
	touch_all(share, gpu);
}

/* After a CONFIG, some in each step. */
static void refresh_stale(struct share *share)
{
	for (uint32_t n = 0; n < REFRESH_MAX && share->n_stale > 0; n++) {
		uint32_t client = share->n_clients - share->n_stale--;

		if (share->clients[client].is_joined)
			hark_refresh(share, client);
	}
}

static bool is_of_client(enum share_event_type type)
{
	return type != SHARE_EVENT_CONFIG && type != SHARE_EVENT_POWER && type != SHARE_EVENT_TIME;
}

int share_step(struct share *share, const struct share_event *event,
	       struct share_actions *ret_actions)
{
	int r = 0;

	assert(event->now_ns >= share->now_ns);
	assert(!is_of_client(event->type) || event->client < share->n_clients);

	share->now_ns = event->now_ns;
	ret_actions->n = 0;
	share->out = ret_actions;
	if (is_of_client(event->type) && event->type != SHARE_EVENT_JOIN &&
	    !share->clients[event->client].is_joined)
		r = SHARE_E_NO_CLIENT;
	else
		r = handle(share, event);
	if (!r) {
		refresh_stale(share);
		for (uint32_t i = 0; i < SHARE_GPUS_MAX; i++) {
			if (share->gpus[i].is_dirty)
				plan(share, i);
		}
		touch_flush(share);
	}
	share->out = NULL;
	return r;
}

uint64_t share_deadline(const struct share *share)
{
	uint64_t deadline = SHARE_NO_DEADLINE;
	uint32_t client = timers_first(share);

	if (share->n_stale > 0 || touch_is_pending(share))
		return share->now_ns;
	if (client != SHARE_NONE)
		deadline = share->clients[client].due_ns;
	for (uint32_t i = 0; i < SHARE_GPUS_MAX; i++) {
		if (share->gpus[i].is_dirty)
			return share->now_ns;
		if (share->gpus[i].wake_ns < deadline)
			deadline = share->gpus[i].wake_ns;
	}
	return deadline < share->now_ns ? share->now_ns : deadline;
}
