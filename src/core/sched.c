/* SPDX-License-Identifier: Apache-2.0 */

#include "core/sched.h"

#include "core/act.h"
#include "core/ahead.h"
#include "core/fit.h"
#include "core/forecast.h"
#include "core/gang/gang.h"
#include "core/grant.h"
#include "core/list.h"
#include "core/notice.h"
#include "core/policy/owner.h"
#include "core/policy/policy.h"
#include "core/policy/sleeper.h"
#include "core/queue.h"
#include "core/reports.h"
#include "core/stop.h"
#include "core/turn.h"
#include "core/u64.h"

#include <string.h>

#define MS_NS     1000000ull
#define SECOND_NS 1000000000ull
#define DAY_NS    (86400 * SECOND_NS)
#define TOTAL_MAX (1ull << 44)
#define SLOTS_MAX (1u << 17) /* sums over so many clients do not overflow */

/* Of one step: a thousand may be due together, and not each has an action. */
#define TIMERS_MAX 24u

/* Looks at gangs and GPUs, of one step; what is left has to wait for the next. */
#define SETTLE_MAX 64u

void sched_config_default(struct sched_config *ret_config)
{
	*ret_config = (struct sched_config){
		.mode = SCHED_MODE_AUTO,
		.switch_mode = SCHED_SWITCH_AUTO,
		.policy = SCHED_POLICY_PRIORITY,
		.anti_thrash = true,
		.fair_users = true,
		.sharing_degree = 0,
		.switch_multiplier = 5,
		.reserve_percent = 5,
		.moving_percent = 20,
		.tq_ns = 30 * SECOND_NS,
		.switch_fixed_ns = 30 * SECOND_NS,
		.switch_min_ns = 10 * SECOND_NS,
		.switch_max_ns = 300 * SECOND_NS,
		.max_runtime_ns = 300 * SECOND_NS,
		.wait_bound_ns = 240 * SECOND_NS,
		.prepare_ns = 5 * SECOND_NS,
		.answer_ns = 15 * SECOND_NS,
		.heartbeat_ns = 10 * SECOND_NS,
		.heartbeat_limit_ns = 30 * SECOND_NS,
		.retry_ns = 10 * SECOND_NS,
	};
}

struct sched_gpu_config sched_gpu_config_of(const struct sched_config *config)
{
	return (struct sched_gpu_config){
		.mode = config->mode,
		.switch_mode = config->switch_mode,
		.sharing_degree = config->sharing_degree,
		.reserve_percent = config->reserve_percent,
		.tq_ns = config->tq_ns,
		.switch_fixed_ns = config->switch_fixed_ns,
		.max_runtime_ns = config->max_runtime_ns,
	};
}

int sched_gpu_config_check(const struct sched_gpu_config *config)
{
	bool is_good = u64_is_within(config->mode, SCHED_MODE_AUTO, SCHED_MODE_CONCURRENT) &&
		       u64_is_within(config->switch_mode, SCHED_SWITCH_AUTO, SCHED_SWITCH_FIXED) &&
		       u64_is_within(config->sharing_degree, 0, SCHED_DEGREE_MAX) &&
		       u64_is_within(config->reserve_percent, 0, 50) &&
		       u64_is_within(config->tq_ns, MS_NS, DAY_NS) &&
		       u64_is_within(config->switch_fixed_ns, MS_NS, DAY_NS) &&
		       u64_is_within(config->max_runtime_ns, 10 * SECOND_NS, DAY_NS);

	return is_good ? 0 : SCHED_E_CONFIG;
}

int sched_config_check(const struct sched_config *config)
{
	struct sched_gpu_config each = sched_gpu_config_of(config);
	bool is_good =
		sched_gpu_config_check(&each) == 0 &&
		u64_is_within(config->policy, SCHED_POLICY_PRIORITY, SCHED_POLICY_DEADLINE) &&
		u64_is_within(config->switch_multiplier, 1, 1000) &&
		u64_is_within(config->moving_percent, 0, 50) &&
		u64_is_within(config->switch_min_ns, MS_NS, DAY_NS) &&
		u64_is_within(config->switch_max_ns, config->switch_min_ns, DAY_NS) &&
		u64_is_within(config->wait_bound_ns, SECOND_NS, DAY_NS) &&
		u64_is_within(config->prepare_ns, 0, DAY_NS) &&
		u64_is_within(config->answer_ns, MS_NS, DAY_NS) &&
		u64_is_within(config->heartbeat_ns, MS_NS, DAY_NS) &&
		u64_is_within(config->heartbeat_limit_ns, config->heartbeat_ns, DAY_NS) &&
		u64_is_within(config->retry_ns, MS_NS, DAY_NS);

	return is_good ? 0 : SCHED_E_CONFIG;
}

