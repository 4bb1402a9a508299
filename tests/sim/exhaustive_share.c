/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Every interleaving of what three clients on one GPU may say to share, to a depth: work,
 * no work, bursts, hints, answers, stops, deaths at every moment, with time going a little
 * way or to the next deadline between them. In every state the machine's invariants hold,
 * and of what the clients were really told:
 *
 * - a hold ends soon by itself, that of a hint sooner, a critical client's at once;
 * - with all answered, beside a critical client's burst at most one of the others computes,
 *   and none if holding is what this client gets and the critical have not had their share;
 * - the next one whose turn it is is let go when the one before is off, not earlier;
 * - nobody is held when no critical client has been active for active_ns;
 * - GPU time adds up to no more than time.
 *
 * From a sample of the states a critical client goes on for ever, in a burst or, in others,
 * without one: all others compute nevertheless, by their slices, and together for what the
 * cap leaves them. Then it stops: all are let go, and the machine comes to rest.
 */

#include "core/timeshare/burst.h"
#include "mix.h"
#include "nvshare/protocol.h"
#include "seen.h"
#include "share_mix.h"
#include "share_node.h"

#include <assert.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PATH_MAX_ 256
#define TOOK_NS   (600 * US)
#define SHORT_NS  (300 * US)
#define HINT_NS   (2 * MS) /* announced so far ahead */
#define SERVE_NS  (6 * S)
#define SERVED_NS (50 * MS) /* at least, of that */

enum move {
	MOVE_ANSWER,
	MOVE_FAIL,
	MOVE_LOSE,
	MOVE_BUSY,
	MOVE_IDLE,
	MOVE_BEGIN,
	MOVE_END,
	MOVE_HINT,
	MOVE_STOP,
	MOVE_RUN_ON,
	MOVE_RUN,
	MOVE_LEAVE,
	MOVE_JOIN,
	MOVE_ALL,
	MOVE_SHORT,
	MOVE_TIME,
	MOVE_COUNT
};

static const char *const move_names[MOVE_COUNT] = {"answers",
						   "fails to be held",
						   "answers, which is lost",
						   "is busy",
						   "is idle",
						   "begins",
						   "ends",
						   "gives a hint",
						   "is stopped",
						   "is told to stop, and fails to",
						   "runs",
						   "leaves",
						   "joins",
						   "and all others answer",
						   "waits a little",
						   "waits"};

static uint64_t n_moves, n_served;
static struct {
	enum move move;
	uint32_t client;
} path[PATH_MAX_];
static uint32_t path_len;

/* ---- moves ---------------------------------------------------------------------- */

static int say(struct node *node, uint32_t client, enum timeshare_activity activity, uint64_t value)
{
	struct client *c = &node->clients[client];

	c->said_ns = node->now_ns;
	return node_step(node, (struct timeshare_event){.type = TIMESHARE_EVENT_ACTIVITY,
							.client = client,
							.activity = activity,
							.busy_ns = c->busy_ns,
							.held_ns = c->held_ns,
							.value = value});
}

static uint64_t slice_of(const struct client *c)
{
	return c->slice_us ? c->slice_us : 2048; /* the driver's */
}

/* The hardware's turns. */
static uint64_t slices(const struct node *node)
{
	uint64_t sum_us = 0;

	for (uint32_t i = 0; i < CLIENTS; i++)
		sum_us += node_computes(node, i) ? slice_of(&node->clients[i]) : 0;
	return sum_us;
}

static void pass(struct node *node, uint64_t ns)
{
	uint64_t sum_us = slices(node);

	for (uint32_t i = 0; i < CLIENTS; i++) {
		struct client *c = &node->clients[i];
		uint64_t held_ns = c->until_ns > node->now_ns ? c->until_ns - node->now_ns : 0;

		if (!node_is_at_work(c))
			continue;
		held_ns = held_ns < ns ? held_ns : ns;
		c->held_ns += held_ns;
		c->busy_ns += ns - held_ns;
		if (node_computes(node, i))
			c->used_ns += ns * slice_of(c) / sum_us;
		c->active_ns = node->now_ns + ns;
		if (node_is_critical(i) && node->lc_ns < c->active_ns)
			node->lc_ns = c->active_ns;
	}
	node->n_at_once = ns > US ? 0 : node->n_at_once + 1;
	assert(node->n_at_once < 100); /* nobody asks to be called at once for ever */
	node->now_ns += ns;
}

