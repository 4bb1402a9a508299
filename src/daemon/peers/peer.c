/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/peers/peer.h"

#include "ipc/pass.h"
#include "util/fd.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>

void peer_init(struct peer *peer, int fd, const struct sock_peer *cred)
{
	uint32_t slot = peer->slot;
	uint32_t generation = peer->generation;

	/* The bytes of the queue are not touched, because most peers never need those pages. */
	memset(peer, 0, offsetof(struct peer, queue));
	peer->slot = slot;
	peer->generation = generation + 1;
	peer->state = PEER_STATE_NEW;
	peer->fd = fd;
	peer->pidfd = -1;
	peer->cred = *cred;
}

void peer_deinit(struct peer *peer)
{
	peer->fd = fd_close(peer->fd);
	peer->pidfd = fd_close(peer->pidfd);
	peer->state = PEER_STATE_FREE;
}

int peer_queue(struct peer *peer, const struct msg *msg)
{
	if (msg->header.size > sizeof(peer->queue) - peer->queue_len)
		return PEER_E_OVERFLOW;
	memcpy(peer->queue + peer->queue_len, msg, msg->header.size);
	peer->queue_len += msg->header.size;
	return 0;
}

int peer_send(struct peer *peer, const struct msg *msg)
{
	if (peer->queue_len == 0) {
		int r = sock_send(peer->fd, msg);

		if (r != -EAGAIN)
			return r;
	}
	return peer_queue(peer, msg);
}

int peer_flush(struct peer *peer)
{
	size_t sent;
	int r = sock_send_all(peer->fd, peer->queue, peer->queue_len, &sent);

	peer->queue_len -= (uint32_t)sent;
	memmove(peer->queue, peer->queue + sent, peer->queue_len);
	return r == -EAGAIN ? 0 : r;
}

int peer_pass(struct peer *peer, const struct msg *msg, int passed)
{
	int r = peer_flush(peer);

	if (r)
		return r;
	if (peer->queue_len)
		return -EAGAIN;
	return pass_send(peer->fd, msg, msg->header.size, passed);
}

uint32_t peer_events(const struct peer *peer)
{
	uint32_t in = peer->is_paused ? 0 : EPOLLIN;

	/* A tool is not read while its answer goes out, so it cannot pile up requests. */
	if (peer->cursor.stage != PEER_STAGE_NONE)
		return peer->is_paused ? 0 : EPOLLOUT;
	return peer->queue_len ? in | EPOLLOUT : in;
}
