/* SPDX-License-Identifier: Apache-2.0 */

#include <stdlib.h>
#include <string.h>

#include "simgpu/cuda/api.h"
#include "simgpu/cuda/capture.h"
#include "simgpu/cuda/context.h"
#include "simgpu/cuda/event.h"
#include "simgpu/cuda/hold.h"
#include "simgpu/cuda/run.h"
#include "simgpu/cuda/space.h"
#include "simgpu/cuda/work.h"

struct CUstream_st *stream_new(struct CUctx_st *ctx, enum stream_kind kind, unsigned int flags,
			       int priority)
{
	struct CUstream_st *stream = calloc(1, sizeof(*stream));

	if (!stream)
		return NULL;
	stream->ctx = ctx;
	stream->kind = kind;
	stream->flags = flags;
	stream->priority = priority;
	stream->id = state_next_id();
	stream->queue = ctx->n_streams_made++;
	stream->next = ctx->streams;
	ctx->streams = stream;
	return stream;
}

struct CUstream_st *stream_new_hidden(struct CUctx_st *ctx)
{
	struct CUstream_st *stream = stream_new(ctx, STREAM_NON_BLOCKING, 0, 0);

	if (stream)
		stream->is_destroyed = true;
	return stream;
}

/* A record at the end of each other stream, a wait for each, then the work. */
CUresult stream_join_all(struct CUstream_st *stream, const struct work *work)
{
	struct CUstream_st *other;
	struct event_record *record;
	struct work mark = {.kind = WORK_RECORD}, wait = {.kind = WORK_WAIT};
	CUresult r = CUDA_SUCCESS;

	for (other = stream->ctx->streams; !r && other; other = other->next) {
		if (other == stream || !other->head ||
		    (stream->green && other->green != stream->green))
			continue;
		record = calloc(1, sizeof(*record));
		if (!record)
			return CUDA_ERROR_OUT_OF_MEMORY;
		record->refs = 2;
		mark.record = wait.record = record;
		r = run_submit(other, &mark, NULL);
		if (!r)
			r = run_submit(stream, &wait, NULL);
	}
	return r ? r : run_submit(stream, work, NULL);
}

/* The thread's own default stream in the context, made when first used. */
static struct CUstream_st *per_thread(struct CUctx_st *ctx)
{
	struct CUstream_st *stream;

	for (stream = ctx->streams; stream; stream = stream->next)
		if (stream->kind == STREAM_PER_THREAD && stream->thread == thread_id())
			return stream;
	stream = stream_new(ctx, STREAM_PER_THREAD, 0, 0);
	if (stream)
		stream->thread = thread_id();
	return stream;
}

static struct CUstream_st *stream_find(CUstream handle)
{
	struct CUstream_st *stream;
	struct CUctx_st *ctx;

	for (ctx = sim.contexts; ctx; ctx = ctx->next)
		for (stream = ctx->streams; stream; stream = stream->next)
			if (stream == handle)
				return stream->is_destroyed ? NULL : stream;
	return NULL;
}

static bool is_detached(const struct CUstream_st *stream)
{
	return stream->green && !stream->green->is_alive;
}

static CUresult lock_stream(CUstream handle, struct CUstream_st **ret)
{
	struct CUctx_st *ctx = context_current();
	struct CUstream_st *stream;
	CUresult r = CUDA_SUCCESS;

	state_lock();
	do {
		if (!handle || handle == CU_STREAM_LEGACY)
			stream = ctx && ctx->is_alive ? ctx->legacy : NULL;
		else if (handle == CU_STREAM_PER_THREAD)
			stream = ctx && ctx->is_alive ? per_thread(ctx) : NULL;
		else
			stream = stream_find(handle);
	} while (stream && hold_pass_locked(stream->ctx));
	if (!stream)
		r = handle && handle != CU_STREAM_LEGACY && handle != CU_STREAM_PER_THREAD
			    ? CUDA_ERROR_INVALID_HANDLE
			    : CUDA_ERROR_INVALID_CONTEXT;
	else
		r = stream->ctx->error;
	if (r)
		state_unlock();
	else
		*ret = stream;
	return r;
}

CUresult stream_lock_any(CUstream handle, struct CUstream_st **ret)
{
	CUresult r = lock_stream(handle, ret);

	if (!r && is_detached(*ret))
		state_follow_stale("the green context of a stream");
	return r;
}

