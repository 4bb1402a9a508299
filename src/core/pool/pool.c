/* SPDX-License-Identifier: Apache-2.0 */
#include "core/pool/pool.h"

#include <assert.h>
#include <stddef.h>

#define ASKED_AT_ONCE 16

static uint32_t pool_min(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

static struct pool_borrower *pool_borrower(struct pool *pool, uint32_t borrower)
{
	assert(borrower < POOL_BORROWERS_MAX &&
	       pool->borrowers[borrower].state != POOL_BORROWER_FREE);
	return &pool->borrowers[borrower];
}

/* ---- slabs change their state ---------------------------------------------- */

static uint32_t pool_find(const struct pool *pool, uint64_t id)
{
	for (uint32_t i = 0; i < pool->slabs_used; i++) {
		if (pool->ids[i] == id)
			return i;
	}
	return POOL_NONE;
}

/* The slab has left the state that it was in. */
static void pool_leave(struct pool *pool, uint32_t slab)
{
	pool->slabs[slab].state = POOL_SLAB_LEAVING;
	pool->slabs[slab].borrower = POOL_NONE;
	pool->ids[slab] = 0;
	pool->n_leaving++;
}

static void pool_drop_ready(struct pool *pool, uint32_t slab)
{
	pool->n_ready--;
	pool_leave(pool, slab);
}

static void pool_lend(struct pool *pool, uint32_t borrower, uint32_t slab)
{
	pool->slabs[slab].state = POOL_SLAB_LENT;
	pool->slabs[slab].borrower = borrower;
	pool->borrowers[borrower].n_lent++;
	pool->n_lent++;
}

/* is_bad: it is not kept. */
static void pool_take_back(struct pool *pool, uint32_t slab, bool is_bad)
{
	struct pool_borrower *from = &pool->borrowers[pool->slabs[slab].borrower];

	from->n_lent--;
	from->n_unused = pool_min(from->n_unused, from->n_lent);
	pool->n_lent--;
	if (is_bad || pool->slabs[slab].domain == POOL_NONE) {
		pool_leave(pool, slab);
		return;
	}
	pool->slabs[slab].state = POOL_SLAB_READY;
	pool->slabs[slab].borrower = POOL_NONE;
	pool->n_ready++;
}

/* ---- who is asked ----------------------------------------------------------- */

static void pool_set_lacked(struct pool *pool, struct pool_borrower *b, uint32_t n)
{
	pool->n_lacked += n - b->n_lacked;
	b->n_lacked = n;
}

/* The one with the most that is unused, of those that are not asked yet and lack nothing. */
static struct pool_borrower *pool_next_giver(struct pool *pool)
{
	struct pool_borrower *most = NULL;

	for (uint32_t i = 0; i < POOL_BORROWERS_MAX; i++) {
		struct pool_borrower *b = &pool->borrowers[i];

		if (b->state == POOL_BORROWER_ACTIVE && !b->n_asked && !b->n_lacked &&
		    b->n_unused && (!most || b->n_unused > most->n_unused))
			most = b;
	}
	return most;
}

/* Few are asked at a time, so that a lack costs little to spread. true: somebody is asked. */
static bool pool_spread(struct pool *pool)
{
	uint32_t n = pool->n_lacked;

	for (uint32_t i = 0; i < POOL_BORROWERS_MAX; i++)
		pool->borrowers[i].n_asked = 0;
	for (uint32_t i = 0; i < ASKED_AT_ONCE && n; i++) {
		struct pool_borrower *b = pool_next_giver(pool);

		if (!b)
			break;
		b->n_asked = pool_min(n, b->n_unused);
		n -= b->n_asked;
	}
	return n < pool->n_lacked;
}

uint32_t pool_ask(struct pool *pool, uint32_t *ret_n)
{
	/* Mostly nobody lacks anything, and nobody was asked. */
	if (pool->is_stale && (pool->n_lacked || pool->is_asked)) {
		bool was_asked = pool->is_asked;

		pool->is_asked = pool_spread(pool);
		pool->is_asking = was_asked || pool->is_asked;
	}
	pool->is_stale = false;
	for (uint32_t i = 0; pool->is_asking && i < POOL_BORROWERS_MAX; i++) {
		struct pool_borrower *b = &pool->borrowers[i];

		if (b->state == POOL_BORROWER_ACTIVE && b->n_asked != b->n_told) {
			*ret_n = b->n_told = b->n_asked;
			return i;
		}
	}
	pool->is_asking = false;
	return POOL_NONE;
}

/* ---- borrowers ---------------------------------------------------------------- */

void pool_init(struct pool *pool, uint32_t n_slabs_max, uint32_t n_borrowers_max)
{
	assert(n_slabs_max <= POOL_SLABS_MAX && n_borrowers_max <= POOL_BORROWERS_MAX);
	pool->n_slabs_max = n_slabs_max;
	pool->n_borrowers_max = n_borrowers_max;
}

/* A user may take another one as long as it has fewer than are free. */
static bool pool_has_place(const struct pool *pool, uint32_t user, bool is_trusted)
{
	uint32_t n_free = pool->n_borrowers_max - pool->n_borrowers, n = 0;

	for (uint32_t i = 0; i < POOL_BORROWERS_MAX; i++)
		n += pool->borrowers[i].state != POOL_BORROWER_FREE &&
		     pool->borrowers[i].user == user;
	return n_free > 0 && (is_trusted || n < n_free);
}

int pool_join(struct pool *pool, uint64_t process, uint32_t user, bool is_trusted,
	      uint32_t *ret_borrower)
{
	uint32_t at = 0;

	if (!pool_has_place(pool, user, is_trusted))
		return POOL_E_FULL;
	while (pool->borrowers[at].state != POOL_BORROWER_FREE)
		at++;
	pool->borrowers[at] = (struct pool_borrower){
		.process = process,
		.user = user,
		.is_trusted = is_trusted,
		.domain = POOL_NONE,
		.state = POOL_BORROWER_ACTIVE,
	};
	pool->n_borrowers++;
	*ret_borrower = at;
	return 0;
}

void pool_domain(struct pool *pool, uint32_t borrower, uint32_t domain)
{
	struct pool_borrower *b = pool_borrower(pool, borrower);

	if (b->domain == domain)
		return;
	b->domain = domain;
	for (uint32_t i = 0; i < pool->slabs_used; i++) {
		struct pool_slab *slab = &pool->slabs[i];

		if (slab->state == POOL_SLAB_LENT && slab->borrower == borrower &&
		    slab->domain != domain)
			slab->domain = POOL_NONE;
	}
}

void pool_cut(struct pool *pool, uint32_t borrower)
{
	struct pool_borrower *b = pool_borrower(pool, borrower);

	pool_set_lacked(pool, b, 0);
	pool->n_promised -= b->n_promised;
	b->n_promised = 0;
	b->n_unused = b->n_asked = b->n_told = 0;
	b->state = POOL_BORROWER_CUT;
	pool->is_stale = true;
}

void pool_gone(struct pool *pool, uint32_t borrower)
{
	pool_cut(pool, borrower);
	for (uint32_t i = 0; i < pool->slabs_used; i++) {
		if (pool->slabs[i].state == POOL_SLAB_LENT && pool->slabs[i].borrower == borrower)
			pool_take_back(pool, i, false);
	}
	pool->borrowers[borrower].state = POOL_BORROWER_FREE;
	pool->n_borrowers--;
}

/* ---- what they say ------------------------------------------------------------ */

/* Slabs that user may still have in the table, where others leave it some. */
static uint32_t pool_user_room(const struct pool *pool, uint32_t user, bool is_trusted)
{
	uint32_t total = pool_total(pool), n = 0;
	uint32_t n_free = pool->n_slabs_max - pool_min(total, pool->n_slabs_max);

	if (is_trusted)
		return n_free;
	for (uint32_t i = 0; i < pool->slabs_used; i++)
		n += (pool->slabs[i].state == POOL_SLAB_READY ||
		      pool->slabs[i].state == POOL_SLAB_LENT) &&
		     pool->slabs[i].user == user;
	for (uint32_t i = 0; i < POOL_BORROWERS_MAX; i++)
		n += pool->borrowers[i].user == user ? pool->borrowers[i].n_promised : 0;
	return n_free > n ? (n_free - n + 1) / 2 : 0;
}

/* Lends ready slabs of its domain and NUMA node. */
static void pool_lend_ready(struct pool *pool, uint32_t borrower, uint32_t n, uint32_t node,
			    struct pool_answer *ret)
{
	const struct pool_borrower *b = &pool->borrowers[borrower];

	for (uint32_t i = 0; i < pool->slabs_used && ret->n_lent < n && pool->n_ready; i++) {
		struct pool_slab *slab = &pool->slabs[i];

		if (slab->state != POOL_SLAB_READY || slab->domain != b->domain ||
		    slab->node != node)
			continue;
		pool->n_ready--;
		slab->user = b->user;
		pool_lend(pool, borrower, i);
		ret->slabs[ret->n_lent++] = i;
	}
}

/* Drops up to n ready slabs. Returns how many. */
static uint32_t pool_drop(struct pool *pool, uint32_t n)
{
	uint32_t n_dropped = 0;

	for (uint32_t i = 0; i < pool->slabs_used && n_dropped < n && pool->n_ready; i++) {
		if (pool->slabs[i].state == POOL_SLAB_READY) {
			pool_drop_ready(pool, i);
			n_dropped++;
		}
	}
	return n_dropped;
}

/*
 * How many of n a borrower may make. Ready slabs are dropped for them where there is no room: those
 * are of other domains or NUMA nodes, as it would have got its own.
 */
static uint32_t pool_may_make(struct pool *pool, const struct pool_borrower *b, uint32_t n,
			      uint32_t n_more)
{
	uint32_t n_room;

	if (n > n_more)
		n_more += pool_drop(pool, n - n_more);
	n = pool_min(n, n_more);
	n_room = pool_user_room(pool, b->user, b->is_trusted);
	if (n > n_room && pool_drop(pool, n - n_room))
		n_room = pool_user_room(pool, b->user, b->is_trusted);
	return pool_min(n, n_room);
}

void pool_want(struct pool *pool, uint32_t borrower, uint32_t n, uint32_t node,
	       const struct pool_room *room, struct pool_answer *ret)
{
	struct pool_borrower *b = pool_borrower(pool, borrower);
	uint32_t n_own = pool_min(n, room->n_own);

	assert(b->state == POOL_BORROWER_ACTIVE && n > 0 && n <= POOL_WANT_MAX);
	ret->n_lent = 0;
	if (b->domain != POOL_NONE)
		pool_lend_ready(pool, borrower, n_own, node, ret);
	ret->n_make = pool_may_make(pool, b, n_own - ret->n_lent, room->n_more);
	b->n_promised += ret->n_make;
	pool->n_promised += ret->n_make;
	ret->n_none = n - ret->n_lent - ret->n_make;
	/* Others cannot help a borrower whose own control group is full. */
	pool_set_lacked(pool, b, n_own - ret->n_lent - ret->n_make);
	pool->is_stale = true;
}

/*
 * The connection of a process may end and come back while its slabs are out. They go to the new
 * borrower: nothing has changed for the process.
 */
static void pool_adopt(struct pool *pool, uint32_t borrower, uint32_t slab)
{
	struct pool_borrower *b = &pool->borrowers[borrower];
	struct pool_borrower *before;

	if (pool->slabs[slab].state != POOL_SLAB_LENT)
		return;
	before = &pool->borrowers[pool->slabs[slab].borrower];
	if (before->state != POOL_BORROWER_CUT || before->process != b->process)
		return;
	before->n_lent--;
	pool->n_lent--;
	if (pool->slabs[slab].domain != b->domain)
		pool->slabs[slab].domain = POOL_NONE;
	pool_lend(pool, borrower, slab);
}

static uint32_t pool_free_slab(struct pool *pool)
{
	for (uint32_t i = 0; i < pool->slabs_used; i++) {
		if (pool->slabs[i].state == POOL_SLAB_FREE)
			return i;
	}
	return pool->slabs_used < POOL_SLABS_MAX ? pool->slabs_used++ : POOL_NONE;
}

uint32_t pool_offer(struct pool *pool, uint32_t borrower, uint64_t id, uint32_t node)
{
	struct pool_borrower *b = pool_borrower(pool, borrower);
	uint32_t slab = pool_find(pool, id);

	assert(b->state == POOL_BORROWER_ACTIVE && id != 0);
	if (slab != POOL_NONE) {
		pool_adopt(pool, borrower, slab);
		return POOL_NONE;
	}
	if (b->n_promised) {
		b->n_promised--;
		pool->n_promised--;
	} else if (!pool_user_room(pool, b->user, b->is_trusted)) {
		return POOL_NONE;
	}
	slab = pool_free_slab(pool);
	if (slab == POOL_NONE)
		return POOL_NONE;
	pool->ids[slab] = id;
	pool->slabs[slab] = (struct pool_slab){.node = node, .domain = b->domain, .user = b->user};
	pool_lend(pool, borrower, slab);
	return slab;
}

void pool_return(struct pool *pool, uint32_t borrower, uint64_t id, bool is_bad)
{
	uint32_t slab = pool_find(pool, id);

	if (slab == POOL_NONE || pool->slabs[slab].state != POOL_SLAB_LENT ||
	    pool->slabs[slab].borrower != borrower)
		return;
	pool_take_back(pool, slab, is_bad);
	pool->is_stale = true;
}

void pool_unmade(struct pool *pool, uint32_t borrower, uint32_t n)
{
	struct pool_borrower *b = pool_borrower(pool, borrower);

	n = pool_min(n, b->n_promised);
	b->n_promised -= n;
	pool->n_promised -= n;
}

void pool_unused(struct pool *pool, uint32_t borrower, uint32_t n_slabs)
{
	struct pool_borrower *b = pool_borrower(pool, borrower);

	b->n_unused = pool_min(n_slabs, b->n_lent);
	pool->is_stale = true;
}

/* ---- the node ------------------------------------------------------------------ */

void pool_shrink(struct pool *pool, uint32_t n)
{
	if (pool_total(pool) > n)
		(void)pool_drop(pool, pool_total(pool) - n);
}

void pool_forget_lacks(struct pool *pool)
{
	for (uint32_t i = 0; i < POOL_BORROWERS_MAX; i++)
		pool_set_lacked(pool, &pool->borrowers[i], 0);
	pool->is_stale = true;
}

uint32_t pool_leaving(struct pool *pool)
{
	for (uint32_t i = 0; pool->n_leaving && i < pool->slabs_used; i++) {
		if (pool->slabs[i].state == POOL_SLAB_LEAVING) {
			pool->slabs[i].state = POOL_SLAB_FREE;
			pool->n_leaving--;
			return i;
		}
	}
	return POOL_NONE;
}

bool pool_has_domain(const struct pool *pool, uint32_t domain)
{
	for (uint32_t i = 0; i < pool->slabs_used; i++) {
		if ((pool->slabs[i].state == POOL_SLAB_READY ||
		     pool->slabs[i].state == POOL_SLAB_LENT) &&
		    pool->slabs[i].domain == domain)
			return true;
	}
	for (uint32_t i = 0; i < POOL_BORROWERS_MAX; i++) {
		if (pool->borrowers[i].state != POOL_BORROWER_FREE &&
		    pool->borrowers[i].domain == domain)
			return true;
	}
	return false;
}
