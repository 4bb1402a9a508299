/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Memory that has been exported, of which any process may have a handle, or a descriptor
 * that it was sent. The token is a socket with a name of its own: the kernel keeps the name
 * for as long as a descriptor of it is open or on its way, whoever was killed, and who wants
 * to know tries to take the name.
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

/* A socket with the name of that id; -EADDRINUSE: the token is still there. */
static int take_name(const uint64_t id[2])
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
		fd = take_name(entry->id);
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

/* Killed half way, the process leaves a free entry, or one whose token is gone. */
static int add_locked(unsigned int device, uint64_t bytes)
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
	fd = take_name(entry[i].id);
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
	fd = add_locked(device, bytes);
	if (fd == -ENOSPC) {
		node_passed_reap_locked();
		fd = add_locked(device, bytes);
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
