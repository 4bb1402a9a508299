/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_TESTS_HOOK_FAKE_LIBRARY_H
#define NVS_TESTS_HOOK_FAKE_LIBRARY_H

/*
 * What the memory modules call in the rest of the library, in place of it. A part of
 * fake_memory.h, whose state it uses.
 */

#include "hook/gate/device.h"

CUresult agent_use_device(CUdevice dev)
{
	(void)dev;
	return CUDA_SUCCESS;
}

static uint64_t fake_context_cost;

uint64_t context_cost(CUdevice dev)
{
	(void)dev;
	return fake_context_cost;
}

bool agent_add_context(CUcontext ctx, CUdevice dev, uint64_t charged)
{
	return device_context_add(ctx, dev, charged);
}

uint64_t agent_forget_context(CUcontext ctx)
{
	return device_context_forget(ctx);
}

void bell_memory_changed(CUdevice dev)
{
	if (fake.on_changed)
		fake.on_changed(dev);
}

void bell_memory_wanted(CUdevice dev)
{
	__atomic_add_fetch(&fake.n_wants, 1, __ATOMIC_SEQ_CST);
	if (fake.on_want)
		fake.on_want(dev);
}

void agent_stop(void)
{
}

bool bell_is_stopping(void)
{
	return fake.is_stopping;
}

static void fake_moved_out(CUdevice dev, uint64_t bytes)
{
	(void)dev;
	fake.moved_out = bytes;
	fake.n_moved_out++;
}

static enum pager_more fake_more_budget(CUdevice dev)
{
	(void)dev;
	return fake.on_more ? fake.on_more() : PAGER_MORE_LATER;
}

static bool fake_await_host(CUdevice dev, uint64_t moved, uint64_t bytes)
{
	(void)dev;
	(void)moved;
	return fake.on_await_host && fake.on_await_host(bytes);
}

static void fake_give_host(CUdevice dev)
{
	(void)dev;
	fake.n_given_host++;
}

static enum pager_back fake_take_back(CUdeviceptr addr, size_t size, bool is_late)
{
	(void)is_late;
	return fake.on_take_back && fake.on_take_back(addr, size) ? PAGER_BACK_YES : PAGER_BACK_NO;
}

void bell_ring(void)
{
}

void agent_after_fork_child(void)
{
}

void bell_after_fork_child(void)
{
}

void context_cost_after_fork_child(void)
{
}

static const struct pager_agent fake_agent = {
	.moved_out = fake_moved_out,
	.more_budget = fake_more_budget,
	.await_host = fake_await_host,
	.give_host = fake_give_host,
	.take_back = fake_take_back,
};

const struct hook_options *hook_options(void)
{
	return &fake.options;
}

enum nvshare_backend backend_of(CUdevice dev)
{
	(void)dev;
	return fake.backend;
}

#endif