/* Until somebody's hold ends, or the machine wants to be called. */
static uint64_t next_ns(const struct node *node)
{
	uint64_t due_ns = timeshare_deadline(&node->share);

	for (uint32_t i = 0; i < CLIENTS; i++) {
		const struct client *c = &node->clients[i];

		if (c->until_ns > node->now_ns && c->until_ns < due_ns)
			due_ns = c->until_ns;
	}
	return due_ns;
}

static bool move_time(struct node *node, enum move move)
{
	uint64_t due_ns = next_ns(node);

	if (move == MOVE_SHORT) {
		if (due_ns <= node->now_ns + SHORT_NS)
			return false;
		pass(node, SHORT_NS);
		return true;
	}
	if (due_ns == TIMESHARE_NO_DEADLINE)
		return false;
	pass(node, due_ns - node->now_ns);
	if (timeshare_deadline(&node->share) <= node->now_ns)
		(void)node_step(node, (struct timeshare_event){.type = TIMESHARE_EVENT_TIME});
	return true;
}

static bool move_answer(struct node *node, enum move move, uint32_t client)
{
	struct client *c = &node->clients[client];
	struct order order;

	if (c->n == 0 || (move == MOVE_FAIL && (c->queue[0].is_done || !c->queue[0].hold_us)))
		return false;
	if (move == MOVE_FAIL)
		c->queue[0].outcome = NVSHARE_OUTCOME_UNSUPPORTED;
	node_obey(node, client, &c->queue[0]);
	order = c->queue[0];
	c->n--;
	memmove(c->queue, c->queue + 1, c->n * sizeof(c->queue[0]));
	if (move != MOVE_LOSE)
		assert(node_step(node, (struct timeshare_event){.type = TIMESHARE_EVENT_DONE,
								.client = client,
								.seq = order.seq,
								.outcome = order.outcome,
								.took_ns = TOOK_NS,
								.is_held = c->until_ns >
									   node->now_ns}) == 0);
	return true;
}

/* Each of them, and what they are told upon it. */
static bool move_all(struct node *node)
{
	uint32_t n = 0, n_before;

	do {
		n_before = n;
		for (uint32_t i = 0; i < CLIENTS; i++)
			n += move_answer(node, MOVE_ANSWER, i);
	} while (n > n_before);
	return n > 0;
}

static bool move_work(struct node *node, enum move move, uint32_t client)
{
	struct client *c = &node->clients[client];
	uint64_t need_ns = node->now_ns;
	enum timeshare_activity activity;
	uint64_t value = 0;

	if (!c->is_running)
		return false;
	if (move == MOVE_BUSY || move == MOVE_IDLE) {
		if (c->is_busy == (move == MOVE_BUSY))
			return false;
		c->is_busy = move == MOVE_BUSY;
		activity = c->is_busy ? TIMESHARE_ACTIVITY_BUSY : TIMESHARE_ACTIVITY_IDLE;
	} else if (move == MOVE_HINT) {
		if (!node_is_critical(client) || c->is_bursting)
			return false;
		/* It may begin late, as predicted, and then lasts as long as it may. */
		need_ns += 200 * HINT_NS + node->share.config.hint_ns;
		c->hint_ns = need_ns;
		activity = TIMESHARE_ACTIVITY_HINT;
		value = HINT_NS;
	} else if (!node_is_critical(client)) {
		if (c->is_asked == (move == MOVE_BEGIN))
			return false;
		c->is_asked = move == MOVE_BEGIN;
		activity = c->is_asked ? TIMESHARE_ACTIVITY_BEGIN : TIMESHARE_ACTIVITY_END;
		return say(node, client, activity, MS) == 0;
	} else {
		if (c->is_bursting == (move == MOVE_BEGIN))
			return false;
		c->is_bursting = move == MOVE_BEGIN;
		c->hint_ns = 0;
		activity = c->is_bursting ? TIMESHARE_ACTIVITY_BEGIN : TIMESHARE_ACTIVITY_END;
		value = MS;
	}
	c->active_ns = node->now_ns;
	if (node_is_critical(client) && node->lc_ns < need_ns)
		node->lc_ns = need_ns;
	return say(node, client, activity, value) == 0;
}

/* Without one that needs it, nobody is to be held from now on. */
static void forget_need(struct node *node)
{
	for (uint32_t i = 0; i < CLIENTS; i++) {
		if (node_is_critical(i) && node->clients[i].is_running)
			return;
	}
	node->lc_ns = 0;
}

