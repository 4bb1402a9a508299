/* SPDX-License-Identifier: Apache-2.0 */

#include "hook/host/slab_link.h"

#include "hook/base/hook_log.h"
#include "hook/base/own_fd.h"
#include "util/clock.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

static int slab_link = -1; /* atomic: a forked child closes it */

bool slab_link_is_up(void)
{
	return slab_link >= 0;
}

int slab_link_fd(void)
{
	return slab_link;
}

/* Forgotten before it is closed: by then it may be the number of a file of a child's. */
void slab_link_close(void)
{
	int fd = __atomic_exchange_n(&slab_link, -1, __ATOMIC_ACQ_REL);

	if (own_fd_of(fd) >= 0)
		(void)shutdown(fd, SHUT_RDWR); /* a child of this moment may still have it open */
	(void)own_fd_close(fd);
}

void slab_link_open(int fd)
{
	slab_link_close();
	__atomic_store_n(&slab_link, own_fd_take(fd), __ATOMIC_RELEASE);
}

static int link_end(int r)
{
	if (r && r != -EAGAIN) {
		hook_debug("no slabs are lent any more: %s", strerror(-r));
		slab_link_close();
	}
	return r;
}

int slab_link_send(const struct slab_packet *packet, const int *fds, size_t n)
{
	int r;

	if (slab_link < 0)
		return -EPIPE;
	r = slab_packet_send(own_fd_of(slab_link), packet, fds, n);
	/* So many descriptors of this user are on their way: they will arrive. */
	return link_end(r == -ETOOMANYREFS ? -EAGAIN : r);
}

int slab_link_receive(struct slab_packet *ret, struct pass_many *ret_pass, uint64_t until_ns)
{
	struct pollfd fd = {.fd = own_fd_of(slab_link), .events = POLLIN};
	int r;

	ret_pass->n = 0;
	if (slab_link < 0)
		return -EPIPE;
	r = slab_packet_recv(own_fd_of(slab_link), SLAB_FROM_SCHEDULER, ret, ret_pass);
	if (r == -EAGAIN && until_ns && clock_poll(&fd, 1, until_ns) > 0)
		r = slab_packet_recv(own_fd_of(slab_link), SLAB_FROM_SCHEDULER, ret, ret_pass);
	if (r)
		pass_many_close(ret_pass);
	return link_end(r);
}

void slab_link_after_fork_child(void)
{
	(void)own_fd_close(__atomic_exchange_n(&slab_link, -1, __ATOMIC_ACQ_REL));
}
