/* SPDX-License-Identifier: Apache-2.0 */

/* This file has one function, so that a test can define its own, to stand for an older kernel. */

#include "ipc/sock.h"

#include <errno.h>
#include <sys/socket.h>

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83 /* Linux 6.16 */
#endif

int sock_refuse_rights(int fd)
{
	static const int off;

	return setsockopt(fd, SOL_SOCKET, SO_PASSRIGHTS, &off, sizeof(off)) < 0 ? -errno : 0;
}
