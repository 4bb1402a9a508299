/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The queue of jobs with simulated programs. One seed decides everything and is printed first; each
 * run is made twice and must be the same. Programs register late or never, grow beyond their
 * needs, are frozen, fail, run out of memory, ignore SIGTERM. Users cancel. GPUs fail, are
 * replaced, are used by others. The configuration changes, and the scheduler restarts. Checked all
 * the time:
 *
 * - the machine's own invariants, and that it does what the plain model does (job_model.h);
 * - a job that waits for room starts only where all charges and the margin fit;
 * - no GPU has more jobs than its sharing degree, or for turns more than turns_max;
 * - a restart keeps the order and loses no job;
 * - the jobs of a gang start in one step, or none does, unless they come back to it;
 * - without faults every job that waits starts within a bound, though jobs of the highest
 *   priority come without an end;
 * - in the end each job is done once, and nothing is charged.
 *
 *     sim_jobs SEED SEEDS
 */

#include "job_model.h"
#include "mix.h"
#include "util/prng.h"

#include <assert.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define S        1000000000ull
#define GIB      (1ull << 30)
#define NEVER    UINT64_MAX
#define PHASES   6
#define PHASE_NS (60 * S)
#define RUN_NS   (4000 * S)
/* The longest that a job is on a GPU: its phases, all of them frozen once, and its end. */
#define ON_NS ((PHASES * 2 + 2) * PHASE_NS)
#define RICH  (JOB_MODEL_OWNERS - 1) /* this owner comes last */

struct sim_job {
	bool is_open; /* submitted, and not done */
	struct jobs_event submitted;
	uint64_t next_ns; /* the program's next step */
	uint32_t n_phases;
	bool is_frozen, is_killed, is_deaf, has_registered;
};

static struct {
	uint64_t seed, rng, now, start_ns, hash, last_id;
	bool has_faults, is_crowded; /* many wait for room in one lane */
	uint32_t n_gpus, n_slots, n_owners;
	struct jobs_config config;
	struct place_gpu gpus[PLACE_GPUS_MAX]; /* as they are without faults */
	struct place_gpu facts[PLACE_GPUS_MAX];
	struct jobs jobs;
	struct job slots[JOB_MODEL_JOBS];
	struct job_model model;
	struct sim_job programs[JOB_MODEL_JOBS];
	uint64_t n_steps, n_submitted, n_done, n_started, n_members, n_turns, n_booked, n_restarts;
} sim;

static void sim_on_abort(int number)
{
	(void)number;
	printf("sim_jobs: failed: SEED=%" PRIu64 " at %" PRIu64 " ms, step %" PRIu64 "\n", sim.seed,
	       sim.now / 1000000, sim.n_steps);
	(void)fflush(stdout);
}

static uint64_t sim_below(uint64_t n)
{
	return prng_below(&sim.rng, n);
}

static bool sim_is_one_in(uint64_t n)
{
	return sim_below(n) == 0;
}

/* ---- one step ---------------------------------------------------------------------- */

static void sim_check_start(const struct jobs_action *a)
{
	const struct place_slot *slot = &sim.jobs.place.gpu[a->gpu];
	const struct place_config *c = &sim.config.place;
	uint64_t margin = slot->facts.total / 100 * c->margin_percent;
	uint32_t n_on = slot->facts.n_others + slot->load.n_jobs;
	uint64_t used = slot->facts.external + slot->facts.others + slot->load.charged;
	uint64_t fixed = slot->facts.external + slot->facts.critical + slot->load.critical;

	margin = margin < c->margin_bytes ? margin : c->margin_bytes;
	margin = margin > slot->facts.reserve ? margin : slot->facts.reserve;
	assert(slot->facts.is_known && !slot->facts.is_out);
	assert(c->allowed >> a->gpu & 1 && !(c->reserved >> a->gpu & 1));
	assert(slot->facts.degree == 0 || n_on <= slot->facts.degree);
	if (!a->is_turns)
		assert(used + margin <= slot->facts.total);
	else
		assert(!sim.programs[a->job].submitted.request.is_whole &&
		       sim.jobs.slots[a->job].request.need + fixed + margin <= slot->facts.total &&
		       (slot->facts.degree > 0 || n_on <= c->turns_max));
}

