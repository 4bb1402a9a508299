/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_TICKET_USES_H
#define NVS_DAEMON_TICKET_USES_H

/*
 * The processes that have a ticket's memory open, and whether that memory may leave the card.
 *
 * A use is a process that has got descriptors of a ticket. It is held while the process may have
 * the memory mapped. The memory may move while its owner and all of its uses are in one gang, whose
 * members stop together.
 *
 * The scheduler must not overlook a use: the opener would write to memory whose bytes have been
 * copied already. So a process whose pair has ended keeps its uses until the process ends. Where
 * that cannot be seen, the ticket stays for good.
 *
 * Threading: the loop's.
 */

#include "daemon/tickets/tickets.h"
#include "nvshare/protocol.h"

enum { TICKET_WORD_NONE = NVSHARE_TICKET_COUNT };

struct ticket_use {
	struct ticket_use *next; /* ticket::uses */
	struct ticket_use *link_prev, *link_next;
	struct ticket *ticket;
	struct ticket_link *link;
	bool is_held;
	bool is_stopped;  /* its process is paused until it has parked */
	uint64_t told_ns; /* its last PARK since it is held; 0: none yet */
};

struct ticket {
	uint8_t id[TICKET_LEN]; /* the first field: tickets are found by it */
	struct ticket_link *link;
	struct ticket *prev, *next; /* ticket_link::tickets */
	struct ticket_memory memory;
	struct ticket_use *uses;
	bool stays;    /* for good: others may have it that are no uses */
	bool is_out;   /* its owner has taken it, or is about to */
	uint32_t told; /* enum nvshare_ticket; TICKET_WORD_NONE: nothing is known to have come */
	uint32_t n_at_work;     /* uses whose processes are at work */
	uint64_t wanted_ns;     /* the last WANTED */
	uint64_t asked_ns;      /* the last MOVE */
	uint32_t serial;        /* the reaper's word for it; not 0 */
	uint32_t n_closing;     /* descriptors of it that the reaper has */
	struct ticket *closing; /* tickets::closing */
	uint32_t n_kept;        /* descriptors that have come */
	int fds[];              /* memory.n_chunks */
};

/* link gets the memory: it is a use from now on, and holds it. */
void ticket_use_hold(struct server *server, struct ticket *ticket, struct ticket_link *link);
/* It has unmapped the memory. */
void ticket_use_park(struct ticket *ticket, const struct ticket_link *link);
void ticket_use_close(struct server *server, struct ticket *ticket, const struct ticket_link *link);

/* All of a ticket that ends, or of a process. is_over: it has ended, and has nothing mapped. */
void ticket_uses_drop(struct server *server, struct ticket *ticket);
void ticket_uses_leave(struct server *server, struct ticket_link *link, bool is_over);

/*
 * The owner wants the memory for itself. TICKET_REASON_NONE_: no use holds it, and nobody gets it
 * before the owner leaves it again. Holders hear that they are to park; those that run on are
 * paused until nobody holds it, or the owner asks no more.
 */
enum ticket_reason ticket_take(struct server *server, struct ticket *ticket);

/* An opener waits for the memory, which is out. */
void ticket_call(struct server *server, struct ticket *ticket);

/* Owners will hear whether their memory may move. */
void ticket_uses_changed(struct server *server);
/* The deadline that ticket_uses_changed() sets. */
void ticket_uses_on_due(struct server *server, struct deadline *deadline);

/* link->n_used is 0 now, or is no more. */
void ticket_uses_tell_used(struct server *server, const struct ticket_link *link);

#endif
