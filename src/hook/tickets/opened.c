/* SPDX-License-Identifier: Apache-2.0 */

/* The opener's side: memory of other processes that is open here, and who uses it. */

#include "hook/tickets/opened_private.h"

#include "hook/base/hook_mutex.h"
#include "hook/memory/charge.h"
#include "hook/pager/pager.h"
#include "hook/table/cuda_real.h"

#include <stdlib.h>
#include <string.h>

struct opened_book opened = {
	.lock = HOOK_MUTEX(HOOK_LOCK_OPENED),
	.changed = PTHREAD_COND_INITIALIZER,
};

static CUdeviceptr opened_ptr(const struct opened *o)
{
	return o->addr + o->memory.offset;
}

/* Lock held. */
static void opened_link(struct opened *o)
{
	o->next = opened.first;
	opened.first = o;
	(void)__atomic_add_fetch(&opened.n, 1, __ATOMIC_RELEASE);
}

/* Lock held. */
static void opened_unlink(struct opened *o)
{
	struct opened **at = &opened.first;

	while (*at != o)
		at = &(*at)->next;
	*at = o->next;
	(void)__atomic_sub_fetch(&opened.n, 1, __ATOMIC_RELEASE);
}

bool opened_is_of(const struct opened *o, const uint8_t *ticket)
{
	return memcmp(o->ticket, ticket, TICKET_LEN) == 0;
}

/*
 * Lock held, and given back meanwhile: another thread may be mapping or unmapping it. So it may be
 * in another context, where the scheduler hears of the process's last use.
 */
static struct opened *opened_of(const uint8_t *ticket, CUcontext ctx)
{
	struct opened *o = opened.first, *found = NULL;

	while (o) {
		if (!opened_is_of(o, ticket)) {
			o = o->next;
		} else if (o->is_busy || (o->is_closing && o->ctx == ctx)) {
			hook_wait(&opened.changed, &opened.lock);
			o = opened.first;
			found = NULL;
		} else {
			found = o->ctx == ctx ? o : found;
			o = o->next;
		}
	}
	return found;
}

/* One more use. NULL: it is not open in ctx, and fresh is in the book now, busy. */
static struct opened *opened_use(struct opened *fresh)
{
	struct opened *o;

	hook_lock(&opened.lock);
	o = opened_of(fresh->ticket, fresh->ctx);
	if (o) {
		o->n++;
	} else {
		fresh->round = opened.n_rounds;
		opened_link(fresh);
	}
	hook_unlock(&opened.lock);
	return o;
}

/* Lock held. Another one of that ticket is in the book. */
static bool opened_has_other(const struct opened *o)
{
	for (const struct opened *other = opened.first; other; other = other->next) {
		if (other != o && opened_is_of(other, o->ticket))
			return true;
	}
	return false;
}

/*
 * It is unmapped, and busy for the caller. The last one of its ticket stays in the book until the
 * scheduler knows: a thread that opens the ticket anew comes after that.
 */
static void opened_end(struct opened *o)
{
	bool is_last;

	hook_lock(&opened.lock);
	is_last = !opened_has_other(o);
	if (!is_last)
		opened_unlink(o);
	hook_unlock(&opened.lock);
	if (is_last) {
		opened_tell(o->ticket, TICKET_CLOSE);
		hook_lock(&opened.lock);
		opened_unlink(o);
		hook_unlock(&opened.lock);
	}
	hook_lock(&opened.lock);
	pthread_cond_broadcast(&opened.changed);
	hook_unlock(&opened.lock);
	free(o);
}

bool opened_done(struct opened *o, bool is_gone)
{
	bool is_dead;

	hook_lock(&opened.lock);
	is_dead = o->is_dead;
	if (!is_gone && !is_dead) {
		o->is_busy = false;
		o->is_open = true;
	}
	pthread_cond_broadcast(&opened.changed);
	hook_unlock(&opened.lock);
	if (is_gone || is_dead) {
		opened_unmap(o);
		opened_end(o);
	}
	return !is_dead;
}

/* Peers were opened while it was being mapped; it is to be opened to them, too. */
static bool opened_is_behind(struct opened *o)
{
	bool is_behind;

	hook_lock(&opened.lock);
	is_behind = o->round != opened.n_rounds;
	o->round = opened.n_rounds;
	hook_unlock(&opened.lock);
	return is_behind;
}

void opened_allow_all_peers(struct opened *o)
{
	while (opened_is_behind(o))
		(void)opened_allow_all(o);
}

