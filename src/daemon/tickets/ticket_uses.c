/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/tickets/ticket_uses.h"

#include "daemon/server.h"
#include "daemon/tickets/ticket_processes.h"
#include "daemon/tickets/ticket_work.h"
#include "util/clock.h"
#include "util/log.h"

#include <stdlib.h>
#include <string.h>

/* A process may leave so many words unanswered; each ticket has its own. */
#define WORD_AGAIN_NS (200 * CLOCK_NS_PER_MS)

/* Gangs change one member at a time, and owners need not hear of each step. */
#define SETTLE_NS (20 * CLOCK_NS_PER_MS)
/* Nothing tells that the members of a gang fit together again. */
#define APART_NS CLOCK_NS_PER_SEC

/* Beyond these a use is not noted, and its ticket stays. */
#define USES_MAX 65536

/* ---- words -------------------------------------------------------------------------- */

/* Any connection of the process serves. NULL: it has none. */
static struct peer *link_voice(const struct ticket_link *link)
{
	return link->obeys ? ticket_process_voice(link->process) : NULL;
}

/* A user pays for the words, too: a change of a gang may cause one for each of its tickets. */
static void peer_say(struct server *server, struct peer *peer, const struct ticket *ticket,
		     const struct ticket_link *link, uint32_t word)
{
	struct nvshare_ticket_word body = {
		.word = word,
		.flags = link->n_used > 0 ? NVSHARE_TICKET_USED : 0,
	};

	memcpy(body.ticket, ticket->id, TICKET_LEN);
	server_send_body(server, peer, NVSHARE_MSG_TICKET_WORD, 0, &body);
	flow_charge(server, peer, 1);
	log_debug("ticket-word pid=%d word=%u bytes=%llu", (int)link->pid, (unsigned int)word,
		  (unsigned long long)ticket->memory.size);
}

/*
 * There may be thousands of tickets, and a socket takes some hundred words: more would close the
 * connection. false: the process has not read so many yet, or has no connection.
 */
static bool ticket_say(struct server *server, const struct ticket *ticket,
		       const struct ticket_link *link, uint32_t word)
{
	struct peer *peer = link_voice(link);

	if (!peer || peer->queue_len > 0)
		return false;
	peer_say(server, peer, ticket, link, word);
	return true;
}

/* ---- gangs -------------------------------------------------------------------------- */

enum ticket_fate { TICKET_FATE_STAYS, TICKET_FATE_APART, TICKET_FATE_MOVES };

/*
 * Members that do not fit together take turns one by one, so one may run while another is out.
 * Each look at all tickets, and each MOVE, asks this.
 */
static enum ticket_fate ticket_fate(const struct server *server, const struct ticket *ticket)
{
	bool goes_on = false;
	uint32_t gang;

	if (ticket->stays || !ticket->link->obeys)
		return TICKET_FATE_STAYS;
	gang = ticket_process_gang(ticket->link->process);
	if (!gang)
		return TICKET_FATE_STAYS;
	for (const struct ticket_use *use = ticket->uses; use; use = use->next) {
		/* One without its pair cannot say that it has parked. */
		if (!use->link->obeys || (use->is_held && use->link->is_over) ||
		    ticket_process_gang(use->link->process) != gang)
			return TICKET_FATE_STAYS;
		goes_on = goes_on || (use->is_held && ticket_work_goes_on(server, use));
	}
	return goes_on || sched_gang_is_apart(&server->sched, gang - 1) ? TICKET_FATE_APART
									: TICKET_FATE_MOVES;
}

/* false: its owner reads too slowly, and is to be told later. */
static bool ticket_tell(struct server *server, struct ticket *ticket, uint32_t word)
{
	if (ticket->told == word)
		return true;
	if (!ticket_say(server, ticket, ticket->link, word))
		return !link_voice(ticket->link);
	ticket_work_told(server, ticket, word);
	return true;
}

/*
 * With the word of any of its tickets. Before that may move its owner need not know. The word goes
 * out behind others, since it is one for all tickets, and nobody says it again.
 */
void ticket_uses_tell_used(struct server *server, const struct ticket_link *link)
{
	const struct ticket *ticket = link->tickets;
	struct peer *peer = link_voice(link);

	while (ticket && ticket->told != NVSHARE_TICKET_MOVES)
		ticket = ticket->next;
	if (ticket && peer)
		peer_say(server, peer, ticket, link, NVSHARE_TICKET_MOVES);
}

void ticket_uses_on_due(struct server *server, struct deadline *deadline)
{
	bool is_apart = false, is_all_told = true;

	ticket_work_look(server);
	for (uint32_t i = 0; i < TICKET_LINKS_MAX; i++) {
		struct ticket_link *link = &server->tickets.links[i];

		if (!link->is_used)
			continue;
		for (struct ticket *ticket = link->tickets; ticket; ticket = ticket->next) {
			enum ticket_fate fate = ticket_fate(server, ticket);

			is_apart = is_apart || fate == TICKET_FATE_APART;
			is_all_told &=
				ticket_tell(server, ticket,
					    fate == TICKET_FATE_MOVES ? NVSHARE_TICKET_MOVES
								      : NVSHARE_TICKET_STAYS);
		}
	}
	if (!is_all_told)
		ticket_uses_changed(server);
	else if (is_apart)
		deadline_set(&server->deadlines, deadline, server->now_ns + APART_NS);
}

