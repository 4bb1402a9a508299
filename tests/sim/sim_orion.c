/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Orion's policy with simulated threads and a plain model of a GPU: a stream for each client, which
 * executes one operation after the other. One seed decides everything and is printed first; each
 * run is made twice and must be the same. Threads submit alone or in a row, give up, end, fail to
 * submit; durations are not what they were taken for; the latency changes. Checked all the time,
 * with sums of this file's own:
 *
 * - the policy's own invariants;
 * - an operation of high priority never waits;
 * - each best-effort operation that goes keeps the thresholds, and its class complements, unless it
 *   has waited for patience and goes when nothing of best effort is in flight;
 * - the GPU is not kept from best effort: no operation waits that could go alone while nothing of
 *   best effort is in flight, and none waits while high priority is not present;
 * - after patience each other client is served for a bounded time before the operation goes;
 * - clients that always want the GPU have equal times;
 * - the counters add up.
 *
 *     sim_orion SEED SEEDS
 */

#include "core/orion/orion_policy.h"
#include "mix.h"
#include "util/prng.h"

#include <assert.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define US      1000ull
#define MS      1000000ull
#define S       1000000000ull
#define NEVER   UINT64_MAX
#define CLIENTS 12u
#define DEPTH   16u /* operations of a client in flight */
#define KERNELS 24u /* that a run's operations are taken from */
#define STEPS   20000u

/* How a run's best-effort clients behave. */
enum sim_kind {
	SIM_MIXED,  /* with faults, and high priority comes and goes */
	SIM_GREEDY, /* all want the GPU always; high priority never keeps an operation back alone */
	SIM_IDLE,   /* the same, with long kernels; high priority is idle and present */
	SIM_KIND_COUNT_
};

struct sim_flight {
	struct orion_policy_op op;
	uint64_t start_ns, end_ns; /* on the GPU */
};

struct sim_client {
	struct sim_flight flights[DEPTH]; /* a ring */
	uint32_t first, n;
	uint64_t next_ns; /* when it asks; NEVER: first something completes, or its wait ends */
	uint32_t depth;   /* so many in flight at most */
	uint32_t n_left;  /* HP: operations of the request */
	bool is_waiting, is_overdue;
	struct orion_policy_op op; /* that waits */
	uint64_t asked_ns;
	uint64_t served_ns;
	/* While a client is overdue, what each client has got since. */
	uint64_t since[CLIENTS];
};

static struct {
	uint64_t seed, rng, now, hash;
	enum sim_kind kind;
	bool is_hp_ended;
	struct orion_policy_config config;
	struct orion_policy policy;
	struct orion_policy_op kernels[KERNELS];
	struct sim_client clients[CLIENTS];
	struct orion_policy_load be;
	uint64_t hp_until_ns, op_ns_max, patience_ns_max;
	uint64_t due_ns, due_alone_ns; /* of best effort in flight; of a single operation */
	uint64_t n_steps, n_hp, n_be, n_rejected, n_overdue, n_beside, wait_ns;
} sim;

