/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/tickets/tickets.h"

#include "core/u64.h"
#include "daemon/peers/process.h"
#include "daemon/server.h"
#include "daemon/tickets/ticket_uses.h"
#include "util/clock.h"
#include "util/container_of.h"
#include "util/fd.h"
#include "util/log.h"

#include <errno.h>
#include <fcntl.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define FDS_MAX  16384
#define FDS_PART 64 /* of the descriptors that the daemon may have */
#define OWN_PART 2  /* of those one process may have left so many */

/* Beside descriptors that were kept the reaper has room for those of some wrong packets. */
#define REAPER_SPARE (TICKET_LINKS_MAX + 4 * PASS_FDS_MAX)

static const struct quota_rate packet_rate = {CLOCK_NS_PER_SEC / 2000, 2000};
#define PACKET_COST 4 /* of a message */
#define PAUSE_NS    (10 * CLOCK_NS_PER_MS)

/*
 * Bytes; the kernel doubles the value. One answer is under way at a time, of less than 1 KiB. A
 * process that does not read keeps few descriptors on the way.
 */
#define SEND_BUFFER 8192

/* Owners bring their tickets to a new scheduler as soon as they hear of it. */
#define STARTING_NS (5 * CLOCK_NS_PER_SEC)

static int ticket_compare(const void *a, const void *b)
{
	return memcmp(a, b, TICKET_LEN);
}

static struct ticket *ticket_find(const struct tickets *tickets, const uint8_t id[TICKET_LEN])
{
	void *const *found = tfind(id, &tickets->by_id, ticket_compare);

	return found ? *(struct ticket *const *)found : NULL;
}

/* ---- ends ---------------------------------------------------------------------- */

/* A process's descriptor, which it has, too. serial: of the ticket that waits for it; 0: none. */
static void tickets_reap(struct server *server, int fd, uint32_t serial)
{
	server->tickets.n_closing++;
	reaper_take_shared(&server->tickets.reaper, fd, serial);
}

static struct ticket **ticket_closing_of(struct tickets *tickets, uint32_t serial)
{
	struct ticket **at = &tickets->closing;

	while (*at && (*at)->serial != serial)
		at = &(*at)->closing;
	return at;
}

static void ticket_one_closed(struct tickets *tickets, uint32_t serial)
{
	struct ticket **at = ticket_closing_of(tickets, serial), *ticket = *at;

	if (!serial || !ticket || --ticket->n_closing)
		return;
	*at = ticket->closing;
	ticket->closing = NULL;
}

/* Its owner waits until all of its descriptors are closed. */
static void ticket_close_all(struct server *server, struct ticket *ticket)
{
	struct tickets *tickets = &server->tickets;

	if (ticket->n_kept && !ticket->n_closing) {
		ticket->closing = tickets->closing;
		tickets->closing = ticket;
	}
	for (uint32_t i = 0; i < ticket->n_kept; i++)
		tickets_reap(server, ticket->fds[i], ticket->serial);
	ticket->n_closing += ticket->n_kept;
	ticket->n_kept = 0;
}

static void tickets_on_reaped(struct server *server, struct event_source *source, uint32_t events)
{
	uint32_t owner;

	(void)source;
	(void)events;
	while (reaper_done(&server->tickets.reaper, &owner)) {
		server->tickets.n_closing--;
		ticket_one_closed(&server->tickets, owner);
	}
}

static void ticket_end(struct server *server, struct ticket *ticket)
{
	struct tickets *tickets = &server->tickets;
	struct ticket_link *link = ticket->link;

	(void)tdelete(ticket, &tickets->by_id, ticket_compare);
	if (ticket->prev)
		ticket->prev->next = ticket->next;
	else
		link->tickets = ticket->next;
	if (ticket->next)
		ticket->next->prev = ticket->prev;
	if (ticket->n_closing)
		*ticket_closing_of(tickets, ticket->serial) = ticket->closing;
	for (uint32_t i = 0; i < ticket->n_kept; i++)
		tickets_reap(server, ticket->fds[i], 0);
	ticket_uses_drop(server, ticket);
	link->n_fds -= (uint32_t)ticket->memory.n_chunks;
	tickets->n_fds -= (uint32_t)ticket->memory.n_chunks;
	free(ticket);
}

