/* SPDX-License-Identifier: Apache-2.0 */
#include "fleet_node.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NODE_WORK_S 1e-6 /* less is none */
#define NODE_HOST   (UINT64_C(2048) * FLEET_GIB)

void fleet_node_init(struct fleet_node *node, enum fleet_way way, uint32_t replicas,
		     const struct sched_config *config, const struct fleet_trace *trace,
		     struct fleet_stats *stats)
{
	uint32_t n = FLEET_NODE_GPUS * replicas;

	assert(replicas >= 1 && replicas <= FLEET_REPLICAS_MAX);
	*node = (struct fleet_node){
		.way = way, .replicas = replicas, .trace = trace, .stats = stats};
	node->programs = calloc(n, sizeof(*node->programs));
	node->clients = calloc(n, sizeof(*node->clients));
	if (!node->programs || !node->clients)
		abort();
	for (uint32_t i = 0; i < FLEET_SLOTS; i++)
		node->due_ns[i] = FLEET_NEVER;
	fleet_place_init(node);
	if (way == FLEET_NVSHARE)
		fleet_turns_init(node, config);
}

void fleet_node_free(struct fleet_node *node)
{
	free(node->programs);
	free(node->clients);
}

/* ---- programs -------------------------------------------------------------------------------- */

void fleet_node_end(struct fleet_node *node, struct fleet_program *p, enum fleet_end end,
		    uint64_t now_ns)
{
	struct fleet_gpu *gpu = &node->gpus[p->gpu];
	const struct fleet_job *job = fleet_job_of(node, p);

	fleet_share_count(node, p->gpu, now_ns);
	gpu->n_programs--;
	gpu->placed_bytes -= job->bytes + FLEET_CONTEXT;
	gpu->critical_bytes -= fleet_is_critical(job) ? job->bytes + FLEET_CONTEXT : 0;
	gpu->is_changed = true;
	assert(node->n_ended < FLEET_SLOTS);
	node->ended[node->n_ended++] = (struct fleet_ended){p->job, end};
	p->is_used = false;
	fleet_touch(node, p);
	if (node->way == FLEET_NVSHARE)
		fleet_turns_leave(node, p, now_ns);
}

/* Where nothing manages memory: false if the GPU has no room. */
static bool node_allocate(struct fleet_node *node, struct fleet_program *p)
{
	uint64_t bytes = p->lack + FLEET_CONTEXT;

	for (uint32_t i = 0; i < node->replicas; i++) {
		const struct fleet_program *other = &node->programs[p->gpu * node->replicas + i];

		if (other->is_used && other->lack == 0)
			bytes += other->bytes + FLEET_CONTEXT;
	}
	if (bytes > FLEET_CARD)
		return false;
	p->lack = 0;
	return true;
}

void fleet_node_note_begin(struct fleet_node *node, struct fleet_program *p, uint64_t now_ns)
{
	if (!p->is_working || p->has_begun)
		return;
	p->has_begun = true;
	fleet_samples_add(&node->stats->begin[fleet_job_of(node, p)->kind],
			  (double)(now_ns - p->step_ns) / 1e9);
}

static void node_begin_work(struct fleet_node *node, struct fleet_program *p, uint64_t now_ns)
{
	p->pause_ns = FLEET_NEVER;
	if (p->step.work_s <= NODE_WORK_S) {
		fleet_node_end(node, p, FLEET_DONE, now_ns);
		return;
	}
	if (node->way != FLEET_NVSHARE && p->lack > 0 && !node_allocate(node, p)) {
		fleet_node_end(node, p, FLEET_OUT_OF_MEMORY, now_ns);
		return;
	}
	p->is_working = true;
	p->has_begun = false;
	p->left_s = p->step.work_s;
	p->step_ns = now_ns;
	node->gpus[p->gpu].is_changed = true;
	if (p->is_open)
		fleet_node_note_begin(node, p, now_ns);
	if (node->way == FLEET_NVSHARE)
		fleet_turns_want(node, p, now_ns);
}

static void node_next_step(struct fleet_node *node, struct fleet_program *p, uint64_t now_ns)
{
	p->step = fleet_steps_next(&p->steps, fleet_job_of(node, p));
	p->pause_ns = now_ns + (uint64_t)(p->step.pause_s * 1e9);
}

static void node_end_work(struct fleet_node *node, struct fleet_program *p, uint64_t now_ns)
{
	const struct fleet_job *job = fleet_job_of(node, p);

	assert(fabs(p->left_s) < NODE_WORK_S);
	p->is_working = false;
	p->done_ns = FLEET_NEVER;
	node->gpus[p->gpu].is_changed = true;
	fleet_samples_add(&node->stats->delay[job->kind],
			  (double)(now_ns - p->step_ns) / 1e9 - p->step.work_s);
	if (job->kind == FLEET_TRAINING) {
		double run_s = (double)(now_ns - p->start_ns) / 1e9;

		fleet_samples_add(&node->stats->slowdown, run_s / job->length_s);
		node->stats->train_run_s += run_s;
		node->stats->train_alone_s += job->length_s;
	}
	if (node->way == FLEET_NVSHARE)
		fleet_turns_rest(node, p, now_ns);
	node_next_step(node, p, now_ns);
}

