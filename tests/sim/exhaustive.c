/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Every interleaving of three clients on one small card, or of two gangs and a single client on two
 * (WORLD_GANGS), to a depth: each message may
 * arrive, each piece of work end or fail, each program want, take, free, idle, die or
 * lose its connection at every moment, and time may jump to the next deadline. All of
 * world_check() and of the core's invariants hold in every state; nobody is left
 * waiting with nothing under way; and from a sample of the states everybody is served
 * once the faults end.
 *
 * States that differ only in names of numbers (epochs, grants, absolute times) are one.
 */

#include "mix.h"
#include "seen.h"
#include "world_client.h"

#include <assert.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define S         UINT64_C(1000000000)
#define UNIT      1024u
#define CARD      (4 * UNIT)
#define OWN_MAX   (3 * UNIT)
#define ROUNDS    400
#define PATH_MAX_ 256

enum move {
	MOVE_UP,
	MOVE_DOWN,
	MOVE_DONE,
	MOVE_FAIL,
	MOVE_PROGRESS,
	MOVE_WANT,
	MOVE_ALLOC,
	MOVE_PIN,
	MOVE_FREE,
	MOVE_REPORT,
	MOVE_IDLE,
	MOVE_KILL,
	MOVE_BREAK,
	MOVE_LOST,
	MOVE_REGISTER,
	MOVE_ALONE,
	MOVE_TIME,
	MOVE_COUNT
};

static const char *const move_names[MOVE_COUNT] = {"message to the scheduler",
						   "message to the client",
						   "work ends",
						   "work fails",
						   "has moved a part",
						   "wants",
						   "allocates",
						   "allocates pinned",
						   "frees",
						   "reports",
						   "is idle",
						   "dies",
						   "connection breaks",
						   "hears that it broke",
						   "registers",
						   "goes on alone",
						   "time passes"};

struct node {
	struct world world;
	uint32_t n_faults; /* still allowed */
};

static uint64_t n_moves, n_served;
static struct {
	enum move move;
	uint32_t p;
} path[PATH_MAX_];
static uint32_t path_len;

/* ---- what makes two states one --------------------------------------------- */

static uint64_t same_grant(const struct sched_client *c, uint64_t grant)
{
	return grant == 0 ? 0 : grant == c->grant ? 1 : 2;
}

static void mix_queue(uint64_t *hash, const struct sched_client *c, const struct world_queue *queue)
{
	mix(hash, queue->n);
	for (uint32_t i = 0; i < queue->n; i++) {
		const struct world_msg *m = &queue->at[i];

		mix(hash, m->type | (uint64_t)m->outcome << 8 | (uint64_t)m->wants << 16 |
				  (uint64_t)m->is_running << 17 | (uint64_t)m->is_part << 18);
		mix(hash, same_grant(c, m->grant));
		mix(hash, c->epoch - m->epoch);
		mix(hash, m->budget);
		mix(hash, m->bytes);
		mix(hash, m->moved);
		mix_memory(hash, &m->memory);
	}
}

static void mix_proc(uint64_t *hash, const struct world *world, uint32_t p)
{
	const struct world_proc *proc = &world->procs[p];
	const struct sched_client *c = &world->clients[p];

	mix(hash, proc->is_alive | proc->is_joined << 1 | proc->is_linked << 2 |
			  proc->is_watched << 3 | proc->is_at_gate << 4 | proc->has_begun << 5 |
			  proc->is_open << 6 | proc->is_lack_pinned << 7 | proc->is_cut << 8);
	mix(hash, proc->work | (uint64_t)proc->lease.state << 8 | (uint64_t)proc->lease.work << 16 |
			  (uint64_t)proc->lease.outcome << 24);
	mix(hash, proc->budget);
	mix(hash, proc->lease.budget);
	mix(hash, proc->lease.drop_bytes);
	mix(hash, proc->lease.has_freed | proc->lease.is_used_up << 1);
	mix(hash, same_grant(c, proc->lease.grant));
	mix(hash, proc->is_linked ? c->epoch - proc->lease.epoch : 0);
	mix(hash, proc->resident);
	mix(hash, proc->swapped);
	mix(hash, proc->pinned);
	mix(hash, proc->second);
	mix(hash, proc->lack);
	mix(hash, proc->work_bytes);
	mix(hash, proc->moved);
	mix_queue(hash, c, &proc->up);
	mix_queue(hash, c, &proc->down);
}