void ticket_uses_changed(struct server *server)
{
	uint64_t at_ns = server->now_ns + SETTLE_NS;

	if (deadline_at(&server->tickets.settle) > at_ns)
		deadline_set(&server->deadlines, &server->tickets.settle, at_ns);
}

/* ---- uses --------------------------------------------------------------------------- */

static struct ticket_use **ticket_use_of(struct ticket *ticket, const struct ticket_link *link)
{
	struct ticket_use **at = &ticket->uses;

	while (*at && (*at)->link != link)
		at = &(*at)->next;
	return at;
}

static struct ticket_use *ticket_use_new(struct server *server, struct ticket *ticket,
					 struct ticket_link *link)
{
	struct ticket_use *use;

	if (server->tickets.n_uses == USES_MAX)
		return NULL;
	use = calloc(1, sizeof(*use));
	if (!use)
		return NULL;
	server->tickets.n_uses++;
	use->ticket = ticket;
	use->link = link;
	ticket_work_begin(server, use);
	use->next = ticket->uses;
	ticket->uses = use;
	use->link_next = link->uses;
	if (use->link_next)
		use->link_next->link_prev = use;
	link->uses = use;
	return use;
}

/* at: its place among the ticket's. */
static void ticket_use_end(struct server *server, struct ticket_use **at)
{
	struct ticket_use *use = *at;

	*at = use->next;
	if (use->link_prev)
		use->link_prev->link_next = use->link_next;
	else
		use->link->uses = use->link_next;
	if (use->link_next)
		use->link_next->link_prev = use->link_prev;
	server->tickets.n_uses--;
	ticket_work_end(server, use);
	free(use);
}

void ticket_use_hold(struct server *server, struct ticket *ticket, struct ticket_link *link)
{
	struct ticket_use *use = *ticket_use_of(ticket, link);

	if (!use) {
		use = ticket_use_new(server, ticket, link);
		ticket_uses_changed(server);
	}
	if (!use) {
		ticket->stays = true;
	} else if (!use->is_held) {
		use->is_held = true;
		use->told_ns = 0; /* its last PARK was for the memory that it has given back */
	}
}

void ticket_use_park(struct ticket *ticket, const struct ticket_link *link)
{
	struct ticket_use *use = *ticket_use_of(ticket, link);

	if (use)
		use->is_held = false;
}

void ticket_use_close(struct server *server, struct ticket *ticket, const struct ticket_link *link)
{
	struct ticket_use **at = ticket_use_of(ticket, link);

	if (!*at)
		return;
	ticket_use_end(server, at);
	ticket_uses_changed(server);
}

void ticket_uses_drop(struct server *server, struct ticket *ticket)
{
	while (ticket->uses)
		ticket_use_end(server, &ticket->uses);
}

void ticket_uses_leave(struct server *server, struct ticket_link *link, bool is_over)
{
	while (link->uses) {
		struct ticket *ticket = link->uses->ticket;

		ticket->stays = ticket->stays || !is_over;
		ticket_use_close(server, ticket, link);
	}
}

/* ---- memory that moves ------------------------------------------------------------------ */

static void ticket_uses_resume(struct server *server, struct ticket *ticket)
{
	for (struct ticket_use *use = ticket->uses; use; use = use->next)
		ticket_work_resume(server, use);
}

/* false: somebody holds it, and hears that it is to park. */
static bool ticket_is_free(struct server *server, struct ticket *ticket)
{
	bool is_free = true;

	for (struct ticket_use *use = ticket->uses; use; use = use->next) {
		if (!use->is_held)
			continue;
		is_free = false;
		if (use->told_ns && server->now_ns - use->told_ns < WORD_AGAIN_NS) {
			ticket_work_await(server, use);
			continue;
		}
		if (ticket_say(server, ticket, use->link, NVSHARE_TICKET_PARK))
			use->told_ns = server->now_ns;
	}
	return is_free;
}

enum ticket_reason ticket_take(struct server *server, struct ticket *ticket)
{
	ticket->asked_ns = server->now_ns;
	ticket_work_look(server);
	if (ticket_fate(server, ticket) != TICKET_FATE_MOVES) {
		ticket_uses_resume(server, ticket);
		/* The owner acts as if it had heard the word, and later hears when that is over. */
		ticket_work_told(server, ticket, NVSHARE_TICKET_STAYS);
		ticket_uses_changed(server);
		return TICKET_STAYS;
	}
	if (!ticket_is_free(server, ticket))
		return TICKET_HELD;
	ticket->is_out = true;
	ticket_uses_resume(server, ticket);
	return TICKET_REASON_NONE_;
}

void ticket_call(struct server *server, struct ticket *ticket)
{
	if (ticket->wanted_ns && server->now_ns - ticket->wanted_ns < WORD_AGAIN_NS)
		return;
	if (ticket_say(server, ticket, ticket->link, NVSHARE_TICKET_WANTED))
		ticket->wanted_ns = server->now_ns;
}
