/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Seeded simulation of the scheduler and its clients in virtual time.
 *
 * One 64-bit seed decides everything: how many programs, what they allocate, compute
 * and free, how long messages and copies take, who dies, who answers late or not at
 * all, whose stop fails, which connections break, when the scheduler restarts. In the
 * first part nothing may go wrong (world_check after each step); then the faults end,
 * and every program must come to its end within a bound. A failing run prints its seed;
 * the same seed replays it exactly, and every seed is run twice to prove that.
 */

#include "sim_program.h"
#include "util/prng.h"

#include <assert.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef WORLD_WIDE
#define NAME    "sim_gangs"
#define CALM_NS (600 * S) /* from then on no faults, and nobody new */
#else
#define NAME    "sim_sched"
#define CALM_NS (3000 * S) /* the same */
#endif
#define END_NS    (400000 * S) /* by then all have ended */
#define STUCK_NS  (100000 * S)
#define GRACE_NS  (2 * S)
#define ORPHAN_NS (30 * S)

/* A drain: how long it may take, how often it is looked at, and its outcomes. */
#define DRAIN_NS         (12 * S)
#define DRAIN_LOOK_NS    (500 * MS)
#define DRAIN_FAILED_MAX 3
#define DRAIN_TIMEOUT    1 /* NVSHARE_OUTCOME_TIMEOUT */
#define DRAINS_ON        UINT32_MAX

#define STOPPED_NS (100 * S) /* a process is stopped for so long at the most */
#define LOOK_NS    (1 * S)   /* the daemon looks so often */

#define SHORT_NS (300 * S) /* host memory lacks for so long at the most */

/* ---- what the world tells us ------------------------------------------------ */

static void on_up(struct world *world, uint32_t p)
{
	struct sim *sim = sim_of(world);
	struct sim_program *prog = &sim->programs[p];

	prog->up_ns = sim_later(prog->up_ns, world->now + sim_between(sim, 10000, 3 * MS));
	sim_schedule(sim, prog->up_ns, SIM_UP, p, prog->linked);
}

static void on_down(struct world *world, uint32_t p)
{
	struct sim *sim = sim_of(world);
	struct sim_program *prog = &sim->programs[p];

	prog->down_ns = sim_later(prog->down_ns, world->now + sim_between(sim, 10000, 3 * MS));
	sim_schedule(sim, prog->down_ns, SIM_DOWN, p, prog->linked);
}

static void on_work(struct world *world, uint32_t p)
{
	struct sim *sim = sim_of(world);
	struct sim_program *prog = &sim->programs[p];
	struct world_proc *proc = &world->procs[p];
	uint64_t out = proc->work_bytes < proc->resident ? proc->work_bytes : proc->resident;
	uint64_t bytes = proc->work == WORLD_WORK_EVICT     ? out
			 : proc->work == WORLD_WORK_RESTORE ? proc->swapped
							    : 0;
	uint64_t took = sim_between(sim, MS, 500 * MS) + bytes / 10; /* 10 bytes a nanosecond */

	if (sim->faults & FAULT_ANSWERS && !sim->is_calm) {
		if (sim_one_in(sim, 200))
			took = STUCK_NS;
		else if (sim_one_in(sim, 50))
			took += sim_between(sim, 0, 200 * S);
	}
	prog->work_ns = world->now + took;
	if (proc->work == WORLD_WORK_DRAIN)
		prog->drain_ns = world->now;
	/* Reports on the way, as many as the library would send, and at odd times. */
	if (proc->work == WORLD_WORK_EVICT || proc->work == WORLD_WORK_RESTORE) {
		for (uint64_t n = sim_between(sim, 0, 6); n > 0; n--)
			sim_schedule(sim, world->now + sim_between(sim, 0, took), SIM_PROGRESS, p,
				     prog->life);
	}
	sim_schedule(sim, prog->work_ns, SIM_WORK, p, prog->life);
}

/* ---- faults --------------------------------------------------------------------- */

static void break_link(struct sim *sim, uint32_t p)
{
	struct world_proc *proc = &sim->world.procs[p];
	bool was_linked = proc->is_linked;

	world_gone(&sim->world, p);
	sim->programs[p].linked++;
	if (was_linked)
		sim_schedule(sim, sim->world.now + sim_between(sim, 0, 2 * S), SIM_LOST, p,
			     sim->programs[p].life);
	else
		sim_schedule(sim, sim->world.now + S, SIM_REGISTER, p, sim->programs[p].life);
}

