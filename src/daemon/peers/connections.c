/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/peers/connections.h"

#include "daemon/client_messages.h"
#include "daemon/dispatch.h"
#include "daemon/server.h"
#include "daemon/tools/tool_status.h"
#include "util/container_of.h"
#include "util/log.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

/* More than a socket's buffer holds of a job's process. Another process may send on. */
#define REST_MAX 1024

/* ---- peers ----------------------------------------------------------------- */

void connections_update(struct server *server, struct peer *peer)
{
	if (peer->is_closing)
		return;
	if (peer->is_host_late && !peer->queue_len)
		host_reads(server, peer);
	(void)event_source_update(&peer->input, peer_events(peer));
}

void connections_to_tools(struct server *server, struct peer *peer)
{
	if (peer->state == PEER_STATE_TOOL)
		return;
	event_source_remove(&peer->input);
	peer->state = PEER_STATE_TOOL;
	if (event_source_add(&server->tools.poller, &peer->input, peer->fd, peer->input.events,
			     connections_on_event))
		server_close(server, peer, "no memory to look at it");
}

void server_send(struct server *server, struct peer *peer, const struct msg *msg)
{
	int r;

	if (peer->is_closing)
		return;
	r = peer_send(peer, msg);
	if (r == PEER_E_OVERFLOW)
		server_close(server, peer, "it does not read");
	else if (r)
		server_close(server, peer, NULL);
	else
		connections_update(server, peer);
}

void server_send_body(struct server *server, struct peer *peer, uint16_t type, uint32_t seq,
		      const void *body)
{
	struct msg msg;

	(void)msg_encode(type, seq, body, &msg);
	server_send(server, peer, &msg);
}

void server_queue_body(struct server *server, struct peer *peer, uint16_t type, const void *body)
{
	struct msg msg;

	if (peer->is_closing)
		return;
	(void)msg_encode(type, 0, body, &msg);
	if (peer_queue(peer, &msg)) {
		server_close(server, peer, "it does not read");
		return;
	}
	if (peer->is_unsent)
		return;
	peer->is_unsent = true;
	peer->unsent_next = NULL;
	*(server->connections.unsent ? server->connections.unsent_end
				     : &server->connections.unsent) = peer;
	server->connections.unsent_end = &peer->unsent_next;
}

void server_flush(struct server *server)
{
	struct peer *peer;

	while ((peer = server->connections.unsent)) {
		server->connections.unsent = peer->unsent_next;
		peer->is_unsent = false;
		if (peer->is_closing)
			continue;
		if (peer_flush(peer) < 0)
			server_close(server, peer, NULL);
		else
			connections_update(server, peer);
	}
}

void server_close(struct server *server, struct peer *peer, const char *reason)
{
	if (peer->is_closing)
		return;
	peer->is_closing = true;
	peer->closing_next = server->connections.closing;
	server->connections.closing = peer;
	if (reason)
		server_log(server, peer->pod.owner, LOG_LEVEL_WARN,
			   "close peer=%u client=%u pid=%d uid=%u: %s", peer->slot, peer->id,
			   (int)peer->cred.pid, (unsigned int)peer->cred.uid, reason);
}

/* The end of one peer may cause the end of others, which join the list meanwhile. */
void connections_end(struct server *server)
{
	struct peer *peer;

	while ((peer = server->connections.closing)) {
		server->connections.closing = peer->closing_next;
		if (peer->job)
			connections_receive_rest(server, peer);
		dispatch_gone(server, peer);
		/*
		 * A forked child of the peer may share the socket's description. That would keep
		 * the socket in the epoll set after close().
		 */
		event_source_remove(&peer->input);
		event_source_remove(&peer->end);
		events_forget(server, peer);
		job_queue_forget(server, peer);
		flow_forget(server, peer);
		lending_forget(server, peer);
		admission_leave(server, peer);
	}
}

