/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Contexts. Making one takes memory like an allocation, so it waits for the GPU and for room.
 * Destroying one gives memory back. It waits only while the program is frozen, so a stopped program
 * can still end.
 */

#include "hook/agent/agent.h"
#include "hook/base/lifecycle.h"
#include "hook/freeze/channels.h"
#include "hook/freeze/freeze.h"
#include "hook/gate/device.h"
#include "hook/gate/gate.h"
#include "hook/gate/green.h"
#include "hook/memory/budget.h"
#include "hook/memory/context_cost.h"
#include "hook/pager/pager.h"
#include "hook/table/cuda_real.h"
#include "hook/table/hooks.h"
#include "hook/tickets/tickets.h"

/* No context costs so much: if more is gone, others have taken memory meanwhile. */
#define CONTEXT_BYTES_MAX (2ull << 30)

/* A call that makes a context, with its arguments. */
struct context_call {
	CUresult (*make)(const struct context_call *call);
	CUcontext *pctx;
	CUdevice dev;
	unsigned int flags;
	CUexecAffinityParam *affinity;
	int n_affinity;
	CUctxCreateParams *params;
	bool is_primary;
};

static bool context_memory_in(CUcontext ctx, size_t *ret_free, size_t *ret_total)
{
	CUcontext popped;
	CUresult res;

	if (cuda_real.cuCtxPushCurrent_v2(ctx) != CUDA_SUCCESS)
		return false;
	res = cuda_real.cuMemGetInfo_v2(ret_free, ret_total);
	(void)cuda_real.cuCtxPopCurrent_v2(&popped);
	return res == CUDA_SUCCESS;
}

/* Reads the card's free memory through an existing context. false: there is none. */
static bool context_memory_before(CUdevice dev, size_t *ret_free)
{
	struct device_context *c = device_context_hold(dev);
	size_t total;
	bool is_known = c && context_memory_in(c->ctx, ret_free, &total);

	device_context_drop(c);
	return is_known;
}

/*
 * The bytes that the new context took. The first one has no figure from before, because the driver
 * answers only in a context. But it took no more than all memory in use on the card. If it took
 * more than expected, the scheduler sees the rest of it in NVML.
 */
static uint64_t context_measure(CUcontext ctx, uint64_t expected, bool has_before, size_t before)
{
	size_t after, total;
	uint64_t cost;

	if (!context_memory_in(ctx, &after, &total))
		return expected;
	if (!has_before) {
		cost = total > after ? total - after : 0;
		return cost < expected ? cost : expected;
	}
	cost = before > after ? before - after : 0;
	return cost < CONTEXT_BYTES_MAX ? cost : expected;
}

static void context_recharge(CUdevice dev, uint64_t charged, uint64_t cost)
{
	if (cost < charged)
		budget_give(dev, charged - cost, NVSHARE_PINNED_CONTEXT);
	else if (cost > charged)
		budget_force(dev, cost - charged, NVSHARE_PINNED_CONTEXT);
}

/* Books a context in the turn that made it. The budget has already been charged for it. */
static void context_book(CUcontext ctx, CUdevice dev, uint64_t charged)
{
	/* Two threads that retain the primary context at once get the same one. */
	if (!agent_add_context(ctx, dev, charged))
		budget_give(dev, charged, NVSHARE_PINNED_CONTEXT);
	lifecycle_renew();
}

/* The caller has the turn (device_turn_begin()). */
static CUresult context_make_and_book(const struct context_call *call, uint64_t charged)
{
	uint64_t cost;
	size_t before = 0;
	bool has_before = context_memory_before(call->dev, &before);
	CUresult res;

	channels_device_begin(call->dev);
	res = call->make(call);
	channels_device_end();
	if (res != CUDA_SUCCESS)
		return res;
	cost = context_measure(*call->pctx, charged, has_before, before);
	context_recharge(call->dev, charged, cost);
	context_book(*call->pctx, call->dev, cost);
	if (call->is_primary)
		(void)device_context_retained(*call->pctx);
	return CUDA_SUCCESS;
}

