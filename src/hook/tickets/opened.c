/* SPDX-License-Identifier: Apache-2.0 */

/* The opener's side: memory of other processes, mapped here. */

#include "hook/tickets/opened_private.h"

#include "hook/base/hook_log.h"
#include "hook/base/hook_mutex.h"
#include "hook/gate/device.h"
#include "hook/gate/gate.h"
#include "hook/memory/charge.h"
#include "hook/pager/pager.h"
#include "hook/pager/pager_share.h"
#include "hook/table/cuda_real.h"
#include "hook/tickets/ticket_link.h"
#include "util/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A scheduler that has just started may not have the ticket yet. */
#define STARTING_NS     (6 * CLOCK_NS_PER_SEC)
#define STARTING_NAP_NS (20 * CLOCK_NS_PER_MS)

struct opened_book opened = {
	.lock = HOOK_MUTEX(HOOK_LOCK_OPENED),
	.changed = PTHREAD_COND_INITIALIZER,
};

/* ---- mappings, without the lock --------------------------------------------------- */

static size_t opened_chunk_size(const struct opened *o, size_t i)
{
	uint64_t rest = o->memory.size - i * o->memory.chunk_size;

	return rest < o->memory.chunk_size ? rest : o->memory.chunk_size;
}

bool opened_unmap_chunks(struct opened *o)
{
	while (o->n_mapped) {
		size_t i = o->n_mapped - 1;

		if (cuda_real.cuMemUnmap(o->addr + i * o->memory.chunk_size,
					 opened_chunk_size(o, i)) != CUDA_SUCCESS)
			return false;
		o->n_mapped--;
	}
	return true;
}

static void opened_unmap(struct opened *o)
{
	bool is_unmapped = opened_unmap_chunks(o);

	if (!is_unmapped)
		hook_debug("opened memory could not be unmapped");
	if (o->addr)
		(void)cuda_real.cuMemAddressFree(o->addr, o->memory.size);
	o->n_mapped = 0;
	o->addr = 0;
}

/* Its device reaches the chunk, and so do that device's peers. */
static CUresult opened_allow(const struct opened *o, size_t i)
{
	CUmemAccessDesc descs[BUDGET_DEVICES];

	return cuda_real.cuMemSetAccess(o->addr + i * o->memory.chunk_size, opened_chunk_size(o, i),
					descs, pager_access_list(o->dev, descs));
}

/* The first error. Other chunks get their access all the same. */
static CUresult opened_allow_all(const struct opened *o)
{
	CUresult res = CUDA_SUCCESS;

	for (size_t i = 0; i < o->n_mapped; i++) {
		CUresult one = opened_allow(o, i);

		res = res == CUDA_SUCCESS ? one : res;
	}
	return res;
}

static CUresult opened_map_chunk(struct opened *o, int fd)
{
	CUdeviceptr addr = o->addr + o->n_mapped * o->memory.chunk_size;
	size_t size = opened_chunk_size(o, o->n_mapped);
	CUmemGenericAllocationHandle handle;
	CUresult res;

	/* A descriptor, as the driver wants it: in place of a pointer. */
	res = cuda_real.cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd,
						       CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
	if (res != CUDA_SUCCESS)
		return res;
	res = cuda_real.cuMemMap(addr, size, 0, handle, 0);
	(void)cuda_real.cuMemRelease(handle); /* the mapping keeps the memory */
	if (res != CUDA_SUCCESS)
		return res;
	o->n_mapped++; /* without access, too: opened_ask_all() sets that again */
	return opened_allow(o, o->n_mapped - 1);
}

/* The chunks that have come. The memory of this process must not move meanwhile. */
static CUresult opened_map_some(struct opened *o, const struct ticket_packet *packet,
				const struct pass_many *pass)
{
	CUresult res = CUDA_SUCCESS;

	if (!o->addr) {
		o->memory = packet->memory;
		res = cuda_real.cuMemAddressReserve(&o->addr, o->memory.size, 0, 0, 0);
	}
	for (size_t i = 0; i < pass->n && res == CUDA_SUCCESS; i++)
		res = opened_map_chunk(o, pass->fds[i]);
	return res;
}

static enum opened_wait opened_wait_of(const struct ticket_packet *answer)
{
	if (answer->type != TICKET_NONE)
		return OPENED_WAIT_NOT;
	switch ((enum ticket_reason)answer->reason) {
	case TICKET_STARTING:
	case TICKET_FULL:
		return OPENED_WAIT_STARTING;
	case TICKET_AWAY:
		return OPENED_WAIT_AWAY;
	case TICKET_UNKNOWN:
		return OPENED_WAIT_UNKNOWN;
	case TICKET_REASON_NONE_:
	case TICKET_HELD:
	case TICKET_STAYS:
	case TICKET_REASON_COUNT_:
		break; /* no answers to OPEN */
	}
	return OPENED_WAIT_NOT;
}