CUresult opened_open(const CUipcMemHandle *handle, CUdeviceptr *ret_ptr)
{
	struct opened *fresh, *o;
	CUdeviceptr ptr;
	CUcontext ctx;
	CUdevice dev;
	CUresult res = charge_here(&ctx, &dev);

	if (res != CUDA_SUCCESS)
		return res;
	if (tickets_is_own(tickets_of(handle)))
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!cuda_real.cuMemImportFromShareableHandle || !cuda_real.cuMemAddressReserve ||
	    !cuda_real.cuMemMap || !cuda_real.cuMemSetAccess)
		return CUDA_ERROR_NOT_SUPPORTED;
	fresh = calloc(1, sizeof(*fresh));
	if (!fresh)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memcpy(fresh->ticket, tickets_of(handle), TICKET_LEN);
	fresh->ctx = ctx;
	fresh->dev = dev;
	fresh->n = 1;
	fresh->is_busy = true;
	o = opened_use(fresh);
	if (o) {
		free(fresh);
		*ret_ptr = opened_ptr(o);
		return CUDA_SUCCESS;
	}
	res = opened_map(fresh);
	if (res == CUDA_SUCCESS)
		opened_allow_all_peers(fresh);
	ptr = res == CUDA_SUCCESS ? opened_ptr(fresh) : 0;
	if (!opened_done(fresh, res != CUDA_SUCCESS))
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	if (res == CUDA_SUCCESS)
		*ret_ptr = ptr;
	return res;
}

/* Lock held. */
static struct opened *opened_at(CUdeviceptr ptr)
{
	struct opened *o = opened.first;

	while (o && (!o->is_open || ptr < opened_ptr(o) || ptr - opened_ptr(o) >= o->memory.bytes))
		o = o->next;
	return o;
}

/* The one that the caller closes. */
static void opened_claim_closing(struct opened *o)
{
	hook_lock(&opened.lock);
	while (o->is_busy)
		hook_wait(&opened.changed, &opened.lock);
	o->is_busy = true;
	o->is_closing = false;
	hook_unlock(&opened.lock);
}

bool opened_close(CUdeviceptr ptr, CUresult *ret_res)
{
	bool is_last = false, is_settled;
	struct opened *o;

	if (!__atomic_load_n(&opened.n, __ATOMIC_ACQUIRE))
		return false;
	hook_lock(&opened.lock);
	while ((o = opened_at(ptr)) && (o->is_busy || o->is_closing))
		hook_wait(&opened.changed, &opened.lock);
	if (o && opened_ptr(o) != ptr)
		o = NULL;
	if (o && --o->n == 0)
		is_last = o->is_closing = true;
	hook_unlock(&opened.lock);
	if (!o)
		return false;
	*ret_res = CUDA_SUCCESS;
	if (!is_last)
		return true;
	/*
	 * Work may still use the memory, and where a capture is open nothing can wait for it. The
	 * agent may have to map it anew for that work, so it is not busy yet.
	 */
	is_settled = pager_settle_context(o->ctx, ret_res);
	opened_claim_closing(o);
	if (!is_settled) {
		o->n = 1;
		*ret_res = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	}
	if (!opened_done(o, is_settled))
		*ret_res = CUDA_SUCCESS; /* its context has ended, and it is closed with it */
	return true;
}

/* One of dev's that was not opened to the peers in this round; busy then. */
static struct opened *opened_claim(CUdevice dev, uint64_t round)
{
	struct opened *o;

	hook_lock(&opened.lock);
	for (o = opened.first; o;) {
		if (o->dev != dev || !o->is_open || o->round >= round) {
			o = o->next;
		} else if (o->is_busy) {
			hook_wait(&opened.changed, &opened.lock);
			o = opened.first;
		} else {
			o->is_busy = true;
			o->round = round;
			break;
		}
	}
	hook_unlock(&opened.lock);
	return o;
}

/* One that is being mapped looks at the number of rounds when it is done. */
void opened_peers_changed(CUdevice dev)
{
	uint64_t round;
	struct opened *o;

	hook_lock(&opened.lock);
	round = ++opened.n_rounds;
	hook_unlock(&opened.lock);
	while ((o = opened_claim(dev, round))) {
		(void)opened_allow_all(o);
		(void)opened_done(o, false);
	}
}

bool opened_find(CUdeviceptr ptr, struct opened_memory *ret)
{
	const struct opened *o;

	if (!__atomic_load_n(&opened.n, __ATOMIC_ACQUIRE))
		return false;
	hook_lock(&opened.lock);
	o = opened_at(ptr);
	if (o)
		*ret = (struct opened_memory){
			.base = opened_ptr(o),
			.size = o->memory.bytes,
			.ctx = o->ctx,
			.dev = o->dev,
		};
	hook_unlock(&opened.lock);
	return o != NULL;
}

/* One of ctx, busy then. One that is another thread's ends when that thread is done. */
static struct opened *opened_claim_of(CUcontext ctx)
{
	struct opened *o, *found = NULL;

	hook_lock(&opened.lock);
	for (o = opened.first; o; o = o->next) {
		if (o->ctx != ctx)
			continue;
		o->is_dead = true;
		if (!o->is_busy && !o->is_closing)
			found = o;
	}
	if (found) {
		found->is_busy = true;
		found->is_open = false;
	}
	hook_unlock(&opened.lock);
	return found;
}

/* Its work has ended with it. */
void opened_context_gone(CUcontext ctx)
{
	struct opened *o;

	if (!__atomic_load_n(&opened.n, __ATOMIC_ACQUIRE))
		return;
	while ((o = opened_claim_of(ctx)))
		(void)opened_done(o, true);
}

void opened_after_fork_child(void)
{
	hook_mutex_renew(&opened.lock, HOOK_LOCK_OPENED);
	(void)pthread_cond_init(&opened.changed, NULL);
	opened.first = NULL;
	opened.n = 0;
}
