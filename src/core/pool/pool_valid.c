/* SPDX-License-Identifier: Apache-2.0 */

/* Every invariant. The simulation, the fuzzer and the tests check them after each step. */

#include "core/pool/pool.h"

#include <assert.h>

static void pool_slab_assert_valid(const struct pool *pool, uint32_t at, uint32_t counts[])
{
	const struct pool_slab *slab = &pool->slabs[at];
	bool is_kept = slab->state == POOL_SLAB_READY || slab->state == POOL_SLAB_LENT;

	assert(slab->state <= POOL_SLAB_LEAVING);
	assert(at < pool->slabs_used || slab->state == POOL_SLAB_FREE);
	assert(is_kept == (pool->ids[at] != 0));
	counts[slab->state]++;
	if (slab->state == POOL_SLAB_READY)
		assert(slab->domain != POOL_NONE && slab->borrower == POOL_NONE);
	if (slab->state == POOL_SLAB_LENT) {
		const struct pool_borrower *b = &pool->borrowers[slab->borrower];

		assert(slab->borrower < POOL_BORROWERS_MAX && b->state != POOL_BORROWER_FREE);
		assert(slab->domain == POOL_NONE || slab->domain == b->domain);
	}
}

/* No two slabs have one id. Slow, so only as many as tests use are compared. */
static void pool_ids_assert_valid(const struct pool *pool)
{
	uint32_t n = pool->slabs_used < 256 ? pool->slabs_used : 256;

	for (uint32_t i = 0; i < n; i++) {
		for (uint32_t k = 0; k < i; k++)
			assert(!pool->ids[i] || pool->ids[i] != pool->ids[k]);
	}
}

static uint32_t pool_lent_to(const struct pool *pool, uint32_t borrower)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < pool->slabs_used; i++)
		n += pool->slabs[i].state == POOL_SLAB_LENT && pool->slabs[i].borrower == borrower;
	return n;
}

static void pool_borrower_assert_valid(const struct pool *pool, uint32_t at)
{
	const struct pool_borrower *b = &pool->borrowers[at];

	assert(b->state <= POOL_BORROWER_CUT);
	assert(b->n_unused <= b->n_lent);
	if (b->state != POOL_BORROWER_ACTIVE)
		assert(!b->n_promised && !b->n_lacked && !b->n_unused && !b->n_asked);
	assert(b->n_lent == (b->state == POOL_BORROWER_FREE ? 0 : pool_lent_to(pool, at)));
}

void pool_assert_valid(const struct pool *pool)
{
	uint32_t counts[POOL_SLAB_LEAVING + 1] = {0};
	uint32_t n_promised = 0, n_lacked = 0, n_borrowers = 0;

	for (uint32_t i = 0; i < POOL_SLABS_MAX; i++)
		pool_slab_assert_valid(pool, i, counts);
	pool_ids_assert_valid(pool);
	for (uint32_t i = 0; i < POOL_BORROWERS_MAX; i++) {
		const struct pool_borrower *b = &pool->borrowers[i];

		pool_borrower_assert_valid(pool, i);
		n_promised += b->n_promised;
		n_lacked += b->n_lacked;
		n_borrowers += b->state != POOL_BORROWER_FREE;
	}
	assert(counts[POOL_SLAB_READY] == pool->n_ready);
	assert(counts[POOL_SLAB_LENT] == pool->n_lent);
	assert(counts[POOL_SLAB_LEAVING] == pool->n_leaving);
	assert(n_promised == pool->n_promised && n_lacked == pool->n_lacked);
	assert(n_borrowers == pool->n_borrowers);
	assert(pool_total(pool) <= pool->n_slabs_max);
}