void fleet_node_start(struct fleet_node *node, uint32_t gpu, uint32_t job_index, uint64_t now_ns)
{
	const struct fleet_job *job = &node->trace->jobs[job_index];
	struct fleet_program *p = &node->programs[gpu * node->replicas];
	struct fleet_gpu *g = &node->gpus[gpu];

	while (p->is_used)
		p++;
	assert(p < &node->programs[(gpu + 1) * node->replicas]);
	fleet_share_count(node, gpu, now_ns);
	*p = (struct fleet_program){.is_used = true,
				    .is_open = true,
				    .job = job_index,
				    .gpu = gpu,
				    .bytes = job->bytes,
				    .lack = job->bytes,
				    .start_ns = now_ns,
				    .done_ns = FLEET_NEVER,
				    .move_ns = FLEET_NEVER,
				    .idle_ns = FLEET_NEVER};
	fleet_touch(node, p);
	g->n_programs++;
	g->placed_bytes += job->bytes + FLEET_CONTEXT;
	g->critical_bytes += fleet_is_critical(job) ? job->bytes + FLEET_CONTEXT : 0;
	fleet_steps_begin(&p->steps, job);
	if (node->way == FLEET_NVSHARE)
		fleet_turns_join(node, p, now_ns);
	node_next_step(node, p, now_ns);
}

/* ---- time -------------------------------------------------------------------------------------
 */

static uint64_t node_min(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static uint64_t node_due_ns(const struct fleet_program *p)
{
	uint64_t at_ns = p->is_working ? p->done_ns : p->pause_ns;

	return node_min(at_ns, node_min(p->move_ns, p->idle_ns));
}

uint64_t fleet_node_next(const struct fleet_node *node)
{
	uint64_t at_ns = node->way == FLEET_NVSHARE ? sched_deadline(&node->sched) : FLEET_NEVER;

	for (uint32_t i = 0; i < FLEET_NODE_GPUS * node->replicas; i++)
		at_ns = node_min(at_ns, node->due_ns[i]);
	return at_ns;
}

static void node_refresh(struct fleet_node *node)
{
	for (; node->touched; node->touched &= node->touched - 1) {
		uint32_t slot = (uint32_t)__builtin_ctzll(node->touched);
		const struct fleet_program *p = &node->programs[slot];

		node->due_ns[slot] = p->is_used ? node_due_ns(p) : FLEET_NEVER;
	}
}

static void node_run_program(struct fleet_node *node, struct fleet_program *p, uint64_t now_ns)
{
	if (!p->is_used)
		return; /* it has ended for another one's sake in this step */
	fleet_touch(node, p);
	fleet_share_count(node, p->gpu, now_ns);
	if (p->is_working && p->done_ns <= now_ns)
		node_end_work(node, p, now_ns);
	if (!p->is_working && p->pause_ns <= now_ns)
		node_begin_work(node, p, now_ns);
	if (p->is_used && node->way == FLEET_NVSHARE)
		fleet_turns_due(node, p, now_ns);
}

void fleet_node_run(struct fleet_node *node, uint64_t now_ns)
{
	node->stats->n_events++;
	node_refresh(node);
	for (uint32_t i = 0; i < FLEET_NODE_GPUS * node->replicas; i++) {
		if (node->due_ns[i] <= now_ns)
			node_run_program(node, &node->programs[i], now_ns);
	}
	if (node->way == FLEET_NVSHARE)
		fleet_turns_time(node, now_ns);
	for (uint32_t gpu = 0; gpu < FLEET_NODE_GPUS; gpu++) {
		if (!node->gpus[gpu].is_changed)
			continue;
		fleet_share_count(node, gpu, now_ns);
		fleet_share_compute(node, gpu, now_ns);
	}
	node_refresh(node);
}

void fleet_node_count(struct fleet_node *node, uint64_t now_ns)
{
	for (uint32_t gpu = 0; gpu < FLEET_NODE_GPUS; gpu++)
		fleet_share_count(node, gpu, now_ns);
}

void fleet_node_check(const struct fleet_node *node)
{
	for (uint32_t gpu = 0; gpu < FLEET_NODE_GPUS; gpu++) {
		uint64_t allocated = 0, placed = 0;
		uint32_t n = 0;

		for (uint32_t i = 0; i < node->replicas; i++) {
			const struct fleet_program *p = &node->programs[gpu * node->replicas + i];

			if (!p->is_used)
				continue;
			n++;
			placed += p->bytes + FLEET_CONTEXT;
			allocated += p->lack == 0 ? p->bytes + FLEET_CONTEXT : 0;
		}
		assert(n == node->gpus[gpu].n_programs);
		assert(placed == node->gpus[gpu].placed_bytes);
		if (node->way != FLEET_NVSHARE)
			assert(allocated <= FLEET_CARD);
	}
	if (node->way == FLEET_NVSHARE)
		fleet_turns_check(node);
	assert(node->host_most <= NODE_HOST);
}
