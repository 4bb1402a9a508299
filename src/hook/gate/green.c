/* SPDX-License-Identifier: Apache-2.0 */

#include "hook/gate/green.h"

#include "hook/base/hook_mutex.h"
#include "hook/gate/gate.h"
#include "hook/table/cuda_real.h"

#include <stdlib.h>
#include <utlist.h>

struct green_stream {
	struct green_stream *next;
	CUstream stream;
	struct green *green; /* NULL: it has ended */
};

static struct {
	struct hook_mutex lock;
	struct green *contexts;       /* lock; the newest first: the driver gives handles again */
	struct green_stream *streams; /* lock */
	uintptr_t last_id;            /* lock */
	bool is_used;                 /* atomic; to the end */
} greens = {.lock = HOOK_MUTEX(HOOK_LOCK_GREENS)};

static bool green_is_used(void)
{
	return __atomic_load_n(&greens.is_used, __ATOMIC_RELAXED);
}

bool green_add(const struct green *made)
{
	struct green *green = malloc(sizeof(*green));

	if (!green)
		return false;
	*green = *made;
	hook_lock(&greens.lock);
	green->id = (const void *)++greens.last_id;
	LL_PREPEND(greens.contexts, green);
	__atomic_store_n(&greens.is_used, true, __ATOMIC_RELAXED);
	hook_unlock(&greens.lock);
	return true;
}

/* One that another thread has taken is that thread's. */
static struct green *green_take_those(CUgreenCtx handle, CUcontext primary)
{
	struct green *green, *taken = NULL;

	if (!green_is_used())
		return NULL;
	hook_lock(&greens.lock);
	LL_FOREACH (greens.contexts, green) {
		if (green->is_going ||
		    (primary ? green->primary != primary : green->handle != handle))
			continue;
		green->is_going = true;
		green->taken = taken;
		taken = green;
	}
	hook_unlock(&greens.lock);
	return taken;
}

struct green *green_take(CUgreenCtx handle)
{
	return green_take_those(handle, NULL);
}

struct green *green_take_all(CUcontext primary)
{
	return green_take_those(NULL, primary);
}

void green_put_back(struct green *taken)
{
	hook_lock(&greens.lock);
	for (; taken; taken = taken->taken)
		taken->is_going = false;
	hook_unlock(&greens.lock);
}

/* The handles may name others already, which other threads have made. */
static void green_unlink(struct green *green)
{
	struct green_stream *s;

	hook_lock(&greens.lock);
	LL_DELETE(greens.contexts, green);
	LL_FOREACH (greens.streams, s)
		s->green = s->green == green ? NULL : s->green;
	hook_unlock(&greens.lock);
}

void green_end(struct green *taken)
{
	struct green *next;

	for (; taken; taken = next) {
		next = taken->taken;
		green_unlink(taken);
		gate_context_gone(taken->id);
		free(taken);
	}
}

/* Lock held. */
static struct green_place green_place_in(const struct green *green)
{
	return (struct green_place){.ctx = green->ctx,
				    .owner = green->primary,
				    .id = green->id,
				    .is_going = green->is_going};
}

struct green_place green_place(CUcontext ctx)
{
	struct green_place place = {.ctx = ctx, .owner = ctx, .id = ctx};
	struct green *green;

	if (!green_is_used())
		return place;
	hook_lock(&greens.lock);
	LL_SEARCH_SCALAR(greens.contexts, green, ctx, ctx);
	if (green)
		place = green_place_in(green);
	hook_unlock(&greens.lock);
	return place;
}

/* Lock held. */
static struct green_stream *green_find_stream(CUstream stream)
{
	struct green_stream *s;

	LL_SEARCH_SCALAR(greens.streams, s, stream, stream);
	return s;
}

void green_stream_gone(CUstream stream)
{
	struct green_stream *s;

	if (!green_is_used())
		return;
	hook_lock(&greens.lock);
	s = green_find_stream(stream);
	if (s)
		LL_DELETE(greens.streams, s);
	hook_unlock(&greens.lock);
	free(s);
}

/* The handle may be that of a stream which went without our seeing it. */
void green_stream_made(CUstream stream, CUgreenCtx handle)
{
	CUcontext current = NULL;
	struct green_stream *s;
	struct green *green;

	if (!green_is_used())
		return;
	green_stream_gone(stream);
	if (!handle)
		(void)cuda_real.cuCtxGetCurrent(&current);
	s = calloc(1, sizeof(*s));
	if (!s)
		return;
	hook_lock(&greens.lock);
	LL_FOREACH (greens.contexts, green) {
		if (handle ? green->handle == handle : green->ctx == current)
			break;
	}
	if (green) {
		s->stream = stream;
		s->green = green;
		LL_PREPEND(greens.streams, s);
		s = NULL; /* taken by the list */
	}
	hook_unlock(&greens.lock);
	free(s);
}

CUresult green_stream_place(CUstream stream, struct green_place *ret)
{
	CUresult res = CUDA_ERROR_NOT_FOUND;
	struct green_stream *s;

	if (!green_is_used())
		return res;
	hook_lock(&greens.lock);
	s = green_find_stream(stream);
	if (s) {
		*ret = s->green ? green_place_in(s->green) : (struct green_place){0};
		res = s->green && !ret->is_going ? CUDA_SUCCESS : CUDA_ERROR_STREAM_DETACHED;
	}
	hook_unlock(&greens.lock);
	return res;
}

/* The child's driver knows none of the handles. It leaks the lists, which may be half changed. */
void green_after_fork_child(void)
{
	hook_mutex_renew(&greens.lock, HOOK_LOCK_GREENS);
	greens.contexts = NULL;
	greens.streams = NULL;
}