static bool move_life(struct node *node, enum move move, uint32_t client)
{
	struct client *c = &node->clients[client];
	struct timeshare_event event = {.client = client};

	if (c->is_joined == (move == MOVE_JOIN))
		return false;
	if (move == MOVE_JOIN) {
		*c = (struct client){.is_joined = true};
		event.type = TIMESHARE_EVENT_JOIN;
		event.claim = (struct timeshare_claim){node_run->class[client], 100,
						       node_run -> slo_us, 0};
	} else if (move == MOVE_LEAVE) {
		*c = (struct client){0};
		event.type = TIMESHARE_EVENT_LEAVE;
	} else {
		if (c->is_running == (move == MOVE_RUN))
			return false;
		node_obey_all(node, client);
		c->is_running = move == MOVE_RUN;
		c->is_busy = c->is_bursting = c->is_asked = false;
		event.type = TIMESHARE_EVENT_RUN;
		event.running = c->is_running;
	}
	forget_need(node);
	/* What it announced before it was stopped may be still to come. */
	if (move == MOVE_RUN && node->lc_ns < c->hint_ns)
		node->lc_ns = c->hint_ns;
	return node_step(node, event) == 0;
}

/* What it is at was forgotten when it was told to stop: a client says it again. */
static bool move_run_on(struct node *node, uint32_t client)
{
	const struct client was = node->clients[client];

	if (!was.is_running || !move_life(node, MOVE_STOP, client))
		return false;
	(void)move_life(node, MOVE_RUN, client);
	if (was.is_bursting || was.is_asked)
		(void)move_work(node, MOVE_BEGIN, client);
	if (was.is_busy)
		(void)move_work(node, MOVE_BUSY, client);
	return true;
}

static bool do_move(struct node *node, enum move move, uint32_t client)
{
	bool is_fault = move == MOVE_FAIL || move == MOVE_LOSE || move == MOVE_STOP ||
			move == MOVE_RUN_ON || move == MOVE_LEAVE;
	bool is_possible;

	if (is_fault && node->n_faults == 0)
		return false;
	if (move == MOVE_ALL)
		return client == 0 && move_all(node);
	if (move >= MOVE_SHORT)
		return client == 0 && move_time(node, move);
	if (move <= MOVE_LOSE)
		is_possible = move_answer(node, move, client);
	else if (move <= MOVE_HINT)
		is_possible = move_work(node, move, client);
	else if (move == MOVE_RUN_ON)
		is_possible = move_run_on(node, client);
	else
		is_possible = move_life(node, move, client);
	node->n_faults -= is_possible && is_fault;
	return is_possible;
}

/* ---- everybody is served ---------------------------------------------------------- */

static void settle(struct node *node)
{
	(void)move_all(node);
	node_check(node);
}

static void go_on(struct node *node, uint64_t ns)
{
	uint64_t end_ns = node->now_ns + ns;

	while (node->now_ns < end_ns) {
		settle(node);
		for (uint32_t i = 0; i < CLIENTS; i++) {
			if (node_is_at_work(&node->clients[i]))
				(void)say(node, i, TIMESHARE_ACTIVITY_USE, 0);
		}
		settle(node);
		if (next_ns(node) > node->now_ns + 10 * MS)
			pass(node, 10 * MS);
		else
			(void)do_move(node, MOVE_TIME, 0);
	}
}

/* Of the time after the critical have used up their credit; faults take some. */
static void check_floor(const struct node *node)
{
	uint64_t percent = node->share.config.lc_max_percent, used_ns = 0;
	uint64_t capped_ns = SERVE_NS - node->share.config.lc_window_ns;

	for (uint32_t i = 0; i < CLIENTS; i++)
		used_ns += node_is_critical(i) ? 0 : node->clients[i].used_ns;
	assert(used_ns >= capped_ns / 100 * (100 - percent) / 10 * 8);
}

