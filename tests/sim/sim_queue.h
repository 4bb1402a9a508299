/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_TESTS_SIM_QUEUE_H
#define NVS_TESTS_SIM_QUEUE_H

/* What is to happen in a simulation, by time: a binary heap; equal times in order of entry. */

#include <stdint.h>

enum sim_what {
	SIM_UP,
	SIM_DOWN,
	SIM_WORK,
	SIM_PROGRESS,
	SIM_OP,
	SIM_REPORT,
	SIM_IDLE,
	SIM_GONE,
	SIM_LOST,
	SIM_ORPHAN,
	SIM_REGISTER,
	SIM_LOOK,  /* the daemon looks whether the process is stopped */
	SIM_AWAKE, /* the process goes on, and answers */
	SIM_FAULT
};

struct sim_event {
	uint64_t time, seq;
	enum sim_what what;
	uint32_t p, life;
};

struct sim_queue {
	uint64_t seq;
	uint32_t n, size;
	struct sim_event *at; /* owned */
};

void sim_queue_push(struct sim_queue *queue, struct sim_event event);

/* The queue is not empty. */
struct sim_event sim_queue_pop(struct sim_queue *queue);

#endif
