/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/tickets/tickets.h"

#include "core/u64.h"
#include "daemon/peers/process.h"
#include "daemon/server.h"
#include "daemon/tickets/ticket_processes.h"
#include "daemon/tickets/ticket_requests.h"
#include "daemon/tickets/ticket_uses.h"
#include "daemon/tickets/ticket_work.h"
#include "util/clock.h"
#include "util/container_of.h"
#include "util/fd.h"
#include "util/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

#define FDS_MAX  16384
#define FDS_PART 64 /* of the descriptors that the daemon may have */

/* Beside descriptors that were kept the reaper has room for those of some wrong packets. */
#define REAPER_SPARE (TICKET_LINKS_MAX + 4 * PASS_FDS_MAX)

static const struct quota_rate packet_rate = {CLOCK_NS_PER_SEC / 2000, 2000};

/*
 * Bytes; the kernel doubles the value. One answer is under way at a time, of less than 1 KiB. A
 * process that does not read keeps few descriptors on the way.
 */
#define SEND_BUFFER 8192

/* ---- ends ---------------------------------------------------------------------- */

void tickets_reap(struct server *server, int fd, uint32_t serial)
{
	server->tickets.n_closing++;
	reaper_take_shared(&server->tickets.reaper, fd, serial);
}

static void tickets_on_reaped(void *context, struct event_source *source, uint32_t events)
{
	struct server *server = context;
	uint32_t owner;

	(void)source;
	(void)events;
	while (reaper_done(&server->tickets.reaper, &owner)) {
		server->tickets.n_closing--;
		ticket_one_closed(&server->tickets, owner);
	}
}

/*
 * Its memory stays until the batch is over: link is a place in an array. A process that lives on
 * without its pair has its memory mapped all the same. So the place is its own until it ends.
 */
static void tickets_leave(struct server *server, struct ticket_link *link, const char *reason,
			  bool is_ended)
{
	int fd;

	if (!link->is_used)
		return;
	while (link->tickets)
		ticket_end(server, link->tickets);
	fd = packet_pair_cut(server, &link->pair);
	if (fd >= 0) {
		server->tickets.n_closing++;
		reaper_take(&server->tickets.reaper, fd, 0);
	}
	if (reason)
		server_log(server, link->owner, LOG_LEVEL_WARN, "tickets-end pid=%d uid=%u: %s",
			   (int)link->pid, (unsigned int)link->uid, reason);
	link->is_over = link->uses && link->pidfd >= 0 && !is_ended;
	ticket_uses_changed(server);
	if (link->is_over)
		return;
	ticket_uses_leave(server, link, is_ended);
	ticket_process_leave(server, link);
	event_source_remove(&link->end);
	link->pidfd = fd_close(link->pidfd);
	link->is_used = false;
}

void tickets_cut(struct server *server, struct ticket_link *link, const char *reason)
{
	tickets_leave(server, link, reason, false);
}

static void tickets_on_end(void *context, struct event_source *source, uint32_t events)
{
	struct server *server = context;
	(void)events;
	tickets_leave(server, container_of(source, struct ticket_link, end), NULL, true);
}

/*
 * Where too many descriptors wait to be closed, no more of them are taken: the reaper has room for
 * all that are kept, all ends of pairs, and those of one packet.
 */
static bool tickets_have_room(const struct tickets *tickets)
{
	return tickets->n_fds + tickets->n_closing + TICKET_LINKS_MAX + PASS_FDS_MAX <=
	       tickets->n_fds_max + REAPER_SPARE;
}

static bool tickets_may_read(struct server *server, struct ticket_link *link)
{
	if (tickets_have_room(&server->tickets))
		return packet_pair_admit(server, &link->pair, &packet_rate, link->owner);
	packet_pair_pause(server, &link->pair);
	return false;
}

/* One packet a turn, so that others are heard in between. */
static void tickets_on_input(void *context, struct event_source *source, uint32_t events)
{
	struct server *server = context;
	struct ticket_link *link = container_of(source, struct ticket_link, pair.input);
	struct ticket_packet packet;
	const char *wrong = NULL;
	struct pass_many pass;
	int r;

	/* A paused process that has hung up is not waited for. */
	if (link->pair.is_paused && events & (EPOLLHUP | EPOLLERR)) {
		tickets_cut(server, link, NULL);
		return;
	}
	if (!tickets_may_read(server, link))
		return;
	r = ticket_packet_recv(link->pair.fd, TICKET_FROM_PROGRAM, &packet, &pass);
	if (!r)
		wrong = ticket_request(server, link, &packet, &pass);
	else if (r == -EBADMSG)
		wrong = "a wrong packet about tickets";
	for (size_t i = 0; i < pass.n; i++)
		tickets_reap(server, pass.fds[i], 0);
	if (wrong || (r && r != -EAGAIN))
		tickets_cut(server, link, wrong);
}

