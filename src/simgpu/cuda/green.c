/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Green contexts: handles that group streams of a primary context. They do not divide the
 * multiprocessors: each green context has all.
 */

#include <stdlib.h>

#include "simgpu/cuda/api.h"
#include "simgpu/cuda/capture.h"
#include "simgpu/cuda/context.h"
#include "simgpu/cuda/event.h"
#include "simgpu/cuda/run.h"
#include "simgpu/cuda/work.h"

struct CUdevResourceDesc_st {
	CUdevResourceType type;
};

static struct CUdevResourceDesc_st everything = {CU_DEV_RESOURCE_TYPE_SM};

API(cuDeviceGetDevResource, (CUdevice device, CUdevResource *resource, CUdevResourceType type))
{
	API_ENTER(API_INIT);
	if (device_check(device))
		return CUDA_ERROR_INVALID_DEVICE;
	if (!resource || type != CU_DEV_RESOURCE_TYPE_SM)
		return CUDA_ERROR_INVALID_VALUE;
	*resource = (CUdevResource){.type = type};
	return CUDA_SUCCESS;
}

API(cuDevResourceGenerateDesc,
    (CUdevResourceDesc * phDesc, CUdevResource *resources, unsigned int nbResources))
{
	API_ENTER(API_INIT);
	if (!phDesc || !resources || nbResources != 1 || resources->type != CU_DEV_RESOURCE_TYPE_SM)
		return CUDA_ERROR_INVALID_VALUE;
	*phDesc = &everything;
	return CUDA_SUCCESS;
}

/* A living green context, or NULL. As for contexts, a dead one's handle stays. */
static struct CUctx_st *green_find(CUgreenCtx handle)
{
	struct CUctx_st *green;

	state_lock();
	green = handle ? context_find((CUcontext)handle) : NULL;
	state_unlock();
	return green && green->owner ? green : NULL;
}

/* It ended with its primary context, which was reset. */
static bool green_is_reset(CUgreenCtx handle)
{
	struct CUctx_st *ctx;

	state_lock();
	for (ctx = sim.contexts; ctx && (CUgreenCtx)ctx != handle; ctx = ctx->next)
		;
	state_unlock();
	return ctx && ctx->owner && !ctx->owner->is_alive;
}

API(cuGreenCtxCreate,
    (CUgreenCtx * phCtx, CUdevResourceDesc desc, CUdevice dev, unsigned int flags))
{
	struct CUctx_st *green;
	CUcontext primary;
	CUresult r;

	API_ENTER(API_INIT);
	if (!phCtx || desc != &everything || flags != CU_GREEN_CTX_DEFAULT_STREAM)
		return CUDA_ERROR_INVALID_VALUE;
	r = primary_retain(dev, &primary);
	if (r)
		return r;
	green = calloc(1, sizeof(*green));
	if (!green) {
		(void)primary_release(dev);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	green->device = dev;
	green->owner = primary;
	green->id = state_next_id();
	state_lock();
	green->is_alive = true;
	green->next = sim.contexts;
	sim.contexts = green;
	state_unlock();
	*phCtx = (CUgreenCtx)green;
	return CUDA_SUCCESS;
}

/* Its streams stay until they are destroyed, and are good for nothing else. */
API(cuGreenCtxDestroy, (CUgreenCtx hCtx))
{
	struct CUstream_st *stream;
	struct CUctx_st *green;

	API_ENTER(API_INIT);
	if (green_is_reset(hCtx))
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	green = green_find(hCtx);
	if (!green)
		return CUDA_ERROR_INVALID_CONTEXT;
	state_lock();
	for (stream = green->owner->streams; stream; stream = stream->next)
		if (stream->green == green)
			capture_stream_gone(stream);
	__atomic_store_n(&green->is_alive, false, __ATOMIC_RELEASE);
	state_unlock();
	return primary_release(green->device);
}

API(cuCtxFromGreenCtx, (CUcontext * pContext, CUgreenCtx hCtx))
{
	struct CUctx_st *green;

	API_ENTER(API_INIT);
	green = green_find(hCtx);
	if (!pContext || !green)
		return CUDA_ERROR_INVALID_VALUE;
	*pContext = green;
	return CUDA_SUCCESS;
}

API(cuGreenCtxStreamCreate,
    (CUstream * phStream, CUgreenCtx greenCtx, unsigned int flags, int priority))
{
	struct CUstream_st *stream;
	struct CUctx_st *green;

	API_ENTER(API_INIT);
	green = green_find(greenCtx);
	if (!phStream || !green || flags != CU_STREAM_NON_BLOCKING)
		return CUDA_ERROR_INVALID_VALUE;
	state_lock();
	stream = stream_new(green->owner, STREAM_NON_BLOCKING, flags, priority);
	if (stream)
		stream->green = green;
	state_unlock();
	if (!stream)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*phStream = stream;
	return CUDA_SUCCESS;
}

API(cuGreenCtxRecordEvent, (CUgreenCtx hCtx, CUevent hEvent))
{
	struct CUctx_st *green;
	struct CUstream_st *stream;
	struct work work = {.kind = WORK_RECORD};
	CUresult r;

	API_ENTER(API_INIT);
	green = green_find(hCtx);
	if (!green)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!event_is_valid(hEvent) || hEvent->ctx != green->owner)
		return CUDA_ERROR_INVALID_HANDLE;
	state_lock();
	r = capture_invalidate_context(green->owner);
	if (!r) {
		stream = stream_new_hidden(green->owner);
		if (stream)
			stream->green = green;
		work.record = stream ? event_new_record(hEvent) : NULL;
		r = work.record ? stream_join_all(stream, &work) : CUDA_ERROR_OUT_OF_MEMORY;
	}
	state_unlock();
	return r;
}

API(cuGreenCtxWaitEvent, (CUgreenCtx hCtx, CUevent hEvent))
{
	struct CUctx_st *green;
	struct CUstream_st *stream;
	struct work work = {.kind = WORK_WAIT};
	CUresult r;

	API_ENTER(API_INIT);
	green = green_find(hCtx);
	if (!green)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!event_is_valid(hEvent))
		return CUDA_ERROR_INVALID_HANDLE;
	state_lock();
	r = capture_invalidate_context(green->owner);
	for (stream = green->owner->streams; !r && hEvent->last && stream; stream = stream->next) {
		if (stream->green != green)
			continue;
		work.record = event_record_ref(hEvent->last);
		r = run_submit(stream, &work, NULL);
	}
	state_unlock();
	return r;
}