static void tickets_close_pair(struct server *server, struct ticket_link *link)
{
	event_source_remove(&link->input);
	if (link->fd >= 0) {
		(void)shutdown(link->fd, SHUT_RDWR);
		server->tickets.n_closing++;
		reaper_take(&server->tickets.reaper, link->fd, 0);
	}
	link->fd = -1;
}

/*
 * Its memory stays until the batch is over: link is a place in an array. A process that lives on
 * without its pair has its memory mapped all the same. So the place is its own until it ends.
 */
static void tickets_leave(struct server *server, struct ticket_link *link, const char *reason,
			  bool is_ended)
{
	if (!link->is_used)
		return;
	while (link->tickets)
		ticket_end(server, link->tickets);
	tickets_close_pair(server, link);
	if (reason)
		server_log(server, link->owner, LOG_LEVEL_WARN, "tickets-end pid=%d uid=%u: %s",
			   (int)link->pid, (unsigned int)link->uid, reason);
	link->is_paused = false;
	link->is_over = link->uses && link->pidfd >= 0 && !is_ended;
	if (link->is_over)
		return;
	ticket_uses_leave(server, link, is_ended);
	event_source_remove(&link->end);
	link->pidfd = fd_close(link->pidfd);
	link->is_used = false;
}

static void tickets_cut(struct server *server, struct ticket_link *link, const char *reason)
{
	tickets_leave(server, link, reason, false);
}

static void tickets_on_end(struct server *server, struct event_source *source, uint32_t events)
{
	(void)events;
	tickets_leave(server, container_of(source, struct ticket_link, end), NULL, true);
}

/* ---- what a process says ---------------------------------------------------------- */

static void tickets_answer(struct server *server, struct ticket_link *link, enum ticket_type type,
			   enum ticket_reason reason, const uint8_t id[TICKET_LEN]);

static void tickets_send(struct server *server, struct ticket_link *link,
			 const struct ticket_packet *packet, const int *fds)
{
	int r = ticket_packet_send(link->fd, packet, fds);

	/* So many descriptors are under way to others, and they will arrive. */
	if (r == -ETOOMANYREFS) {
		tickets_answer(server, link, TICKET_NONE, TICKET_FULL, packet->ticket);
		return;
	}
	if (r)
		tickets_cut(server, link, r == -EPIPE ? NULL : "it does not read");
}

static void tickets_answer(struct server *server, struct ticket_link *link, enum ticket_type type,
			   enum ticket_reason reason, const uint8_t id[TICKET_LEN])
{
	struct ticket_packet packet;

	ticket_packet_init(&packet, type, id);
	packet.reason = reason;
	tickets_send(server, link, &packet, NULL);
}

static uint64_t tickets_fds_of(const struct tickets *tickets, uint32_t owner)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < TICKET_LINKS_MAX; i++) {
		if (tickets->links[i].is_used && tickets->links[i].owner == owner)
			n += tickets->links[i].n_fds;
	}
	return n;
}

