/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_SIMGPU_CUDA_RUN_H
#define NVS_SIMGPU_CUDA_RUN_H

/*
 * Streams' queues and the worker thread that empties them. All under sim.lock unless said
 * otherwise.
 */

#include "simgpu/cuda/state.h"
#include "simgpu/cuda/work.h"

struct CUgraphExec_st;

struct op {
	struct op *next;
	uint64_t seq;
	const struct work *works; /* done one after the other */
	size_t n_works, n_done;
	struct work single; /* works of an op that is no graph */
	struct progress progress;
	void *staging;               /* copy of pageable source bytes; the op's own */
	struct CUgraphExec_st *exec; /* a reference */
};

/* Makes the worker if there is none; -errno. No lock held. */
int run_start(void);
/* The worker makes no step after the return; at most a second. No lock held. */
void run_stop(void);

/*
 * Queues work on a stream; takes the work's references and staging in every case.
 * A capturing stream gets a node instead.
 */
CUresult run_submit(struct CUstream_st *stream, const struct work *work, void *staging);
CUresult run_submit_exec(struct CUstream_st *stream, struct CUgraphExec_st *exec,
			 const struct work *works, size_t n_works);

/* Until everything queued on the stream at the call is done. */
CUresult run_sync(struct CUstream_st *stream);
bool run_is_idle(const struct CUstream_st *stream);
/* Work in its queue of the hardware's; CUDA_DEVICE_MAX_CONNECTIONS is how many a context has. */
unsigned int run_queued(const struct CUstream_st *stream);
/*
 * Channels went off or on: waits for the step under way, and lets the worker and whoever
 * waits look again. No lock held.
 */
void run_settle(void);

/* Drops what waits in a stream, but for the op that the worker is on. */
void run_drop(struct CUstream_st *stream);
/* Frees it if its handle is gone, its work done and nobody waits for it. */
void run_stream_reap(struct CUstream_st *stream);
void run_stream_free(struct CUstream_st *stream); /* idle; unlinks it from its context */

/* Thread of host functions. A call that nobody waits for any more is dropped by the thread. */
struct host_call *host_call_new(const struct work_host *host, CUresult status);
bool host_call_is_done(const struct host_call *call);
void host_call_free(struct host_call *call);
bool host_call_is_inside(void); /* the calling thread runs a host function */

#endif
