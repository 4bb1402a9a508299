/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_IPC_PASS_H
#define NVS_IPC_PASS_H

/*
 * Passes a descriptor with a packet of a Unix socket (SCM_RIGHTS), one a packet.
 *
 * A stranger's descriptor is a danger. It may be a TCP socket with SO_LINGER, whose close()
 * blocks as long as its maker set. Closing a Unix socket with such a packet in its queue blocks,
 * too, and so does receiving the packet without room for control data. So a socket that expects
 * no descriptors refuses them, and a receiver has room for as many as a packet can hold.
 *
 * Threading: one thread at a time may use a socket. Needs nothing but libc.
 */

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define PASS_NO_UID ((uid_t)-1)

/* The descriptor and the sender of a packet. */
struct pass {
	int fd;    /* owned by the receiver, close-on-exec; -1: there was not exactly one */
	uid_t uid; /* the sender's, if the socket has SO_PASSCRED; else PASS_NO_UID */
};

/*
 * Allows or refuses packets with descriptors to fd; a new socket allows them. The sender of a
 * refused packet gets EPERM. 0 or -errno; -ENOPROTOOPT: before Linux 6.16 nothing is refused.
 */
int pass_allow(int fd, bool is_allowed);

/* Sends one packet with a copy of passed. 0 or -errno; -EAGAIN: the peer's buffer is full. */
int pass_send(int fd, const void *bytes, size_t len, int passed);

/*
 * Receives one packet; a longer one is cut to size. Returns its bytes, 0 at the end of the
 * connection, or -errno (-EAGAIN: no packet now). Always sets *ret_pass. If the packet brings
 * several descriptors, all are closed.
 */
ssize_t pass_recv(int fd, void *buf, size_t size, struct pass *ret_pass);

/* Closes a descriptor of any kind, or -1. If it is a socket, close() does not linger. */
void pass_close(int fd);

#endif