/* NULL: there is no room for it, or for so many of one user that is not trusted. */
static struct ticket *ticket_new(struct server *server, struct ticket_link *link,
				 const struct ticket_packet *packet)
{
	struct tickets *tickets = &server->tickets;
	uint32_t n = (uint32_t)packet->memory.n_chunks;
	struct ticket *ticket;

	if ((uint64_t)tickets->n_fds + n > tickets->n_fds_max ||
	    (uint64_t)link->n_fds + n > tickets->n_fds_max / OWN_PART ||
	    (!users_is_trusted(link->owner) &&
	     tickets_fds_of(tickets, link->owner) + n > tickets->n_fds_max / 4 * 3))
		return NULL;
	ticket = calloc(1, sizeof(*ticket) + n * sizeof(ticket->fds[0]));
	if (!ticket)
		return NULL;
	memcpy(ticket->id, packet->ticket, TICKET_LEN);
	ticket->link = link;
	ticket->memory = packet->memory;
	ticket->told = TICKET_WORD_NONE;
	ticket->stays = packet->flags & TICKET_SEEN;
	if (!++tickets->last_serial)
		tickets->last_serial++;
	ticket->serial = tickets->last_serial;
	if (!tsearch(ticket, &tickets->by_id, ticket_compare)) {
		free(ticket);
		return NULL;
	}
	ticket->next = link->tickets;
	if (ticket->next)
		ticket->next->prev = ticket;
	link->tickets = ticket;
	link->n_fds += n;
	tickets->n_fds += n;
	return ticket;
}

static bool ticket_has(const struct ticket *ticket, const struct ticket_memory *memory)
{
	return memcmp(&ticket->memory, memory, sizeof(*memory)) == 0;
}

/*
 * found: what has the number already. Where it is the owner's own, the owner does not know that we
 * have it, or the bytes are in other memory now. Its uses stay.
 */
static struct ticket *ticket_begin(struct server *server, struct ticket_link *link,
				   const struct ticket_packet *packet, struct ticket *found)
{
	if (packet->first)
		return found;
	if (found && found->link == link && ticket_has(found, &packet->memory)) {
		ticket_close_all(server, found);
		found->stays = found->stays || packet->flags & TICKET_SEEN;
		return found;
	}
	if (found && found->link == link) {
		ticket_end(server, found);
		found = NULL;
	}
	return found ? found : ticket_new(server, link, packet);
}

/* Chunks come in order. Takes the descriptors of pass, if they are kept. */
static const char *tickets_on_deposit(struct server *server, struct ticket_link *link,
				      const struct ticket_packet *packet, struct pass_many *pass)
{
	struct ticket *ticket = ticket_find(&server->tickets, packet->ticket);

	ticket = ticket_begin(server, link, packet, ticket);
	if (!ticket) {
		tickets_answer(server, link, TICKET_NONE, TICKET_FULL, packet->ticket);
		return NULL;
	}
	if (ticket->link != link || ticket->n_kept != packet->first ||
	    !ticket_has(ticket, &packet->memory))
		return "it leaves memory that does not fit its ticket";
	memcpy(&ticket->fds[packet->first], pass->fds, packet->n * sizeof(pass->fds[0]));
	ticket->n_kept += packet->n;
	pass->n = 0;
	if (ticket->n_kept == ticket->memory.n_chunks) {
		ticket->is_out = false;
		ticket_uses_changed(server);
		log_debug("ticket pid=%d uid=%u bytes=%llu", (int)link->pid,
			  (unsigned int)link->uid, (unsigned long long)ticket->memory.size);
	}
	tickets_answer(server, link, TICKET_TAKEN, TICKET_REASON_NONE_, packet->ticket);
	return NULL;
}

static bool ticket_is_known_to(const struct ticket *ticket, const struct ticket_link *link)
{
	return (ticket->is_out || ticket->n_kept == ticket->memory.n_chunks) &&
	       ticket->link->uid == link->uid && ticket->link->owner == link->owner;
}

/* Libraries that know nothing of memory that is out ask again while a scheduler starts. */
static void tickets_answer_away(struct server *server, struct ticket_link *link,
				struct ticket *ticket)
{
	ticket_call(server, ticket);
	tickets_answer(server, link, TICKET_NONE, link->obeys ? TICKET_AWAY : TICKET_STARTING,
		       ticket->id);
}