static void client_clear(struct sched_client *c)
{
	memset(c, 0, offsetof(struct sched_client, own));
	c->owner = SCHED_NONE;
	c->gang = SCHED_NONE;
	c->granted_ns = SCHED_NO_DEADLINE;
	c->due_ns = SCHED_NO_DEADLINE;
	c->ready_ns = SCHED_NO_DEADLINE;
	c->spared_ns = SCHED_NO_DEADLINE;
	c->answer_ns = SCHED_NO_DEADLINE;
	c->retry_ns = SCHED_NO_DEADLINE;
	c->bound_ns = SCHED_NO_DEADLINE;
	c->kept_bound_ns = SCHED_NO_DEADLINE;
	c->ready_until_ns = SCHED_NO_DEADLINE;
	c->beat_ns = SCHED_NO_DEADLINE;
	c->silent_ns = SCHED_NO_DEADLINE;
	for (int i = 0; i < SCHED_LINK_COUNT_; i++)
		c->link[i] = (struct list_link){SCHED_NONE, SCHED_NONE};
	for (int i = 0; i < SCHED_NODE_COUNT_; i++) {
		c->node[i].up = SCHED_NONE;
		c->node[i].left = SCHED_NONE;
		c->node[i].right = SCHED_NONE;
	}
	c->tree = (struct sched_tree){SCHED_NONE, SCHED_NONE, SCHED_NONE, 0};
}

void sched_init(struct sched *sched, struct sched_client *clients, uint32_t n_clients,
		const struct sched_config *config)
{
	assert(n_clients <= SLOTS_MAX);
	assert(sched_config_check(config) == 0);
	memset(sched, 0, sizeof(*sched));
	sched->config = *config;
	sched->clients = clients;
	sched->n_clients = n_clients;
	sched->timers = SCHED_NONE;
	for (uint32_t i = 0; i < n_clients; i++)
		client_clear(&clients[i]);
	owner_init(sched);
	gang_init(sched);
	for (uint32_t i = 0; i < SCHED_GPUS_MAX; i++) {
		struct sched_gpu *g = &sched->gpus[i];

		g->head = SCHED_NONE;
		g->jammed = SCHED_NONE;
		g->in_doubt = SCHED_NONE;
		g->restoring = SCHED_NONE;
		g->ahead = SCHED_NONE;
		g->ranked = SCHED_NONE;
		g->oldest = SCHED_NONE;
		g->wake_ns = SCHED_NO_DEADLINE;
		g->early_ns = SCHED_NO_DEADLINE;
		g->config = sched_gpu_config_of(config);
		list_init(&g->queue);
		list_init(&g->coming);
		list_init(&g->told);
		list_init(&g->woken);
		list_init(&g->copied);
		list_init(&g->forecast.near);
		for (int place = 0; place < SCHED_PLACE_COUNT_; place++)
			list_init(&g->place[place]);
	}
}

/* Gangs wait for members that drain, but not on a GPU where nobody is stopped. */
static void gpu_set_out(struct sched *sched, uint32_t gpu, bool is_out)
{
	if (sched->gpus[gpu].is_out == is_out)
		return;
	sched->gpus[gpu].is_out = is_out;
	for (uint32_t i = 0; i < sched->n_clients; i++) {
		if (sched->clients[i].state != SCHED_CLIENT_FREE && sched->clients[i].gpu == gpu)
			gang_change(sched, i);
	}
}

static int on_gpu(struct sched *sched, const struct sched_event *event)
{
	struct sched_gpu *g;

	if (event->gpu >= SCHED_GPUS_MAX)
		return SCHED_E_NO_GPU;
	if (event->bytes == 0 || event->bytes > TOTAL_MAX)
		return SCHED_E_CONFIG;

	g = &sched->gpus[event->gpu];
	if (event->is_other) { /* what its clients have measured says nothing of this one */
		g->bandwidth = 0;
		g->n_switches = g->n_early = g->moved_out = g->moved_in = 0;
	}
	g->is_known = true;
	g->total = event->bytes;
	g->external = event->external;
	g->link_bandwidth = event->link_bandwidth;
	gpu_set_out(sched, event->gpu, event->is_out);
	g->is_dirty = true;
	return 0;
}

static struct sched_gpu_config event_gpu_config(const struct sched_event *event, uint32_t gpu)
{
	return event->gpu_configs ? event->gpu_configs[gpu] : sched_gpu_config_of(event->config);
}

