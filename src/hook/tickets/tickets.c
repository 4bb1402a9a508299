/* SPDX-License-Identifier: Apache-2.0 */

/* The owner's side: which allocations have tickets. */

#include "hook/tickets/tickets_private.h"

#include "hook/base/hook_log.h"
#include "hook/base/hook_mutex.h"
#include "hook/base/random.h"
#include "hook/gate/bell.h"
#include "hook/gate/gate.h"
#include "hook/pager/pager_share.h"
#include "hook/tickets/ticket_link.h"
#include "util/clock.h"

#include <stdlib.h>
#include <string.h>

/* A handle has 64 bytes: these, the ticket, and zeros. No handle of the driver's begins so. */
#define HANDLE_MAGIC     "nvshare ticket 1"
#define HANDLE_MAGIC_LEN 16

/* While the scheduler has not got all tickets, tickets_tick() tries so often at most. */
#define RETRY_NS CLOCK_NS_PER_SEC

struct tickets tickets = {
	.lock = HOOK_MUTEX(HOOK_LOCK_TICKETS),
	.changed = PTHREAD_COND_INITIALIZER,
};

bool tickets_have_words(void)
{
	return __atomic_load_n(&tickets.has_words, __ATOMIC_ACQUIRE);
}

/* ---- handles ----------------------------------------------------------------------- */

bool tickets_is_handle(const CUipcMemHandle *handle)
{
	return memcmp(handle->reserved, HANDLE_MAGIC, HANDLE_MAGIC_LEN) == 0;
}

const uint8_t *tickets_of(const CUipcMemHandle *handle)
{
	return (const uint8_t *)handle->reserved + HANDLE_MAGIC_LEN;
}

static void ticket_write_handle(const uint8_t id[TICKET_LEN], CUipcMemHandle *ret)
{
	memset(ret, 0, sizeof(*ret));
	memcpy(ret->reserved, HANDLE_MAGIC, HANDLE_MAGIC_LEN);
	memcpy(ret->reserved + HANDLE_MAGIC_LEN, id, TICKET_LEN);
}

bool ticket_is_left(const struct ticket *ticket)
{
	return ticket->generation == ticket_link_generation() && ticket_link_is_up();
}

/* ---- to the scheduler, without the lock ----------------------------------------------- */

static enum leave_result leave_send(const struct ticket_packet *packet, const int *fds,
				    uint32_t *ret_generation)
{
	struct ticket_packet answer;
	struct pass_many pass;

	if (ticket_link_ask(packet, fds, &answer, &pass, ret_generation))
		return LEAVE_AWAY;
	return answer.type == TICKET_TAKEN ? LEAVE_DONE : LEAVE_FULL;
}

static void leave_describe(const struct ticket *ticket, enum ticket_type type,
			   struct ticket_packet *ret)
{
	ticket_packet_init(ret, type, ticket->id);
	ret->memory = (struct ticket_memory){
		.size = ticket->shared.size,
		.chunk_size = ticket->shared.chunk_size,
		.offset = ticket->shared.base - ticket->shared.addr,
		.bytes = ticket->shared.bytes,
		.n_chunks = ticket->shared.n_chunks,
	};
	if (tickets_have_words())
		ret->flags = TICKET_OBEYS | (ticket->is_seen ? TICKET_SEEN : 0);
}

static enum leave_result leave_some(const struct ticket *ticket, size_t first, size_t n,
				    uint32_t *ret_generation)
{
	enum leave_result result = LEAVE_DONE;
	struct ticket_packet packet;
	int fds[TICKET_FDS_MAX];
	size_t n_fds = 0;

	leave_describe(ticket, TICKET_DEPOSIT, &packet);
	packet.first = (uint32_t)first;
	packet.n = (uint32_t)n;
	for (; n_fds < n && result == LEAVE_DONE; n_fds++) {
		fds[n_fds] = ticket_hand(pager_share_chunk(&ticket->shared, first + n_fds));
		if (fds[n_fds] < 0)
			result = LEAVE_FREED;
	}
	if (result == LEAVE_DONE)
		result = leave_send(&packet, fds, ret_generation);
	for (size_t i = 0; i < n_fds; i++)
		(void)ticket_drop(fds[i]);
	return result;
}

