/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/tickets/ticket_requests.h"

#include "core/u64.h"
#include "daemon/server.h"
#include "daemon/tickets/ticket_uses.h"
#include "util/clock.h"
#include "util/log.h"

#include <errno.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>

#define OWN_PART 2 /* of those one process may have left so many */

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

static struct ticket **ticket_closing_of(struct tickets *tickets, uint32_t serial)
{
	struct ticket **at = &tickets->closing;

	while (*at && (*at)->serial != serial)
		at = &(*at)->closing;
	return at;
}

void ticket_one_closed(struct tickets *tickets, uint32_t serial)
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

void ticket_free(struct server *server, struct ticket *ticket)
{
	ticket_uses_drop(server, ticket);
	(void)tdelete(ticket, &server->tickets.by_id, ticket_compare);
	free(ticket);
}

void ticket_end(struct server *server, struct ticket *ticket)
{
	struct tickets *tickets = &server->tickets;
	struct ticket_link *link = ticket->link;

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
	link->n_fds -= (uint32_t)ticket->memory.n_chunks;
	tickets->n_fds -= (uint32_t)ticket->memory.n_chunks;
	ticket_free(server, ticket);
}

/* ---- what a process asks for ------------------------------------------------------ */

static void tickets_answer(struct server *server, struct ticket_link *link, enum ticket_type type,
			   enum ticket_reason reason, const uint8_t id[TICKET_LEN]);

static void tickets_send(struct server *server, struct ticket_link *link,
			 const struct ticket_packet *packet, const int *fds)
{
	int r = ticket_packet_send(link->pair.fd, packet, fds);

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
		found->is_out = true; /* openers wait until all of it has come */
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
	       ticket->link->sender == link->sender && ticket->link->owner == link->owner;
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

const char *ticket_request(struct server *server, struct ticket_link *link,
			   const struct ticket_packet *packet, struct pass_many *pass)
{
	link->sender = pass->uid;
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
