/* SPDX-License-Identifier: Apache-2.0 */

#include "simgpu/cuda/hold.h"

#include <stdlib.h>
#include <string.h>

#include "simgpu/cuda/run.h"

static bool is_process_wide;
static uint64_t process_holder;

void hold_init(void)
{
	const char *s = getenv("NVSHARE_SIM_LOCKS");

	is_process_wide = s && strcmp(s, "process") == 0;
	if (s && *s && !is_process_wide && strcmp(s, "context") != 0)
		node_debug("NVSHARE_SIM_LOCKS=%s is neither context nor process: ignored", s);
}

/* Where the holder's thread is noted, 0 for none. NULL: nothing can be held. */
static uint64_t *holder_of(struct CUctx_st *ctx)
{
	if (is_process_wide)
		return &process_holder;
	return ctx ? &ctx->holder : NULL;
}

static bool is_others(const uint64_t *holder)
{
	uint64_t thread = holder ? __atomic_load_n(holder, __ATOMIC_RELAXED) : 0;

	return thread && thread != thread_id();
}

bool hold_pass_locked(struct CUctx_st *ctx)
{
	const uint64_t *holder = holder_of(ctx);

	if (!is_others(holder))
		return false;
	node_count(NODE_COUNTER_BLOCKED, 1);
	while (is_others(holder))
		state_wait();
	return true;
}

void hold_pass(struct CUctx_st *ctx)
{
	if (!is_others(holder_of(ctx)))
		return;
	state_lock();
	hold_pass_locked(ctx);
	state_unlock();
}

void hold_pass_ends(void)
{
	state_lock();
	if (sim.n_ending)
		node_count(NODE_COUNTER_BLOCKED, 1);
	while (sim.n_ending)
		state_wait();
	state_unlock();
}

void hold_take(struct CUctx_st *ctx)
{
	hold_pass_locked(ctx);
	__atomic_store_n(holder_of(ctx), thread_id(), __ATOMIC_RELAXED);
	node_count(NODE_COUNTER_HOLDS, 1);
}

void hold_drop(struct CUctx_st *ctx)
{
	__atomic_store_n(holder_of(ctx), 0, __ATOMIC_RELAXED);
	state_notify();
}

CUresult hold_drain(struct CUctx_st *ctx)
{
	struct CUstream_st *stream;
	CUresult r;

	hold_pass_locked(ctx);
	for (stream = ctx->streams; stream && run_is_idle(stream); stream = stream->next)
		;
	if (!stream)
		return ctx->error;
	hold_take(ctx);
	r = context_drain(ctx);
	hold_drop(ctx);
	return r;
}

CUresult hold_room(struct CUstream_st *stream)
{
	struct CUctx_st *ctx = stream->ctx;
	CUresult r = ctx->error;

	if (run_queued(stream) < HOLD_QUEUE_MAX)
		return r;
	hold_take(ctx);
	stream->n_users++;
	while (!ctx->error && ctx->is_alive && run_queued(stream) >= HOLD_QUEUE_MAX)
		state_wait();
	r = !ctx->error && stream->is_destroyed ? CUDA_ERROR_INVALID_HANDLE : ctx->error;
	if (--stream->n_users == 0)
		state_notify();
	run_stream_reap(stream);
	hold_drop(ctx);
	return r;
}

CUresult hold_upload(struct CUctx_st *ctx)
{
	CUresult r;

	state_lock();
	if (!rm_is_running(&ctx->rm, RM_COPY_TO_DEVICE)) {
		hold_take(ctx);
		while (!ctx->error && ctx->is_alive && !rm_is_running(&ctx->rm, RM_COPY_TO_DEVICE))
			state_wait();
		hold_drop(ctx);
	}
	r = ctx->error;
	state_unlock();
	return r;
}
