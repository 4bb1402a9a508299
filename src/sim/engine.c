/* SPDX-License-Identifier: Apache-2.0 */

#include "sim/engine.h"

#include "core/timeshare/preempt_choice.h"
#include "core/timeshare/timeshare.h"
#include "sim/gpu.h"
#include "sim/traffic.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LC         0u
#define CLIENTS    (ENGINE_BE_MAX + 1)
#define ORDERS     16u
#define UPS        256u
#define BE_IDLE_NS 5000000u    /* a client reports IDLE after so long without work */
#define BE_TELL_NS 1000000000u /* a busy client reports BUSY again after so long */

struct order { /* a SET_SHARE that travels, or that the client carries out */
	struct timeshare_action set;
	uint64_t at_ns; /* arrival, then end */
	bool is_begun;
};

struct up {             /* a message to the scheduler */
	uint64_t at_ns; /* arrival */
	struct timeshare_event event;
};

struct client {
	uint64_t until_ns; /* end of its hold; 0: not held */
	uint64_t next_ns;  /* best-effort: arrival of its next kernel */
	uint64_t idle_ns;  /* time of its last work; UINT64_MAX: it has work */
	uint64_t n_pending;
	bool is_told;     /* its last message was BUSY or BEGIN */
	uint64_t told_ns; /* best-effort: time of its last BUSY */
	uint32_t n_orders;
	struct order orders[ORDERS];
};

struct engine {
	const struct engine_config *config;
	struct engine_result *result;
	uint64_t now_ns, rng;
	struct gpu gpu;
	struct client clients[CLIENTS];
	uint32_t n_clients;
	struct timeshare share;
	struct timeshare_client slots[CLIENTS];
	struct up ups[UPS]; /* a ring */
	uint32_t first_up, n_ups;

	size_t next, serving, next_hint; /* indices of config->requests; serving == next: idle */
	uint32_t n_pieces_left;
	uint64_t gap_end_ns, begun_ns;
	uint64_t *latency_ns, *wait_ns;
};

static bool is_managed(const struct engine *e)
{
	return e->config->mode != ENGINE_MODE_DEFAULT;
}

/* ---- the scheduler: core/timeshare --------------------------------------------- */

static void queue_order(struct engine *e, const struct timeshare_action *action)
{
	struct client *c = &e->clients[action->client];

	assert(c->n_orders < ORDERS);
	c->orders[c->n_orders++] =
		(struct order){.set = *action, .at_ns = e->now_ns + e->config->wire_ns};
	e->result->n_holds += action->hold_us && c->until_ns <= e->now_ns;
}

static void machine_step(struct engine *e, struct timeshare_event *event)
{
	struct timeshare_actions actions;

	event->now_ns = e->now_ns;
	/* The mode says whether others are held, so the machine must not learn it. */
	for (int i = 0; i < TIMESHARE_WARNINGS_; i++)
		e->slots[LC].arms[i] = (struct timeshare_arm){
			.n_bursts = 1025, .n_noted = ARM_FIRST_BURSTS, .best = TIMESHARE_ARM_HOLD};
	(void)timeshare_step(&e->share, event, &actions);
	for (uint32_t i = 0; i < actions.n; i++) {
		if (actions.at[i].type == TIMESHARE_ACTION_SET)
			queue_order(e, &actions.at[i]);
	}
}

static void send_up(struct engine *e, struct timeshare_event event)
{
	if (!is_managed(e))
		return;
	assert(e->n_ups < UPS);
	e->ups[(e->first_up + e->n_ups++) % UPS] =
		(struct up){.at_ns = e->now_ns + e->config->wire_ns, .event = event};
}

static void send_activity(struct engine *e, uint32_t client, enum timeshare_activity activity,
			  uint64_t value)
{
	send_up(e, (struct timeshare_event){.type = TIMESHARE_EVENT_ACTIVITY,
					    .client = client,
					    .activity = activity,
					    .value = value});
}

static void machine_receive(struct engine *e)
{
	while (e->n_ups && e->ups[e->first_up].at_ns <= e->now_ns) {
		struct timeshare_event event = e->ups[e->first_up].event;

		e->first_up = (e->first_up + 1) % UPS;
		e->n_ups--;
		machine_step(e, &event);
	}
	while (is_managed(e) && timeshare_deadline(&e->share) <= e->now_ns)
		machine_step(e, &(struct timeshare_event){.type = TIMESHARE_EVENT_TIME});
}

