/* SPDX-License-Identifier: Apache-2.0 */

/* The opener's side: memory of other processes, mapped here. */

#include "hook/tickets/tickets.h"

#include "hook/base/hook_log.h"
#include "hook/base/hook_mutex.h"
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

struct opened {
	struct opened *next;
	uint8_t ticket[TICKET_LEN];
	CUcontext ctx;
	CUdevice dev;
	bool is_busy;   /* a thread maps, opens to a peer, or unmaps it */
	bool is_open;   /* mapped, and has uses */
	bool is_dead;   /* its context has ended while it was busy */
	unsigned int n; /* opens without their closes */
	struct ticket_memory memory;
	CUdeviceptr addr; /* of the first chunk; 0: none is reserved */
	size_t n_mapped;  /* chunks */
	uint64_t round;   /* of opened_peers_changed() */
};

static struct {
	struct hook_mutex lock;
	pthread_cond_t changed; /* one is not busy any more */
	struct opened *first;
	unsigned int n;    /* atomic: most programs have none, and questions look here alone */
	uint64_t n_rounds; /* of opened_peers_changed() */
} opened = {
	.lock = HOOK_MUTEX(HOOK_LOCK_OPENED),
	.changed = PTHREAD_COND_INITIALIZER,
};

/* ---- mappings, without the lock --------------------------------------------------- */

static size_t opened_chunk_size(const struct opened *o, size_t i)
{
	uint64_t rest = o->memory.size - i * o->memory.chunk_size;

	return rest < o->memory.chunk_size ? rest : o->memory.chunk_size;
}

static void opened_unmap(struct opened *o)
{
	for (size_t i = 0; i < o->n_mapped; i++)
		(void)cuda_real.cuMemUnmap(o->addr + i * o->memory.chunk_size,
					   opened_chunk_size(o, i));
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
	o->n_mapped++;
	return opened_allow(o, o->n_mapped - 1);
}

/* The chunks that have come. The memory of this process must not move meanwhile. */
static CUresult opened_map_some(struct opened *o, const struct ticket_packet *packet,
				const struct pass_many *pass)
{
	CUresult res = CUDA_SUCCESS;

	gate_enter();
	if (!o->addr) {
		o->memory = packet->memory;
		res = cuda_real.cuMemAddressReserve(&o->addr, o->memory.size, 0, 0, 0);
	}
	for (size_t i = 0; i < pass->n && res == CUDA_SUCCESS; i++)
		res = opened_map_chunk(o, pass->fds[i]);
	gate_leave();
	return res;
}

static CUresult opened_ask_some(struct opened *o)
{
	uint64_t end_ns = clock_now_ns() + STARTING_NS;
	struct ticket_packet packet, answer;
	struct pass_many pass;
	CUresult res;
	int r;

	ticket_packet_init(&packet, TICKET_OPEN, o->ticket);
	packet.first = (uint32_t)o->n_mapped;
	r = ticket_link_ask(&packet, NULL, &answer, &pass, NULL);
	while (!r && answer.type == TICKET_NONE && answer.reason == TICKET_STARTING &&
	       clock_now_ns() < end_ns) {
		clock_nap(STARTING_NAP_NS);
		r = ticket_link_ask(&packet, NULL, &answer, &pass, NULL);
	}
	if (r == -EBADMSG) {
		hook_warn_once("this program has too few file descriptors to open GPU memory of "
			       "another one (cuIpcOpenMemHandle); raise the limit (ulimit -n)");
		return CUDA_ERROR_OPERATING_SYSTEM;
	}
	if (r) {
		hook_warn_once("this program opens GPU memory of another one "
			       "(cuIpcOpenMemHandle), which needs nvshare-scheduler");
		return CUDA_ERROR_NOT_SUPPORTED;
	}
	if (answer.type != TICKET_MEMORY)
		return CUDA_ERROR_INVALID_VALUE;
	/* An owner cannot change its ticket, so this is another one of that number. */
	if (answer.first != packet.first ||
	    (o->addr && memcmp(&answer.memory, &o->memory, sizeof(o->memory)) != 0))
		res = CUDA_ERROR_INVALID_VALUE;
	else
		res = opened_map_some(o, &answer, &pass);
	for (size_t i = 0; i < pass.n; i++)
		(void)ticket_drop(pass.fds[i]);
	return res;
}

