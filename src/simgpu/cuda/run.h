/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_SIMGPU_CUDA_RUN_H
#define NVS_SIMGPU_CUDA_RUN_H

/*
 * The streams' queues, and the worker thread that empties them. Threading: all under sim.lock
 * unless said otherwise.
 */

#include "simgpu/cuda/state.h"
#include "simgpu/cuda/work.h"

struct CUgraphExec_st;

struct op {
	struct op *next;
	uint64_t seq;
	const struct work *works; /* done one after the other */
	size_t n_works, n_done;
	struct work single; /* the work of an op that is no graph */
	struct progress progress;
	void *staging;               /* copy of pageable source bytes, owned */
	struct CUgraphExec_st *exec; /* a reference */
};

/* Makes the worker, if there is none. 0 or -errno. No lock held. */
int run_start(void);
/* Stops the worker: it makes no step after the return. Waits at most a second. No lock held. */
void run_stop(void);

/*
 * Queues work on a stream; in a capture, adds a node instead. Takes over the work's references
 * and staging in every case.
 */
CUresult run_submit(struct CUstream_st *stream, const struct work *work, void *staging);
CUresult run_submit_exec(struct CUstream_st *stream, struct CUgraphExec_st *exec,
			 const struct work *works, size_t n_works);

/* Waits for all work that is queued on the stream at the time of the call. */
CUresult run_sync(struct CUstream_st *stream);
bool run_is_idle(const struct CUstream_st *stream);
/* Work in the stream's hardware queue. A context has CUDA_DEVICE_MAX_CONNECTIONS of them. */
unsigned int run_queued(const struct CUstream_st *stream);
/*
 * To be called after channels went off or on: waits for the step under way, and wakes the worker
 * and all waiting threads. No lock held.
 */
void run_settle(void);

/* Drops a stream's queued ops, except the one that the worker is at. */
void run_drop(struct CUstream_st *stream);
/* Frees the stream if its handle has gone, its work is done and no thread waits for it. */
void run_stream_reap(struct CUstream_st *stream);
void run_stream_free(struct CUstream_st *stream); /* idle; unlinks it from its context */

/* The thread of host functions (host_call.c). It frees a call whose op has gone. */
struct host_call *host_call_new(const struct work_host *host, CUresult status);
bool host_call_is_done(const struct host_call *call);
void host_call_free(struct host_call *call);
bool host_call_is_inside(void); /* the calling thread runs a host function */

#endif
