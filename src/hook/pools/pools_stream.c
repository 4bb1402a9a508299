/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Frees that are not done yet. Each has an event, recorded on the stream where it was freed. An
 * allocation on the same stream may have the block at once.
 *
 * Events of one stream are done in the order in which they were recorded. So it is enough to query
 * the newest event, and then the oldest ones. The list of blocks may have another order, because
 * several threads may free on one stream at the same time. Therefore an event that is done proves
 * only that those blocks are done that were pending before it was recorded.
 */

#include "hook/pools/pools.h"
#include "hook/pools/pools_private.h"

#include "hook/gate/device.h"
#include "hook/gate/gate.h"
#include "hook/table/cuda_real.h"

#include <stdlib.h>
#include <utlist.h>

static int block_compare(struct pools_block *a, struct pools_block *b)
{
	if (a->arena != b->arena)
		return (uintptr_t)a->arena < (uintptr_t)b->arena ? -1 : 1;
	if (a->room != b->room)
		return a->room < b->room ? -1 : 1;
	return a->alloc.addr < b->alloc.addr ? -1 : a->alloc.addr > b->alloc.addr;
}

/* cppcheck-suppress unknownMacro */
RBTREE_GENERATE(pools_size_tree, pools_block, link, block_compare)

/* ---- which stream ----------------------------------------------------------- */

/* A thread's stream ends with the thread. Unlike an address, a number is never used again. */
static uint64_t stream_thread_number(void)
{
	static __thread uint64_t number __attribute__((tls_model("initial-exec")));
	static uint64_t last;

	if (!number)
		number = __atomic_add_fetch(&last, 1, __ATOMIC_RELAXED);
	return number;
}

CUresult pools_where(CUstream stream, struct pools_where *ret_where)
{
	bool is_default = stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
	struct pools_where where = {.stream = stream};
	CUcontext ctx = NULL;
	CUresult res;

	res = is_default ? CUDA_ERROR_NOT_FOUND : green_stream_place(stream, &where.place);
	if (res == CUDA_ERROR_NOT_FOUND) {
		res = is_default ? cuda_real.cuCtxGetCurrent(&ctx)
				 : cuda_real.cuStreamGetCtx(stream, &ctx);
		where.place = green_place(ctx);
	}
	if (res != CUDA_SUCCESS)
		return res;
	if (!where.place.ctx)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (stream == CU_STREAM_PER_THREAD)
		where.thread = stream_thread_number();
	*ret_where = where;
	return CUDA_SUCCESS;
}

struct pools_stream *pools_stream_find(const struct pools_where *where)
{
	struct pools_stream *s;

	DL_FOREACH (pools.streams, s) {
		if (s->where.stream == where->stream && s->where.place.id == where->place.id &&
		    s->where.thread == where->thread && !s->is_detached)
			return s;
	}
	return NULL;
}

struct pools_stream *pools_stream_get(const struct pools_where *where)
{
	struct pools_stream *s = pools_stream_find(where);

	if (!s) {
		s = calloc(1, sizeof(*s));
		if (!s)
			return NULL;
		s->where = *where;
		RB_INIT(&s->sizes);
		DL_PREPEND(pools.streams, s);
	}
	s->n_users++;
	return s;
}

static void stream_forget_if_idle(struct pools_stream *s)
{
	if (s->n_users || s->pending)
		return;
	if (!s->is_gone)
		DL_DELETE(pools.streams, s);
	free(s);
}

void pools_stream_put(struct pools_stream *stream)
{
	stream->n_users--;
	stream_forget_if_idle(stream);
}

void pools_stream_gone(CUstream stream)
{
	struct pools_stream *s;

	hook_lock(&pools.lock);
	DL_FOREACH (pools.streams, s) {
		if (s->where.stream == stream)
			s->is_detached = true;
	}
	hook_unlock(&pools.lock);
}

/* ---- events ----------------------------------------------------------------- */

/*
 * Calls on events need their context current. They would break a stream capture in global mode of
 * any thread, and one can begin at any time. So the thread is always in relaxed mode.
 */
struct inside {
	CUstreamCaptureMode mode;
	bool is_relaxed;
	bool is_pushed;
};

static bool stream_enter(CUcontext ctx, struct inside *ret)
{
	*ret = (struct inside){.mode = CU_STREAM_CAPTURE_MODE_RELAXED};
	if (pager_push(ctx, &ret->is_pushed) != CUDA_SUCCESS)
		return false;
	ret->is_relaxed = cuda_real.cuThreadExchangeStreamCaptureMode &&
			  cuda_real.cuThreadExchangeStreamCaptureMode(&ret->mode) == CUDA_SUCCESS;
	return true;
}

