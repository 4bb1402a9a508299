/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_TICKET_PROCESSES_H
#define NVS_DAEMON_TICKET_PROCESSES_H

/*
 * Processes that share memory by tickets, and their clients. The room asks about a process for each
 * ticket and each use of it, thousands of times. So a process knows its clients, and nobody looks
 * for them among all connections.
 *
 * A process may have several pairs: then it has several links.
 *
 * Ownership: the links of a process own it. Threading: the loop's.
 */

#include "daemon/tickets/tickets.h"

/* A step for each of so many tickets or uses takes as long as a message. */
#define TICKETS_A_MESSAGE 512

struct ticket_process {
	pid_t pid; /* 0 or less: not known, so it has no clients */
	uid_t uid;
	struct ticket_process *prev, *next; /* tickets::processes */
	struct ticket_link *links;          /* ticket_link::process_prev/next */
	struct peer *clients;               /* peer::ticket_prev/next */
	uint32_t n_clients;
	uint32_t n_at_work; /* clients with peer::is_at_work */
	uint32_t n_stops;   /* uses of its links for which it is paused */

	bool is_gang_known;
	uint32_t gang; /* of ticket_process_gang() */

	uint64_t looked; /* tickets::n_looks when ticket_work.c looked at its clients last */
	bool runs;       /* one of them runs */
	bool goes_on;    /* one of these must not be stopped */
};

/* link gets its process, with the clients that are there. false: there is no memory. */
bool ticket_process_enter(struct server *server, struct ticket_link *link);
/* link has no uses, and no process any more. */
void ticket_process_leave(struct server *server, struct ticket_link *link);

/* Of all processes; the server ends. */
void ticket_processes_free(struct tickets *tickets);

/* Any client that can be told something; NULL: there is none. */
struct peer *ticket_process_voice(const struct ticket_process *process);

/* The one gang of all its clients, as peer::gang; 0: none, or several. */
uint32_t ticket_process_gang(struct ticket_process *process);

#endif