static void check_served(const struct node *from, bool is_bursting)
{
	const enum move ready[] = {MOVE_JOIN, MOVE_RUN, MOVE_BUSY, MOVE_END,
				   is_bursting ? MOVE_BEGIN : MOVE_END};
	static const enum move done[] = {MOVE_IDLE, MOVE_END};
	static struct node node;

	node_copy(&node, from);
	n_served++;
	for (uint32_t i = 0; i < CLIENTS; i++) {
		for (size_t k = 0; k < sizeof(ready) / sizeof(ready[0]); k++)
			(void)do_move(&node, ready[k], i);
		node.clients[i].used_ns = 0;
	}
	go_on(&node, SERVE_NS);
	check_floor(&node);
	for (uint32_t i = 0; i < CLIENTS; i++) {
		assert(node.clients[i].used_ns >= SERVED_NS || node_run->is_uncapped);
		for (size_t k = 0; k < sizeof(done) / sizeof(done[0]); k++)
			(void)do_move(&node, done[k], i);
	}
	for (uint32_t i = 0; i < 100 && timeshare_deadline(&node.share) != TIMESHARE_NO_DEADLINE;
	     i++) {
		settle(&node);
		(void)do_move(&node, MOVE_TIME, 0);
	}
	assert(timeshare_deadline(&node.share) == TIMESHARE_NO_DEADLINE);
	for (uint32_t i = 0; i < CLIENTS; i++)
		assert(node.clients[i].until_ns <= node.now_ns);
}

/* ---- what makes two states one --------------------------------------------------- */

static uint64_t hash_of(const struct node *node)
{
	const struct timeshare_gpu *g = &node->share.gpus[0];
	uint64_t hash = node->n_faults, now = node->now_ns;

	for (uint32_t i = 0; i < CLIENTS; i++) {
		share_mix_slot(&hash, now, &node->slots[i]);
		share_mix_world(&hash, now, &node->clients[i]);
	}
	for (uint32_t i = g->running.first; i != TIMESHARE_NONE;
	     i = node->slots[i].link[TIMESHARE_LINK_RUNNING].next)
		mix(&hash, i + 1);
	mix(&hash, g->is_dirty | g->is_shared << 1 | g->is_taking << 2 | g->is_holding << 3 |
			   g->is_brief << 4 | g->is_capped << 5 | g->is_slow << 6);
	mix(&hash, (uint64_t)g->turn << 32 | g->leaving);
	mix(&hash, g->turn_left_ns);
	mix(&hash, g->credit);
	mix(&hash, now - g->at_ns);
	mix(&hash, mix_ahead(now, g->wake_ns));
	mix(&hash, mix_ahead(now, g->hint_end_ns));
	mix(&hash, g->is_slow ? mix_ahead(now, g->slow_ns) : 0);
	mix(&hash, g->pause_ns);
	if (g->pause_ns && !g->is_slow && now - g->slow_ns <= node->share.config.retry_ns)
		mix(&hash, now - g->slow_ns);
	mix(&hash, burst_lead(&node->share, 0));
	mix(&hash, burst_lead_usual(&node->share, 0));
	mix(&hash, g->pid.us);
	mix(&hash, (uint64_t)g->pid.sum_ppm);
	mix(&hash, node->turn);
	mix(&hash, mix_ahead(now, node->lc_ns + node->share.config.active_ns));
	return hash;
}

/* ---- the search -------------------------------------------------------------------- */

static void explore(const struct node *node, uint32_t left)
{
	struct node *next;

	if (left == 0)
		return;
	next = malloc(sizeof(*next));
	assert(next);
	for (uint32_t i = 0; i < CLIENTS; i++) {
		for (int move = 0; move < MOVE_COUNT; move++) {
			uint64_t hash;

			node_copy(next, node);
			path[path_len].move = (enum move)move;
			path[path_len++].client = i;
			if (do_move(next, (enum move)move, i)) {
				n_moves++;
				node_check(next);
				hash = hash_of(next);
				if (seen_is_new(hash, left)) {
					if (hash % 64 == 0)
						check_served(next, hash / 64 % 2);
					explore(next, left - 1);
				}
			}
			path_len--;
		}
	}
	free(next);
}

static void on_abort(int sig)
{
	(void)sig;
	dprintf(STDERR_FILENO, "exhaustive_share: %s: failed after:\n", node_run->name);
	for (uint32_t i = 0; i < path_len; i++)
		dprintf(STDERR_FILENO, "  client %" PRIu32 " %s\n", path[i].client,
			move_names[path[i].move]);
}

