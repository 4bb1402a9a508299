/* SPDX-License-Identifier: Apache-2.0 */
#include "share_node.h"

#include "core/timeshare/preempt_choice.h"
#include "nvshare/protocol.h"

#include <assert.h>

const struct run *node_run;

void node_copy(struct node *to, const struct node *from)
{
	*to = *from;
	to->share.clients = to->slots;
}

/* ---- the clients ----------------------------------------------------------- */

bool node_is_critical(uint32_t client)
{
	return node_run->class[client] == TIMESHARE_CLASS_CRITICAL;
}

bool node_is_at_work(const struct client *c)
{
	return c->is_running && (c->is_busy || c->is_bursting);
}

bool node_computes(const struct node *node, uint32_t client)
{
	const struct client *c = &node->clients[client];

	return node_is_at_work(c) && c->until_ns <= node->now_ns;
}

/* Computes, and has said something lately. */
static bool is_known_to_compute(const struct node *node, uint32_t client)
{
	return node_computes(node, client) && node->slots[client].work != TIMESHARE_WORK_SILENT;
}

/* At work as far as can be known: that of which nothing is said counts as over in the end. */
static bool is_known_busy(const struct node *node, uint32_t client)
{
	const struct client *c = &node->clients[client];

	return node_is_at_work(c) &&
	       ((c->is_busy && node->slots[client].work != TIMESHARE_WORK_SILENT) ||
		node->now_ns < c->said_ns + node->share.config.burst_ns);
}

static bool has_burst(const struct node *node)
{
	for (uint32_t i = 0; i < CLIENTS; i++) {
		const struct client *c = &node->clients[i];

		if (node_is_critical(i) && c->is_running && c->is_bursting &&
		    node->now_ns < c->said_ns + node->share.config.burst_ns)
			return true;
	}
	return false;
}

/* A critical client is at work, or was a moment ago. */
static bool is_needed(const struct node *node)
{
	return node->now_ns < node->lc_ns + node->share.config.active_ns;
}

void node_obey(struct node *node, uint32_t client, struct order *order)
{
	struct client *c = &node->clients[client];

	if (order->is_done)
		return;
	order->is_done = true;
	if (order->outcome == 0 && order->hold_us && !c->is_running)
		order->outcome = NVSHARE_OUTCOME_INVALID_STATE;
	c->slice_us = order->slice_us;
	c->late_ns = node->now_ns - order->told_ns;
	c->until_ns = order->hold_us && !order->outcome ? node->now_ns + order->hold_us * US : 0;
}

void node_obey_all(struct node *node, uint32_t client)
{
	struct client *c = &node->clients[client];

	for (uint32_t i = 0; i < c->n; i++)
		node_obey(node, client, &c->queue[i]);
	c->until_ns = 0;
}

/* ---- what it is told --------------------------------------------------------- */

/* None but client of the others has been active, so that it has the turn. */
static bool is_only_one(const struct node *node, uint32_t client)
{
	for (uint32_t i = 0; i < CLIENTS; i++) {
		const struct client *c = &node->clients[i];

		if (i != client && !node_is_critical(i) && c->is_joined && c->active_ns &&
		    node->now_ns <= c->active_ns + node->share.config.active_ns)
			return false;
	}
	return true;
}

static void check_hold(const struct node *node, uint32_t client, uint64_t hold_ns)
{
	const struct timeshare_config *config = &node->share.config;

	assert(hold_ns <= config->hold_ns);
	if (node_is_critical(client)) {
		assert(hold_ns <= MS);
		return;
	}
	assert(hold_ns == 0 || (is_needed(node) && !node_run->is_not_holding));
	if (hold_ns > 0 && !has_burst(node) && is_only_one(node, client))
		assert(hold_ns <= config->hint_ns);
}

/* Who had the turn is off, or never will be; it is not merely on its way. */
static void check_turn(const struct node *node, uint32_t client)
{
	uint32_t old = node->turn;

	if (old == client || old == TIMESHARE_NONE || !node->share.gpus[0].is_taking ||
	    node->slots[old].hold == TIMESHARE_HOLD_FAILED ||
	    node->slots[client].hold == TIMESHARE_HOLD_FAILED)
		return;
	assert(!is_known_to_compute(node, old));
}

static void take(struct node *node, const struct timeshare_action *action)
{
	struct client *c = &node->clients[action->client];
	uint64_t hold_ns = action->hold_us * US;

	assert(c->is_joined && c->is_running && c->n < QUEUE);
	assert(action->slice_us == 0 || (action->slice_us >= TIMESHARE_SLICE_MIN &&
					 action->slice_us <= TIMESHARE_SLICE_MAX));
	check_hold(node, action->client, hold_ns);
	if (!node_is_critical(action->client) && hold_ns == 0 && node_is_at_work(c) &&
	    node->slots[action->client].work != TIMESHARE_WORK_SILENT)
		check_turn(node, action->client);
	c->queue[c->n++] = (struct order){
		.seq = action->seq,
		.slice_us = action->slice_us,
		.hold_us = action->hold_us,
		.told_ns = node->now_ns,
	};
}

