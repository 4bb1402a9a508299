/* SPDX-License-Identifier: Apache-2.0 */

/* Connections: how they come, what goes over them, how they end; and what they may log. */

#include "daemon/server.h"
#include "util/clock.h"
#include "util/fd.h"
#include "util/log.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define ACCEPTS_A_BATCH 16

/* When accepting fails for a reason that closing does not mend. */
#define LISTEN_REST_NS CLOCK_NS_PER_SEC

/* One user other than root can not take the slots of all the others. */
#define PEERS_A_USER (SERVER_PEERS_MAX * 3 / 4)

/* Log lines that peers cause: so many at once, and so many a second after that. */
#define LINES_BURST 200
#define LINES_A_SEC 20

/* ---- log ------------------------------------------------------------------- */

bool server_may_log(struct server *server)
{
	uint64_t n_new = (server->now_ns - server->quiet_ns) * LINES_A_SEC / CLOCK_NS_PER_SEC;

	if (n_new) {
		server->n_lines = n_new < server->n_lines ? server->n_lines - (uint32_t)n_new : 0;
		server->quiet_ns = server->now_ns;
	}
	if (server->n_lines >= LINES_BURST) {
		server->n_lines_held++;
		return false;
	}
	if (server->n_lines_held)
		log_info("lines-held-back n=%u: connections came and went too fast for the log",
			 server->n_lines_held);
	server->n_lines_held = 0;
	server->n_lines++;
	return true;
}

/* ---- peers ----------------------------------------------------------------- */

static void update_events(struct server *server, struct peer *peer)
{
	uint32_t events = peer_events(peer);
	struct epoll_event event = {
		.events = events,
		.data.u64 = (uint64_t)peer->generation << 32 | peer->slot,
	};

	if (peer->is_closing || events == peer->epoll_events)
		return;
	if (epoll_ctl(server->epoll_fd, EPOLL_CTL_MOD, peer->fd, &event) == 0)
		peer->epoll_events = events;
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
		update_events(server, peer);
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
	*(server->unsent ? server->unsent_end : &server->unsent) = peer;
	server->unsent_end = &peer->unsent_next;
}

void server_flush(struct server *server)
{
	struct peer *peer;

	while ((peer = server->unsent)) {
		server->unsent = peer->unsent_next;
		peer->is_unsent = false;
		if (peer->is_closing)
			continue;
		if (peer_flush(peer) < 0)
			server_close(server, peer, NULL);
		else
			update_events(server, peer);
	}
}

void server_close(struct server *server, struct peer *peer, const char *reason)
{
	if (peer->is_closing)
		return;
	peer->is_closing = true;
	peer->closing_next = server->closing;
	server->closing = peer;
	if (reason && server_may_log(server))
		log_warn("close peer=%u client=%u pid=%d uid=%u: %s", peer->slot, peer->id,
			 (int)peer->cred.pid, (unsigned int)peer->cred.uid, reason);
}

/* The end of one peer may be the end of others: they join the list. */
void connections_end(struct server *server)
{
	struct peer *peer;

	while ((peer = server->closing)) {
		server->closing = peer->closing_next;
		dispatch_gone(server, peer);
		/*
		 * A forked child of the peer may share the socket's description, which
		 * would keep it in the epoll set after close().
		 */
		(void)epoll_ctl(server->epoll_fd, EPOLL_CTL_DEL, peer->fd, NULL);
		peer_deinit(peer);
		server->free_slots[server->n_free_slots++] = peer->slot;
		server->n_peers--;
	}
}

static bool is_over_share(const struct server *server, uid_t uid)
{
	uint32_t n = 0;

	if (server->n_peers < PEERS_A_USER || uid == 0 || uid == geteuid())
		return false;
	for (uint32_t i = 0; i < server->slots_used; i++)
		n += server->peers[i].state != PEER_STATE_FREE && server->peers[i].cred.uid == uid;
	return n >= PEERS_A_USER;
}