/* The time in which a client carries out an order. */
static uint64_t order_cost_ns(const struct engine *e, const struct client *c,
			      const struct order *order)
{
	bool is_held = c->until_ns > e->now_ns;

	if (order->set.hold_us)
		return is_held ? 0 : e->config->freeze_ns;
	return is_held ? e->config->thaw_ns : 0;
}

static void order_progress(struct engine *e, uint32_t client)
{
	struct client *c = &e->clients[client];
	struct order *order = &c->orders[0];
	uint64_t took_ns = order_cost_ns(e, c, order);

	if (!order->is_begun) {
		order->is_begun = true;
		order->at_ns = e->now_ns + took_ns;
		return;
	}
	c->until_ns = order->set.hold_us ? e->now_ns + order->set.hold_us * 1000 : 0;
	e->gpu.clients[client].slice_ns =
		order->set.slice_us ? order->set.slice_us * 1000 : e->config->slice_ns;
	gpu_set_frozen(&e->gpu, e->now_ns, client, c->until_ns > 0);
	send_up(e, (struct timeshare_event){.type = TIMESHARE_EVENT_DONE,
					    .client = client,
					    .seq = order->set.seq,
					    .took_ns = took_ns,
					    .is_held = c->until_ns > 0});
	c->n_orders--;
	memmove(c->orders, c->orders + 1, c->n_orders * sizeof(c->orders[0]));
}

/* ---- the critical client -------------------------------------------------------- */

static uint64_t request_length_ns(const struct engine *e, const struct engine_request *request)
{
	return request->service_ns + (e->config->n_pieces - 1) * e->config->gap_ns;
}

/* The last piece gets the remainder of the division. */
static void give_piece(struct engine *e)
{
	uint64_t service_ns = e->config->requests[e->serving].service_ns;
	uint64_t piece_ns = service_ns / e->config->n_pieces;

	e->n_pieces_left--;
	if (e->n_pieces_left == 0)
		piece_ns = service_ns - piece_ns * (e->config->n_pieces - 1);
	gpu_give(&e->gpu, e->now_ns, LC, piece_ns ? piece_ns : 1);
}

static void begin_request(struct engine *e)
{
	e->n_pieces_left = e->config->n_pieces;
	give_piece(e);
}

static void on_request(struct engine *e)
{
	struct client *lc = &e->clients[LC];

	e->next++;
	if (e->serving + 1 < e->next)
		return; /* an earlier request is being served */
	lc->idle_ns = UINT64_MAX;
	if (!lc->is_told) {
		lc->is_told = true;
		e->begun_ns = e->now_ns;
		send_activity(e, LC, TIMESHARE_ACTIVITY_BEGIN, 0);
	}
	begin_request(e);
}

static void count_request(struct engine *e)
{
	const struct engine_request *request = &e->config->requests[e->serving];
	uint64_t latency_ns = e->now_ns - request->at_ns, alone_ns = request_length_ns(e, request);

	if (request->at_ns < e->config->warmup_ns)
		return;
	e->latency_ns[e->result->n_lc] = latency_ns;
	e->wait_ns[e->result->n_lc++] = latency_ns > alone_ns ? latency_ns - alone_ns : 0;
}

static void on_piece_end(struct engine *e)
{
	if (e->n_pieces_left && e->config->gap_ns) {
		e->gap_end_ns = e->now_ns + e->config->gap_ns;
		return;
	}
	if (e->n_pieces_left) {
		give_piece(e);
		return;
	}
	count_request(e);
	e->serving++;
	if (e->serving < e->next)
		begin_request(e);
	else
		e->clients[LC].idle_ns = e->now_ns;
}

static uint64_t hint_at(const struct engine *e)
{
	uint64_t at_ns;

	if (e->config->mode != ENGINE_MODE_HINT || e->next_hint == e->config->n_requests)
		return UINT64_MAX;
	at_ns = e->config->requests[e->next_hint].at_ns;
	return at_ns > e->config->hint_ns ? at_ns - e->config->hint_ns : 0;
}