static void sim_on_abort(int number)
{
	(void)number;
	printf("sim_orion: failed: SEED=%" PRIu64 " at %" PRIu64 " us, step %" PRIu64 "\n",
	       sim.seed, sim.now / 1000, sim.n_steps);
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

static uint64_t sim_min(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static uint64_t sim_max(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* ---- what the policy must do, said anew ------------------------------------------- */

static uint64_t sim_taken(const struct orion_policy_op *op)
{
	return op->is_known ? sim_max(op->duration_ns, US) : sim.config.unknown_ns;
}

static uint64_t sim_sms_max(void)
{
	return (uint64_t)sim.config.n_sms * sim.config.sm_threshold_ppm / 1000000;
}

static uint64_t sim_ns_max(void)
{
	return sim.config.hp_latency_ns * sim.config.dur_threshold_ppm / 1000000;
}

static uint64_t sim_idle_ns_max(void)
{
	return sim_max(sim_ns_max(), sim.config.hp_latency_ns * sim.config.depth_ppm / 1000000);
}

static uint64_t sim_patience(void)
{
	return sim.config.patience_ns > 0 ? sim.config.patience_ns : 10 * sim.config.hp_latency_ns;
}

static bool sim_is_overdue(const struct sim_client *c)
{
	return sim.now - c->asked_ns >= sim_patience();
}

static bool sim_is_conflict(const struct orion_policy_op *op)
{
	const struct sim_client *hp = &sim.clients[0];

	return sim.config.is_interference_aware && op->class != KERNEL_CLASS_UNKNOWN &&
	       hp->flights[hp->first].op.class == op->class;
}

/* The thresholds, with so much of best effort in flight, op included. */
static bool sim_is_within(const struct orion_policy_load *be)
{
	if (sim.clients[0].n > 0)
		return be->sms <= sim_sms_max() && be->ns <= sim_ns_max();
	return sim.now >= sim.hp_until_ns || be->n == 1 || be->ns <= sim_idle_ns_max() ||
	       (be->n == 2 && sim.due_alone_ns <= sim.now + sim.config.lead_ns);
}

static bool sim_could_go_alone(const struct sim_client *c)
{
	struct orion_policy_load alone = {1, c->op.sms, sim_taken(&c->op)};

	return sim_is_overdue(c) ||
	       (sim_is_within(&alone) && (sim.clients[0].n == 0 || !sim_is_conflict(&c->op)));
}

/* ---- one step -------------------------------------------------------------------------- */

static void sim_submit(uint32_t client, struct orion_policy_op op)
{
	struct sim_client *c = &sim.clients[client];
	struct sim_flight *last = &c->flights[(c->first + c->n - 1) % DEPTH];
	struct sim_flight *flight = &c->flights[(c->first + c->n) % DEPTH];
	uint64_t ns = sim_taken(&op);

	assert(c->n < DEPTH);
	if (sim.kind == SIM_MIXED)
		ns = sim_is_one_in(20) ? sim_below(5 * MS) : ns / 2 + sim_below(ns);
	else
		ns = ns - ns / 16 + sim_below(ns / 8 + 1);
	flight->op = op;
	flight->start_ns = c->n > 0 ? sim_max(last->end_ns, sim.now) : sim.now;
	flight->end_ns = flight->start_ns + ns;
	c->n++;
}

/* client goes. Another one that is overdue has waited for it. */
static void sim_go(uint32_t client)
{
	struct sim_client *c = &sim.clients[client];
	uint64_t ns = sim_taken(&c->op);

	sim.be.n++;
	sim.be.sms += c->op.sms;
	sim.be.ns += ns;
	sim.due_ns = sim_max(sim.due_ns, sim.now) + ns;
	sim.n_be++;
	sim.n_overdue += sim_is_overdue(c);
	sim.n_beside += sim.clients[0].n > 0;
	sim.wait_ns += sim.now - c->asked_ns;
	c->is_waiting = c->is_overdue = false;
	for (uint32_t i = 1; i < sim.config.n_clients; i++)
		sim.clients[i].since[client] += ns;
	sim_submit(client, c->op);
	c->next_ns = c->n < c->depth ? sim.now + (sim.kind == SIM_MIXED ? sim_below(20 * US) : 0)
				     : NEVER;
}

/*
 * Those that go, all at once. One of them may break the rules if it is overdue and nothing was in
 * flight; the others keep the thresholds beside it.
 */
static void sim_check_go(uint64_t go)
{
	uint64_t n_before = sim.be.n, n_go = (uint64_t)__builtin_popcountll(go), n_conflicts = 0;
	bool has_overdue = false, is_drained;

	/* If two go, then the shorter one may have been the first. */
	sim.due_alone_ns = n_before == 0 ? NEVER : sim.due_ns;
	for (uint32_t i = 1; i < sim.config.n_clients; i++) {
		const struct sim_client *c = &sim.clients[i];

		if (!(go >> i & 1))
			continue;
		assert(c->is_waiting);
		has_overdue = has_overdue || sim_is_overdue(c);
		if (n_before == 0)
			sim.due_alone_ns = sim_min(sim.due_alone_ns, sim.now + sim_taken(&c->op));
		if (sim.clients[0].n > 0 && sim_is_conflict(&c->op)) {
			n_conflicts++;
			assert(sim_is_overdue(c));
		}
		sim_go(i);
	}
	is_drained = n_before == 0 && has_overdue;
	assert(n_conflicts == 0 || (n_conflicts == 1 && is_drained));
	assert(n_go == 0 || sim_is_within(&sim.be) || (n_go == 1 && is_drained));
}

static void sim_check_waiting(void)
{
	uint64_t n_clients = sim.config.n_clients;

	for (uint32_t i = 1; i < n_clients; i++) {
		struct sim_client *c = &sim.clients[i];

		assert(c->is_waiting == (sim.policy.waiting >> i & 1));
		if (!c->is_waiting)
			continue;
		assert(sim.clients[0].n > 0 || sim.now < sim.hp_until_ns);
		assert(sim.be.n > 0 || !sim_could_go_alone(c));
		if (!c->is_overdue) {
			memset(c->since, 0, sizeof(c->since));
			c->since[i] = sim.policy.clients[i].load.ns;
		}
		c->is_overdue = sim_is_overdue(c); /* no more when the latency has grown */
		/* since[i] delays it: its own in flight, and what these took longer. */
		for (uint32_t k = 1; k < n_clients && c->is_overdue; k++)
			assert(k == i || c->since[k] <= 2 * sim.patience_ns_max + c->since[i] +
								sim.op_ns_max);
	}
}

static void sim_check_counters(void)
{
	const struct orion_policy_counters *c = &sim.policy.counters;

	assert(c->hp_ops_scheduled == sim.n_hp);
	assert(c->be_ops_scheduled == sim.n_be);
	assert(c->be_ops_rejected == sim.n_rejected);
	assert(c->total_wait_ns == sim.wait_ns);
	assert(sim.policy.be.n == sim.be.n && sim.policy.be.sms == sim.be.sms);
	assert(sim.policy.be.ns == sim.be.ns);
}

static uint64_t sim_step(struct orion_policy_event event)
{
	uint64_t go = 0;
	int r;

	/* Threads read the clock before they get the lock, so times may come out of order. */
	event.now_ns = sim.now - (sim.now == sim.policy.now_ns ? sim_below(US) : 0);
	r = orion_policy_step(&sim.policy, &event, &go);
	assert(r == 0);
	assert(sim.now == sim.policy.now_ns);
	sim.n_steps++;
	sim_check_go(go & ~1ull);
	if (event.type == ORION_POLICY_EVENT_ASK && event.client > 0)
		sim.n_rejected += sim.clients[event.client].is_waiting;
	sim_check_waiting();
	sim_check_counters();
	orion_policy_assert_valid(&sim.policy);
	mix(&sim.hash, go);
	mix(&sim.hash, sim.now);
	mix(&sim.hash, sim.policy.floor_ns);
	return go;
}

static void sim_must_refuse(struct orion_policy_event event, int expected)
{
	uint64_t go = 99;
	int r;

	event.now_ns = sim.now;
	r = orion_policy_step(&sim.policy, &event, &go);
	assert(r == expected && go == 99);
	orion_policy_assert_valid(&sim.policy);
}

/* ---- threads ----------------------------------------------------------------------------- */

static struct orion_policy_op sim_any_op(void)
{
	return sim.kernels[sim_below(KERNELS)];
}

static void sim_hp_ask(void)
{
	struct sim_client *hp = &sim.clients[0];
	struct orion_policy_op op = sim_any_op();
	uint64_t go;

	if (hp->n_left == 0)
		hp->n_left = 1 + (uint32_t)sim_below(40);
	hp->n_left--;
	sim.n_hp++;
	sim.is_hp_ended = false;
	sim_submit(0, op);
	go = sim_step((struct orion_policy_event){.type = ORION_POLICY_EVENT_ASK, .op = op});
	assert(go & 1);
	hp->next_ns = hp->n == DEPTH - 1 ? NEVER : sim.now + sim_below(10 * US);
	if (hp->n_left == 0)
		hp->next_ns =
			sim.now +
			sim_below(sim.kind == SIM_MIXED && sim_is_one_in(10) ? 3 * S : 20 * MS);
	if (sim.kind == SIM_IDLE)
		hp->next_ns = sim.now + sim.config.presence_ns / 2;
}

static void sim_be_ask(uint32_t client)
{
	struct sim_client *c = &sim.clients[client];

	c->is_waiting = true;
	c->asked_ns = sim.now;
	c->next_ns = NEVER;
	c->op = sim_any_op();
	(void)sim_step((struct orion_policy_event){
		.type = ORION_POLICY_EVENT_ASK, .client = client, .op = c->op});
}

static void sim_end_wait(struct sim_client *c, uint64_t ns)
{
	if (!c->is_waiting)
		return;
	c->is_waiting = c->is_overdue = false;
	sim.wait_ns += sim.now - c->asked_ns;
	c->next_ns = sim.now + sim_below(ns);
}

static void sim_complete(uint32_t client)
{
	struct sim_client *c = &sim.clients[client];
	struct sim_flight flight = c->flights[c->first];
	struct orion_policy_event event = {
		.type = ORION_POLICY_EVENT_COMPLETE, .client = client, .op = flight.op};
	uint64_t taken = sim_taken(&flight.op), ns = flight.end_ns - flight.start_ns;

	if (sim.kind == SIM_MIXED && sim_is_one_in(50))
		ns = 0; /* it failed before it was submitted */
	event.measured_ns = ns;
	if (sim.kind == SIM_MIXED && sim_is_one_in(4)) {
		event.measured_ns = ORION_POLICY_UNMEASURED;
		ns = taken;
	}
	c->first = (c->first + 1) % DEPTH;
	c->n--;
	c->served_ns += ns;
	if (client == 0) {
		if (c->n == 0)
			sim.hp_until_ns = sim.is_hp_ended ? 0 : sim.now + sim.config.presence_ns;
	} else {
		sim.be.n--;
		sim.be.sms -= flight.op.sms;
		sim.be.ns -= taken;
		sim.due_ns = sim.now + sim.be.ns;
		for (uint32_t i = 1; i < sim.config.n_clients; i++) {
			uint64_t *since = &sim.clients[i].since[client];

			if (i == client)
				*since += ns > taken ? ns - taken : 0;
			else
				*since -= sim_min(*since, taken > ns ? taken - ns : 0);
		}
	}
	if (!c->is_waiting && c->next_ns == NEVER)
		c->next_ns = sim.now + (sim.kind == SIM_MIXED ? sim_below(50 * US) : 0);
	(void)sim_step(event);
}

/* ---- faults and changes --------------------------------------------------------------------- */

static void sim_fault(void)
{
	uint32_t client = 1 + (uint32_t)sim_below(sim.config.n_clients - 1);
	struct sim_client *c = &sim.clients[client];
	struct orion_policy_event event = {.client = client};

	switch (sim_below(5)) {
	case 0:
		event.type = ORION_POLICY_EVENT_GIVE_UP;
		if (!c->is_waiting) {
			sim_must_refuse(event, ORION_POLICY_E_STATE);
			return;
		}
		sim_end_wait(c, MS);
		break;
	case 1:
		event.type = ORION_POLICY_EVENT_END;
		sim_end_wait(c, S);
		break;
	case 2:
		event.type = ORION_POLICY_EVENT_LATENCY;
		event.hp_latency_ns = sim.config.hp_latency_ns = (1 + sim_below(40)) * MS;
		sim.patience_ns_max = sim_max(sim.patience_ns_max, sim_patience());
		break;
	case 3:
		event = (struct orion_policy_event){.type = ORION_POLICY_EVENT_END};
		sim.is_hp_ended = true;
		sim.hp_until_ns = 0;
		sim.clients[0].n_left = 0;
		sim.clients[0].next_ns = sim.now + sim_below(S / 10);
		break;
	default:
		event.type = ORION_POLICY_EVENT_ASK;
		event.op.class = KERNEL_CLASS_COUNT_;
		sim_must_refuse(event, c->is_waiting ? ORION_POLICY_E_STATE : ORION_POLICY_E_VALUE);
		return;
	}
	(void)sim_step(event);
}

/* ---- runs --------------------------------------------------------------------------------------
 */

static void sim_set_config(void)
{
	struct orion_policy_config *c = &sim.config;

	orion_policy_config_default(c);
	c->n_clients = 2 + (uint32_t)sim_below(CLIENTS - 1);
	c->n_sms = 20 + (uint32_t)sim_below(200);
	c->hp_latency_ns = (1 + sim_below(40)) * MS;
	if (sim.kind == SIM_MIXED) {
		c->sm_threshold_ppm = (uint32_t)sim_below(1000001);
		c->dur_threshold_ppm = (uint32_t)sim_below(100000);
		c->depth_ppm = (uint32_t)sim_below(200000);
		c->is_interference_aware = !sim_is_one_in(3);
		c->patience_ns = sim_is_one_in(2) ? (1 + sim_below(50)) * MS : 0;
		c->unknown_ns = (1 + sim_below(2000)) * US;
		c->presence_ns = sim_below(200) * MS;
		c->lead_ns = sim_below(100) * US;
	}
	assert(!orion_policy_config_check(c));
	sim.patience_ns_max = sim_patience();
}

static struct orion_policy_op sim_any_kernel(void)
{
	struct orion_policy_op op = {.is_known = true};

	if (sim.kind == SIM_MIXED) {
		op.sms = (uint32_t)sim_below(sim.config.n_sms + 1);
		op.is_known = !sim_is_one_in(6);
		op.class = (enum kernel_class)sim_below(KERNEL_CLASS_COUNT_);
		op.duration_ns = 2 * US + sim_below(sim_is_one_in(4) ? 5 * MS : 300 * US);
		op.duration_ns = op.is_known ? op.duration_ns : 0;
	} else if (sim.kind == SIM_GREEDY) {
		op.sms = (uint32_t)sim_below(sim_sms_max() + 1);
		op.duration_ns = sim_max(sim_ns_max() / (1 + sim_below(20)), US);
	} else {
		op.sms = sim.config.n_sms;
		op.duration_ns = sim_ns_max() + sim_below(sim_patience() / 2);
	}
	return op;
}

static void sim_begin(uint64_t seed)
{
	memset(&sim, 0, sizeof(sim));
	sim.seed = sim.rng = seed;
	sim.now = 1000 * S;
	sim.kind = (enum sim_kind)(seed % 2 ? SIM_MIXED : 1 + seed / 2 % 2);
	sim_set_config();
	orion_policy_init(&sim.policy, &sim.config);
	for (uint32_t i = 0; i < KERNELS; i++) {
		sim.kernels[i] = sim_any_kernel();
		sim.op_ns_max = sim_max(sim.op_ns_max, sim_taken(&sim.kernels[i]));
	}
	for (uint32_t i = 0; i < sim.config.n_clients; i++) {
		sim.clients[i].depth = 1 + (uint32_t)sim_below(DEPTH - 1);
		sim.clients[i].next_ns = sim.now + (sim.kind == SIM_MIXED ? sim_below(S) : 0);
		/* One that waits for its own operation would leave its turn to others. */
		if (sim.kind != SIM_MIXED)
			sim.clients[i].depth = DEPTH - 1;
	}
}

/* All of them want the GPU all the time. They differ by what one has in flight, and an operation.
 */
static void sim_check_fairness(void)
{
	uint64_t least = NEVER, most = 0;

	for (uint32_t i = 1; i < sim.config.n_clients; i++) {
		least = sim_min(least, sim.clients[i].served_ns);
		most = sim_max(most, sim.clients[i].served_ns);
	}
	if (sim.kind != SIM_MIXED)
		assert(most - least <= 3 * sim_max(sim.op_ns_max, sim_idle_ns_max()));
}

/* When something changes for those that wait though nothing happens. */
static uint64_t sim_due(void)
{
	uint64_t due_ns = NEVER;

	for (uint32_t i = 1; i < sim.config.n_clients; i++) {
		const struct sim_client *c = &sim.clients[i];

		if (c->is_waiting && sim.clients[0].n == 0)
			due_ns = sim.be.n != 1 ? sim.hp_until_ns
					       : sim_min(sim.hp_until_ns,
							 sim.due_ns - sim.config.lead_ns);
		else if (c->is_waiting && sim.be.n == 0)
			due_ns = sim_min(due_ns, c->asked_ns + sim_patience());
	}
	return due_ns;
}

/* The next thing that happens. */
static void sim_happen(void)
{
	uint64_t next_ns = orion_policy_deadline(&sim.policy);
	uint32_t asks = CLIENTS, completes = CLIENTS;

	assert(next_ns == sim_due());
	for (uint32_t i = 0; i < sim.config.n_clients; i++) {
		const struct sim_client *c = &sim.clients[i];

		if (c->n > 0 && c->flights[c->first].end_ns < next_ns) {
			next_ns = c->flights[c->first].end_ns;
			completes = i;
			asks = CLIENTS;
		}
		if (!c->is_waiting && c->n < DEPTH - 1 && c->next_ns < next_ns) {
			next_ns = c->next_ns;
			asks = i;
		}
	}
	sim.now = sim_max(sim.now, next_ns);
	if (asks < CLIENTS && asks > 0)
		sim_be_ask(asks);
	else if (asks == 0)
		sim_hp_ask();
	else if (completes < CLIENTS)
		sim_complete(completes);
	else
		(void)sim_step((struct orion_policy_event){.type = ORION_POLICY_EVENT_TIME});
}

static uint64_t sim_run(uint64_t seed)
{
	sim_begin(seed);
	while (sim.n_steps < STEPS) {
		if (sim.kind == SIM_MIXED && sim_is_one_in(100))
			sim_fault();
		else
			sim_happen();
		if (sim.n_steps > 100)
			sim_check_fairness();
	}
	for (uint32_t i = 0; i < sim.config.n_clients; i++) {
		assert(sim.policy.clients[i].served_ns == sim.clients[i].served_ns);
		mix(&sim.hash, sim.policy.clients[i].tag_ns);
	}
	return sim.hash;
}

int main(int argc, char **argv)
{
	uint64_t first = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
	uint64_t n = argc > 2 ? strtoull(argv[2], NULL, 10) : 100;
	uint64_t n_hp = 0, n_be = 0, n_beside = 0, n_rejected = 0, n_overdue = 0;

	(void)signal(SIGABRT, sim_on_abort);
	printf("sim_orion: seeds %" PRIu64 " to %" PRIu64 "\n", first, first + n - 1);
	(void)fflush(stdout);
	for (uint64_t seed = first; seed < first + n; seed++) {
		uint64_t hash = sim_run(seed);

		if (sim_run(seed) != hash)
			abort();
		n_hp += sim.n_hp;
		n_be += sim.n_be;
		n_beside += sim.n_beside;
		n_rejected += sim.n_rejected;
		n_overdue += sim.n_overdue;
	}
	printf("sim_orion: ok, %" PRIu64 " high-priority operations, %" PRIu64
	       " best-effort ones, %" PRIu64 " of them beside high priority, %" PRIu64
	       " waited, %" PRIu64 " for longer than patience\n",
	       n_hp, n_be, n_beside, n_rejected, n_overdue);
	return 0;
}
