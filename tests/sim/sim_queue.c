/* SPDX-License-Identifier: Apache-2.0 */
#include "sim_queue.h"

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>

static bool sim_queue_before(const struct sim_event *a, const struct sim_event *b)
{
	return a->time != b->time ? a->time < b->time : a->seq < b->seq;
}

void sim_queue_push(struct sim_queue *queue, struct sim_event event)
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

struct sim_event sim_queue_pop(struct sim_queue *queue)
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
