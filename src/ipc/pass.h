/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_IPC_PASS_H
#define NVS_IPC_PASS_H

/*
 * Passes descriptors with a packet of a Unix socket (SCM_RIGHTS): one, or some.
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

#define PASS_NO_UID  ((uid_t)-1)
#define PASS_FDS_MAX 253 /* the most that a packet can hold: the kernel's SCM_MAX_FD */

/* The descriptor and the sender of a packet. */
struct pass {
	int fd;    /* owned by the receiver, close-on-exec; -1: there was not exactly one */
	uid_t uid; /* the sender's, if the socket has SO_PASSCRED; else PASS_NO_UID */
};

/* All descriptors and the sender of a packet. */
struct pass_many {
	size_t n;
	int fds[PASS_FDS_MAX]; /* owned by the receiver, close-on-exec */
	uid_t uid;             /* as in struct pass */
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

/*
 * Sends one packet with copies of n descriptors, 0 to PASS_FDS_MAX. 0 or -errno; -EAGAIN: the
 * peer's buffer is full; -ETOOMANYREFS: too many descriptors of this user are under way.
 */
int pass_send_many(int fd, const void *bytes, size_t len, const int *passed, size_t n);

/* As pass_recv(), but with all descriptors. Returns the full length of a packet that is cut. */
ssize_t pass_recv_many(int fd, void *buf, size_t size, struct pass_many *ret_pass);

/* Closes all descriptors of pass, as pass_close() does. */
void pass_many_close(struct pass_many *pass);

/* Closes a descriptor of any kind, or -1. If it is a socket, close() does not linger. */
void pass_close(int fd);

#endif
