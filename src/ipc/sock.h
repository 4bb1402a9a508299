/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_IPC_SOCK_H
#define NVS_IPC_SOCK_H

/*
 * The scheduler's socket, for both ends. Functions never raise SIGPIPE, and every new descriptor
 * is close-on-exec. Threading: one thread at a time may use a descriptor. Needs nothing but libc.
 */

#include "ipc/msg.h"

#include <sys/types.h>

/* Returns dir. If it is NULL or empty: $NVSHARE_SOCK_DIR, else the default. */
const char *sock_dir(const char *dir);

/*
 * Connects to the scheduler of dir (as sock_dir() has it). Returns a non-blocking descriptor,
 * which the caller owns, or -errno; -EAGAIN: the scheduler's backlog is full. The descriptor
 * refuses packets with descriptors, if the kernel can; pass_allow() allows them.
 */
int sock_connect(const char *dir);

/*
 * Refuses packets with descriptors to fd from now on; their sender gets EPERM. 0 or -errno;
 * -ENOPROTOOPT: the kernel is older than Linux 6.16.
 */
int sock_refuse_rights(int fd);

/* Sends one packet. 0 or -errno; -EAGAIN: the peer's buffer is full, and nothing was sent. */
int sock_send(int fd, const struct msg *msg);

/*
 * Sends whole packets, back to back in len bytes, with few system calls. *ret_sent: bytes of
 * the packets that were sent. 0, or the -errno of the first that was not, as in sock_send().
 */
int sock_send_all(int fd, const void *packets, size_t len, size_t *ret_sent);

/*
 * Receives one packet into buf. Returns its bytes, 0 at the end of the connection, or -errno
 * (-EAGAIN: no packet now). sock_peek() leaves the packet in the queue.
 */
ssize_t sock_recv(int fd, void *buf, size_t size);
ssize_t sock_peek(int fd, void *buf, size_t size);

enum sock_next {
	SOCK_NEXT_NONE, /* no packet now */
	SOCK_NEXT_END,  /* the connection has ended */
	SOCK_NEXT_PACKET,
	SOCK_NEXT_RIGHTS, /* a packet with descriptors */
};

/*
 * Tells what sock_recv() will find, and leaves it in the queue: enum sock_next or -errno. fd
 * needs SO_PASSCRED. Descriptors stay in the kernel's queue, until fd is closed.
 */
int sock_next(int fd);

struct sock_peer {
	pid_t pid;
	uid_t uid;
	gid_t gid;
};

/* The process that connected, from the kernel. 0 or -errno. */
int sock_peer(int fd, struct sock_peer *ret_peer);

#endif