CUresult stream_lock(CUstream handle, struct CUstream_st **ret)
{
	struct CUstream_st *stream;
	CUresult r = lock_stream(handle, &stream);

	if (r)
		return r;
	if (is_detached(stream))
		r = CUDA_ERROR_STREAM_DETACHED;
	else if (stream->kind == STREAM_LEGACY)
		r = capture_check_legacy(stream->ctx);
	if (r)
		state_unlock();
	else
		*ret = stream;
	return r;
}

CUresult stream_lock_room(CUstream handle, struct CUstream_st **ret)
{
	struct CUstream_st *stream;
	CUresult r = stream_lock(handle, &stream);

	if (r)
		return r;
	if (!stream->capture)
		r = hold_room(stream);
	if (r)
		state_unlock();
	else
		*ret = stream;
	return r;
}

static CUresult create_stream(CUstream *phStream, unsigned int flags, int priority)
{
	struct CUctx_st *ctx = context_current(), *handle = context_handle();
	struct CUstream_st *stream;

	if (!phStream || flags & ~(unsigned int)CU_STREAM_NON_BLOCKING)
		return CUDA_ERROR_INVALID_VALUE;
	if (priority > 0)
		priority = 0;
	if (priority < -5)
		priority = -5;
	state_lock();
	stream = stream_new(ctx, flags ? STREAM_NON_BLOCKING : STREAM_BLOCKING, flags, priority);
	if (stream && handle != ctx)
		stream->green = handle;
	state_unlock();
	if (!stream)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*phStream = stream;
	return CUDA_SUCCESS;
}

API(cuStreamCreate, (CUstream * phStream, unsigned int Flags))
{
	API_ENTER(API_CONTEXT);
	return create_stream(phStream, Flags, 0);
}

API(cuStreamCreateWithPriority, (CUstream * phStream, unsigned int flags, int priority))
{
	API_ENTER(API_CONTEXT);
	return create_stream(phStream, flags, priority);
}

/*
 * Returns at once; the stream goes when its work is done. The real driver has no stream any more
 * whose green context has ended.
 */
static CUresult destroy_stream(CUstream handle)
{
	CUresult r = CUDA_SUCCESS;
	struct CUstream_st *stream;

	state_lock();
	do {
		stream = stream_find(handle);
	} while (stream && hold_pass_locked(stream->ctx));
	if (!stream || stream->kind == STREAM_LEGACY || stream->kind == STREAM_PER_THREAD) {
		state_unlock();
		return CUDA_ERROR_INVALID_HANDLE;
	}
	if (is_detached(stream))
		r = CUDA_ERROR_CONTEXT_IS_DESTROYED;
	capture_stream_gone(stream);
	stream->is_destroyed = true;
	run_stream_reap(stream);
	state_unlock();
	return r;
}

API(cuStreamDestroy_v2, (CUstream hStream))
{
	API_ENTER(API_INIT);
	return destroy_stream(hStream);
}

API(cuStreamDestroy, (CUstream hStream))
{
	API_ENTER(API_INIT);
	return destroy_stream(hStream);
}

static CUresult synchronize_stream(const char *name, CUstream handle)
{
	struct CUstream_st *stream;
	CUresult r = api_enter(name, API_CONTEXT | API_UNSAFE);

	if (!r)
		r = stream_lock(handle, &stream);
	if (r)
		return r;
	r = capture_refuse(stream);
	/* Synchronising the legacy stream means every stream that it synchronises with. */
	if (!r && stream->kind == STREAM_LEGACY)
		r = stream_sync_blocking(stream->ctx);
	else if (!r)
		r = run_sync(stream);
	state_unlock();
	return r;
}

CUresult stream_sync_blocking(struct CUctx_st *ctx)
{
	struct CUstream_st *stream = ctx->streams;
	uint64_t seq = ctx->last_seq;

	while (stream && ctx->is_alive && !ctx->error) {
		if (stream->kind == STREAM_NON_BLOCKING || !stream->head ||
		    stream->head->seq > seq) {
			stream = stream->next;
			continue;
		}
		state_wait();
		stream = ctx->streams;
	}
	return ctx->error;
}

API_TWIN(cuStreamSynchronize, cuStreamSynchronize_ptsz, (CUstream hStream),
	 synchronize_stream(__func__, hStream ? hStream : zero))

