/* SPDX-License-Identifier: Apache-2.0 */

#include "hook/pager/pager_ops.h"

static void ignore_bytes(CUdevice dev, uint64_t bytes)
{
	(void)dev;
	(void)bytes;
}

static enum pager_more no_agent_more_budget(CUdevice dev)
{
	(void)dev;
	return PAGER_MORE_LATER;
}

static bool no_agent_await_host(CUdevice dev, uint64_t moved, uint64_t bytes)
{
	(void)dev;
	(void)moved;
	(void)bytes;
	return false;
}

static void no_agent_give_host(CUdevice dev)
{
	(void)dev;
}

static enum pager_back no_agent_take_back(CUdeviceptr addr, size_t size, bool is_late)
{
	(void)addr;
	(void)size;
	(void)is_late;
	return PAGER_BACK_NO;
}

static bool no_pools_release(CUdevice dev)
{
	(void)dev;
	return false;
}

static void no_pools_free(struct pools_block *block)
{
	(void)block;
}

static void no_pools_forget(CUcontext ctx)
{
	(void)ctx;
}

static const struct pager_agent no_agent = {
	.moved_out = ignore_bytes,
	.more_budget = no_agent_more_budget,
	.await_host = no_agent_await_host,
	.give_host = no_agent_give_host,
	.take_back = no_agent_take_back,
};

static const struct pager_pools no_pools = {
	.release = no_pools_release,
	.make_room = ignore_bytes,
	.block_free = no_pools_free,
	.context_gone = no_pools_forget,
};

/* Atomic. */
static struct {
	const struct pager_agent *agent;
	const struct pager_pools *pools;
} above = {.agent = &no_agent, .pools = &no_pools};

void pager_set_agent(const struct pager_agent *ops)
{
	__atomic_store_n(&above.agent, ops, __ATOMIC_RELEASE);
}

void pager_set_pools(const struct pager_pools *ops)
{
	__atomic_store_n(&above.pools, ops, __ATOMIC_RELEASE);
}

const struct pager_agent *pager_agent(void)
{
	return __atomic_load_n(&above.agent, __ATOMIC_ACQUIRE);
}

const struct pager_pools *pager_pools(void)
{
	return __atomic_load_n(&above.pools, __ATOMIC_ACQUIRE);
}
