/* SPDX-License-Identifier: Apache-2.0 */
#include "core/orion/orion_policy.h"

#include "core/u64.h"

#include <string.h>

static uint64_t orion_policy_bit(uint32_t client)
{
	return 1ull << client;
}

/* The clients of a mask, the first one first. */
static uint32_t orion_policy_pop(uint64_t *mask)
{
	uint32_t client = (uint32_t)__builtin_ctzll(*mask);

	*mask &= *mask - 1;
	return client;
}

/* ---- settings ------------------------------------------------------------------ */

static void orion_policy_set_latency(struct orion_policy *policy, uint64_t hp_latency_ns)
{
	struct orion_policy_config *c = &policy->config;

	c->hp_latency_ns = hp_latency_ns;
	policy->ns_max = hp_latency_ns * c->dur_threshold_ppm / ORION_POLICY_PPM;
	policy->idle_ns_max =
		u64_max(policy->ns_max, hp_latency_ns * c->depth_ppm / ORION_POLICY_PPM);
	policy->patience_ns = c->patience_ns > 0 ? c->patience_ns : 10 * hp_latency_ns;
}

void orion_policy_init(struct orion_policy *policy, const struct orion_policy_config *config)
{
	memset(policy, 0, sizeof(*policy));
	policy->config = *config;
	policy->sms_max = (uint64_t)config->n_sms * config->sm_threshold_ppm / ORION_POLICY_PPM;
	orion_policy_set_latency(policy, config->hp_latency_ns);
}

/* ---- operations in flight ---------------------------------------------------- */

/* The operation as it counts. A pure function, so that COMPLETE takes off what ASK has put on. */
static struct orion_policy_op orion_policy_clip(const struct orion_policy *policy,
						struct orion_policy_op op)
{
	uint64_t ns = op.is_known ? op.duration_ns : policy->config.unknown_ns;

	op.duration_ns = u64_min(u64_max(ns, ORION_POLICY_NS_MIN), ORION_POLICY_NS_MAX);
	op.sms = (uint32_t)u64_min(op.sms, policy->config.n_sms);
	return op;
}

static void orion_policy_load_add(struct orion_policy_load *load, const struct orion_policy_op *op)
{
	load->n++;
	load->sms += op->sms;
	load->ns += op->duration_ns;
}

static void orion_policy_load_remove(struct orion_policy_load *load,
				     const struct orion_policy_op *op)
{
	load->n--;
	load->sms -= op->sms;
	load->ns -= op->duration_ns;
}

static uint64_t orion_policy_n_hp(const struct orion_policy *policy)
{
	return policy->clients[ORION_POLICY_HP].load.n;
}

bool orion_policy_is_hp_present(const struct orion_policy *policy)
{
	return orion_policy_n_hp(policy) > 0 || policy->now_ns < policy->hp_until_ns;
}

/* ---- may an operation go ------------------------------------------------------ */

/* Only a known conflict counts: most kernels' classes are unknown, and all of them would wait. */
static bool orion_policy_is_conflict(const struct orion_policy *policy, enum kernel_class class)
{
	return policy->config.is_interference_aware && class != KERNEL_CLASS_UNKNOWN &&
	       policy->hp_class[policy->hp_first] == class;
}

/*
 * BE's last operation is about to end. A thread that asks only after the end costs BE a round trip
 * of the host, which is as long as many kernels.
 */
static bool orion_policy_is_ending(const struct orion_policy *policy)
{
	return policy->be.n == 1 && policy->be_due_ns <= policy->now_ns + policy->config.lead_ns;
}

/* The rule that keeps op back beside this load of BE. */
static enum orion_policy_reason orion_policy_block_of(const struct orion_policy *policy,
						      const struct orion_policy_op *op,
						      const struct orion_policy_load *load)
{
	uint64_t ns = load->ns + op->duration_ns;

	if (orion_policy_n_hp(policy) > 0) {
		if (load->sms + op->sms > policy->sms_max)
			return ORION_POLICY_WAIT_SMS;
		if (ns > policy->ns_max)
			return ORION_POLICY_WAIT_DURATION;
		if (orion_policy_is_conflict(policy, op->class))
			return ORION_POLICY_WAIT_CLASS;
		return ORION_POLICY_WAIT_NOT;
	}
	if (orion_policy_is_hp_present(policy) && load->n > 0 && ns > policy->idle_ns_max &&
	    !orion_policy_is_ending(policy))
		return ORION_POLICY_WAIT_DEPTH;
	return ORION_POLICY_WAIT_NOT;
}

