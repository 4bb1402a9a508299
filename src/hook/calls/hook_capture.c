/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Stream captures. They are counted, so that the library does not synchronise while one is open: a
 * synchronise on one thread would break another thread's capture. None begins while the gate is
 * about to close.
 */

#include "hook/freeze/freeze.h"
#include "hook/gate/gate.h"
#include "hook/gate/green.h"
#include "hook/orion/orion.h"
#include "hook/pools/pools.h"
#include "hook/table/cuda_real.h"
#include "hook/table/hooks.h"

/* The gate's key for a capture on this stream. Each thread has a per-thread stream of its own. */
static const void *capture_stream(CUstream stream, bool is_per_thread_api)
{
	if (stream == CU_STREAM_PER_THREAD || (!stream && is_per_thread_api))
		return gate_thread_stream();
	/* The driver refuses a capture of the legacy stream. */
	return stream ? (const void *)stream : (const void *)CU_STREAM_LEGACY;
}

/* Returns green_place::id of a stream. NULL: unknown, or its context has ended. */
static const void *capture_context(CUstream stream)
{
	struct green_place place = {0};
	CUcontext ctx = NULL;

	if (green_stream_place(stream, &place) == CUDA_ERROR_NOT_FOUND &&
	    cuda_real.cuCtxGetCurrent) {
		(void)cuda_real.cuCtxGetCurrent(&ctx);
		place = green_place(ctx);
	}
	return place.id;
}

/*
 * After the driver's BeginCapture. A capture ends with the context of its stream. A thread that
 * ends it meanwhile either finds the capture, or has changed what the stream's context is.
 */
static CUresult capture_begun(CUstream stream, const void *key, const void *ctx, CUresult res)
{
	gate_leave_capture(key, ctx, res == CUDA_SUCCESS);
	if (res == CUDA_SUCCESS && capture_context(stream) != ctx)
		gate_end_capture(gate_find_capture(key));
	return res;
}

#define CAPTURE_BEGIN(symbol, is_per_thread, params, args)                               \
	CUresult symbol params                                                           \
	{                                                                                \
		const void *ctx;                                                         \
                                                                                         \
		if (!cuda_real.symbol)                                                   \
			return CUDA_ERROR_NOT_FOUND;                                     \
		gate_enter_capture();                                                    \
		ctx = capture_context(stream);                                           \
		return capture_begun(stream, capture_stream(stream, is_per_thread), ctx, \
				     cuda_real.symbol args);                             \
	}

CAPTURE_BEGIN(cuStreamBeginCapture, false, (CUstream stream), (stream))
CAPTURE_BEGIN(cuStreamBeginCapture_ptsz, true, (CUstream stream), (stream))
CAPTURE_BEGIN(cuStreamBeginCapture_v2, false, (CUstream stream, CUstreamCaptureMode mode),
	      (stream, mode))
CAPTURE_BEGIN(cuStreamBeginCapture_v2_ptsz, true, (CUstream stream, CUstreamCaptureMode mode),
	      (stream, mode))
CAPTURE_BEGIN(cuStreamBeginCaptureToGraph, false,
	      (CUstream stream, CUgraph graph, const CUgraphNode *nodes,
	       const CUgraphEdgeData *edges, size_t n, CUstreamCaptureMode mode),
	      (stream, graph, nodes, edges, n, mode))
CAPTURE_BEGIN(cuStreamBeginCaptureToGraph_ptsz, true,
	      (CUstream stream, CUgraph graph, const CUgraphNode *nodes,
	       const CUgraphEdgeData *edges, size_t n, CUstreamCaptureMode mode),
	      (stream, graph, nodes, edges, n, mode))

/*
 * An error may mean that the capture is over (it was invalidated) or that it goes on (the wrong
 * thread asked). The stream's state decides, and the error's code where the state is not known. A
 * driver must not be asked about a detached stream.
 */
static bool capture_is_over(CUstream stream, CUresult res,
			    CUresult (*is_capturing)(CUstream, CUstreamCaptureStatus *))
{
	CUstreamCaptureStatus status;
	struct green_place place;

	if (res == CUDA_SUCCESS || green_stream_place(stream, &place) == CUDA_ERROR_STREAM_DETACHED)
		return true;
	if (is_capturing && is_capturing(stream, &status) == CUDA_SUCCESS)
		return status == CU_STREAM_CAPTURE_STATUS_NONE;

	return res != CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD &&
	       res != CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
}

#define CAPTURE_END(symbol, is_capturing, is_per_thread)                                     \
	CUresult symbol(CUstream stream, CUgraph *graph)                                     \
	{                                                                                    \
		uint64_t capture = gate_find_capture(capture_stream(stream, is_per_thread)); \
		CUresult res;                                                                \
                                                                                             \
		if (!cuda_real.symbol)                                                       \
			return CUDA_ERROR_NOT_FOUND;                                         \
		res = cuda_real.symbol(stream, graph);                                       \
		if (capture && capture_is_over(stream, res, cuda_real.is_capturing))         \
			gate_end_capture(capture);                                           \
		return res;                                                                  \
	}

CAPTURE_END(cuStreamEndCapture, cuStreamIsCapturing, false)
CAPTURE_END(cuStreamEndCapture_ptsz, cuStreamIsCapturing_ptsz, true)

#define CAPTURE_DESTROY(symbol)                               \
	CUresult symbol(CUstream stream)                      \
	{                                                     \
		uint64_t capture = gate_find_capture(stream); \
		CUresult res;                                 \
                                                              \
		if (!cuda_real.symbol)                        \
			return CUDA_ERROR_NOT_FOUND;          \
		if (!freeze_enter())                          \
			return CUDA_ERROR_DEINITIALIZED;      \
		pools_stream_gone(stream);                    \
		orion_stream_gone(stream);                    \
		green_stream_gone(stream);                    \
		res = freeze_left(cuda_real.symbol(stream));  \
		if (res == CUDA_SUCCESS)                      \
			gate_end_capture(capture);            \
		return res;                                   \
	}

CAPTURE_DESTROY(cuStreamDestroy)
CAPTURE_DESTROY(cuStreamDestroy_v2)
