/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The pool of host memory with simulated programs. One seed decides everything and is printed
 * first; each run is made twice and must be the same. Programs borrow, write, return, hang up, come
 * back, die, change their domain, and lie about ids. Checked all the time, with sums of this file's
 * own:
 *
 * - the pool's own invariants;
 * - a slab that is lent was written by programs of the borrower's domain alone, and is mapped by
 *   nobody;
 * - the slabs that exist or may be made never exceed the limit by what a client was told;
 * - an honest want that lacks nothing is answered in full;
 * - when all programs have ended, each slab is ready or closed.
 *
 *     sim_pool SEED SEEDS
 */

#include "core/pool/pool.h"
#include "mix.h"
#include "util/prng.h"

#include <assert.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROGRAMS 24u
#define DOMAINS  3u
#define HELD_MAX 32u
#define LIMIT    160u
#define STEPS    4000u

struct sim_program {
	bool is_alive, is_connected;
	uint32_t borrower;
	uint32_t domain;
	uint64_t process;
	uint32_t n_held;
	uint64_t held[HELD_MAX]; /* ids that it has mapped */
};

static struct {
	uint64_t seed, rng, hash, last_id, last_process, n_steps, n_lent;
	struct pool pool;
	struct sim_program programs[PROGRAMS];
	uint32_t writer[POOL_SLABS_MAX]; /* by slab: the domain of its bytes */
	struct pool_answer answer;
} sim;

static void sim_on_abort(int number)
{
	(void)number;
	printf("sim_pool: failed: SEED=%" PRIu64 " step %" PRIu64 "\n", sim.seed, sim.n_steps);
	(void)fflush(stdout);
}

static uint32_t sim_below(uint32_t n)
{
	return (uint32_t)prng_below(&sim.rng, n);
}

static bool sim_is_mapped(uint64_t id)
{
	for (uint32_t i = 0; i < PROGRAMS; i++) {
		for (uint32_t k = 0; k < sim.programs[i].n_held; k++) {
			if (sim.programs[i].held[k] == id)
				return true;
		}
	}
	return false;
}

static void sim_connect(struct sim_program *p)
{
	uint32_t domain = sim_below(DOMAINS);

	if (!p->is_alive) {
		*p = (struct sim_program){.process = ++sim.last_process, .domain = domain};
		p->is_alive = true;
	}
	if (pool_join(&sim.pool, p->process, p->domain, false, &p->borrower))
		return;
	p->is_connected = true;
	pool_domain(&sim.pool, p->borrower, p->domain);
	for (uint32_t i = 0; i < p->n_held; i++)
		(void)pool_offer(&sim.pool, p->borrower, p->held[i], 0);
}

static void sim_make(struct sim_program *p, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		uint32_t slab = pool_offer(&sim.pool, p->borrower, ++sim.last_id, 0);

		if (slab != POOL_NONE)
			sim.writer[slab] = p->domain;
		p->held[p->n_held++] = sim.last_id;
	}
}

static void sim_want(struct sim_program *p)
{
	uint32_t n = 1 + sim_below(8), total = pool_total(&sim.pool);
	struct pool_room room = {LIMIT > total ? LIMIT - total : 0, 64};

	if (p->n_held + n > HELD_MAX)
		return;
	pool_domain(&sim.pool, p->borrower, p->domain);
	pool_want(&sim.pool, p->borrower, n, 0, &room, &sim.answer);
	assert(sim.answer.n_lent + sim.answer.n_make + sim.answer.n_none == n);
	assert(n > room.n_more || !sim.answer.n_none ||
	       sim.pool.n_slabs_max < LIMIT + PROGRAMS * HELD_MAX);
	for (uint32_t i = 0; i < sim.answer.n_lent; i++) {
		uint32_t slab = sim.answer.slabs[i];

		assert(sim.writer[slab] == p->domain && !sim_is_mapped(sim.pool.ids[slab]));
		p->held[p->n_held++] = sim.pool.ids[slab];
		sim.n_lent++;
	}
	assert(pool_total(&sim.pool) <= LIMIT || !sim.answer.n_make);
	n = sim_below(sim.answer.n_make + 1);
	sim_make(p, n);
	if (sim_below(2))
		pool_unmade(&sim.pool, p->borrower, sim.answer.n_make - n);
}