/* All are there, and who is not critical is at work. */
static void begin(struct node *node)
{
	static const enum move ready[] = {MOVE_JOIN, MOVE_RUN, MOVE_BUSY};
	struct timeshare_config config;

	timeshare_config_default(&config);
	config.slice_rule = node_run->rule;
	config.is_saving = node_run->is_saving;
	config.be_slice_us = 200; /* there are shorter ones */
	config.is_holding = !node_run->is_not_holding;
	config.lc_max_percent = node_run->is_uncapped ? 100 : config.lc_max_percent;
	config.lc_window_ns = node_run->lc_window_ns ? node_run->lc_window_ns : config.lc_window_ns;
	memset(node, 0, sizeof(*node));
	node->now_ns = S;
	node->turn = TIMESHARE_NONE;
	node->n_faults = node_run->n_faults;
	timeshare_init(&node->share, node->slots, CLIENTS, &config);
	for (uint32_t i = 0; i < CLIENTS; i++) {
		for (size_t k = 0; k < sizeof(ready) / sizeof(ready[0]); k++) {
			if (ready[k] != MOVE_BUSY || !node_is_critical(i))
				(void)do_move(node, ready[k], i);
		}
		settle(node);
	}
}

#define LOW      TIMESHARE_CLASS_LOW
#define NORMAL   TIMESHARE_CLASS_NORMAL
#define HIGH     TIMESHARE_CLASS_HIGH
#define CRITICAL TIMESHARE_CLASS_CRITICAL

int main(int argc, char **argv)
{
	static const struct run runs[] = {
		{"a critical one", {CRITICAL, NORMAL, NORMAL}, .n_faults = 0},
		{"a critical one, one fault", {CRITICAL, NORMAL, NORMAL}, .n_faults = 1},
		{"a critical one, short cap",
		 {CRITICAL, NORMAL, LOW},
		 .n_faults = 1,
		 .lc_window_ns = 10 * MS},
		{"a critical one, slices", {CRITICAL, NORMAL, LOW}, .arm = TIMESHARE_ARM_SLICES},
		{"a critical one, no cap", {CRITICAL, NORMAL, NORMAL}, .is_uncapped = true},
		{"a critical one learns",
		 {CRITICAL, NORMAL, NORMAL},
		 .arm = TIMESHARE_ARMS_,
		 .n_faults = 1},
		{"a critical one, no holds",
		 {CRITICAL, NORMAL, NORMAL},
		 .is_not_holding = true,
		 .n_faults = 1},
		{"a critical one, slack",
		 {CRITICAL, NORMAL, NORMAL},
		 .arm = TIMESHARE_ARM_SLICES,
		 .rule = TIMESHARE_RULE_SLACK,
		 .slo_us = 1500},
		{"two critical ones, slack",
		 {CRITICAL, CRITICAL, NORMAL},
		 .arm = TIMESHARE_ARM_SLICES,
		 .rule = TIMESHARE_RULE_SLACK,
		 .slo_us = 1500},
		{"a critical one, exponential",
		 {CRITICAL, NORMAL, LOW},
		 .arm = TIMESHARE_ARM_SLICES,
		 .rule = TIMESHARE_RULE_EXPONENTIAL},
		{"a critical one, feedback",
		 {CRITICAL, NORMAL, NORMAL},
		 .arm = TIMESHARE_ARM_SLICES,
		 .rule = TIMESHARE_RULE_FEEDBACK,
		 .slo_us = 3000},
		{"a critical one, saving energy",
		 {CRITICAL, NORMAL, NORMAL},
		 .slo_us = 500,
		 .is_saving = true},
		{"two critical ones, one fault", {CRITICAL, CRITICAL, LOW}, .n_faults = 1},
		{"high, normal, low", {HIGH, NORMAL, LOW}, .n_faults = 1},
		{"equals", {NORMAL, NORMAL, NORMAL}, .n_faults = 1},
	};
	uint32_t depth = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 0) : 6;
	static struct node node;

	(void)signal(SIGABRT, on_abort);
	assert(depth < PATH_MAX_);
	for (size_t i = 0; i < sizeof(runs) / sizeof(*runs); i++) {
		node_run = &runs[i];
		seen_reset(1u << 20);
		n_moves = n_served = 0;
		begin(&node);
		explore(&node, depth);
		printf("exhaustive_share: %s: depth %" PRIu32 ", %" PRIu64 " states, %" PRIu64
		       " moves, served from %" PRIu64 "\n",
		       node_run->name, depth, seen_count(), n_moves, n_served);
		(void)fflush(stdout);
	}
	seen_reset(0);
	return 0;
}
