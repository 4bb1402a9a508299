/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_TESTS_SIM_PROGRAM_H
#define NVS_TESTS_SIM_PROGRAM_H

/*
 * What the simulated programs do: compute, allocate, free, idle, end, as a seed decides.
 * Included by sim_sched.c alone, after the sizes of the world.
 */

#include "sim_queue.h"
#include "util/prng.h"
#include "world.h"

#define MS    UINT64_C(1000000)
#define S     UINT64_C(1000000000)
#define MIB   (1ull << 20)
#define GIB   (1ull << 30)
#define NEVER UINT64_MAX

/* What kinds of faults a seed has. */
enum { FAULT_DEATHS = 1, FAULT_ANSWERS = 2, FAULT_LINKS = 4, FAULT_CONFIG = 8 };

enum sim_op { OP_START, OP_COMPUTE, OP_ALLOC, OP_IDLE, OP_END };

struct sim_program {
	enum sim_op op;
	bool is_computing;
	bool is_reporting;
	bool is_metered; /* its GPU time is told */
	uint32_t life;   /* of the slot; an event of an earlier life is void */
	uint32_t n_ops;
	uint32_t computing; /* grows with each start and stop of a computation */
	uint32_t linked;    /* grows with each connection */
	uint64_t left_ns, since_ns;
	uint64_t asked_ns; /* NEVER: does not wait */
	uint64_t up_ns, down_ns;
	uint64_t work_ns; /* when the work under way ends */
};

struct sim {
	struct world world;
	struct sim_program programs[WORLD_PROCS];
	uint64_t seed;
	int faults;
	bool has_claims;   /* weights and classes differ */
	bool has_critical; /* and some stay once they run, so that others may wait longer */
	bool is_calm;
	uint32_t n_slots;
	uint32_t n_owners;
	uint64_t grace_ns;
	uint64_t wait_max_ns, n_ended, n_spawned;
	struct sim_queue queue;
};

static struct sim *sim_of(struct world *world)
{
	return (struct sim *)(void *)world; /* its first member */
}

static uint64_t between(struct sim *sim, uint64_t min, uint64_t max)
{
	return min + prng_below(&sim->seed, max - min + 1);
}

static bool one_in(struct sim *sim, uint64_t n)
{
	return prng_below(&sim->seed, n) == 0;
}

static void schedule(struct sim *sim, uint64_t time, enum sim_what what, uint32_t p, uint32_t life)
{
	sim_queue_push(&sim->queue,
		       (struct sim_event){.time = time, .what = what, .p = p, .life = life});
}