static void sim_on_action(const struct jobs_action *a, bool is_last_start)
{
	struct sim_job *p = &sim.programs[a->job];

	mix(&sim.hash, a->type ^ (uint64_t)a->job << 8 ^ (uint64_t)a->gpu << 16);
	assert(p->is_open);
	switch (a->type) {
	case JOBS_ACTION_START:
		p->n_phases = 1 + (uint32_t)sim_below(PHASES);
		p->next_ns = sim.now + sim_below(PHASE_NS);
		p->is_deaf = sim_is_one_in(4);
		p->is_frozen = p->has_registered = p->is_killed = false;
		sim.n_started++;
		sim.n_members += p->submitted.request.gang > 0;
		sim.n_turns += a->is_turns;
		if (is_last_start) /* others have come on top of the earlier ones */
			sim_check_start(a);
		break;
	case JOBS_ACTION_TERM:
		if (!p->is_deaf)
			p->n_phases = 0;
		if (!p->is_deaf && p->next_ns > sim.now + 2 * S)
			p->next_ns = sim.now + sim_below(2 * S);
		break;
	case JOBS_ACTION_KILL:
		p->is_killed = true;
		p->next_ns = sim.now + sim_below(S);
		break;
	case JOBS_ACTION_RETRY:
		p->next_ns = NEVER;
		break;
	case JOBS_ACTION_DONE:
		p->is_open = false;
		p->next_ns = NEVER;
		sim.n_done++;
		break;
	}
}

static int sim_step(struct jobs_event event)
{
	struct jobs_actions actions;
	const struct jobs_event *given = &event;
	int r;

	event.now_ns = sim.now;
	do {
		uint32_t last = JOBS_ACTIONS_MAX;

		r = jobs_step(&sim.jobs, &event, &actions);
		sim.n_steps++;
		jobs_assert_valid(&sim.jobs);
		for (uint32_t i = 0; i < actions.n; i++)
			last = actions.at[i].type == JOBS_ACTION_START ? i : last;
		if (r == 0 && event.type == JOBS_EVENT_SUBMIT)
			sim.programs[event.job].is_open = true;
		job_model_step(&sim.model, &sim.jobs, given, r, &actions);
		for (uint32_t i = 0; i < actions.n; i++)
			sim_on_action(&actions.at[i], i == last);
		event = (struct jobs_event){.type = JOBS_EVENT_TIME, .now_ns = sim.now};
		given = NULL;
	} while (r == 0 && jobs_deadline(&sim.jobs) <= sim.now); /* there was no room for more */
	for (uint32_t gpu = 0; gpu < sim.n_gpus; gpu++)
		sim.n_booked += sim.jobs.booked[gpu] != JOBS_NONE;
	return r;
}

static void sim_must(struct jobs_event event)
{
	int r = sim_step(event);

	assert(r == 0);
}

/* ---- users --------------------------------------------------------------------------- */

static struct jobs_event sim_any_job(uint32_t job, uint32_t owner)
{
	static const uint32_t priorities[] = {50, 50, 50, 0, 100, 51};
	struct jobs_event event = {.type = JOBS_EVENT_SUBMIT, .job = job};

	event.id = ++sim.last_id;
	event.since_ns = sim.now;
	event.owner = owner;
	event.priority = priorities[sim_below(sizeof(priorities) / sizeof(priorities[0]))];
	event.n_retries = (uint32_t)sim_below(3);
	event.limit_ns = sim_is_one_in(3) ? S + sim_below(300 * S) : 0;
	event.request = (struct jobs_request){
		.need = (1 + sim_below(sim_is_one_in(3) ? 90 : 30)) * GIB,
		.gpu = sim_is_one_in(4) ? (uint32_t)sim_below(sim.n_gpus) : PLACE_ANY,
		.is_whole = sim_is_one_in(3),
		/* No two owners have the same number. */
		.apart = sim_is_one_in(6) ? owner * 2 + 1 + sim_below(2) : 0,
	};
	if (sim.is_crowded) {
		event.request.gpu = PLACE_ANY;
		event.request.is_whole = !sim_is_one_in(8);
		event.request.need = (sim_is_one_in(8) ? 5 : 80) * GIB;
	}
	if (sim_is_one_in(8))
		event.request.is_whole = event.request.is_critical = true;
	if (sim_is_one_in(2))
		event.request.model.text[0] = (char)('a' + sim_below(4));
	if (sim_is_one_in(3)) {
		event.request.gang = 1 + sim_below(3);
		event.request.gang_size = 1 + (uint32_t)event.request.gang;
	}
	return event;
}

