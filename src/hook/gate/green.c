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
	CUcontext ctx; /* NULL: its green context has ended */
};

static struct {
	struct hook_mutex lock;
	struct green *contexts;       /* lock */
	struct green_stream *streams; /* lock */
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
	green_put_back(green);
	return true;
}

void green_put_back(struct green *green)
{
	hook_lock(&greens.lock);
	LL_PREPEND(greens.contexts, green);
	__atomic_store_n(&greens.is_used, true, __ATOMIC_RELAXED);
	hook_unlock(&greens.lock);
}

struct green *green_take(CUgreenCtx handle)
{
	struct green *green;

	hook_lock(&greens.lock);
	LL_SEARCH_SCALAR(greens.contexts, green, handle, handle);
	if (green)
		LL_DELETE(greens.contexts, green);
	hook_unlock(&greens.lock);
	return green;
}

void green_end(struct green *green)
{
	struct green_stream *s;

	hook_lock(&greens.lock);
	LL_FOREACH (greens.streams, s) {
		if (s->ctx == green->ctx)
			s->ctx = NULL;
	}
	hook_unlock(&greens.lock);
	gate_context_gone(green->ctx);
	free(green);
}

void green_primary_gone(CUcontext primary)
{
	struct green *green, *next, *gone = NULL;

	if (!green_is_used())
		return;
	hook_lock(&greens.lock);
	LL_FOREACH_SAFE (greens.contexts, green, next) {
		if (green->primary != primary)
			continue;
		LL_DELETE(greens.contexts, green);
		LL_PREPEND(gone, green);
	}
	hook_unlock(&greens.lock);
	LL_FOREACH_SAFE (gone, green, next)
		green_end(green);
}

CUcontext green_owner(CUcontext ctx)
{
	struct green *green;
	CUcontext owner;

	if (!green_is_used())
		return ctx;
	hook_lock(&greens.lock);
	LL_SEARCH_SCALAR(greens.contexts, green, ctx, ctx);
	owner = green ? green->primary : ctx;
	hook_unlock(&greens.lock);
	return owner;
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
		s->ctx = green->ctx;
		LL_PREPEND(greens.streams, s);
		s = NULL; /* taken by the list */
	}
	hook_unlock(&greens.lock);
	free(s);
}

CUresult green_stream_context(CUstream stream, CUcontext *ret_ctx)
{
	CUresult res = CUDA_ERROR_NOT_FOUND;
	struct green_stream *s;

	if (!green_is_used())
		return res;
	hook_lock(&greens.lock);
	s = green_find_stream(stream);
	if (s) {
		res = s->ctx ? CUDA_SUCCESS : CUDA_ERROR_STREAM_DETACHED;
		*ret_ctx = s->ctx;
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