static void mix_gpu(uint64_t *hash, const struct world *world, uint32_t gpu)
{
	const struct sched_gpu *g = &world->sched.gpus[gpu];
	uint64_t now = world->now;

	if (world->config.moving_percent > 0) {
		mix_list(hash, world->clients, &g->woken, SCHED_LINK_WOKEN);
		mix(hash, (uint64_t)g->moving_ns);
		mix(hash, now % 10000000000);
	}
	for (int place = SCHED_PLACE_NONE + 1; place < SCHED_PLACE_COUNT_; place++)
		mix_list(hash, world->clients, &g->place[place], SCHED_LINK_PLACE);
	mix_list(hash, world->clients, &g->queue, SCHED_LINK_LINE);
	mix_list(hash, world->clients, &g->coming, SCHED_LINK_LINE);
	mix_forecast(hash, now, world->clients, &g->forecast);
	mix(hash, g->is_dirty | g->is_prepared << 1 | g->is_overcommitted << 2 | g->is_ahead << 3);
	mix(hash, g->head);
	mix(hash, g->restoring);
	mix(hash, g->external);
	mix(hash, mix_ahead(now, g->wake_ns));
}

static void mix_gang(uint64_t *hash, const struct world *world, uint32_t p)
{
	const struct sched_client *c = &world->clients[p];
	const struct sched_gang *g = &c->gang_here;

	mix(hash, c->gang);
	mix(hash, c->is_called | c->is_called_off << 1 | c->is_ready << 2 | c->drains << 3 |
			  c->is_behind << 4 | c->is_held << 5);
	mix(hash, g->has_had | g->is_bound << 1 | g->is_apart << 2 | g->is_lacking << 3 |
			  g->is_off << 4 | g->is_changed << 5 | g->is_due << 6 |
			  g->is_yielding << 7 | g->makes_way << 8);
	mix(hash, g->gpus);
	mix(hash, g->is_due ? g->due.prev : SCHED_NONE);
	mix_list(hash, world->clients, &g->members, SCHED_LINK_GANG);
}

static uint64_t hash_of(const struct node *node)
{
	const struct world *world = &node->world;
	uint64_t hash = node->n_faults, now = world->now;

	for (uint32_t p = 0; p < WORLD_PROCS; p++) {
		mix_client(&hash, now, &world->clients[p]);
		mix_policy(&hash, &world->sched, &world->clients[p]);
		mix_proc(&hash, world, p);
		if (world->config.moving_percent > 0)
			mix_sleeper(&hash, &world->sched, &world->clients[p]);
	}
	for (uint32_t gpu = 0; gpu < WORLD_GPUS; gpu++)
		mix_gpu(&hash, world, gpu);
	for (uint32_t p = 0; world->has_gangs && p < WORLD_PROCS; p++)
		mix_gang(&hash, world, p);
	mix(&hash, world->is_strict | world->may_overlap << 1);
	for (uint32_t p = 0; world->has_users && p < WORLD_PROCS; p++) {
		if (world->clients[p].state != SCHED_CLIENT_FREE)
			mix_owner(&hash, &world->sched, &world->clients[p]);
		for (uint32_t i = 0; i < WORLD_OWNERS; i++)
			mix(&hash, world->n_passed[world->procs[p].gpu][world->procs[p].owner][i]);
	}
	return hash;
}

/* ---- moves ------------------------------------------------------------------- */

static bool wants(const struct world_proc *proc)
{
	return proc->is_alive && (proc->is_at_gate || proc->lack > 0);
}

