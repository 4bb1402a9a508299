/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_HOST_H
#define NVS_DAEMON_HOST_H

/*
 * Host memory of all clients: who has how much, and who lacks some.
 *
 * Where host memory is short, all clients hear what others lack. A client that lacks some, or is
 * about to take some, also hears what others have.
 *
 * Threading: the loop's. All sizes are bytes.
 */

#include <stdbool.h>
#include <stdint.h>

struct server;
struct peer;

struct host {
	uint64_t bytes;                       /* nvshare_mem::host of all clients */
	uint64_t wanted;                      /* nvshare_mem::host_wanted of all clients */
	uint64_t bytes_before, wanted_before; /* before the report that is being taken */
	bool is_news;                         /* all are to hear of a change */
	struct peer *ready; /* peer::host_next: they were late, and read again; until host_tell() */
};

/* peer->mem leaves the sums of the node, to be changed; it comes back into them, cut to limits. */
void host_out(struct server *server, const struct peer *peer);
void host_in(struct server *server, struct peer *peer);

/*
 * Tells of changes; behind the messages that the reports themselves have led to. A client that does
 * not read at the moment is late. It costs nothing until it reads again.
 */
void host_tell(struct server *server);

/* The queue of peer, which is late, is empty again: host_tell() tells it. */
void host_reads(struct server *server, struct peer *peer);

/*
 * Host memory of all but peer, for a message to peer. is_taker: peer takes some from now on, and
 * hears of changes.
 */
uint64_t host_others(const struct server *server, struct peer *peer, bool is_taker);

/*
 * The bytes that all but from give back when they are asked, once the client in slot to has its
 * memory on the card (SCHED_NONE: nobody comes).
 */
uint64_t host_coming(const struct server *server, const struct peer *from, uint32_t to);

#endif
