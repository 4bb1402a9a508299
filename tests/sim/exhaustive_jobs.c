/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The queue of jobs with four jobs of two owners and two GPUs: every order of submissions, starts,
 * ends, failures, freezes, cancellations, passing time and a GPU that fails, to a depth. In each
 * state the machine's invariants hold, and it does what the plain model does (job_model.h). From a
 * sample of the states all jobs get done, and nothing stays charged.
 *
 *     exhaustive_jobs DEPTH
 */

#include "job_model.h"
#include "mix.h"
#include "seen.h"

#include <assert.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define JOBS      4
#define GPUS      2
#define S         1000000000ull
#define GIB       (1ull << 30)
#define PATH_MAX_ 64

enum move {
	MOVE_SUBMIT,
	MOVE_REGISTER, /* with all of its memory */
	MOVE_FREEZE,   /* or thaw */
	MOVE_SUCCEED,
	MOVE_FAIL,
	MOVE_CANCEL,
	MOVE_FORGET,
	MOVE_JOB_COUNT_,
	MOVE_TIME = MOVE_JOB_COUNT_, /* to the deadline */
	MOVE_LATER,                  /* by pass_ns */
	MOVE_OUT,                    /* GPU 1 has an error, or is back */
	MOVE_COUNT_
};

static const char *const move_names[] = {"submit", "register", "freeze", "succeed", "fail",
					 "cancel", "forget",   "time",   "later",   "out"};

/* The job of each slot: it is submitted again and again. */
struct slot_job {
	uint32_t owner, priority;
	struct jobs_request request;
};

static const struct slot_job singles[JOBS] = {
	{0, 50, {.need = 60 * GIB, .gpu = PLACE_ANY}},
	{1, 50, {.need = 90 * GIB, .gpu = PLACE_ANY, .is_whole = true}},
	{1, 50, {.need = 20 * GIB, .gpu = 1, .is_whole = true, .apart = 1}},
	{0, 51, {.need = 30 * GIB, .gpu = PLACE_ANY, .apart = 1}},
};

#define GANG(number, n) .gang = (number), .gang_size = (n)

static const struct slot_job two_gangs[JOBS] = {
	{0, 50, {.need = 60 * GIB, .gpu = PLACE_ANY, GANG(1, 2)}},
	{1, 50, {.need = 60 * GIB, .gpu = PLACE_ANY, GANG(1, 2)}},
	{1, 50, {.need = 70 * GIB, .gpu = 1, GANG(1, 2)}},
	{0, 50, {.need = 60 * GIB, .gpu = PLACE_ANY, GANG(1, 2)}},
};

/* One of three waits for the next round, or comes back; and a job that wants a whole GPU. */
static const struct slot_job gang_of_three[JOBS] = {
	{0, 50, {.need = 60 * GIB, .gpu = PLACE_ANY, .is_whole = true, .apart = 1, GANG(1, 2)}},
	{0, 50, {.need = 60 * GIB, .gpu = PLACE_ANY, .is_whole = true, .apart = 1, GANG(1, 2)}},
	{0, 51, {.need = 50 * GIB, .gpu = PLACE_ANY, .is_whole = true, GANG(1, 2)}},
	{1, 50, {.need = 90 * GIB, .gpu = PLACE_ANY, .is_whole = true}},
};

static const struct run {
	const char *name;
	uint32_t degree, turns_max;
	bool is_unfair;
	const struct slot_job *jobs;
} runs[] = {
	{"turns for two", 0, 2, false, singles},
	{"one at a time", 1, 1, false, singles},
	{"one owner, two at a time", 2, 1, true, singles},
	{"two gangs, one at a time", 1, 1, false, two_gangs},
	{"two gangs, turns for two", 0, 2, false, two_gangs},
	{"a gang of three", 0, 1, false, gang_of_three},
};

struct node {
	uint64_t now_ns, last_id;
	bool is_out;
	struct jobs jobs;
	struct job slots[JOBS];
	struct job_model model;
};

static const struct run *run;
static struct {
	enum move move;
	uint32_t job;
} path[PATH_MAX_];
static uint32_t path_len;
static uint64_t n_moves, n_served;

/* ---- moves ------------------------------------------------------------------------- */

static void node_copy(struct node *to, const struct node *from)
{
	memcpy(to, from, sizeof(*to));
	to->jobs.slots = to->slots;
}

static void node_step(struct node *node, struct jobs_event event)
{
	struct jobs_actions actions;
	int r;

	event.now_ns = node->now_ns;
	r = jobs_step(&node->jobs, &event, &actions);
	assert(r == 0);
	jobs_assert_valid(&node->jobs);
	job_model_step(&node->model, &node->jobs, &event, r, &actions);
}