static uint32_t sim_any_owner(void)
{
	return (uint32_t)(sim_is_one_in(2) ? 0 : sim_below(sim.n_owners));
}

static void sim_submit(struct jobs_event event)
{
	int r;

	sim.programs[event.job] = (struct sim_job){.submitted = event, .next_ns = NEVER};
	r = sim_step(event);
	assert(r == 0 || r == JOBS_E_NEVER || r == JOBS_E_GPU || r == JOBS_E_GANG_NEVER);
	sim.n_submitted += r == 0;
}

/* A free slot, after old results were forgotten; JOBS_NONE: all are in use. */
static uint32_t sim_free_slot(void)
{
	for (uint32_t i = 0; i < sim.n_slots; i++) {
		if (jobs_state(&sim.jobs, i) == JOBS_DONE)
			sim_must((struct jobs_event){.type = JOBS_EVENT_FORGET, .job = i});
		if (jobs_state(&sim.jobs, i) == JOBS_FREE)
			return i;
	}
	return JOBS_NONE;
}

/* ---- programs ------------------------------------------------------------------------ */

static void sim_end_job(uint32_t job)
{
	static const enum jobs_end ends[] = {JOBS_END_SUCCESS, JOBS_END_SUCCESS, JOBS_END_FAILED,
					     JOBS_END_OOM, JOBS_END_LOST};
	struct jobs_event event = {.type = JOBS_EVENT_ENDED, .job = job};

	event.end = ends[sim_below(sim.has_faults ? 5 : 2)];
	if (event.end == JOBS_END_OOM && sim_is_one_in(2))
		event.need = (1 + sim_below(16)) * GIB;
	sim_must(event);
}

static void sim_program_step(uint32_t job)
{
	struct sim_job *p = &sim.programs[job];
	struct jobs_event event = {.type = JOBS_EVENT_PROGRAMS, .job = job};
	uint64_t need = p->submitted.request.need;

	if (p->is_killed || p->n_phases == 0 || (sim.has_faults && sim_is_one_in(20))) {
		sim_end_job(job);
		return;
	}
	p->next_ns = sim.now + sim_below(PHASE_NS);
	if (p->is_frozen || sim_is_one_in(3)) { /* a phase that is frozen counts when it is over */
		p->is_frozen = !p->is_frozen;
	} else {
		p->n_phases--;
	}
	if (!p->has_registered && sim_is_one_in(4))
		return; /* it does something else */
	p->has_registered = true;
	event.n_programs = (uint32_t)sim_below(3);
	if (event.n_programs > 0)
		event.footprint = sim_is_one_in(3) ? need : sim_below(need + need / 4);
	event.is_stopped = p->is_frozen;
	sim_must(event);
}

/* ---- faults and changes --------------------------------------------------------------- */

static void sim_tell_gpu(uint32_t gpu, bool is_other)
{
	struct jobs_event event = {.type = JOBS_EVENT_GPU, .gpu = gpu, .is_other = is_other};

	event.facts = sim.facts[gpu];
	sim_must(event);
}

static void sim_change_gpu(void)
{
	uint32_t gpu = (uint32_t)sim_below(sim.n_gpus);
	struct place_gpu *facts = &sim.facts[gpu];

	*facts = sim.gpus[gpu];
	if (sim_is_one_in(4))
		facts->is_out = true;
	else if (sim_is_one_in(8))
		*facts = (struct place_gpu){.is_known = false};
	if (facts->is_known) {
		facts->others = sim_below(3) * facts->total / 4;
		facts->critical = sim_is_one_in(4) ? facts->others : 0;
		facts->n_others = facts->others > 0;
		facts->degree = (uint32_t)sim_below(4);
		facts->external = sim_is_one_in(4) ? facts->total / 2 : 0;
		facts->utilization = (uint32_t)sim_below(101);
		facts->temperature = sim_is_one_in(5) ? PLACE_UNKNOWN : (uint32_t)sim_below(101);
		facts->idle_ns = sim_below(1000) * S;
	}
	sim_tell_gpu(gpu, sim_is_one_in(10));
}