/*
 * Also if the scheduler does not know it, or has a part of it. Where others have it open, what lies
 * in the same chunk must stay on the card with it. Takes ticket, which is out of the book.
 */
static void ticket_withdraw(struct ticket *ticket)
{
	struct ticket_packet packet, answer;
	struct pass_many pass;
	uint32_t generation = 0;
	bool is_told = false, is_known;

	/* A pair that has ended has taken its tickets along. */
	if (ticket_link_is_up()) {
		ticket_packet_init(&packet, TICKET_WITHDRAW, ticket->id);
		is_told = !ticket_link_ask(&packet, NULL, &answer, &pass, &generation);
	}
	if (is_told && answer.type == TICKET_NONE)
		pager_share_pin_for_good(&ticket->shared);
	/* Another scheduler, or one that does not count uses, cannot tell that nobody has it. */
	is_known = is_told && answer.type != TICKET_NONE && tickets_have_words() &&
		   generation == ticket->generation && !ticket->is_seen;
	if (is_known || !ticket->is_given)
		ticket_end_pins(ticket);
	else
		free(ticket);
}

/* A scheduler that has restarted hears of a ticket whose bytes are out. An older one cannot. */
static enum leave_result leave_out(const struct ticket *ticket, uint32_t *ret_generation)
{
	struct ticket_packet packet;

	if (!tickets_have_words())
		return LEAVE_AWAY;
	leave_describe(ticket, TICKET_OUT, &packet);
	return leave_send(&packet, NULL, ret_generation);
}

/* *ret_generation: of the pair that has them. LEAVE_AWAY: no pair has all of them. */
static enum leave_result leave_all(struct ticket *ticket, uint32_t *ret_generation)
{
	enum leave_result result = LEAVE_DONE;
	size_t n_chunks = ticket->shared.n_chunks, n;
	uint32_t generation = 0;

	ticket->has_part = false;
	if (ticket->is_out)
		return leave_out(ticket, ret_generation);
	if (n_chunks > TICKET_CHUNKS_MAX)
		return LEAVE_FULL;
	for (size_t i = 0; i < n_chunks && result == LEAVE_DONE; i += n) {
		n = n_chunks - i < TICKET_FDS_MAX ? n_chunks - i : TICKET_FDS_MAX;
		result = leave_some(ticket, i, n, &generation);
		if (i == 0)
			*ret_generation = generation;
		/* A scheduler that restarts meanwhile has got a part of the chunks only. */
		else if (generation != *ret_generation)
			result = LEAVE_AWAY;
		/* With a pair that is cut the scheduler closes what it has got. */
		ticket->has_part = result != LEAVE_AWAY && (i > 0 || result == LEAVE_DONE);
	}
	return result;
}

static CUresult leave_error(enum leave_result result)
{
	if (result == LEAVE_AWAY)
		hook_warn_once("this program shares GPU memory with other processes "
			       "(cuIpcGetMemHandle), which needs nvshare-scheduler; start it, or "
			       "run the program with NVSHARE_IPC=1");
	else if (result == LEAVE_FULL)
		hook_warn_once("nvshare-scheduler keeps no more GPU memory that programs share "
			       "(cuIpcGetMemHandle); raise its limit of open files (LimitNOFILE=), "
			       "or run the program with NVSHARE_IPC=1");
	else if (result == LEAVE_FREED)
		hook_warn_once("GPU memory that this program shares (cuIpcGetMemHandle) could not "
			       "be exported: either file descriptors are short (RLIMIT_NOFILE), "
			       "or it came from another program, which NVSHARE_TRANSFER=0 "
			       "avoids");
	return CUDA_ERROR_NOT_SUPPORTED;
}

static bool ticket_is_dead(const struct ticket *ticket)
{
	bool is_dead;

	hook_lock(&tickets.lock);
	is_dead = ticket->is_dead;
	hook_unlock(&tickets.lock);
	return is_dead;
}

