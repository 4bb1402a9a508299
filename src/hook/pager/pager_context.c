/* SPDX-License-Identifier: Apache-2.0 */

#include "hook/pager/pager_context.h"

#include "hook/base/hook_log.h"
#include "hook/base/hook_options.h"
#include "hook/clean/hash.h"
#include "hook/freeze/channels.h"
#include "hook/gate/bell.h"
#include "hook/gate/device.h"
#include "hook/memory/context_cost.h"
#include "hook/pager/pager.h"
#include "hook/table/cuda_real.h"
#include "util/clock.h"

#include <stddef.h>

/* Its kernel needs none of this, so the driver's least values do: 294 instead of 524 MiB on an
 * H200. */
#define CONTEXT_STACK_BYTES 128
#define CONTEXT_HEAP_BYTES  1024

/* The kernel for digests takes so much of the card (H200, driver 580). */
#define DIGESTS_BYTES (2ull << 20)

#define CONTEXT_TURN_NS  (200 * CLOCK_NS_PER_MS)
#define CONTEXT_PAUSE_NS CLOCK_NS_PER_MS

static struct {
	CUcontext ctx;
	uint64_t bytes;
	bool has_digests;
} pager_contexts[DEVICE_COUNT_MAX];

/* The card's free bytes, as the current context sees them; 0: not known. */
static uint64_t card_free_bytes(void)
{
	size_t free = 0, total;

	if (cuda_real.cuMemGetInfo_v2(&free, &total) != CUDA_SUCCESS)
		return 0;
	return free;
}

static void context_set_limits(void)
{
	if (!cuda_real.cuCtxSetLimit)
		return;
	(void)cuda_real.cuCtxSetLimit(CU_LIMIT_STACK_SIZE, CONTEXT_STACK_BYTES);
	(void)cuda_real.cuCtxSetLimit(CU_LIMIT_PRINTF_FIFO_SIZE, CONTEXT_HEAP_BYTES);
	(void)cuda_real.cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, CONTEXT_HEAP_BYTES);
}

static CUcontext context_make(CUdevice dev)
{
	CUcontext ctx = NULL, popped;
	CUresult res;

	channels_own_begin();
	res = cuda_real.cuCtxCreate_v2(&ctx, CU_CTX_SCHED_BLOCKING_SYNC, dev);
	if (res == CUDA_SUCCESS) {
		context_set_limits();
		(void)cuda_real.cuCtxPopCurrent_v2(&popped);
	}
	channels_own_end();
	if (res != CUDA_SUCCESS) {
		hook_debug("device %d: no second context: error %d", (int)dev, (int)res);
		return NULL;
	}
	return ctx;
}

/* The expected cost, before it is measured. The limits make it less than the program's context. */
static uint64_t context_expected_bytes(CUdevice dev)
{
	return context_cost(dev) / 5 * 3;
}

/*
 * A measured cost is used only if it is plausible, since others take and give memory meanwhile. The
 * context costs no more than one of the program's. A figure well below the expected one is not used
 * either: bytes that no client reports count as memory of others, and no client may have them.
 */
static uint64_t context_plausible_bytes(CUdevice dev, uint64_t before, uint64_t after)
{
	uint64_t most = context_cost(dev), least = context_expected_bytes(dev) / 10 * 9;

	if (before <= after || before - after > most || before - after < least)
		return context_expected_bytes(dev);
	return before - after;
}

/* Compares the free memory before and after. Only a context of the program can ask the driver. */
static void context_make_measured(CUdevice dev)
{
	struct device_context *c = device_context_hold(dev);
	uint64_t before = 0, after = 0;
	CUcontext popped;

	if (c && cuda_real.cuCtxPushCurrent_v2(c->ctx) == CUDA_SUCCESS) {
		before = card_free_bytes();
		pager_contexts[dev].ctx = context_make(dev);
		after = card_free_bytes();
		(void)cuda_real.cuCtxPopCurrent_v2(&popped);
	} else {
		pager_contexts[dev].ctx = context_make(dev);
	}
	device_context_drop(c);
	pager_contexts[dev].bytes = context_plausible_bytes(dev, before, after);
	pager_contexts[dev].has_digests = false;
}

/*
 * A context of the program may be ending, and ours could get its handle before the books forget it.
 * The turn excludes that. The driver needs milliseconds to end a context.
 */
static bool context_take_turn(void)
{
	uint64_t end_ns = clock_now_ns() + CONTEXT_TURN_NS;
	bool is_ours;

	while (!(is_ours = device_turn_try()) && clock_now_ns() < end_ns)
		clock_nap(CONTEXT_PAUSE_NS);
	return is_ours;
}

bool pager_context_make(CUdevice dev, uint64_t max)
{
	if (dev < 0 || dev >= DEVICE_COUNT_MAX || !cuda_real.cuCtxCreate_v2)
		return false;
	if (pager_contexts[dev].ctx)
		return true;
	if (context_expected_bytes(dev) > max) {
		hook_debug("device %d: no second context: it takes %llu KiB, the reserve has %llu",
			   (int)dev, (unsigned long long)(context_expected_bytes(dev) >> 10),
			   (unsigned long long)(max >> 10));
		return false;
	}
	if (!context_take_turn())
		return false;
	context_make_measured(dev);
	device_turn_end();
	if (!pager_contexts[dev].ctx)
		return false;
	bell_memory_changed(dev);
	hook_debug("device %d: second context, %llu MiB", (int)dev,
		   (unsigned long long)(pager_contexts[dev].bytes >> 20));
	return true;
}

/*
 * A program without a second context cannot be stopped in the middle of its work. So digests leave
 * the room for one more context.
 */
static bool context_has_room_for_digests(CUdevice dev, uint64_t max)
{
	return pager_contexts[dev].bytes + DIGESTS_BYTES + context_expected_bytes(dev) <= max;
}

void pager_context_load_digests(CUdevice dev, uint64_t max)
{
	CUcontext ctx = pager_context_get(dev), popped;
	bool is_loaded;

	if (!hook_options()->clean || !ctx || pager_contexts[dev].has_digests ||
	    !context_has_room_for_digests(dev, max) ||
	    cuda_real.cuCtxPushCurrent_v2(ctx) != CUDA_SUCCESS)
		return;
	channels_own_begin();
	is_loaded = hash_load();
	channels_own_end();
	(void)cuda_real.cuCtxPopCurrent_v2(&popped);
	if (!is_loaded)
		return;
	pager_contexts[dev].has_digests = true;
	pager_contexts[dev].bytes += DIGESTS_BYTES;
	bell_memory_changed(dev);
}

uint64_t pager_context_bytes(CUdevice dev)
{
	return pager_context_get(dev) ? pager_contexts[dev].bytes : 0;
}

CUcontext pager_context_get(CUdevice dev)
{
	return dev >= 0 && dev < DEVICE_COUNT_MAX ? pager_contexts[dev].ctx : NULL;
}

void pager_context_drop(CUdevice dev)
{
	CUcontext ctx = pager_context_get(dev);

	if (!ctx)
		return;
	pager_contexts[dev].ctx = NULL;
	(void)cuda_real.cuCtxDestroy_v2(ctx);
	pager_mover_gone(ctx);
	bell_memory_changed(dev);
	hook_debug("device %d: second context gone", (int)dev);
}

void pager_context_after_fork_child(void)
{
	for (CUdevice dev = 0; dev < DEVICE_COUNT_MAX; dev++)
		pager_contexts[dev].ctx = NULL;
}