static void lc_tick(struct engine *e)
{
	struct client *lc = &e->clients[LC];

	while (hint_at(e) <= e->now_ns) {
		send_activity(e, LC, TIMESHARE_ACTIVITY_HINT,
			      e->config->requests[e->next_hint].at_ns - e->now_ns);
		e->next_hint++;
	}
	if (e->gap_end_ns <= e->now_ns) {
		e->gap_end_ns = UINT64_MAX;
		give_piece(e);
	}
	while (e->next < e->config->n_requests && e->config->requests[e->next].at_ns <= e->now_ns)
		on_request(e);
	if (lc->is_told && lc->idle_ns != UINT64_MAX &&
	    lc->idle_ns + e->config->burst_idle_ns <= e->now_ns) {
		lc->is_told = false;
		send_activity(e, LC, TIMESHARE_ACTIVITY_END, lc->idle_ns - e->begun_ns);
	}
}

/* ---- the others ------------------------------------------------------------------ */

static void be_give(struct engine *e, uint32_t client)
{
	struct client *c = &e->clients[client];

	c->idle_ns = UINT64_MAX;
	if (!c->is_told || e->now_ns - c->told_ns >= BE_TELL_NS) {
		c->is_told = true;
		c->told_ns = e->now_ns;
		send_activity(e, client, TIMESHARE_ACTIVITY_BUSY, 0);
	}
	gpu_give(&e->gpu, e->now_ns, client, e->config->be_kernel_ns);
}

static void be_end(struct engine *e, uint32_t client)
{
	struct client *c = &e->clients[client];

	e->result->n_be++;
	if (e->config->be_rate > 0)
		c->n_pending--;
	if (c->n_pending)
		be_give(e, client);
	else
		c->idle_ns = e->now_ns;
}

static void be_tick(struct engine *e, uint32_t client)
{
	struct client *c = &e->clients[client];

	while (c->next_ns <= e->now_ns) {
		c->next_ns = e->config->be_rate > 0
				     ? c->next_ns + traffic_gap(&e->rng, e->config->be_rate)
				     : UINT64_MAX;
		if (c->n_pending++ == 0)
			be_give(e, client);
	}
	if (c->is_told && c->idle_ns != UINT64_MAX && c->idle_ns + BE_IDLE_NS <= e->now_ns) {
		c->is_told = false;
		send_activity(e, client, TIMESHARE_ACTIVITY_IDLE, 0);
	}
}

/* ---- time ------------------------------------------------------------------------- */

static void lower_to(uint64_t *at_ns, uint64_t candidate_ns)
{
	if (candidate_ns < *at_ns)
		*at_ns = candidate_ns;
}

static void lower_to_client(const struct engine *e, uint32_t client, uint64_t *at_ns)
{
	const struct client *c = &e->clients[client];

	lower_to(at_ns, c->next_ns);
	if (c->n_orders)
		lower_to(at_ns, c->orders[0].at_ns);
	if (c->until_ns > 0)
		lower_to(at_ns, c->until_ns);
	if (c->is_told && c->idle_ns != UINT64_MAX)
		lower_to(at_ns,
			 c->idle_ns + (client == LC ? e->config->burst_idle_ns : BE_IDLE_NS));
}

static uint64_t next_event(const struct engine *e)
{
	uint64_t at_ns = e->config->length_ns;

	for (uint32_t i = 0; i < e->n_clients; i++)
		lower_to_client(e, i, &at_ns);
	if (e->n_ups)
		lower_to(&at_ns, e->ups[e->first_up].at_ns);
	if (is_managed(e))
		lower_to(&at_ns, timeshare_deadline(&e->share));
	if (e->next < e->config->n_requests)
		lower_to(&at_ns, e->config->requests[e->next].at_ns);
	lower_to(&at_ns, hint_at(e));
	lower_to(&at_ns, e->gap_end_ns);
	lower_to(&at_ns, gpu_next(&e->gpu));
	return at_ns > e->now_ns ? at_ns : e->now_ns;
}