static void node_go_to(struct node *node, uint64_t time)
{
	while (jobs_deadline(&node->jobs) <= time) {
		node->now_ns = jobs_deadline(&node->jobs);
		node_step(node, (struct jobs_event){.type = JOBS_EVENT_TIME});
	}
	node->now_ns = time;
}

static void node_tell_gpu(struct node *node, uint32_t gpu, bool is_out)
{
	struct jobs_event event = {.type = JOBS_EVENT_GPU, .gpu = gpu};

	event.facts = (struct place_gpu){
		.is_known = true, .is_out = is_out, .total = 100 * GIB, .degree = run->degree};
	node_step(node, event);
}

static void node_submit(struct node *node, uint32_t job)
{
	struct jobs_event event = {.type = JOBS_EVENT_SUBMIT, .job = job};

	event.id = ++node->last_id;
	event.since_ns = node->now_ns;
	event.owner = run->is_unfair ? 0 : run->jobs[job].owner;
	event.priority = run->jobs[job].priority;
	event.n_retries = job == 0;
	event.request = run->jobs[job].request;
	node_step(node, event);
}

static void node_end(struct node *node, uint32_t job, enum jobs_end end)
{
	node_step(node, (struct jobs_event){.type = JOBS_EVENT_ENDED, .job = job, .end = end});
}

static void node_programs(struct node *node, uint32_t job, bool is_stopped)
{
	node_step(node, (struct jobs_event){.type = JOBS_EVENT_PROGRAMS,
					    .job = job,
					    .n_programs = 1,
					    .footprint = run->jobs[job].request.need,
					    .is_stopped = is_stopped});
}

/* false: it is not possible here. */
static bool do_job_move(struct node *node, enum move move, uint32_t job)
{
	const struct job_model_job *j = &node->model.jobs[job];

	if (move == MOVE_SUBMIT && j->state == JOBS_FREE)
		node_submit(node, job);
	else if (move == MOVE_REGISTER && j->state == JOBS_STARTED)
		node_programs(node, job, false);
	else if (move == MOVE_FREEZE && j->state == JOBS_RUNNING)
		node_programs(node, job, !j->is_stopped);
	else if (move == MOVE_SUCCEED && job_model_is_on(j))
		node_end(node, job, JOBS_END_SUCCESS);
	else if (move == MOVE_FAIL && job_model_is_on(j) && j->n_retries > 0)
		node_end(node, job, JOBS_END_FAILED);
	else if (move == MOVE_CANCEL && j->state != JOBS_FREE && j->state != JOBS_DONE)
		node_step(node, (struct jobs_event){.type = JOBS_EVENT_CANCEL, .job = job});
	else if (move == MOVE_FORGET && j->state == JOBS_DONE)
		node_step(node, (struct jobs_event){.type = JOBS_EVENT_FORGET, .job = job});
	else
		return false;
	return true;
}

static bool do_move(struct node *node, enum move move, uint32_t job)
{
	if (move < MOVE_JOB_COUNT_)
		return do_job_move(node, move, job);
	if (job != 0)
		return false;
	if (move == MOVE_OUT) {
		node->is_out = !node->is_out;
		node_tell_gpu(node, 1, node->is_out);
	} else if (move == MOVE_LATER) {
		node_go_to(node, node->now_ns + node->jobs.config.pass_ns);
	} else {
		if (jobs_deadline(&node->jobs) == JOBS_NO_DEADLINE)
			return false;
		node_go_to(node, jobs_deadline(&node->jobs));
	}
	return true;
}

/* ---- what must hold ------------------------------------------------------------------ */

/* Nobody submits any more, and what runs ends after a while: all get done. */
static void check_served(const struct node *from)
{
	static struct node node;
	bool is_over = false;

	node_copy(&node, from);
	if (node.is_out)
		node_tell_gpu(&node, 1, false);
	for (int round = 0; !is_over; round++) {
		assert(round < 4 * JOBS);
		is_over = true;
		for (uint32_t i = 0; i < JOBS; i++) {
			enum jobs_state state = jobs_state(&node.jobs, i);

			if (job_model_is_on(&node.model.jobs[i]))
				node_end(&node, i, JOBS_END_SUCCESS);
			is_over = is_over && (state == JOBS_FREE || state == JOBS_DONE);
			/* Nobody comes to its gang any more. */
			if (job_model_is_lacking(&node.model, i))
				node_step(&node,
					  (struct jobs_event){.type = JOBS_EVENT_CANCEL, .job = i});
		}
		node_go_to(&node, node.now_ns + node.jobs.config.retry_ns);
	}
	for (uint32_t gpu = 0; gpu < GPUS; gpu++)
		assert(node.jobs.place.gpu[gpu].load.charged == 0 && !jobs_n_on(&node.jobs, gpu));
	n_served++;
}

