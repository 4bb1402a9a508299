/* SPDX-License-Identifier: Apache-2.0 */

#include "core/reserve.h"
#include "core/u64.h"

/*
 * Half of the reserve serves a client that comes: its copies begin at once, not when the first
 * chunk of the other one is out. Pinned bytes live in the same half, so that a program may fill all
 * that it is told is free, although the contexts of others are on the card. The other half is for
 * pager contexts, and for what the driver takes by itself.
 */
#define RESERVE_PART 2

uint64_t reserve_bytes(const struct sched *sched, uint32_t gpu)
{
	const struct sched_gpu *g = &sched->gpus[gpu];
	uint64_t total = g->total, part = 100 - g->config.reserve_percent;

	return total - (total / 100 * part + total % 100 * part / 100);
}

uint64_t reserve_half(const struct sched *sched, uint32_t gpu)
{
	return reserve_bytes(sched, gpu) / RESERVE_PART;
}

uint64_t reserve_used(const struct sched *sched, uint32_t gpu, uint64_t pager_contexts,
		      uint64_t pinned, uint64_t lead)
{
	uint64_t all = reserve_bytes(sched, gpu);
	uint64_t most = all > pager_contexts ? (all - pager_contexts) / RESERVE_PART : 0;

	return u64_min(most, u64_min(pinned, most) + u64_min(lead, most));
}
