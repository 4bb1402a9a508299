/* SPDX-License-Identifier: Apache-2.0 */

#include "core/share/weights.h"

void weights_add(struct share_weights *weights, uint32_t weight)
{
	if (weights->is_old)
		return;
	if (weights->n_min == 0 || weight < weights->min) {
		weights->min = weight;
		weights->n_min = 0;
	}
	if (weights->n_max == 0 || weight > weights->max) {
		weights->max = weight;
		weights->n_max = 0;
	}
	weights->n_min += weight == weights->min;
	weights->n_max += weight == weights->max;
}

void weights_remove(struct share_weights *weights, uint32_t weight)
{
	if (weights->is_old)
		return;
	weights->n_min -= weight == weights->min;
	weights->n_max -= weight == weights->max;
	/* Both are at 0 when nobody is left: where one extreme is the other, all have it. */
	weights->is_old = (weights->n_min == 0) != (weights->n_max == 0);
}

void weights_find(struct share *share, uint32_t gpu)
{
	struct share_gpu *g = &share->gpus[gpu];
	bool was_old[SHARE_CLASS_COUNT_], is_any_old = false;

	for (int i = 0; i < SHARE_CLASS_COUNT_; i++) {
		was_old[i] = g->weights[i].is_old;
		is_any_old = is_any_old || was_old[i];
		if (was_old[i])
			g->weights[i] = (struct share_weights){0};
	}
	if (!is_any_old)
		return;
	for (uint32_t at = g->running.first; at != SHARE_NONE;
	     at = share->clients[at].link[SHARE_LINK_RUNNING].next) {
		const struct share_part *part = &share->clients[at].part;

		if (part->is_active && was_old[part->class])
			weights_add(&g->weights[part->class], part->weight);
	}
}
