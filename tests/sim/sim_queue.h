/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_TESTS_SIM_QUEUE_H
#define NVS_TESTS_SIM_QUEUE_H

/* What is to happen in a simulation, by time: a binary heap; equal times in order of entry. */

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

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

static inline bool sim_queue_before(const struct sim_event *a, const struct sim_event *b)
{
	return a->time != b->time ? a->time < b->time : a->seq < b->seq;
}

static inline void sim_queue_push(struct sim_queue *queue, struct sim_event event)
{
	uint32_t i;

	event.seq = ++queue->seq;
	if (queue->n == queue->size) {
		queue->size = queue->size ? queue->size * 2 : 1024;
		queue->at = realloc(queue->at, queue->size * sizeof(*queue->at));
		assert(queue->at);
	}
	for (i = queue->n++; i > 0 && sim_queue_before(&event, &queue->at[(i - 1) / 2]);
	     i = (i - 1) / 2)
		queue->at[i] = queue->at[(i - 1) / 2];
	queue->at[i] = event;
}

/* The queue is not empty. */
static inline struct sim_event sim_queue_pop(struct sim_queue *queue)
{
	struct sim_event first = queue->at[0], last = queue->at[--queue->n];
	uint32_t i = 0, child;

	while ((child = 2 * i + 1) < queue->n) {
		if (child + 1 < queue->n &&
		    sim_queue_before(&queue->at[child + 1], &queue->at[child]))
			child++;
		if (!sim_queue_before(&queue->at[child], &last))
			break;
		queue->at[i] = queue->at[child];
		i = child;
	}
	queue->at[i] = last;
	return first;
}

#endif