/* ---- a new process ---------------------------------------------------------------- */

/* A user that is not trusted leaves a quarter of the places to others. NULL: there is none. */
static struct ticket_link *tickets_free_link(struct tickets *tickets, uint32_t owner)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < TICKET_LINKS_MAX; i++)
		n += tickets->links[i].is_used && tickets->links[i].owner == owner;
	if (!tickets_have_room(tickets) ||
	    (n >= TICKET_LINKS_MAX / 4 * 3 && !users_is_trusted(owner)))
		return NULL;
	for (uint32_t i = 0; i < TICKET_LINKS_MAX; i++) {
		if (!tickets->links[i].is_used)
			return &tickets->links[i];
	}
	return NULL;
}

static bool tickets_introduce(struct server *server, struct peer *peer, struct ticket_link *link,
			      uint32_t seq)
{
	const struct nvshare_empty empty = {{0}};
	FD_CLEANUP int theirs = -1;
	struct msg msg;

	/* A process without its pair may have memory open until it ends. */
	if (peer->pidfd >= 0)
		link->pidfd = fcntl(peer->pidfd, F_DUPFD_CLOEXEC, 0);
	else if (peer->cred.pid > 0)
		link->pidfd = process_hold(peer->fd, peer->cred.pid);
	if (link->pidfd < 0)
		link->pidfd = -1;
	if (packet_pair_open(server, &link->pair, SEND_BUFFER, tickets_on_input, &theirs) ||
	    (link->pidfd >= 0 &&
	     event_source_add(&server->poller, &link->end, link->pidfd, EPOLLIN, tickets_on_end)))
		return false;
	(void)msg_encode(NVSHARE_MSG_TICKET_PAIR, seq, &empty, &msg);
	return peer_pass(peer, &msg, theirs) == 0;
}

void tickets_join(struct server *server, struct peer *peer, uint32_t seq)
{
	struct ticket_link *link = tickets_free_link(&server->tickets, peer->pod.owner);

	if (!link) {
		tools_answer(server, peer, seq, NVSHARE_RESULT_BUSY,
			     "too many programs share GPU memory already (%u at most, and fewer of "
			     "one user)",
			     TICKET_LINKS_MAX);
		return;
	}
	*link = (struct ticket_link){
		.pair.fd = -1,
		.pidfd = -1,
		.is_used = true,
		.pid = peer->cred.pid,
		.uid = peer->cred.uid,
		.owner = peer->pod.owner,
	};
	if (!ticket_process_enter(server, link) || !tickets_introduce(server, peer, link, seq))
		tickets_cut(server, link, "its pair for tickets could not be made");
}

/* ---- all of it ---------------------------------------------------------------------- */

uint32_t tickets_fds(uint64_t n_fds)
{
	return (uint32_t)u64_min(n_fds / FDS_PART, FDS_MAX);
}

int tickets_open(struct server *server)
{
	struct tickets *tickets = &server->tickets;
	int r;

	tickets->settle.on_due = ticket_uses_on_due;
	tickets->stops.on_due = ticket_work_on_due;
	tickets->links = calloc(TICKET_LINKS_MAX, sizeof(*tickets->links));
	if (!tickets->links)
		return -ENOMEM;
	r = reaper_init(&tickets->reaper, tickets->n_fds_max + REAPER_SPARE);
	if (r)
		return r;
	return event_source_add(&server->poller, &tickets->reaped, tickets->reaper.event_fd,
				EPOLLIN, tickets_on_reaped);
}

void tickets_close(struct server *server)
{
	struct tickets *tickets = &server->tickets;

	for (uint32_t i = 0; tickets->links && i < TICKET_LINKS_MAX; i++) {
		struct ticket *ticket = tickets->links[i].tickets, *next;

		for (; ticket; ticket = next) {
			next = ticket->next;
			ticket_free(server, ticket);
		}
	}
	reaper_deinit(&tickets->reaper);
	ticket_processes_free(tickets);
	free(tickets->links);
}