static void restart(struct sim *sim)
{
	for (uint32_t p = 0; p < sim->n_slots; p++) {
		struct world_proc *proc = &sim->world.procs[p];
		uint64_t time = sim->world.now + sim_between(sim, 0, 3 * S);

		sim->programs[p].linked++;
		if (proc->is_alive && proc->is_linked)
			sim_schedule(sim, time, SIM_LOST, p, sim->programs[p].life);
		else if (proc->is_alive && proc->is_joined)
			sim_schedule(sim, time, SIM_REGISTER, p, sim->programs[p].life);
	}
	world_restart(&sim->world);
	sim->grace_ns = sim->world.now + GRACE_NS;
}

static void change_config(struct sim *sim)
{
	struct sched_config *config = &sim->world.config;

	config->mode = (enum sched_mode)prng_below(&sim->seed, 3);
	config->anti_thrash = !sim_one_in(sim, 5);
	config->switch_mode = (enum sched_switch_mode)prng_below(&sim->seed, 2);
	config->tq_ns = sim_between(sim, 1, 60) * S;
	config->policy = (enum sched_policy)prng_below(&sim->seed, SCHED_POLICY_COUNT_);
	config->fair_users = !sim_one_in(sim, 4);
	sim->world.may_overlap = true;
	world_configure(&sim->world);
}

/* Somebody's Ctrl-Z, or a debugger. */
static void stop_somebody(struct sim *sim)
{
	uint32_t p = (uint32_t)prng_below(&sim->stops, sim->n_slots);
	struct sim_program *prog = &sim->programs[p];

	if (!sim->world.procs[p].is_alive || prog->stopped_ns > sim->world.now)
		return;
	/* Half of them for a moment. */
	prog->stopped_ns = sim->world.now + 10 * MS +
			   prng_below(&sim->stops, prng_below(&sim->stops, 2) ? STOPPED_NS : 3 * S);
	sim->n_stops++;
	sim_schedule(sim, sim->world.now + prng_below(&sim->stops, LOOK_NS), SIM_LOOK, p,
		     prog->life);
	sim_schedule(sim, prog->stopped_ns, SIM_AWAKE, p, prog->life);
}

/* What was sent before it stopped may arrive after the look: then the next one finds it again. */
static void on_look(struct sim *sim, uint32_t p)
{
	struct sim_program *prog = &sim->programs[p];

	if (prog->stopped_ns <= sim->world.now)
		return;
	if (sim->world.procs[p].is_joined)
		world_process(&sim->world, p, true);
	sim_schedule(sim, sim->world.now + LOOK_NS, SIM_LOOK, p, prog->life);
}

/* It answers the heartbeat that it was asked for, unless its agent is busy. */
static void on_awake(struct sim *sim, uint32_t p)
{
	if (sim->world.procs[p].work != WORLD_WORK_NONE)
		sim_schedule(sim, sim->world.now + LOOK_NS, SIM_AWAKE, p, sim->programs[p].life);
	else if (sim->world.procs[p].is_joined)
		world_process(&sim->world, p, false);
}

/* It does nothing before it goes on; its messages that are on their way arrive. */
static bool is_put_off(struct sim *sim, const struct sim_event *event)
{
	const struct sim_program *prog = &sim->programs[event->p];

	if (prog->stopped_ns <= sim->world.now || event->what == SIM_UP ||
	    event->what == SIM_GONE || event->what == SIM_LOOK)
		return false;
	sim_schedule(sim, prog->stopped_ns, event->what, event->p, event->life);
	return true;
}

/*
 * The process of p, or of another one of its gang, was stopped, and went on after since_ns. Others
 * are frozen without waiting for the drain of one that is stopped: it drains in vain at first.
 */
static bool was_stopped(const struct sim *sim, uint32_t p, uint64_t since_ns)
{
	bool was = sim->programs[p].stopped_ns > since_ns;

	for (uint32_t q = sim_mate(sim, p); q != p && !was; q = sim_mate(sim, q))
		was = sim->programs[q].stopped_ns > since_ns;
	return was;
}

