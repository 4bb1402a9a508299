/* SPDX-License-Identifier: Apache-2.0 */

#include "simgpu/cuda/event.h"

#include <stdlib.h>

#include "simgpu/cuda/api.h"
#include "simgpu/cuda/capture.h"
#include "simgpu/cuda/context.h"
#include "simgpu/cuda/hold.h"
#include "simgpu/cuda/run.h"
#include "simgpu/cuda/work.h"

#define EVENT_MAGIC 0x6e76732d65766e74ull

struct event_record *event_record_ref(struct event_record *record)
{
	record->refs++;
	return record;
}

void event_record_unref(struct event_record *record)
{
	if (record && --record->refs == 0)
		free(record);
}

bool event_is_valid(CUevent event)
{
	return event && event->magic == EVENT_MAGIC;
}

struct event_record *event_new_record(CUevent event)
{
	struct event_record *record = calloc(1, sizeof(*record));

	if (!record)
		return NULL;
	record->refs = 2;
	record->is_timed = !(event->flags & CU_EVENT_DISABLE_TIMING);
	event_record_unref(event->last);
	event->last = record;
	event->capture_id = 0;
	return record;
}

API(cuEventCreate, (CUevent * phEvent, unsigned int Flags))
{
	struct CUevent_st *event;

	API_ENTER(API_CONTEXT);
	if (!phEvent || Flags & ~7u)
		return CUDA_ERROR_INVALID_VALUE;
	event = calloc(1, sizeof(*event));
	if (!event)
		return CUDA_ERROR_OUT_OF_MEMORY;
	event->magic = EVENT_MAGIC;
	event->ctx = context_current();
	event->flags = Flags;
	*phEvent = event;
	return CUDA_SUCCESS;
}

static CUresult destroy_event(CUevent event)
{
	state_lock();
	if (!event_is_valid(event)) {
		state_unlock();
		return CUDA_ERROR_INVALID_HANDLE;
	}
	event->magic = 0;
	event_record_unref(event->last);
	free(event->capture_deps);
	free(event);
	state_unlock();
	return CUDA_SUCCESS;
}

API(cuEventDestroy_v2, (CUevent hEvent))
{
	API_ENTER(API_INIT);
	return destroy_event(hEvent);
}

API(cuEventDestroy, (CUevent hEvent))
{
	API_ENTER(API_INIT);
	return destroy_event(hEvent);
}

