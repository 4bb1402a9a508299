/* SPDX-License-Identifier: Apache-2.0 */

#include "hook/pager/pager_plan.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_BYTES (32ull << 20) /* these take next to no time */
#define FIRST_MAX   4u

/* As it was while the lock was held: others change it, and an order has to stay the same. */
struct pick {
	struct pager_chunk *chunk;
	CUdeviceptr addr;
	bool is_free; /* nothing to copy: never used, or its host copy still holds */
};

static int plan_compare(const void *a, const void *b)
{
	const struct pick *x = a, *y = b;

	if (x->chunk->size != y->chunk->size)
		return x->chunk->size < y->chunk->size ? 1 : -1;
	if (x->is_free != y->is_free)
		return x->is_free ? -1 : 1;
	return x->addr < y->addr ? -1 : x->addr > y->addr;
}

/* Lock held. */
static size_t plan_pick_all(const struct pager_plan *plan, enum pager_state state,
			    struct pick *picks)
{
	size_t n = 0;

	for (size_t i = 0; i < plan->n_ranges; i++) {
		struct pager_range *range = plan->ranges[i];

		for (size_t j = 0; j < range->n_chunks; j++) {
			struct pager_chunk *chunk = &range->chunks[j];

			if (chunk->state != state || chunk->is_pinned)
				continue;
			picks[n++] = (struct pick){.chunk = chunk,
						   .addr = chunk->addr,
						   .is_free = pager_copy_is_fresh(chunk) ||
							      chunk->is_blank};
		}
	}
	return n;
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
	struct pick *picks;
	size_t n = 0;

	*plan = (struct pager_plan){0};
	if (!pager_ranges(dev, &plan->ranges, &plan->n_ranges))
		return false;
	for (size_t i = 0; i < plan->n_ranges; i++)
		n += plan->ranges[i]->n_chunks;
	plan->chunks = malloc((n + 1) * sizeof(plan->chunks[0]));
	picks = malloc((n + 1) * sizeof(picks[0]));
	if (!plan->chunks || !picks) {
		free(picks);
		pager_plan_deinit(plan);
		return false;
	}
	hook_lock(&pager.lock);
	plan->n_chunks = plan_pick_all(plan, state, picks);
	hook_unlock(&pager.lock);
	qsort(picks, plan->n_chunks, sizeof(picks[0]), plan_compare);
	for (size_t i = 0; i < plan->n_chunks; i++)
		plan->chunks[i] = picks[i].chunk;
	free(picks);
	return true;
}

/*
 * The incoming client starts with large chunks, too. If the first chunk that goes leaves a little
 * too little room for one of them, it waits for the second, and so on to the last. So a few of the
 * smallest go first.
 */
static void plan_begin_small(struct pager_plan *plan)
{
	struct pager_chunk *first[FIRST_MAX] = {NULL};
	uint64_t bytes = 0;
	size_t n = 0, rest;

	while (n < FIRST_MAX && n + 1 < plan->n_chunks) {
		struct pager_chunk *chunk = plan->chunks[plan->n_chunks - 1 - n];

		bytes += chunk->size;
		if (chunk->size == plan->chunks[0]->size || bytes > FIRST_BYTES)
			break;
		first[n++] = chunk;
	}
	rest = plan->n_chunks - n;
	memmove(plan->chunks + n, plan->chunks, rest * sizeof(plan->chunks[0]));
	memcpy(plan->chunks, first, n * sizeof(first[0]));
}

void pager_plan_cut(struct pager_plan *plan, uint64_t bytes)
{
	size_t n = 0;

	for (size_t i = 0; i < plan->n_chunks && bytes; i++) {
		size_t last = i;

		if (plan->chunks[i]->size > bytes) {
			while (last + 1 < plan->n_chunks && plan->chunks[last + 1]->size >= bytes)
				last++;
			while (last > i && plan->chunks[last - 1]->size == plan->chunks[last]->size)
				last--; /* of equals, one that needs no copy, if there is one */
			plan->chunks[n++] = plan->chunks[last];
			break;
		}
		plan->chunks[n++] = plan->chunks[i];
		bytes -= plan->chunks[i]->size;
	}
	plan->n_chunks = n;
	if (n)
		plan_begin_small(plan);
}

bool pager_claim(struct pager_chunk *chunk, enum pager_state state)
{
	bool is_claimed;

	hook_lock(&pager.lock);
	is_claimed = chunk->state == state && !chunk->n_holds && !chunk->is_pinned;
	if (is_claimed)
		chunk->state = PAGER_BUSY;
	hook_unlock(&pager.lock);
	return is_claimed;
}
