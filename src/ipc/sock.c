/* SPDX-License-Identifier: Apache-2.0 */
#include "ipc/sock.h"

#include "ipc/pass.h"
#include "nvshare/protocol.h"
#include "util/fd.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

/* Packets of one sendmmsg(). */
#define SEND_MAX 16

const char *sock_dir(const char *dir)
{
	if (!dir || !*dir)
		dir = secure_getenv("NVSHARE_SOCK_DIR");
	return dir && *dir ? dir : NVSHARE_SOCK_DIR_DEFAULT;
}

int sock_connect(const char *dir)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	FD_CLEANUP int fd = -1;
	int ret;
	int r;

	r = snprintf(addr.sun_path, sizeof(addr.sun_path), "%s/" NVSHARE_SOCK_NAME, sock_dir(dir));
	if (r < 0 || (size_t)r >= sizeof(addr.sun_path))
		return -ENAMETOOLONG;
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	/* Before connect(): any user may listen there, and could send at once. */
	(void)sock_refuse_rights(fd);
	do {
		r = connect(fd, (const struct sockaddr *)&addr, sizeof(addr));
	} while (r < 0 && errno == EINTR); /* a local connect() has not begun then: try again */
	if (r < 0)
		return -errno;
	ret = fd;
	fd = -1; /* the caller's now */
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
	return 0; /* the kernel sends a packet whole or not at all */
}

/* Sends the first packets in len bytes, up to SEND_MAX. Returns how many were sent, or -errno. */
static int send_batch(int fd, const uint8_t *packets, size_t len)
{
	struct mmsghdr messages[SEND_MAX] = {0};
	struct iovec parts[SEND_MAX];
	unsigned int n = 0;
	int r;

	for (size_t at = 0; at < len && n < SEND_MAX; at += parts[n++].iov_len) {
		struct nvshare_msg_header header;

		memcpy(&header, packets + at, sizeof(header));
		parts[n].iov_base = (void *)(uintptr_t)(packets + at); /* sendmmsg() only reads */
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
		r = send_batch(fd, bytes + sent, len - sent);
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

static ssize_t receive_packet(int fd, void *buf, size_t size, int flags)
{
	ssize_t n;

	do {
		n = recv(fd, buf, size, MSG_DONTWAIT | flags);
	} while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : n;
}

ssize_t sock_recv(int fd, void *buf, size_t size)
{
	return receive_packet(fd, buf, size, 0);
}

ssize_t sock_peek(int fd, void *buf, size_t size)
{
	return receive_packet(fd, buf, size, MSG_PEEK);
}

/*
 * control has room for credentials only. With more room the kernel would install descriptors
 * in this process, and close those that it may not have during this call.
 */
int sock_next(int fd)
{
	char control[CMSG_SPACE(sizeof(struct ucred))];
	struct msghdr msg = {.msg_control = control, .msg_controllen = sizeof(control)};
	ssize_t n;

	do {
		n = recvmsg(fd, &msg, MSG_PEEK | MSG_DONTWAIT);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return errno == EAGAIN ? SOCK_NEXT_NONE : -errno;
	if (msg.msg_flags & MSG_CTRUNC)
		return SOCK_NEXT_RIGHTS;
	/* Every packet brings credentials, even an empty one; the end of a connection does not. */
	return msg.msg_controllen ? SOCK_NEXT_PACKET : SOCK_NEXT_END;
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
