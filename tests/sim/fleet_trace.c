/* SPDX-License-Identifier: Apache-2.0 */
#include "fleet_trace.h"

#include "util/prng.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

#define HOUR_S 3600.0

/* Notebooks: NotebookOS. Half of the cells take 120 s at most, three quarters 300 s. */
#define CELL_MEDIAN_S    120.0
#define CELL_SIGMA       1.358
#define OFTEN_PART       0.25  /* sessions that compute for more than 5 % of their time */
#define OFTEN_PAUSE_S    112.0 /* median: with cells it makes 300 s between two starts */
#define OFTEN_SIGMA      1.0
#define SELDOM_PAUSE_S   6000.0 /* mean: with cells it makes 5 % of the time */
#define SESSION_MEDIAN_S (3 * HOUR_S)
#define SESSION_SIGMA    0.8
#define SESSION_MAX_S    (12 * HOUR_S)

/* Training: Helios for the length, Philly for the use of the GPU. */
#define TRAIN_MEDIAN_S   206.0
#define TRAIN_SIGMA      2.636
#define TRAIN_MAX_S      (24 * HOUR_S)
#define TRAIN_DEMAND_MIN 0.05
#define TRAIN_DEMAND_MAX 1.0

/* Inference: Aegaeon for the load of servers, Azure for the length of answers. */
#define SPARSE_PART       0.177
#define STEADY_DEMAND_MIN 0.133
#define STEADY_DEMAND_MAX 0.339
#define SPARSE_PAUSE_S    27.0
#define SPARSE_DEMAND     0.9
#define TOKENS_MEDIAN     129.0
#define TOKENS_SIGMA      0.992
#define TOKEN_S           0.03

/* Quantiles of a distribution, between which a draw is linear. */
struct fleet_quantiles {
	size_t n;
	double at[10], value[10];
};

/* Parts of a card. Sharers' requests in Alibaba's openb trace; peaks of jobs on Perlmutter; peaks
 * of servers in Alibaba's GenTD26, in parts of 80 GiB. */
static const struct fleet_quantiles memory_of[FLEET_KINDS] = {
	[FLEET_NOTEBOOK] = {7,
			    {0, 0.05, 0.10, 0.25, 0.50, 0.75, 1},
			    {0.10, 0.22, 0.258, 0.46, 0.47, 0.81, 0.81}},
	[FLEET_TRAINING] = {3, {0, 0.55, 1}, {0.05, 0.5, 0.9}},
	[FLEET_INFERENCE] = {7,
			     {0, 0.05, 0.25, 0.50, 0.75, 0.95, 1},
			     {0.10, 0.21, 0.40, 0.46, 0.51, 0.575, 0.7}},
};

static double draw_uniform(uint64_t *rng)
{
	return ((double)(prng_next(rng) >> 11) + 0.5) * 0x1p-53;
}

static double draw_between(uint64_t *rng, double low, double high)
{
	return low + (high - low) * draw_uniform(rng);
}

static double draw_exponential(uint64_t *rng, double mean)
{
	return -log(draw_uniform(rng)) * mean;
}

/* By Box and Muller. */
static double draw_lognormal(uint64_t *rng, double median, double sigma)
{
	double radius = sqrt(-2 * log(draw_uniform(rng)));

	return median * exp(sigma * radius * cos(2 * M_PI * draw_uniform(rng)));
}

static double draw_quantile(uint64_t *rng, const struct fleet_quantiles *q)
{
	double at = draw_uniform(rng);
	size_t i = 1;

	while (i + 1 < q->n && q->at[i] < at)
		i++;
	return q->value[i - 1] +
	       (q->value[i] - q->value[i - 1]) * (at - q->at[i - 1]) / (q->at[i] - q->at[i - 1]);
}

static double draw_length(uint64_t *rng, enum fleet_kind kind)
{
	if (kind == FLEET_NOTEBOOK)
		return fmin(draw_lognormal(rng, SESSION_MEDIAN_S, SESSION_SIGMA), SESSION_MAX_S);
	return fmin(draw_lognormal(rng, TRAIN_MEDIAN_S, TRAIN_SIGMA), TRAIN_MAX_S);
}

static double mean_length(enum fleet_kind kind)
{
	uint64_t rng = 1;
	double sum = 0;

	for (int i = 0; i < 100000; i++)
		sum += draw_length(&rng, kind);
	return sum / 100000;
}

/* The rest of a job that one meets at a random time. Long jobs are met more often. */
static double draw_rest(uint64_t *rng, enum fleet_kind kind)
{
	double most = kind == FLEET_NOTEBOOK ? SESSION_MAX_S : TRAIN_MAX_S, length;

	do
		length = draw_length(rng, kind);
	while (draw_uniform(rng) * most > length);
	return length * draw_uniform(rng);
}

