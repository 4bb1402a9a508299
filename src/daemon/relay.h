/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_RELAY_H
#define NVS_DAEMON_RELAY_H

/*
 * Carries news between the core's two state machines: sched tells which clients run, timeshare
 * tells how long each client has used the GPU.
 *
 * Neither machine is called in the middle of the other's step. The consequences of a step queue
 * up here, in order. They are drained before the next step of a message, a deadline or a tool,
 * and by the loop after each callback. So the queue is empty when the loop polls.
 *
 * A step that is part of the drain may push further events, which the same drain takes.
 *
 * The queue is bounded. Between two drains there is one step, and one step of sched concerns its
 * client and SCHED_ACTIONS_MAX others at most, each twice. A use adds one step more.
 *
 * Threading: none.
 */

#include "core/sched.h"

#include <stdbool.h>
#include <stdint.h>

#define RELAY_MAX 512

enum relay_kind {
	RELAY_STOP, /* to timeshare: if the client does not run any more */
	RELAY_RUN,  /* to timeshare: whether the client runs */
	RELAY_USED, /* to sched: gpu_ns more of the GPU's time */
};

struct relay_event {
	enum relay_kind kind;
	uint32_t client; /* slot */
	uint64_t gpu_ns;
};

/* Zeroed: empty. */
struct relay {
	bool is_draining;
	uint32_t first;
	uint32_t n;
	struct relay_event at[RELAY_MAX]; /* a ring */
};

struct server;

void relay_push(struct relay *relay, enum relay_kind kind, uint32_t client, uint64_t gpu_ns);

/*
 * The actions of a step that client caused: who makes room is gone before those who were let in
 * share it.
 */
void relay_push_actions(struct relay *relay, uint32_t client, const struct sched_actions *actions);

/* Steps the machines until nothing is left. Inside a drain nothing happens. */
void relay_drain(struct server *server);

#endif
