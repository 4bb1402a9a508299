/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/peers/process.h"

#include "daemon/server.h"
#include "util/container_of.h"
#include "util/fd.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 /* Linux 6.5 */
#endif

static int process_socket_pidfd(int fd)
{
	int pidfd;
	socklen_t len = sizeof(pidfd);

	return getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &len) < 0 ? -errno : pidfd;
}

int process_hold(int fd, pid_t pid)
{
	int pidfd = process_socket_pidfd(fd);

	if (pidfd == -ENOPROTOOPT)
		pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	return pidfd;
}

bool process_is_alive(int pidfd)
{
	struct pollfd end = {.fd = pidfd, .events = POLLIN};

	return pidfd >= 0 && poll(&end, 1, 0) == 0;
}

/* false: the process is gone. */
static bool process_open_pidfd(struct peer *peer)
{
	if (peer->cred.pid <= 0)
		return true; /* of another pid namespace */
	peer->pidfd = (int)syscall(SYS_pidfd_open, peer->cred.pid, 0);
	return peer->pidfd >= 0 || errno != ESRCH;
}

static void process_on_end(void *context, struct event_source *source, uint32_t events)
{
	struct server *server = context;
	(void)events;
	server_close(server, container_of(source, struct peer, end), NULL);
}

/* The pidfd has been counted for its user; there may be none after all. */
static void process_watch_pidfd(struct server *server, struct peer *peer)
{
	if (peer->pidfd < 0) {
		users_remove_pidfd(&server->users, peer->user);
		return;
	}
	(void)event_source_add(&server->poller, &peer->end, peer->pidfd, EPOLLIN, process_on_end);
}

/*
 * Before Linux 6.5 a connection knows only the number of its process. A process can end, leave
 * the connection to a child, and another process can get the number. So the process is held at
 * once, when it has just connected.
 */
void process_connected(struct server *server, struct peer *peer)
{
	int fd = process_socket_pidfd(peer->fd);

	if (fd != -ENOPROTOOPT) {
		(void)fd_close(fd);
		return;
	}
	if (!users_add_pidfd(&server->users, peer->user))
		return;
	(void)process_open_pidfd(peer);
	peer->is_pidfd_sure = peer->pidfd >= 0;
	process_watch_pidfd(server, peer);
}

/*
 * The end of the socket tells of a client's death, but a forked child may keep the socket open.
 * So the process is watched, too.
 */
bool process_watch(struct server *server, struct peer *peer)
{
	bool is_there;

	if (peer->pidfd >= 0)
		return true;
	if (!users_add_pidfd(&server->users, peer->user))
		return true; /* the descriptors that are left are for connections, or for other
				users */
	peer->pidfd = process_socket_pidfd(peer->fd);
	peer->is_pidfd_sure = peer->pidfd >= 0;
	is_there = peer->pidfd >= 0 || process_open_pidfd(peer);
	process_watch_pidfd(server, peer);
	return is_there;
}
