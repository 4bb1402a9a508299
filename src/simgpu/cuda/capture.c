/* SPDX-License-Identifier: Apache-2.0 */

#include "simgpu/cuda/capture.h"

#include <stdlib.h>
#include <string.h>

#include "simgpu/cuda/api.h"
#include "simgpu/cuda/context.h"
#include "simgpu/cuda/graph.h"

static struct capture *captures;
static unsigned int n_captures; /* read without the lock, because captures are rare */
static __thread CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

static struct capture *capture_by_id(uint64_t id)
{
	struct capture *capture;

	for (capture = captures; capture && capture->id != id; capture = capture->next)
		;
	return capture;
}

/* true: the capture forbids unsafe calls in this thread. */
static bool is_in_the_way(const struct capture *capture)
{
	if (thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED || capture->is_invalid)
		return false;
	if (capture->thread == thread_id() && capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED)
		return true;
	return thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
	       capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
}

CUresult capture_check_unsafe(void)
{
	CUresult r = CUDA_SUCCESS;
	struct capture *capture;

	if (!__atomic_load_n(&n_captures, __ATOMIC_ACQUIRE))
		return CUDA_SUCCESS;
	state_lock();
	for (capture = captures; capture; capture = capture->next)
		if (is_in_the_way(capture)) {
			capture->is_invalid = true;
			r = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
		}
	state_unlock();
	return r;
}

CUresult capture_check_legacy(struct CUctx_st *ctx)
{
	struct CUstream_st *stream;
	CUresult r = CUDA_SUCCESS;

	if (!n_captures)
		return CUDA_SUCCESS;
	for (stream = ctx->streams; stream; stream = stream->next)
		if (stream->capture && stream->kind != STREAM_NON_BLOCKING) {
			stream->capture->is_invalid = true;
			r = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
		}
	return r;
}

CUresult capture_invalidate_context(struct CUctx_st *ctx)
{
	struct CUstream_st *stream;
	CUresult r = CUDA_SUCCESS;

	if (!n_captures)
		return CUDA_SUCCESS;
	for (stream = ctx->streams; stream; stream = stream->next)
		if (stream->capture) {
			stream->capture->is_invalid = true;
			r = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
		}
	return r;
}

