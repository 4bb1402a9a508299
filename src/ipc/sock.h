/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_IPC_SOCK_H
#define NVS_IPC_SOCK_H

/*
 * The socket itself, for both ends. Needs libc alone; never raises SIGPIPE; every
 * descriptor is close-on-exec. Threading: a descriptor belongs to one thread at a time.
 */

#include "ipc/msg.h"

#include <sys/types.h>

/* dir; if that is NULL or empty $NVSHARE_SOCK_DIR, else the default. */
const char *sock_dir(const char *dir);

/*
 * A non-blocking descriptor, or -errno; -EAGAIN: a scheduler is there, and its backlog is full.
 * Where the kernel can it lets nobody send descriptors over it: pass_allow() when the scheduler
 * may.
 */
int sock_connect(const char *dir);

/*
 * From now on whoever sends descriptors to fd is refused (EPERM). 0, or -errno; -ENOPROTOOPT: a
 * kernel before Linux 6.16.
 */
int sock_refuse_rights(int fd);

/* 0, or -errno; -EAGAIN when the peer's buffer is full (nothing was sent). */
int sock_send(int fd, const struct msg *msg);

/*
 * Whole packets, back to back in len bytes, in as few system calls as it takes.
 * *ret_sent: bytes of those that went. 0, or -errno as above for the first that did not.
 */
int sock_send_all(int fd, const void *packets, size_t len, size_t *ret_sent);

/* Bytes received into buf, 0 at the end of the connection, or -errno (-EAGAIN: none now). */
ssize_t sock_recv(int fd, void *buf, size_t size);
/* The same, and it is still there for the next call. */
ssize_t sock_peek(int fd, void *buf, size_t size);

enum sock_next {
	SOCK_NEXT_NONE, /* nothing now */
	SOCK_NEXT_END,  /* the connection has ended */
	SOCK_NEXT_PACKET,
	SOCK_NEXT_RIGHTS, /* a packet with descriptors */
};

/*
 * What sock_recv() would find; enum sock_next or -errno. Takes nothing: a descriptor that is not
 * taken stays in the kernel's queue, and is closed by whoever closes fd. Needs SO_PASSCRED on fd,
 * and no room for more control data than credentials: with more the kernel would hand
 * descriptors over, and close what this process may not have, in the middle of this call.
 */
int sock_next(int fd);

struct sock_peer {
	pid_t pid;
	uid_t uid;
	gid_t gid;
};
int sock_peer(int fd, struct sock_peer *ret_peer);

#endif