static bool orion_policy_is_overdue(const struct orion_policy *policy,
				    const struct orion_policy_client *c)
{
	return policy->now_ns - c->asked_ns >= policy->patience_ns;
}

/* The rule that would keep c back alone. It is always one about HP. */
static enum orion_policy_reason orion_policy_hp_block_of(const struct orion_policy *policy,
							 const struct orion_policy_client *c)
{
	static const struct orion_policy_load nothing = {0};

	if (orion_policy_is_overdue(policy, c))
		return ORION_POLICY_WAIT_NOT;
	return orion_policy_block_of(policy, &c->op, &nothing);
}

static bool orion_policy_can_go(const struct orion_policy *policy,
				const struct orion_policy_client *c)
{
	if (orion_policy_is_overdue(policy, c) && policy->be.n == 0)
		return true;
	return orion_policy_block_of(policy, &c->op, &policy->be) == ORION_POLICY_WAIT_NOT;
}

/* ---- whose turn ----------------------------------------------------------------- */

static bool orion_policy_is_before(const struct orion_policy_client *a,
				   const struct orion_policy_client *b)
{
	return a->tag_ns < b->tag_ns || (a->tag_ns == b->tag_ns && a->asked_ns < b->asked_ns);
}

/*
 * The waiting client that goes next: the first one that HP does not keep back. If it does not fit
 * beside what is in flight, the others wait for it. Else small operations could pass a larger one
 * without an end.
 */
static uint32_t orion_policy_front(const struct orion_policy *policy)
{
	uint64_t waiting = policy->waiting;
	uint32_t front = ORION_POLICY_NONE;

	while (waiting) {
		uint32_t client = orion_policy_pop(&waiting);
		const struct orion_policy_client *c = &policy->clients[client];

		if (front != ORION_POLICY_NONE &&
		    !orion_policy_is_before(c, &policy->clients[front]))
			continue;
		if (orion_policy_hp_block_of(policy, c) == ORION_POLICY_WAIT_NOT)
			front = client;
	}
	return front;
}

/*
 * A waiting client's tag is at least the floor, so that a client that was idle does not catch up.
 * It is at most two patiences above, so that one long operation does not lock its client out.
 * Operations in flight come on top, because their durations are yet to be corrected.
 */
static void orion_policy_limit_tag(const struct orion_policy *policy, struct orion_policy_client *c)
{
	c->tag_ns = u64_max(c->tag_ns, policy->floor_ns);
	c->tag_ns = u64_min(c->tag_ns, policy->floor_ns + 2 * policy->patience_ns + c->load.ns);
}

static void orion_policy_limit_tags(struct orion_policy *policy)
{
	uint64_t waiting = policy->waiting;

	while (waiting)
		orion_policy_limit_tag(policy, &policy->clients[orion_policy_pop(&waiting)]);
}

/*
 * A client goes that had this tag. The floor is the least tag of those that compete for the GPU,
 * less the latency of a request. That much is kept for a client that does not wait at this moment,
 * because its thread has yet to ask again. A client that HP keeps back holds the floor back, but by
 * no more than patience.
 */
static void orion_policy_raise_floor(struct orion_policy *policy, uint64_t tag_ns)
{
	uint64_t waiting = policy->waiting, least_ns = tag_ns, floor_ns;

	while (waiting)
		least_ns = u64_min(least_ns, policy->clients[orion_policy_pop(&waiting)].tag_ns);
	floor_ns = u64_max(u64_excess(least_ns, policy->config.hp_latency_ns),
			   u64_excess(tag_ns, policy->patience_ns));
	policy->floor_ns = u64_max(policy->floor_ns, floor_ns);
	orion_policy_limit_tags(policy);
}

static void orion_policy_end_wait(struct orion_policy *policy, uint32_t client)
{
	policy->waiting &= ~orion_policy_bit(client);
	policy->counters.total_wait_ns += policy->now_ns - policy->clients[client].asked_ns;
}

static void orion_policy_grant(struct orion_policy *policy, uint32_t client)
{
	struct orion_policy_client *c = &policy->clients[client];

	orion_policy_end_wait(policy, client);
	orion_policy_raise_floor(policy, c->tag_ns);
	c->tag_ns += c->op.duration_ns;
	policy->be_due_ns = u64_max(policy->be_due_ns, policy->now_ns) + c->op.duration_ns;
	orion_policy_load_add(&c->load, &c->op);
	orion_policy_load_add(&policy->be, &c->op);
	policy->counters.be_ops_scheduled++;
}

