/* SPDX-License-Identifier: Apache-2.0 */

/* The book of open stream captures, and bars that keep new ones from beginning. */

#include "hook/base/hook_mutex.h"
#include "hook/gate/gate.h"
#include "hook/gate/gate_private.h"
#include "hook/gate/green.h"
#include "hook/table/cuda_real.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <utlist.h>

struct gate_capture {
	uint64_t id;
	const void *stream;
	const void *ctx;
	const struct gate_slot *owner; /* the thread that began it; NULL: that thread has ended */
	struct gate_capture *next;     /* captures.open */
};

static struct {
	struct hook_mutex lock;
	struct gate_capture *open; /* lock */
	uint64_t last_id;          /* lock */
	uint32_t n_open;           /* lock to write; atomic */
	uint32_t n_bars;           /* atomic, a futex: threads that keep captures from beginning */
} captures = {.lock = HOOK_MUTEX(HOOK_LOCK_CAPTURES)};

static bool gate_has_capture_of(const struct gate_slot *slot)
{
	struct gate_capture *capture;
	bool has = false;

	hook_lock(&captures.lock);
	LL_FOREACH (captures.open, capture)
		has = has || capture->owner == slot;
	hook_unlock(&captures.lock);

	return has;
}

/* Captures on other streams outlive the thread: another one ends them. */
void gate_disown_captures(const struct gate_slot *slot)
{
	struct gate_capture *capture;

	hook_lock(&captures.lock);
	LL_FOREACH (captures.open, capture)
		capture->owner = capture->owner == slot ? NULL : capture->owner;
	hook_unlock(&captures.lock);
}

/*
 * A thread that begins a capture says so, then looks for bars. A thread that bars counts itself,
 * then looks for beginnings. At least one of them sees the other. The bar is taken back then, so
 * neither starves.
 */
static void gate_wait_for_bars(struct gate_slot *slot)
{
	int saved_errno = errno;
	uint32_t n;

	while (__atomic_load_n(&captures.n_bars, __ATOMIC_SEQ_CST) > 0) {
		__atomic_store_n(&slot->inside, gate_self.depth > 0 ? GATE_INSIDE : GATE_OUTSIDE,
				 __ATOMIC_RELEASE);
		while ((n = __atomic_load_n(&captures.n_bars, __ATOMIC_SEQ_CST)) > 0)
			(void)gate_futex_at(&captures.n_bars, FUTEX_WAIT, n);
		__atomic_store_n(&slot->inside, GATE_BEGINNING_CAPTURE, __ATOMIC_SEQ_CST);
	}
	errno = saved_errno;
}

bool gate_bar_captures(void)
{
	__atomic_add_fetch(&captures.n_bars, 1, __ATOMIC_SEQ_CST);
	if (!gate_capture_open())
		return true;
	gate_allow_captures();
	return false;
}

void gate_allow_captures(void)
{
	int saved_errno = errno;

	__atomic_sub_fetch(&captures.n_bars, 1, __ATOMIC_SEQ_CST);
	(void)gate_futex_at(&captures.n_bars, FUTEX_WAKE, INT_MAX);
	errno = saved_errno;
}

void gate_enter_capture(void)
{
	struct gate_slot *slot = gate_self.slot;
	enum gate_state state;

	if (!slot)
		slot = gate_claim_slot();

	__atomic_store_n(&slot->n_entered, slot->n_entered + 1, __ATOMIC_RELAXED);
	__atomic_store_n(&slot->inside, GATE_BEGINNING_CAPTURE, __ATOMIC_SEQ_CST);
	gate_wait_for_bars(slot);
	if (gate_self.depth++ > 0)
		return;

	for (;;) {
		state = GATE_STATE(__atomic_load_n(&gate.word, __ATOMIC_SEQ_CST));
		if (!gate_is_barred(state, GATE_BEGINNING_CAPTURE))
			return;
		if (state == GATE_NO_CAPTURES && gate_has_capture_of(slot))
			return;
		gate_wait(slot, GATE_BEGINNING_CAPTURE);
		if (__atomic_load_n(&captures.n_bars, __ATOMIC_SEQ_CST) == 0)
			return;
		gate_self.depth--;
		gate_wait_for_bars(slot);
		gate_self.depth++;
	}
}

