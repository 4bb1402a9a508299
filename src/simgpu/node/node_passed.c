/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Exported memory: any process may have a handle of it, or a descriptor. The token is a socket
 * with a name of its own. The kernel keeps the name while a descriptor of the socket is open or
 * in a message, whichever process was killed. A process that can take the name knows that the
 * token has gone.
 */

#include "simgpu/node/node.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* Makes a socket with the name of id. -EADDRINUSE: the token is still there. */
static int take_token_name(const uint64_t id[2])
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	int fd, n, r = 0;

	n = snprintf(addr.sun_path + 1, sizeof(addr.sun_path) - 1, "nvshare-sim-%016llx%016llx",
		     (unsigned long long)id[0], (unsigned long long)id[1]);
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	if (bind(fd, (const struct sockaddr *)&addr,
		 (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n)) < 0)
		r = -errno;
	if (!r)
		return fd;
	close(fd);
	return r;
}

void node_passed_reap_locked(void)
{
	for (unsigned int i = 0; i < NODE_PASSED_MAX; i++) {
		struct node_passed *entry = &node_view.shared->passed[i];
		int fd;

		if (!entry->bytes)
			continue;
		fd = take_token_name(entry->id);
		if (fd < 0)
			continue;
		close(fd);
		node_debug("%llu bytes that were exported are free",
			   (unsigned long long)entry->bytes);
		entry->bytes = 0;
	}
}

uint64_t node_passed_locked(unsigned int device)
{
	uint64_t bytes = 0;

	for (unsigned int i = 0; i < NODE_PASSED_MAX; i++)
		if (node_view.shared->passed[i].device == device)
			bytes += node_view.shared->passed[i].bytes;
	return bytes;
}

/* A process that is killed in here leaves a free entry, or one whose token has gone. */
static int passed_add_locked(unsigned int device, uint64_t bytes)
{
	struct node_passed *entry = node_view.shared->passed;
	unsigned int i;
	int fd;

	for (i = 0; i < NODE_PASSED_MAX && entry[i].bytes; i++)
		;
	if (i == NODE_PASSED_MAX)
		return -ENOSPC;
	if (getrandom(entry[i].id, sizeof(entry[i].id), 0) != (ssize_t)sizeof(entry[i].id))
		return -EIO;
	fd = take_token_name(entry[i].id);
	if (fd < 0)
		return fd;
	entry[i].device = device;
	entry[i].bytes = bytes;
	node_view.self->device[device].used -= bytes;
	return fd;
}

int node_pass(unsigned int device, uint64_t bytes)
{
	int fd;

	node_lock();
	fd = passed_add_locked(device, bytes);
	if (fd == -ENOSPC) {
		node_passed_reap_locked();
		fd = passed_add_locked(device, bytes);
	}
	node_unlock();
	return fd;
}

void node_passed_hold(unsigned int device, int64_t bytes)
{
	if (!node_view.self)
		return;
	node_lock();
	node_view.self->device[device].passed += (uint64_t)bytes;
	node_unlock();
}