static void ticket_warn_owed(const struct ticket *ticket, enum leave_result result)
{
	if (result == LEAVE_FULL)
		(void)leave_error(result);
	else if (result == LEAVE_FREED && !ticket_is_dead(ticket))
		hook_warn_once("this program could not leave GPU memory that it shares "
			       "(cuIpcGetMemHandle) with nvshare-scheduler, and tries again; "
			       "programs that have it open wait meanwhile (file descriptors may be "
			       "short: RLIMIT_NOFILE)");
}

/*
 * A program may have the handle of a ticket that could not be left, and may wait for the memory. If
 * the ticket were withdrawn, that program would take the bytes for lost. So a scheduler that has
 * not had the ticket hears that its bytes are away, and one that has had it gives it to nobody.
 */
static void ticket_owe(struct ticket *ticket, enum leave_result result)
{
	uint32_t generation = 0;

	ticket_warn_owed(ticket, result);
	ticket->is_owed = ticket->is_owed || !ticket->is_out;
	if (ticket_is_left(ticket))
		return;
	if (!ticket->is_out && result != LEAVE_AWAY) {
		/* Openers of an earlier pair may have it open. */
		ticket->is_seen = ticket->is_seen || ticket->was_left;
		if (leave_out(ticket, &generation) != LEAVE_DONE)
			generation = 0;
	}
	ticket->generation = generation;
}

#define LEAVE_TRIES 3

enum leave_result ticket_leave(struct ticket *ticket)
{
	enum leave_result result = LEAVE_AWAY;
	uint32_t generation = 0;

	for (unsigned int i = 0; i < LEAVE_TRIES && result == LEAVE_AWAY; i++) {
		result = leave_all(ticket, &generation);
		/* Openers of an earlier pair have it open, and this pair does not know them. */
		if (result != LEAVE_DONE || ticket->is_out || ticket->is_seen ||
		    !ticket->was_left || generation == ticket->generation)
			continue;
		ticket->is_seen = true;
		result = LEAVE_AWAY;
	}
	if (result == LEAVE_DONE) {
		ticket->generation = generation;
		ticket->was_left = ticket->is_given = true;
		ticket->is_owed = ticket->is_owed && ticket->is_out;
	} else if (ticket->is_given) {
		ticket_owe(ticket, result);
	}
	return result;
}

/* ---- the book ---------------------------------------------------------------------------- */

/* Lock held. */
static struct ticket *ticket_of(CUdeviceptr base, uint64_t alloc_id)
{
	struct ticket *t = tickets.first;

	while (t && (t->shared.base != base || t->shared.id != alloc_id))
		t = t->next;
	return t;
}

bool tickets_is_own(const uint8_t *id)
{
	struct ticket *t;

	hook_lock(&tickets.lock);
	for (t = tickets.first; t && memcmp(t->id, id, TICKET_LEN) != 0;)
		t = t->next;
	hook_unlock(&tickets.lock);
	return t != NULL;
}

/* Lock held. */
static void ticket_unlink(struct ticket *ticket)
{
	struct ticket **at = &tickets.first;

	while (*at != ticket)
		at = &(*at)->next;
	*at = ticket->next;
	(void)__atomic_sub_fetch(&tickets.n, 1, __ATOMIC_RELEASE);
}

void ticket_put(struct ticket *ticket, bool keeps)
{
	bool is_gone;

	hook_lock(&tickets.lock);
	ticket->is_busy = false;
	is_gone = ticket->is_dead || !keeps;
	if (is_gone)
		ticket_unlink(ticket);
	pthread_cond_broadcast(&tickets.changed);
	hook_unlock(&tickets.lock);
	if (is_gone)
		ticket_withdraw(ticket);
}

/*
 * Leaves a ticket that is busy for the caller. *ret_id: its number. One that nobody can have yet,
 * and that could not be left, is gone then.
 */
static enum leave_result ticket_leave_linked(struct ticket *ticket, uint8_t ret_id[TICKET_LEN])
{
	enum leave_result result = ticket_leave(ticket);

