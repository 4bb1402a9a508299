/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_TICKETS_PRIVATE_H
#define NVS_HOOK_TICKETS_PRIVATE_H

/*
 * The owner's side: tickets.c leaves tickets with the scheduler, and has the book; ticket_moves.c
 * takes their memory back before it leaves the card, and offers it again when it has come back.
 *
 * A thread that speaks with the scheduler about a ticket makes it busy, and others wait.
 */

#include "hook/base/hook_mutex.h"
#include "hook/pager/pager_share.h"
#include "hook/tickets/ticket_link.h"
#include "hook/tickets/tickets.h"

#include <pthread.h>

struct ticket {
	struct ticket *next;
	uint8_t id[TICKET_LEN];
	struct pager_shared shared;
	uint32_t generation; /* of the pair on which it was left; 0: on none */
	bool is_given;       /* the program has got its handle, and may have passed it on */
	bool was_left;       /* others may have it open since */
	bool is_seen;        /* and the scheduler cannot know all of them */
	bool is_busy;        /* a thread speaks with the scheduler about it */
	bool is_dead;        /* freed meanwhile */
	bool may_move;       /* by the scheduler's last word */
	bool is_kept;        /* it may, but its openers did not give it back in time */
	bool is_asked;       /* for MOVE; the scheduler may give it to nobody any more */
	bool is_out;         /* it gives it to nobody, and nobody has it */
	bool is_owed;        /* its memory is in, and could not be left */
	bool has_part;       /* the scheduler has got some of its chunks, or all, at the last try */
	bool is_wanted;      /* an opener waits for it */
	bool is_settled;     /* its pins are as they should be */
	uint64_t round;      /* of tickets_renew(), tickets_return() or tickets_take() */
};

struct tickets {
	struct hook_mutex lock;
	pthread_cond_t changed; /* a ticket is not busy any more */
	struct ticket *first;
	struct ticket *ended; /* atomic; the agent takes their pins back */
	unsigned int n;       /* atomic: most programs have none, and frees look here alone */
	bool has_words;       /* atomic: tickets_have_words() */
	bool are_used;        /* by the scheduler's last word */
	/* A thread that makes a ticket pins its memory before the ticket is here to tell of it. */
	unsigned int n_making;
	bool is_unpinning; /* the agent does, and no thread pins */
	/* The agent's. */
	uint64_t round; /* how often all tickets were looked at */
	uint64_t retry_ns;
};

extern struct tickets tickets;

enum leave_result {
	LEAVE_DONE,
	LEAVE_FULL,
	LEAVE_AWAY,  /* there is no scheduler, or it does not answer */
	LEAVE_FREED, /* the memory is gone, or the driver does not export it, maybe for now */
	LEAVE_OUT    /* ticket_make() */
};

/*
 * Leaves a ticket that is busy for the caller with the scheduler. One that others may have is never
 * withdrawn: if it cannot be left, it is owed to them.
 */
enum leave_result ticket_leave(struct ticket *ticket);

/* The scheduler has it, or knows that its memory is away. */
bool ticket_is_left(const struct ticket *ticket);

/* Ends the caller's work on a ticket. One that the program has freed meanwhile is gone then. */
void ticket_put(struct ticket *ticket, bool keeps);

/* It shares memory in size bytes at addr. */
bool ticket_is_in(const struct ticket *ticket, CUdeviceptr addr, size_t size);
/* ticket is out of the book, and nobody has its memory open, or can. Takes it. Any thread. */
void ticket_end_pins(struct ticket *ticket);
/* The agent's thread, when it moves no memory: pins, and lets memory move again. */
void tickets_settle(void);
/* The same thread and time: tries again to leave what is owed. */
void tickets_return_owed(void);

#endif