/* Keeps a freeze from beginning while the context is made. */
static CUresult context_make_held(const struct context_call *call, uint64_t charged)
{
	CUresult res;

	if (!freeze_hold())
		return CUDA_ERROR_DEINITIALIZED;
	device_turn_begin();
	res = context_make_and_book(call, charged);
	device_turn_end();
	freeze_drop();
	return res;
}

static CUresult context_make(const struct context_call *call)
{
	struct budget_tries tries = {0};
	uint64_t charged;
	CUresult res;

	res = agent_use_device(call->dev);
	if (res != CUDA_SUCCESS)
		return res;
	gate_enter();
	charged = context_cost(call->dev);
	res = budget_take(call->dev, charged, NVSHARE_PINNED_CONTEXT);
	if (res != CUDA_SUCCESS)
		goto out;
	do
		res = context_make_held(call, charged);
	while (res == CUDA_ERROR_OUT_OF_MEMORY &&
	       budget_retry(call->dev, charged, NVSHARE_PINNED_CONTEXT, &tries) == CUDA_SUCCESS);
	if (res != CUDA_SUCCESS)
		budget_give(call->dev, charged, NVSHARE_PINNED_CONTEXT);
out:
	gate_leave();
	return res;
}

/*
 * The driver would wait for the work, too. An error of that wait is not lost: the call that
 * destroys the context returns it again.
 */
static void context_finish_work(CUcontext ctx)
{
	CUcontext popped;

	if (cuda_real.cuCtxPushCurrent_v2(ctx) != CUDA_SUCCESS)
		return;
	(void)cuda_real.cuCtxSynchronize();
	(void)cuda_real.cuCtxPopCurrent_v2(&popped);
}

/* The context has ended: all that was in it is gone, and counts no more. */
static void context_is_gone(CUcontext ctx, CUdevice dev, uint64_t charged)
{
	gate_context_gone(ctx);
	freeze_context_gone(ctx);
	tickets_context_gone(ctx);
	pager_context_gone(ctx);
	budget_give(dev, charged, NVSHARE_PINNED_CONTEXT);
}

/* ---- cuCtxCreate ------------------------------------------------------------ */

static CUresult context_make_v1(const struct context_call *call)
{
	return cuda_real.cuCtxCreate(call->pctx, call->flags, call->dev);
}

static CUresult context_make_v2(const struct context_call *call)
{
	return cuda_real.cuCtxCreate_v2(call->pctx, call->flags, call->dev);
}

static CUresult context_make_v3(const struct context_call *call)
{
	return cuda_real.cuCtxCreate_v3(call->pctx, call->affinity, call->n_affinity, call->flags,
					call->dev);
}

static CUresult context_make_v4(const struct context_call *call)
{
	return cuda_real.cuCtxCreate_v4(call->pctx, call->params, call->flags, call->dev);
}

CUresult cuCtxCreate(CUcontext *pctx, unsigned int flags, CUdevice dev)
{
	if (!cuda_real.cuCtxCreate)
		return CUDA_ERROR_NOT_FOUND;
	if (!pctx)
		return cuda_real.cuCtxCreate(pctx, flags, dev);
	return context_make(&(struct context_call){
		.make = context_make_v1, .pctx = pctx, .flags = flags, .dev = dev});
}

CUresult cuCtxCreate_v2(CUcontext *pctx, unsigned int flags, CUdevice dev)
{
	if (!cuda_real.cuCtxCreate_v2)
		return CUDA_ERROR_NOT_FOUND;
	if (!pctx)
		return cuda_real.cuCtxCreate_v2(pctx, flags, dev);
	return context_make(&(struct context_call){
		.make = context_make_v2, .pctx = pctx, .flags = flags, .dev = dev});
}

CUresult cuCtxCreate_v3(CUcontext *pctx, CUexecAffinityParam *paramsArray, int numParams,
			unsigned int flags, CUdevice dev)
{
	if (!cuda_real.cuCtxCreate_v3)
		return CUDA_ERROR_NOT_FOUND;
	if (!pctx)
		return cuda_real.cuCtxCreate_v3(pctx, paramsArray, numParams, flags, dev);
	return context_make(&(struct context_call){.make = context_make_v3,
						   .pctx = pctx,
						   .affinity = paramsArray,
						   .n_affinity = numParams,
						   .flags = flags,
						   .dev = dev});
}