/* The scheduler knows what p has. */
static bool is_known(const struct world *world, uint32_t p)
{
	const struct world_proc *proc = &world->procs[p];
	const struct sched_memory *m = &world->clients[p].memory;

	return m->resident == proc->resident && m->swapped == proc->swapped &&
	       m->pinned == proc->pinned;
}

/* The moves below return false when they are not possible in this state. */

static bool move_program(struct world *world, enum move move, uint32_t p)
{
	struct world_proc *proc = &world->procs[p];

	if (!proc->is_linked || proc->work != WORLD_WORK_NONE)
		return false;
	if (move == MOVE_WANT && !proc->is_at_gate) {
		proc->is_at_gate = true;
		world_want(world, p);
		return true;
	}
	if ((move == MOVE_ALLOC || (move == MOVE_PIN && proc->pinned == 0)) && proc->lack == 0 &&
	    proc->owned + proc->pinned < OWN_MAX) {
		world_alloc(world, p, move == MOVE_PIN ? UNIT / 2 : UNIT, move == MOVE_PIN);
		return true;
	}
	if (move == MOVE_FREE && proc->owned > 0) {
		world_free(world, p, UNIT);
		world_return_slack(world, p);
		return true;
	}
	if (move == MOVE_REPORT && proc->up.n == 0 && proc->down.n == 0 && !is_known(world, p)) {
		world_report(world, p);
		return true;
	}
	if (move == MOVE_IDLE && proc->is_watched && proc->lack == 0 &&
	    proc->lease.state == LEASE_HOLDING) {
		proc->is_at_gate = false;
		return world_lease(world, p, (struct lease_event){.type = LEASE_EVENT_IDLE}) == 0;
	}
	return false;
}

static bool move_link(struct world *world, enum move move, uint32_t p)
{
	struct world_proc *proc = &world->procs[p];

	if (move == MOVE_KILL && proc->is_alive && proc->is_joined) {
		world_kill(world, p);
		world_gone(world, p);
		return true;
	}
	if (move == MOVE_BREAK && proc->is_alive && proc->is_joined && proc->is_linked) {
		world->is_strict = false;
		world_gone(world, p);
		return true;
	}
	if (proc->is_joined)
		return false;
	if (move == MOVE_LOST && proc->is_linked) {
		world_lost(world, p);
		return true;
	}
	if (move == MOVE_REGISTER && proc->is_alive && !proc->is_linked &&
	    proc->work == WORLD_WORK_NONE) {
		world_register(world, p);
		return true;
	}
	if (move == MOVE_ALONE && !proc->is_linked && proc->lease.state == LEASE_ORPHAN)
		return world_lease(world, p,
				   (struct lease_event){.type = LEASE_EVENT_ORPHAN_TIME}) == 0;
	return false;
}

static bool move_time(struct world *world)
{
	struct sched_event event = {.type = SCHED_EVENT_TIME};
	uint64_t due = sched_deadline(&world->sched);

	if (due == SCHED_NO_DEADLINE)
		return false;
	world->now = due > world->now ? due : world->now;
	(void)world_step(world, &event);
	return true;
}

static bool do_move(struct node *node, enum move move, uint32_t p)
{
	struct world *world = &node->world;
	struct world_proc *proc = &world->procs[p];
	bool is_fault = move == MOVE_FAIL || move == MOVE_KILL || move == MOVE_BREAK;

	if (is_fault && node->n_faults == 0)
		return false;
	node->n_faults -= is_fault;
	if (move == MOVE_TIME)
		return p == 0 && move_time(world);
	if (move == MOVE_UP) {
		if (proc->up.n == 0)
			return false;
		(void)world_deliver_up(world, p);
		return true;
	}
	if (move == MOVE_DOWN) {
		if (!world_may_deliver_down(world, p))
			return false;
		world_deliver_down(world, p);
		return true;
	}
	if (move == MOVE_DONE || move == MOVE_FAIL) {
		if (proc->work == WORLD_WORK_NONE)
			return false;
		world_work_done(world, p, move == MOVE_FAIL);
		return true;
	}
	if (move == MOVE_PROGRESS && proc->work == WORLD_WORK_RESTORE)
		return world_part(world, p);
	if (move == MOVE_PROGRESS) {
		if (proc->work != WORLD_WORK_EVICT || proc->work_bytes <= UNIT ||
		    proc->resident < UNIT)
			return false;
		world_progress(world, p, UNIT);
		return true;
	}
	return move >= MOVE_KILL ? move_link(world, move, p) : move_program(world, move, p);
}

