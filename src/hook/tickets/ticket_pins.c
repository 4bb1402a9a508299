/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Pins: memory that others can open stays on the card, unless the scheduler has said that they stop
 * with this process. A thread that makes a ticket pins its memory, and the agent takes pins back.
 */

#include "hook/tickets/tickets_private.h"

#include "hook/gate/bell.h"

#include <stdlib.h>

bool ticket_is_in(const struct ticket *t, CUdeviceptr addr, size_t size)
{
	return t->shared.addr < addr + size && addr < t->shared.addr + t->shared.size;
}

/* Lock held. Small allocations lie in one chunk, which stays if one of them has to. */
static bool ticket_must_stay(const struct ticket *ticket)
{
	for (const struct ticket *t = tickets.first; t; t = t->next) {
		if ((!t->may_move || t->is_kept) &&
		    ticket_is_in(t, ticket->shared.addr, ticket->shared.size))
			return true;
	}
	return false;
}

/* Lock held. Its pins are not as they should be, and can be so now. */
static bool ticket_is_unsettled(const struct ticket *t)
{
	return !t->is_settled && !t->is_busy && (!tickets.n_making || ticket_must_stay(t));
}

/* One whose pins are not as they should be; *ret: what it shares. */
static bool tickets_claim_unsettled(struct pager_shared *ret, bool *ret_must_stay)
{
	struct ticket *t;

	hook_lock(&tickets.lock);
	for (t = tickets.first; t && !ticket_is_unsettled(t);)
		t = t->next;
	if (t) {
		t->is_settled = true;
		*ret = t->shared;
		*ret_must_stay = ticket_must_stay(t);
		tickets.is_unpinning = !*ret_must_stay;
	}
	hook_unlock(&tickets.lock);
	return t != NULL;
}

static void tickets_end_unpinning(void)
{
	hook_lock(&tickets.lock);
	tickets.is_unpinning = false;
	pthread_cond_broadcast(&tickets.changed);
	hook_unlock(&tickets.lock);
}

/* Lock held. true: there are tickets in the memory that ticket shares. */
static bool tickets_unsettle_beside(const struct ticket *ticket)
{
	bool are_any = false;

	for (struct ticket *t = tickets.first; t; t = t->next) {
		if (!ticket_is_in(t, ticket->shared.addr, ticket->shared.size))
			continue;
		t->is_settled = false;
		are_any = true;
	}
	return are_any;
}

void ticket_end_pins(struct ticket *ticket)
{
	bool is_last;

	hook_lock(&tickets.lock);
	is_last = !tickets_unsettle_beside(ticket);
	if (is_last) {
		ticket->next = tickets.ended;
		__atomic_store_n(&tickets.ended, ticket, __ATOMIC_RELEASE);
	}
	hook_unlock(&tickets.lock);
	if (!is_last)
		free(ticket);
	bell_ring();
}

/* One that has ended, and whose pins nobody needs; *ret: what it shared. */
static bool tickets_claim_ended(struct pager_shared *ret)
{
	struct ticket *t = NULL;
	bool is_last = false;

	hook_lock(&tickets.lock);
	while (!is_last && !tickets.n_making && (t = tickets.ended)) {
		__atomic_store_n(&tickets.ended, t->next, __ATOMIC_RELEASE);
		*ret = t->shared;
		is_last = !tickets_unsettle_beside(t);
		free(t);
	}
	tickets.is_unpinning = is_last;
	hook_unlock(&tickets.lock);
	return is_last;
}

/*
 * Tickets share chunks, and so pins. A thread that makes one rings when it is done, and what was
 * left for its sake is settled then.
 */
void tickets_settle(void)
{
	struct pager_shared shared;
	bool must_stay;

	while (__atomic_load_n(&tickets.ended, __ATOMIC_ACQUIRE) && tickets_claim_ended(&shared)) {
		pager_share_unpin(&shared);
		tickets_end_unpinning();
	}
	if (!__atomic_load_n(&tickets.n, __ATOMIC_ACQUIRE))
		return;
	while (tickets_claim_unsettled(&shared, &must_stay)) {
		if (must_stay) {
			pager_share_pin(&shared);
		} else {
			pager_share_unpin(&shared);
			tickets_end_unpinning();
		}
	}
}
