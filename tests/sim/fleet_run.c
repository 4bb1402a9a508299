/* SPDX-License-Identifier: Apache-2.0 */
#include "fleet_run.h"

#include <assert.h>
#include <stdlib.h>

#define RUN_RETRIES  6
#define RUN_RETRY_NS (300 * FLEET_S_NS)
#define RUN_TRIES    200 /* jobs of the queue that are tried for a place that is free */
#define RUN_NONE     UINT32_MAX

enum run_state { RUN_COMING, RUN_QUEUED, RUN_PLACED, RUN_WAITS, RUN_ENDED };

struct run_job {
	enum run_state state;
	uint32_t next; /* in the queue, or among those that wait to be submitted again */
	uint32_t n_retries;
	uint64_t since_ns; /* queued; or to be submitted again then */
};

struct run_list {
	uint32_t first, last;
};

struct fleet {
	const struct fleet_setup *setup;
	const struct fleet_trace *trace;
	struct fleet_stats *stats;
	struct fleet_node *nodes;
	uint64_t *due; /* a tree: due[i] is the smaller of due[2 * i] and due[2 * i + 1] */
	uint32_t n_leaves;
	uint32_t *n_free; /* places of each node */
	struct run_job *jobs;
	size_t n_come;
	struct run_list queue, again;
};

/* ---- lists of jobs --------------------------------------------------------------------------- */

static void run_append(struct fleet *fleet, struct run_list *list, uint32_t job)
{
	fleet->jobs[job].next = RUN_NONE;
	if (list->first == RUN_NONE)
		list->first = job;
	else
		fleet->jobs[list->last].next = job;
	list->last = job;
}

/* The job behind before; RUN_NONE: the first one. */
static void run_unlink(struct fleet *fleet, struct run_list *list, uint32_t before, uint32_t job)
{
	uint32_t next = fleet->jobs[job].next;

	if (before == RUN_NONE)
		list->first = next;
	else
		fleet->jobs[before].next = next;
	if (list->last == job)
		list->last = before;
}

/* ---- nodes, by the time when they are due ------------------------------------------------------
 */

static void due_set(struct fleet *fleet, uint32_t node, uint64_t at_ns)
{
	uint32_t i = fleet->n_leaves + node;

	fleet->due[i] = at_ns;
	for (i /= 2; i > 0; i /= 2) {
		uint64_t left = fleet->due[2 * i], right = fleet->due[2 * i + 1];

		fleet->due[i] = left < right ? left : right;
	}
}

static uint32_t due_node(const struct fleet *fleet)
{
	uint32_t i = 1;

	while (i < fleet->n_leaves)
		i = fleet->due[2 * i] == fleet->due[i] ? 2 * i : 2 * i + 1;
	return i - fleet->n_leaves;
}

/* ---- places ------------------------------------------------------------------------------------
 */

static void run_note_wait(struct fleet *fleet, uint32_t job, uint64_t now_ns)
{
	fleet_samples_add(&fleet->stats->wait[fleet->trace->jobs[job].kind],
			  (double)(now_ns - fleet->jobs[job].since_ns) / 1e9);
}

static void run_start(struct fleet *fleet, uint32_t node, uint32_t gpu, uint32_t job,
		      uint64_t now_ns)
{
	run_note_wait(fleet, job, now_ns);
	fleet->jobs[job].state = RUN_PLACED;
	fleet->n_free[node]--;
	fleet_node_start(&fleet->nodes[node], gpu, job, now_ns);
	due_set(fleet, node, now_ns);
}

static bool run_place(struct fleet *fleet, uint32_t job, uint64_t now_ns)
{
	uint32_t best = RUN_NONE;
	int best_gpu = -1;

	for (uint32_t i = 0; i < fleet->setup->n_nodes; i++) {
		int gpu;

		if (fleet->n_free[i] == 0 ||
		    (best != RUN_NONE && fleet->n_free[i] <= fleet->n_free[best]))
			continue;
		gpu = fleet_node_choose(&fleet->nodes[i], &fleet->trace->jobs[job], now_ns);
		if (gpu >= 0) {
			best = i;
			best_gpu = gpu;
		}
	}
	if (best == RUN_NONE)
		return false;
	run_start(fleet, best, (uint32_t)best_gpu, job, now_ns);
	return true;
}

/* A place of the node has become free. */
static void run_fill(struct fleet *fleet, uint32_t node, uint64_t now_ns)
{
	uint32_t before = RUN_NONE, job = fleet->queue.first, tries = 0;

	while (job != RUN_NONE && fleet->n_free[node] > 0 && tries++ < RUN_TRIES) {
		uint32_t next = fleet->jobs[job].next;
		int gpu = fleet_node_choose(&fleet->nodes[node], &fleet->trace->jobs[job], now_ns);

		if (gpu >= 0) {
			run_unlink(fleet, &fleet->queue, before, job);
			run_start(fleet, node, (uint32_t)gpu, job, now_ns);
		} else {
			before = job;
		}
		job = next;
	}
}

static void run_submit(struct fleet *fleet, uint32_t job, uint64_t now_ns)
{
	fleet->jobs[job].since_ns = now_ns;
	fleet->jobs[job].state = RUN_QUEUED;
	if (!run_place(fleet, job, now_ns))
		run_append(fleet, &fleet->queue, job);
}

/* ---- ends ---------------------------------------------------------------------------------------
 */