/* Who is in the way stays there: it is critical, or its bytes are pinned. */
static bool is_kept_out_here(const struct world *world, uint32_t p)
{
	struct sched_client_status status;

	if (!world->procs[p].is_joined)
		return false;
	if (world_is_locked_out(world, p))
		return true;
	if (world->clients[p].is_resident)
		return false;
	for (uint32_t i = 0; i < WORLD_PROCS; i++) {
		if (i != p && world->procs[i].is_joined && world->clients[i].is_resident) {
			sched_client_status(&world->sched, p, world->now, &status);
			return status.why == SCHED_WAIT_STUCK;
		}
	}
	return false;
}

/* It is, or another one of its gang. */
static bool is_kept_out(const struct world *world, uint32_t p)
{
	bool is_out = is_kept_out_here(world, p);

	for (uint32_t q = 0; q < WORLD_PROCS && world->procs[p].gang != SCHED_NONE; q++)
		is_out = is_out || (world->procs[q].gang == world->procs[p].gang &&
				    is_kept_out_here(world, q));
	return is_out;
}

/* ---- nobody is stuck ---------------------------------------------------------- */

/* Everything under way comes to its end; true if there was anything. */
static bool settle(struct node *node)
{
	static const enum move forced[] = {MOVE_UP,   MOVE_DOWN,     MOVE_DONE,
					   MOVE_LOST, MOVE_REGISTER, MOVE_REPORT};
	bool was_any = false, is_any = true;

	while (is_any) {
		is_any = false;
		for (uint32_t p = 0; p < WORLD_PROCS; p++) {
			for (size_t i = 0; i < sizeof(forced) / sizeof(*forced); i++)
				is_any |= do_move(node, forced[i], p);
		}
		was_any |= is_any;
		world_check(&node->world);
	}
	return was_any;
}

/* From here on without faults: everyone who wants gets the GPU, and what it asked for. */
static void check_served(const struct node *from)
{
	static struct node node;
	bool is_served[WORLD_PROCS] = {false};
	uint32_t n_left = WORLD_PROCS;

	world_copy(&node.world, &from->world);
	node.n_faults = 0;
	n_served++;
	for (int round = 0; round < ROUNDS && n_left > 0; round++) {
		bool is_any = settle(&node);

		n_left = 0;
		for (uint32_t p = 0; p < WORLD_PROCS; p++) {
			const struct world_proc *proc = &node.world.procs[p];

			is_served[p] |= !wants(proc) || (proc->is_open && proc->lack == 0) ||
					is_kept_out(&node.world, p);
			n_left += !is_served[p];
		}
		is_any |= do_move(&node, MOVE_TIME, 0);
		/* Somebody waits, and nothing will ever happen. */
		assert(n_left == 0 || is_any);
	}
	assert(n_left == 0);
}

/* ---- the search ------------------------------------------------------------------ */

static void explore(const struct node *node, uint32_t left)
{
	struct node *next;

	if (left == 0)
		return;
	next = malloc(sizeof(*next));
	assert(next);
	for (uint32_t p = 0; p < WORLD_PROCS; p++) {
		for (int move = 0; move < MOVE_COUNT; move++) {
			uint64_t hash;

			world_copy(&next->world, &node->world);
			next->n_faults = node->n_faults;
			path[path_len].move = (enum move)move;
			path[path_len].p = p;
			path_len++;
			if (do_move(next, (enum move)move, p)) {
				n_moves++;
				hash = hash_of(next);
				if (seen_is_new(hash, left)) {
					world_check(&next->world);
					sched_assert_valid(&next->world.sched);
					if (hash % 32 == 0)
						check_served(next);
					explore(next, left - 1);
				}
			}
			path_len--;
		}
	}
	free(next);
}

