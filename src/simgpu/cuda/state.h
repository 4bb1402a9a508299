/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_SIMGPU_CUDA_STATE_H
#define NVS_SIMGPU_CUDA_STATE_H

/*
 * The driver's state in this process: contexts, streams, their queues.
 *
 * Locks, in this order: sim.lock (contexts, streams, queues, captures, graphs), space's lock
 * (mappings), the node's lock. During a step of a kernel or a copy the worker holds space's read
 * lock only.
 *
 * Contexts are never freed, but marked dead, so that an old handle gives an error and no crash.
 * There are few.
 */

#include "abi/cuda_structs.h"
#include "simgpu/cuda/rm.h"
#include "simgpu/node/node.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

enum sim_phase { SIM_NEW, SIM_UP, SIM_FORKED, SIM_EXITING };
enum { SIM_LIMITS = 10, SIM_CONTEXT_STACK = 64 };

struct op;
struct heap_block;

enum stream_kind { STREAM_LEGACY, STREAM_BLOCKING, STREAM_NON_BLOCKING, STREAM_PER_THREAD };

struct CUstream_st {
	struct CUstream_st *next; /* CUctx_st::streams */
	struct CUctx_st *ctx;
	struct CUctx_st *green; /* the green context that it was made in, or NULL */
	struct op *head, *tail;
	uint64_t id;
	uint64_t last_seq; /* number of the last queued op */
	uint64_t served;   /* the turn in which the worker last served it */
	uint64_t thread;   /* owner, for STREAM_PER_THREAD */
	enum stream_kind kind;
	unsigned int flags;
	int priority;
	unsigned int n_users; /* threads that wait for it */
	unsigned int n_queued;
	unsigned int queue; /* hardware queue, see run.h */
	bool is_destroyed;  /* the stream goes when its queue is empty */
	struct capture *capture;
	struct CUgraphNode_st **capture_deps; /* dependencies of the next captured node */
	size_t n_capture_deps;
};

struct CUctx_st {
	struct CUctx_st *next;  /* sim::contexts, dead ones too */
	struct CUctx_st *owner; /* of a green context: the primary context, which has its streams */
	uint64_t id;
	int device;
	bool is_alive;
	bool is_primary;
	bool is_used; /* it has had work, so its flags are fixed */
	unsigned int flags;
	unsigned int refs; /* primary: retains; others: cuCtxAttach() and one */
	CUresult error;    /* sticky */
	uint64_t last_seq;
	uint64_t holder; /* thread, see hold.h; 0: none */
	uint64_t peers;  /* ordinals whose memory this context may access */
	size_t limits[SIM_LIMITS];
	uint64_t bytes;              /* charged for the context itself */
	struct CUstream_st *streams; /* the legacy stream is always there */
	struct CUstream_st *legacy;
	unsigned int n_streams_made;
	struct CUmod_st *modules;
	struct heap_block *blocks; /* small allocations; space's lock guards them */
	struct rm_context rm;
};

struct sim {
	pthread_mutex_t lock;
	pthread_cond_t done; /* state_notify(): an op or event is done, or a context has an error */
	enum sim_phase phase;
	unsigned int n_devices;
	unsigned int node_device[NODE_DEVICES_MAX]; /* by ordinal */
	struct CUctx_st *contexts;
	struct CUctx_st *primary[NODE_DEVICES_MAX];
	CUresult device_error[NODE_DEVICES_MAX]; /* by ordinal: also keeps new contexts out */
	uint64_t last_id;
	unsigned int n_waiting; /* threads in state_wait() */
	unsigned int n_ending;  /* destroyed contexts with unfinished work */
	bool is_worker_asleep;
};

extern struct sim sim;

void state_lock(void);
void state_unlock(void);
void state_wait(void);   /* waits for state_notify(); releases the lock meanwhile */
void state_notify(void); /* wakes all waiting threads */
uint64_t state_next_id(void);
/* Ends the process as a driver does that follows a handle into memory that it has freed. */
void state_follow_stale(const char *what);

/* The calling thread's current context, or NULL. For a green context: its primary one. */
struct CUctx_st *context_current(void);
/*
 * The living context of handle, or NULL; a green one is not replaced. The process ends with SIGSEGV
 * on a green one that has ended. Lock held.
 */
struct CUctx_st *context_find(CUcontext handle);
/*
 * The context of handle; NULL: the current one. For a green context: its primary one. Errors:
 * CUDA_ERROR_INVALID_CONTEXT, CUDA_ERROR_CONTEXT_IS_DESTROYED, or the sticky error.
 */
CUresult context_resolve(CUcontext handle, struct CUctx_st **ret);
/* Waits until all queues of ctx are empty, or returns its sticky error. Lock held. */
CUresult context_drain(struct CUctx_st *ctx);
/*
 * Makes error sticky for all contexts of the process on this device, also for later ones. Like
 * after a real driver's error, the program must start a new process. Lock held.
 */
void context_fail(struct CUctx_st *ctx, CUresult error);
struct CUctx_st *context_primary(int device); /* the active one, or NULL */

unsigned int device_node(int ordinal);
/* -1: this process does not see that device of the node. */
int device_ordinal(unsigned int node);
/* CUDA_ERROR_INVALID_DEVICE: no device has this ordinal. */
CUresult device_check(CUdevice device);
uint64_t thread_id(void);

#endif
