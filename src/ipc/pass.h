/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_IPC_PASS_H
#define NVS_IPC_PASS_H

/*
 * Descriptors that travel with a packet of a Unix socket (SCM_RIGHTS): one a packet.
 *
 * A descriptor from a stranger is a danger, whatever the receiver does: close() of a TCP
 * socket with SO_LINGER waits as long as its maker set. Closing a Unix socket with such a
 * packet in its queue waits as well, and so does receiving the packet without room for
 * control data. So a socket refuses descriptors where none is expected, and every receiver
 * of them has room for as many as a packet can hold.
 *
 * Threading: a descriptor belongs to one thread at a time. Needs libc alone.
 */

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define PASS_NO_UID ((uid_t)-1)

/* The descriptor and the sender of a packet. */
struct pass {
	int fd;    /* the receiver's, close-on-exec; -1: none, or more than one, all closed */
	uid_t uid; /* the sender's, where the socket has SO_PASSCRED; else PASS_NO_UID */
};

/*
 * Whether packets with descriptors may reach fd; by default they may. A sender of a refused
 * one gets EPERM. 0, or -ENOPROTOOPT before Linux 6.16, where nothing is refused.
 */
int pass_allow(int fd, bool is_allowed);

/* Sends one packet with a copy of passed. 0, or -errno; -EAGAIN: the peer's buffer is full. */
int pass_send(int fd, const void *bytes, size_t len, int passed);

/*
 * Bytes received, 0 at the end of the connection, or -errno (-EAGAIN: none now). A longer
 * packet is cut to size. *ret_pass is always set.
 */
ssize_t pass_recv(int fd, void *buf, size_t size, struct pass *ret_pass);

/* Closes a descriptor of unknown kind, which may be -1: a socket among them does not linger. */
void pass_close(int fd);

#endif