static void sim_return(struct sim_program *p, bool is_bad)
{
	pool_domain(&sim.pool, p->borrower, p->domain);
	for (uint32_t n = sim_below(p->n_held + 1); n > 0; n--)
		pool_return(&sim.pool, p->borrower, p->held[--p->n_held], is_bad);
}

/* Ids that it has not, and slabs that it never made. */
static void sim_lie(struct sim_program *p)
{
	uint64_t id = 1 + sim_below((uint32_t)sim.last_id + 10);
	bool is_its = false;

	for (uint32_t i = 0; i < p->n_held; i++)
		is_its |= p->held[i] == id;
	if (!is_its)
		pool_return(&sim.pool, p->borrower, id, sim_below(2));
	pool_unused(&sim.pool, p->borrower, sim_below(1000));
	pool_unmade(&sim.pool, p->borrower, sim_below(3));
}

static void sim_hang_up(struct sim_program *p)
{
	pool_cut(&sim.pool, p->borrower);
	p->is_connected = false;
}

/* The pidfd of a process tells of each of its borrowers. */
static void sim_die(struct sim_program *p)
{
	p->n_held = 0;
	for (uint32_t i = 0; i < POOL_BORROWERS_MAX; i++) {
		if (sim.pool.borrowers[i].state != POOL_BORROWER_FREE &&
		    sim.pool.borrowers[i].process == p->process)
			pool_gone(&sim.pool, i);
	}
	p->is_alive = p->is_connected = false;
}

static void sim_settle(void)
{
	uint32_t n;

	while (pool_ask(&sim.pool, &n) != POOL_NONE)
		assert(n <= HELD_MAX);
	while (pool_leaving(&sim.pool) != POOL_NONE)
		;
	pool_assert_valid(&sim.pool);
}

static void sim_step(void)
{
	struct sim_program *p = &sim.programs[sim_below(PROGRAMS)];
	uint32_t what = sim_below(100);

	if (!p->is_connected)
		sim_connect(p);
	else if (what < 45)
		sim_want(p);
	else if (what < 80)
		sim_return(p, what == 45);
	else if (what < 86)
		sim_lie(p);
	else if (what < 90)
		sim_hang_up(p);
	else if (what < 94)
		sim_die(p);
	else if (what < 96)
		p->domain = sim_below(DOMAINS);
	else if (what < 98)
		pool_forget_lacks(&sim.pool);
	else
		pool_shrink(&sim.pool, sim_below(LIMIT));
	sim_settle();
}

static uint64_t sim_run(uint64_t seed)
{
	memset(&sim, 0, sizeof(sim));
	sim.seed = sim.rng = seed;
	pool_init(&sim.pool, POOL_SLABS_MAX, POOL_BORROWERS_MAX);
	for (sim.n_steps = 0; sim.n_steps < STEPS; sim.n_steps++) {
		sim_step();
		mix(&sim.hash, pool_total(&sim.pool));
		mix(&sim.hash, sim.pool.n_lent);
	}
	for (uint32_t i = 0; i < PROGRAMS; i++) {
		if (sim.programs[i].is_alive)
			sim_die(&sim.programs[i]);
	}
	sim_settle();
	assert(sim.pool.n_lent == 0 && sim.pool.n_promised == 0 && sim.pool.n_borrowers == 0);
	assert(sim.n_lent > STEPS / 50);
	return sim.hash;
}

int main(int argc, char **argv)
{
	uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
	uint64_t n = argc > 2 ? strtoull(argv[2], NULL, 10) : 10;
	uint64_t hash;

	(void)signal(SIGABRT, sim_on_abort);
	for (uint64_t i = 0; i < n; i++) {
		hash = sim_run(seed + i);
		assert(sim_run(seed + i) == hash);
	}
	printf("sim_pool: %" PRIu64 " seeds from %" PRIu64 ": ok\n", n, seed);
	return 0;
}