/* All that may go now, after any event. */
static uint64_t orion_policy_release(struct orion_policy *policy)
{
	uint64_t go = 0;

	while (policy->waiting) {
		uint32_t client = orion_policy_front(policy);

		if (client == ORION_POLICY_NONE ||
		    !orion_policy_can_go(policy, &policy->clients[client]))
			break;
		orion_policy_grant(policy, client);
		go |= orion_policy_bit(client);
	}
	return go;
}

/* ---- events ------------------------------------------------------------------------ */

static void on_hp_ask(struct orion_policy *policy, struct orion_policy_op op)
{
	struct orion_policy_load *load = &policy->clients[ORION_POLICY_HP].load;

	policy->hp_class[(policy->hp_first + load->n) % ORION_POLICY_HP_DEPTH] = (uint8_t)op.class;
	orion_policy_load_add(load, &op);
	policy->is_hp_ended = false;
	policy->counters.hp_ops_scheduled++;
}

static void on_be_ask(struct orion_policy *policy, uint32_t client, struct orion_policy_op op)
{
	struct orion_policy_client *c = &policy->clients[client];

	c->op = op;
	c->asked_ns = policy->now_ns;
	orion_policy_limit_tag(policy, c);
	policy->waiting |= orion_policy_bit(client);
}

static void on_complete(struct orion_policy *policy, uint32_t client, struct orion_policy_op op,
			uint64_t measured_ns)
{
	struct orion_policy_client *c = &policy->clients[client];
	uint64_t ns = measured_ns == ORION_POLICY_UNMEASURED
			      ? op.duration_ns
			      : u64_min(measured_ns, ORION_POLICY_NS_MAX);

	orion_policy_load_remove(&c->load, &op);
	c->served_ns += ns;
	if (client == ORION_POLICY_HP) {
		policy->hp_first = (policy->hp_first + 1) % ORION_POLICY_HP_DEPTH;
		if (c->load.n == 0)
			policy->hp_until_ns = policy->is_hp_ended
						      ? 0
						      : policy->now_ns + policy->config.presence_ns;
		return;
	}
	orion_policy_load_remove(&policy->be, &op);
	policy->be_due_ns = policy->now_ns + policy->be.ns;
	c->tag_ns = u64_excess(c->tag_ns + ns, op.duration_ns);
	if (policy->waiting & orion_policy_bit(client))
		orion_policy_limit_tag(policy, c);
}

static void on_end(struct orion_policy *policy, uint32_t client)
{
	if (policy->waiting & orion_policy_bit(client))
		orion_policy_end_wait(policy, client);
	if (client == ORION_POLICY_HP) {
		policy->is_hp_ended = true;
		policy->hp_until_ns = 0;
	}
}

/* 0, or why the event is refused. op: clipped. */
static int orion_policy_check(const struct orion_policy *policy,
			      const struct orion_policy_event *event,
			      const struct orion_policy_op *op)
{
	const struct orion_policy_client *c;
	bool is_waiting;

	if (event->type == ORION_POLICY_EVENT_TIME)
		return 0;
	if (event->type == ORION_POLICY_EVENT_LATENCY)
		return u64_is_within(event->hp_latency_ns, ORION_POLICY_NS_MIN, ORION_POLICY_NS_MAX)
			       ? 0
			       : ORION_POLICY_E_VALUE;
	if (event->client >= policy->config.n_clients)
		return ORION_POLICY_E_CLIENT;
	c = &policy->clients[event->client];
	is_waiting = policy->waiting & orion_policy_bit(event->client);
	if (event->type == ORION_POLICY_EVENT_ASK && is_waiting)
		return ORION_POLICY_E_STATE;
	if (event->type == ORION_POLICY_EVENT_ASK && op->class >= KERNEL_CLASS_COUNT_)
		return ORION_POLICY_E_VALUE;
	if (event->type == ORION_POLICY_EVENT_GIVE_UP && !is_waiting)
		return ORION_POLICY_E_STATE;
	if (event->type == ORION_POLICY_EVENT_COMPLETE &&
	    (c->load.n == 0 || c->load.sms < op->sms || c->load.ns < op->duration_ns))
		return ORION_POLICY_E_STATE;
	return 0;
}