void gate_leave_capture(const void *stream, const void *ctx, bool began)
{
	struct gate_slot *slot = gate_self.slot;
	struct gate_capture *capture;
	int saved_errno = errno;

	/* Without memory the capture is not counted, and a drain may spoil it. */
	capture = began ? malloc(sizeof(*capture)) : NULL;
	if (capture) {
		*capture = (struct gate_capture){.stream = stream, .ctx = ctx, .owner = slot};
		hook_lock(&captures.lock);
		capture->id = ++captures.last_id;
		LL_PREPEND(captures.open, capture);
		__atomic_add_fetch(&captures.n_open, 1, __ATOMIC_SEQ_CST);
		hook_unlock(&captures.lock);
	}

	/* The capture must be counted first: gate_capture_open() then sees the one or the other. */
	__atomic_store_n(&slot->inside, --gate_self.depth > 0 ? GATE_INSIDE : GATE_OUTSIDE,
			 __ATOMIC_RELEASE);
	errno = saved_errno;
}

uint64_t gate_find_capture(const void *stream)
{
	struct gate_capture *capture;
	uint64_t id = 0;

	/* Most programs capture nothing, and destroy many streams. */
	if (__atomic_load_n(&captures.n_open, __ATOMIC_SEQ_CST) == 0)
		return 0;

	hook_lock(&captures.lock);
	LL_SEARCH_SCALAR(captures.open, capture, stream, stream);
	if (capture)
		id = capture->id;
	hook_unlock(&captures.lock);

	return id;
}

static void gate_drop_captures(uint64_t id, const void *ctx)
{
	struct gate_capture *capture, *next, *gone = NULL;

	hook_lock(&captures.lock);
	LL_FOREACH_SAFE (captures.open, capture, next) {
		if (id ? capture->id != id : capture->ctx != ctx)
			continue;
		LL_DELETE(captures.open, capture);
		LL_PREPEND(gone, capture);
		__atomic_sub_fetch(&captures.n_open, 1, __ATOMIC_SEQ_CST);
	}
	hook_unlock(&captures.lock);

	LL_FOREACH_SAFE (gone, capture, next)
		free(capture);
}

void gate_end_capture(uint64_t capture)
{
	if (capture)
		gate_drop_captures(capture, NULL);
}

void gate_context_gone(const void *ctx)
{
	if (ctx && __atomic_load_n(&captures.n_open, __ATOMIC_SEQ_CST) > 0)
		gate_drop_captures(0, ctx);
}

bool gate_thread_captures(void)
{
	return gate_self.slot && gate_has_capture_of(gate_self.slot);
}

bool gate_capture_open(void)
{
	/* Slots come first, since a capture is counted before its slot says that it has begun. */
	gate_for_each_slot (slot) {
		if (__atomic_load_n(&slot->inside, __ATOMIC_SEQ_CST) == GATE_BEGINNING_CAPTURE)
			return true;
	}

	return __atomic_load_n(&captures.n_open, __ATOMIC_SEQ_CST) > 0;
}

bool gate_stream_captures(CUstream stream)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	struct green_place place;

	if (!gate_capture_open() || !cuda_real.cuStreamIsCapturing ||
	    green_stream_place(stream, &place) == CUDA_ERROR_STREAM_DETACHED)
		return false;
	return cuda_real.cuStreamIsCapturing(stream, &status) != CUDA_SUCCESS ||
	       status != CU_STREAM_CAPTURE_STATUS_NONE;
}

void gate_captures_after_fork_child(void)
{
	hook_mutex_renew(&captures.lock, HOOK_LOCK_CAPTURES);
	captures.open = NULL;
	captures.n_open = 0;
	captures.n_bars = 0;
}
