/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/peers/packet_pair.h"

#include "daemon/server.h"
#include "util/clock.h"

#include <errno.h>
#include <sys/socket.h>
#include <utlist.h>

#define PACKET_COST 4 /* of a message */
#define PAUSE_NS    (10 * CLOCK_NS_PER_MS)

int packet_pair_open(struct server *server, struct packet_pair *pair, int size,
		     event_source_fn *on_input, int *ret_theirs)
{
	const int on = 1;
	int fds[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) < 0)
		return -errno;
	pair->fd = fds[0];
	*ret_theirs = fds[1];
	/* The reaper finds the end of what was sent by the sender that each packet names. */
	if (setsockopt(fds[0], SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) ||
	    setsockopt(fds[0], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size)))
		return -errno;
	return event_source_add(&server->poller, &pair->input, pair->fd, EPOLLIN, on_input);
}

void packet_pair_pause(struct server *server, struct packet_pair *pair)
{
	struct packet_pairs *pairs = &server->packet_pairs;

	if (pair->is_paused)
		return;
	pair->is_paused = true;
	DL_APPEND(pairs->paused, pair);
	(void)event_source_update(&pair->input, 0);
	if (!deadline_is_set(&pairs->resume))
		deadline_set(&server->deadlines, &pairs->resume, server->now_ns + PAUSE_NS);
}

static void packet_pair_leave_paused(struct server *server, struct packet_pair *pair)
{
	if (!pair->is_paused)
		return;
	pair->is_paused = false;
	DL_DELETE(server->packet_pairs.paused, pair);
}

static void packet_pairs_on_resume(struct server *server, struct deadline *deadline)
{
	struct packet_pair *pair;

	(void)deadline;
	while ((pair = server->packet_pairs.paused)) {
		packet_pair_leave_paused(server, pair);
		(void)event_source_update(&pair->input, EPOLLIN);
	}
}

bool packet_pair_admit(struct server *server, struct packet_pair *pair,
		       const struct quota_rate *rate, uint32_t owner)
{
	if (!quota_take(&pair->quota, rate, 1, server->now_ns) &&
	    (users_is_trusted(owner) || !quota_take_of(&server->flow.quota, owner, QUOTA_MESSAGES,
						       PACKET_COST, server->now_ns)))
		return true;
	packet_pair_pause(server, pair);
	return false;
}

int packet_pair_cut(struct server *server, struct packet_pair *pair)
{
	int fd = pair->fd;

	packet_pair_leave_paused(server, pair);
	event_source_remove(&pair->input);
	if (fd >= 0)
		(void)shutdown(fd, SHUT_RDWR);
	pair->fd = -1;
	return fd;
}

void packet_pairs_init(struct server *server)
{
	server->packet_pairs.resume.on_due = packet_pairs_on_resume;
}