static CUresult query_stream(const char *name, CUstream handle)
{
	struct CUstream_st *stream, *other;
	CUresult r = api_enter(name, API_CONTEXT | API_UNSAFE);

	if (!r)
		r = stream_lock(handle, &stream);
	if (r)
		return r;
	r = capture_refuse(stream);
	if (!r && !run_is_idle(stream))
		r = CUDA_ERROR_NOT_READY;
	for (other = stream->ctx->streams; !r && stream->kind == STREAM_LEGACY && other;
	     other = other->next)
		if (other->kind != STREAM_NON_BLOCKING && !run_is_idle(other))
			r = CUDA_ERROR_NOT_READY;
	state_unlock();
	return r;
}

API_TWIN(cuStreamQuery, cuStreamQuery_ptsz, (CUstream hStream),
	 query_stream(__func__, hStream ? hStream : zero))

struct stream_facts {
	CUcontext ctx;
	CUdevice device;
	unsigned int flags;
	int priority;
	unsigned long long id;
};

/* As the program has it. A default stream is the current context's. */
static CUcontext stream_context(const struct CUstream_st *stream)
{
	if (stream->kind == STREAM_LEGACY || stream->kind == STREAM_PER_THREAD)
		return context_handle();
	return stream->green ? stream->green : stream->ctx;
}

static CUresult stream_facts(const char *name, CUstream handle, const void *out,
			     struct stream_facts *ret)
{
	struct CUstream_st *stream;
	CUresult r = api_enter(name, API_CONTEXT);

	if (!r && !out)
		r = CUDA_ERROR_INVALID_VALUE;
	if (!r)
		r = stream_lock_any(handle, &stream);
	if (r)
		return r;
	*ret = (struct stream_facts){stream_context(stream), stream->ctx->device, stream->flags,
				     stream->priority, stream->id};
	state_unlock();
	return CUDA_SUCCESS;
}

