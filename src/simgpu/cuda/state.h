/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_SIMGPU_CUDA_STATE_H
#define NVS_SIMGPU_CUDA_STATE_H

/*
 * The driver's state in this process: contexts, streams, their queues.
 *
 * Locks, in this order: sim.lock (contexts, streams, queues, captures, graphs), the lock of
 * space.h (what is mapped where), the node's. The worker holds space's lock for reading
 * while it makes one step of a kernel or a copy, and no other.
 *
 * A context is never freed, only marked dead, so that a handle kept too long is an error
 * and not a crash; there are few.
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
	struct CUctx_st *green; /* the green context that it was made for, or NULL */
	struct op *head, *tail;
	uint64_t id;
	uint64_t last_seq; /* of the op that was queued last */
	uint64_t served;   /* turn in which the worker last took from here */
	uint64_t thread;   /* owner, for STREAM_PER_THREAD */
	enum stream_kind kind;
	unsigned int flags;
	int priority;
	unsigned int n_users; /* threads that wait for it */
	unsigned int n_queued;
	unsigned int queue; /* of the hardware's, see run.h */
	bool is_destroyed;  /* goes when its queue is empty */
	struct capture *capture;
	struct CUgraphNode_st **capture_deps; /* what the next captured node depends on */
	size_t n_capture_deps;
};

struct CUctx_st {
	struct CUctx_st *next;  /* sim::contexts, the dead too */
	struct CUctx_st *owner; /* of a green context's: the primary one, whose streams it has */
	uint64_t id;
	int device;
	bool is_alive;
	bool is_primary;
	bool is_used; /* had work: its flags can no longer be set */
	unsigned int flags;
	unsigned int refs; /* primary: retains; others: cuCtxAttach() and one */
	CUresult error;    /* sticky */
	uint64_t last_seq;
	uint64_t holder; /* see hold.h; 0: nobody */
	uint64_t peers;  /* ordinals whose memory this context may access */
	size_t limits[SIM_LIMITS];
	uint64_t bytes;              /* charged for the context itself */
	struct CUstream_st *streams; /* the legacy stream is always there */
	struct CUstream_st *legacy;
	unsigned int n_streams_made;
	struct CUmod_st *modules;
	struct heap_block *blocks; /* small allocations; behind space's lock */
	struct rm_context rm;
};

struct sim {
	pthread_mutex_t lock;
	pthread_cond_t done; /* something ended: a queue moved, an event, a context's error */
	enum sim_phase phase;
	unsigned int n_devices;
	unsigned int node_device[NODE_DEVICES_MAX]; /* by ordinal */
	struct CUctx_st *contexts;
	struct CUctx_st *primary[NODE_DEVICES_MAX];
	CUresult device_error[NODE_DEVICES_MAX]; /* by ordinal: no new context either */
	uint64_t last_id;
	unsigned int n_waiting; /* threads in state_wait() */
	unsigned int n_ending;  /* contexts that are destroyed and whose work is not done */
	bool is_worker_asleep;
};

extern struct sim sim;

void state_lock(void);
void state_unlock(void);
void state_wait(void);   /* until something ended; the lock is released meanwhile */
void state_notify(void); /* something ended */
uint64_t state_next_id(void);

/* The calling thread's current context, or NULL; of a green one's the primary. */
struct CUctx_st *context_current(void);
/* A living context, or NULL; a green one's as it is. Lock held. */
struct CUctx_st *context_find(CUcontext handle);
/* NULL is the current one; of a green one's the primary. CUDA_ERROR_INVALID_CONTEXT,
 * _CONTEXT_IS_DESTROYED or the sticky error.
 */
CUresult context_resolve(CUcontext handle, struct CUctx_st **ret);
/* Lock held; returns when all its queues are empty, or with its sticky error. */
CUresult context_drain(struct CUctx_st *ctx);
/*
 * Sticky from now on, for every context of the process on this device, those to come as
 * well: as the real driver, for which only a new process helps. Lock held.
 */
void context_fail(struct CUctx_st *ctx, CUresult error);
struct CUctx_st *context_primary(int device); /* the active one, or NULL */

unsigned int device_node(int ordinal);
/* CUDA_ERROR_INVALID_DEVICE when there is none of that number. */
CUresult device_check(CUdevice device);
uint64_t thread_id(void);

#endif