static const char *tickets_on_open(struct server *server, struct ticket_link *link,
				   const struct ticket_packet *packet)
{
	struct ticket *ticket = ticket_find(&server->tickets, packet->ticket);
	struct ticket_packet answer;
	bool is_new = server->now_ns - server->started_ns < STARTING_NS;

	if (!ticket || !ticket_is_known_to(ticket, link)) {
		tickets_answer(server, link, TICKET_NONE, is_new ? TICKET_STARTING : TICKET_UNKNOWN,
			       packet->ticket);
		return NULL;
	}
	if (packet->first >= ticket->memory.n_chunks)
		return "it wants memory behind a ticket's end";
	if (ticket->is_out) {
		tickets_answer_away(server, link, ticket);
		return NULL;
	}
	/* A process that ends before the answer comes is no use any more, either way. */
	ticket_use_hold(server, ticket, link);
	ticket_packet_init(&answer, TICKET_MEMORY, packet->ticket);
	answer.memory = ticket->memory;
	answer.first = packet->first;
	answer.n = (uint32_t)u64_min(ticket->memory.n_chunks - packet->first, TICKET_FDS_MAX);
	tickets_send(server, link, &answer, &ticket->fds[packet->first]);
	return NULL;
}

/* A process that obeys hears that others have it open: what lies beside it stays on the card. */
static void tickets_on_withdraw(struct server *server, struct ticket_link *link,
				const struct ticket_packet *packet)
{
	struct ticket *ticket = ticket_find(&server->tickets, packet->ticket);
	bool is_held = false;

	if (ticket && ticket->link == link) {
		is_held = link->obeys && (ticket->uses || ticket->stays);
		ticket_end(server, ticket);
	}
	tickets_answer(server, link, is_held ? TICKET_NONE : TICKET_TAKEN,
		       is_held ? TICKET_HELD : TICKET_REASON_NONE_, packet->ticket);
}

/* The reaper's threads close the descriptors, so the owner asks again until they have. */
static void tickets_on_move(struct server *server, struct ticket_link *link,
			    const struct ticket_packet *packet)
{
	struct ticket *ticket = ticket_find(&server->tickets, packet->ticket);
	enum ticket_reason reason = TICKET_UNKNOWN;

	if (ticket && ticket->link == link)
		reason = ticket_take(server, ticket);
	if (reason == TICKET_REASON_NONE_) {
		ticket_close_all(server, ticket);
		reason = ticket->n_closing ? TICKET_HELD : TICKET_REASON_NONE_;
	}
	tickets_answer(server, link, reason ? TICKET_NONE : TICKET_TAKEN, reason, packet->ticket);
}

/* A scheduler that has restarted hears of tickets whose bytes are out. */
static void tickets_on_out(struct server *server, struct ticket_link *link,
			   const struct ticket_packet *packet)
{
	struct ticket *ticket =
		ticket_begin(server, link, packet, ticket_find(&server->tickets, packet->ticket));

	if (!ticket || ticket->link != link) {
		tickets_answer(server, link, TICKET_NONE, TICKET_FULL, packet->ticket);
		return;
	}
	ticket->is_out = true;
	ticket_uses_changed(server);
	tickets_answer(server, link, TICKET_TAKEN, TICKET_REASON_NONE_, packet->ticket);
}

static void tickets_on_unmapped(struct server *server, struct ticket_link *link,
				const struct ticket_packet *packet)
{
	struct ticket *ticket = ticket_find(&server->tickets, packet->ticket);

	if (ticket && packet->type == TICKET_PARK)
		ticket_use_park(ticket, link);
	else if (ticket)
		ticket_use_close(server, ticket, link);
	tickets_answer(server, link, TICKET_TAKEN, TICKET_REASON_NONE_, packet->ticket);
}

