/* SPDX-License-Identifier: Apache-2.0 */

/* A stream and events for copies in each context that they are made in. */

#include "hook/pager/pager.h"
#include "hook/pager/pager_private.h"

#include "hook/base/hook_log.h"
#include "hook/base/hook_options.h"
#include "hook/clean/hash.h"
#include "hook/freeze/freeze.h"
#include "hook/gate/device.h"
#include "hook/table/cuda_real.h"
#include "util/clock.h"

#include <stdlib.h>

/*
 * It sleeps for this part of the time that it has waited so far. So it loses little time, for a
 * copy of any size.
 */
#define PAUSE_PART   64
#define PAUSE_NS_MIN 20000u
#define PAUSE_NS_MAX 1000000u

/* A copy under way extends a freeze so often. A driver that answers is in nobody's way. */
#define EXTEND_NS (PAGER_FREEZE_NS / 8)

/* Hung copies are looked at so often. */
#define TICK_NS (10 * CLOCK_NS_PER_MS)

/* Further contexts with hung copies are looked at when the first ones have ended. */
#define HUNG_MAX 16

/* More than a pause ever takes is time in which the machine, or the process, was stopped. */
#define PAUSE_COUNTS_NS (100 * CLOCK_NS_PER_MS)

static void mover_free(struct pager_mover *mover)
{
	for (size_t i = 0; i < PAGER_IN_FLIGHT && mover->events[i]; i++)
		(void)cuda_real.cuEventDestroy_v2(mover->events[i]);
	if (mover->hash_stream)
		(void)cuda_real.cuStreamDestroy_v2(mover->hash_stream);
	if (mover->stream)
		(void)cuda_real.cuStreamDestroy_v2(mover->stream);
	free(mover);
}

static struct pager_mover *mover_new(CUcontext ctx)
{
	struct pager_mover *mover = calloc(1, sizeof(*mover));
	CUresult res;

	if (!mover)
		return NULL;
	mover->ctx = ctx;
	res = cuda_real.cuStreamCreate(&mover->stream, CU_STREAM_NON_BLOCKING);
	if (res == CUDA_SUCCESS)
		res = cuda_real.cuStreamCreate(&mover->hash_stream, CU_STREAM_NON_BLOCKING);
	for (size_t i = 0; res == CUDA_SUCCESS && i < PAGER_IN_FLIGHT; i++)
		res = cuda_real.cuEventCreate(&mover->events[i],
					      CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING);
	if (res == CUDA_SUCCESS)
		return mover;
	mover_free(mover);
	return NULL;
}

/* event NULL: all that was submitted to the stream. */
static CUresult mover_look(CUstream stream, CUevent event)
{
	return event ? cuda_real.cuEventQuery(event) : cuda_real.cuStreamQuery(stream);
}

/* All copies and digests. */
static bool mover_has_ended(const struct pager_mover *mover)
{
	return mover_look(mover->stream, NULL) != CUDA_ERROR_NOT_READY &&
	       mover_look(mover->hash_stream, NULL) != CUDA_ERROR_NOT_READY;
}

static void wait_count(struct pager_wait *wait)
{
	uint64_t now_ns = clock_now_ns(), took_ns = wait->before_ns ? now_ns - wait->before_ns : 0;

	wait->waited_ns += took_ns < PAUSE_COUNTS_NS ? took_ns : PAUSE_COUNTS_NS;
	wait->before_ns = now_ns;
}

/* One look. *ret_pause_ns: when to look again; 0: the wait is over. */
static CUresult mover_poll(struct pager_mover *mover, CUstream stream, CUevent event,
			   struct pager_wait *wait, uint64_t *ret_pause_ns)
{
	uint64_t limit_ns = hook_options()->copy_max_ns, pause_ns;
	CUresult res = mover_look(stream, event);

	*ret_pause_ns = 0;
	if (res != CUDA_ERROR_NOT_READY || mover->is_hung)
		return res;
	wait_count(wait);
	if (wait->waited_ns >= limit_ns) {
		hook_debug("a copy has not ended within %llu ms",
			   (unsigned long long)(limit_ns / CLOCK_NS_PER_MS));
		mover->is_hung = true;
		return res;
	}
	if (mover->is_frozen && wait->waited_ns >= wait->extend_ns) {
		(void)freeze_extend(PAGER_FREEZE_NS);
		wait->extend_ns = wait->waited_ns + EXTEND_NS;
	}
	pause_ns = wait->waited_ns / PAUSE_PART;
	if (pause_ns < PAUSE_NS_MIN)
		pause_ns = PAUSE_NS_MIN;
	*ret_pause_ns = pause_ns < PAUSE_NS_MAX ? pause_ns : PAUSE_NS_MAX;
	return res;
}

static CUresult mover_wait_for(struct pager_mover *mover, CUstream stream)
{
	struct pager_wait wait = {0};
	uint64_t pause_ns;
	CUresult res;

	while ((res = mover_poll(mover, stream, NULL, &wait, &pause_ns)), pause_ns)
		clock_nap(pause_ns);
	return res;
}

CUresult pager_mover_poll(struct pager_mover *mover, size_t slot, struct pager_wait *wait,
			  uint64_t *ret_pause_ns)
{
	CUresult res = mover_poll(mover, mover->stream, mover->events[slot], wait, ret_pause_ns);

	if (!*ret_pause_ns)
		*wait = (struct pager_wait){0};
	return res;
}

