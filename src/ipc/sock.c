/* SPDX-License-Identifier: Apache-2.0 */
#include "ipc/sock.h"

#include "ipc/pass.h"
#include "nvshare/protocol.h"
#include "util/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#define LOCK_NAME "scheduler.lock"

/* The kernel cuts it to net.core.somaxconn; thousands may reconnect at once. */
#define BACKLOG 8192

/* Packets a sendmmsg(). */
#define SEND_MAX 16

static const char *sock_dir(const char *dir)
{
	if (!dir || !*dir)
		dir = getenv("NVSHARE_SOCK_DIR");
	return dir && *dir ? dir : NVSHARE_SOCK_DIR_DEFAULT;
}

static int make_path(const char *dir, const char *name, char *buf, size_t size)
{
	int n = snprintf(buf, size, "%s/%s", dir, name);

	return n >= 0 && (size_t)n < size ? 0 : -ENAMETOOLONG;
}

int sock_connect(const char *dir)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	FD_CLEANUP int fd = -1;
	int ret;
	int r;

	r = make_path(sock_dir(dir), NVSHARE_SOCK_NAME, addr.sun_path, sizeof(addr.sun_path));
	if (r)
		return r;
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	/* Before anybody can send: nothing is known yet of who listens there. */
	(void)pass_allow(fd, false);
	do {
		r = connect(fd, (const struct sockaddr *)&addr, sizeof(addr));
	} while (r < 0 && errno == EINTR); /* local: it has not begun, so it can begin again */
	if (r < 0)
		return -errno;
	ret = fd;
	fd = -1; /* the caller's now */
	return ret;
}

/* The lock, not the socket, says whether an instance lives: a socket outlives its owner. */
static int take_lock(const char *dir)
{
	char path[sizeof(((struct sockaddr_un *)0)->sun_path)];
	FD_CLEANUP int fd = -1;
	int ret;
	int r;

	r = make_path(dir, LOCK_NAME, path, sizeof(path));
	if (r)
		return r;
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return -errno;
	if (flock(fd, LOCK_EX | LOCK_NB) < 0)
		return errno == EWOULDBLOCK ? -EADDRINUSE : -errno;
	ret = fd;
	fd = -1; /* the caller's now */
	return ret;
}

/* Only a socket is removed: a wrong directory must not cost a user a file. */
static int remove_old(const char *path, bool *ret_was_there)
{
	struct stat st;

	if (lstat(path, &st) < 0) {
		if (errno != ENOENT)
			return -errno;
		*ret_was_there = false;
		return 0;
	}
	if (!S_ISSOCK(st.st_mode))
		return -EEXIST;
	if (unlink(path) < 0)
		return -errno;
	*ret_was_there = true;
	return 0;
}

int sock_listen(const char *dir, int *ret_lock_fd, bool *ret_stale)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	FD_CLEANUP int lock_fd = -1;
	FD_CLEANUP int fd = -1;
	bool was_there = false;
	int ret;
	int r;

	dir = sock_dir(dir);
	r = make_path(dir, NVSHARE_SOCK_NAME, addr.sun_path, sizeof(addr.sun_path));
	if (r)
		return r;
	if (mkdir(dir, 0755) < 0 && errno != EEXIST)
		return -errno;
	lock_fd = take_lock(dir);
	if (lock_fd < 0)
		return lock_fd;
	r = remove_old(addr.sun_path, &was_there);
	if (r)
		return r;

	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	if (bind(fd, (const struct sockaddr *)&addr, sizeof(addr)) < 0)
		return -errno;
	/* Before listen(): nobody can connect until the mode is right, whatever the umask. */
	if (chmod(addr.sun_path, 0666) < 0)
		return -errno;
	if (listen(fd, BACKLOG) < 0)
		return -errno;

	*ret_lock_fd = lock_fd;
	*ret_stale = was_there;
	ret = fd;
	lock_fd = -1; /* both the caller's now */
	fd = -1;
	return ret;
}

int sock_send(int fd, const struct msg *msg)
{
	ssize_t n;

	do {
		n = send(fd, msg, msg->header.size, MSG_NOSIGNAL | MSG_DONTWAIT);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return errno == EWOULDBLOCK ? -EAGAIN : -errno;
	return 0; /* a packet is sent whole or not at all */
}

/* Up to SEND_MAX packets of those in len bytes; the number of them, or -errno. */
static int send_some(int fd, const uint8_t *packets, size_t len)
{
	struct mmsghdr messages[SEND_MAX] = {0};
	struct iovec parts[SEND_MAX];
	unsigned int n = 0;
	int r;

	for (size_t at = 0; at < len && n < SEND_MAX; at += parts[n++].iov_len) {
		struct nvshare_msg_header header;

		memcpy(&header, packets + at, sizeof(header));
		parts[n].iov_base = (void *)(uintptr_t)(packets + at); /* it is only read */
		parts[n].iov_len = header.size;
		messages[n].msg_hdr.msg_iov = &parts[n];
		messages[n].msg_hdr.msg_iovlen = 1;
	}
	do {
		r = sendmmsg(fd, messages, n, MSG_NOSIGNAL | MSG_DONTWAIT);
	} while (r < 0 && errno == EINTR);
	return r < 0 ? -errno : r;
}

int sock_send_all(int fd, const void *packets, size_t len, size_t *ret_sent)
{
	const uint8_t *bytes = packets;
	size_t sent = 0;
	int r = 0;

	while (sent < len) {
		r = send_some(fd, bytes + sent, len - sent);
		if (r < 0)
			break;
		for (; r > 0; r--) {
			struct nvshare_msg_header header;

			memcpy(&header, bytes + sent, sizeof(header));
			sent += header.size;
		}
	}
	*ret_sent = sent;
	return r;
}

static ssize_t receive(int fd, void *buf, size_t size, int flags)
{
	ssize_t n;

	do {
		n = recv(fd, buf, size, MSG_DONTWAIT | flags);
	} while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : n;
}

ssize_t sock_recv(int fd, void *buf, size_t size)
{
	return receive(fd, buf, size, 0);
}

ssize_t sock_peek(int fd, void *buf, size_t size)
{
	return receive(fd, buf, size, MSG_PEEK);
}

int sock_peer(int fd, struct sock_peer *ret_peer)
{
	struct ucred cred;
	socklen_t len = sizeof(cred);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0)
		return -errno;
	ret_peer->pid = cred.pid;
	ret_peer->uid = cred.uid;
	ret_peer->gid = cred.gid;
	return 0;
}