static CUresult opened_map(struct opened *o)
{
	CUresult res;

	do
		res = opened_ask_some(o);
	while (res == CUDA_SUCCESS && o->n_mapped < o->memory.n_chunks);
	if (res != CUDA_SUCCESS)
		opened_unmap(o);
	return res;
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

/* Lock held, and given back meanwhile: another thread may be mapping or unmapping it. */
static struct opened *opened_of(const uint8_t *ticket, CUcontext ctx)
{
	struct opened *o = opened.first;

	while (o) {
		if (o->ctx != ctx || memcmp(o->ticket, ticket, TICKET_LEN) != 0) {
			o = o->next;
		} else if (o->is_busy) {
			hook_wait(&opened.changed, &opened.lock);
			o = opened.first;
		} else {
			return o;
		}
	}
	return NULL;
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

/* The work that a thread was busy with is done. false: its context has ended meanwhile, and so has
 * it. */
static bool opened_done(struct opened *o, bool is_gone)
{
	bool is_dead;

	hook_lock(&opened.lock);
	is_dead = o->is_dead;
	o->is_busy = false;
	o->is_open = !is_gone;
	if (is_gone || is_dead)
		opened_unlink(o);
	pthread_cond_broadcast(&opened.changed);
	hook_unlock(&opened.lock);
	if (is_dead)
		opened_unmap(o);
	if (is_gone || is_dead)
		free(o);
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

static void opened_allow_all(const struct opened *o)
{
	for (size_t i = 0; i < o->n_mapped; i++)
		(void)opened_allow(o, i);
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
	while (res == CUDA_SUCCESS && opened_is_behind(fresh))
		opened_allow_all(fresh);
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

bool opened_close(CUdeviceptr ptr, CUresult *ret_res)
{
	bool is_last = false;
	struct opened *o;

	if (!__atomic_load_n(&opened.n, __ATOMIC_ACQUIRE))
		return false;
	hook_lock(&opened.lock);
	while ((o = opened_at(ptr)) && o->is_busy)
		hook_wait(&opened.changed, &opened.lock);
	if (o && opened_ptr(o) != ptr)
		o = NULL;
	if (o && --o->n == 0) {
		is_last = o->is_busy = true;
		o->is_open = false;
	}
	hook_unlock(&opened.lock);
	if (!o)
		return false;
	*ret_res = CUDA_SUCCESS;
	if (!is_last)
		return true;
	/* Work may still use the memory, and where a capture is open nothing can wait for it. */
	if (!pager_settle_context(o->ctx, ret_res)) {
		o->n = 1;
		*ret_res = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	} else {
		opened_unmap(o);
	}
	if (!opened_done(o, o->n == 0))
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
		opened_allow_all(o);
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

/* Its work has ended with it. */
void opened_context_gone(CUcontext ctx)
{
	struct opened *list = NULL, *o, **at, *next;

	if (!__atomic_load_n(&opened.n, __ATOMIC_ACQUIRE))
		return;
	hook_lock(&opened.lock);
	for (at = &opened.first; (o = *at);) {
		if (o->ctx != ctx || o->is_busy) {
			o->is_dead |= o->ctx == ctx;
			at = &o->next;
			continue;
		}
		*at = o->next;
		(void)__atomic_sub_fetch(&opened.n, 1, __ATOMIC_RELEASE);
		o->next = list;
		list = o;
	}
	hook_unlock(&opened.lock);
	for (; list; list = next) {
		next = list->next;
		opened_unmap(list);
		free(list);
	}
}

void opened_after_fork_child(void)
{
	hook_mutex_renew(&opened.lock, HOOK_LOCK_OPENED);
	(void)pthread_cond_init(&opened.changed, NULL);
	opened.first = NULL;
	opened.n = 0;
}