static void stream_leave(struct inside *inside)
{
	if (inside->is_relaxed)
		(void)cuda_real.cuThreadExchangeStreamCaptureMode(&inside->mode);
	pager_pop(inside->is_pushed);
}

/* Lock held. */
static void event_use(struct pools_event *event)
{
	event->n_users = 1;
	event->after = pools.n_pended;
	DL_APPEND(pools.in_use, event);
}

struct pools_event *pools_event_get(CUcontext ctx)
{
	struct pools_event *event, **link;
	struct inside inside;
	CUresult res;

	hook_lock(&pools.lock);
	for (link = &pools.events; (event = *link) && event->ctx != ctx; link = &event->next)
		;
	if (event) {
		*link = event->next;
		event_use(event);
	}
	hook_unlock(&pools.lock);
	if (event)
		return event;
	event = calloc(1, sizeof(*event));
	if (!event || !stream_enter(ctx, &inside)) {
		free(event);
		return NULL;
	}
	res = cuda_real.cuEventCreate(&event->event,
				      CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING);
	stream_leave(&inside);
	if (res != CUDA_SUCCESS) {
		free(event);
		return NULL;
	}
	event->ctx = ctx;
	hook_lock(&pools.lock);
	event_use(event);
	hook_unlock(&pools.lock);
	return event;
}

void pools_event_put(struct pools_event *event)
{
	if (--event->n_users)
		return;
	DL_DELETE(pools.in_use, event);
	if (event->is_dead) {
		free(event);
		return;
	}
	event->next = pools.events;
	pools.events = event;
}

static bool res_is_capture_error(CUresult res)
{
	return res >= CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED &&
	       res <= CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
}

/*
 * The caller holds the context: if it still exists, it stays. If it has ended (is_dead), its handle
 * may name a new context, which has no such event.
 */
static bool event_is_done_held(const struct pools_event *event, bool waits)
{
	struct inside inside;
	CUresult res;

	if (__atomic_load_n(&event->is_dead, __ATOMIC_ACQUIRE) ||
	    !stream_enter(event->ctx, &inside))
		return true;
	res = waits ? cuda_real.cuEventSynchronize(event->event)
		    : cuda_real.cuEventQuery(event->event);
	stream_leave(&inside);
	return res != CUDA_ERROR_NOT_READY && !res_is_capture_error(res);
}

/*
 * A context that is gone, or broken for good, runs nothing any more: its events are done. While
 * another thread ends the context, the answer is not known, and counts as not done.
 */
static bool event_is_done(const struct pools_event *event, bool waits)
{
	struct device_context *held;
	bool done;

	if (!device_context_hold_this(event->ctx, &held))
		return false;
	done = event_is_done_held(event, waits);
	device_context_drop(held);
	return done;
}

/* ---- pending ---------------------------------------------------------------- */

static void block_link(struct pools_stream *stream, struct pools_block *block)
{
	if (block->arena)
		RB_INSERT(pools_size_tree, &stream->sizes, block);
}

static void block_unlink(struct pools_stream *stream, struct pools_block *block)
{
	if (block->arena)
		RB_REMOVE(pools_size_tree, &stream->sizes, block);
	DL_DELETE(stream->pending, block);
}

void pools_pend(struct pools_stream *stream, struct pools_block *block)
{
	block->number = ++pools.n_pended;
	DL_APPEND(stream->pending, block);
	block_link(stream, block);
}

/* Cuts the block to size; the rest stays pending. Without memory the block stays whole. */
static void block_cut(struct pools_stream *stream, struct pools_block *block, size_t size)
{
	struct pools_block *rest;

	if (block->room == size)
		return;
	rest = calloc(1, sizeof(*rest));
	if (!rest)
		return;
	if (extent_split(&block->arena->extent, block->alloc.addr, size) != 0) {
		free(rest);
		return;
	}
	rest->arena = block->arena;
	rest->arena->n_users++;
	rest->alloc.addr = block->alloc.addr + size;
	rest->room = block->room - size;
	rest->number = block->number;
	rest->event = block->event;
	rest->event->n_users++;
	block->room = size;
	DL_APPEND_ELEM(stream->pending, block, rest);
	block_link(stream, rest);
}

struct pools_block *pools_take_pending(struct pools_stream *stream, struct pools_arena *arena,
				       size_t size)
{
	struct pools_block key, *block;

	key.arena = arena;
	key.room = size;
	key.alloc.addr = 0;
	block = RB_NFIND(pools_size_tree, &stream->sizes, &key);
	if (!block || block->arena != arena)
		return NULL;
	RB_REMOVE(pools_size_tree, &stream->sizes, block);
	block_cut(stream, block, size);
	DL_DELETE(stream->pending, block);
	return block;
}

/*
 * The event's context may be another one than the stream's. While another thread ends that context,
 * this one waits.
 */
