/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_IPC_TICKET_PACKET_H
#define NVS_IPC_TICKET_PACKET_H

/*
 * The packets by which processes share GPU memory of the pager (cuIpcGetMemHandle()). The owner
 * exports the memory's chunks as descriptors and leaves them with the scheduler under a number
 * that nobody can guess, the ticket. The handle that the program passes on contains the ticket.
 * A process that names the ticket gets copies of the descriptors, if it has the owner's user.
 * Tickets end with their owner.
 *
 * Memory that only one gang has open may leave the card with the gang's turn. Its openers unmap it
 * when they have stopped (PARK). Then its owner gets all descriptors closed (MOVE), and may release
 * the memory. When the bytes are back in other memory, the owner leaves new descriptors under the
 * same ticket, and openers get those by OPEN. The message TICKET_WORD says what either has to do.
 *
 * They travel on a SOCK_SEQPACKET pair of their own. A process connects to the scheduler's socket
 * and sends the message TICKETS; the answer TICKET_PAIR brings its end of the pair. On this pair
 * alone descriptors travel both ways.
 *
 * A packet has one size and the byte order of the machine. Unused fields are zero. Each packet of
 * a program is answered by one of the scheduler, with the same ticket. A wrong packet ends the
 * pair.
 *
 * Threading: none of its own. Needs nothing but libc.
 */

#include "ipc/pass.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TICKET_PACKET_MAGIC   0x5453564eu /* "NVST" */
#define TICKET_PACKET_VERSION 1

#define TICKET_LEN        16
#define TICKET_FDS_MAX    64   /* chunks a packet */
#define TICKET_CHUNKS_MAX 8192 /* a ticket */

enum ticket_type {
	/* from a program */
	TICKET_DEPOSIT,  /* memory, first, n descriptors: its chunks, in order; TAKEN or NONE */
	TICKET_WITHDRAW, /* its own ticket is over; TAKEN, also if there is none */
	TICKET_OPEN,     /* first: wants the chunks from there on; MEMORY or NONE */

	/* from the scheduler */
	TICKET_TAKEN,
	TICKET_MEMORY, /* memory, first, n descriptors: as many as a packet can have */
	TICKET_NONE,   /* reason */

	/* from a program, if REGISTERED had NVSHARE_REGISTERED_TICKETS */
	TICKET_MOVE,  /* wants its own ticket's memory for itself; TAKEN: it has it; or NONE */
	TICKET_OUT,   /* memory: its own ticket, whose bytes are off the card; TAKEN or NONE */
	TICKET_PARK,  /* has unmapped it, and will open it again; TAKEN, also if there is none */
	TICKET_CLOSE, /* has unmapped it; TAKEN, also if there is none */

	TICKET_TYPE_COUNT_
};

enum ticket_reason {
	TICKET_REASON_NONE_,
	TICKET_UNKNOWN,  /* its owner has ended, freed it, not left it here, or is another user */
	TICKET_STARTING, /* the scheduler has started, and its owner may bring it in a moment */
	TICKET_FULL,     /* the scheduler keeps no more descriptors, for this owner or at all */
	TICKET_AWAY,     /* to OPEN: its bytes are off the card, and come back */
	TICKET_HELD,     /* others have it mapped, or their descriptors are not closed yet */
	TICKET_STAYS,    /* to MOVE: others than its owner's gang have it, or may have it */

	TICKET_REASON_COUNT_
};

enum ticket_flag {
	TICKET_SEEN = 1,  /* DEPOSIT, OUT: others may have it open that the scheduler cannot know */
	TICKET_OBEYS = 2, /* DEPOSIT, OUT, OPEN: the process obeys TICKET_WORD */
};

/* The sender of a packet. */
enum ticket_sender { TICKET_FROM_PROGRAM, TICKET_FROM_SCHEDULER };

/* All in bytes but n_chunks. The chunks lie one behind the other; the last one may be smaller. */
struct ticket_memory {
	uint64_t size;       /* of all chunks */
	uint64_t chunk_size; /* of each but the last */
	uint64_t offset;     /* of the allocation, from the first chunk's start */
	uint64_t bytes;      /* of the allocation */
	uint64_t n_chunks;   /* 1 to TICKET_CHUNKS_MAX */
};

struct ticket_packet {
	uint32_t magic;
	uint16_t version;
	uint16_t type;              /* enum ticket_type */
	uint8_t ticket[TICKET_LEN]; /* chosen at random by its owner; not all zero */
	uint32_t first;
	uint32_t n;      /* descriptors of this packet */
	uint32_t reason; /* enum ticket_reason */
	uint32_t flags;  /* enum ticket_flag */
	struct ticket_memory memory;
};

/* Sets *ret to a packet of that type; the caller sets the other fields. */
void ticket_packet_init(struct ticket_packet *ret, enum ticket_type type,
			const uint8_t ticket[TICKET_LEN]);

/* Sizes that fit each other. Safe with any bytes. */
bool ticket_memory_check(const struct ticket_memory *memory);

/*
 * Whether len bytes with n_fds descriptors are a packet that sender may send: its size, numbers in
 * their ranges, as many descriptors as it says, nothing in unused fields. Safe with any bytes.
 */
bool ticket_packet_check(const struct ticket_packet *packet, size_t len, size_t n_fds,
			 enum ticket_sender sender);

/* Sends packet with copies of packet->n descriptors. 0 or -errno; -EAGAIN: the buffer is full. */
int ticket_packet_send(int fd, const struct ticket_packet *packet, const int *fds);

/*
 * Receives a packet of sender. 0: *ret is good. Else -errno: -EAGAIN: none now; -EPIPE: the end of
 * the pair; -EBADMSG: a wrong packet. Always sets *ret_pass, whose descriptors are the caller's
 * in any case.
 */
int ticket_packet_recv(int fd, enum ticket_sender sender, struct ticket_packet *ret,
		       struct pass_many *ret_pass);

#endif