static int event_config_check(const struct sched_event *event)
{
	int r = sched_config_check(event->config);

	for (uint32_t i = 0; i < SCHED_GPUS_MAX && !r && event->gpu_configs; i++)
		r = sched_gpu_config_check(&event->gpu_configs[i]);
	return r;
}

static void sched_set_config(struct sched *sched, const struct sched_event *event)
{
	sched->config = *event->config;
	for (uint32_t i = 0; i < SCHED_GPUS_MAX; i++) {
		sched->gpus[i].config = event_gpu_config(event, i);
		sched->gpus[i].is_dirty = sched->gpus[i].is_known;
	}
}

/* The event changes who stands before whom, somewhere. */
static bool event_reorders(const struct sched *sched, const struct sched_event *event)
{
	const struct sched_config *old = &sched->config, *new = event->config;

	if (new->policy != old->policy || new->anti_thrash != old->anti_thrash ||
	    new->fair_users != old->fair_users)
		return true;
	for (uint32_t i = 0; i < SCHED_GPUS_MAX; i++) {
		const struct sched_gpu_config *was = &sched->gpus[i].config;
		struct sched_gpu_config is = event_gpu_config(event, i);

		if (is.mode != was->mode || is.sharing_degree != was->sharing_degree)
			return true;
		if (new->policy == SCHED_POLICY_CREDIT &&
		    policy_round_ns(&is) != policy_round_ns(was))
			return true;
	}
	return false;
}

/* Another order: all are taken out of the old one, and ranked anew in the other. */
static void sched_reorder(struct sched *sched, const struct sched_event *event)
{
	for (uint32_t i = 0; i < sched->n_clients; i++) {
		if (sched->clients[i].state == SCHED_CLIENT_FREE)
			continue;
		queue_unrank(sched, i);
		policy_awake(sched, i, false);
		owner_leave(sched, i);
	}
	sched_set_config(sched, event);
	for (uint32_t i = 0; i < sched->n_clients; i++) {
		if (sched->clients[i].state != SCHED_CLIENT_FREE)
			owner_join(sched, i);
	}
	policy_reset(sched);
	for (uint32_t i = 0; i < sched->n_clients; i++) {
		if (sched->clients[i].state == SCHED_CLIENT_FREE)
			continue;
		queue_rerank(sched, i);
		fit_change(sched, i);
	}
}

static int on_config(struct sched *sched, const struct sched_event *event)
{
	int r = event_config_check(event);

	if (r)
		return r;
	if (event_reorders(sched, event))
		sched_reorder(sched, event);
	else
		sched_set_config(sched, event);
	return 0;
}

/*
 * A client that takes turns with nobody must fit beside all that runs. One that has run
 * until now can not be sent away: its memory is on the card whatever we say.
 */
static bool can_join_fixed(const struct sched *sched, const struct sched_event *event)
{
	const struct sched_gpu *g = &sched->gpus[event->gpu];
	uint64_t usable = fit_usable(sched, event->gpu), bytes = g->sums.load;
	const uint64_t parts[] = {event->memory.resident, event->memory.pinned,
				  event->memory.swapped, event->memory.wanted,
				  event->memory.wanted_pinned};

	if (event->running)
		return true;
	if (g->n_clients >= fit_degree(sched, event->gpu))
		return false;
	for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++) {
		if (parts[i] > usable || bytes + parts[i] > usable)
			return false;
		bytes += parts[i];
	}
	return true;
}

static bool claim_is_good(const struct sched_claim *claim)
{
	return u64_is_within(claim->priority, SCHED_PRIORITY_LOW, SCHED_PRIORITY_CRITICAL) &&
	       claim->weight <= SCHED_WEIGHT_MAX && claim->slo_ns <= SCHED_SLO_NS_MAX;
}

static void client_set_claim(struct sched_client *c, const struct sched_claim *claim)
{
	c->claim = *claim;
	if (c->claim.weight == 0)
		c->claim.weight = SCHED_WEIGHT_DEFAULT;
}