static void sim_set_config(void)
{
	struct jobs_config *c = &sim.config;

	jobs_config_default(c);
	if (sim_is_one_in(4))
		place_config_default(PLACE_PRESET_SIMPLE, &c->place);
	c->pass_ns = sim_below(3) * 50 * S;
	c->age_ns = (1 + sim_below(4)) * 100 * S;
	c->reserve_ns = (1 + sim_below(60)) * S;
	c->limit_ns = (1 + sim_below(400)) * S;
	if (c->limit_ns > 300 * S)
		c->limit_ns = JOBS_NO_LIMIT;
	c->limit_max_ns = sim_is_one_in(2) ? 400 * S : c->limit_max_ns;
	c->grace_ns = sim_below(5) * S;
	c->retry_ns = sim_below(20) * S;
	c->place.turns_max = 1 + (uint32_t)sim_below(4);
	c->place.models_max = 1 + (uint32_t)sim_below(2);
	if (sim.has_faults && sim_is_one_in(4))
		c->place.reserved = 1u << sim_below(sim.n_gpus);
	if (sim.has_faults && sim_is_one_in(8))
		c->place.allowed = ~(1u << sim_below(sim.n_gpus));
	assert(!jobs_config_check(c));
}

static void sim_init_jobs(void)
{
	jobs_init(&sim.jobs, sim.slots, sim.n_slots, &sim.config);
	job_model_init(&sim.model, sim.n_slots, &sim.config);
}

/* The daemon writes down what it restores: who runs where, who waits since when. */
static void sim_restart(void)
{
	static struct jobs_status was[JOB_MODEL_JOBS];
	uint64_t order[JOB_MODEL_JOBS];
	uint32_t n = jobs_n_queued(&sim.jobs), n_resting = 0, n_queued = 0;

	sim.n_restarts++;
	for (uint32_t i = 0; i < n; i++)
		order[i] = sim.slots[jobs_at(&sim.jobs, i)].id;
	for (uint32_t i = 0; i < sim.n_slots; i++)
		jobs_status(&sim.jobs, i, sim.now, &was[i]);
	sim_init_jobs();
	for (uint32_t i = 0; i < sim.n_slots; i++) {
		struct sim_job *p = &sim.programs[i];
		struct jobs_event event = p->submitted;

		if (!p->is_open)
			continue;
		event.is_restored = true;
		event.request = was[i].request;
		event.n_retries = was[i].n_retries;
		event.counted_ns = was[i].counted_ns;
		event.limit_ns = was[i].limit_ns;
		n_resting += was[i].state == JOBS_RESTING;
		if (was[i].gpu != JOBS_NONE) {
			event.type = JOBS_EVENT_ADOPT;
			event.gpu = was[i].gpu;
		} else {
			event.counted_ns = 0;
		}
		sim_must(event);
		/* A stop that was under way begins anew: the daemon cancels again. */
		if (was[i].state == JOBS_STOPPING || was[i].state == JOBS_KILLED)
			sim_must((struct jobs_event){.type = JOBS_EVENT_CANCEL, .job = i});
	}
	for (uint32_t i = 0; i < jobs_n_queued(&sim.jobs); i++) {
		uint64_t id = sim.slots[jobs_at(&sim.jobs, i)].id;

		if (n_queued < n && order[n_queued] == id)
			n_queued++;
		else
			assert(n_resting-- > 0); /* it is queued at once */
	}
	assert(n_queued == n);
	for (uint32_t i = 0; i < sim.n_slots; i++) {
		if (sim.programs[i].is_open && was[i].gpu == JOBS_NONE && was[i].n_starts)
			sim_must((struct jobs_event){.type = JOBS_EVENT_TRIED, .job = i});
	}
	for (uint32_t gpu = 0; gpu < sim.n_gpus; gpu++)
		sim_tell_gpu(gpu, false);
}