static void run_end(struct fleet *fleet, uint32_t job, enum fleet_end end, uint64_t now_ns)
{
	const struct fleet_job *of = &fleet->trace->jobs[job];
	enum fleet_kind kind = of->kind;
	struct run_job *j = &fleet->jobs[job];

	assert(j->state == RUN_PLACED);
	j->state = RUN_ENDED;
	if (end == FLEET_DONE) {
		fleet->stats->n_done[kind]++;
		fleet_samples_add(&fleet->stats->stretch[kind],
				  (double)(now_ns - of->at_ns) / 1e9 / of->length_s);
		return;
	}
	fleet->stats->n_out_of_memory[kind]++;
	if (j->n_retries++ == RUN_RETRIES) {
		fleet->stats->n_given_up[kind]++;
		return;
	}
	j->state = RUN_WAITS;
	j->since_ns = now_ns + RUN_RETRY_NS;
	run_append(fleet, &fleet->again, job);
}

static void run_node(struct fleet *fleet, uint32_t i, uint64_t now_ns)
{
	struct fleet_node *node = &fleet->nodes[i];

	fleet_node_run(node, now_ns);
	if (fleet->setup->is_checked)
		fleet_node_check(node);
	due_set(fleet, i, fleet_node_next(node));
	if (node->n_ended == 0)
		return;
	fleet->n_free[i] += node->n_ended;
	for (uint32_t k = 0; k < node->n_ended; k++)
		run_end(fleet, node->ended[k].job, node->ended[k].end, now_ns);
	node->n_ended = 0;
	run_fill(fleet, i, now_ns);
}

/* ---- the run
 * --------------------------------------------------------------------------------------- */

static uint64_t run_next_job_ns(const struct fleet *fleet)
{
	const struct fleet_trace *trace = fleet->trace;
	uint64_t come_ns =
		fleet->n_come < trace->n_jobs ? trace->jobs[fleet->n_come].at_ns : FLEET_NEVER;
	uint64_t again_ns = fleet->again.first == RUN_NONE
				    ? FLEET_NEVER
				    : fleet->jobs[fleet->again.first].since_ns;

	return come_ns < again_ns ? come_ns : again_ns;
}

static void run_next_job(struct fleet *fleet, uint64_t now_ns)
{
	uint32_t job = fleet->again.first;

	if (job != RUN_NONE && fleet->jobs[job].since_ns == now_ns)
		run_unlink(fleet, &fleet->again, RUN_NONE, job);
	else
		job = (uint32_t)fleet->n_come++;
	run_submit(fleet, job, now_ns);
}

static void run_begin(struct fleet *fleet)
{
	uint32_t n = fleet->setup->n_nodes;

	fleet->n_leaves = 1;
	while (fleet->n_leaves < n)
		fleet->n_leaves *= 2;
	fleet->nodes = calloc(n, sizeof(*fleet->nodes));
	fleet->n_free = calloc(n, sizeof(*fleet->n_free));
	fleet->due = calloc(2 * (size_t)fleet->n_leaves, sizeof(*fleet->due));
	fleet->jobs = calloc(fleet->trace->n_jobs + 1, sizeof(*fleet->jobs));
	if (!fleet->nodes || !fleet->n_free || !fleet->due || !fleet->jobs)
		abort();
	for (uint32_t i = 0; i < 2 * fleet->n_leaves; i++)
		fleet->due[i] = FLEET_NEVER;
	for (uint32_t i = 0; i < n; i++) {
		fleet_node_init(&fleet->nodes[i], fleet->setup->way, fleet->setup->replicas,
				&fleet->setup->config, fleet->trace, fleet->stats);
		fleet->n_free[i] = FLEET_NODE_GPUS * fleet->setup->replicas;
		due_set(fleet, i, fleet_node_next(&fleet->nodes[i]));
	}
}

/* Jobs that have not ended are counted, too. */
static void run_finish(struct fleet *fleet)
{
	struct fleet_stats *stats = fleet->stats;

	for (uint32_t i = 0; i < fleet->setup->n_nodes; i++) {
		struct fleet_node *node = &fleet->nodes[i];

		fleet_node_count(node, fleet->setup->length_ns);
		fleet_node_check(node);
		if (node->host_most > stats->host_most)
			stats->host_most = node->host_most;
		fleet_node_free(node);
	}
	for (uint32_t job = 0; job < fleet->n_come; job++) {
		enum fleet_kind kind = fleet->trace->jobs[job].kind;
		enum run_state state = fleet->jobs[job].state;

		if (state == RUN_QUEUED)
			run_note_wait(fleet, job, fleet->setup->length_ns);
		stats->n_queued[kind] += state == RUN_QUEUED || state == RUN_WAITS;
		stats->n_running[kind] += state == RUN_PLACED;
	}
	free(fleet->nodes);
	free(fleet->n_free);
	free(fleet->due);
	free(fleet->jobs);
}

void fleet_run(const struct fleet_setup *setup, const struct fleet_trace *trace,
	       struct fleet_stats *stats)
{
	struct fleet fleet = {.setup = setup,
			      .trace = trace,
			      .stats = stats,
			      .queue = {RUN_NONE, RUN_NONE},
			      .again = {RUN_NONE, RUN_NONE}};

	*stats = (struct fleet_stats){.bin_ns = setup->length_ns / FLEET_BINS};
	run_begin(&fleet);
	for (;;) {
		uint64_t job_ns = run_next_job_ns(&fleet), node_ns = fleet.due[1];

		if ((job_ns < node_ns ? job_ns : node_ns) >= setup->length_ns)
			break;
		if (job_ns < node_ns)
			run_next_job(&fleet, job_ns);
		else
			run_node(&fleet, due_node(&fleet), node_ns);
	}
	run_finish(&fleet);
}