CUresult cuCtxCreate_v4(CUcontext *pctx, CUctxCreateParams *ctxCreateParams, unsigned int flags,
			CUdevice dev)
{
	if (!cuda_real.cuCtxCreate_v4)
		return CUDA_ERROR_NOT_FOUND;
	if (!pctx)
		return cuda_real.cuCtxCreate_v4(pctx, ctxCreateParams, flags, dev);
	return context_make(&(struct context_call){.make = context_make_v4,
						   .pctx = pctx,
						   .params = ctxCreateParams,
						   .flags = flags,
						   .dev = dev});
}

/*
 * The context stays booked until its work has ended. Evicted memory must come back before that work
 * goes on, and memory that the work uses must stay. The books are how the agent knows of the work.
 * Then the context leaves the books before the driver destroys it. If the driver refuses, it is
 * booked again: it may be current elsewhere, or be no context.
 */
static CUresult context_destroy_booked(CUresult (*destroy)(CUcontext ctx), CUcontext ctx,
				       CUdevice dev)
{
	uint64_t charged;
	CUresult res;

	context_finish_work(ctx);
	device_turn_begin();
	charged = agent_forget_context(ctx);
	res = destroy(ctx);
	if (res == CUDA_SUCCESS)
		context_is_gone(ctx, dev, charged);
	else
		(void)agent_add_context(ctx, dev, charged);
	device_turn_end();
	return res;
}

/* No context may be frozen while it is destroyed, not even one that the books do not have. */
static CUresult context_destroy(CUresult (*destroy)(CUcontext ctx), CUcontext ctx)
{
	CUdevice dev = device_of(ctx);
	CUresult res;

	/* The driver refuses to destroy a primary context this way, and its owners stay counted. */
	if (dev != DEVICE_ANY && device_primary(dev) == ctx)
		return destroy(ctx);
	if (!freeze_hold())
		return CUDA_ERROR_DEINITIALIZED;
	res = dev == DEVICE_ANY ? destroy(ctx) : context_destroy_booked(destroy, ctx, dev);
	freeze_drop();
	return res;
}

CUresult cuCtxDestroy(CUcontext ctx)
{
	if (!cuda_real.cuCtxDestroy)
		return CUDA_ERROR_NOT_FOUND;
	return context_destroy(cuda_real.cuCtxDestroy, ctx);
}

CUresult cuCtxDestroy_v2(CUcontext ctx)
{
	if (!cuda_real.cuCtxDestroy_v2)
		return CUDA_ERROR_NOT_FOUND;
	return context_destroy(cuda_real.cuCtxDestroy_v2, ctx);
}

/* Before CUDA 4 programs counted users this way: the last detach destroys the context. */
CUresult cuCtxAttach(CUcontext *pctx, unsigned int flags)
{
	CUresult res;

	if (!cuda_real.cuCtxAttach)
		return CUDA_ERROR_NOT_FOUND;
	res = cuda_real.cuCtxAttach(pctx, flags);
	if (res == CUDA_SUCCESS)
		device_context_attached(*pctx);
	return res;
}

CUresult cuCtxDetach(CUcontext ctx)
{
	CUresult res;

	if (!cuda_real.cuCtxDetach)
		return CUDA_ERROR_NOT_FOUND;
	if (!device_context_detached(ctx))
		return context_destroy(cuda_real.cuCtxDetach, ctx);
	res = cuda_real.cuCtxDetach(ctx);
	if (res != CUDA_SUCCESS)
		device_context_attached(ctx);
	return res;
}

/* ---- primary contexts --------------------------------------------------------- */

static CUresult primary_make(const struct context_call *call)
{
	return cuda_real.cuDevicePrimaryCtxRetain(call->pctx, call->dev);
}

static bool primary_is_active(CUdevice dev)
{
	unsigned int flags;
	int active = 0;

	return cuda_real.cuDevicePrimaryCtxGetState &&
	       cuda_real.cuDevicePrimaryCtxGetState(dev, &flags, &active) == CUDA_SUCCESS && active;
}

