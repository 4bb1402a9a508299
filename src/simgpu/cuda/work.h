/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_SIMGPU_CUDA_WORK_H
#define NVS_SIMGPU_CUDA_WORK_H

/*
 * The work of a GPU, in steps of a fraction of a millisecond. Between two steps streams and
 * processes take turns, and a frozen context stands still. struct work describes the work and
 * can be copied into graphs; struct progress tells how far one execution has come.
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
	WORK_FREE, /* frees an asynchronous allocation */
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

/* Rows of width bytes. A side that is no GPU address is host memory, without checks. */
struct work_copy {
	uint64_t dst, src;
	size_t width, height, depth;
	size_t dst_pitch, src_pitch; /* from row to row */
	size_t dst_slice, src_slice; /* from plane to plane */
	bool is_dst_host, is_src_host;
	bool is_sync_host; /* the host memory is pageable, so the caller waits */
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
	int location; /* ordinal; -1: the host */
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
	uint64_t pos; /* unit: depends on the kind */
	uint64_t round;
	uint64_t started_ns; /* of computing, in the device's time; 0 before */
	uint64_t step_ns;    /* modelled cost of the last step, as far as it computed */
	uint64_t ready_ns;   /* no step before */
	struct host_call *call;
};

enum work_step {
	WORK_STEP_MORE,    /* needs another step, not before progress.ready_ns */
	WORK_STEP_DONE,    /* is done at progress.ready_ns */
	WORK_STEP_FAILED,  /* *ret_error is the sticky error */
	WORK_STEP_BLOCKED, /* waits for an event that will wake the worker */
};

/* The channel group that carries the work. */
enum rm_engine work_engine(const struct work *work);
bool work_computes(const struct work *work); /* needs the compute token */

/* Makes one step. Takes space's lock. No lock held. */
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

/* managed.c: moves managed pages of [addr, addr + size) to ctx's device. Read lock held. */
void managed_touch(struct CUctx_st *ctx, uint64_t addr, uint64_t size, struct progress *progress);

#endif
