/* SPDX-License-Identifier: Apache-2.0 */

/*
 * How fast the programs compute that have work on one GPU. A program that is alone computes for a
 * part of the time, its demand. Programs beside each other divide the GPU by
 * max-min fairness with weights: nobody gets more than its demand, and what one leaves the others
 * have.
 */

#include "fleet_node.h"

#include <assert.h>
#include <math.h>

/* Of a GPU's time, what two or more programs have of it. Measured with programs that never rest:
 * tests/gpu/results/shares.md. */
#define SLICES_PART  0.906
#define NVSHARE_PART 0.979

/* Under nvshare, critical programs have at most so much while others have work, and the slices of
 * class high are ten times as long as those of class normal: src/core/timeshare/README.md. */
#define CRITICAL_PART 0.9
#define HIGH_WEIGHT   10.0

static struct fleet_program *share_first(const struct fleet_node *node, uint32_t gpu)
{
	return &node->programs[gpu * node->replicas];
}

static bool share_computes(const struct fleet_program *program)
{
	return program->is_used && program->is_working && program->is_open;
}

void fleet_share_count(struct fleet_node *node, uint32_t gpu, uint64_t now_ns)
{
	struct fleet_gpu *g = &node->gpus[gpu];
	double s = (double)(now_ns - g->counted_ns) / 1e9, share = 0;

	if (now_ns == g->counted_ns)
		return;
	for (uint32_t i = 0; i < node->replicas; i++) {
		struct fleet_program *program = &share_first(node, gpu)[i];
		enum fleet_kind kind;

		if (!program->is_used || !program->is_working)
			continue;
		kind = fleet_job_of(node, program)->kind;
		node->stats->asked_s[kind] += s * program->step.demand;
		if (!program->is_open)
			continue;
		program->left_s -= s * program->speed;
		program->told_s += s * program->share;
		node->stats->kind_s[kind] += s * program->share;
		share += program->share;
	}
	if (share > 0)
		g->busy_ns = now_ns;
	fleet_stats_busy(node->stats, g->counted_ns, now_ns, share);
	g->counted_ns = now_ns;
}

/* Divides left among the n programs; the smallest demands for each weight are met first. */
static double share_divide(struct fleet_program **programs, uint32_t n, double left)
{
	double weight = 0;

	for (uint32_t i = 0; i < n; i++) {
		programs[i]->share = -1;
		weight += programs[i]->weight;
	}
	for (uint32_t round = 0; round < n; round++) {
		struct fleet_program *least = NULL;

		for (uint32_t i = 0; i < n; i++) {
			struct fleet_program *p = programs[i];

			if (p->share < 0 && (!least || p->step.demand * least->weight <
							       least->step.demand * p->weight))
				least = p;
		}
		assert(least);
		least->share = fmin(least->step.demand, left * least->weight / weight);
		left -= least->share;
		weight -= least->weight;
	}
	return left;
}

static uint64_t share_done_ns(const struct fleet_program *program, uint64_t now_ns)
{
	double ns;

	if (program->speed <= 0 || isinf(program->left_s))
		return FLEET_NEVER;
	ns = program->left_s > 0 ? ceil(program->left_s / program->speed * 1e9) : 0;
	return ns < 1e18 ? now_ns + (uint64_t)ns : FLEET_NEVER;
}

void fleet_share_compute(struct fleet_node *node, uint32_t gpu, uint64_t now_ns)
{
	struct fleet_program *critical[FLEET_REPLICAS_MAX], *others[FLEET_REPLICAS_MAX];
	uint32_t n_critical = 0, n_others = 0;
	double left = node->way == FLEET_NVSHARE ? NVSHARE_PART : SLICES_PART;

	for (uint32_t i = 0; i < node->replicas; i++) {
		struct fleet_program *p = &share_first(node, gpu)[i];
		enum fleet_kind kind;

		if (!p->is_used)
			continue;
		fleet_touch(node, p);
		p->speed = p->share = 0;
		p->done_ns = FLEET_NEVER;
		if (!share_computes(p))
			continue;
		kind = fleet_job_of(node, p)->kind;
		p->weight = node->way == FLEET_NVSHARE && kind == FLEET_NOTEBOOK ? HIGH_WEIGHT : 1;
		if (node->way == FLEET_NVSHARE && kind == FLEET_INFERENCE)
			critical[n_critical++] = p;
		else
			others[n_others++] = p;
	}
	if (n_critical + n_others <= 1)
		left = 1;
	if (n_critical > 0) {
		double part = n_others > 0 ? CRITICAL_PART : 1;

		left = left * (1 - part) + share_divide(critical, n_critical, left * part);
	}
	(void)share_divide(others, n_others, left);
	node->gpus[gpu].share = 0;
	for (uint32_t i = 0; i < node->replicas; i++) {
		struct fleet_program *p = &share_first(node, gpu)[i];

		if (!p->is_used)
			continue;
		node->gpus[gpu].share += p->share;
		if (p->share > 0) {
			p->speed = p->share / p->step.demand;
			p->done_ns = share_done_ns(p, now_ns);
		}
	}
	node->gpus[gpu].is_changed = false;
}
