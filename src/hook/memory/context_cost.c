/* SPDX-License-Identifier: Apache-2.0 */

#include "hook/memory/context_cost.h"

#include "core/u64.h"
#include "hook/memory/budget.h"

#define COST_MAX  (512ull << 20)
#define COST_CARD 32 /* or so much of a small card */

static uint64_t learned[BUDGET_DEVICES]; /* atomic; 0: not known */

uint64_t context_cost(CUdevice dev)
{
	uint64_t bytes;

	if (dev < 0 || dev >= BUDGET_DEVICES)
		return 0;
	bytes = __atomic_load_n(&learned[dev], __ATOMIC_RELAXED);
	return bytes ? bytes : u64_min(COST_MAX, budget_total(dev) / COST_CARD);
}

void context_cost_learn(CUdevice dev, uint64_t bytes)
{
	if (dev >= 0 && dev < BUDGET_DEVICES)
		__atomic_store_n(&learned[dev], bytes, __ATOMIC_RELAXED);
}

void context_cost_after_fork_child(void)
{
	for (CUdevice dev = 0; dev < BUDGET_DEVICES; dev++)
		context_cost_learn(dev, 0);
}
