/* SPDX-License-Identifier: Apache-2.0 */
#include "rig.h"

#include <string.h>

static void rig_collect(struct rig *rig, const struct sched_actions *actions)
{
	for (uint32_t i = 0; i < actions->n; i++) {
		assert_true(rig->n < RIG_ACTIONS);
		rig->did[rig->n++] = actions->at[i];
	}
}

int rig_step(struct rig *rig, struct sched_event event)
{
	struct sched_actions actions;
	int r;

	event.now_ns = rig->now;
	r = sched_step(&rig->sched, &event, &actions);
	sched_assert_valid(&rig->sched);
	if (r)
		assert_int_equal(actions.n, 0);
	rig_collect(rig, &actions);
	for (uint32_t i = 0; i < actions.n; i++) {
		if (actions.at[i].type == SCHED_ACTION_BEAT && actions.at[i].client != rig->mute)
			(void)rig_step(rig, (struct sched_event){.type = SCHED_EVENT_ALIVE,
								 .client = actions.at[i].client});
	}
	return r;
}

void rig_at(struct rig *rig, uint64_t time)
{
	assert_true(time >= rig->now);
	while (sched_deadline(&rig->sched) <= time) {
		if (rig->now < sched_deadline(&rig->sched))
			rig->now = sched_deadline(&rig->sched);
		assert_int_equal(rig_step(rig, (struct sched_event){.type = SCHED_EVENT_TIME}), 0);
	}
	rig->now = time;
}

void rig_gpu(struct rig *rig, uint64_t gib, uint64_t external_gib)
{
	assert_int_equal(rig_step(rig, (struct sched_event){.type = SCHED_EVENT_GPU,
							    .bytes = gib * GIB,
							    .external = external_gib * GIB}),
			 0);
}

int rig_config(struct rig *rig)
{
	return rig_step(rig,
			(struct sched_event){.type = SCHED_EVENT_CONFIG, .config = &rig->config});
}

void rig_turns(struct rig *rig, uint64_t seconds)
{
	rig->config.switch_min_ns = seconds * S;
	assert_int_equal(rig_config(rig), 0);
}

void rig_init(struct rig *rig)
{
	memset(rig, 0, sizeof(*rig));
	rig->mute = SCHED_NONE;
	sched_config_default(&rig->config);
	rig->config.reserve_percent = 0;
	sched_init(&rig->sched, rig->clients, RIG_CLIENTS, &rig->config);
	rig_gpu(rig, 100, 0);
}

void rig_clear(struct rig *rig)
{
	rig->n = 0;
}

const struct sched_action *rig_did(const struct rig *rig, uint32_t client,
				   enum sched_action_type type)
{
	for (uint32_t i = rig->n; i > 0; i--) {
		if (rig->did[i - 1].client == client && rig->did[i - 1].type == type)
			return &rig->did[i - 1];
	}
	return NULL;
}

bool rig_reported(const struct rig *rig, uint32_t client, enum sched_report report)
{
	for (uint32_t i = 0; i < rig->n; i++) {
		if (rig->did[i].type == SCHED_ACTION_REPORT && rig->did[i].client == client &&
		    rig->did[i].report == report)
			return true;
	}
	return false;
}

struct sched_memory rig_mem(uint64_t resident, uint64_t swapped, uint64_t pinned)
{
	return (struct sched_memory){
		.resident = resident * GIB, .swapped = swapped * GIB, .pinned = pinned * GIB};
}

struct sched_memory rig_want(struct sched_memory memory, uint64_t wanted, uint64_t wanted_pinned)
{
	memory.wanted = wanted * GIB;
	memory.wanted_pinned = wanted_pinned * GIB;
	return memory;
}

void rig_join(struct rig *rig, uint32_t client)
{
	assert_int_equal(
		rig_step(rig, (struct sched_event){.type = SCHED_EVENT_JOIN, .client = client}), 0);
}

void rig_join_as(struct rig *rig, uint32_t client, enum sched_priority priority, uint32_t weight,
		 uint64_t slo_ns)
{
	assert_int_equal(rig_step(rig, (struct sched_event){.type = SCHED_EVENT_JOIN,
							    .client = client,
							    .claim = {priority, weight, slo_ns}}),
			 0);
}

void rig_request(struct rig *rig, uint32_t client, struct sched_memory memory)
{
	assert_int_equal(rig_step(rig, (struct sched_event){.type = SCHED_EVENT_REQUEST,
							    .client = client,
							    .memory = memory}),
			 0);
}

void rig_start(struct rig *rig, uint32_t client, uint64_t gib)
{
	rig_join(rig, client);
	rig_request(rig, client, rig_want(rig_mem(0, 0, 0), gib, 0));
}

int rig_memory(struct rig *rig, uint32_t client, struct sched_memory memory)
{
	const struct sched_client *c = &rig->clients[client];

	return rig_step(rig, (struct sched_event){.type = SCHED_EVENT_MEMORY,
						  .client = client,
						  .epoch = c->epoch,
						  .budget = c->budget,
						  .memory = memory});
}

int rig_part(struct rig *rig, uint32_t client, struct sched_memory memory)
{
	return rig_step(rig, (struct sched_event){.type = SCHED_EVENT_RELEASED,
						  .client = client,
						  .epoch = rig->clients[client].epoch,
						  .budget = memory.resident + memory.pinned,
						  .memory = memory,
						  .outcome = 7,
						  .is_part = true,
						  .wants = true});
}

void rig_run(struct rig *rig, uint32_t client, uint64_t gib)
{
	rig_start(rig, client, gib);
	assert_non_null(rig_did(rig, client, SCHED_ACTION_GRANT));
	assert_int_equal(rig_memory(rig, client, rig_mem(gib, 0, 0)), 0);
}

int rig_release(struct rig *rig, uint32_t client, struct sched_memory memory, bool wants)
{
	const struct sched_client *c = &rig->clients[client];

	return rig_step(
		rig, (struct sched_event){.type = SCHED_EVENT_RELEASED,
					  .client = client,
					  .grant = c->state == SCHED_CLIENT_STOPPING ||
								   c->state == SCHED_CLIENT_RUNNING
							   ? c->grant
							   : 0,
					  .epoch = c->epoch,
					  .budget = memory.resident + memory.pinned,
					  .memory = memory,
					  .wants = wants});
}

int rig_fail_as(struct rig *rig, uint32_t client, uint32_t outcome, bool is_short)
{
	const struct sched_client *c = &rig->clients[client];

	return rig_step(
		rig, (struct sched_event){.type = SCHED_EVENT_RELEASED,
					  .client = client,
					  .grant = c->state == SCHED_CLIENT_STOPPING ? c->grant : 0,
					  .epoch = c->epoch,
					  .budget = c->budget,
					  .memory = c->memory,
					  .outcome = outcome,
					  .is_short = is_short,
					  .wants = true});
}

int rig_fail(struct rig *rig, uint32_t client, uint32_t outcome)
{
	return rig_fail_as(rig, client, outcome, false);
}

void rig_leave(struct rig *rig, uint32_t client)
{
	assert_int_equal(
		rig_step(rig, (struct sched_event){.type = SCHED_EVENT_LEAVE, .client = client}),
		0);
}

struct sched_client_status rig_status(const struct rig *rig, uint32_t client)
{
	struct sched_client_status status;

	sched_client_status(&rig->sched, client, rig->now, &status);
	return status;
}

enum sched_client_state rig_state(const struct rig *rig, uint32_t client)
{
	return rig_status(rig, client).state;
}

enum sched_wait rig_why(const struct rig *rig, uint32_t client)
{
	return rig_status(rig, client).why;
}