CUresult capture_refuse(struct CUstream_st *stream)
{
	if (!stream->capture)
		return CUDA_SUCCESS;
	stream->capture->is_invalid = true;
	return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

static void capture_leave(struct CUstream_st *stream)
{
	free(stream->capture_deps);
	stream->capture_deps = NULL;
	stream->n_capture_deps = 0;
	stream->capture = NULL;
}

/* All streams leave the capture. Frees it, but not its graph. */
static void capture_end(struct capture *capture)
{
	struct CUstream_st *stream;
	struct capture **link;
	struct CUctx_st *ctx;

	for (ctx = sim.contexts; ctx; ctx = ctx->next)
		for (stream = ctx->streams; stream; stream = stream->next)
			if (stream->capture == capture)
				capture_leave(stream);
	for (link = &captures; *link != capture; link = &(*link)->next)
		;
	*link = capture->next;
	__atomic_fetch_sub(&n_captures, 1, __ATOMIC_RELEASE);
	free(capture);
}

void capture_stream_gone(struct CUstream_st *stream)
{
	struct capture *capture = stream->capture;

	if (!capture)
		return;
	capture->is_invalid = true;
	capture_leave(stream);
	if (capture->origin == stream) {
		if (!capture->is_graph_borrowed)
			graph_free(capture->graph);
		capture_end(capture);
	}
}

void capture_context_gone(struct CUctx_st *ctx)
{
	struct CUstream_st *stream;

	for (stream = ctx->streams; stream; stream = stream->next)
		capture_stream_gone(stream);
}

/* Adds deps to the stream's set, each once. */
static bool add_deps(struct CUstream_st *stream, struct CUgraphNode_st *const *deps, size_t n)
{
	struct CUgraphNode_st **grown;
	size_t i, k;

	if (!n)
		return true;
	grown = realloc(stream->capture_deps, (stream->n_capture_deps + n) * sizeof(CUgraphNode));
	if (!grown)
		return false;
	stream->capture_deps = grown;
	for (i = 0; i < n; i++) {
		for (k = 0; k < stream->n_capture_deps && grown[k] != deps[i]; k++)
			;
		if (k == stream->n_capture_deps)
			grown[stream->n_capture_deps++] = deps[i];
	}
	return true;
}

CUresult capture_record(struct CUstream_st *stream, CUevent event)
{
	size_t size = stream->n_capture_deps * sizeof(CUgraphNode);

	if (stream->capture->is_invalid)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	free(event->capture_deps);
	event->capture_deps = size ? malloc(size) : NULL;
	event->n_capture_deps = 0;
	if (size && !event->capture_deps)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (size)
		memcpy(event->capture_deps, stream->capture_deps, size);
	event->n_capture_deps = stream->n_capture_deps;
	event->capture_id = stream->capture->id;
	return CUDA_SUCCESS;
}

bool capture_is_member(const struct CUstream_st *stream, const CUevent event)
{
	return stream->capture || capture_by_id(event->capture_id);
}

CUresult capture_wait(struct CUstream_st *stream, CUevent event)
{
	struct capture *capture = event->capture_id ? capture_by_id(event->capture_id) : NULL;

	if (!capture) {
		/* Work from before the capture cannot be a dependency of a graph. */
		stream->capture->is_invalid = true;
		return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
	}
	if (capture->is_invalid)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	if (stream->kind == STREAM_LEGACY) {
		capture->is_invalid = true;
		return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
	}
	if (stream->capture && stream->capture != capture) {
		stream->capture->is_invalid = capture->is_invalid = true;
		return CUDA_ERROR_STREAM_CAPTURE_MERGE;
	}
	stream->capture = capture;
	return add_deps(stream, event->capture_deps, event->n_capture_deps)
		       ? CUDA_SUCCESS
		       : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult capture_refuse_event(CUevent event)
{
	struct capture *capture;

	if (!event->capture_id)
		return CUDA_SUCCESS;
	capture = capture_by_id(event->capture_id);
	if (!capture)
		return CUDA_ERROR_INVALID_VALUE;
	capture->is_invalid = true;
	return CUDA_ERROR_CAPTURED_EVENT;
}

static CUresult begin_capture(const char *name, CUstream handle, CUstreamCaptureMode mode,
			      CUgraph graph)
{
	struct capture *capture;
	struct CUstream_st *stream;
	CUresult r = api_enter(name, API_CONTEXT);

	if (r)
		return r;
	if ((unsigned int)mode > CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_ERROR_INVALID_VALUE;
	r = stream_lock(handle, &stream);
	if (r)
		return r;
	capture = calloc(1, sizeof(*capture));
	if (stream->kind == STREAM_LEGACY)
		r = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	else if (stream->capture)
		r = CUDA_ERROR_ILLEGAL_STATE;
	else if (!capture)
		r = CUDA_ERROR_OUT_OF_MEMORY;
	if (!r) {
		capture->is_graph_borrowed = graph != NULL;
		capture->graph = graph ? graph : graph_new();
		if (!capture->graph)
			r = CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (r) {
		free(capture);
		state_unlock();
		return r;
	}
	capture->id = state_next_id();
	capture->thread = thread_id();
	capture->mode = mode;
	capture->origin = stream;
	capture->next = captures;
	captures = capture;
	stream->capture = capture;
	__atomic_fetch_add(&n_captures, 1, __ATOMIC_RELEASE);
	state_unlock();
	return CUDA_SUCCESS;
}

API_TWIN(cuStreamBeginCapture_v2, cuStreamBeginCapture_v2_ptsz,
	 (CUstream hStream, CUstreamCaptureMode mode),
	 begin_capture(__func__, hStream ? hStream : zero, mode, NULL))

API_TWIN(cuStreamBeginCapture, cuStreamBeginCapture_ptsz, (CUstream hStream),
	 begin_capture(__func__, hStream ? hStream : zero, CU_STREAM_CAPTURE_MODE_GLOBAL, NULL))

static CUresult begin_to_graph(const char *name, CUstream stream, CUgraph graph,
			       size_t n_dependencies, CUstreamCaptureMode mode)
{
	if (!graph)
		return CUDA_ERROR_INVALID_VALUE;
	if (n_dependencies)
		return CUDA_ERROR_NOT_SUPPORTED;
	return begin_capture(name, stream, mode, graph);
}

API_TWIN(cuStreamBeginCaptureToGraph, cuStreamBeginCaptureToGraph_ptsz,
	 (CUstream hStream, CUgraph hGraph, const CUgraphNode *dependencies,
	  const CUgraphEdgeData *dependencyData, size_t numDependencies, CUstreamCaptureMode mode),
	 ((void)dependencies, (void)dependencyData,
	  begin_to_graph(__func__, hStream ? hStream : zero, hGraph, numDependencies, mode)))

/* true: all streams that joined the capture have come back to its origin. */
static bool is_joined(const struct capture *capture)
{
	const struct CUstream_st *stream;
	const struct CUctx_st *ctx;
	size_t i;

	graph_mark_ancestors(capture->graph, capture->origin->capture_deps,
			     capture->origin->n_capture_deps);
	for (ctx = sim.contexts; ctx; ctx = ctx->next)
		for (stream = ctx->streams; stream; stream = stream->next)
			for (i = 0; stream->capture == capture && i < stream->n_capture_deps; i++)
				if (!graph_is_marked(stream->capture_deps[i]))
					return false;
	return true;
}

static CUresult end_capture(const char *name, CUstream handle, CUgraph *phGraph)
{
	struct CUstream_st *stream;
	struct capture *capture;
	CUresult r = api_enter(name, API_CONTEXT);

	if (r)
		return r;
	if (!phGraph)
		return CUDA_ERROR_INVALID_VALUE;
	r = stream_lock(handle, &stream);
	if (r)
		return r;
	capture = stream->capture;
	if (!capture)
		r = CUDA_ERROR_ILLEGAL_STATE;
	else if (capture->origin != stream)
		r = CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
	else if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != thread_id())
		r = CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
	if (r == CUDA_ERROR_STREAM_CAPTURE_UNMATCHED)
		capture->is_invalid = true;
	if (r == CUDA_ERROR_ILLEGAL_STATE || r == CUDA_ERROR_STREAM_CAPTURE_UNMATCHED) {
		state_unlock();
		return r;
	}
	/* Another thread ends the capture, too, but gets no graph. */
	if (!r && capture->is_invalid)
		r = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	else if (!r && !is_joined(capture))
		r = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
	*phGraph = r ? NULL : capture->graph;
	if (r && !capture->is_graph_borrowed)
		graph_free(capture->graph);
	capture_end(capture);
	state_unlock();
	return r;
}

API_TWIN(cuStreamEndCapture, cuStreamEndCapture_ptsz, (CUstream hStream, CUgraph *phGraph),
	 end_capture(__func__, hStream ? hStream : zero, phGraph))

static CUstreamCaptureStatus status_of(const struct CUstream_st *stream)
{
	if (!stream->capture)
		return CU_STREAM_CAPTURE_STATUS_NONE;
	return stream->capture->is_invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
					   : CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

struct capture_info {
	CUstreamCaptureStatus status;
	cuuint64_t id;
	CUgraph graph;
	const CUgraphNode *deps;
	size_t n_deps;
};

static CUresult capture_info(const char *name, CUstream handle, struct capture_info *ret)
{
	struct CUstream_st *stream;
	CUresult r = api_enter(name, API_CONTEXT);

	if (!r)
		r = stream_lock_any(handle, &stream);
	if (r)
		return r;
	memset(ret, 0, sizeof(*ret));
	ret->status = status_of(stream);
	if (ret->status == CU_STREAM_CAPTURE_STATUS_ACTIVE) {
		ret->id = stream->capture->id;
		ret->graph = stream->capture->graph;
		ret->deps = stream->capture_deps;
		ret->n_deps = stream->n_capture_deps;
	}
	state_unlock();
	return CUDA_SUCCESS;
}

static CUresult is_capturing(const char *name, CUstream handle, CUstreamCaptureStatus *status)
{
	struct capture_info ci;
	CUresult r = capture_info(name, handle, &ci);

	if (!r && !status)
		r = CUDA_ERROR_INVALID_VALUE;
	if (!r)
		*status = ci.status;
	return r;
}

API_TWIN(cuStreamIsCapturing, cuStreamIsCapturing_ptsz,
	 (CUstream hStream, CUstreamCaptureStatus *captureStatus),
	 is_capturing(__func__, hStream ? hStream : zero, captureStatus))

static CUresult get_info(const char *name, CUstream handle, CUstreamCaptureStatus *status,
			 cuuint64_t *id, CUgraph *graph, const CUgraphNode **deps, size_t *n_deps)
{
	struct capture_info ci;
	CUresult r = capture_info(name, handle, &ci);

	if (r)
		return r;
	if (!status)
		return CUDA_ERROR_INVALID_VALUE;
	*status = ci.status;
	if (id)
		*id = ci.id;
	if (graph)
		*graph = ci.graph;
	if (deps)
		*deps = ci.deps;
	if (n_deps)
		*n_deps = ci.n_deps;
	return CUDA_SUCCESS;
}

API_TWIN(cuStreamGetCaptureInfo_v2, cuStreamGetCaptureInfo_v2_ptsz,
	 (CUstream hStream, CUstreamCaptureStatus *captureStatus_out, cuuint64_t *id_out,
	  CUgraph *graph_out, const CUgraphNode **dependencies_out, size_t *numDependencies_out),
	 get_info(__func__, hStream ? hStream : zero, captureStatus_out, id_out, graph_out,
		  dependencies_out, numDependencies_out))

API(cuThreadExchangeStreamCaptureMode, (CUstreamCaptureMode * mode))
{
	CUstreamCaptureMode old = thread_mode;

	API_ENTER(API_INIT);
	if (!mode || (unsigned int)*mode > CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_ERROR_INVALID_VALUE;
	thread_mode = *mode;
	*mode = old;
	return CUDA_SUCCESS;
}