static void stream_wait_for(const struct pools_where *where, const struct pools_event *event)
{
	CUresult res = CUDA_ERROR_INVALID_CONTEXT;
	struct device_context *held;
	struct inside inside;

	while (!device_context_hold_this(event->ctx, &held)) {
		device_turn_begin();
		device_turn_end();
	}
	if (__atomic_load_n(&event->is_dead, __ATOMIC_ACQUIRE)) {
		res = CUDA_SUCCESS;
	} else if (stream_enter(where->place.ctx, &inside)) {
		res = cuda_real.cuStreamWaitEvent(where->stream, event->event, 0);
		stream_leave(&inside);
	}
	if (res != CUDA_SUCCESS)
		(void)event_is_done_held(event, true);
	device_context_drop(held);
}

struct pools_block *pools_take_other(struct pools_arena *arena, const struct pools_where *where,
				     size_t size)
{
	struct pools_block *block = NULL;
	struct pools_stream *s;

	hook_lock(&pools.lock);
	DL_FOREACH (pools.streams, s) {
		block = pools_take_pending(s, arena, size);
		if (block)
			break;
	}
	hook_unlock(&pools.lock);
	if (block)
		stream_wait_for(where, block->event);
	return block;
}

/* ---- done ------------------------------------------------------------------- */

/*
 * Takes the blocks up to number out of the list that the event proves to be done. Plain ones go to
 * *plain.
 */
static void stream_pop_done(struct pools_stream *stream, const struct pools_event *event,
			    uint64_t number, struct pools_block **plain)
{
	struct pools_block *block, *next;

	DL_FOREACH_SAFE (stream->pending, block, next) {
		if (block->number > number)
			break;
		if (block->number > event->after && block->event != event)
			continue;
		block_unlink(stream, block);
		pools_event_put(block->event);
		if (block->arena)
			pools_arena_give(block);
		else
			LL_PREPEND(*plain, block);
	}
}

static bool stream_collect_by(struct pools_stream *stream, struct pools_block *block, bool waits,
			      struct pools_block **plain)
{
	struct pools_event *event = block->event;
	uint64_t number = block->number; /* others may take the block meanwhile */
	bool done;

	event->n_users++;
	hook_unlock(&pools.lock);
	done = event_is_done(event, waits);
	hook_lock(&pools.lock);
	if (done)
		stream_pop_done(stream, event, number, plain);
	pools_event_put(event);
	return done;
}

void pools_collect(bool waits)
{
	struct pools_block *plain = NULL;
	struct pools_stream *s, *next;
	uint64_t last;

	hook_lock(&pools.lock);
	last = pools.n_pended;
	for (s = pools.streams; s; s = next) {
		s->n_users++;
		if (s->pending)
			(void)stream_collect_by(s, s->pending->prev, waits, &plain);
		while (s->pending && s->pending->number <= last &&
		       stream_collect_by(s, s->pending, waits, &plain))
			;
		/* Another thread took s out of the list, so s->next means nothing any more. */
		next = s->is_gone ? NULL : s->next;
		pools_stream_put(s);
	}
	hook_unlock(&pools.lock);
	pools_drop_plain(plain);
}

void pools_drop_plain(struct pools_block *blocks)
{
	struct pools_block *block;

	while ((block = blocks)) {
		blocks = block->next;
		pager_release(block->plain);
		free(block);
	}
}

static void stream_forget_events(CUcontext ctx)
{
	struct pools_event *event, **link;

	DL_FOREACH (pools.in_use, event) {
		if (event->ctx == ctx)
			__atomic_store_n(&event->is_dead, true, __ATOMIC_RELEASE);
	}

	for (link = &pools.events; (event = *link);) {
		if (event->ctx != ctx) {
			link = &event->next;
			continue;
		}
		*link = event->next;
		free(event); /* the driver's event ended with the context */
	}
}

struct pools_block *pools_stream_context_gone(CUcontext ctx)
{
	struct pools_block *block, *next_block, *plain = NULL;
	struct pools_stream *s, *next;

	stream_forget_events(ctx);
	DL_FOREACH_SAFE (pools.streams, s, next) {
		bool is_gone = s->where.place.owner == ctx;

		DL_FOREACH_SAFE (s->pending, block, next_block) {
			if (!is_gone && (block->arena || block->plain->ctx != ctx))
				continue;
			block_unlink(s, block);
			pools_event_put(block->event);
			if (block->arena)
				pools_arena_give(block);
			else
				LL_PREPEND(plain, block);
		}
		if (is_gone) {
			DL_DELETE(pools.streams, s);
			s->is_gone = true;
		}
		if (is_gone)
			stream_forget_if_idle(s);
	}
	return plain;
}