/* A text that says what is wrong about the packet; NULL: nothing is. */
static const char *tickets_on_packet(struct server *server, struct ticket_link *link,
				     const struct ticket_packet *packet, struct pass_many *pass)
{
	link->obeys = link->obeys || packet->flags & TICKET_OBEYS;
	switch ((enum ticket_type)packet->type) {
	case TICKET_DEPOSIT:
		return tickets_on_deposit(server, link, packet, pass);
	case TICKET_OPEN:
		return tickets_on_open(server, link, packet);
	case TICKET_WITHDRAW:
		tickets_on_withdraw(server, link, packet);
		return NULL;
	case TICKET_MOVE:
		tickets_on_move(server, link, packet);
		return NULL;
	case TICKET_OUT:
		tickets_on_out(server, link, packet);
		return NULL;
	case TICKET_PARK:
	case TICKET_CLOSE:
		tickets_on_unmapped(server, link, packet);
		return NULL;
	case TICKET_TAKEN:
	case TICKET_MEMORY:
	case TICKET_NONE:
	case TICKET_TYPE_COUNT_:
		break; /* ticket_packet_check() takes none of these from a program */
	}
	return "a wrong packet about tickets";
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
	struct tickets *tickets = &server->tickets;

	if (tickets_have_room(tickets) &&
	    !quota_take(&link->quota, &packet_rate, 1, server->now_ns) &&
	    (users_is_trusted(link->owner) ||
	     !quota_take_of(&server->flow.quota, link->owner, QUOTA_MESSAGES, PACKET_COST,
			    server->now_ns)))
		return true;
	link->is_paused = true;
	(void)event_source_update(&link->input, 0);
	if (!deadline_is_set(&tickets->resume))
		deadline_set(&server->deadlines, &tickets->resume, server->now_ns + PAUSE_NS);
	return false;
}

static void tickets_on_resume(struct server *server, struct deadline *deadline)
{
	(void)deadline;
	for (uint32_t i = 0; i < TICKET_LINKS_MAX; i++) {
		struct ticket_link *link = &server->tickets.links[i];

		if (!link->is_used || !link->is_paused)
			continue;
		link->is_paused = false;
		(void)event_source_update(&link->input, EPOLLIN);
	}
}

/* One packet a turn, so that others are heard in between. */
static void tickets_on_input(struct server *server, struct event_source *source, uint32_t events)
{
	struct ticket_link *link = container_of(source, struct ticket_link, input);
	struct ticket_packet packet;
	const char *wrong = NULL;
	struct pass_many pass;
	int r;

	/* A paused process that has hung up is not waited for. */
	if (link->is_paused && events & (EPOLLHUP | EPOLLERR)) {
		tickets_cut(server, link, NULL);
		return;
	}
	if (!tickets_may_read(server, link))
		return;
	r = ticket_packet_recv(link->fd, TICKET_FROM_PROGRAM, &packet, &pass);
	if (!r)
		wrong = tickets_on_packet(server, link, &packet, &pass);
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

/* *ret_theirs is the process's end, to be closed after it was sent. */
static bool tickets_make_pair(struct ticket_link *link, int *ret_theirs)
{
	const int on = 1, size = SEND_BUFFER;
	int fds[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) < 0)
		return false;
	link->fd = fds[0];
	*ret_theirs = fds[1];
	/* The reaper finds the end of what was sent by the sender that each packet names. */
	return setsockopt(fds[0], SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) == 0 &&
	       setsockopt(fds[0], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size)) == 0;
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
	if (!tickets_make_pair(link, &theirs) ||
	    (link->pidfd >= 0 &&
	     event_source_add(&server->poller, &link->end, link->pidfd, EPOLLIN, tickets_on_end)) ||
	    event_source_add(&server->poller, &link->input, link->fd, EPOLLIN, tickets_on_input))
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
		.fd = -1,
		.pidfd = -1,
		.is_used = true,
		.pid = peer->cred.pid,
		.uid = peer->cred.uid,
		.owner = peer->pod.owner,
	};
	if (!tickets_introduce(server, peer, link, seq))
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

	tickets->resume.on_due = tickets_on_resume;
	tickets->settle.on_due = ticket_uses_on_due;
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
			ticket_uses_drop(server, ticket);
			(void)tdelete(ticket, &tickets->by_id, ticket_compare);
			free(ticket);
		}
	}
	reaper_deinit(&tickets->reaper);
	free(tickets->links);
}