static uint64_t later(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static struct sched_claim any_claim(struct sim *sim)
{
	static const uint32_t weights[] = {0, 1, 50, 100, 300, 800, SCHED_WEIGHT_MAX};
	struct sched_claim claim = {.priority = SCHED_PRIORITY_NORMAL};

	if (!sim->has_claims)
		return claim;
	claim.priority = (enum sched_priority)prng_below(&sim->seed, SCHED_PRIORITY_CRITICAL);
	if (sim->has_critical && one_in(sim, 12))
		claim.priority = SCHED_PRIORITY_CRITICAL;
	claim.weight = weights[prng_below(&sim->seed, sizeof(weights) / sizeof(*weights))];
	claim.slo_ns = one_in(sim, 3) ? between(sim, 1, 60 * S) : 0;
	return claim;
}

/* ---- programs ----------------------------------------------------------------- */

static void report_soon(struct sim *sim, uint32_t p)
{
	struct sim_program *prog = &sim->programs[p];

	if (prog->is_reporting)
		return;
	prog->is_reporting = true;
	schedule(sim, sim->world.now + 10 * MS, SIM_REPORT, p, prog->life);
}

static void end_program(struct sim *sim, uint32_t p)
{
	bool is_joined = sim->world.procs[p].is_joined;

	world_kill(&sim->world, p);
	sim->programs[p].life++;
	sim->programs[p].linked++;
	sim->programs[p].is_computing = false;
	sim->programs[p].is_reporting = false;
	if (is_joined)
		schedule(sim, sim->world.now + between(sim, 0, 5 * MS), SIM_GONE, p,
			 sim->programs[p].life);
}

static void next_op(struct sim *sim, uint32_t p)
{
	struct world_proc *proc = &sim->world.procs[p];
	struct sim_program *prog = &sim->programs[p];
	uint64_t what = prng_below(&sim->seed, 10);

	proc->is_at_gate = false;
	prog->asked_ns = NEVER;
	if (prog->n_ops-- == 0) {
		prog->op = OP_END;
		sim->n_ended++;
		end_program(sim, p);
	} else if (what < 4) {
		prog->op = OP_COMPUTE;
		prog->left_ns = between(sim, 10 * MS, 15 * S);
		proc->is_at_gate = true;
	} else if (what < 7) {
		prog->op = OP_ALLOC;
		world_alloc(&sim->world, p, between(sim, 1, 9000) * MIB, one_in(sim, 20));
	} else if (what < 8 && proc->owned > 0) {
		prog->op = OP_IDLE;
		world_free(&sim->world, p, between(sim, 1, proc->owned));
		schedule(sim, sim->world.now + MS, SIM_OP, p, prog->life);
	} else {
		prog->op = OP_IDLE;
		schedule(sim, sim->world.now + between(sim, MS, 30 * S), SIM_OP, p, prog->life);
		schedule(sim, sim->world.now + S, SIM_IDLE, p, prog->life);
	}
	report_soon(sim, p);
}

/* Follows what the gate and the budget allow, after anything that touched p. */
static void follow(struct sim *sim, uint32_t p)
{
	struct world_proc *proc = &sim->world.procs[p];
	struct sim_program *prog = &sim->programs[p];
	uint64_t now = sim->world.now;

	if (!proc->is_alive || !proc->has_begun)
		return;
	if (prog->op == OP_START)
		next_op(sim, p);
	while (proc->is_alive && prog->op == OP_ALLOC && proc->lack == 0)
		next_op(sim, p);
	if (!proc->is_alive)
		return;
	if (proc->lease.state == LEASE_IDLE)
		world_want(&sim->world, p);
	if (prog->is_computing && !proc->is_open) {
		uint64_t done = now - prog->since_ns;

		prog->is_computing = false;
		prog->computing++;
		if (prog->is_metered)
			world_used_gpu(&sim->world, p, between(sim, done / 2, done));
		prog->left_ns -= done < prog->left_ns ? done : prog->left_ns;
	} else if (!prog->is_computing && prog->op == OP_COMPUTE && proc->is_open) {
		prog->is_computing = true;
		prog->since_ns = now;
		schedule(sim, now + prog->left_ns, SIM_OP, p, prog->life);
	}
	/* From the first sign of waiting to the last. */
	if (prog->op != OP_IDLE && !proc->is_open && prog->asked_ns == NEVER)
		prog->asked_ns = now;
	if (proc->is_open && proc->lack == 0 && prog->asked_ns != NEVER) {
		sim->wait_max_ns = later(sim->wait_max_ns, now - prog->asked_ns);
		prog->asked_ns = NEVER;
	}
}

static void on_op(struct sim *sim, uint32_t p)
{
	struct sim_program *prog = &sim->programs[p];

	switch (prog->op) {
	case OP_COMPUTE:
		/* Void if it was interrupted since, even if it goes on now. */
		if (!prog->is_computing || sim->world.now < prog->since_ns + prog->left_ns)
			return;
		prog->is_computing = false;
		next_op(sim, p);
		return;
	case OP_IDLE:
		next_op(sim, p);
		return;
	case OP_START:
	case OP_ALLOC:
	case OP_END:
		return;
	}
}

/* One user has most of the programs. */
static uint32_t owner_of_slot(const struct sim *sim, uint32_t p)
{
	uint32_t nth = p / WORLD_GPUS;

	return nth % 4 ? 0 : nth / 4 % sim->n_owners;
}

static void spawn(struct sim *sim, uint32_t p)
{
	struct sim_program *prog = &sim->programs[p];
	uint32_t life = prog->life + 1, linked = prog->linked + 1;

	world_spawn(&sim->world, p, p % WORLD_GPUS);
	sim->world.procs[p].owner = owner_of_slot(sim, p);
	*prog = (struct sim_program){.life = life, .linked = linked, .asked_ns = NEVER};
	prog->n_ops = (uint32_t)between(sim, 1, 25);
	prog->is_metered = one_in(sim, 2);
	sim->world.procs[p].claim = any_claim(sim);
	sim->n_spawned++;
	/* Some have run before there was a scheduler for them. */
	if (sim->faults & FAULT_LINKS && one_in(sim, 10)) {
		sim->world.procs[p].has_begun = true;
		sim->world.procs[p].is_open = true;
		schedule(sim, sim->world.now + between(sim, 0, 10 * S), SIM_REGISTER, p, life);
		return;
	}
	world_register(&sim->world, p);
}

#endif
