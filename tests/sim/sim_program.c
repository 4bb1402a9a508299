/* SPDX-License-Identifier: Apache-2.0 */
#include "sim_program.h"

#include "util/prng.h"

struct sim *sim_of(struct world *world)
{
	return (struct sim *)(void *)world; /* its first member */
}

uint64_t sim_between(struct sim *sim, uint64_t min, uint64_t max)
{
	return min + prng_below(&sim->seed, max - min + 1);
}

bool sim_one_in(struct sim *sim, uint64_t n)
{
	return prng_below(&sim->seed, n) == 0;
}

void sim_schedule(struct sim *sim, uint64_t time, enum sim_what what, uint32_t p, uint32_t life)
{
	sim_queue_push(&sim->queue,
		       (struct sim_event){.time = time, .what = what, .p = p, .life = life});
}

uint64_t sim_later(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

struct sched_claim sim_any_claim(struct sim *sim)
{
	static const uint32_t weights[] = {0, 1, 50, 100, 300, 800, SCHED_WEIGHT_MAX};
	struct sched_claim claim = {.priority = SCHED_PRIORITY_NORMAL};

	if (!sim->has_claims)
		return claim;
	claim.priority = (enum sched_priority)prng_below(&sim->seed, SCHED_PRIORITY_CRITICAL);
	if (sim->has_critical && sim_one_in(sim, 12))
		claim.priority = SCHED_PRIORITY_CRITICAL;
	claim.weight = weights[prng_below(&sim->seed, sizeof(weights) / sizeof(*weights))];
	claim.slo_ns = sim_one_in(sim, 3) ? sim_between(sim, 1, 60 * S) : 0;
	return claim;
}

/* ---- programs ----------------------------------------------------------------- */

static void report_soon(struct sim *sim, uint32_t p)
{
	struct sim_program *prog = &sim->programs[p];

	if (prog->is_reporting)
		return;
	prog->is_reporting = true;
	sim_schedule(sim, sim->world.now + 10 * MS, SIM_REPORT, p, prog->life);
}

void sim_end(struct sim *sim, uint32_t p)
{
	bool is_joined = sim->world.procs[p].is_joined;

	/* Those that waited for it go on. */
	for (uint32_t q = sim_mate(sim, p); q != p; q = sim_mate(sim, q))
		report_soon(sim, q);
	world_kill(&sim->world, p);
	sim->programs[p].life++;
	sim->programs[p].linked++;
	sim->programs[p].is_computing = false;
	sim->programs[p].is_reporting = false;
	if (is_joined)
		sim_schedule(sim, sim->world.now + sim_between(sim, 0, 5 * MS), SIM_GONE, p,
			     sim->programs[p].life);
}

static void next_op(struct sim *sim, uint32_t p)
{
	struct world_proc *proc = &sim->world.procs[p];
	struct sim_program *prog = &sim->programs[p];
	uint64_t what = prng_below(&sim->seed, 10);

	proc->is_at_gate = false;
	prog->has_kernel = false;
	prog->asked_ns = NEVER;
	if (prog->n_ops-- == 0) {
		prog->op = OP_END;
		sim_end(sim, p);
	} else if (what < 4) {
		prog->op = OP_COMPUTE;
		prog->left_ns = sim_between(sim, 10 * MS, 15 * S);
		proc->is_at_gate = true;
	} else if (what < 7) {
		prog->op = OP_ALLOC;
		world_alloc(&sim->world, p, sim_between(sim, 1, 9000) * MIB, sim_one_in(sim, 20));
	} else if (what < 8 && proc->owned > 0) {
		prog->op = OP_IDLE;
		world_free(&sim->world, p, sim_between(sim, 1, proc->owned));
		sim_schedule(sim, sim->world.now + MS, SIM_OP, p, prog->life);
	} else {
		prog->op = OP_IDLE;
		sim_schedule(sim, sim->world.now + sim_between(sim, MS, 30 * S), SIM_OP, p,
			     prog->life);
		sim_schedule(sim, sim->world.now + S, SIM_IDLE, p, prog->life);
	}
	report_soon(sim, p);
}

uint32_t sim_mate(const struct sim *sim, uint32_t p)
{
	const struct world_proc *proc = &sim->world.procs[p];

	if (proc->gang == SCHED_NONE)
		return p;
	for (uint32_t n = 1; n < sim->n_slots; n++) {
		uint32_t q = (p + n) % sim->n_slots;

		if (sim->world.procs[q].is_alive && sim->world.procs[q].gang == proc->gang)
			return q;
	}
	return p;
}

/* Its kernels would wait for one that is not on its GPU, and get no further. */
static bool waits_for_mate(const struct sim *sim, uint32_t p)
{
	for (uint32_t q = sim_mate(sim, p); q != p; q = sim_mate(sim, q)) {
		const struct sim_program *mate = &sim->programs[q];

		/* Two on one card may be too many for it: they would not be written so. */
		if (sim->world.procs[q].gpu == sim->world.procs[p].gpu)
			continue;
		if ((mate->op == OP_COMPUTE && !sim->world.procs[q].is_open) ||
		    mate->op == OP_ALLOC)
			return true;
	}
	return false;
}

bool sim_drain_is_stuck(const struct sim *sim, uint32_t p)
{
	if (!sim->world.procs[p].drains || !sim->programs[p].has_kernel)
		return false;
	for (uint32_t q = sim_mate(sim, p); q != p; q = sim_mate(sim, q)) {
		const struct world_proc *proc = &sim->world.procs[q];
		bool runs = proc->is_open || (proc->drains && proc->work == WORLD_WORK_DRAIN);

		if (proc->gpu != sim->world.procs[p].gpu && sim->programs[q].has_kernel && !runs)
			return true;
	}
	return false;
}

static void follow_one(struct sim *sim, uint32_t p)
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
	if (prog->op == OP_COMPUTE && proc->is_open)
		prog->has_kernel = true;
	if (prog->is_computing && (!proc->is_open || waits_for_mate(sim, p))) {
		uint64_t done = now - prog->since_ns;

		prog->is_computing = false;
		if (prog->is_metered)
			world_used_gpu(&sim->world, p, sim_between(sim, done / 2, done));
		prog->left_ns -= done < prog->left_ns ? done : prog->left_ns;
	} else if (!prog->is_computing && prog->op == OP_COMPUTE && proc->is_open &&
		   !waits_for_mate(sim, p)) {
		prog->is_computing = true;
		prog->since_ns = now;
		sim_schedule(sim, now + prog->left_ns, SIM_OP, p, prog->life);
	}
	/* From the first sign of waiting to the last. */
	if (prog->op != OP_IDLE && !proc->is_open && prog->asked_ns == NEVER)
		prog->asked_ns = now;
	if (proc->is_open && proc->lack == 0 && prog->asked_ns != NEVER) {
		sim->wait_max_ns = sim_later(sim->wait_max_ns, now - prog->asked_ns);
		prog->asked_ns = NEVER;
	}
}

