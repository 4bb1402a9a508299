/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_SIMGPU_CUDA_CAPTURE_H
#define NVS_SIMGPU_CUDA_CAPTURE_H

/*
 * Stream capture with the real driver's rules: the mode of an open capture tells which calls of
 * which threads are unsafe. An unsafe call fails, and kills the capture. Functions take sim.lock,
 * unless their comment says "lock held".
 */

#include "simgpu/cuda/event.h"
#include "simgpu/cuda/state.h"

struct capture {
	struct capture *next;
	uint64_t id;
	uint64_t thread;
	CUstreamCaptureMode mode;
	bool is_invalid;
	bool is_graph_borrowed; /* cuStreamBeginCaptureToGraph: the caller owns the graph */
	struct CUstream_st *origin;
	struct CUgraph_st *graph;
};

/* For calls that are unsafe during capture: CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, or success. */
CUresult capture_check_unsafe(void);

/* The lock must be held for all that follow. */

/* For work on the legacy stream: an error while a stream that it waits for is captured. */
CUresult capture_check_legacy(struct CUctx_st *ctx);
/* CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED if a stream of ctx is captured; kills that capture. */
CUresult capture_invalidate_context(struct CUctx_st *ctx);
/* For synchronisation and queries of a stream. */
CUresult capture_refuse(struct CUstream_st *stream);
CUresult capture_record(struct CUstream_st *stream, CUevent event);
CUresult capture_wait(struct CUstream_st *stream, CUevent event);
/*
 * For queries of an event whose last record was in a capture. While the capture is open:
 * CUDA_ERROR_CAPTURED_EVENT, and the capture is dead. Afterwards: CUDA_ERROR_INVALID_VALUE.
 */
CUresult capture_refuse_event(CUevent event);
void capture_stream_gone(struct CUstream_st *stream);
void capture_context_gone(struct CUctx_st *ctx);
bool capture_is_member(const struct CUstream_st *stream, const CUevent event);

#endif