	memcpy(ret_id, ticket->id, TICKET_LEN);
	ticket_put(ticket, ticket->is_given);
	return result;
}

static struct ticket *ticket_new(const struct pager_shared *shared)
{
	struct ticket *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	if (!random_fill(t->id, sizeof(t->id))) {
		free(t);
		return NULL;
	}
	t->id[0] |= 1; /* not all zero */
	t->shared = *shared;
	return t;
}

/*
 * The ticket of the allocation, a new one if need be, busy for the caller. NULL: the scheduler has
 * it already, and *ret_id is its number; or there is no memory (*ret_is_left is false).
 */
static struct ticket *ticket_claim(const struct pager_shared *shared, bool *ret_is_left,
				   uint8_t ret_id[TICKET_LEN])
{
	struct ticket *fresh = ticket_new(shared), *t;

	hook_lock(&tickets.lock);
	while ((t = ticket_of(shared->base, shared->id)) && t->is_busy)
		hook_wait(&tickets.changed, &tickets.lock);
	if (!t && fresh) {
		t = fresh;
		fresh = NULL;
		t->next = tickets.first;
		tickets.first = t;
		(void)__atomic_add_fetch(&tickets.n, 1, __ATOMIC_RELEASE);
	}
	if (t)
		t->is_settled = false; /* the caller has pinned it */
	*ret_is_left = t && ticket_is_left(t);
	if (*ret_is_left)
		memcpy(ret_id, t->id, TICKET_LEN);
	else if (t)
		t->is_busy = true;
	hook_unlock(&tickets.lock);
	free(fresh);
	return *ret_is_left ? NULL : t;
}

/* Until the ticket is in the book, the agent takes nobody's pins back. */
static void making_begin(void)
{
	hook_lock(&tickets.lock);
	while (tickets.is_unpinning)
		hook_wait(&tickets.changed, &tickets.lock);
	tickets.n_making++;
	hook_unlock(&tickets.lock);
}

static void making_end(void)
{
	hook_lock(&tickets.lock);
	tickets.n_making--;
	hook_unlock(&tickets.lock);
}

/* LEAVE_OUT: the memory has left the card meanwhile, with that of another ticket. */
static enum leave_result ticket_make(CUdeviceptr ptr, uint8_t ret_id[TICKET_LEN], CUresult *ret_res)
{
	enum leave_result result = LEAVE_DONE;
	struct pager_shared shared;
	struct ticket *ticket;
	bool is_there, is_left;

	gate_enter();
	making_begin();
	is_there = pager_share(ptr, &shared);
	gate_leave();
	*ret_res = is_there ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	if (!is_there) {
		making_end();
		bell_ring();
		return LEAVE_DONE;
	}
	ticket = ticket_claim(&shared, &is_left, ret_id);
	making_end();
	if (!ticket && !is_left)
		*ret_res = CUDA_ERROR_OUT_OF_MEMORY;
	if (ticket)
		result = ticket_leave_linked(ticket, ret_id);
	bell_ring(); /* the agent looks whether the memory must stay */
	return result == LEAVE_FREED && !pager_share_is_in(&shared) ? LEAVE_OUT : result;
}

CUresult tickets_make(CUdeviceptr ptr, CUipcMemHandle *ret)
{
	enum leave_result result = LEAVE_OUT;
	uint8_t id[TICKET_LEN] = {0};
	CUresult res = CUDA_SUCCESS;

	/* Memory that nobody can open need not be pinned. */
	if (!ticket_link_reach())
		return leave_error(LEAVE_AWAY);
	while (result == LEAVE_OUT)
		result = ticket_make(ptr, id, &res);
	if (res != CUDA_SUCCESS)
		return res;
	if (result != LEAVE_DONE)
		return leave_error(result);
	ticket_write_handle(id, ret);
	return CUDA_SUCCESS;
}

/* Takes those of the allocation at base, or of ctx, out of the book. Returns them as a list. */
static struct ticket *tickets_unlink(CUdeviceptr base, CUcontext ctx)
{
	struct ticket *list = NULL, *t, **at;

