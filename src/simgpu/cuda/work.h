/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_SIMGPU_CUDA_WORK_H
#define NVS_SIMGPU_CUDA_WORK_H

/*
 * What a GPU can be asked to do, and how it is done: in steps of a fraction of a
 * millisecond, so that streams interleave, processes take turns and a frozen context
 * stands still between two steps. struct work is a description that can be copied into
 * graphs; struct progress is how far one execution of it has come.
 */

#include "abi/cuda_structs.h"
#include "simgpu/cuda/rm.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	WORK_ARGS_MAX = 4,
	WORK_STEP_NS = 200000,
	WORK_ROUNDING_NS = 60000, /* sleeping less than that costs more */
};

enum work_kind {
	WORK_NOTHING,
	WORK_KERNEL,
	WORK_COPY,
	WORK_FILL,
	WORK_HOST,
	WORK_RECORD,
	WORK_WAIT,
	WORK_VALUE_WAIT,
	WORK_VALUE_WRITE,
	WORK_PREFETCH,
	WORK_FREE, /* of an asynchronous allocation */
	WORK_GRAPH_ALLOC,
	WORK_GRAPH_FREE,
};

struct kernel;
struct event_record;
struct CUctx_st;
struct CUstream_st;

struct work_kernel {
	const struct kernel *kernel;
	struct CUfunc_st *function;
	unsigned int grid[3], block[3], shared_bytes;
	uint64_t args[WORK_ARGS_MAX];
};

/* Rows of width bytes; a side that is no GPU address is host memory and is not checked. */
struct work_copy {
	uint64_t dst, src;
	size_t width, height, depth;
	size_t dst_pitch, src_pitch; /* from row to row */
	size_t dst_slice, src_slice; /* from plane to plane */
	bool is_dst_host, is_src_host;
	bool is_sync_host; /* pageable: the caller has to wait */
	enum rm_engine engine;
};

struct work_fill {
	uint64_t dst;
	size_t pitch, width, height; /* width in elements */
	uint32_t value, element_size;
};

struct work_host {
	CUhostFn fn;
	CUstreamCallback callback; /* instead of fn */
	CUstream stream;           /* for callback */
	void *arg;
};

struct work_value {
	uint64_t addr, value;
	unsigned int flags;
	bool is_64;
};

struct work_memory {
	uint64_t addr, size;
	int location; /* ordinal, -1 is the host */
};

struct work {
	enum work_kind kind;
	union {
		struct work_kernel kernel;
		struct work_copy copy;
		struct work_fill fill;
		struct work_host host;
		struct event_record *record; /* a reference */
		struct work_value value;
		struct work_memory memory;
	};
};

struct host_call;

struct progress {
	uint64_t pos; /* what it counts is the kind's own */
	uint64_t round;
	uint64_t started_ns; /* of computing, in the device's time; 0 before */
	uint64_t step_ns;    /* modelled cost of the last step, as far as it computed */
	uint64_t ready_ns;   /* no step before */
	struct host_call *call;
};

enum work_step {
	WORK_STEP_MORE,    /* again when it is this one's turn, not before progress.ready_ns */
	WORK_STEP_DONE,    /* over at progress.ready_ns */
	WORK_STEP_FAILED,  /* *ret_error, sticky */
	WORK_STEP_BLOCKED, /* on something that will wake the worker */
};

/* Which channel group carries it. */
enum rm_engine work_engine(const struct work *work);
bool work_computes(const struct work *work); /* needs the compute token */

/* One step; space's lock is taken inside. No lock held. */
enum work_step work_do(struct CUctx_st *ctx, const struct work *work, struct progress *progress,
		       CUresult *ret_error);

/* copy.c */
enum work_step copy_step(struct CUctx_st *ctx, const struct work_copy *copy,
			 struct progress *progress, CUresult *ret_error);
enum work_step copy_fill_step(struct CUctx_st *ctx, const struct work_fill *fill,
			      struct progress *progress, CUresult *ret_error);

/* kernel.c */
struct kernel {
	const char *name;
	const char *args; /* p: 8 bytes, u: 4 bytes */
	enum work_step (*step)(struct CUctx_st *ctx, const uint64_t *args,
			       struct progress *progress, CUresult *ret_error);
};
const struct kernel *kernel_find(const char *name);

/* managed.c: pages of managed memory in the piece move to ctx's device. Read lock held. */
void managed_touch(struct CUctx_st *ctx, uint64_t addr, uint64_t size, struct progress *progress);

#endif
