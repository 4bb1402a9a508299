/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_TESTS_CORE_RIG_H
#define NVS_TESTS_CORE_RIG_H

/*
 * A scheduler with one card of 100 GiB, no reserve, and a few client slots. Time stands
 * still but for rig_at(). Every step is checked with sched_assert_valid(), and what it
 * asked for is collected until rig_clear(). Clients answer heartbeats, but for a mute one.
 */

#include "core/sched.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define RIG_CLIENTS 200
#define RIG_ACTIONS 2048
#define GIB         (1ull << 30)
#define MS          1000000ull
#define S           1000000000ull

struct rig {
	struct sched sched;
	struct sched_client clients[RIG_CLIENTS];
	struct sched_config config;
	uint64_t now;
	uint32_t mute; /* SCHED_NONE: nobody */
	uint32_t n;
	struct sched_action did[RIG_ACTIONS];
};

int rig_step(struct rig *rig, struct sched_event event);

/* Goes to time, with every SCHED_EVENT_TIME that is due on the way. */
void rig_at(struct rig *rig, uint64_t time);

void rig_gpu(struct rig *rig, uint64_t gib, uint64_t external_gib);
int rig_config(struct rig *rig);

/* No turn is shorter: nobody has measured the bus, which alone would make them longer. */
void rig_turns(struct rig *rig, uint64_t seconds);

void rig_init(struct rig *rig);
void rig_clear(struct rig *rig);

/* The last action of this type for client since rig_clear(); NULL: none. */
const struct sched_action *rig_did(const struct rig *rig, uint32_t client,
				   enum sched_action_type type);

bool rig_reported(const struct rig *rig, uint32_t client, enum sched_report report);
struct sched_memory rig_mem(uint64_t resident, uint64_t swapped, uint64_t pinned);
struct sched_memory rig_want(struct sched_memory memory, uint64_t wanted, uint64_t wanted_pinned);
void rig_join(struct rig *rig, uint32_t client);

/* The same, with a claim: SCHED_PRIORITY_x, weight, SLO. */
void rig_join_as(struct rig *rig, uint32_t client, enum sched_priority priority, uint32_t weight,
		 uint64_t slo_ns);

void rig_request(struct rig *rig, uint32_t client, struct sched_memory memory);

/* Joins, and asks for a first budget of gib. */
void rig_start(struct rig *rig, uint32_t client, uint64_t gib);

int rig_memory(struct rig *rig, uint32_t client, struct sched_memory memory);

/* A restore has used up its budget: this is on the card now. */
int rig_part(struct rig *rig, uint32_t client, struct sched_memory memory);

/* Joins, runs, and has gib on the card. */
void rig_run(struct rig *rig, uint32_t client, uint64_t gib);

/* Answers the DROP under way: keeps memory.resident + pinned. */
int rig_release(struct rig *rig, uint32_t client, struct sched_memory memory, bool wants);

int rig_fail_as(struct rig *rig, uint32_t client, uint32_t outcome, bool is_short);
int rig_fail(struct rig *rig, uint32_t client, uint32_t outcome);
void rig_leave(struct rig *rig, uint32_t client);
struct sched_client_status rig_status(const struct rig *rig, uint32_t client);
enum sched_client_state rig_state(const struct rig *rig, uint32_t client);
enum sched_wait rig_why(const struct rig *rig, uint32_t client);

#endif