/* generation: of the pair on which the answer came. */
static void opened_note(struct opened *o, enum opened_wait wait, uint32_t generation)
{
	if (wait == OPENED_WAIT_NOT || wait == OPENED_WAIT_AWAY)
		o->heard_of = generation;
	o->is_unheard = o->heard_of != generation;
	if (wait != OPENED_WAIT_UNKNOWN)
		o->unknown_ns = 0;
	else if (!o->unknown_ns)
		o->unknown_ns = clock_now_ns();
}

/* r: an error of ticket_link_ask(). */
static CUresult opened_link_error(int r)
{
	if (r == -EBADMSG) {
		hook_warn_once("this program has too few file descriptors to open GPU memory of "
			       "another one (cuIpcOpenMemHandle); raise the limit (ulimit -n)");
		return CUDA_ERROR_OPERATING_SYSTEM;
	}
	hook_warn_once("this program opens GPU memory of another one (cuIpcOpenMemHandle), which "
		       "needs nvshare-scheduler");
	return CUDA_ERROR_NOT_SUPPORTED;
}

static CUresult opened_ask_some(struct opened *o, enum opened_wait *ret_wait)
{
	struct ticket_packet packet, answer;
	uint32_t generation = 0;
	struct pass_many pass;
	CUresult res;
	int r;

	*ret_wait = OPENED_WAIT_NOT;
	ticket_packet_init(&packet, TICKET_OPEN, o->ticket);
	packet.first = (uint32_t)o->n_mapped;
	packet.flags = tickets_have_words() ? TICKET_OBEYS : 0;
	r = ticket_link_ask(&packet, NULL, &answer, &pass, &generation);
	if (r)
		return opened_link_error(r);
	*ret_wait = opened_wait_of(&answer);
	/* An owner cannot change its ticket, so this is another one of that number. */
	if (answer.type == TICKET_MEMORY &&
	    (answer.first != packet.first ||
	     (o->addr && memcmp(&answer.memory, &o->memory, sizeof(o->memory)) != 0)))
		*ret_wait = OPENED_WAIT_UNKNOWN;
	opened_note(o, *ret_wait, generation);
	if (answer.type == TICKET_MEMORY && *ret_wait == OPENED_WAIT_NOT)
		res = opened_map_some(o, &answer, &pass);
	else
		res = CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < pass.n; i++)
		(void)ticket_drop(pass.fds[i]);
	return res;
}

static bool opened_is_whole(const struct opened *o)
{
	return o->addr && o->n_mapped == o->memory.n_chunks;
}

/*
 * Chunks that are mapped already are left from a try that failed, which may have mapped the last
 * one without access, or from an unmap that failed.
 */
CUresult opened_ask_all(struct opened *o, enum opened_wait *ret_wait)
{
	CUresult res = opened_allow_all(o);

	*ret_wait = OPENED_WAIT_NOT;
	while (res == CUDA_SUCCESS && !opened_is_whole(o))
		res = opened_ask_some(o, ret_wait);
	return res;
}

/* Lock held. The agent unmaps another one of its ticket, and tells the scheduler so. */
static bool opened_is_being_parked(const struct opened *o)
{
	for (const struct opened *other = opened.first; other; other = other->next) {
		if (other != o && other->is_busy && other->is_parked &&
		    opened_is_of(other, o->ticket))
			return true;
	}
	return false;
}

/* The agent knows from now on that the thread may ask for the memory. */
static void opened_begin_inside(struct opened *o)
{
	hook_lock(&opened.lock);
	while (opened_is_being_parked(o))
		hook_wait(&opened.changed, &opened.lock);
	o->is_inside = true;
	hook_unlock(&opened.lock);
}

static void opened_end_inside(struct opened *o)
{
	hook_lock(&opened.lock);
	o->is_inside = false;
	hook_unlock(&opened.lock);
}

/*
 * The descriptors are asked for and used within one pass of the gate. So a process that is stopped
 * has none that would keep the memory of an owner on the card.
 */
static CUresult opened_map(struct opened *o)
{
	uint64_t end_ns = clock_now_ns() + STARTING_NS;
	enum opened_wait wait;
	CUresult res;

	for (;;) {
		gate_enter();
		opened_begin_inside(o);
		res = opened_ask_all(o, &wait);
		opened_end_inside(o);
		gate_leave();
		if (wait == OPENED_WAIT_NOT || wait == OPENED_WAIT_UNKNOWN ||
		    (wait == OPENED_WAIT_STARTING && clock_now_ns() >= end_ns))
			break;
		clock_nap(STARTING_NAP_NS);
	}
	if (res != CUDA_SUCCESS)
		opened_unmap(o);
	return res;
}

void opened_tell(const uint8_t *id, enum ticket_type type)
{
	struct ticket_packet packet, answer;
	struct pass_many pass;

	if (!tickets_have_words() || !ticket_link_is_up())
		return;
	ticket_packet_init(&packet, type, id);
	(void)ticket_link_ask(&packet, NULL, &answer, &pass, NULL);
}

/* ---- the book ------------------------------------------------------------------------ */

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