/* Times count by their distances, and only as far as any rule asks; ids and turns by their order.
 */
static uint64_t hash_of(const struct node *node)
{
	const struct job_model *m = &node->model;
	uint64_t hash = node->is_out;

	for (uint32_t i = 0; i < JOBS; i++) {
		const struct job_model_job *j = &m->jobs[i];
		uint64_t waited_ns = node->now_ns - j->queued_ns;
		uint32_t n_before = 0;

		mix(&hash, j->state);
		if (j->state == JOBS_FREE || j->state == JOBS_DONE)
			continue;
		for (uint32_t k = 0; k < JOBS; k++)
			n_before += m->jobs[k].state != JOBS_FREE && m->jobs[k].id < j->id;
		mix(&hash, n_before);
		mix(&hash, j->end | j->n_retries << 8);
		mix(&hash, j->state == JOBS_QUEUED ? waited_ns : 0);
		mix(&hash, job_model_is_on(j) ? j->gpu | (uint64_t)j->is_reserved << 8 : 0);
		mix(&hash, j->is_stopped);
		mix(&hash, job_model_is_on(j) && j->request.gang ? node->now_ns - j->gang_ns : 0);
		mix(&hash, job_model_is_on(j) ? j->gang_n_new : 0);
		mix(&hash, j->n_starts > 0);
		mix(&hash, j->counted_ns);
		mix(&hash, j->is_reserved ? j->reserve_until_ns - node->now_ns : 0);
		mix(&hash, j->state == JOBS_STOPPING || j->state == JOBS_RESTING
				   ? j->due_ns - node->now_ns
				   : 0);
	}
	mix(&hash, m->turn[0] < m->turn[1]);
	for (uint32_t owner = 0; owner < 2; owner++)
		mix(&hash, m->aged_ns[owner] ? node->now_ns - m->aged_ns[owner] : 0);
	for (uint32_t gpu = 0; gpu < GPUS; gpu++)
		mix(&hash, m->booked[gpu]);
	return hash;
}

/* ---- the search ----------------------------------------------------------------------- */

static void explore(const struct node *node, uint32_t left)
{
	struct node *next;

	if (left == 0)
		return;
	next = malloc(sizeof(*next));
	assert(next);
	for (uint32_t i = 0; i < JOBS; i++) {
		for (int move = 0; move < MOVE_COUNT_; move++) {
			uint64_t hash;

			node_copy(next, node);
			path[path_len].move = (enum move)move;
			path[path_len++].job = i;
			if (do_move(next, (enum move)move, i)) {
				n_moves++;
				hash = hash_of(next);
				if (seen_is_new(hash, left)) {
					if (hash % 16 == 0)
						check_served(next);
					explore(next, left - 1);
				}
			}
			path_len--;
		}
	}
	free(next);
}

static void on_abort(int number)
{
	(void)number;
	printf("exhaustive_jobs: %s: failed after:\n", run->name);
	for (uint32_t i = 0; i < path_len; i++)
		printf("  job %" PRIu32 " %s\n", path[i].job, move_names[path[i].move]);
	(void)fflush(stdout);
}

static void begin(struct node *node)
{
	struct jobs_config config;

	jobs_config_default(&config);
	config.fair_users = !run->is_unfair;
	config.pass_ns = 100 * S;
	config.age_ns = 250 * S;
	config.limit_ns = 150 * S;
	config.limit_max_ns = 200 * S;
	config.grace_ns = 10 * S;
	config.place.turns_max = run->turns_max;
	config.place.margin_bytes = 0;
	assert(!jobs_config_check(&config));
	memset(node, 0, sizeof(*node));
	node->now_ns = 1000 * S;
	jobs_init(&node->jobs, node->slots, JOBS, &config);
	job_model_init(&node->model, JOBS, &config);
	for (uint32_t gpu = 0; gpu < GPUS; gpu++)
		node_tell_gpu(node, gpu, false);
}

int main(int argc, char **argv)
{
	uint32_t depth = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 0) : 5;
	static struct node node;

	(void)signal(SIGABRT, on_abort);
	assert(depth < PATH_MAX_);
	for (size_t i = 0; i < sizeof(runs) / sizeof(runs[0]); i++) {
		run = &runs[i];
		seen_reset(1u << 16);
		n_moves = n_served = 0;
		begin(&node);
		explore(&node, depth);
		printf("exhaustive_jobs: %s: depth %" PRIu32 ", %" PRIu64 " states, %" PRIu64
		       " moves, served from %" PRIu64 "\n",
		       run->name, depth, seen_count(), n_moves, n_served);
		(void)fflush(stdout);
	}
	seen_reset(0);
	return 0;
}