/* Adds an owner to a primary context that is booked. false: it must be made, or booked. */
static bool primary_retain_known(const struct context_call *call, CUresult *ret_res)
{
	bool is_known;

	device_turn_begin();
	is_known = primary_is_active(call->dev) && device_primary(call->dev);
	if (is_known) {
		*ret_res = call->make(call);
		if (*ret_res == CUDA_SUCCESS)
			(void)device_context_retained(*call->pctx);
	}
	device_turn_end();
	return is_known;
}

/*
 * Only the first retain makes the context. An active one that is not in the books was made past us,
 * by a library of the driver. It is booked like the others.
 */
CUresult cuDevicePrimaryCtxRetain(CUcontext *pctx, CUdevice dev)
{
	struct context_call call = {
		.make = primary_make, .pctx = pctx, .dev = dev, .is_primary = true};
	CUresult res;

	if (!cuda_real.cuDevicePrimaryCtxRetain)
		return CUDA_ERROR_NOT_FOUND;
	if (!pctx)
		return cuda_real.cuDevicePrimaryCtxRetain(pctx, dev);
	return primary_retain_known(&call, &res) ? res : context_make(&call);
}

/* The caller has the turn (device_turn_begin()). */
static CUresult primary_release_last(CUresult (*release)(CUdevice dev), CUdevice dev, CUcontext ctx)
{
	struct green *greens = green_take_all(ctx);
	uint64_t charged = agent_forget_context(ctx);
	CUresult res = release(dev);

	if (primary_is_active(dev)) {
		green_put_back(greens);
		(void)agent_add_context(ctx, dev, charged);
		(void)device_context_retained(ctx);
	} else {
		green_end(greens);
		green_end(green_take_all(ctx)); /* made meanwhile by others */
		context_is_gone(ctx, dev, charged);
	}
	return res;
}

/* The caller keeps a freeze from beginning. */
static CUresult primary_release_held(CUresult (*release)(CUdevice dev), CUdevice dev, bool is_reset)
{
	CUcontext ctx = NULL, finished = NULL;
	CUresult res;

	/* The owners may change while this waits for the context's work: then it looks again. */
	for (;;) {
		device_turn_begin();
		ctx = is_reset || device_context_is_last(dev) ? device_primary(dev) : NULL;
		if (!ctx || ctx == finished)
			break;
		device_turn_end();
		context_finish_work(ctx);
		finished = ctx;
	}
	if (!is_reset)
		(void)device_context_released(dev, &ctx);
	res = ctx ? primary_release_last(release, dev, ctx) : release(dev);
	device_turn_end();
	return res;
}

static CUresult primary_release(CUresult (*release)(CUdevice dev), CUdevice dev, bool is_reset)
{
	CUresult res;

	if (!freeze_hold())
		return CUDA_ERROR_DEINITIALIZED;
	res = primary_release_held(release, dev, is_reset);
	freeze_drop();
	return res;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice dev)
{
	if (!cuda_real.cuDevicePrimaryCtxRelease)
		return CUDA_ERROR_NOT_FOUND;
	return primary_release(cuda_real.cuDevicePrimaryCtxRelease, dev, false);
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev)
{
	if (!cuda_real.cuDevicePrimaryCtxRelease_v2)
		return CUDA_ERROR_NOT_FOUND;
	return primary_release(cuda_real.cuDevicePrimaryCtxRelease_v2, dev, false);
}

CUresult cuDevicePrimaryCtxReset(CUdevice dev)
{
	if (!cuda_real.cuDevicePrimaryCtxReset)
		return CUDA_ERROR_NOT_FOUND;
	return primary_release(cuda_real.cuDevicePrimaryCtxReset, dev, true);
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice dev)
{
	if (!cuda_real.cuDevicePrimaryCtxReset_v2)
		return CUDA_ERROR_NOT_FOUND;
	return primary_release(cuda_real.cuDevicePrimaryCtxReset_v2, dev, true);
}
