/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Any bytes to packets about slabs, and any sequence of what borrowers say and do to the pool:
 * its invariants hold after each, an answer adds up, and when all are gone nothing is lent.
 */

#include "core/pool/pool.h"
#include "ipc/slab_packet.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int fuzz_left_out(void);

#define BORROWERS 4u
#define IDS       16u

enum step {
	JOIN,
	DOMAIN,
	WANT,
	OFFER,
	RETURN,
	BAD,
	UNMADE,
	UNUSED,
	CUT,
	GONE,
	SHRINK,
	FORGET,
	STEPS
};

static struct pool pool;
static bool was_done[STEPS];
static uint32_t lent_domain[POOL_SLABS_MAX];

static void check_packet(const uint8_t *data, size_t size)
{
	struct slab_packet packet;

	memset(&packet, 0, sizeof(packet));
	memcpy(&packet, data, size < sizeof(packet) ? size : sizeof(packet));
	for (size_t n = 0; n <= SLAB_IDS_MAX; n++) {
		if (slab_packet_check(&packet, size, n, SLAB_FROM_CLIENT) &&
		    (packet.type >= SLAB_LENT || packet.n > SLAB_WANT_MAX))
			abort();
	}
}

static void want(uint32_t borrower, uint8_t a, uint8_t b)
{
	const struct pool_room room = {b, a < 128 ? 4000 : a - 128};
	static struct pool_answer answer;
	uint32_t n = 1 + a % 64;

	pool_want(&pool, borrower, n, a % 2, &room, &answer);
	if (answer.n_lent + answer.n_make + answer.n_none != n)
		abort();
	for (uint32_t i = 0; i < answer.n_lent; i++) {
		if (pool.slabs[answer.slabs[i]].domain != lent_domain[answer.slabs[i]] ||
		    pool.borrowers[borrower].domain != lent_domain[answer.slabs[i]])
			abort();
	}
}

static void offer(uint32_t borrower, uint8_t a)
{
	uint32_t slab = pool_offer(&pool, borrower, 1 + a % IDS, a % 2);

	if (slab != POOL_NONE)
		lent_domain[slab] = pool.slabs[slab].domain;
}

/* false: it cannot happen now. */
static bool happen(enum step step, uint32_t at, uint8_t a, uint8_t b)
{
	uint8_t state = pool.borrowers[at].state;
	uint32_t ignored;

	if (step == JOIN)
		return pool_join(&pool, a % 3, a % 2, b & 1, &ignored) == 0;
	if (step == SHRINK)
		pool_shrink(&pool, a);
	if (step == FORGET)
		pool_forget_lacks(&pool);
	if (step >= SHRINK)
		return true;
	if (state == POOL_BORROWER_FREE || (state == POOL_BORROWER_CUT && step != GONE))
		return false;
	if (step == DOMAIN)
		pool_domain(&pool, at, a % 4 == 3 ? POOL_NONE : a % 4);
	if (step == WANT)
		want(at, a, b);
	if (step == OFFER)
		offer(at, a);
	if (step == RETURN || step == BAD)
		pool_return(&pool, at, 1 + a % IDS, step == BAD);
	if (step == UNMADE)
		pool_unmade(&pool, at, a);
	if (step == UNUSED)
		pool_unused(&pool, at, a);
	if (step == CUT)
		pool_cut(&pool, at);
	if (step == GONE)
		pool_gone(&pool, at);
	return true;
}

static void settle(void)
{
	uint32_t n;

	for (uint32_t i = 0; pool_ask(&pool, &n) != POOL_NONE; i++) {
		if (i > POOL_BORROWERS_MAX)
			abort();
	}
	while (pool_leaving(&pool) != POOL_NONE)
		;
}

int fuzz_left_out(void)
{
	for (int i = 0; i < STEPS; i++) {
		if (!was_done[i])
			return i;
	}
	return -1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	check_packet(data, size);
	memset(&pool, 0, sizeof(pool));
	pool_init(&pool, 40, BORROWERS);
	for (; size >= 4; data += 4, size -= 4) {
		enum step step = (enum step)(data[0] % STEPS);

		if (happen(step, data[1] % BORROWERS, data[2], data[3]))
			was_done[step] = true;
		if (data[0] >= 128)
			settle();
		pool_assert_valid(&pool);
	}
	for (uint32_t i = 0; i < BORROWERS; i++) {
		if (pool.borrowers[i].state != POOL_BORROWER_FREE)
			pool_gone(&pool, i);
	}
	settle();
	pool_assert_valid(&pool);
	if (pool.n_lent || pool.n_promised || pool.n_lacked || pool.n_borrowers)
		abort();
	return 0;
}
