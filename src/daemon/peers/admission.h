/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_ADMISSION_H
#define NVS_DAEMON_ADMISSION_H

/*
 * Admission of connections: accepting, turning away, and connections that say nothing.
 *
 * A connection that is turned away stays until its first message, so that the answer can be one
 * that its sender expects: a program is told that it is one too many, a tool that the scheduler
 * is busy. Where even that is too much, the connection is closed.
 *
 * Threading: the loop's. The reaper has threads of its own.
 */

#include "daemon/deadlines.h"
#include "daemon/peers/reaper.h"
#include "ipc/listener.h"
#include "ipc/msg.h"
#include "util/event_source.h"

#include <stdbool.h>
#include <stdint.h>

#define ADMISSION_STRAYS_MAX 256 /* turned away without an answer, and not closed yet */

struct server;
struct peer;

struct admission {
	struct listener listener;
	struct event_source accepting; /* not watched while the listener rests */
	struct event_source folder;    /* the listener's: its socket may be removed */
	struct deadline look;          /* where the folder cannot be watched, or a name is taken */
	int lost_r;                    /* -errno or LISTENER_E_*: the socket is gone for good */
	struct deadline rest;          /* the listener listens again; not set: it listens */
	struct reaper reaper;          /* used only where listener.takes_rights */
	struct event_source reaped;
	uint32_t n_strays;  /* connections without a slot that the reaper has */
	int spare_fd;       /* given up for a moment when descriptors run out */
	struct peer *fresh; /* utlist, peer::fresh_prev/next, in the order in which they came */
	struct deadline silence; /* the first of fresh is closed */
};

/* listener is open. 0 or -errno. */
int admission_open(struct server *server);

/* Accepts those that wait, so many a round. */
void admission_accept(struct server *server);

/*
 * peer has sent its first message, msg, or another one. false: peer is turned away, has its
 * answer, and is marked as closing.
 */
bool admission_hear(struct server *server, struct peer *peer, const struct msg *msg);

/*
 * The end of a peer that no poller watches any more: its socket is closed and its slot is free,
 * now or when the reaper could close the socket.
 */
void admission_leave(struct server *server, struct peer *peer);

#endif
