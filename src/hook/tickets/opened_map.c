/* SPDX-License-Identifier: Apache-2.0 */

/* Maps and unmaps opened memory, for entries that are busy; mostly without the lock. */

#include "hook/tickets/opened_private.h"

#include "hook/base/hook_log.h"
#include "hook/base/hook_mutex.h"
#include "hook/gate/gate.h"
#include "hook/pager/pager_share.h"
#include "hook/table/cuda_real.h"
#include "hook/tickets/ticket_link.h"
#include "util/clock.h"

#include <errno.h>
#include <string.h>

/* A scheduler that has just started may not have the ticket yet. */
#define STARTING_NS     (6 * CLOCK_NS_PER_SEC)
#define STARTING_NAP_NS (20 * CLOCK_NS_PER_MS)

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

void opened_unmap(struct opened *o)
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
CUresult opened_allow_all(const struct opened *o)
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
CUresult opened_map(struct opened *o)
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