/* Takes fd. */
static void add_peer(struct server *server, int fd)
{
	struct sock_peer cred;
	struct epoll_event event = {.events = EPOLLIN};
	struct peer *peer;
	uint32_t slot;

	if (sock_peer(fd, &cred) < 0 || is_over_share(server, cred.uid) ||
	    server->n_peers == SERVER_PEERS_MAX) {
		if (server_may_log(server))
			log_warn("turned-away peers=%u: no slot for another connection",
				 server->n_peers);
		(void)fd_close(fd);
		return;
	}
	slot = server->n_free_slots ? server->free_slots[server->n_free_slots - 1]
				    : server->slots_used;
	peer = &server->peers[slot];
	peer->slot = slot;
	peer_init(peer, fd, &cred);
	event.data.u64 = (uint64_t)peer->generation << 32 | slot;
	if (epoll_ctl(server->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0) {
		peer_deinit(peer);
		return;
	}
	peer->epoll_events = event.events;
	if (server->n_free_slots)
		server->n_free_slots--;
	else
		server->slots_used++;
	server->n_peers++;
}

static bool is_out_of_descriptors(int error)
{
	return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

/*
 * Out of descriptors: the listener stays readable, so doing nothing would spin. The
 * spare descriptor is given up to accept one connection and close it.
 */
static void turn_away(struct server *server)
{
	int fd;

	server->spare_fd = fd_close(server->spare_fd);
	fd = accept4(server->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd < 0 && is_out_of_descriptors(errno)) {
		/* Not even that helps: the node is out of them. */
		(void)epoll_ctl(server->epoll_fd, EPOLL_CTL_DEL, server->listen_fd, NULL);
		server->listen_ns = server->now_ns + LISTEN_REST_NS;
	}
	(void)fd_close(fd);
	server->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	if (server_may_log(server))
		log_warn("turned-away peers=%u: out of file descriptors", server->n_peers);
}

void connections_accept(struct server *server)
{
	for (unsigned int i = 0; i < ACCEPTS_A_BATCH; i++) {
		int fd = accept4(server->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd >= 0) {
			add_peer(server, fd);
			continue;
		}
		if (errno == EINTR || errno == ECONNABORTED)
			continue;
		if (is_out_of_descriptors(errno))
			turn_away(server);
		return;
	}
}

void connections_resume(struct server *server)
{
	if (!server->listen_ns || server->listen_ns > server->now_ns)
		return;
	server->listen_ns = server_watch(server, server->listen_fd, SERVER_SLOT_LISTENER)
				    ? server->now_ns + LISTEN_REST_NS
				    : 0;
}

/* A library or tool of another version finds ours in the header, and can name it. */
static void tell_version(struct server *server, struct peer *peer)
{
	const struct nvshare_registered answer = {.result = NVSHARE_REGISTER_VERSION};

	server_send_body(server, peer, NVSHARE_MSG_REGISTERED, 0, &answer);
}

static void handle_input(struct server *server, struct peer *peer)
{
	uint8_t bytes[NVSHARE_MSG_SIZE_MAX];
	struct msg msg;
	ssize_t n;
	int r;

	/* One message a turn: a chatty peer waits for the others. */
	n = sock_recv(peer->fd, bytes, sizeof(bytes));
	if (n == -EAGAIN)
		return;
	if (n <= 0) {
		server_close(server, peer, NULL);
		return;
	}
	r = msg_decode(bytes, (size_t)n, MSG_TO_SCHEDULER, &msg);
	if (r == MSG_E_VERSION)
		tell_version(server, peer);
	if (r) {
		server_close(server, peer, msg_error(r));
		return;
	}
	dispatch_message(server, peer, &msg);
}

void connections_handle(struct server *server, struct peer *peer, uint32_t events)
{
	if (peer->queue_len && events & EPOLLOUT) {
		if (peer_flush(peer) < 0)
			server_close(server, peer, NULL);
	}
	if (peer->cursor.stage != PEER_STAGE_NONE) {
		if (events & (EPOLLHUP | EPOLLERR))
			server_close(server, peer, NULL);
		else if (peer->queue_len == 0)
			tools_continue(server, peer);
	} else if (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
		handle_input(server, peer);
	}
	update_events(server, peer);
}