void sim_follow(struct sim *sim, uint32_t p)
{
	follow_one(sim, p);
	if (sim->world.procs[p].gang == SCHED_NONE)
		return;
	for (uint32_t q = 0; q < sim->n_slots; q++) {
		if (q != p && sim->world.procs[q].gang == sim->world.procs[p].gang)
			follow_one(sim, q);
	}
}

void sim_on_op(struct sim *sim, uint32_t p)
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

#ifdef WORLD_WIDE
/* Of 24 slots in a row, gangs of eight, four, four and two on as many cards, and singles. */
#define NOBODY SCHED_NONE
static const uint32_t gangs[] = {0,  0,  0,  0,  0,  0,  0,  0,      8,      8,      8,      8,
				 12, 12, 12, 12, 16, 16, 18, NOBODY, NOBODY, NOBODY, NOBODY, 18};
#else
/*
 * Of ten slots in a row, gangs of two and of three on different cards, one on the same card, one
 * that waits for its second member, and one for itself.
 */
static const uint32_t gangs[] = {0, 0, 2, 2, 2, 5, SCHED_NONE, 8, 5, 8};
#endif
#define GANG_SLOTS (sizeof(gangs) / sizeof(*gangs))

static void join_gang(struct sim *sim, uint32_t p)
{
	uint32_t first = gangs[p % GANG_SLOTS];

	if (first == SCHED_NONE)
		return;
	sim->world.procs[p].gang = p - p % (uint32_t)GANG_SLOTS + first;
	sim->world.procs[p].gang_size = first == 8 && sim->faults == 0 ? 2 : 0;
	sim->world.procs[p].drains = sim->has_drainers && p % 4 == 1;
}

void sim_spawn(struct sim *sim, uint32_t p)
{
	struct sim_program *prog = &sim->programs[p];
	uint32_t life = prog->life + 1, linked = prog->linked + 1;

	world_spawn(&sim->world, p, p % WORLD_GPUS);
	sim->world.procs[p].owner = owner_of_slot(sim, p);
	if (sim->has_gangs)
		join_gang(sim, p);
	*prog = (struct sim_program){.life = life, .linked = linked, .asked_ns = NEVER};
	prog->n_ops = (uint32_t)sim_between(sim, 1, 25);
	prog->is_metered = sim_one_in(sim, 2);
	sim->world.procs[p].claim = sim_any_claim(sim);
	sim->n_spawned++;
	/* Some have run before there was a scheduler for them. */
	if (sim->faults & FAULT_LINKS && sim_one_in(sim, 10)) {
		sim->world.procs[p].has_begun = true;
		sim->world.procs[p].is_open = true;
		sim_schedule(sim, sim->world.now + sim_between(sim, 0, 10 * S), SIM_REGISTER, p,
			     life);
		return;
	}
	world_register(&sim->world, p);
}
