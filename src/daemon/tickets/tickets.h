/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_TICKETS_H
#define NVS_DAEMON_TICKETS_H

/*
 * GPU memory that processes share by tickets (ipc/ticket_packet.h). The scheduler keeps the
 * descriptors that owners have left, and gives copies to processes of the same user: the same
 * uid, and where pods are concerned the same namespace of Kubernetes. It never looks into a
 * descriptor, and the reaper closes them, since they may be of any kind.
 *
 * tickets.c: pairs of processes and their ends; ticket_processes.c: the clients of these processes;
 * ticket_requests.c: the tickets, and what packets ask for; ticket_uses.c: who has them open.
 * Memory that only one gang has open may leave the card.
 *
 * A ticket ends when its owner withdraws it, or when the owner's pair or process ends. Memory that
 * others have opened by then stays theirs: they have descriptors, or mappings, of their own.
 *
 * Threading: the loop's; a reaper closes descriptors.
 */

#include "daemon/deadlines.h"
#include "daemon/peers/packet_pair.h"
#include "daemon/peers/reaper.h"
#include "ipc/ticket_packet.h"
#include "util/event_source.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define TICKET_LINKS_MAX 1024 /* processes that share memory */

struct server;
struct peer;
struct ticket;
struct ticket_use;
struct ticket_process;

/* A pair of a process. */
struct ticket_link {
	struct packet_pair pair;
	struct event_source end; /* pidfd */
	int pidfd;               /* -1: none; the pair alone tells of the end */
	bool is_used;
	bool is_over; /* its pair has ended, and its process has not; it has memory open */
	bool obeys;   /* it has sent TICKET_OBEYS */
	pid_t pid;
	uid_t uid;              /* when it connected */
	uid_t sender;           /* of its last packet: a process may give up its rights */
	uint32_t owner;         /* peer::pod.owner */
	uint32_t n_fds;         /* that are kept, or promised, for its tickets */
	struct ticket *tickets; /* its own */
	struct ticket_use *uses;
	uint32_t n_used; /* its tickets that may move, and that others at work have open */
	struct ticket_process *process;
	struct ticket_link *process_prev, *process_next; /* ticket_process::links */
};

struct tickets {
	uint32_t n_fds_max; /* of tickets_fds() */
	uint32_t n_fds;     /* that are kept, or promised */
	uint32_t n_closing; /* descriptors that the reaper has */
	struct ticket_link *links;
	struct ticket_process *processes;
	void *by_id; /* tsearch() */
	uint32_t last_serial;
	struct ticket
		*closing; /* those with descriptors at the reaper that their owners wait for */
	uint32_t n_uses;
	uint64_t n_looks;       /* how often ticket_work.c has looked at processes */
	struct deadline settle; /* owners hear whether their memory may move */
	uint32_t n_stops;       /* uses for which a process is paused */
	struct deadline stops;  /* n_stops > 0: those go on whose owners have given up */
	struct reaper reaper;
	struct event_source reaped;
};

/* Of n_fds descriptors of the process, those that tickets may have; before tickets_open(). */
uint32_t tickets_fds(uint64_t n_fds);

/* 0 or -errno. Needs tickets::n_fds_max. */
int tickets_open(struct server *server);
void tickets_close(struct server *server);

/* peer has become a client. */
void tickets_client_joined(struct server *server, struct peer *peer);
/* peer, a client, is in another gang from now on, or ends. */
void tickets_client_changed(struct server *server, struct peer *peer);
/* peer ends; the core has heard of it. */
void tickets_client_left(struct peer *peer);

/* peer, a tool, has sent TICKETS: it gets its end of a new pair, or a RESULT that says why not. */
void tickets_join(struct server *server, struct peer *peer, uint32_t seq);

/* ---- within the room ----------------------------------------------------------- */

/* The pair of link is over, with a line in the log; reason: NULL: it has ended by itself. */
void tickets_cut(struct server *server, struct ticket_link *link, const char *reason);

/* A process's descriptor, which it has, too. serial: of the ticket that waits for it; 0: none. */
void tickets_reap(struct server *server, int fd, uint32_t serial);

#endif
