/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_IPC_SLAB_PACKET_H
#define NVS_IPC_SLAB_PACKET_H

/*
 * The packets by which a client borrows and returns slabs: pieces of host memory of one size that
 * programs of one trust domain use in turn. A client makes a slab and exports it as a descriptor.
 * The scheduler only keeps descriptors, which keep the memory alive.
 *
 * They travel on a SOCK_SEQPACKET pair of their own. A client whose REGISTERED has the flag
 * NVSHARE_REGISTERED_SLABS may send BORROW. It gets its end of the pair with the message SLABS,
 * which also tells the size of a slab. On this pair alone descriptors travel both ways.
 *
 * A packet has one size and the byte order of the machine. ids[i] belongs to the i-th descriptor.
 * Unused fields are zero.
 *
 * A client has a slab on loan from its OFFER, or from the LENT that names it, until its RETURN or
 * BAD. After a restart of the scheduler the client offers all that it has before it wants more.
 * OFFER is not answered. A scheduler that cannot keep a slab forgets it, and ignores its id from
 * then on; the memory lives as long as its borrower's mapping.
 *
 * Each WANT is answered at once, by LENT, MAY_MAKE and NONE whose n add up to what was wanted.
 * Slabs that a client may make count as its own until they are offered, or named by UNMADE.
 *
 * A wrong packet ends the pair, not the client's connection. Loans outlive the pair: the memory
 * is lent again only when the process is gone. The end of the pair, seen by the client, means
 * that nothing is lent, wanted or returned any more; a new SLABS begins anew, with offers.
 *
 * Threading: none of its own. Needs nothing but libc.
 */

#include "ipc/pass.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SLAB_PACKET_MAGIC   0x4c53564eu /* "NVSL" */
#define SLAB_PACKET_VERSION 1

#define SLAB_IDS_MAX  64   /* slabs a packet */
#define SLAB_NODE_MAX 1024 /* NUMA nodes have smaller numbers */
#define SLAB_WANT_MAX 2048 /* slabs a WANT, and in the pool of a node */

enum slab_type {
	/* from the client */
	SLAB_WANT,   /* n, node: it wants to have n more slabs of that NUMA node on loan */
	SLAB_OFFER,  /* n, node, ids, n descriptors: slabs that it has made, or has had on loan */
	SLAB_RETURN, /* n, ids: unmapped, with its own descriptors closed */
	SLAB_BAD,    /* n, ids: cannot be imported or mapped; nobody is to get them again */
	SLAB_UNMADE, /* n: it will not make so many of those that it may make */
	SLAB_UNUSED, /* bytes: of what it has on loan, held for nothing that cannot be dropped */

	/* from the scheduler */
	SLAB_LENT,     /* n, node, ids, n descriptors */
	SLAB_MAY_MAKE, /* n, node: none is free; make so many and offer them */
	SLAB_NONE,     /* n, node: so many are neither free nor allowed */
	SLAB_WANTED,   /* n: others lack so many now; return what is unused. 0: nobody lacks any */

	SLAB_TYPE_COUNT_
};

/* The sender of a packet. */
enum slab_sender { SLAB_FROM_CLIENT, SLAB_FROM_SCHEDULER };

struct slab_packet {
	uint32_t magic;
	uint16_t version;
	uint16_t type; /* enum slab_type */
	uint32_t n;
	uint32_t node; /* NUMA */
	uint64_t bytes;
	uint64_t ids[SLAB_IDS_MAX]; /* chosen at random by a slab's maker; not 0 */
};

/* Sets *ret to a packet of that type without ids; the caller sets ids and bytes. */
void slab_packet_init(struct slab_packet *ret, enum slab_type type, uint32_t n, uint32_t node);

/*
 * Whether len bytes with n_fds descriptors are a packet that sender may send: its size, numbers in
 * their ranges, no id 0 and none twice, as many descriptors as its type asks for, nothing in
 * unused fields. Safe with any bytes.
 */
bool slab_packet_check(const struct slab_packet *packet, size_t len, size_t n_fds,
		       enum slab_sender sender);

/* Sends packet with copies of n descriptors. 0 or -errno; -EAGAIN: the peer's buffer is full. */
int slab_packet_send(int fd, const struct slab_packet *packet, const int *fds, size_t n);

/*
 * Receives a packet of sender. 0: *ret is good. Else -errno: -EAGAIN: none now; -EPIPE: the end of
 * the pair; -EBADMSG: a wrong packet. Always sets *ret_pass, whose descriptors are the caller's
 * in any case.
 */
int slab_packet_recv(int fd, enum slab_sender sender, struct slab_packet *ret,
		     struct pass_many *ret_pass);

#endif
