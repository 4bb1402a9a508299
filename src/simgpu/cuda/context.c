/* SPDX-License-Identifier: Apache-2.0 */

#include "simgpu/cuda/context.h"

#include <stdlib.h>
#include <string.h>

#include "simgpu/cuda/api.h"
#include "simgpu/cuda/capture.h"
#include "simgpu/cuda/graph.h"
#include "simgpu/cuda/hold.h"
#include "simgpu/cuda/module.h"
#include "simgpu/cuda/run.h"
#include "simgpu/cuda/space.h"

struct context_stack {
	struct CUctx_st *contexts[SIM_CONTEXT_STACK];
	unsigned int depth;
};

static __thread struct context_stack stack;

struct CUctx_st *context_handle(void)
{
	return stack.depth ? stack.contexts[stack.depth - 1] : NULL;
}

static struct CUctx_st *owner_of(struct CUctx_st *ctx)
{
	return ctx && ctx->owner ? ctx->owner : ctx;
}

struct CUctx_st *context_current(void)
{
	return owner_of(context_handle());
}

struct CUctx_st *context_find(CUcontext handle)
{
	struct CUctx_st *ctx;

	for (ctx = sim.contexts; ctx; ctx = ctx->next)
		if (ctx == handle)
			break;
	if (ctx && ctx->owner && !ctx->is_alive)
		state_follow_stale("a green context");
	return ctx && ctx->is_alive ? ctx : NULL;
}

CUresult context_resolve(CUcontext handle, struct CUctx_st **ret)
{
	struct CUctx_st *ctx = handle;
	bool is_alive;

	if (!ctx) {
		ctx = context_current();
		if (!ctx)
			return CUDA_ERROR_INVALID_CONTEXT;
		if (!__atomic_load_n(&ctx->is_alive, __ATOMIC_ACQUIRE))
			return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	} else {
		state_lock();
		do {
			is_alive = context_find(ctx) != NULL;
		} while (is_alive && hold_pass_locked(ctx));
		state_unlock();
		if (!is_alive)
			return CUDA_ERROR_INVALID_CONTEXT;
	}
	*ret = owner_of(ctx);
	return __atomic_load_n(&(*ret)->error, __ATOMIC_ACQUIRE);
}

struct CUctx_st *context_primary(int device)
{
	struct CUctx_st *ctx = sim.primary[device];

	return ctx && ctx->is_alive ? ctx : NULL;
}

static CUresult push_context(struct CUctx_st *ctx)
{
	if (stack.depth == SIM_CONTEXT_STACK)
		return CUDA_ERROR_OUT_OF_MEMORY;
	stack.contexts[stack.depth++] = ctx;
	return CUDA_SUCCESS;
}

/* By CUlimit; the first three are stack, printf() buffer and malloc() heap. */
static const size_t default_limits[SIM_LIMITS] = {1024, 1 << 20, 8 << 20, 2, 2048, 64};

/*
 * If a program lowers the limits of stack, printf() and malloc() before its first work, a real
 * context becomes a quarter to a half smaller.
 */
static uint64_t bytes_of(const size_t *limits)
{
	static const unsigned int percent[] = {
		[CU_LIMIT_STACK_SIZE] = 20,
		[CU_LIMIT_PRINTF_FIFO_SIZE] = 5,
		[CU_LIMIT_MALLOC_HEAP_SIZE] = 15,
	};
	uint64_t all = node_view.shared->config.context_bytes, left = 100;
	size_t i;

	for (i = 0; i < sizeof(percent) / sizeof(*percent); i++)
		if (limits[i] < default_limits[i])
			left -= percent[i];
	return all / 100 * left + all % 100 * left / 100;
}

CUresult context_set_limit(struct CUctx_st *ctx, CUlimit limit, size_t value)
{
	unsigned int device = device_node(ctx->device);
	size_t limits[SIM_LIMITS];
	CUresult r = CUDA_SUCCESS;
	uint64_t bytes;

	state_lock();
	memcpy(limits, ctx->limits, sizeof(limits));
	limits[limit] = value;
	bytes = ctx->is_used ? ctx->bytes : bytes_of(limits);
	if (bytes > ctx->bytes && node_charge(device, bytes - ctx->bytes) < 0) {
		r = CUDA_ERROR_OUT_OF_MEMORY;
	} else {
		if (bytes < ctx->bytes)
			node_uncharge(device, ctx->bytes - bytes);
		ctx->bytes = bytes;
		ctx->limits[limit] = value;
	}
	state_unlock();
	return r;
}

