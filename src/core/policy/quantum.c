/* SPDX-License-Identifier: Apache-2.0 */

#include "core/policy/quantum.h"

#include "core/policy/owner.h"
#include "core/u64.h"

#define SECOND_NS 1000000000ull
#define GIB       (1ull << 30)
#define LINK_MAX  (1ull << 42) /* 4 TiB/s: above any bus; keeps the average from overflow */
#define LINK_MIN  (1ull << 27) /* 128 MiB/s: below any bus; keeps times from overflow */

/* A sample below this part of the link, or above twice the link, says nothing about the bus. */
#define SAMPLE_PART 16
#define SAMPLE_MIN  GIB /* where the link is unknown */
#define SAMPLE_MAX  (128 * GIB)

/* value * mul / div, div > 0, saturating. Digit by digit, so that nothing overflows. */
static uint64_t quantum_scale(uint64_t value, uint64_t mul, uint64_t div)
{
	uint64_t whole = value / div, rest = value % div, part;

	if (whole > 0 && mul > UINT64_MAX / whole)
		return UINT64_MAX;
	while (rest > 0 && mul > UINT64_MAX / rest) {
		rest >>= 1;
		div >>= 1;
	}
	part = rest * mul / div;
	return whole * mul > UINT64_MAX - part ? UINT64_MAX : whole * mul + part;
}

uint64_t quantum_bandwidth(const struct sched *sched, uint32_t gpu)
{
	const struct sched_gpu *g = &sched->gpus[gpu];

	return g->bandwidth > 0 ? g->bandwidth : g->link_bandwidth;
}

uint64_t quantum_swap(const struct sched *sched, uint32_t gpu, uint64_t bytes)
{
	uint64_t bandwidth = quantum_bandwidth(sched, gpu);

	return bandwidth > 0 ? quantum_scale(bytes, SECOND_NS, bandwidth) : 0;
}

uint64_t quantum_most(const struct sched *sched, uint32_t gpu)
{
	const struct sched_gpu *g = &sched->gpus[gpu];
	uint64_t most_ns = g->config.max_runtime_ns;
	/* Many clients of one owner must not make the turns of others short. */
	uint64_t n_waiting = g->n_owners > 1 ? owner_n_waiting(sched, gpu) : g->queue.n;

	if (n_waiting == 0)
		return most_ns;
	return u64_min(most_ns, u64_max(sched->config.wait_bound_ns / n_waiting, SECOND_NS));
}

uint64_t quantum_turn(const struct sched *sched, uint32_t gpu, uint64_t bytes)
{
	const struct sched_config *config = &sched->config;
	const struct sched_gpu_config *own = &sched->gpus[gpu].config;
	uint64_t turn;

	if (own->mode == SCHED_MODE_CONCURRENT) {
		turn = own->tq_ns;
	} else if (own->switch_mode == SCHED_SWITCH_FIXED) {
		turn = own->switch_fixed_ns;
	} else {
		turn = quantum_scale(quantum_swap(sched, gpu, bytes), config->switch_multiplier, 1);
		turn = u64_min(u64_max(turn, config->switch_min_ns), config->switch_max_ns);
	}
	return u64_min(turn, quantum_most(sched, gpu));
}

/* The link's bandwidth, within what buses can do; 0: unknown. */
static uint64_t quantum_link(const struct sched_gpu *g)
{
	if (g->link_bandwidth == 0)
		return 0;
	return u64_min(u64_max(g->link_bandwidth, LINK_MIN), LINK_MAX);
}

/* A copy that is slower is not waited for, nor believed. */
static uint64_t quantum_least(const struct sched_gpu *g)
{
	return g->link_bandwidth > 0 ? quantum_link(g) / SAMPLE_PART : SAMPLE_MIN;
}

uint64_t quantum_answer(const struct sched *sched, uint32_t gpu, uint64_t bytes)
{
	const struct sched_gpu *g = &sched->gpus[gpu];
	uint64_t moved = u64_min(bytes, g->total);
	uint64_t copy = quantum_scale(moved, SECOND_NS, GIB);
	uint64_t bandwidth = quantum_bandwidth(sched, gpu);
	uint64_t most = u64_max(sched->config.wait_bound_ns,
				quantum_scale(moved, 2 * SECOND_NS, quantum_least(g)));

	if (bandwidth > 0)
		copy = u64_max(copy, quantum_scale(moved, 2 * SECOND_NS, bandwidth));
	return sched->config.answer_ns + u64_min(copy, u64_excess(most, sched->config.answer_ns));
}

/* Any client reports samples, so none says more than a bus like this one can do. */
static uint64_t quantum_sample(const struct sched_gpu *g, uint64_t bandwidth)
{
	uint64_t link = quantum_link(g);

	return u64_min(u64_max(bandwidth, quantum_least(g)), link > 0 ? 2 * link : SAMPLE_MAX);
}

void quantum_measure(struct sched *sched, uint32_t gpu, uint64_t moved, uint64_t move_ns)
{
	struct sched_gpu *g = &sched->gpus[gpu];
	uint64_t bandwidth;

	if (moved == 0 || move_ns == 0)
		return;
	bandwidth = quantum_sample(g, quantum_scale(moved, SECOND_NS, move_ns));
	g->bandwidth = g->bandwidth == 0 ? bandwidth : (g->bandwidth * 7 + bandwidth * 3) / 10;
}
