/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What a step of the core costs by policy, without sockets: 1,000 clients with claims of
 * all kinds want one GPU, of which each needs most. The holder gives it up and asks again,
 * GPU time is told, claims change, some leave and come again, and once in a while many waits
 * age together. Then the policy is changed, which sorts all of them anew.
 *
 * The target: no decision above 20 us of the processor's time. All is done RUNS times in the
 * very same way, and the least that a step took counts: what an interrupt or a cold page takes
 * is no cost of a decision.
 */

#include "core/sched.h"
#include "ipc/names.h"
#include "timing.h"
#include "util/clock.h"
#include "util/prng.h"

#include <stdio.h>
#include <stdlib.h>

#define CLIENTS 1000
#define STEPS   200000
#define CARD    (1ull << 36)
#define RUNS    5

static struct sched sched;
static struct sched_client clients[CLIENTS];
static uint64_t took_ns[STEPS], config_ns; /* the least of the runs so far */
static uint64_t now_ns, seed;

static struct sched_claim any_claim(void)
{
	return (struct sched_claim){
		.priority = (enum sched_priority)prng_below(&seed, SCHED_PRIORITY_CRITICAL),
		.weight = (uint32_t)prng_below(&seed, 1000) + 1,
		.slo_ns = prng_below(&seed, 60) * CLOCK_NS_PER_SEC,
	};
}

/* Of this thread alone: others may want the processor meanwhile. */
static uint64_t step(struct sched_event *event, struct sched_actions *ret_actions)
{
	uint64_t before = timing_cpu_ns();

	event->now_ns = now_ns;
	(void)sched_step(&sched, event, ret_actions);
	return timing_cpu_ns() - before;
}

/* Who has a grant now; SCHED_NONE: nobody. */
static uint32_t holder_in(const struct sched_actions *actions, uint32_t holder)
{
	for (uint32_t i = 0; i < actions->n; i++) {
		if (actions->at[i].type == SCHED_ACTION_GRANT)
			holder = actions->at[i].client;
	}
	return holder;
}

static uint32_t begin(enum sched_policy policy)
{
	struct sched_event event = {.type = SCHED_EVENT_GPU, .bytes = CARD};
	struct sched_actions actions;
	struct sched_config config;
	uint32_t holder = SCHED_NONE;

	sched_config_default(&config);
	config.policy = policy;
	config.mode = SCHED_MODE_SERIAL;
	seed = 1;
	now_ns = 0;
	sched_init(&sched, clients, CLIENTS, &config);
	(void)step(&event, &actions);
	for (uint32_t i = 0; i < CLIENTS; i++) {
		event = (struct sched_event){
			.type = SCHED_EVENT_JOIN, .client = i, .claim = any_claim()};
		(void)step(&event, &actions);
		event.type = SCHED_EVENT_REQUEST;
		(void)step(&event, &actions);
		holder = holder_in(&actions, holder);
	}
	return holder;
}

/* One of what happens, in the shares of a busy node. */
static struct sched_event any_event(uint32_t holder)
{
	struct sched_event event = {.client = (uint32_t)prng_below(&seed, CLIENTS)};
	uint64_t what = prng_below(&seed, 10);

	now_ns += prng_below(&seed, 20 * CLOCK_NS_PER_MS);
	if (what == 0) {
		event.type = SCHED_EVENT_CLAIM;
		event.claim = any_claim();
	} else if (clients[event.client].state == SCHED_CLIENT_FREE) {
		event.type = SCHED_EVENT_JOIN;
		event.claim = any_claim();
	} else if (clients[event.client].state == SCHED_CLIENT_IDLE) {
		event.type = SCHED_EVENT_REQUEST;
	} else if (what == 1 && event.client != holder) {
		event.type = SCHED_EVENT_LEAVE;
	} else if (what < 4) {
		event.type = SCHED_EVENT_USED;
		event.gpu_ns = prng_below(&seed, CLOCK_NS_PER_SEC);
	} else if (sched_deadline(&sched) <= now_ns) {
		event.type = SCHED_EVENT_TIME;
	} else {
		const struct sched_client *c = &clients[holder];

		event.type = SCHED_EVENT_RELEASED;
		event.client = holder;
		event.grant = c->grant;
		event.epoch = c->epoch;
		event.wants = true;
	}
	return event;
}

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static void run(enum sched_policy policy, bool is_first)
{
	struct sched_event change = {.type = SCHED_EVENT_CONFIG};
	uint32_t holder = begin(policy);
	struct sched_actions actions;
	struct sched_config config;
	uint64_t ns;

	for (uint32_t i = 0; i < STEPS; i++) {
		struct sched_event event = any_event(holder);

		ns = step(&event, &actions);
		took_ns[i] = is_first ? ns : least(ns, took_ns[i]);
		holder = holder_in(&actions, holder);
	}
	config = sched.config;
	config.policy = (enum sched_policy)((policy + 1) % SCHED_POLICY_COUNT_);
	change.config = &config;
	ns = step(&change, &actions);
	config_ns = is_first ? ns : least(ns, config_ns);
}

int main(void)
{
	printf("a step of the core, us, %d clients, the least of %d runs (target: 20)\n"
	       "  policy      mean     p50     p99   p99.9 longest  to another policy\n",
	       CLIENTS, RUNS);
	for (int policy = 0; policy < SCHED_POLICY_COUNT_; policy++) {
		uint64_t sum = 0;

		for (int i = 0; i < RUNS; i++)
			run((enum sched_policy)policy, i == 0);
		for (uint32_t i = 0; i < STEPS; i++)
			sum += took_ns[i];
		timing_sort(took_ns, STEPS);
		printf("  %-9s %7.2f %7.2f %7.2f %7.2f %7.2f %18.2f\n", names_policy[policy],
		       (double)sum / STEPS / 1000, (double)took_ns[STEPS / 2] / 1000,
		       (double)took_ns[STEPS / 100 * 99] / 1000,
		       (double)took_ns[STEPS / 1000 * 999] / 1000,
		       (double)took_ns[STEPS - 1] / 1000, (double)config_ns / 1000);
		(void)fflush(stdout);
	}
	return 0;
}