static void on_fault(struct sim *sim)
{
	uint32_t p = (uint32_t)prng_below(&sim->seed, sim->n_slots);
	struct world_proc *proc = &sim->world.procs[p];

	if (sim->has_stops && prng_below(&sim->stops, 3) == 0)
		stop_somebody(sim);

	sim_schedule(sim, sim->world.now + sim_between(sim, 10 * MS, 5 * S), SIM_FAULT, 0, 0);
	if (!proc->is_alive && !proc->is_joined)
		sim_spawn(sim, p);
	else if (proc->is_alive && sim->faults & FAULT_DEATHS && sim_one_in(sim, 4))
		sim_end(sim, p);
	else if (proc->is_alive && proc->is_joined && sim->faults & FAULT_LINKS &&
		 sim_one_in(sim, 3))
		break_link(sim, p);
	else if (sim->faults & FAULT_LINKS && sim_one_in(sim, 200))
		restart(sim);
	else if (proc->is_alive && sim->faults & FAULT_CONFIG && sim_one_in(sim, 10))
		world_claim(&sim->world, p, sim_any_claim(sim));
	else if (proc->is_alive && sim->faults & FAULT_CONFIG && sim_one_in(sim, 5))
		world_pause(&sim->world, p, sim_one_in(sim, 2));
	else if (sim->faults & FAULT_CONFIG && sim_one_in(sim, 30))
		change_config(sim);
	sim_follow(sim, p);
}

/* ---- the run ---------------------------------------------------------------------- */

/* Host memory that is short stays so for a while, however often p is asked. */
static uint32_t work_outcome(struct sim *sim, uint32_t p)
{
	struct sim_program *prog = &sim->programs[p];
	uint32_t outcome = 0;

	if (!(sim->faults & FAULT_ANSWERS) || sim->is_calm)
		return 0;
	if (sim_one_in(sim, 10))
		outcome = (uint32_t)sim_between(sim, 1, 6);
	if (sim->world.procs[p].work != WORLD_WORK_EVICT)
		return outcome;
	if (sim->world.now < prog->short_ns)
		return WORLD_SHORT;
	if (outcome == WORLD_SHORT)
		prog->short_ns = sim->world.now + sim_between(sim, 0, SHORT_NS);
	return outcome;
}

/*
 * Of a program that must drain: its kernels end as soon as those of its gang run that they wait
 * for. outcome: of any other fault.
 */
static uint32_t drain_outcome(struct sim *sim, const struct sim_event *event, uint32_t outcome)
{
	struct sim_program *prog = &sim->programs[event->p];

	if (!outcome && !sim_drain_is_stuck(sim, event->p)) {
		sim->n_drains++;
		prog->has_kernel = false;
		prog->n_failed = 0;
		return 0;
	}
	if (!outcome && sim->world.now < prog->drain_ns + DRAIN_NS) {
		prog->work_ns = sim->world.now + DRAIN_LOOK_NS;
		sim_schedule(sim, prog->work_ns, SIM_WORK, event->p, event->life);
		return DRAINS_ON;
	}
	sim->n_stuck += !outcome && !was_stopped(sim, event->p, 0);
	if (++prog->n_failed < DRAIN_FAILED_MAX)
		return outcome ? outcome : DRAIN_TIMEOUT;
	/* After a fault two gangs may wait for each other: their watchdogs end that. */
	sim_end(sim, event->p);
	return DRAINS_ON;
}

static void on_down_due(struct sim *sim, const struct sim_event *event)
{
	struct world_proc *proc = &sim->world.procs[event->p];
	struct sim_program *prog = &sim->programs[event->p];

	/* The agent is busy: it reads on when its work has ended. */
	if (proc->work != WORLD_WORK_NONE && !world_may_deliver_down(&sim->world, event->p)) {
		/* Work of a process that was stopped ends after its time: now. */
		uint64_t time = sim_later(prog->work_ns, sim->world.now);

		prog->down_ns = sim_later(prog->down_ns, time);
		sim_schedule(sim, time, SIM_DOWN, event->p, event->life);
		return;
	}
	if (proc->down.n > 0)
		world_deliver_down(&sim->world, event->p);
}