static struct fleet_job draw_job(uint64_t *rng, enum fleet_kind kind, double at_s, bool is_first)
{
	struct fleet_job job = {.at_ns = (uint64_t)(at_s * (double)FLEET_S_NS),
				.kind = kind,
				.owner = (uint32_t)prng_below(rng, FLEET_OWNERS)};

	job.bytes = (uint64_t)(draw_quantile(rng, &memory_of[kind]) * (double)FLEET_CARD);
	job.demand = draw_between(rng, TRAIN_DEMAND_MIN, TRAIN_DEMAND_MAX);
	job.is_often = draw_uniform(rng) < OFTEN_PART;
	if (kind == FLEET_INFERENCE) {
		job.length_s = INFINITY;
		job.is_often = draw_uniform(rng) >= SPARSE_PART;
		job.demand = job.is_often ? draw_between(rng, STEADY_DEMAND_MIN, STEADY_DEMAND_MAX)
					  : SPARSE_DEMAND;
	} else {
		job.length_s = is_first ? draw_rest(rng, kind) : draw_length(rng, kind);
	}
	job.seed = prng_next(rng);
	return job;
}

static void add_job(struct fleet_trace *trace, size_t *size, const struct fleet_job *job)
{
	if (trace->n_jobs == *size) {
		*size = *size ? 2 * *size : 1024;
		trace->jobs = realloc(trace->jobs, *size * sizeof(*trace->jobs));
		if (!trace->jobs)
			abort();
	}
	trace->jobs[trace->n_jobs++] = *job;
}

static int compare_jobs(const void *left, const void *right)
{
	const struct fleet_job *a = left, *b = right;

	if (a->at_ns != b->at_ns)
		return a->at_ns < b->at_ns ? -1 : 1;
	return a->seed < b->seed ? -1 : a->seed > b->seed;
}

void fleet_trace_draw(struct fleet_trace *trace, const struct fleet_mix *mix)
{
	uint64_t rng = mix->seed;
	size_t size = 0;

	*trace = (struct fleet_trace){0};
	for (enum fleet_kind kind = 0; kind < FLEET_KINDS; kind++) {
		double at_once = mix->load * mix->part[kind] * mix->n_gpus;
		double gap_s = kind == FLEET_INFERENCE || at_once <= 0
				       ? INFINITY
				       : mean_length(kind) / at_once;

		for (double i = 0; i + 0.5 < at_once; i++) {
			struct fleet_job job = draw_job(&rng, kind, 0, true);

			add_job(trace, &size, &job);
		}
		for (double at_s = draw_exponential(&rng, gap_s); at_s < mix->length_s;
		     at_s += draw_exponential(&rng, gap_s)) {
			struct fleet_job job = draw_job(&rng, kind, at_s, false);

			add_job(trace, &size, &job);
		}
	}
	/* qsort() need not keep an order. Seeds differ, and order those that come at once. */
	qsort(trace->jobs, trace->n_jobs, sizeof(*trace->jobs), compare_jobs);
}

void fleet_trace_free(struct fleet_trace *trace)
{
	free(trace->jobs);
	*trace = (struct fleet_trace){0};
}

void fleet_steps_begin(struct fleet_steps *steps, const struct fleet_job *job)
{
	*steps = (struct fleet_steps){.rng = job->seed, .left_s = job->length_s};
}

static struct fleet_step draw_cell(struct fleet_steps *steps, const struct fleet_job *job)
{
	struct fleet_step step = {.demand = job->demand};

	step.pause_s = job->is_often ? draw_lognormal(&steps->rng, OFTEN_PAUSE_S, OFTEN_SIGMA)
				     : draw_exponential(&steps->rng, SELDOM_PAUSE_S);
	step.work_s = draw_lognormal(&steps->rng, CELL_MEDIAN_S, CELL_SIGMA);
	/* The last cell is cut where the session ends. */
	step.pause_s = fmin(step.pause_s, steps->left_s);
	step.work_s = fmin(step.work_s, steps->left_s - step.pause_s);
	steps->left_s -= step.pause_s + step.work_s;
	return step;
}

struct fleet_step fleet_steps_next(struct fleet_steps *steps, const struct fleet_job *job)
{
	struct fleet_step step = {.demand = job->demand};

	switch (job->kind) {
	case FLEET_NOTEBOOK:
		return draw_cell(steps, job);
	case FLEET_TRAINING:
		step.work_s = steps->left_s;
		steps->left_s = 0;
		return step;
	case FLEET_INFERENCE:
		if (job->is_often) {
			step.work_s = INFINITY;
			return step;
		}
		step.pause_s = draw_exponential(&steps->rng, SPARSE_PAUSE_S);
		step.work_s = TOKEN_S * draw_lognormal(&steps->rng, TOKENS_MEDIAN, TOKENS_SIGMA);
		return step;
	case FLEET_KINDS:
		break;
	}
	abort();
}
