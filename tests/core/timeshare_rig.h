/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_TESTS_CORE_TIMESHARE_RIG_H
#define NVS_TESTS_CORE_TIMESHARE_RIG_H

/*
 * A share machine with a few client slots on two GPUs. Time stands still but for
 * rig_at(). Every step is checked with timeshare_assert_valid(). What clients were told is
 * kept: rig_slice(), rig_is_held(); what they do with it is up to the test, but by default
 * they answer at once that it is done.
 */

#include "core/timeshare/preempt_choice.h"
#include "core/timeshare/timeshare.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define RIG_CLIENTS 1200
#define US          1000ull
#define MS          1000000ull
#define S           1000000000ull

struct rig_client {
	struct timeshare_action last; /* told; seq 0: nothing yet */
	uint64_t until_ns;            /* held until then by what it was told last */
	uint32_t n_told;
	bool is_mute;
};

struct rig {
	struct timeshare share;
	struct timeshare_client clients[RIG_CLIENTS];
	struct rig_client at[RIG_CLIENTS];
	struct timeshare_config config;
	uint64_t now;
	uint64_t took_ns; /* by each hold, as answered */
	uint32_t outcome; /* of each hold */
	uint32_t n_told;
	uint32_t reports[8]; /* by enum timeshare_report */
};

static inline int rig_step(struct rig *rig, struct timeshare_event event);

static inline void rig_take(struct rig *rig, const struct timeshare_action *action)
{
	struct rig_client *c = &rig->at[action->client];

	if (action->seq < c->last.seq)
		return; /* another's answer has had it told more, which it has answered */
	c->last = *action;
	c->n_told++;
	rig->n_told++;
	c->until_ns = action->hold_us ? rig->now + action->hold_us * US : 0;
	if (c->is_mute)
		return;
	assert_int_equal(
		rig_step(rig,
			 (struct timeshare_event){.type = TIMESHARE_EVENT_DONE,
						  .client = action->client,
						  .seq = action->seq,
						  .outcome = action->hold_us ? rig->outcome : 0,
						  .took_ns = rig->took_ns,
						  .is_held = action->hold_us > 0}),
		0);
}

static inline int rig_step(struct rig *rig, struct timeshare_event event)
{
	struct timeshare_actions actions;
	int r;

	event.now_ns = rig->now;
	r = timeshare_step(&rig->share, &event, &actions);
	timeshare_assert_valid(&rig->share);
	assert_true(actions.n <= TIMESHARE_ACTIONS_MAX);
	if (r)
		assert_int_equal(actions.n, 0);
	for (uint32_t i = 0; i < actions.n; i++) {
		if (actions.at[i].type == TIMESHARE_ACTION_SET)
			rig_take(rig, &actions.at[i]);
		else
			rig->reports[actions.at[i].report]++;
	}
	return r;
}

/* Goes to time, with every TIMESHARE_EVENT_TIME that is due on the way. */
static inline void rig_at(struct rig *rig, uint64_t time)
{
	uint32_t n = 0;

	assert_true(time >= rig->now);
	while (timeshare_deadline(&rig->share) <= time) {
		n = timeshare_deadline(&rig->share) > rig->now ? 0 : n + 1;
		assert_true(n < 1000); /* it does not ask to be called again at once for ever */
		if (rig->now < timeshare_deadline(&rig->share))
			rig->now = timeshare_deadline(&rig->share);
		assert_int_equal(
			rig_step(rig, (struct timeshare_event){.type = TIMESHARE_EVENT_TIME}), 0);
	}
	rig->now = time;
}

static inline void rig_in(struct rig *rig, uint64_t ns)
{
	rig_at(rig, rig->now + ns);
}

static inline int rig_config(struct rig *rig)
{
	return rig_step(rig, (struct timeshare_event){.type = TIMESHARE_EVENT_CONFIG,
						      .config = &rig->config});
}

static inline void rig_init(struct rig *rig)
{
	memset(rig, 0, sizeof(*rig));
	timeshare_config_default(&rig->config);
	rig->now = 1000 * S;
	rig->took_ns = 600 * US;
	timeshare_init(&rig->share, rig->clients, RIG_CLIENTS, &rig->config);
}

static inline void rig_run(struct rig *rig, uint32_t client, bool is_running)
{
	assert_int_equal(rig_step(rig, (struct timeshare_event){.type = TIMESHARE_EVENT_RUN,
								.client = client,
								.running = is_running}),
			 0);
}

/* Joins, and is let in. */
static inline void rig_join(struct rig *rig, uint32_t client, enum timeshare_class class,
			    uint32_t weight)
{
	assert_int_equal(rig_step(rig, (struct timeshare_event){.type = TIMESHARE_EVENT_JOIN,
								.client = client,
								.claim = {class, weight, 0, 0}}),
			 0);
	rig_run(rig, client, true);
}

static inline void rig_leave(struct rig *rig, uint32_t client)
{
	assert_int_equal(rig_step(rig, (struct timeshare_event){.type = TIMESHARE_EVENT_LEAVE,
								.client = client}),
			 0);
	memset(&rig->at[client], 0, sizeof(rig->at[client]));
}

/* The end of a burst is that of one request. */
static inline void rig_does(struct rig *rig, uint32_t client, enum timeshare_activity activity,
			    uint64_t value)
{
	const struct timeshare_usage *usage = &rig->clients[client].usage;
	uint32_t slo_us = rig->clients[client].claim.slo_us;
	bool is_end = activity == TIMESHARE_ACTIVITY_END;

	assert_int_equal(
		rig_step(rig, (struct timeshare_event){.type = TIMESHARE_EVENT_ACTIVITY,
						       .client = client,
						       .activity = activity,
						       .busy_ns = usage->busy_ns,
						       .held_ns = usage->held_ns,
						       .value = value,
						       .n_tasks = is_end,
						       .n_violations = is_end && slo_us &&
								       value > slo_us * US}),
		0);
}

static inline void rig_busy(struct rig *rig, uint32_t client)
{
	rig_does(rig, client, TIMESHARE_ACTIVITY_BUSY, 0);
}

static inline void rig_idle(struct rig *rig, uint32_t client)
{
	rig_does(rig, client, TIMESHARE_ACTIVITY_IDLE, 0);
}

/* A burst of ns, now. */
static inline void rig_burst(struct rig *rig, uint32_t client, uint64_t ns)
{
	rig_does(rig, client, TIMESHARE_ACTIVITY_BEGIN, 0);
	rig_in(rig, ns);
	rig_does(rig, client, TIMESHARE_ACTIVITY_END, ns);
}

static inline bool rig_is_held(const struct rig *rig, uint32_t client)
{
	return rig->at[client].until_ns > rig->now;
}

static inline uint64_t rig_slice(const struct rig *rig, uint32_t client)
{
	return rig->at[client].last.slice_us;
}

/* Its next hundred bursts will hold others, or will not. */
static inline void rig_arm(struct rig *rig, uint32_t client, enum timeshare_arm_kind kind)
{
	for (int i = 0; i < TIMESHARE_WARNINGS_; i++) {
		rig->clients[client].arms[i].n_bursts = 1025;
		rig->clients[client].arms[i].n_noted = ARM_FIRST_BURSTS;
		rig->clients[client].arms[i].best = kind;
	}
}

#endif