static void on_up_due(struct sim *sim, const struct sim_event *event)
{
	struct world_proc *proc = &sim->world.procs[event->p];

	/* After a restart the daemon lets those that run come back first. */
	if (sim->world.now < sim->grace_ns) {
		sim->programs[event->p].up_ns =
			sim_later(sim->programs[event->p].up_ns, sim->grace_ns);
		sim_schedule(sim, sim->grace_ns, SIM_UP, event->p, event->life);
		return;
	}
	if (proc->up.n > 0)
		(void)world_deliver_up(&sim->world, event->p);
}

static void on_work_due(struct sim *sim, const struct sim_event *event)
{
	struct world_proc *proc = &sim->world.procs[event->p];
	uint32_t outcome;

	if (proc->work == WORLD_WORK_NONE || sim->programs[event->p].work_ns > sim->world.now)
		return;
	outcome = work_outcome(sim, event->p);
	if (proc->work == WORLD_WORK_DRAIN && proc->drains)
		outcome = drain_outcome(sim, event, outcome);
	if (outcome == DRAINS_ON)
		return;
	world_work_done(&sim->world, event->p, outcome);
	if (proc->lease.state == LEASE_ORPHAN)
		sim_schedule(sim, sim->world.now + sim_between(sim, 0, S), SIM_REGISTER, event->p,
			     event->life);
}

static void on_progress(struct sim *sim, uint32_t p)
{
	struct world_proc *proc = &sim->world.procs[p];
	uint64_t left = proc->work_bytes < proc->resident ? proc->work_bytes : proc->resident;

	/* Perhaps of an eviction that has ended since, or another: no harm. */
	if (proc->work == WORLD_WORK_EVICT && left > 1)
		world_progress(&sim->world, p, sim_between(sim, 1, left - 1));
	else if (proc->work == WORLD_WORK_RESTORE)
		(void)world_part(&sim->world, p);
}

static void on_lost(struct sim *sim, uint32_t p)
{
	if (!sim->world.procs[p].is_linked || sim->world.procs[p].is_joined)
		return;
	world_lost(&sim->world, p);
	sim_schedule(sim, sim->world.now + sim_between(sim, 10 * MS, 60 * S), SIM_REGISTER, p,
		     sim->programs[p].life);
	sim_schedule(sim, sim->world.now + ORPHAN_NS, SIM_ORPHAN, p, sim->programs[p].life);
}

static void on_register(struct sim *sim, uint32_t p)
{
	struct world_proc *proc = &sim->world.procs[p];

	if (proc->is_joined || proc->is_linked)
		return;
	if (proc->work != WORLD_WORK_NONE) {
		sim_schedule(sim, sim_later(sim->programs[p].work_ns, sim->world.now) + MS,
			     SIM_REGISTER, p, sim->programs[p].life);
		return;
	}
	world_register(&sim->world, p);
}

static void on_orphan(struct sim *sim, uint32_t p)
{
	struct world_proc *proc = &sim->world.procs[p];

	if (proc->is_linked || proc->is_joined || proc->work != WORLD_WORK_NONE)
		return;
	if (proc->lease.state != LEASE_ORPHAN)
		return;
	(void)world_lease(&sim->world, p, (struct lease_event){.type = LEASE_EVENT_ORPHAN_TIME});
}

static void on_idle(struct sim *sim, uint32_t p)
{
	struct world_proc *proc = &sim->world.procs[p];

	if (sim->programs[p].op != OP_IDLE || proc->work != WORLD_WORK_NONE || !proc->is_watched ||
	    !proc->is_linked || proc->lease.state != LEASE_HOLDING)
		return;
	(void)world_lease(&sim->world, p, (struct lease_event){.type = LEASE_EVENT_IDLE});
}

static void on_report(struct sim *sim, uint32_t p)
{
	struct world_proc *proc = &sim->world.procs[p];

	sim->programs[p].is_reporting = false;
	if (!proc->is_linked || proc->work != WORLD_WORK_NONE)
		return;
	if (proc->is_watched || sim_one_in(sim, 4))
		world_return_slack(&sim->world, p);
	else
		world_report(&sim->world, p);
}