bool context_flags_are_fine(unsigned int flags)
{
	unsigned int schedule = flags & 7;

	/* At most one way to wait; the other bits are host mapping, local memory, dumps, copies. */
	return !(flags & ~0xffu) && !(schedule & (schedule - 1));
}

CUresult context_new(int device, unsigned int flags, bool is_primary, struct CUctx_st **ret)
{
	struct CUctx_st *ctx;
	CUresult error;

	state_lock();
	error = sim.device_error[device];
	state_unlock();
	if (error)
		return error;
	ctx = calloc(1, sizeof(*ctx));
	if (!ctx || run_start() < 0) {
		free(ctx);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	ctx->bytes = node_view.shared->config.context_bytes;
	if (node_charge(device_node(device), ctx->bytes) < 0) {
		free(ctx);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	ctx->device = device;
	ctx->flags = flags;
	ctx->is_primary = is_primary;
	ctx->id = state_next_id();
	ctx->refs = 1;
	memcpy(ctx->limits, default_limits, sizeof(default_limits));
	ctx->legacy = stream_new(ctx, STREAM_LEGACY, 0, 0);
	if (!ctx->legacy || rm_context_init(ctx) < 0) {
		node_uncharge(device_node(device), ctx->bytes);
		free(ctx->legacy);
		free(ctx);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	state_lock();
	ctx->is_alive = true;
	ctx->next = sim.contexts;
	sim.contexts = ctx;
	if (is_primary)
		sim.primary[device] = ctx;
	state_unlock();
	*ret = ctx;
	return CUDA_SUCCESS;
}

void context_fail(struct CUctx_st *ctx, CUresult error)
{
	struct CUstream_st *stream;
	struct CUctx_st *other;

	if (!sim.device_error[ctx->device])
		node_debug("context %ju fails with %d", (uintmax_t)ctx->id, (int)error);
	sim.device_error[ctx->device] = error;
	for (other = sim.contexts; other; other = other->next) {
		if (other->device != ctx->device || !other->is_alive)
			continue;
		if (!other->error)
			__atomic_store_n(&other->error, error, __ATOMIC_RELEASE);
		for (stream = other->streams; stream; stream = stream->next)
			run_drop(stream);
	}
	state_notify();
}

CUresult context_drain(struct CUctx_st *ctx)
{
	struct CUstream_st *stream = ctx->streams;

	while (stream && ctx->is_alive && !ctx->error) {
		if (run_is_idle(stream)) {
			stream = stream->next;
			continue;
		}
		state_wait();
		stream = ctx->streams; /* the list may have changed */
	}
	return ctx->error;
}

void context_destroy(struct CUctx_st *ctx)
{
	struct CUstream_st *stream, *next;
	struct CUctx_st *green;

	state_lock();
	hold_take(ctx);
	sim.n_ending++;
	context_drain(ctx);
	sim.n_ending--;
	state_notify();
	__atomic_store_n(&ctx->is_alive, false, __ATOMIC_RELEASE);
	for (green = sim.contexts; green; green = green->next)
		if (green->owner == ctx)
			__atomic_store_n(&green->is_alive, false, __ATOMIC_RELEASE);
	if (sim.primary[ctx->device] == ctx)
		sim.primary[ctx->device] = NULL;
	capture_context_gone(ctx);
	/* After a sticky error the worker may still be in its last step. */
	for (stream = ctx->streams; stream; stream = stream->next)
		stream->is_destroyed = false; /* the worker must not free it: this function does */
	for (stream = ctx->streams; stream; stream = stream->next) {
		run_drop(stream);
		while (stream->head || stream->n_users)
			state_wait();
	}
	for (stream = ctx->streams; stream; stream = next) {
		next = stream->next;
		run_stream_free(stream);
	}
	ctx->legacy = NULL;
	module_context_gone(ctx);
	hold_drop(ctx);
	state_unlock();
	rm_context_deinit(ctx);
	space_free_context(ctx);
	graph_memory_trim(ctx->device);
	node_uncharge(device_node(ctx->device), ctx->bytes);
}

static CUresult create_context(CUcontext *pctx, unsigned int flags, CUdevice dev)
{
	struct CUctx_st *ctx;
	CUresult r;

	if (!pctx || !context_flags_are_fine(flags))
		return CUDA_ERROR_INVALID_VALUE;
	if (device_check(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	r = context_new(dev, flags, false, &ctx);
	if (r)
		return r;
	r = push_context(ctx);
	if (r) {
		context_destroy(ctx);
		return r;
	}
	*pctx = ctx;
	return CUDA_SUCCESS;
}

API(cuCtxCreate_v2, (CUcontext * pctx, unsigned int flags, CUdevice dev))
{
	API_ENTER(API_INIT);
	return create_context(pctx, flags, dev);
}

API(cuCtxCreate_v3, (CUcontext * pctx, CUexecAffinityParam *paramsArray, int numParams,
		     unsigned int flags, CUdevice dev))
{
	API_ENTER(API_INIT);
	if (paramsArray && numParams)
		return CUDA_ERROR_NOT_SUPPORTED;
	return create_context(pctx, flags, dev);
}

API(cuCtxCreate_v4,
    (CUcontext * pctx, CUctxCreateParams *ctxCreateParams, unsigned int flags, CUdevice dev))
{
	API_ENTER(API_INIT);
	if (ctxCreateParams &&
	    (ctxCreateParams->numExecAffinityParams || ctxCreateParams->cigParams))
		return CUDA_ERROR_NOT_SUPPORTED;
	return create_context(pctx, flags, dev);
}

static CUresult destroy_handle(CUcontext handle)
{
	struct CUctx_st *ctx;

	state_lock();
	ctx = handle ? context_find(handle) : NULL;
	state_unlock();
	if (!ctx || ctx->is_primary || ctx->owner)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (context_handle() == ctx)
		stack.depth--;
	context_destroy(ctx);
	return CUDA_SUCCESS;
}

API(cuCtxDestroy_v2, (CUcontext ctx))
{
	API_ENTER(API_INIT);
	return destroy_handle(ctx);
}

API(cuCtxDestroy, (CUcontext ctx))
{
	API_ENTER(API_INIT);
	return destroy_handle(ctx);
}

API(cuCtxAttach, (CUcontext * pctx, unsigned int flags))
{
	struct CUctx_st *ctx = context_handle();

	API_ENTER(API_CONTEXT);
	if (!pctx || flags)
		return CUDA_ERROR_INVALID_VALUE;
	if (ctx->is_primary || ctx->owner)
		return CUDA_ERROR_INVALID_CONTEXT;
	state_lock();
	ctx->refs++;
	state_unlock();
	*pctx = ctx;
	return CUDA_SUCCESS;
}

/* Takes the thread's own context only. The last detach destroys it. */
API(cuCtxDetach, (CUcontext ctx))
{
	bool is_last;

	API_ENTER(API_CONTEXT);
	if (ctx != context_handle() || ctx->is_primary || ctx->owner)
		return CUDA_ERROR_INVALID_CONTEXT;
	state_lock();
	is_last = --ctx->refs == 0;
	state_unlock();
	return is_last ? destroy_handle(ctx) : CUDA_SUCCESS;
}

API(cuCtxPushCurrent_v2, (CUcontext ctx))
{
	bool is_known;

	API_ENTER(API_STACK);
	state_lock();
	is_known = ctx && context_find(ctx);
	state_unlock();
	return is_known ? push_context(ctx) : CUDA_ERROR_INVALID_CONTEXT;
}

API(cuCtxPopCurrent_v2, (CUcontext * pctx))
{
	API_ENTER(API_STACK);
	if (!stack.depth)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (pctx)
		*pctx = context_handle();
	stack.depth--;
	return CUDA_SUCCESS;
}

/* Replaces the top of the thread's stack of contexts; NULL pops it. */
API(cuCtxSetCurrent, (CUcontext ctx))
{
	bool is_known;

	API_ENTER(API_STACK);
	if (!ctx) {
		if (stack.depth)
			stack.depth--;
		return CUDA_SUCCESS;
	}
	state_lock();
	is_known = context_find(ctx) != NULL;
	state_unlock();
	if (!is_known)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!stack.depth)
		return push_context(ctx);
	stack.contexts[stack.depth - 1] = ctx;
	return CUDA_SUCCESS;
}

API(cuCtxGetCurrent, (CUcontext * pctx))
{
	API_ENTER(API_STACK);
	if (!pctx)
		return CUDA_ERROR_INVALID_VALUE;
	*pctx = context_handle();
	return CUDA_SUCCESS;
}

API(cuCtxGetDevice, (CUdevice * device))
{
	API_ENTER(API_STACK);
	if (!device)
		return CUDA_ERROR_INVALID_VALUE;
	if (!context_current())
		return CUDA_ERROR_INVALID_CONTEXT;
	*device = context_current()->device;
	return CUDA_SUCCESS;
}
