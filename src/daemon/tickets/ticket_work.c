/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/tickets/ticket_work.h"

#include "daemon/peers/pauses.h"
#include "daemon/server.h"
#include "daemon/tickets/ticket_processes.h"
#include "util/clock.h"

#include <utlist.h>

/* An opener that has stopped, or is about to, parks within this time. */
#define PARK_NS (10 * CLOCK_NS_PER_MS)
/* An owner that waits for an opener asks every few milliseconds. */
#define ASKED_NS CLOCK_NS_PER_SEC

/* ---- who is at work ----------------------------------------------------------------- */

/*
 * One that waits for its turn will be at work in the same turn as the owner. One that runs and
 * waits for memory may wait for the owner's.
 */
static bool peer_is_at_work(const struct server *server, const struct peer *peer)
{
	enum sched_client_state state = sched_client_state(&server->sched, peer->slot);
	struct sched_client_status status;

	if (state <= SCHED_CLIENT_IDLE || peer->report_flags & NVSHARE_REPORT_RESTS)
		return false;
	if (state != SCHED_CLIENT_RUNNING)
		return true;
	sched_client_status(&server->sched, peer->slot, server->now_ns, &status);
	return !status.growing;
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

/* Whether it is at work has changed, with peer. A user pays for the time that this takes. */
static void process_count(struct server *server, const struct ticket_process *process,
			  struct peer *peer)
{
	struct ticket_link *link;
	uint32_t n = 0;

	DL_FOREACH2(process->links, link, process_next)
	{
		for (struct ticket_use *use = link->uses; use; use = use->link_next, n++)
			ticket_count(server, use->ticket, process->n_at_work > 0 ? 1 : -1);
	}
	flow_charge(server, peer, n / TICKETS_A_MESSAGE);
}

void ticket_work_changed(struct server *server, struct peer *peer)
{
	struct ticket_process *process = peer->ticket_process;
	bool was_at_work;

	if (!process || peer_is_at_work(server, peer) == peer->is_at_work)
		return;
	was_at_work = process->n_at_work > 0;
	peer->is_at_work = !peer->is_at_work;
	process->n_at_work += peer->is_at_work ? 1 : (uint32_t)-1;
	if (was_at_work != (process->n_at_work > 0))
		process_count(server, process, peer);
}

void ticket_work_begin(struct server *server, struct ticket_use *use)
{
	if (use->link->process->n_at_work > 0)
		ticket_count(server, use->ticket, 1);
}

void ticket_work_end(struct server *server, struct ticket_use *use)
{
	if (server->is_ending)
		return; /* parts of it are gone */
	if (use->link->process->n_at_work > 0)
		ticket_count(server, use->ticket, -1);
	ticket_work_resume(server, use);
}

/* ---- openers that run while an owner evicts --------------------------------------------- */

/* A client that runs, and must not be stopped. */
static bool peer_goes_on(const struct server *server, const struct peer *peer)
{
	struct sched_client_status status;

	sched_client_status(&server->sched, peer->slot, server->now_ns, &status);
	return !server->settings.config.anti_thrash || status.fixed || status.not_preemptible ||
	       status.claim.priority == SCHED_PRIORITY_CRITICAL;
}

void ticket_work_look(struct server *server)
{
	server->tickets.n_looks++;
}

/* One look at its clients serves all tickets and uses until ticket_work_look(). */
static const struct ticket_process *process_seen(const struct server *server,
						 struct ticket_process *process)
{
	const struct peer *peer;

	if (process->looked == server->tickets.n_looks)
		return process;
	process->looked = server->tickets.n_looks;
	process->runs = process->goes_on = false;
	DL_FOREACH2(process->clients, peer, ticket_next)
	{
		if (sched_client_state(&server->sched, peer->slot) != SCHED_CLIENT_RUNNING)
			continue;
		process->runs = true;
		process->goes_on = process->goes_on || peer_goes_on(server, peer);
	}
	return process;
}

bool ticket_work_goes_on(const struct server *server, const struct ticket_use *use)
{
	return process_seen(server, use->link->process)->goes_on;
}

static void process_pause(struct server *server, const struct ticket_process *process, bool is_on)
{
	struct peer *peer;

	DL_FOREACH2(process->clients, peer, ticket_next)
	{
		(void)pauses_set(server, peer, PAUSE_TICKETS, is_on);
	}
	ticket_work_look(server); /* others may have stopped with them */
}

/*
 * An owner that runs stops with its gang, and its openers do by themselves. A process that is
 * paused already stays so for the sake of this use, too.
 */
void ticket_work_await(struct server *server, struct ticket_use *use)
{
	struct tickets *tickets = &server->tickets;
	struct ticket_process *process = use->link->process;

	if (use->is_stopped || server->now_ns - use->told_ns < PARK_NS ||
	    (process->n_stops == 0 && !process_seen(server, process)->runs))
		return;
	use->is_stopped = true;
	tickets->n_stops++;
	if (process->n_stops++ == 0)
		process_pause(server, process, true);
	if (deadline_at(&tickets->stops) == DEADLINE_NEVER)
		deadline_set(&server->deadlines, &tickets->stops, server->now_ns + ASKED_NS);
}

void ticket_work_resume(struct server *server, struct ticket_use *use)
{
	if (!use->is_stopped)
		return;
	use->is_stopped = false;
	server->tickets.n_stops--;
	if (--use->link->process->n_stops == 0)
		process_pause(server, use->link->process, false);
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
