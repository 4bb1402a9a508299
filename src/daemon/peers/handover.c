/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/peers/handover.h"

#include "daemon/peers/domain.h"
#include "daemon/server.h"
#include "util/fd.h"
#include "util/log.h"

#include <sys/socket.h>

/*
 * Bytes; the kernel doubles the value. A packet costs some 700, so about twenty can wait. A
 * client that does not read keeps only so many chunks from being freed.
 */
#define SEND_BUFFER 8192

static bool handover_is_possible(const struct peer *from, const struct peer *to)
{
	return to->state == PEER_STATE_CLIENT && !from->is_closing && !to->is_closing &&
	       from != to && from->gpu == to->gpu && from->can_hand_over && to->can_hand_over &&
	       from->backend == NVSHARE_BACKEND_VMM && to->backend == NVSHARE_BACKEND_VMM;
}

static bool peer_read_domain(const struct peer *peer, struct domain *ret)
{
	const struct domain_process process = {peer->cred.pid, peer->pidfd, peer->cred.uid};

	return peer->is_pidfd_sure && domain_read("/proc", &process, ret);
}

/* Read each time, because a process may have dropped privileges meanwhile. */
static bool handover_is_in_domain(const struct peer *from, const struct peer *to)
{
	struct domain a, b;

	return peer_read_domain(from, &a) && peer_read_domain(to, &b) && domain_is_same(&a, &b);
}

/*
 * A socket pair has no name, so nobody but the two clients can send to it. The receiver learns
 * the sender's uid with each packet, in case the sender drops privileges later.
 *
 * The scheduler must never be the last to close a descriptor of others, because close() could
 * hang. The giving end does not receive, so nothing can be queued on it. The scheduler closes the
 * taking end before anybody has the giving end, so nothing is queued there yet.
 */
static bool handover_make_pair(int *ret_give, int *ret_take)
{
	const int on = 1, size = SEND_BUFFER;
	int fds[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) < 0)
		return false;
	*ret_give = fds[0];
	*ret_take = fds[1];
	return shutdown(fds[0], SHUT_RD) == 0 &&
	       setsockopt(fds[0], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size)) == 0 &&
	       setsockopt(fds[1], SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) == 0;
}

static bool handover_send_end(struct peer *peer, uint16_t type, const void *body, int end)
{
	struct msg msg;

	(void)msg_encode(type, 0, body, &msg);
	return peer_pass(peer, &msg, end) == 0;
}

/* The taker gets its end first, so it has the end before anything can come. */
static bool handover_introduce(struct peer *from, struct peer *to,
			       const struct nvshare_drop_lock *drop)
{
	const struct nvshare_handover handover = {.bytes = drop->hand_bytes};
	FD_CLEANUP int give = -1;
	FD_CLEANUP int take = -1;

	if (!handover_make_pair(&give, &take) ||
	    !handover_send_end(to, NVSHARE_MSG_HANDOVER, &handover, take))
		return false;
	take = fd_close(take);
	return handover_send_end(from, NVSHARE_MSG_DROP_LOCK, drop, give);
}

bool handover_drop(struct server *server, struct peer *from, uint32_t to,
		   const struct nvshare_drop_lock *drop)
{
	struct peer *taker = to == SCHED_NONE ? NULL : &server->peers[to];
	struct nvshare_drop_lock with = *drop;

	if (!taker || !drop->bytes || !handover_is_possible(from, taker) || !taker->mem.swapped)
		return false;
	if (!handover_is_in_domain(from, taker)) {
		log_debug("handover-refused client=%u to=%u gpu=%u: not of one trust domain",
			  from->id, taker->id, from->gpu);
		return false;
	}
	with.hand_bytes = taker->mem.swapped;
	if (!handover_introduce(from, taker, &with)) {
		log_debug("handover-failed client=%u to=%u gpu=%u", from->id, taker->id, from->gpu);
		return false;
	}
	server->gpus.at[from->gpu].taker = to + 1;
	log_debug("handover client=%u to=%u gpu=%u bytes=%llu", from->id, taker->id, from->gpu,
		  (unsigned long long)with.hand_bytes);
	return true;
}

/*
 * Bytes that have left the giver are in nobody's report until the taker has them. They are at
 * most as many as the taker lacks. There are none when the taker does not come in any more.
 */
void handover_note(struct server *server, uint32_t index, const struct peer *except)
{
	struct gpu *gpu = &server->gpus.at[index];
	const struct peer *taker = gpu->taker ? &server->peers[gpu->taker - 1] : NULL;

	gpu->on_way = 0;
	if (taker && taker != except && taker->state == PEER_STATE_CLIENT && taker->gpu == index &&
	    sched_client_state(&server->sched, taker->slot) == SCHED_CLIENT_INCOMING)
		gpu->on_way = taker->mem.swapped < gpu->total ? taker->mem.swapped : gpu->total;
	else
		gpu->taker = 0;
}
