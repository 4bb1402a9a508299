/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_SIMGPU_CUDA_CAPTURE_H
#define NVS_SIMGPU_CUDA_CAPTURE_H

/*
 * Stream capture with the real driver's rules: which calls of which threads are unsafe while
 * a capture of which mode is open, and that an unsafe one fails and kills the capture.
 * Functions take sim.lock unless it says "lock held".
 */

#include "simgpu/cuda/event.h"
#include "simgpu/cuda/state.h"

struct capture {
	struct capture *next;
	uint64_t id;
	uint64_t thread;
	CUstreamCaptureMode mode;
	bool is_invalid;
	bool is_graph_borrowed; /* cuStreamBeginCaptureToGraph: the graph is the caller's */
	struct CUstream_st *origin;
	struct CUgraph_st *graph;
};

/* For calls that are unsafe during capture: CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, or success. */
CUresult capture_check_unsafe(void);

/* The rest: lock held. */

/* Work on the legacy stream while a stream that it waits for is captured. */
CUresult capture_check_legacy(struct CUctx_st *ctx);
/* CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED if a stream of ctx is captured; kills that capture. */
CUresult capture_invalidate_context(struct CUctx_st *ctx);
/* For synchronises and queries of one stream. */
CUresult capture_refuse(struct CUstream_st *stream);
CUresult capture_record(struct CUstream_st *stream, CUevent event);
CUresult capture_wait(struct CUstream_st *stream, CUevent event);
/*
 * For questions about an event that was last recorded in a capture: CUDA_ERROR_CAPTURED_EVENT
 * while it is open, which it kills; CUDA_ERROR_INVALID_VALUE afterwards.
 */
CUresult capture_refuse_event(CUevent event);
void capture_stream_gone(struct CUstream_st *stream);
void capture_context_gone(struct CUctx_st *ctx);
bool capture_is_member(const struct CUstream_st *stream, const CUevent event);

#endif