static void sim_user_step(void)
{
	uint32_t job = (uint32_t)sim_below(sim.n_slots), slot;

	if (sim.has_faults && sim_is_one_in(12)) {
		sim_change_gpu();
	} else if (sim.has_faults && sim_is_one_in(100)) {
		sim_restart();
	} else if (sim_is_one_in(60)) {
		sim_set_config();
		sim_must((struct jobs_event){.type = JOBS_EVENT_CONFIG, .config = &sim.config});
	} else if (sim_is_one_in(8)) {
		int r = sim_step((struct jobs_event){.type = JOBS_EVENT_CANCEL, .job = job});

		assert(r == 0 || r == JOBS_E_NO_JOB);
	} else if ((slot = sim_free_slot()) != JOBS_NONE) {
		sim_submit(sim_any_job(slot, sim_any_owner()));
	}
}

/* ---- runs ------------------------------------------------------------------------------ */

/* The next program whose step is due by then; JOBS_NONE: none is. */
static uint32_t sim_next_program(uint64_t by_ns)
{
	uint32_t next = JOBS_NONE;

	for (uint32_t i = 0; i < sim.n_slots; i++) {
		if (sim.programs[i].next_ns <= by_ns) {
			by_ns = sim.programs[i].next_ns;
			next = i;
		}
	}
	return next;
}

/* A timer or a program's step, if one is due by then; false: none is. */
static bool sim_happen(uint64_t by_ns)
{
	uint64_t due_ns = jobs_deadline(&sim.jobs);
	uint32_t job = sim_next_program(by_ns);

	if (job == JOBS_NONE && due_ns > by_ns)
		return false;
	if (due_ns <= by_ns && (job == JOBS_NONE || due_ns <= sim.programs[job].next_ns)) {
		sim.now = due_ns > sim.now ? due_ns : sim.now;
		sim_must((struct jobs_event){.type = JOBS_EVENT_TIME});
		return true;
	}
	sim.now = sim.programs[job].next_ns;
	sim_program_step(job);
	return true;
}

static void sim_begin(uint64_t seed)
{
	memset(&sim, 0, sizeof(sim));
	sim.seed = sim.rng = seed;
	sim.has_faults = seed % 2;
	sim.n_gpus = 1 + (uint32_t)sim_below(4);
	sim.is_crowded = seed % 5 == 0;
	sim.n_slots = sim.is_crowded ? JOB_MODEL_JOBS : 4 + (uint32_t)sim_below(30);
	sim.n_owners = 1 + (uint32_t)sim_below(RICH);
	sim.start_ns = sim.now = 1000 * S;
	sim_set_config();
	sim_init_jobs();
	for (uint32_t i = 0; i < sim.n_slots; i++)
		sim.programs[i].next_ns = NEVER;
	for (uint32_t gpu = 0; gpu < sim.n_gpus; gpu++) {
		/* The first one takes every job, so that each can start in the end. */
		sim.gpus[gpu] = (struct place_gpu){
			.is_known = true,
			.total = (gpu == 0 ? 100 : 20 + sim_below(80)) * GIB,
			.reserve = sim_below(4) * GIB,
			.degree = (uint32_t)sim_below(4),
			.utilization = (uint32_t)sim_below(101),
		};
		sim.facts[gpu] = sim.gpus[gpu];
		sim_tell_gpu(gpu, false);
	}
}

static void sim_heal(void)
{
	sim.has_faults = false;
	sim_set_config();
	sim_must((struct jobs_event){.type = JOBS_EVENT_CONFIG, .config = &sim.config});
	for (uint32_t gpu = 0; gpu < sim.n_gpus; gpu++) {
		sim.facts[gpu] = sim.gpus[gpu];
		sim_tell_gpu(gpu, false);
	}
	/* A job for a card that was larger, or a need that a failure has raised. */
	for (uint32_t i = 0; i < sim.n_slots; i++) {
		struct jobs_status status;

		jobs_status(&sim.jobs, i, sim.now, &status);
		if (status.wait == JOBS_WAIT_PLACE && status.reason == PLACE_TOO_SMALL)
			sim_must((struct jobs_event){.type = JOBS_EVENT_CANCEL, .job = i});
	}
}

/*
 * Nobody submits what a gang lacks any more, and no GPU comes that it would need: its members give
 * up. All other gangs start.
 */
static void sim_give_up(void)
{
	for (uint32_t i = 0; i < sim.n_slots; i++) {
		if (job_model_is_stuck(&sim.model, i))
			sim_must((struct jobs_event){.type = JOBS_EVENT_CANCEL, .job = i});
	}
}

