/* SPDX-License-Identifier: Apache-2.0 */
#include "time_rig.h"

#include <string.h>

#include "core/timeshare/preempt_choice.h"

static void time_rig_take(struct time_rig *rig, const struct timeshare_action *action)
{
	struct time_rig_client *c = &rig->at[action->client];

	if (action->seq < c->last.seq)
		return; /* another's answer has had it told more, which it has answered */
	c->last = *action;
	c->n_told++;
	rig->n_told++;
	c->until_ns = action->hold_us ? rig->now + action->hold_us * US : 0;
	if (c->is_mute)
		return;
	assert_int_equal(
		time_rig_step(
			rig, (struct timeshare_event){.type = TIMESHARE_EVENT_DONE,
						      .client = action->client,
						      .seq = action->seq,
						      .outcome = action->hold_us ? rig->outcome : 0,
						      .took_ns = rig->took_ns,
						      .is_held = action->hold_us > 0}),
		0);
}

int time_rig_step(struct time_rig *rig, struct timeshare_event event)
{
	struct timeshare_actions actions;
	int r;

	event.now_ns = rig->now;
	r = rig->step(&rig->share, &event, &actions);
	timeshare_assert_valid(&rig->share);
	assert_true(actions.n <= TIMESHARE_ACTIONS_MAX);
	if (r)
		assert_int_equal(actions.n, 0);
	for (uint32_t i = 0; i < actions.n; i++) {
		if (actions.at[i].type == TIMESHARE_ACTION_SET)
			time_rig_take(rig, &actions.at[i]);
		else
			rig->reports[actions.at[i].report]++;
	}
	return r;
}

void time_rig_at(struct time_rig *rig, uint64_t time)
{
	uint32_t n = 0;

	assert_true(time >= rig->now);
	while (timeshare_deadline(&rig->share) <= time) {
		n = timeshare_deadline(&rig->share) > rig->now ? 0 : n + 1;
		assert_true(n < 1000); /* it does not ask to be called again at once for ever */
		if (rig->now < timeshare_deadline(&rig->share))
			rig->now = timeshare_deadline(&rig->share);
		assert_int_equal(
			time_rig_step(rig, (struct timeshare_event){.type = TIMESHARE_EVENT_TIME}),
			0);
	}
	rig->now = time;
}

void time_rig_in(struct time_rig *rig, uint64_t ns)
{
	time_rig_at(rig, rig->now + ns);
}

int time_rig_config(struct time_rig *rig)
{
	return time_rig_step(rig, (struct timeshare_event){.type = TIMESHARE_EVENT_CONFIG,
							   .config = &rig->config});
}

void time_rig_init(struct time_rig *rig)
{
	memset(rig, 0, sizeof(*rig));
	rig->step = timeshare_step;
	timeshare_config_default(&rig->config);
	rig->now = 1000 * S;
	rig->took_ns = 600 * US;
	timeshare_init(&rig->share, rig->clients, TIME_RIG_CLIENTS, &rig->config);
}

void time_rig_run(struct time_rig *rig, uint32_t client, bool is_running)
{
	assert_int_equal(time_rig_step(rig, (struct timeshare_event){.type = TIMESHARE_EVENT_RUN,
								     .client = client,
								     .running = is_running}),
			 0);
}

void time_rig_join(struct time_rig *rig, uint32_t client, enum timeshare_class class,
		   uint32_t weight)
{
	assert_int_equal(
		time_rig_step(rig, (struct timeshare_event){.type = TIMESHARE_EVENT_JOIN,
							    .client = client,
							    .claim = {class, weight, 0, 0}}),
		0);
	time_rig_run(rig, client, true);
}

void time_rig_leave(struct time_rig *rig, uint32_t client)
{
	assert_int_equal(time_rig_step(rig, (struct timeshare_event){.type = TIMESHARE_EVENT_LEAVE,
								     .client = client}),
			 0);
	memset(&rig->at[client], 0, sizeof(rig->at[client]));
}

void time_rig_does(struct time_rig *rig, uint32_t client, enum timeshare_activity activity,
		   uint64_t value)
{
	const struct timeshare_usage *usage = &rig->clients[client].usage;
	uint32_t slo_us = rig->clients[client].claim.slo_us;
	bool is_end = activity == TIMESHARE_ACTIVITY_END;

	assert_int_equal(
		time_rig_step(rig, (struct timeshare_event){.type = TIMESHARE_EVENT_ACTIVITY,
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

void time_rig_busy(struct time_rig *rig, uint32_t client)
{
	time_rig_does(rig, client, TIMESHARE_ACTIVITY_BUSY, 0);
}

void time_rig_idle(struct time_rig *rig, uint32_t client)
{
	time_rig_does(rig, client, TIMESHARE_ACTIVITY_IDLE, 0);
}

void time_rig_burst(struct time_rig *rig, uint32_t client, uint64_t ns)
{
	time_rig_does(rig, client, TIMESHARE_ACTIVITY_BEGIN, 0);
	time_rig_in(rig, ns);
	time_rig_does(rig, client, TIMESHARE_ACTIVITY_END, ns);
}

bool time_rig_is_held(const struct time_rig *rig, uint32_t client)
{
	return rig->at[client].until_ns > rig->now;
}

uint64_t time_rig_slice(const struct time_rig *rig, uint32_t client)
{
	return rig->at[client].last.slice_us;
}

void time_rig_arm(struct time_rig *rig, uint32_t client, enum timeshare_arm_kind kind)
{
	for (int i = 0; i < TIMESHARE_WARNINGS_; i++) {
		rig->clients[client].arms[i].n_bursts = 1025;
		rig->clients[client].arms[i].n_noted = ARM_FIRST_BURSTS;
		rig->clients[client].arms[i].best = kind;
	}
}