/* Faults are over: whoever is stuck comes to itself, and nobody new begins. */
static void calm_down(struct sim *sim)
{
	sim->is_calm = true;
	for (uint32_t p = 0; p < sim->n_slots; p++) {
		world_pause(&sim->world, p, false);
		sim->world.procs[p].gang_size = 0; /* whom it waits for may never come */
		if (sim->world.procs[p].is_joined && sim->world.procs[p].gang != SCHED_NONE)
			world_tell_gang(&sim->world, p);
	}
	for (uint32_t p = 0; p < sim->n_slots; p++) {
		struct world_proc *proc = &sim->world.procs[p];
		struct sim_program *prog = &sim->programs[p];

		if (!proc->is_alive || proc->work == WORLD_WORK_NONE ||
		    prog->work_ns < sim->world.now + 60 * S)
			continue;
		prog->work_ns = sim->world.now + sim_between(sim, 0, 60 * S);
		prog->down_ns = prog->work_ns;
		sim_schedule(sim, prog->work_ns, SIM_WORK, p, prog->life);
		for (uint32_t i = 0; i < proc->down.n; i++)
			sim_schedule(sim, prog->work_ns, SIM_DOWN, p, prog->linked);
	}
}

static void handle(struct sim *sim, const struct sim_event *event)
{
	const struct sim_program *prog = &sim->programs[event->p];
	bool is_link = event->what == SIM_UP || event->what == SIM_DOWN;

	if (event->what == SIM_FAULT) {
		if (!sim->is_calm)
			on_fault(sim);
		return;
	}
	if (event->life != (is_link ? prog->linked : prog->life))
		return;
	if (is_put_off(sim, event))
		return;
	switch (event->what) {
	case SIM_UP:
		on_up_due(sim, event);
		break;
	case SIM_LOOK:
		on_look(sim, event->p);
		break;
	case SIM_AWAKE:
		on_awake(sim, event->p);
		break;
	case SIM_DOWN:
		on_down_due(sim, event);
		break;
	case SIM_WORK:
		on_work_due(sim, event);
		break;
	case SIM_PROGRESS:
		on_progress(sim, event->p);
		break;
	case SIM_OP:
		sim_on_op(sim, event->p);
		break;
	case SIM_REPORT:
		on_report(sim, event->p);
		break;
	case SIM_IDLE:
		on_idle(sim, event->p);
		break;
	case SIM_GONE:
		if (sim->world.procs[event->p].is_joined)
			world_gone(&sim->world, event->p);
		break;
	case SIM_LOST:
		on_lost(sim, event->p);
		break;
	case SIM_ORPHAN:
		on_orphan(sim, event->p);
		break;
	case SIM_REGISTER:
		on_register(sim, event->p);
		break;
	case SIM_FAULT:
		break;
	}
	sim_follow(sim, event->p);
}

static void configure(struct sim *sim, uint64_t *ret_total)
{
	struct sched_config config;

	sched_config_default(&config);
	config.mode = (enum sched_mode)prng_below(&sim->seed, 3);
	config.switch_mode = (enum sched_switch_mode)prng_below(&sim->seed, 2);
	config.policy = (enum sched_policy)prng_below(&sim->seed, SCHED_POLICY_COUNT_);
	sim->has_claims = sim_one_in(sim, 2);
	sim->has_critical = sim_one_in(sim, 2);
	config.anti_thrash = !sim_one_in(sim, 8);
	config.reserve_percent = (uint32_t)sim_between(sim, 0, 10);
	for (uint32_t g = 0; g < WORLD_GPUS; g++)
		ret_total[g] = sim_between(sim, 16, 140) * GIB;
	sim->n_slots = (uint32_t)sim_between(sim, 2, WORLD_PROCS);
	sim->n_owners = (uint32_t)sim_between(sim, 1, WORLD_OWNERS);
	config.fair_users = !sim_one_in(sim, 4);
	sim->world.config = config;
}

/* In half of the runs each card has values of its own. Draws of their own keep old seeds' runs. */
static void configure_cards(struct world *world, uint64_t seed)
{
	uint64_t draws = seed ^ 0x9e3779b97f4a7c15ull;

	world->has_own = prng_below(&draws, 2) == 0;
	for (uint32_t g = 0; g < WORLD_GPUS; g++) {
		world->own[g] = sched_gpu_config_of(&world->config);
		world->own[g].mode = (enum sched_mode)prng_below(&draws, 3);
		world->own[g].sharing_degree = (uint32_t)prng_below(&draws, 5);
		world->own[g].reserve_percent = (uint32_t)prng_below(&draws, 11);
	}
	world_configure(world);
}