static void on_abort(int sig)
{
	(void)sig;
	dprintf(STDERR_FILENO, "exhaustive: failed after:\n");
	for (uint32_t i = 0; i < path_len; i++)
		dprintf(STDERR_FILENO, "  client %" PRIu32 " %s\n", path[i].p,
			move_names[path[i].move]);
}

struct run {
	enum sched_mode mode;
	enum sched_policy policy;
	uint32_t n_faults;
	uint32_t reserve_percent; /* of a card that is so much larger */
	uint32_t sharing_degree;
	uint64_t prepare_ns;          /* 0: nothing comes in before others are to stop */
	enum sched_priority first;    /* the first client's class; the others are low */
	uint32_t weight[WORLD_PROCS]; /* 0: the default */
	uint64_t slo_ns[WORLD_PROCS]; /* 0: none */
	uint32_t moving_percent;      /* two sleep; with is_full */
	bool is_full; /* one has all that is usable, and the others have nothing yet */
	uint32_t owner[WORLD_PROCS];
	bool has_gangs; /* the clients 0 and 1, and 2 and 3, are gangs on both cards */
	uint32_t gang_size;
	bool has_drainers; /* of each gang the first one drains */
	const char *name;
};

static void configure(struct sched_config *config, const struct run *run)
{
	sched_config_default(config);
	config->mode = run->mode;
	config->policy = run->policy;
	config->reserve_percent = run->reserve_percent;
	config->sharing_degree = run->sharing_degree;
	config->moving_percent = run->moving_percent;
	config->switch_mode = SCHED_SWITCH_FIXED;
	config->switch_fixed_ns = 10 * S;
	config->wait_bound_ns = 60 * S;
	config->prepare_ns = run->prepare_ns;
	config->answer_ns = 15 * S;
	config->heartbeat_ns = 40 * S;
	config->heartbeat_limit_ns = 90 * S;
}

static uint64_t held_at_first(const struct run *run, uint32_t p)
{
	if (run->has_gangs)
		return p < 4 ? 2 * UNIT : UNIT;
	if (run->is_full)
		return p == 2 ? CARD : 0;
	return p == 2 ? 2 * UNIT : UNIT;
}

#ifdef WORLD_GANGS
/* Both members of a gang run, or are to run. */
static void run_gang(struct node *node, uint32_t first)
{
	for (uint32_t p = first; p < first + 2; p++) {
		node->world.procs[p].is_at_gate = true;
		world_want(&node->world, p);
	}
	settle(node);
	while (!node->world.procs[first].is_open || !node->world.procs[first + 1].is_open) {
		assert(do_move(node, MOVE_TIME, 0));
		settle(node);
	}
}

/* The first gang and the single client are sleepers. That gang has come early, and displaced the
 * other one. */
static void wake(struct node *node)
{
	struct world *world = &node->world;

	run_gang(node, 2);
	for (uint32_t p = 0; p < WORLD_PROCS; p++)
		world->clients[p].has_slept = p < 2 || p == 4;
	for (uint32_t gpu = 0; gpu < WORLD_GPUS; gpu++)
		world->sched.gpus[gpu].moving_ns = (int64_t)(15 * S);
	world_alloc(world, 0, UNIT, false);
	world_alloc(world, 1, UNIT, false);
	run_gang(node, 0);
	assert(world->clients[0].is_early && world->clients[1].is_early);
	assert(world->clients[2].is_displaced && world->clients[3].is_displaced);
}
#else
/* The first two are sleepers, and one of them has come before its turn: the last one waits. */
static void wake(struct node *node)
{
	for (uint32_t p = 0; p < 2; p++)
		node->world.clients[p].has_slept = true;
	node->world.procs[2].is_at_gate = true;
	world_alloc(&node->world, 0, UNIT, false);
	settle(node);
	while (node->world.procs[0].lack > 0) {
		assert(do_move(node, MOVE_TIME, 0));
		settle(node);
	}
	assert(node->world.clients[0].is_early && node->world.clients[2].is_displaced);
}
#endif