static CUresult record_locked(CUevent event, struct CUstream_st *stream)
{
	struct work work = {.kind = WORK_RECORD};

	if (stream->capture)
		return capture_record(stream, event);
	work.record = event_new_record(event);
	return work.record ? run_submit(stream, &work, NULL) : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult record_event(const char *name, CUevent event, CUstream handle)
{
	struct CUstream_st *stream;
	CUresult r = api_enter(name, API_CONTEXT);

	if (r)
		return r;
	if (!event_is_valid(event))
		return CUDA_ERROR_INVALID_HANDLE;
	r = stream_lock(handle, &stream);
	if (r)
		return r;
	/* An event belongs to the context that it was made in. */
	r = event->ctx == stream->ctx ? record_locked(event, stream) : CUDA_ERROR_INVALID_HANDLE;
	state_unlock();
	return r;
}

API_TWIN(cuEventRecord, cuEventRecord_ptsz, (CUevent hEvent, CUstream hStream),
	 record_event(__func__, hEvent, hStream ? hStream : zero))

API_TWIN(cuEventRecordWithFlags, cuEventRecordWithFlags_ptsz,
	 (CUevent hEvent, CUstream hStream, unsigned int flags),
	 ((void)flags, record_event(__func__, hEvent, hStream ? hStream : zero)))

static CUresult wait_event(const char *name, CUstream handle, CUevent event)
{
	struct work work = {.kind = WORK_WAIT};
	struct CUstream_st *stream;
	CUresult r = api_enter(name, API_CONTEXT);

	if (r)
		return r;
	if (!event_is_valid(event))
		return CUDA_ERROR_INVALID_HANDLE;
	r = stream_lock(handle, &stream);
	if (r)
		return r;
	if (capture_is_member(stream, event)) {
		r = capture_wait(stream, event);
	} else if (event->capture_id) {
		r = CUDA_ERROR_INVALID_VALUE; /* its capture has ended */
	} else if (event->last) {
		work.record = event_record_ref(event->last);
		r = run_submit(stream, &work, NULL);
	}
	state_unlock();
	return r;
}

API_TWIN(cuStreamWaitEvent, cuStreamWaitEvent_ptsz,
	 (CUstream hStream, CUevent hEvent, unsigned int Flags),
	 ((void)Flags, wait_event(__func__, hStream ? hStream : zero, hEvent)))

/* An event that was recorded in a capture is refused before an unsafe call is. */
static CUresult check_capture(CUevent event)
{
	CUresult r;

	state_lock();
	while (event_is_valid(event) && hold_pass_locked(event->ctx))
		;
	r = event_is_valid(event) ? capture_refuse_event(event) : CUDA_ERROR_INVALID_HANDLE;
	state_unlock();
	return r ? r : capture_check_unsafe();
}

API(cuEventQuery, (CUevent hEvent))
{
	CUresult r;

	API_ENTER(API_CONTEXT);
	r = check_capture(hEvent);
	if (r)
		return r;
	state_lock();
	r = hEvent->ctx->error;
	if (!r && hEvent->last && !hEvent->last->is_done)
		r = CUDA_ERROR_NOT_READY;
	state_unlock();
	return r;
}

API(cuEventSynchronize, (CUevent hEvent))
{
	struct event_record *last;
	CUresult r;

	API_ENTER(API_CONTEXT);
	r = check_capture(hEvent);
	if (r)
		return r;
	state_lock();
	if (hEvent->last) {
		struct CUctx_st *ctx = hEvent->ctx;

		last = event_record_ref(hEvent->last);
		while (!last->is_done && !ctx->error)
			state_wait();
		r = ctx->error;
		event_record_unref(last);
	}
	state_unlock();
	return r;
}

static CUresult measure_elapsed(float *ms, CUevent start, CUevent end)
{
	CUresult r = CUDA_SUCCESS;

	if (!ms)
		return CUDA_ERROR_INVALID_VALUE;
	state_lock();
	if (event_is_valid(start) && event_is_valid(end) && (start->capture_id || end->capture_id))
		r = CUDA_ERROR_INVALID_VALUE;
	else if (!event_is_valid(start) || !event_is_valid(end) || !start->last || !end->last ||
		 ((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING))
		r = CUDA_ERROR_INVALID_HANDLE;
	else if (!start->last->is_done || !end->last->is_done)
		r = CUDA_ERROR_NOT_READY;
	else
		*ms = (float)((double)(int64_t)(end->last->time_ns - start->last->time_ns) / 1e6);
	state_unlock();
	return r;
}

API(cuEventElapsedTime, (float *pMilliseconds, CUevent hStart, CUevent hEnd))
{
	API_ENTER(API_CONTEXT);
	return measure_elapsed(pMilliseconds, hStart, hEnd);
}

API(cuEventElapsedTime_v2, (float *pMilliseconds, CUevent hStart, CUevent hEnd))
{
	API_ENTER(API_CONTEXT);
	return measure_elapsed(pMilliseconds, hStart, hEnd);
}

/* All work of the context: the event waits for the last op of each stream. */
API(cuCtxRecordEvent, (CUcontext hCtx, CUevent hEvent))
{
	struct CUctx_st *ctx;
	struct CUstream_st *stream;
	struct work work = {.kind = WORK_RECORD};
	CUresult r;

	API_ENTER(API_INIT);
	r = context_resolve(hCtx, &ctx);
	if (r)
		return r;
	if (!event_is_valid(hEvent) || hEvent->ctx != ctx)
		return CUDA_ERROR_INVALID_HANDLE;
	state_lock();
	r = capture_invalidate_context(ctx);
	if (!r) {
		stream = stream_new_hidden(ctx);
		work.record = stream ? event_new_record(hEvent) : NULL;
		if (!work.record)
			r = CUDA_ERROR_OUT_OF_MEMORY;
		else
			r = stream_join_all(stream, &work);
	}
	state_unlock();
	return r;
}

/* All later work of the context waits for the event. */
API(cuCtxWaitEvent, (CUcontext hCtx, CUevent hEvent))
{
	struct CUctx_st *ctx;
	struct CUstream_st *stream;
	struct work work = {.kind = WORK_WAIT};
	CUresult r;

	API_ENTER(API_INIT);
	r = context_resolve(hCtx, &ctx);
	if (r)
		return r;
	if (!event_is_valid(hEvent))
		return CUDA_ERROR_INVALID_HANDLE;
	state_lock();
	r = capture_invalidate_context(ctx);
	for (stream = ctx->streams; !r && hEvent->last && stream; stream = stream->next) {
		work.record = event_record_ref(hEvent->last);
		r = run_submit(stream, &work, NULL);
	}
	state_unlock();
	return r;
}
