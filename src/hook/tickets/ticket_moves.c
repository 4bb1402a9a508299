/* SPDX-License-Identifier: Apache-2.0 */

/* The owner's side of memory that leaves the card with its gang. */

#include "hook/tickets/tickets_private.h"

#include <string.h>

void tickets_hear(const struct nvshare_ticket_word *word)
{
	struct ticket *t;

	if (word->word == NVSHARE_TICKET_PARK) {
		opened_hear_park(word->ticket);
		return;
	}
	hook_lock(&tickets.lock);
	if (word->word != NVSHARE_TICKET_WANTED)
		tickets.are_used = word->flags & NVSHARE_TICKET_USED;
	for (t = tickets.first; t && memcmp(t->id, word->ticket, TICKET_LEN) != 0;)
		t = t->next;
	if (t && word->word == NVSHARE_TICKET_WANTED) {
		/* One that has crossed the return of the memory would call for it when it is out
		 * again. */
		t->is_wanted = t->is_out || t->is_asked;
	} else if (t) {
		t->may_move = word->word == NVSHARE_TICKET_MOVES;
		t->is_settled = false;
	}
	hook_unlock(&tickets.lock);
}

bool tickets_are_wanted(void)
{
	bool are_wanted = false;

	if (!__atomic_load_n(&tickets.n, __ATOMIC_ACQUIRE))
		return false;
	hook_lock(&tickets.lock);
	for (const struct ticket *t = tickets.first; t; t = t->next)
		are_wanted = are_wanted || (t->is_wanted && (t->is_out || t->is_asked));
	hook_unlock(&tickets.lock);
	return are_wanted;
}

bool tickets_are_used(void)
{
	bool are_used = false;

	if (!__atomic_load_n(&tickets.n, __ATOMIC_ACQUIRE))
		return false;
	hook_lock(&tickets.lock);
	for (const struct ticket *t = tickets.first; t; t = t->next)
		are_used = are_used || (t->may_move && tickets.are_used);
	hook_unlock(&tickets.lock);
	return are_used;
}

/*
 * One in size bytes at addr that was not looked at in this round, busy then. *ret_is_busy: another
 * thread has one.
 */
static struct ticket *tickets_claim_in(CUdeviceptr addr, size_t size, bool *ret_is_busy)
{
	struct ticket *t;

	*ret_is_busy = false;
	hook_lock(&tickets.lock);
	for (t = tickets.first; t; t = t->next) {
		if (t->round == tickets.round || t->is_out || !ticket_is_in(t, addr, size))
			continue;
		*ret_is_busy = *ret_is_busy || t->is_busy;
		if (!t->is_busy)
			break;
	}
	if (t) {
		t->is_busy = true;
		t->round = tickets.round;
	}
	hook_unlock(&tickets.lock);
	return t;
}

/* Busy for the caller. */
static enum tickets_taken ticket_take(struct ticket *ticket)
{
	struct ticket_packet packet, answer;
	uint32_t generation = 0;
	struct pass_many pass;

	if (!tickets_have_words() || !ticket_is_left(ticket))
		return TICKETS_STAY;
	ticket->is_asked = true;
	ticket_packet_init(&packet, TICKET_MOVE, ticket->id);
	if (ticket_link_ask(&packet, NULL, &answer, &pass, &generation) ||
	    generation != ticket->generation)
		return TICKETS_STAY;
	if (answer.type == TICKET_TAKEN)
		return TICKETS_TAKEN;
	return answer.type == TICKET_NONE && answer.reason == TICKET_HELD ? TICKETS_HELD
									  : TICKETS_STAY;
}

enum tickets_taken tickets_take(CUdeviceptr addr, size_t size)
{
	enum tickets_taken result = TICKETS_TAKEN, one;
	struct ticket *ticket;
	bool is_busy;

	tickets.round++;
	while ((ticket = tickets_claim_in(addr, size, &is_busy))) {
		one = ticket_take(ticket);
		hook_lock(&tickets.lock);
		ticket->is_out = one == TICKETS_TAKEN;
		if (one == TICKETS_STAY) {
			ticket->may_move = false;
			ticket->is_settled = false;
		}
		hook_unlock(&tickets.lock);
		ticket_put(ticket, true);
		if (one == TICKETS_STAY)
			return TICKETS_STAY;
		result = one == TICKETS_HELD ? one : result;
	}
	return is_busy ? TICKETS_HELD : result;
}

void tickets_keep(CUdeviceptr addr, size_t size)
{
	hook_lock(&tickets.lock);
	for (struct ticket *t = tickets.first; t; t = t->next) {
		if (!ticket_is_in(t, addr, size))
			continue;
		t->is_kept = true;
		t->is_settled = false;
	}
	hook_unlock(&tickets.lock);
}

static bool ticket_is_asked(const struct ticket *ticket)
{
	return ticket->is_asked || ticket->is_kept;
}

static bool ticket_is_owed(const struct ticket *ticket)
{
	return ticket->is_owed;
}

/* One that is_due, and was not looked at in this round; busy then. */
static struct ticket *tickets_claim_due(bool (*is_due)(const struct ticket *ticket))
{
	struct ticket *t;

	hook_lock(&tickets.lock);
	for (t = tickets.first; t; t = t->next) {
		if (!t->is_busy && t->round != tickets.round && is_due(t))
			break;
	}
	if (t) {
		t->is_busy = true;
		t->round = tickets.round;
	}
	hook_unlock(&tickets.lock);
	return t;
}

static void ticket_return(struct ticket *ticket)
{
	bool was_out = ticket->is_out, is_done;

	hook_lock(&tickets.lock);
	/* Nobody has it open, whichever pair comes next. */
	ticket->was_left = ticket->was_left && !was_out;
	ticket->is_out = ticket->is_kept = ticket->is_wanted = false;
	ticket->is_settled = false;
	hook_unlock(&tickets.lock);
	is_done = ticket_leave(ticket) == LEAVE_DONE;
	hook_lock(&tickets.lock);
	/*
	 * If it could not be left, nobody has got it, and its memory may leave the card again. A
	 * part that the scheduler has must come back before.
	 */
	ticket->is_out = was_out && !is_done && !ticket->has_part;
	ticket->is_asked = ticket->is_asked && !is_done;
	hook_unlock(&tickets.lock);
}

static void tickets_return_due(bool (*is_due)(const struct ticket *ticket))
{
	struct ticket *ticket;

	if (!__atomic_load_n(&tickets.n, __ATOMIC_ACQUIRE))
		return;
	tickets.round++;
	while ((ticket = tickets_claim_due(is_due))) {
		if (pager_share_is_in(&ticket->shared))
			ticket_return(ticket);
		else
			ticket->is_owed = false; /* it is left after the next restore */
		ticket_put(ticket, true);
	}
}

void tickets_return(void)
{
	tickets_return_due(ticket_is_asked);
}

void tickets_return_owed(void)
{
	tickets_return_due(ticket_is_owed);
}
