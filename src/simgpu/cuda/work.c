/* SPDX-License-Identifier: Apache-2.0 */

#include "simgpu/cuda/work.h"

#include "simgpu/cuda/graph.h"
#include "simgpu/cuda/managed.h"
#include "simgpu/cuda/pool.h"
#include "simgpu/cuda/run.h"
#include "simgpu/cuda/space.h"
#include "util/clock.h"

bool work_computes(const struct work *work)
{
	return work->kind == WORK_KERNEL || work->kind == WORK_FILL;
}

/* The stream's compute channel does, or at least announces, all work but copies. */
enum rm_engine work_engine(const struct work *work)
{
	switch (work->kind) {
	case WORK_COPY:
		return work->copy.engine;
	case WORK_PREFETCH:
		return work->memory.location < 0 ? RM_COPY_TO_HOST : RM_COPY_TO_DEVICE;
	case WORK_VALUE_WAIT:
	case WORK_VALUE_WRITE:
		return RM_COPY_OTHER;
	case WORK_KERNEL:
	case WORK_FILL:
	case WORK_NOTHING:
	case WORK_HOST:
	case WORK_RECORD:
	case WORK_WAIT:
	case WORK_FREE:
	case WORK_GRAPH_ALLOC:
	case WORK_GRAPH_FREE:
		break;
	}
	return RM_COMPUTE;
}

static bool value_is_reached(const struct work_value *value)
{
	uint64_t mask = value->is_64 ? UINT64_MAX : UINT32_MAX, now;
	int64_t ahead;

	if (value->is_64)
		now = __atomic_load_n((uint64_t *)(uintptr_t)value->addr, __ATOMIC_ACQUIRE);
	else
		now = __atomic_load_n((uint32_t *)(uintptr_t)value->addr, __ATOMIC_ACQUIRE);
	switch (value->flags & 3) {
	case CU_STREAM_WAIT_VALUE_EQ:
		return now == (value->value & mask);
	case CU_STREAM_WAIT_VALUE_AND:
		return (now & value->value & mask) != 0;
	case CU_STREAM_WAIT_VALUE_NOR:
		return (~(now | value->value) & mask) != 0;
	default:
		/* The comparison is cyclic, for counters that wrap around. */
		ahead = value->is_64 ? (int64_t)(now - value->value)
				     : (int32_t)((uint32_t)now - (uint32_t)value->value);
		return ahead >= 0;
	}
}

static enum work_step value_step(struct CUctx_st *ctx, const struct work *work, CUresult *ret_error)
{
	const struct work_value *value = &work->value;
	bool is_write = work->kind == WORK_VALUE_WRITE;

	if (!space_is_accessible(ctx, value->addr, value->is_64 ? 8 : 4, is_write)) {
		*ret_error = CUDA_ERROR_ILLEGAL_ADDRESS;
		return WORK_STEP_FAILED;
	}
	if (!is_write)
		return value_is_reached(value) ? WORK_STEP_DONE : WORK_STEP_BLOCKED;
	if (value->is_64)
		__atomic_store_n((uint64_t *)(uintptr_t)value->addr, value->value,
				 __ATOMIC_RELEASE);
	else
		__atomic_store_n((uint32_t *)(uintptr_t)value->addr, (uint32_t)value->value,
				 __ATOMIC_RELEASE);
	return WORK_STEP_DONE;
}

static enum work_step kernel_step(struct CUctx_st *ctx, const struct work *work,
				  struct progress *progress, CUresult *ret_error)
{
	unsigned int device = device_node(ctx->device);
	enum work_step step;

	if (!progress->started_ns)
		progress->started_ns = node_gpu_time(device);
	progress->step_ns = 0;
	if (work->kind == WORK_FILL)
		step = copy_fill_step(ctx, &work->fill, progress, ret_error);
	else
		step = work->kernel.kernel->step(ctx, work->kernel.args, progress, ret_error);
	(void)node_gpu_spend(device, progress->step_ns);
	if (step == WORK_STEP_DONE && node_gpu_until(device) > clock_now_ns() + WORK_ROUNDING_NS &&
	    node_gpu_until(device) > progress->ready_ns)
		progress->ready_ns = node_gpu_until(device);
	return step;
}

static enum work_step host_step(const struct work *work, struct progress *progress)
{
	if (progress->call)
		return WORK_STEP_DONE; /* run.c steps again only after the function's return */
	progress->call = host_call_new(&work->host, CUDA_SUCCESS);
	return progress->call ? WORK_STEP_BLOCKED : WORK_STEP_DONE;
}

enum work_step work_do(struct CUctx_st *ctx, const struct work *work, struct progress *progress,
		       CUresult *ret_error)
{
	enum work_step step = WORK_STEP_DONE;

	if (progress->pos == UINT64_MAX)
		return WORK_STEP_DONE;
	switch (work->kind) {
	case WORK_NOTHING:
	case WORK_RECORD:
	case WORK_WAIT:
		return WORK_STEP_DONE;
	case WORK_HOST:
		return host_step(work, progress);
	case WORK_FREE:
		pool_free_now(work->memory.addr);
		return WORK_STEP_DONE;
	case WORK_GRAPH_ALLOC:
		*ret_error = graph_memory_map(&work->memory);
		return *ret_error ? WORK_STEP_FAILED : WORK_STEP_DONE;
	case WORK_GRAPH_FREE:
		graph_memory_unmap(&work->memory);
		return WORK_STEP_DONE;
	case WORK_KERNEL:
	case WORK_FILL:
	case WORK_COPY:
	case WORK_PREFETCH:
	case WORK_VALUE_WAIT:
	case WORK_VALUE_WRITE:
		break;
	}
	space_read_lock();
	if (work->kind == WORK_COPY)
		step = copy_step(ctx, &work->copy, progress, ret_error);
	else if (work->kind == WORK_PREFETCH)
		step = managed_prefetch_step(&work->memory, progress);
	else if (work_computes(work))
		step = kernel_step(ctx, work, progress, ret_error);
	else
		step = value_step(ctx, work, ret_error);
	space_unlock();
	return step;
}
