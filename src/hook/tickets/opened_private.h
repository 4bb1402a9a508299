/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_OPENED_PRIVATE_H
#define NVS_HOOK_OPENED_PRIVATE_H

/*
 * The opener's side: opened.c maps and unmaps what the program opens and closes; opened_moves.c
 * gives memory up for its owner's eviction, and maps it again.
 *
 * A thread that maps or unmaps makes its entry busy. Opens of the same ticket wait for it, also
 * those of another context, because the scheduler counts uses by process.
 */

#include "hook/base/hook_mutex.h"
#include "hook/tickets/ticket_link.h"
#include "hook/tickets/tickets.h"

#include <pthread.h>

struct opened {
	struct opened *next;
	uint8_t ticket[TICKET_LEN];
	CUcontext ctx;
	CUdevice dev;
	bool is_busy;        /* a thread maps, opens to a peer, or unmaps it */
	bool is_inside;      /* that thread is inside the gate, and may have descriptors */
	bool is_open;        /* mapped or parked, and has uses */
	bool is_dead;        /* its context has ended while it was busy */
	bool is_closing;     /* a thread waits for the work that may use it */
	bool is_park_wanted; /* its owner wants the memory for itself */
	bool is_parked; /* not mapped; its addresses stay, and nothing runs before it is back */
	unsigned int n; /* opens without their closes */
	struct ticket_memory memory;
	CUdeviceptr addr;  /* of the first chunk; 0: none is reserved */
	size_t n_mapped;   /* chunks */
	uint64_t round;    /* of opened_peers_changed() */
	uint64_t returned; /* of opened_return() */
	/* Those of the thread that has made it busy. */
	uint32_t heard_of;   /* the pair on which the scheduler knew the ticket last */
	bool is_unheard;     /* the last answer is of another pair */
	uint64_t unknown_ns; /* since when the scheduler has answered UNKNOWN; 0: it does not */
};

struct opened_book {
	struct hook_mutex lock;
	pthread_cond_t changed; /* one is not busy any more */
	struct opened *first;
	unsigned int n;     /* atomic: most programs have none, and questions look here alone */
	uint64_t n_rounds;  /* of opened_peers_changed() */
	uint64_t n_returns; /* the agent's */
};

extern struct opened_book opened;

enum opened_wait {
	OPENED_WAIT_NOT,
	OPENED_WAIT_STARTING, /* the scheduler may not have the ticket yet, or has no room */
	OPENED_WAIT_AWAY,     /* its bytes are off the card */
	OPENED_WAIT_UNKNOWN,  /* nobody has left such a ticket with this scheduler */
};

/* For an entry that is busy for the caller. First opened_map.c. */

/* Maps all of it, and waits at the gate and for its owner. An error: nothing is mapped. */
CUresult opened_map(struct opened *o);
/* Opens what is mapped to the peers of its context. */
CUresult opened_allow_all(const struct opened *o);
/* It is mapped no more, and its addresses are free. */
void opened_unmap(struct opened *o);
/* Maps what is not mapped yet. Inside the gate, or in the agent's thread. */
CUresult opened_ask_all(struct opened *o, enum opened_wait *ret_wait);
/* Its addresses stay. true: all is unmapped. */
bool opened_unmap_chunks(struct opened *o);
/* Peers that came meanwhile reach it, too. */
void opened_allow_all_peers(struct opened *o);

/*
 * The work on it is done. false: its context has ended meanwhile, and so has it. is_gone: it ends.
 */
bool opened_done(struct opened *o, bool is_gone);

bool opened_is_of(const struct opened *o, const uint8_t *ticket);

/* Tells a scheduler that takes it; others know nothing of uses. */
void opened_tell(const uint8_t *id, enum ticket_type type);

#endif
