/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_LENDING_H
#define NVS_DAEMON_LENDING_H

/*
 * Slabs of host memory that clients borrow and return (ipc/slab_packet.h). The core decides
 * (core/pool/pool.h); this room keeps the descriptors, speaks to the borrowers, and sees when the
 * slabs of a dead one may be lent again.
 *
 * lending.c: borrowers, and what they say; lending_ends.c: their ends, and slabs that leave.
 *
 * Threading: the loop's; reapers close descriptors.
 */

#include "core/pool/pool.h"
#include "daemon/deadlines.h"
#include "daemon/peers/domain.h"
#include "daemon/peers/packet_pair.h"
#include "daemon/peers/reaper.h"
#include "daemon/pool/slab_room.h"
#include "ipc/slab_packet.h"
#include "util/event_source.h"

#include <stdbool.h>
#include <stdint.h>

#define LENDING_DOMAINS 64

struct server;
struct peer;

/* A borrower, as the daemon has it; at its place in core/pool. */
struct lending_link {
	struct packet_pair pair;
	struct event_source end; /* pidfd */
	int pidfd;
	bool is_used;
	bool is_ended; /* its process is gone; the driver may still use its memory */
	pid_t pid;
	uid_t uid;
	uint32_t owner;                  /* peer::pod.owner */
	uint32_t client;                 /* peer::id */
	uint32_t peer;                   /* its slot; POOL_NONE: it has left */
	char group[SLAB_ROOM_GROUP_LEN]; /* control group; "": it has none */
};

struct lending {
	struct pool *pool;
	uint32_t n_fds;             /* of lending_fds() */
	int *fds;                   /* by slab; -1: none */
	struct lending_link *links; /* by borrower */
	struct domain *domains;
	bool is_domain[LENDING_DOMAINS]; /* the place is taken */
	uint64_t slab_bytes;             /* 0: not known yet */
	uint64_t last_process;           /* pool_borrower::process */
	uint32_t n_quiet;                /* looks in a row that found no contention */
	uint64_t told_bytes;             /* lending_bytes(), as clients were told */
	struct deadline lack;            /* what was lacked is forgotten */
	struct deadline look;            /* for contention, while slabs are ready */
	struct deadline ends;            /* for the driver, while borrowers have ended */
	struct reaper slabs;
	struct reaper strange; /* descriptors that are no slabs, and ends of pairs */
	struct event_source slabs_reaped, strange_reaped;
	uint32_t n_slabs_reaped, n_strange; /* under way */
};

/* For the status. All but the number in bytes. */
struct lending_sums {
	uint64_t lent, ready;
	uint64_t limit; /* UINT64_MAX: none */
	uint32_t n_borrowers;
};

/* Of n_fds descriptors of the process, those that the pool may have; before lending_open(). */
uint64_t lending_fds(uint64_t n_fds);

/* 0 or -errno. Needs lending::n_fds. */
int lending_open(struct server *server);
void lending_close(struct server *server);

/* peer has sent BORROW. */
void lending_borrow(struct server *server, struct peer *peer);

/* peer's connection has ended. */
void lending_forget(struct server *server, struct peer *peer);

/* The limit, or what clients have of it, has changed; or somebody without slabs lacks memory. */
void lending_update(struct server *server);

/*
 * Bytes of all slabs; and of those that client from may come to have while client to brings its
 * memory in: those that are ready, what others have and do not need, and all that to has. For the
 * messages about host memory, and both are an estimate: slabs stay in their domain.
 */
uint64_t lending_bytes(const struct server *server);
uint64_t lending_coming_bytes(const struct server *server, uint32_t from, uint32_t to);

void lending_sums(const struct server *server, struct lending_sums *ret);

/* ---- within the room ----------------------------------------------------------- */

/* The pair of link is over, with a line in the log; reason: NULL: it has ended by itself. */
void lending_cut(struct server *server, struct lending_link *link, const char *reason);

/* The process of link is gone. */
void lending_on_end(void *context, struct event_source *source, uint32_t events);

/* After the core has changed: closes what leaves, tells who is asked, sets deadlines. */
void lending_settle(struct server *server);

void lending_reap_slab(struct server *server, int fd);
void lending_reap_strange(struct server *server, int fd);
int lending_open_ends(struct server *server);

/* Looks for contention from now on, while slabs are ready. */
void lending_watch(struct server *server);

#endif