/* Before a step: whom the critical leave to compute. */
static void note_turn(struct node *node)
{
	const struct timeshare_gpu *g = &node->share.gpus[0];

	if (g->is_taking && !g->is_holding && g->leaving == TIMESHARE_NONE)
		node->turn = g->turn;
	if (!g->is_taking || node->turn == TIMESHARE_NONE ||
	    !node_is_at_work(&node->clients[node->turn]))
		node->turn = TIMESHARE_NONE; /* whoever comes back to work is told to be off, too */
	else if (node->slots[node->turn].hold == TIMESHARE_HOLD_FAILED ||
		 node->slots[node->turn].work == TIMESHARE_WORK_SILENT)
		node->turn = TIMESHARE_NONE; /* and who is tried again is off a moment later */
}

int node_step(struct node *node, struct timeshare_event event)
{
	struct timeshare_actions actions;
	uint32_t n_told[CLIENTS] = {0};
	int r;

	for (uint32_t i = 0; i < CLIENTS && node_run->arm != TIMESHARE_ARMS_; i++) {
		for (int k = 0; k < TIMESHARE_WARNINGS_; k++) {
			node->slots[i].arms[k].n_bursts = 1025;
			node->slots[i].arms[k].n_noted = ARM_FIRST_BURSTS;
			node->slots[i].arms[k].best = node_run->arm;
		}
	}
	event.now_ns = node->now_ns;
	note_turn(node);
	r = timeshare_step(&node->share, &event, &actions);
	assert(!r || actions.n == 0);
	for (uint32_t i = 0; i < actions.n; i++) {
		if (actions.at[i].type != TIMESHARE_ACTION_SET)
			continue;
		assert(++n_told[actions.at[i].client] == 1);
		take(node, &actions.at[i]);
	}
	return r;
}

/* ---- what is true of every state ---------------------------------------------- */

static void check_computing(const struct node *node)
{
	const struct timeshare_gpu *g = &node->share.gpus[0];
	uint32_t n = 0;

	for (uint32_t i = 0; i < CLIENTS; i++) {
		if (node->clients[i].n > 0)
			return; /* a moment later */
		n += !node_is_critical(i) && is_known_to_compute(node, i) &&
		     node->slots[i].hold != TIMESHARE_HOLD_FAILED;
	}
	if (has_burst(node) && !node_run->is_not_holding && !g->is_slow)
		assert(n <=
		       (node_run->arm == TIMESHARE_ARM_HOLD && !node_run->is_saving && !g->is_capped
				? 0u
				: 1u));
	for (uint32_t i = 0; i < CLIENTS && !is_needed(node); i++)
		assert(node->clients[i].until_ns <= node->now_ns + node->clients[i].late_ns);
}

/* Beside critical ones the rest have the same, and turns of different length. */
static void check_slices(const struct node *node)
{
	/* With levels each has its own. */
	for (uint32_t i = 0; i < CLIENTS && node_run->rule != TIMESHARE_RULE_EXPONENTIAL; i++) {
		const struct client *c = &node->clients[i];

		for (uint32_t k = 0; k < CLIENTS; k++) {
			const struct client *other = &node->clients[k];

			if (i == k || c->n + other->n > 0 || !is_known_busy(node, i) ||
			    !is_known_busy(node, k))
				continue;
			assert(c->slice_us > 0);
			if (node_run->class[i] == node_run->class[k] &&
			    (!node_is_critical(i) || node_run->rule != TIMESHARE_RULE_SLACK))
				assert(c->slice_us == other->slice_us);
			else if (node_run->class[i] <
					 node_run -> class[k] && !node -> share.gpus[0].is_capped)
				assert(c->slice_us < other->slice_us ||
				       (!node_is_critical(k) && c->slice_us == other->slice_us &&
					is_needed(node)));
		}
	}
}

/* Beyond their share of the time the critical leave the rest to the one that has the turn. */
static void check_cap(const struct node *node)
{
	uint64_t percent = node->share.config.lc_max_percent, lc_us = 0, be_us = 0;

	if (!node->share.gpus[0].is_capped)
		return;
	for (uint32_t i = 0; i < CLIENTS; i++) {
		const struct client *c = &node->clients[i];

		if (c->n > 0)
			return;
		if (node_is_critical(i) && is_known_busy(node, i))
			lc_us += c->slice_us;
		else if (is_known_to_compute(node, i))
			be_us = c->slice_us;
	}
	assert(be_us == 0 || lc_us * (100 - percent) <= be_us * percent);
}

/* Beside a critical client's burst that has no slack left the others have the least. */
static void check_late(const struct node *node)
{
	if (node_run->rule != TIMESHARE_RULE_SLACK || node->share.gpus[0].n_late == 0 ||
	    node->share.gpus[0].is_capped)
		return;
	for (uint32_t i = 0; i < CLIENTS; i++) {
		const struct client *c = &node->clients[i];

		if (!node_is_critical(i) && c->n == 0 && is_known_to_compute(node, i))
			assert(c->slice_us == TIMESHARE_SLICE_MIN);
	}
}

void node_check(const struct node *node)
{
	uint64_t sum_ns = 0;

	timeshare_assert_valid(&node->share);
	for (uint32_t i = 0; i < CLIENTS; i++)
		assert(node->slots[i].work != TIMESHARE_WORK_SILENT ||
		       node->now_ns >= node->clients[i].said_ns + node->share.config.burst_ns);
	for (uint32_t i = 0; i < CLIENTS; i++)
		sum_ns += node->slots[i].state ? timeshare_gpu_ns(&node->share, i) : 0;
	assert(sum_ns <= node->now_ns - S);
	check_computing(node);
	check_slices(node);
	check_cap(node);
	check_late(node);
}
