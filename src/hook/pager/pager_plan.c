/* SPDX-License-Identifier: Apache-2.0 */

#include "hook/pager/pager_plan.h"

#include <stdlib.h>

static int larger_first(const void *a, const void *b)
{
	const struct pager_chunk *x = *(struct pager_chunk *const *)a;
	const struct pager_chunk *y = *(struct pager_chunk *const *)b;

	if (x->size != y->size)
		return x->size < y->size ? 1 : -1;
	return x->addr < y->addr ? -1 : x->addr > y->addr;
}

void pager_plan_deinit(struct pager_plan *plan)
{
	for (size_t i = 0; i < plan->n_ranges; i++)
		pager_range_unref(plan->ranges[i]);
	free(plan->ranges);
	free(plan->chunks);
}

bool pager_plan_init(struct pager_plan *plan, CUdevice dev, enum pager_state state)
{
	size_t n = 0;

	*plan = (struct pager_plan){0};
	if (!pager_ranges(dev, &plan->ranges, &plan->n_ranges))
		return false;
	for (size_t i = 0; i < plan->n_ranges; i++)
		n += plan->ranges[i]->n_chunks;
	plan->chunks = malloc((n + 1) * sizeof(plan->chunks[0]));
	if (!plan->chunks) {
		pager_plan_deinit(plan);
		return false;
	}
	pthread_mutex_lock(&pager.lock);
	for (size_t i = 0; i < plan->n_ranges; i++) {
		struct pager_range *range = plan->ranges[i];

		for (size_t j = 0; j < range->n_chunks; j++) {
			if (range->chunks[j].state == state && !range->chunks[j].is_pinned)
				plan->chunks[plan->n_chunks++] = &range->chunks[j];
		}
	}
	pthread_mutex_unlock(&pager.lock);
	qsort(plan->chunks, plan->n_chunks, sizeof(plan->chunks[0]), larger_first);
	return true;
}

void pager_plan_cut(struct pager_plan *plan, uint64_t bytes)
{
	size_t n = 0;

	for (size_t i = 0; i < plan->n_chunks && bytes; i++) {
		size_t last = i;

		if (plan->chunks[i]->size > bytes) {
			while (last + 1 < plan->n_chunks && plan->chunks[last + 1]->size >= bytes)
				last++;
			plan->chunks[n++] = plan->chunks[last];
			break;
		}
		plan->chunks[n++] = plan->chunks[i];
		bytes -= plan->chunks[i]->size;
	}
	plan->n_chunks = n;
}

bool pager_claim(struct pager_chunk *chunk, enum pager_state state)
{
	bool is_claimed;

	pthread_mutex_lock(&pager.lock);
	is_claimed = chunk->state == state && !chunk->n_holds && !chunk->is_pinned;
	if (is_claimed)
		chunk->state = PAGER_BUSY;
	pthread_mutex_unlock(&pager.lock);
	return is_claimed;
}