int orion_policy_step(struct orion_policy *policy, const struct orion_policy_event *event,
		      uint64_t *ret_go)
{
	struct orion_policy_op op = orion_policy_clip(policy, event->op);
	uint32_t client = event->client;
	bool is_hp_ask = event->type == ORION_POLICY_EVENT_ASK && client == ORION_POLICY_HP;
	int r = orion_policy_check(policy, event, &op);
	uint64_t go;

	if (r != 0)
		return r;
	policy->now_ns = u64_max(policy->now_ns, event->now_ns);
	switch (event->type) {
	case ORION_POLICY_EVENT_TIME:
		break;
	case ORION_POLICY_EVENT_ASK:
		if (is_hp_ask)
			on_hp_ask(policy, op);
		else
			on_be_ask(policy, client, op);
		break;
	case ORION_POLICY_EVENT_GIVE_UP:
		orion_policy_end_wait(policy, client);
		break;
	case ORION_POLICY_EVENT_COMPLETE:
		on_complete(policy, client, op, event->measured_ns);
		break;
	case ORION_POLICY_EVENT_LATENCY:
		orion_policy_set_latency(policy, event->hp_latency_ns);
		orion_policy_limit_tags(policy);
		break;
	case ORION_POLICY_EVENT_END:
		on_end(policy, client);
		break;
	case ORION_POLICY_EVENT_COUNT_:
		return 0;
	}
	go = orion_policy_release(policy);
	if (event->type == ORION_POLICY_EVENT_ASK && !is_hp_ask)
		policy->counters.be_ops_rejected += !(go & orion_policy_bit(client));
	*ret_go = go | is_hp_ask; /* HP's bit is the first */
	return 0;
}

/* ---- the view from outside ------------------------------------------------------------ */

uint64_t orion_policy_deadline(const struct orion_policy *policy)
{
	uint64_t waiting = policy->waiting, oldest_ns = UINT64_MAX;

	if (!waiting)
		return ORION_POLICY_NO_DEADLINE;
	if (orion_policy_n_hp(policy) == 0)
		return policy->be.n != 1
			       ? policy->hp_until_ns
			       : u64_min(policy->hp_until_ns,
					 u64_excess(policy->be_due_ns, policy->config.lead_ns));
	if (policy->be.n > 0)
		return ORION_POLICY_NO_DEADLINE;
	while (waiting)
		oldest_ns =
			u64_min(oldest_ns, policy->clients[orion_policy_pop(&waiting)].asked_ns);
	return oldest_ns + policy->patience_ns;
}

enum orion_policy_reason orion_policy_reason_of(const struct orion_policy *policy, uint32_t client)
{
	const struct orion_policy_client *c = &policy->clients[client];
	enum orion_policy_reason reason;

	if (!(policy->waiting & orion_policy_bit(client)))
		return ORION_POLICY_WAIT_NOT;
	reason = orion_policy_hp_block_of(policy, c);
	if (reason != ORION_POLICY_WAIT_NOT)
		return reason;
	if (orion_policy_front(policy) != client)
		return ORION_POLICY_WAIT_TURN;
	if (orion_policy_is_overdue(policy, c))
		return ORION_POLICY_WAIT_DRAIN;
	return orion_policy_block_of(policy, &c->op, &policy->be);
}

const char *orion_policy_reason_text(enum orion_policy_reason reason)
{
	switch (reason) {
	case ORION_POLICY_WAIT_NOT:
		return "the client does not wait";
	case ORION_POLICY_WAIT_SMS:
		return "best effort would fill more than sm_threshold_ratio of the multiprocessors";
	case ORION_POLICY_WAIT_DURATION:
		return "best effort would have more than dur_threshold_ratio of the latency in "
		       "flight beside high priority";
	case ORION_POLICY_WAIT_CLASS:
		return "its class is that of the high-priority operation";
	case ORION_POLICY_WAIT_DEPTH:
		return "high priority may come, and enough of best effort is in flight";
	case ORION_POLICY_WAIT_TURN:
		return "a client with less served time goes first";
	case ORION_POLICY_WAIT_DRAIN:
		return "it has waited for long, and goes when nothing of best effort is in flight";
	case ORION_POLICY_REASON_COUNT_:
		break;
	}
	return "unknown reason";
}