/*
 * Jobs of the highest priority and of a user who has none else come as often as slots get free.
 * Each of the others starts all the same: its owner's oldest one in a lane goes first after
 * age_ns, when those that go first before it have had a GPU each.
 */
static void sim_check_starvation(void)
{
	uint64_t queued = 0, bound_ns, rich_ns = sim.now;
	uint32_t n = 0;

	for (uint32_t i = 0; i < sim.n_slots; i++) {
		enum jobs_state state = jobs_state(&sim.jobs, i);

		if (state != JOBS_QUEUED)
			continue;
		queued |= 1ull << i;
		n++;
	}
	bound_ns = sim.now + (n + 1) * (sim.config.age_ns + sim.config.pass_ns + ON_NS);
	while (queued) {
		uint32_t slot;

		assert(sim.now < bound_ns);
		sim_give_up();
		slot = sim_free_slot();
		for (uint32_t i = 0; i < sim.n_slots; i++) {
			if (jobs_state(&sim.jobs, i) != JOBS_QUEUED)
				queued &= ~(1ull << i);
		}
		if (slot != JOBS_NONE && sim.now >= rich_ns) {
			struct jobs_event event = sim_any_job(slot, RICH);

			event.priority = JOBS_PRIORITY_MAX;
			event.request.is_whole = event.request.is_critical = false;
			event.request.gpu = PLACE_ANY;
			event.request.need = GIB;
			event.request.gang = 0;
			event.request.gang_size = 0;
			sim_submit(event);
			rich_ns = sim.now + sim_below(10 * S);
			continue;
		}
		if (!sim_happen(slot == JOBS_NONE ? NEVER - 1 : rich_ns)) {
			assert(slot != JOBS_NONE); /* else all wait, and nothing will ever happen */
			sim.now = rich_ns;
		}
	}
}

static void sim_check_end(void)
{
	uint64_t bound_ns = sim.now + (sim.n_slots + 1) * (ON_NS + sim.config.pass_ns) +
			    sim.n_slots * sim.config.age_ns;

	while (sim_happen(NEVER - 1)) {
		assert(sim.now < bound_ns);
		sim_give_up();
	}
	assert(sim.n_done == sim.n_submitted);
	assert(jobs_n_queued(&sim.jobs) == 0);
	for (uint32_t gpu = 0; gpu < PLACE_GPUS_MAX; gpu++) {
		assert(sim.jobs.place.gpu[gpu].load.charged == 0);
		assert(jobs_n_on(&sim.jobs, gpu) == 0);
	}
}

static uint64_t sim_run(uint64_t seed)
{
	sim_begin(seed);
	while (sim.now < sim.start_ns + RUN_NS) {
		uint64_t user_ns = sim.now + sim_below(20 * S);

		while (sim_happen(user_ns))
			;
		sim.now = user_ns;
		sim_user_step();
	}
	sim_heal();
	sim_check_starvation();
	sim_check_end();
	mix(&sim.hash, sim.n_steps);
	return sim.hash;
}

int main(int argc, char **argv)
{
	uint64_t first = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
	uint64_t n = argc > 2 ? strtoull(argv[2], NULL, 10) : 100;
	uint64_t n_steps = 0, n_started = 0, n_members = 0, n_turns = 0, n_booked = 0,
		 n_restarts = 0;

	(void)signal(SIGABRT, sim_on_abort);
	printf("sim_jobs: seeds %" PRIu64 " to %" PRIu64 "\n", first, first + n - 1);
	(void)fflush(stdout);
	for (uint64_t seed = first; seed < first + n; seed++) {
		uint64_t hash = sim_run(seed);

		if (sim_run(seed) != hash)
			abort();
		n_steps += sim.n_steps;
		n_started += sim.n_started;
		n_members += sim.n_members;
		n_turns += sim.n_turns;
		n_booked += sim.n_booked;
		n_restarts += sim.n_restarts;
	}
	printf("sim_jobs: ok, %" PRIu64 " steps, %" PRIu64 " starts, %" PRIu64
	       " of them of gangs, %" PRIu64 " by turns, %" PRIu64 " bookings held, %" PRIu64
	       " restarts\n",
	       n_steps, n_started, n_members, n_turns, n_booked, n_restarts);
	return 0;
}
