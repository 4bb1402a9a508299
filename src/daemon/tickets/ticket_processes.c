/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/tickets/ticket_processes.h"

#include "daemon/server.h"
#include "daemon/tickets/ticket_uses.h"
#include "daemon/tickets/ticket_work.h"

#include <stdlib.h>
#include <utlist.h>

/* ---- clients ------------------------------------------------------------------------ */

static void process_add_client(struct server *server, struct ticket_process *process,
			       struct peer *peer)
{
	peer->ticket_process = process;
	DL_APPEND2(process->clients, peer, ticket_prev, ticket_next);
	process->n_clients++;
	process->is_gang_known = false;
	ticket_work_changed(server, peer);
}

static void process_remove_client(struct ticket_process *process, struct peer *peer)
{
	DL_DELETE2(process->clients, peer, ticket_prev, ticket_next);
	process->n_clients--;
	process->is_gang_known = false;
	peer->ticket_process = NULL;
	peer->is_at_work = false;
}

static struct ticket_process *ticket_process_find(const struct tickets *tickets, pid_t pid,
						  uid_t uid)
{
	struct ticket_process *process;

	if (pid <= 0)
		return NULL;
	DL_FOREACH (tickets->processes, process) {
		if (process->pid == pid && process->uid == uid)
			return process;
	}
	return NULL;
}

void tickets_client_joined(struct server *server, struct peer *peer)
{
	struct ticket_process *process =
		ticket_process_find(&server->tickets, peer->cred.pid, peer->cred.uid);

	if (process)
		process_add_client(server, process, peer);
}

/* Words to a connection that has ended may have been lost. */
void tickets_client_changed(struct server *server, struct peer *peer)
{
	struct ticket_process *process = peer->ticket_process;
	struct ticket_link *link;
	uint32_t n = 0;

	if (!process)
		return;
	process->is_gang_known = false;
	DL_FOREACH2(process->links, link, process_next)
	{
		for (struct ticket *ticket = link->tickets; ticket; ticket = ticket->next, n++)
			ticket_work_told(server, ticket, TICKET_WORD_NONE);
	}
	flow_charge(server, peer, n / TICKETS_A_MESSAGE);
	ticket_uses_changed(server);
}

void tickets_client_left(struct peer *peer)
{
	if (peer->ticket_process)
		process_remove_client(peer->ticket_process, peer);
}

/* ---- processes ---------------------------------------------------------------------- */

static struct ticket_process *ticket_process_new(struct server *server, pid_t pid, uid_t uid)
{
	struct ticket_process *process = calloc(1, sizeof(*process));

	if (!process)
		return NULL;
	process->pid = pid;
	process->uid = uid;
	DL_APPEND(server->tickets.processes, process);
	for (uint32_t i = 0; pid > 0 && i < server->slots_used; i++) {
		struct peer *peer = &server->peers[i];

		if (peer->state == PEER_STATE_CLIENT && peer->cred.pid == pid &&
		    peer->cred.uid == uid)
			process_add_client(server, process, peer);
	}
	return process;
}

bool ticket_process_enter(struct server *server, struct ticket_link *link)
{
	struct ticket_process *process =
		ticket_process_find(&server->tickets, link->pid, link->uid);

	if (!process)
		process = ticket_process_new(server, link->pid, link->uid);
	if (!process)
		return false;
	link->process = process;
	DL_APPEND2(process->links, link, process_prev, process_next);
	return true;
}

void ticket_process_leave(struct server *server, struct ticket_link *link)
{
	struct ticket_process *process = link->process;

	if (!process)
		return;
	link->process = NULL;
	DL_DELETE2(process->links, link, process_prev, process_next);
	if (process->links)
		return;
	while (process->clients)
		process_remove_client(process, process->clients);
	DL_DELETE(server->tickets.processes, process);
	free(process);
}

void ticket_processes_free(struct tickets *tickets)
{
	struct ticket_process *process, *next;

	DL_FOREACH_SAFE (tickets->processes, process, next) {
		free(process);
	}
}

/* ---- what is asked of them ------------------------------------------------------------ */

struct peer *ticket_process_voice(const struct ticket_process *process)
{
	struct peer *peer;

	DL_FOREACH2(process->clients, peer, ticket_next)
	{
		if (!peer->is_closing)
			return peer;
	}
	return NULL;
}

static uint32_t process_find_gang(const struct ticket_process *process)
{
	const struct peer *peer;

	/* No gang takes so many clients. */
	if (!process->clients || process->n_clients > SCHED_GANG_MAX)
		return 0;
	DL_FOREACH2(process->clients, peer, ticket_next)
	{
		if (peer->gang != process->clients->gang)
			return 0;
	}
	return process->clients->gang;
}

uint32_t ticket_process_gang(struct ticket_process *process)
{
	if (!process->is_gang_known)
		process->gang = process_find_gang(process);
	process->is_gang_known = true;
	return process->gang;
}
