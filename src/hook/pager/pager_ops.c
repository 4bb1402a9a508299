/* SPDX-License-Identifier: Apache-2.0 */

#include "hook/pager/pager_ops.h"

static void hear_nothing(CUdevice dev, uint64_t bytes)
{
	(void)dev;
	(void)bytes;
}

static enum pager_more have_no_more(CUdevice dev, int wait_ms)
{
	(void)dev;
	(void)wait_ms;
	return PAGER_MORE_LATER;
}

static bool await_nothing(CUdevice dev, uint64_t moved, uint64_t bytes, int wait_ms)
{
	(void)dev;
	(void)moved;
	(void)bytes;
	(void)wait_ms;
	return false;
}

static void give_nothing(CUdevice dev)
{
	(void)dev;
}

static bool release_nothing(CUdevice dev)
{
	(void)dev;
	return false;
}

static void free_nothing(struct pools_block *block)
{
	(void)block;
}

static void forget_nothing(CUcontext ctx)
{
	(void)ctx;
}

static const struct pager_agent no_agent = {
	.moved_out = hear_nothing,
	.more_budget = have_no_more,
	.await_host = await_nothing,
	.give_host = give_nothing,
};

static const struct pager_pools no_pools = {
	.release = release_nothing,
	.make_room = hear_nothing,
	.block_free = free_nothing,
	.context_gone = forget_nothing,
};

/* Atomic. */
static const struct pager_agent *agent = &no_agent;
static const struct pager_pools *pools = &no_pools;

void pager_set_agent(const struct pager_agent *ops)
{
	__atomic_store_n(&agent, ops, __ATOMIC_RELEASE);
}

void pager_set_pools(const struct pager_pools *ops)
{
	__atomic_store_n(&pools, ops, __ATOMIC_RELEASE);
}

const struct pager_agent *pager_agent(void)
{
	return __atomic_load_n(&agent, __ATOMIC_ACQUIRE);
}

const struct pager_pools *pager_pools(void)
{
	return __atomic_load_n(&pools, __ATOMIC_ACQUIRE);
}