/* They hold something already: what happens from nothing on is mostly registering. */
static void begin(struct node *node, const struct run *run)
{
	const uint64_t card = CARD * 100 / (100 - run->reserve_percent);
	uint64_t total[WORLD_GPUS];
	struct sched_config config;

	for (uint32_t gpu = 0; gpu < WORLD_GPUS; gpu++)
		total[gpu] = card;

	configure(&config, run);
	world_init(&node->world, &config, total);
	node->world.is_strict = true;
	node->world.has_gangs = run->has_gangs;
	node->world.has_users = run->owner[WORLD_PROCS - 1] > 0;
	node->n_faults = run->n_faults;
	for (uint32_t p = 0; p < WORLD_PROCS; p++) {
		world_spawn(&node->world, p, p % WORLD_GPUS);
		node->world.procs[p].owner = run->owner[p];
		if (run->has_gangs && p < 4)
			node->world.procs[p].gang = p & ~1u;
		node->world.procs[p].gang_size = run->gang_size;
		node->world.procs[p].claim = (struct sched_claim){
			.priority = p == 0 ? run->first : SCHED_PRIORITY_LOW,
			.weight = run->weight[p],
			.slo_ns = run->slo_ns[p],
		};
		world_register(&node->world, p);
		settle(node);
		if (held_at_first(run, p) == 0)
			continue;
		world_alloc(&node->world, p, held_at_first(run, p), false);
		settle(node);
		while (node->world.procs[p].lack > 0) {
			assert(do_move(node, MOVE_TIME, 0));
			settle(node);
		}
	}
	if (run->moving_percent > 0)
		wake(node);
	for (uint32_t p = 0; run->has_drainers && p < 4; p += 2) {
		node->world.procs[p].drains = true;
		world_report(&node->world, p);
		settle(node);
	}
}

int main(int argc, char **argv)
{
#ifdef WORLD_GANGS
	static const struct run runs[] = {
		{.name = "gangs", .has_gangs = true},
		{.name = "gangs, one fault", .has_gangs = true, .n_faults = 1},
		{.name = "gangs, serial, one fault",
		 .has_gangs = true,
		 .mode = SCHED_MODE_SERIAL,
		 .n_faults = 1},
		{.name = "gangs, of two users, one is critical, one fault",
		 .has_gangs = true,
		 .first = SCHED_PRIORITY_CRITICAL,
		 .owner = {0, 0, 1, 1, 2},
		 .n_faults = 1},
		{.name = "gangs, fair, with a lead, one fault",
		 .has_gangs = true,
		 .policy = SCHED_POLICY_FAIR,
		 .reserve_percent = 50,
		 .n_faults = 1},
		{.name = "gangs that drain, one fault",
		 .has_gangs = true,
		 .has_drainers = true,
		 .n_faults = 1},
		{.name = "gangs that drain, one has slept, one fault",
		 .has_gangs = true,
		 .has_drainers = true,
		 .moving_percent = 50,
		 .n_faults = 1},
		{.name = "gangs, one has slept, one fault",
		 .has_gangs = true,
		 .moving_percent = 50,
		 .n_faults = 1},
	};
	uint32_t depth = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 0) : 5;
