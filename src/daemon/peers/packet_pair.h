/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_PACKET_PAIR_H
#define NVS_DAEMON_PACKET_PAIR_H

/*
 * A pair of sockets that a program gets beside its connection, for packets with descriptors
 * (ipc/slab_packet.h, ipc/ticket_packet.h). Its connection refuses descriptors.
 *
 * A program that sends too fast waits: the loop does not read its pair for a while. The packets
 * count as messages of the program's user, too (daemon/peers/quota.h).
 *
 * Ownership: the owner's memory must outlive the batch in which the pair is cut
 * (util/event_source.h). Threading: the loop's.
 */

#include "daemon/deadlines.h"
#include "daemon/peers/quota.h"
#include "util/event_source.h"

#include <stdbool.h>
#include <stdint.h>

struct server;

struct packet_pair {
	struct event_source input; /* fd; the owner finds itself by it */
	int fd;                    /* our end; -1: cut, or none */
	bool is_paused;            /* it is on packet_pairs::paused */
	struct packet_pair *prev, *next;
	struct quota_bucket quota;
};

struct packet_pairs {
	struct packet_pair *paused; /* utlist */
	struct deadline resume;     /* all of them are read again */
};

/* Before the first pair. */
void packet_pairs_init(struct server *server);

/*
 * pair: zeroed, but for fd, which is -1. *ret_theirs is the program's end, to be closed after it
 * was sent. size: of the buffer that the kernel keeps for us, half of what it allows. 0 or -errno;
 * cut it all the same.
 */
int packet_pair_open(struct server *server, struct packet_pair *pair, int size,
		     event_source_fn *on_input, int *ret_theirs);

/* Whether a packet may be read now, as rate allows owner. false: the pair is paused. */
bool packet_pair_admit(struct server *server, struct packet_pair *pair,
		       const struct quota_rate *rate, uint32_t owner);

/* The pair is not read before some time has passed. */
void packet_pair_pause(struct server *server, struct packet_pair *pair);

/*
 * Ends the pair. Returns our end for a reaper, because a packet in its queue may hold a descriptor
 * that hangs; -1: there is none. Nothing happens to a pair that is cut.
 */
int packet_pair_cut(struct server *server, struct packet_pair *pair);

#endif