static int on_join(struct sched *sched, const struct sched_event *event)
{
	struct sched_client *c = &sched->clients[event->client];

	if (c->state != SCHED_CLIENT_FREE)
		return SCHED_E_EXISTS;
	if (event->gpu >= SCHED_GPUS_MAX || !sched->gpus[event->gpu].is_known)
		return SCHED_E_NO_GPU;
	if (!claim_is_good(&event->claim))
		return SCHED_E_CONFIG;
	if (event->fixed && !can_join_fixed(sched, event))
		return SCHED_E_NO_FIT;

	client_clear(c);
	c->gpu = event->gpu;
	c->is_fixed = event->fixed;
	c->owner_number = event->owner;
	owner_join(sched, event->client);
	client_set_claim(c, &event->claim);
	policy_join(sched, event->client);
	sched->gpus[c->gpu].n_clients++;
	fit_set_memory(sched, event->client, &event->memory);
	c->doubted = event->doubted < fit_allowed(c) ? event->doubted : fit_allowed(c);
	stop_set_state(sched, event->client, SCHED_CLIENT_IDLE);
	fit_change(sched, event->client);
	if (!event->running) {
		forecast_joined(sched, event->client);
		return 0;
	}
	/* Its gate is open, so no budget that it names can hold: what it has is what it gets. */
	c->budget_target = fit_charge(c);
	grant_run(sched, event->client);
	return 0;
}

static int on_doubt(struct sched *sched, const struct sched_event *event)
{
	struct sched_client *c = &sched->clients[event->client];

	if (c->state == SCHED_CLIENT_FREE)
		return SCHED_E_NO_CLIENT;

	c->doubted = event->doubted < fit_allowed(c) ? event->doubted : fit_allowed(c);
	fit_change(sched, event->client);
	return 0;
}

static int on_leave(struct sched *sched, const struct sched_event *event)
{
	struct sched_client *c = &sched->clients[event->client];
	uint32_t gpu = c->gpu;

	if (c->state == SCHED_CLIENT_FREE)
		return SCHED_E_NO_CLIENT;

	notice_forget(sched, event->client);
	forecast_left(sched, event->client);
	ahead_forget(sched, event->client);
	sched->gpus[gpu].still_ns = sched->now_ns;
	queue_leave(sched, event->client);
	policy_state(sched, event->client, c->state, SCHED_CLIENT_FREE);
	c->state = SCHED_CLIENT_FREE;
	c->memory = (struct sched_memory){0};
	c->promised = 0;
	c->budget = 0;
	c->answer_ns = SCHED_NO_DEADLINE;
	c->retry_ns = SCHED_NO_DEADLINE;
	c->is_ready = false;
	c->ready_until_ns = SCHED_NO_DEADLINE;
	fit_change(sched, event->client); /* out of the last list and heap */
	owner_leave(sched, event->client);
	gang_leave(sched, event->client);
	client_clear(c);
	sched->gpus[gpu].n_clients--;
	return 0;
}

static int on_claim(struct sched *sched, const struct sched_event *event)
{
	struct sched_client *c = &sched->clients[event->client];

	if (c->state == SCHED_CLIENT_FREE)
		return SCHED_E_NO_CLIENT;
	if (!claim_is_good(&event->claim))
		return SCHED_E_CONFIG;

	policy_charge(sched, event->client);
	client_set_claim(c, &event->claim);
	policy_claim(sched, event->client);
	queue_rank(sched, event->client);
	fit_change(sched, event->client);
	return 0;
}

static int on_used(struct sched *sched, const struct sched_event *event)
{
	struct sched_client *c = &sched->clients[event->client];
	uint64_t gpu_ns;

	if (c->state == SCHED_CLIENT_FREE)
		return SCHED_E_NO_CLIENT;
	/* Nobody uses more in a day; what strangers send must not add up beyond it. */
	gpu_ns = event->gpu_ns < DAY_NS ? event->gpu_ns : DAY_NS;
	c->used_ns += gpu_ns;
	policy_used(sched, event->client, gpu_ns);
	return 0;
}

static int on_ahead(struct sched *sched, const struct sched_event *event)
{
	if (sched->clients[event->client].state == SCHED_CLIENT_FREE)
		return SCHED_E_NO_CLIENT;
	ahead_report(sched, event->client, event->bytes, event->is_done);
	return 0;
}

static void on_timer(struct sched *sched, uint32_t client)
{
	const struct sched_client *c = &sched->clients[client];

	if (c->answer_ns <= sched->now_ns)
		stop_late(sched, client);
	else if (c->retry_ns <= sched->now_ns)
		stop_retry(sched, client);
	else if (c->ready_until_ns <= sched->now_ns)
		gang_late(sched, client);
	else if (c->bound_ns <= sched->now_ns)
		reports_bound(sched, client);
	else
		notice_beat(sched, client);
}

static int on_time(struct sched *sched)
{
	for (uint32_t n = 0; n < TIMERS_MAX && act_has_room(sched); n++) {
		uint32_t client = sched->timers;

		if (client == SCHED_NONE ||
		    sched->clients[client].node[SCHED_NODE_TIMER].key > sched->now_ns)
			break;
		on_timer(sched, client);
	}
	for (uint32_t i = 0; i < SCHED_GPUS_MAX; i++) {
		if (sched->gpus[i].wake_ns <= sched->now_ns)
			sched->gpus[i].is_dirty = true;
	}
	return 0;
}