struct result {
	uint64_t hash, n_steps, n_grants, n_drops, n_hung, n_refused, n_progress, n_parts, n_ahead,
		n_told, n_early, n_drains, n_stuck, n_spawned, wait_max_ns, end_ns;
};

static bool is_over(const struct sim *sim)
{
	for (uint32_t p = 0; p < sim->n_slots; p++) {
		if (sim->world.procs[p].is_alive || sim->world.procs[p].is_joined)
			return false;
	}
	return true;
}

/* It waits for members of its gang that have not come. */
static bool is_lacking(const struct sim *sim, uint32_t p)
{
	uint32_t gang = sim->world.clients[p].gang;

	return gang != SCHED_NONE && sim->world.clients[gang].gang_here.is_lacking;
}

/* It, or another one of its gang. */
static bool is_locked_out(const struct sim *sim, uint32_t p)
{
	bool is_out = world_is_locked_out(&sim->world, p);

	for (uint32_t q = sim_mate(sim, p); q != p && !is_out; q = sim_mate(sim, q))
		is_out = world_is_locked_out(&sim->world, q);
	return is_out;
}

/*
 * A program that is locked out waits for the owners of pinned bytes, or for those that are stopped,
 * not for turns.
 */
static void note_locked_out(struct sim *sim)
{
	/* Only without faults is the length of a wait looked at; and often is enough. */
	if (sim->faults != 0 || sim->world.n_steps % 16 != 0)
		return;
	for (uint32_t p = 0; p < sim->n_slots; p++) {
		if (sim->world.procs[p].is_alive && sim->programs[p].asked_ns != NEVER &&
		    (is_locked_out(sim, p) || is_lacking(sim, p) ||
		     was_stopped(sim, p, sim->world.now)))
			sim->programs[p].asked_ns = sim->world.now;
	}
}

static void advance(struct sim *sim)
{
	uint64_t due = sched_deadline(&sim->world.sched);
	uint64_t next = sim->queue.n > 0 ? sim->queue.at[0].time : NEVER;

	assert(due != NEVER || next != NEVER);
	if (due <= next) {
		struct sched_event event = {.type = SCHED_EVENT_TIME};

		sim->world.now = sim_later(sim->world.now, due);
		(void)world_step(&sim->world, &event);
		return;
	}
	{
		struct sim_event event = sim_queue_pop(&sim->queue);

		sim->world.now = sim_later(sim->world.now, event.time);
		handle(sim, &event);
	}
}

static struct result run(uint64_t seed, int faults)
{
	static struct sim sim;
	struct result result;
	uint64_t total[WORLD_GPUS], n = 0;
	struct sched_config config;

	memset(&sim, 0, sizeof(sim));
	sim.seed = seed;
	configure(&sim, total);
	config = sim.world.config;
	world_init(&sim.world, &config, total);
	configure_cards(&sim.world, seed);
	/* Old seeds keep their runs. */
	sim.has_gangs = WORLD_GPUS > 3 || (seed / 16) % 2 == 1;
	sim.has_drainers = sim.has_gangs && (seed / (WORLD_GPUS > 3 ? 16 : 32)) % 2 == 1;
	sim.has_stops = (seed / (WORLD_GPUS > 3 ? 32 : 64)) % 2 == 1;
	sim.stops = seed ^ 0xd1b54a32d192ed03ull;
	sim.world.has_gangs = sim.has_gangs;
	sim.world.has_users = sim.n_owners > 1;
	sim.world.on_up = on_up;
	sim.world.on_down = on_down;
	sim.world.on_work = on_work;
	sim.faults = faults;
	sim.world.is_strict = !(faults & FAULT_LINKS);
	sim_schedule(&sim, 0, SIM_FAULT, 0, 0);
	while (!sim.is_calm || !is_over(&sim)) {
		if (!sim.is_calm && sim.world.now >= CALM_NS)
			calm_down(&sim);
		advance(&sim);
		note_locked_out(&sim);
		world_check(&sim.world);
		/* All of the core's invariants cost more: often is enough. */
		if (n++ % 16 == 0)
			sched_assert_valid(&sim.world.sched);
		assert(sim.world.now < END_NS);
	}
	sched_assert_valid(&sim.world.sched);
	for (uint32_t g = 0; g < WORLD_GPUS; g++)
		assert(sim.world.sched.gpus[g].sums.charged == 0);
	/* Nothing went wrong, so nobody waited for ever: for a turn, and perhaps to grow. Of
	 * several users each has that bound, not each program (world_users.h). */
	if (faults == 0 && config.anti_thrash && !(sim.has_claims && sim.has_critical) &&
	    (sim.n_owners == 1 || !config.fair_users))
		assert(sim.wait_max_ns <= (sim.has_gangs ? 4 : 2) * config.wait_bound_ns);
	/* Nobody was frozen while a member of its gang drained. */
	if (faults == 0)
		assert(sim.n_stuck == 0);
	free(sim.queue.at);
	result = (struct result){
		sim.world.hash,    sim.world.n_steps,   sim.world.n_grants,   sim.world.n_drops,
		sim.world.n_hung,  sim.world.n_refused, sim.world.n_progress, sim.world.n_parts,
		sim.world.n_ahead, sim.world.n_told,    sim.world.n_early,    sim.n_drains,
		sim.n_stuck,       sim.n_spawned,       sim.wait_max_ns,      sim.world.now};
	return result;
}