#define STREAM_FACT(symbol, twin, type, field)                                     \
	static CUresult get_##symbol(const char *name, CUstream handle, type *out) \
	{                                                                          \
		struct stream_facts f;                                             \
		CUresult r = stream_facts(name, handle, out, &f);                  \
                                                                                   \
		if (!r)                                                            \
			*out = f.field;                                            \
		return r;                                                          \
	}                                                                          \
	API_TWIN(symbol, twin, (CUstream hStream, type * out),                     \
		 get_##symbol(__func__, hStream ? hStream : zero, out))

STREAM_FACT(cuStreamGetCtx, cuStreamGetCtx_ptsz, CUcontext, ctx)
STREAM_FACT(cuStreamGetDevice, cuStreamGetDevice_ptsz, CUdevice, device)
STREAM_FACT(cuStreamGetFlags, cuStreamGetFlags_ptsz, unsigned int, flags)
STREAM_FACT(cuStreamGetPriority, cuStreamGetPriority_ptsz, int, priority)
STREAM_FACT(cuStreamGetId, cuStreamGetId_ptsz, unsigned long long, id)

static CUresult submit_work(const char *name, CUstream handle, struct work *work)
{
	struct CUstream_st *stream;
	CUresult r = api_enter(name, API_CONTEXT);

	if (!r)
		r = stream_lock_room(handle, &stream);
	if (r)
		return r;
	r = run_submit(stream, work, NULL);
	state_unlock();
	return r;
}

static CUresult host_func(const char *name, CUstream stream, CUhostFn fn, CUstreamCallback callback,
			  void *arg)
{
	struct work work = {.kind = WORK_HOST, .host = {fn, callback, stream, arg}};

	return fn || callback ? submit_work(name, stream, &work) : CUDA_ERROR_INVALID_VALUE;
}

API_TWIN(cuLaunchHostFunc, cuLaunchHostFunc_ptsz, (CUstream hStream, CUhostFn fn, void *userData),
	 host_func(__func__, hStream ? hStream : zero, fn, NULL, userData))

API_TWIN(cuStreamAddCallback, cuStreamAddCallback_ptsz,
	 (CUstream hStream, CUstreamCallback callback, void *userData, unsigned int flags),
	 flags ? CUDA_ERROR_INVALID_VALUE
	       : host_func(__func__, hStream ? hStream : zero, NULL, callback, userData))

static CUresult submit_value(const char *name, CUstream stream, enum work_kind kind,
			     const struct work_value *value_)
{
	struct work work = {.kind = kind, .value = *value_};
	unsigned int size = value_->is_64 ? 8 : 4;
	bool is_there;

	space_read_lock();
	is_there = space_is_accessible(NULL, value_->addr, size, kind == WORK_VALUE_WRITE);
	space_unlock();
	if (!is_there || value_->addr % size)
		return CUDA_ERROR_INVALID_VALUE;
	return submit_work(name, stream, &work);
}

#define VALUE(symbol, twin, bits, kind, wide)                                                  \
	API_TWIN(symbol, twin,                                                                 \
		 (CUstream hStream, CUdeviceptr addr, cuuint##bits##_t v, unsigned int flags), \
		 submit_value(__func__, hStream ? hStream : zero, kind,                        \
			      &(struct work_value){addr, v, flags, wide}))

VALUE(cuStreamWaitValue32, cuStreamWaitValue32_ptsz, 32, WORK_VALUE_WAIT, false)
VALUE(cuStreamWaitValue32_v2, cuStreamWaitValue32_v2_ptsz, 32, WORK_VALUE_WAIT, false)
VALUE(cuStreamWaitValue64, cuStreamWaitValue64_ptsz, 64, WORK_VALUE_WAIT, true)
VALUE(cuStreamWaitValue64_v2, cuStreamWaitValue64_v2_ptsz, 64, WORK_VALUE_WAIT, true)
VALUE(cuStreamWriteValue32, cuStreamWriteValue32_ptsz, 32, WORK_VALUE_WRITE, false)
VALUE(cuStreamWriteValue32_v2, cuStreamWriteValue32_v2_ptsz, 32, WORK_VALUE_WRITE, false)
VALUE(cuStreamWriteValue64, cuStreamWriteValue64_ptsz, 64, WORK_VALUE_WRITE, true)
VALUE(cuStreamWriteValue64_v2, cuStreamWriteValue64_v2_ptsz, 64, WORK_VALUE_WRITE, true)

static CUresult submit_batch(const char *name, CUstream stream, unsigned int count,
			     const CUstreamBatchMemOpParams *params)
{
	struct work_value v;
	CUresult r = CUDA_SUCCESS;
	unsigned int i;

	if (count && !params)
		return CUDA_ERROR_INVALID_VALUE;
	for (i = 0; !r && i < count; i++) {
		v = (struct work_value){params[i].waitValue.address, params[i].waitValue.value64,
					params[i].waitValue.flags, false};
		switch (params[i].operation) {
		case CU_STREAM_MEM_OP_WAIT_VALUE_64:
			v.is_64 = true;
			r = submit_value(name, stream, WORK_VALUE_WAIT, &v);
			break;
		case CU_STREAM_MEM_OP_WAIT_VALUE_32:
			r = submit_value(name, stream, WORK_VALUE_WAIT, &v);
			break;
		case CU_STREAM_MEM_OP_WRITE_VALUE_64:
			v.is_64 = true;
			r = submit_value(name, stream, WORK_VALUE_WRITE, &v);
			break;
		case CU_STREAM_MEM_OP_WRITE_VALUE_32:
			r = submit_value(name, stream, WORK_VALUE_WRITE, &v);
			break;
		case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
		case CU_STREAM_MEM_OP_BARRIER:
			break; /* memory is one here */
		default:
			r = CUDA_ERROR_INVALID_VALUE;
		}
	}
	return r;
}

#define BATCH(symbol, twin)                                                               \
	API_TWIN(symbol, twin,                                                            \
		 (CUstream hStream, unsigned int count, CUstreamBatchMemOpParams *params, \
		  unsigned int flags),                                                    \
		 ((void)flags, submit_batch(__func__, hStream ? hStream : zero, count, params)))

BATCH(cuStreamBatchMemOp, cuStreamBatchMemOp_ptsz)
BATCH(cuStreamBatchMemOp_v2, cuStreamBatchMemOp_v2_ptsz)

/* Only for managed memory of one stream, which is not modelled: every stream may use it. */
static CUresult attach_memory(const char *name, CUstream stream, unsigned int flags)
{
	struct work work = {.kind = WORK_NOTHING};

	if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST &&
	    flags != CU_MEM_ATTACH_SINGLE)
		return CUDA_ERROR_INVALID_VALUE;
	return submit_work(name, stream, &work);
}

API_TWIN(cuStreamAttachMemAsync, cuStreamAttachMemAsync_ptsz,
	 (CUstream hStream, CUdeviceptr dptr, size_t length, unsigned int flags),
	 ((void)dptr, (void)length, attach_memory(__func__, hStream ? hStream : zero, flags)))