	hook_lock(&tickets.lock);
	for (at = &tickets.first; (t = *at);) {
		if (ctx ? t->shared.ctx != ctx : t->shared.base != base) {
			at = &t->next;
		} else if (t->is_busy) {
			t->is_dead = true;
			at = &t->next;
		} else {
			*at = t->next;
			(void)__atomic_sub_fetch(&tickets.n, 1, __ATOMIC_RELEASE);
			t->next = list;
			list = t;
		}
	}
	hook_unlock(&tickets.lock);
	return list;
}

static void tickets_end(struct ticket *list)
{
	struct ticket *next;

	for (; list; list = next) {
		next = list->next;
		ticket_withdraw(list);
	}
}

void tickets_freed(CUdeviceptr ptr)
{
	if (__atomic_load_n(&tickets.n, __ATOMIC_ACQUIRE))
		tickets_end(tickets_unlink(ptr, NULL));
}

void tickets_context_gone(CUcontext ctx)
{
	if (__atomic_load_n(&tickets.n, __ATOMIC_ACQUIRE))
		tickets_end(tickets_unlink(0, ctx));
	opened_context_gone(ctx);
}

/* One that this scheduler knows nothing of, and that was not tried in this round; busy then. */
static struct ticket *tickets_claim_lost(uint64_t round)
{
	struct ticket *t;

	hook_lock(&tickets.lock);
	for (t = tickets.first; t; t = t->next) {
		if (!t->is_busy && t->round != round && !ticket_is_left(t))
			break;
	}
	if (t) {
		t->is_busy = true;
		t->round = round;
	}
	hook_unlock(&tickets.lock);
	return t;
}

static void tickets_bring(void)
{
	uint8_t id[TICKET_LEN];
	struct ticket *ticket;

	if (!__atomic_load_n(&tickets.n, __ATOMIC_ACQUIRE))
		return;
	tickets.round++;
	while ((ticket = tickets_claim_lost(tickets.round))) {
		if (ticket_leave_linked(ticket, id) == LEAVE_AWAY)
			return; /* until the next look, or the next scheduler */
	}
}

void tickets_renew(bool has_words)
{
	__atomic_store_n(&tickets.has_words, has_words, __ATOMIC_RELEASE);
	hook_lock(&tickets.lock);
	tickets.are_used = tickets.are_used && has_words;
	hook_unlock(&tickets.lock);
	tickets_bring();
}

/* A thread that speaks with the scheduler about a ticket rings the bell if that fails. */
static bool tickets_are_behind(void)
{
	uint32_t generation = ticket_link_generation();
	bool are_behind = false;

	if (!__atomic_load_n(&tickets.n, __ATOMIC_ACQUIRE))
		return false;
	if (!ticket_link_is_up())
		return true;
	hook_lock(&tickets.lock);
	for (const struct ticket *t = tickets.first; t; t = t->next)
		are_behind =
			are_behind || (!t->is_busy && (t->is_owed || t->generation != generation));
	hook_unlock(&tickets.lock);
	return are_behind;
}

uint64_t tickets_tick(uint64_t now_ns)
{
	tickets_settle();
	if (!tickets_are_behind())
		return UINT64_MAX;
	if (now_ns >= tickets.retry_ns) {
		tickets.retry_ns = now_ns + RETRY_NS;
		tickets_bring();
		if (ticket_link_is_up())
			tickets_return_owed();
	}
	return tickets_are_behind() ? tickets.retry_ns : UINT64_MAX;
}

/* A child has no GPU memory of its parent's. */
void tickets_after_fork_child(void)
{
	hook_mutex_renew(&tickets.lock, HOOK_LOCK_TICKETS);
	(void)pthread_cond_init(&tickets.changed, NULL);
	tickets.first = tickets.ended = NULL;
	tickets.n = 0;
	tickets.n_making = 0;
	tickets.is_unpinning = false;
	tickets.has_words = false;
	tickets.are_used = false;
	opened_after_fork_child();
	ticket_link_after_fork_child();
}