static uint64_t current_seed;

/* assert() aborts, which flushes nothing: say which seed it was all the same. */
static void on_abort(int sig)
{
	(void)sig;
	dprintf(STDERR_FILENO, NAME ": failed: SEED=%" PRIu64 "\n", current_seed);
}

int main(int argc, char **argv)
{
	uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
	uint64_t n_seeds = argc > 2 ? strtoull(argv[2], NULL, 0) : 100;
	bool is_wordy = argc > 3;
	struct result all = {0};

	signal(SIGABRT, on_abort);
	printf(NAME ": SEED=%" PRIu64 " SEEDS=%" PRIu64 "\n", seed, n_seeds);
	(void)fflush(stdout);
	for (uint64_t i = 0; i < n_seeds; i++) {
		int faults = (int)((seed + i) % 16);
		struct result a, b;

		current_seed = seed + i;
		a = run(seed + i, faults);
		b = run(seed + i, faults);
		assert(memcmp(&a, &b, sizeof(a)) == 0);
		all.n_steps += a.n_steps;
		all.n_grants += a.n_grants;
		all.n_drops += a.n_drops;
		all.n_hung += a.n_hung;
		all.n_refused += a.n_refused;
		all.n_progress += a.n_progress;
		all.n_parts += a.n_parts;
		all.n_ahead += a.n_ahead;
		all.n_told += a.n_told;
		all.n_early += a.n_early;
		all.n_drains += a.n_drains;
		all.n_stuck += a.n_stuck;
		all.n_spawned += a.n_spawned;
		all.wait_max_ns = sim_later(all.wait_max_ns, a.wait_max_ns);
		if (is_wordy)
			printf("seed %" PRIu64 " faults %d: %" PRIu64 " steps, %" PRIu64
			       " programs, %" PRIu64 " grants, %" PRIu64 " drops, %" PRIu64
			       " hung, %" PRIu64 " refused, longest wait %" PRIu64
			       " s, end %" PRIu64 " s\n",
			       seed + i, faults, a.n_steps, a.n_spawned, a.n_grants, a.n_drops,
			       a.n_hung, a.n_refused, a.wait_max_ns / S, a.end_ns / S);
	}
	printf(NAME ": %" PRIu64 " seeds passed, 0 failed: %" PRIu64 " steps, %" PRIu64
		    " programs, %" PRIu64 " grants, %" PRIu64 " drops, %" PRIu64 " hung, %" PRIu64
		    " refused, %" PRIu64 " reports on the way, %" PRIu64
		    " restores in part, %" PRIu64 " ahead of a stop, %" PRIu64
		    " told before their end, %" PRIu64 " early after sleep, %" PRIu64
		    " drains, %" PRIu64 " that could not end\n",
	       n_seeds, all.n_steps, all.n_spawned, all.n_grants, all.n_drops, all.n_hung,
	       all.n_refused, all.n_progress, all.n_parts, all.n_ahead, all.n_told, all.n_early,
	       all.n_drains, all.n_stuck);
	return 0;
}