/* The peer finds our version in the answer's header. So each side can name both. */
static void connections_refuse_version(struct server *server, struct peer *peer,
				       const uint8_t *bytes)
{
	const struct nvshare_registered answer = {.result = NVSHARE_REGISTER_VERSION};
	struct nvshare_msg_header header;
	char text[128];

	memcpy(&header, bytes, sizeof(header));
	server_send_body(server, peer, NVSHARE_MSG_REGISTERED, 0, &answer);
	(void)snprintf(text, sizeof(text),
		       "it speaks version %u of the protocol, this scheduler version %u%s",
		       header.version, (unsigned int)NVSHARE_PROTOCOL_VERSION,
		       header.version > NVSHARE_PROTOCOL_VERSION
			       ? ": upgrade the scheduler"
			       : ": restart it with the library of this release");
	server_close(server, peer, text);
}

/* false: nothing more can be read now. */
static bool connections_handle_input(struct server *server, struct peer *peer)
{
	uint8_t bytes[NVSHARE_MSG_SIZE_MAX];
	struct msg msg;
	ssize_t n;
	int r;

	/* No peer has a reason to send descriptors. Closing one could make the daemon wait. */
	if (server->admission.listener.takes_rights && sock_next(peer->fd) == SOCK_NEXT_RIGHTS) {
		server_close(server, peer, "it sends descriptors");
		return false;
	}
	/* One message a turn, so that a peer with many messages waits for the others. */
	n = sock_recv(peer->fd, bytes, sizeof(bytes));
	if (n == -EAGAIN)
		return false;
	if (n <= 0) {
		server_close(server, peer, NULL);
		return false;
	}
	r = msg_decode(bytes, (size_t)n, MSG_TO_SCHEDULER, &msg);
	if (r == MSG_E_VERSION) {
		connections_refuse_version(server, peer, bytes);
		return false;
	}
	if (r) {
		server_close(server, peer, msg_error(r));
		return false;
	}
	if (admission_hear(server, peer, &msg))
		client_messages_handle(server, peer, &msg);
	return true;
}

void connections_receive_rest(struct server *server, struct peer *peer)
{
	uint8_t bytes[NVSHARE_MSG_SIZE_MAX];
	struct msg msg;

	for (unsigned int i = 0; i < REST_MAX; i++) {
		ssize_t n;

		if (server->admission.listener.takes_rights &&
		    sock_next(peer->fd) == SOCK_NEXT_RIGHTS)
			return;
		n = sock_recv(peer->fd, bytes, sizeof(bytes));
		if (n <= 0)
			return;
		if (msg_decode(bytes, (size_t)n, MSG_TO_SCHEDULER, &msg) ||
		    msg.header.type != NVSHARE_MSG_JOB_ENDED)
			continue;
		client_messages_handle(server, peer, &msg);
		return;
	}
}

void connections_handle(struct server *server, struct peer *peer, uint32_t events)
{
	if (peer->queue_len && events & EPOLLOUT) {
		if (peer_flush(peer) < 0)
			server_close(server, peer, NULL);
	}
	if (peer->is_paused || peer->cursor.stage != PEER_STAGE_NONE) {
		/* The unread messages of a paused peer are dropped when the peer is gone. */
		if (events & (EPOLLHUP | EPOLLERR))
			server_close(server, peer, NULL);
		else if (!peer->is_paused && peer->queue_len == 0 && flow_admit(server, peer))
			tool_status_continue(server, peer);
	} else if (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
		/*
		 * The answer to a new tool begins in the turn of tools, behind the clients'
		 * events.
		 */
		bool is_tools_turn = peer->state == PEER_STATE_TOOL;

		if (flow_admit(server, peer))
			(void)connections_handle_input(server, peer);
		if (is_tools_turn)
			tool_status_continue(server, peer);
	}
	connections_update(server, peer);
}

void connections_on_event(void *context, struct event_source *source, uint32_t events)
{
	struct server *server = context;
	struct peer *peer = container_of(source, struct peer, input);

	if (!peer->is_closing)
		connections_handle(server, peer, events);
}
