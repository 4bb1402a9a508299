/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_IPC_SOCK_H
#define NVS_IPC_SOCK_H

/*
 * The socket itself, for both ends. Needs libc alone; never raises SIGPIPE; every
 * descriptor is close-on-exec. Threading: a descriptor belongs to one thread at a time.
 */

#include "ipc/msg.h"

#include <stdbool.h>
#include <sys/types.h>

/*
 * dir NULL: $NVSHARE_SOCK_DIR, else the default. A non-blocking descriptor, or -errno. The
 * socket refuses descriptors from the scheduler: pass_allow() when it may send some.
 */
int sock_connect(const char *dir);

/*
 * One instance a socket: holds a lock file beside it for as long as the process lives.
 * *ret_stale: a socket of an earlier instance was there. A listening descriptor (mode
 * 0666, non-blocking) and the lock's, or -errno; -EADDRINUSE: another instance runs.
 */
int sock_listen(const char *dir, int *ret_lock_fd, bool *ret_stale);

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

struct sock_peer {
	pid_t pid;
	uid_t uid;
	gid_t gid;
};
int sock_peer(int fd, struct sock_peer *ret_peer);

#endif