static int sched_handle(struct sched *sched, const struct sched_event *event)
{
	switch (event->type) {
	case SCHED_EVENT_GPU:
		return on_gpu(sched, event);
	case SCHED_EVENT_CONFIG:
		return on_config(sched, event);
	case SCHED_EVENT_JOIN:
		return on_join(sched, event);
	case SCHED_EVENT_LEAVE:
		return on_leave(sched, event);
	case SCHED_EVENT_REQUEST:
		return reports_request(sched, event);
	case SCHED_EVENT_RELEASED:
		return reports_released(sched, event);
	case SCHED_EVENT_MEMORY:
		return reports_memory(sched, event);
	case SCHED_EVENT_ALIVE:
		return reports_alive(sched, event);
	case SCHED_EVENT_TIME:
		return on_time(sched);
	case SCHED_EVENT_CLAIM:
		return on_claim(sched, event);
	case SCHED_EVENT_USED:
		return on_used(sched, event);
	case SCHED_EVENT_DOUBT:
		return on_doubt(sched, event);
	case SCHED_EVENT_PAUSE:
		return reports_pause(sched, event);
	case SCHED_EVENT_AHEAD:
		return on_ahead(sched, event);
	case SCHED_EVENT_GANG:
		return gang_join(sched, event);
	case SCHED_EVENT_PROCESS:
		return reports_process(sched, event);
	case SCHED_EVENT_PINNED:
		return reports_pinned(sched, event);
	case SCHED_EVENT_COUNT_:
		break;
	}
	assert(!"event type out of range");
	return SCHED_E_STATE;
}

static bool event_is_of_client(enum sched_event_type type)
{
	return type != SCHED_EVENT_GPU && type != SCHED_EVENT_CONFIG && type != SCHED_EVENT_TIME;
}

/* A client that was queued and not served in the same step hears why. */
static void sched_tell_wait(struct sched *sched, uint32_t client)
{
	const struct sched_client *c = &sched->clients[client];

	if (c->state != SCHED_CLIENT_FREE && c->line != SCHED_LINE_NONE && !c->is_wait_told &&
	    c->task != SCHED_TASK_RESTORE)
		queue_tell(sched, client);
}

static bool has_recheck(const struct sched *sched)
{
	for (uint32_t i = 0; i < SCHED_GPUS_MAX; i++) {
		if (sched->gpus[i].is_recheck_due)
			return true;
	}
	return false;
}

/* A GPU's decisions may depend on those of others, where gangs are on both. */
static void sched_dispatch(struct sched *sched)
{
	bool has_more = true;

	for (uint32_t n = 0; has_more && n < SETTLE_MAX; n++) {
		gang_count(sched);
		for (uint32_t i = 0; i < SCHED_GPUS_MAX; i++) {
			if (sched_gpu_is_due(&sched->gpus[i]))
				turn_dispatch(sched, i);
		}
		has_more = (gang_settle(sched) || has_recheck(sched)) && act_has_room(sched);
	}
}

int sched_step(struct sched *sched, const struct sched_event *event,
	       struct sched_actions *ret_actions)
{
	int r;

	assert(event->now_ns >= sched->now_ns);
	assert(!event_is_of_client(event->type) || event->client < sched->n_clients);

	sched->now_ns = event->now_ns;
	sleeper_fill(sched);
	ret_actions->n = 0;
	sched->out = ret_actions;
	r = sched_handle(sched, event);
	if (!r) {
		sched_dispatch(sched);
		if (event_is_of_client(event->type))
			sched_tell_wait(sched, event->client);
	}
	sched->out = NULL;
	return r;
}

uint64_t sched_deadline(const struct sched *sched)
{
	uint64_t deadline = SCHED_NO_DEADLINE;

	if (sched->timers != SCHED_NONE)
		deadline = sched->clients[sched->timers].node[SCHED_NODE_TIMER].key;
	if (sched->changed != SCHED_NONE)
		return sched->now_ns;
	for (uint32_t i = 0; i < SCHED_GPUS_MAX; i++) {
		if (sched_gpu_is_due(&sched->gpus[i]))
			return sched->now_ns;
		if (sched->gpus[i].wake_ns < deadline)
			deadline = sched->gpus[i].wake_ns;
	}
	return deadline < sched->now_ns ? sched->now_ns : deadline;
}