static void handle_due(struct engine *e)
{
	machine_receive(e);
	for (uint32_t i = 0; i < e->n_clients; i++) {
		struct client *c = &e->clients[i];

		while (c->n_orders && c->orders[0].at_ns <= e->now_ns)
			order_progress(e, i);
		if (c->until_ns > 0 && c->until_ns <= e->now_ns) {
			c->until_ns = 0;
			gpu_set_frozen(&e->gpu, e->now_ns, i, false);
		}
		if (gpu_has_ended(&e->gpu, i)) {
			if (i == LC)
				on_piece_end(e);
			else
				be_end(e, i);
		}
		if (i == LC)
			lc_tick(e);
		else
			be_tick(e, i);
	}
	gpu_choose(&e->gpu, e->now_ns);
}

static void engine_begin(struct engine *e)
{
	struct timeshare_config config;

	e->n_clients = 1 + e->config->n_be;
	e->gap_end_ns = UINT64_MAX;
	e->rng = ~e->config->seed; /* requests are drawn with the seed itself */
	gpu_init(&e->gpu, e->n_clients, e->config->slice_ns, e->config->switch_ns);
	timeshare_config_default(&config);
	config.is_holding = e->config->mode >= ENGINE_MODE_FREEZE;
	timeshare_init(&e->share, e->slots, e->n_clients, &config);
	for (uint32_t i = 0; i < e->n_clients; i++) {
		e->clients[i].idle_ns = UINT64_MAX;
		e->clients[i].next_ns = UINT64_MAX;
		if (i != LC)
			e->clients[i].next_ns = e->config->be_rate > 0
							? traffic_gap(&e->rng, e->config->be_rate)
							: 0;
		if (!is_managed(e))
			continue;
		machine_step(e,
			     &(struct timeshare_event){.type = TIMESHARE_EVENT_JOIN,
						       .client = i,
						       .claim = {i == LC ? TIMESHARE_CLASS_CRITICAL
									 : TIMESHARE_CLASS_NORMAL,
								 100, 0, 0}});
		machine_step(e, &(struct timeshare_event){
					.type = TIMESHARE_EVENT_RUN, .client = i, .running = true});
	}
}

static void engine_finish(struct engine *e)
{
	struct engine_result *result = e->result;
	double sum_ns = 0;

	result->length_ns = e->now_ns;
	result->lc_gpu_ns = e->gpu.clients[LC].got_ns;
	for (uint32_t i = 1; i < e->n_clients; i++)
		result->be_gpu_ns += e->gpu.clients[i].got_ns;
	if (result->n_lc == 0)
		return;
	for (size_t i = 0; i < result->n_lc; i++) {
		sum_ns += (double)e->latency_ns[i];
		result->wait_mean_ns += (double)e->wait_ns[i];
	}
	result->lc_mean_ns = (uint64_t)(sum_ns / (double)result->n_lc);
	result->wait_mean_ns /= (double)result->n_lc;
	result->lc_p50_ns = traffic_quantile(e->latency_ns, result->n_lc, 50);
	result->lc_p99_ns = traffic_quantile(e->latency_ns, result->n_lc, 99);
	result->wait_p99_ns = traffic_quantile(e->wait_ns, result->n_lc, 99);
}

int engine_run(const struct engine_config *config, struct engine_result *ret)
{
	size_t n = config->n_requests ? config->n_requests : 1;
	struct engine *e = calloc(1, sizeof(*e));
	int r = -ENOMEM;

	assert(config->n_be <= ENGINE_BE_MAX && config->n_pieces > 0);
	if (!e)
		return r;
	e->latency_ns = calloc(n, sizeof(*e->latency_ns));
	e->wait_ns = calloc(n, sizeof(*e->wait_ns));
	if (e->latency_ns && e->wait_ns) {
		*ret = (struct engine_result){0};
		e->config = config;
		e->result = ret;
		engine_begin(e);
		handle_due(e);
		while (e->now_ns < config->length_ns) {
			uint64_t at_ns = next_event(e);

			gpu_pass(&e->gpu, e->now_ns, at_ns);
			e->now_ns = at_ns;
			handle_due(e);
		}
		engine_finish(e);
		r = 0;
	}
	free(e->latency_ns);
	free(e->wait_ns);
	free(e);
	return r;
}
