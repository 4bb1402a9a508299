/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/tickets/ticket_work.h"

#include "daemon/peers/pauses.h"
#include "daemon/server.h"
#include "util/clock.h"

/* An opener that has stopped, or is about to, parks within this time. */
#define PARK_NS (10 * CLOCK_NS_PER_MS)
/* An owner that waits for an opener asks every few milliseconds. */
#define ASKED_NS CLOCK_NS_PER_SEC

/* ---- who is at work ----------------------------------------------------------------- */

/*
 * One that waits for its turn will be at work in the same turn as the owner. One that waits for
 * memory may wait for the owner's.
 */
static bool peer_is_at_work(const struct server *server, const struct peer *peer)
{
	struct sched_client_status status;

	if (sched_client_state(&server->sched, peer->slot) <= SCHED_CLIENT_IDLE ||
	    peer->report_flags & NVSHARE_REPORT_RESTS)
		return false;
	sched_client_status(&server->sched, peer->slot, server->now_ns, &status);
	return !status.growing;
}

static bool link_is_at_work(struct server *server, const struct ticket_link *link)
{
	bool is_at_work = false;

	for (uint32_t i = 0; i < server->slots_used; i++) {
		struct peer *peer = &server->peers[i];

		if (!ticket_link_has(link, peer))
			continue;
		peer->is_at_work = peer_is_at_work(server, peer);
		is_at_work = is_at_work || peer->is_at_work;
	}
	return is_at_work;
}

/* Others than its gang take other turns: the owner need not wait for them. */
static bool ticket_is_used(const struct ticket *ticket)
{
	return ticket->told == NVSHARE_TICKET_MOVES && ticket->n_at_work > 0;
}

/* The ticket was used or not, and may have changed. The owner hears of the first one, and the last.
 */
static void owner_count(struct server *server, const struct ticket *ticket, bool was_used)
{
	struct ticket_link *owner = ticket->link;
	bool is_used = ticket_is_used(ticket);

	if (is_used == was_used)
		return;
	owner->n_used += is_used ? 1 : (uint32_t)-1;
	if (owner->n_used == (is_used ? 1 : 0))
		ticket_uses_tell_used(server, owner);
}

void ticket_work_told(struct server *server, struct ticket *ticket, uint32_t word)
{
	bool was_used = ticket_is_used(ticket);

	ticket->told = word;
	owner_count(server, ticket, was_used);
}

/* by: 1 or -1. */
static void ticket_count(struct server *server, struct ticket *ticket, int by)
{
	bool was_used = ticket_is_used(ticket);

	ticket->n_at_work += (uint32_t)by;
	owner_count(server, ticket, was_used);
}

static void link_look(struct server *server, struct ticket_link *link)
{
	bool is_at_work = link_is_at_work(server, link);

	if (is_at_work == link->is_at_work)
		return;
	link->is_at_work = is_at_work;
	for (struct ticket_use *use = link->uses; use; use = use->link_next)
		ticket_count(server, use->ticket, is_at_work ? 1 : -1);
}

void ticket_work_begin(struct server *server, struct ticket_use *use)
{
	link_look(server, use->link);
	if (use->link->is_at_work)
		ticket_count(server, use->ticket, 1);
}

void ticket_work_end(struct server *server, struct ticket_use *use)
{
	if (server->is_ending)
		return; /* parts of it are gone */
	if (use->link->is_at_work)
		ticket_count(server, use->ticket, -1);
	ticket_work_resume(server, use);
}

void ticket_work_changed(struct server *server, struct peer *peer)
{
	struct tickets *tickets = &server->tickets;
	bool was_at_work = peer->is_at_work;

	if (tickets->n_uses == 0 || peer->cred.pid <= 0)
		return;
	peer->is_at_work = peer_is_at_work(server, peer);
	if (peer->is_at_work == was_at_work)
		return;
	for (uint32_t i = 0; i < TICKET_LINKS_MAX; i++) {
		struct ticket_link *link = &tickets->links[i];

		if (link->is_used && link->uses && link->pid == peer->cred.pid)
			link_look(server, link);
	}
}

/* ---- openers that run while an owner evicts --------------------------------------------- */

static bool peer_goes_on(const struct server *server, const struct peer *peer)
{
	struct sched_client_status status;

	if (sched_client_state(&server->sched, peer->slot) != SCHED_CLIENT_RUNNING)
		return false;
	sched_client_status(&server->sched, peer->slot, server->now_ns, &status);
	return !server->settings.config.anti_thrash || status.fixed || status.not_preemptible ||
	       status.claim.priority == SCHED_PRIORITY_CRITICAL;
}

bool ticket_work_goes_on(const struct server *server, const struct ticket_use *use)
{
	for (uint32_t i = 0; i < server->slots_used; i++) {
		const struct peer *peer = &server->peers[i];

		if (ticket_link_has(use->link, peer) && peer_goes_on(server, peer))
			return true;
	}
	return false;
}

static bool link_runs(const struct server *server, const struct ticket_link *link)
{
	for (uint32_t i = 0; i < server->slots_used; i++) {
		if (ticket_link_has(link, &server->peers[i]) &&
		    sched_client_state(&server->sched, i) == SCHED_CLIENT_RUNNING)
			return true;
	}
	return false;
}

static void link_pause(struct server *server, const struct ticket_link *link, bool is_on)
{
	for (uint32_t i = 0; i < server->slots_used; i++) {
		if (ticket_link_has(link, &server->peers[i]))
			(void)pauses_set(server, &server->peers[i], PAUSE_TICKETS, is_on);
	}
}

/* An owner that runs stops with its gang, and its openers do by themselves. */
void ticket_work_await(struct server *server, struct ticket_use *use)
{
	struct tickets *tickets = &server->tickets;

	if (use->is_stopped || server->now_ns - use->told_ns < PARK_NS ||
	    !link_runs(server, use->link))
		return;
	use->is_stopped = true;
	tickets->n_stops++;
	if (use->link->n_stops++ == 0)
		link_pause(server, use->link, true);
	if (deadline_at(&tickets->stops) == DEADLINE_NEVER)
		deadline_set(&server->deadlines, &tickets->stops, server->now_ns + ASKED_NS);
}

void ticket_work_resume(struct server *server, struct ticket_use *use)
{
	if (!use->is_stopped)
		return;
	use->is_stopped = false;
	server->tickets.n_stops--;
	if (--use->link->n_stops == 0)
		link_pause(server, use->link, false);
}

/* Owners that have given up say nothing of it. */
void ticket_work_on_due(struct server *server, struct deadline *deadline)
{
	struct tickets *tickets = &server->tickets;

	for (uint32_t i = 0; i < TICKET_LINKS_MAX && tickets->n_stops > 0; i++) {
		for (struct ticket_use *use = tickets->links[i].uses; use; use = use->link_next) {
			if (server->now_ns - use->ticket->asked_ns >= ASKED_NS)
				ticket_work_resume(server, use);
		}
	}
	if (tickets->n_stops > 0)
		deadline_set(&server->deadlines, deadline, server->now_ns + ASKED_NS);
}