bool pager_mover_has_ended(const struct pager_mover *mover, size_t slot)
{
	return mover_look(mover->stream, mover->events[slot]) != CUDA_ERROR_NOT_READY;
}

CUresult pager_mover_settle(struct pager_mover *mover)
{
	return mover_wait_for(mover, mover->stream);
}

CUresult pager_mover_wait_hash(struct pager_mover *mover)
{
	return mover_wait_for(mover, mover->hash_stream);
}

void pager_mover_park(struct pager_mover *mover, struct pager_chunk *chunk,
		      struct hostpool_part *parts)
{
	struct hostpool_part **tail = &mover->parked;

	while (*tail)
		tail = &(*tail)->next;
	*tail = parts;
	if (!chunk)
		return;
	hook_lock(&pager.lock);
	chunk->hung_in = mover;
	hook_unlock(&pager.lock);
}

/* Lock held. mover NULL: of all movers. */
static void chunks_unpark(const struct pager_mover *mover)
{
	for (CUdevice dev = 0; dev < PAGER_DEVICES; dev++) {
		struct pager_range *range = pager.devices[dev].ranges;

		for (; range; range = range->next) {
			for (size_t i = 0; i < range->n_chunks; i++) {
				if (!mover || range->chunks[i].hung_in == mover)
					range->chunks[i].hung_in = NULL;
			}
		}
	}
	pthread_cond_broadcast(&pager.changed);
}

/* The copies have ended, or have died with their context. */
static void mover_unpark(struct pager_mover *mover)
{
	mover->parked = hostpool_put(mover->parked);
	pager_probe_end(&mover->scrap);
	hook_lock(&pager.lock);
	chunks_unpark(mover);
	hook_unlock(&pager.lock);
}

/* The hung copy may have ended since. */
static struct pager_mover *mover_update(struct pager_mover *mover)
{
	if (mover->is_hung && mover_has_ended(mover)) {
		mover->is_hung = false;
		mover_unpark(mover);
	}
	return mover;
}

/* Of the current context; NULL: none yet. */
static struct pager_mover *mover_find(CUcontext *ret_ctx)
{
	struct pager_mover *mover;

	*ret_ctx = NULL;
	if (cuda_real.cuCtxGetCurrent(ret_ctx) != CUDA_SUCCESS || !*ret_ctx)
		return NULL;
	hook_lock(&pager.lock);
	for (mover = pager.movers; mover && mover->ctx != *ret_ctx; mover = mover->next)
		;
	hook_unlock(&pager.lock);
	return mover ? mover_update(mover) : NULL;
}

struct pager_mover *pager_mover(void)
{
	CUcontext ctx;
	struct pager_mover *mover = mover_find(&ctx);

	if (mover || !ctx)
		return mover;
	mover = mover_new(ctx);
	if (!mover)
		return NULL;
	hook_lock(&pager.lock);
	mover->next = pager.movers;
	pager.movers = mover;
	hook_unlock(&pager.lock);
	return mover;
}

bool pager_mover_is_hung(void)
{
	CUcontext ctx;
	const struct pager_mover *mover = mover_find(&ctx);

	return mover && mover->is_hung;
}

/* Contexts that have a hung mover. Returns how many of them there are. */
static size_t hung_contexts(CUcontext contexts[HUNG_MAX])
{
	size_t n = 0;

	hook_lock(&pager.lock);
	for (const struct pager_mover *m = pager.movers; m && n < HUNG_MAX; m = m->next) {
		if (m->is_hung)
			contexts[n++] = m->ctx;
	}
	hook_unlock(&pager.lock);
	return n;
}

/* A context that is ending takes its copies with it: pager_mover_gone(). */
static bool context_is_hung(CUcontext ctx)
{
	struct device_context *held;
	bool is_hung = true, is_pushed;

	if (!device_context_hold_this(ctx, &held))
		return true;
	if (pager_push(ctx, &is_pushed) == CUDA_SUCCESS) {
		is_hung = pager_mover_is_hung();
		pager_pop(is_pushed);
	}
	device_context_drop(held);
	return is_hung;
}

bool pager_mover_is_any_hung(void)
{
	CUcontext contexts[HUNG_MAX];
	size_t n = hung_contexts(contexts);
	bool is_any = false;

	for (size_t i = 0; i < n; i++)
		is_any = context_is_hung(contexts[i]) || is_any;
	return is_any;
}

uint64_t pager_mover_tick(uint64_t now_ns)
{
	return pager_mover_is_any_hung() ? now_ns + TICK_NS : CLOCK_NEVER;
}

void pager_mover_stop(void)
{
	hook_lock(&pager.lock);
	chunks_unpark(NULL);
	hook_unlock(&pager.lock);
}

void pager_mover_gone(CUcontext ctx)
{
	struct pager_mover **link, *mover;

	hook_lock(&pager.lock);
	for (link = &pager.movers; (mover = *link) && mover->ctx != ctx; link = &mover->next)
		;
	if (mover)
		*link = mover->next;
	hook_unlock(&pager.lock);
	if (mover)
		mover_unpark(mover);
	free(mover); /* its stream and events died with the context */
	hostpool_context_gone(ctx);
	hash_context_gone(ctx);
}