#else
	static const struct run runs[] = {
		{.name = "auto"},
		{.name = "auto, one fault", .n_faults = 1},
		{.name = "auto, with a lead, one fault", .n_faults = 1, .reserve_percent = 50},
		{.name = "auto, ahead of stops, one fault",
		 .n_faults = 1,
		 .reserve_percent = 20,
		 .prepare_ns = S},
		{.name = "serial, ahead of stops, one fault",
		 .mode = SCHED_MODE_SERIAL,
		 .n_faults = 1,
		 .reserve_percent = 20,
		 .prepare_ns = S},
		{.name = "a full card, one fault",
		 .n_faults = 1,
		 .reserve_percent = 20,
		 .is_full = true},
		{.name = "a full card, serial",
		 .mode = SCHED_MODE_SERIAL,
		 .reserve_percent = 20,
		 .is_full = true},
		{.name = "serial", .mode = SCHED_MODE_SERIAL},
		{.name = "serial, one fault", .mode = SCHED_MODE_SERIAL, .n_faults = 1},
		{.name = "two at once, one fault", .sharing_degree = 2, .n_faults = 1},
		{.name = "two at once, one is critical",
		 .sharing_degree = 2,
		 .first = SCHED_PRIORITY_CRITICAL},
		{.name = "one is high, one fault", .n_faults = 1, .first = SCHED_PRIORITY_HIGH},
		{.name = "one is critical, one fault",
		 .n_faults = 1,
		 .first = SCHED_PRIORITY_CRITICAL},
		{.name = "one is critical, serial",
		 .mode = SCHED_MODE_SERIAL,
		 .first = SCHED_PRIORITY_CRITICAL},
		{.name = "fair, one is critical, one fault",
		 .policy = SCHED_POLICY_FAIR,
		 .n_faults = 1,
		 .first = SCHED_PRIORITY_CRITICAL,
		 .weight = {100, 400, 50}},
		{.name = "fair, one is high, one fault",
		 .policy = SCHED_POLICY_FAIR,
		 .n_faults = 1,
		 .first = SCHED_PRIORITY_HIGH,
		 .weight = {50, 400, 100}},
		{.name = "credit, one is high, one fault",
		 .policy = SCHED_POLICY_CREDIT,
		 .n_faults = 1,
		 .first = SCHED_PRIORITY_HIGH,
		 .weight = {50, 400, 100}},
		{.name = "deadline, one is high, one fault",
		 .policy = SCHED_POLICY_DEADLINE,
		 .n_faults = 1,
		 .first = SCHED_PRIORITY_HIGH,
		 .weight = {50, 400, 100},
		 .slo_ns = {0, 30 * S, 5 * S}},
		{.name = "two of one user, one fault", .n_faults = 1, .owner = {0, 0, 1}},
		{.name = "two sleepers, one fault",
		 .n_faults = 1,
		 .moving_percent = 50,
		 .is_full = true},
		{.name = "two sleepers, serial, of two users",
		 .mode = SCHED_MODE_SERIAL,
		 .moving_percent = 50,
		 .is_full = true,
		 .owner = {0, 1, 1}},
		{.name = "fair, two sleepers, one is high, one fault",
		 .policy = SCHED_POLICY_FAIR,
		 .n_faults = 1,
		 .moving_percent = 50,
		 .is_full = true,
		 .first = SCHED_PRIORITY_HIGH},
		{.name = "credit, two sleepers of one user, one fault",
		 .policy = SCHED_POLICY_CREDIT,
		 .n_faults = 1,
		 .moving_percent = 50,
		 .is_full = true,
		 .owner = {0, 0, 1}},
		{.name = "two of one user, serial", .mode = SCHED_MODE_SERIAL, .owner = {0, 0, 1}},
	};
	uint32_t depth = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 0) : 8;
#endif
	static struct node node;

	signal(SIGABRT, on_abort);
	assert(depth < PATH_MAX_);
	for (size_t i = 0; i < sizeof(runs) / sizeof(*runs); i++) {
		seen_reset(1u << 20);
		n_moves = n_served = 0;
		memset(&node, 0, sizeof(node));
		begin(&node, &runs[i]);
		explore(&node, depth);
		printf("exhaustive: %s: depth %" PRIu32 ", %" PRIu64 " states, %" PRIu64
		       " moves, served from %" PRIu64 "\n",
		       runs[i].name, depth, seen_count(), n_moves, n_served);
		(void)fflush(stdout);
	}
	seen_reset(0);
	return 0;
}
